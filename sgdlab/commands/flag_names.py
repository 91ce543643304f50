"""The names on a command line, checked before anything is imported for them: a wrong one is answered at once."""

import difflib
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence

from absl import flags

from sgdlab.arguments import nearest
from sgdlab.errors import UsageError


def check(
    arguments: Sequence[str], *, configured: bool, entries: Callable[[], Sequence[str]], positional: bool = False
) -> None:
    """Checks that every argument is a flag of this command, or looks like an entry of its configuration.

    `configured` and `positional` are those of the `Command`; the names of entries are asked for only where a flag
    is not known.

    Raises:
      UsageError: naming the first that is wrong, and what may have been meant.
    """
    last, file = "", None
    for name, value, (argument, *_) in _split(arguments):
        if name is None:
            # Behind a list it may be an item that was separated by a space.
            if not positional or (last and not pathlib.Path(argument).exists()):
                raise UsageError(_stray(argument, last))
            if file is not None:
                raise UsageError(f"{argument!r} must be left out: {file!r} is the file to read; flags begin with --")
            file, last = argument, ""
            continue
        if value == "" and _is_text_or_none(name):
            raise UsageError(f"--{name}= must not be empty; leave it out for what is usual")
        if name.split(".")[0] == "config":
            if not configured:
                raise UsageError(
                    f"{argument} is not a flag of this command: it has its own configuration; --help lists its flags"
                )
        elif name not in flags.FLAGS and not _negates(name):
            meant = difflib.get_close_matches(name, [flag.name for flag in own_flags()], n=1, cutoff=0.75)
            found = [f"--{meant[0]}"] if meant else [f"--config.{entry}" for entry in nearest(name, entries())]
            raise UsageError(f"--{name} is not a flag; {_did_you_mean(found, value)}")
        else:
            _check_value(name, value)
        is_list = name in flags.FLAGS and isinstance(flags.FLAGS[name].parser, flags.ListParser)
        last = f"--{name}={value}" if is_list else ""


def _is_text_or_none(name: str) -> bool:
    """Return True for a text flag, such as a path, that is left out by default: an empty value of it is ambiguous."""
    if name not in flags.FLAGS or flags.FLAGS[name].default is not None:
        return False
    return flags.FLAGS[name].parser.flag_type() in ("string", "config object")


def _check_value(name: str, value: str | None) -> None:
    """Refuses what is no number where a number is wanted, before anything is imported for the others."""
    if name not in flags.FLAGS or value is None:
        return
    parser = flags.FLAGS[name].parser
    try:
        parser.parse(value)
    except (TypeError, ValueError):
        choices = getattr(parser, "enum_values", None)
        right = f"one of {', '.join(choices)}" if choices else parser.syntactic_help or "true or false"
        raise UsageError(f"--{name}={value} must be {right}") from None


def values(arguments: Sequence[str], wanted: str, *, split: bool = True) -> list[str]:
    """The values that a flag is given, those of lists one by one.

    Example:
      >>> values(["--parts=a.py,b.py", "--seeds=2"], "parts")
      ['a.py', 'b.py']
    """
    found = [value or "" for name, value, _ in _split(arguments) if name == wanted]
    return [part for value in found for part in (value.split(",") if split else [value]) if part]


def pairs(arguments: Sequence[str]) -> list[tuple[str, str | None]]:
    """The name and the value of each flag, in order.

    Example:
      >>> pairs(["--seeds=2", "steps.csv", "--once"])
      [('seeds', '2'), ('once', None)]
    """
    return [(name, value) for name, value, _ in _split(arguments) if name is not None]


def files(arguments: Sequence[str]) -> list[str]:
    """The arguments that are no flags.

    Example:
      >>> files(["--seeds=2", "steps.csv", "--once"])
      ['steps.csv']
    """
    return [words[0] for name, _, words in _split(arguments) if name is None]


def without(arguments: Sequence[str], unwanted: str) -> list[str]:
    """The arguments less a flag and its value."""
    return [word for name, _, words in _split(arguments) if name != unwanted for word in words]


def files_last(arguments: Sequence[str]) -> list[str]:
    """The same arguments, those that are no flags behind the others, since absl stops at the first of them.

    Example:
      >>> files_last(["steps.csv", "--seeds=2"])
      ['--seeds=2', 'steps.csv']
    """
    split = sorted(_split(arguments), key=lambda found: found[0] is None)
    return [word for _, _, words in split for word in words]


def unknown_entry(argument: str, entries: Sequence[str]) -> str:
    """Return what to say of a flag that names no entry of the configuration."""
    name, _, value = argument.lstrip("-").partition("=")
    found = [f"--config.{entry}" for entry in nearest(name.removeprefix("config."), entries)]
    return f"{argument} must be an entry of the configuration; {_did_you_mean(found, value)}"


def _split(arguments: Sequence[str]) -> Iterator[tuple[str | None, str | None, list[str]]]:
    """Yield name, value and the words themselves, one or two; the name of what is no flag is None."""
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if not argument.startswith("-") or not argument.strip("-"):
            yield None, None, [argument]
            continue
        name, equals, value = argument.lstrip("-").partition("=")
        apart = [] if equals or _is_switch(name) or not waiting or waiting[0].startswith("--") else [waiting.pop(0)]
        yield name, value if equals else (apart or [None])[0], [argument, *apart]


def _is_switch(name: str) -> bool:
    """Return True of a flag that takes no value behind a space."""
    return _negates(name) or (name in flags.FLAGS and flags.FLAGS[name].boolean)


def _negates(name: str) -> bool:
    return name.startswith("no") and name[2:] in flags.FLAGS and bool(flags.FLAGS[name[2:]].boolean)


def own_flags() -> list[flags.Flag]:
    """The flags that this project defines, less one for each entry of the configuration."""
    by_module = flags.FLAGS.flags_by_module_dict()
    modules = [name for name in by_module if re.search("sgdlab|experiments|__main__", name)]
    return [flag for name in modules for flag in by_module[name] if not flag.name.startswith("config.")]


def _stray(argument: str, last: str) -> str:
    """Return what to say of a word that is no flag, behind a list (or not)."""
    if last:
        return f"{argument!r} is not a flag; items of a list are separated by commas: {last},{argument}"
    if "trace" in flags.FLAGS and pathlib.Path(argument).suffix:
        return f"{argument!r} is not a flag; did you mean --trace={argument}?"
    return f"{argument!r} is not a flag; flags begin with --"


def _did_you_mean(found: Sequence[str], value: str | None) -> str:
    shown = [f"{name}={value}" if value is not None else name for name in found]
    return f"did you mean {' or '.join(shown)}?" if shown else "--help=all lists them"
