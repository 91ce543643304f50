"""Prints --help: a page with what is needed most, or (--help=all) every entry of the configuration."""

import pathlib
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from absl import flags
from ml_collections import ConfigDict, config_flags

from sgdlab import runs
from sgdlab.commands import flag_names

COMMON = (
    "method",
    "cluster.num_workers",
    "seed",
    "epochs",
    "batch_size",
    "optimizer.learning_rate",
    "network.kind",
    "data.kind",
    "cluster.kind",
    "protocol.kind",
    "rule.kind",
)
"""Entries on the first page, in their order."""

_WIDTH = 118
_COMMENT = re.compile(r"^\s+config\.([\w.]+) = [^#\n]*# (.+)$", re.MULTILINE)


def page(usage: str, config: ConfigDict | None, default: str, hidden: Sequence[str] = (), *, whole: bool) -> str:
    """Return what --help prints: a page of at most fifty lines, or all there is.

    Entries that are `hidden` the command sets by its own flags, or leaves to the whole page. That has every entry,
    and every method with its source; the other one the common entries, and the methods by family.
    """
    lines = [usage.strip(), "", "Flags:", *_flags(default, hidden, with_config=config is not None)]
    if config is None:
        return "\n".join(lines)
    entries = {name: value for name, value in runs.configuration.flat(config) if name not in hidden}
    title = "Entries of the configuration, each a flag:"
    if not whole:
        entries = {name: entries[name] for name in COMMON if name in entries} or entries
        title = "Common entries of the configuration (--help=all lists all):"
    lines += ["", title, *_entries(entries, _meanings(config, whole=whole))]
    if "method" in config:
        lines += ["", "Methods:", *(_methods() if whole else _methods_by_family())]
    return "\n".join(lines)


def _flags(default: str, hidden: Sequence[str], *, with_config: bool) -> Iterable[str]:
    found = [flag for flag in flag_names.own_flags() if flag.name not in hidden]
    for flag in sorted(found, key=lambda flag: flag.name):
        if flag.name == "config" and not with_config:
            continue
        shown = default if flag.name == "config" else flag.default_as_str
        shown = f" (default: {shown.strip(chr(39))})" if shown and shown not in ("''", "[]") else ""
        meaning = flag.help.partition(";\n    repeat this option")[0]  # which absl adds to flags that may be repeated
        yield from textwrap.wrap(
            f"--{flag.name}: {meaning}{shown}", _WIDTH, initial_indent="  ", subsequent_indent="      "
        )


def _entries(entries: Mapping[str, object], words: Mapping[str, str]) -> Iterable[str]:
    shown = {name: f"--config.{name}={'' if value is None else value}" for name, value in entries.items()}
    width = min(max(map(len, shown.values()), default=0), 60)
    lines = []
    for name, flag in shown.items():
        head, rest = f"  {flag:<{width}}  ", " " * (width + 4)
        # A flag is never cut, nor a default that holds spaces.
        words_ = textwrap.wrap(words.get(name, ""), max(_WIDTH - len(head), _WIDTH // 3)) or [""]
        lines += [(head + words_[0]).rstrip(), *(rest + more for more in words_[1:])]
    return lines


def _meanings(config: ConfigDict, *, whole: bool) -> dict[str, str]:
    """Return what entries mean, by comments of the defaults and of the configuration's file, docstrings and kinds."""
    own = pathlib.Path(config_flags.get_config_filename(flags.FLAGS["config"]).partition(":")[0])
    words = {}
    for file in (pathlib.Path(runs.configuration.__file__), own):
        words |= {name: comment.strip() for name, comment in _COMMENT.findall(file.read_text(encoding="utf-8"))}
    for registry in runs.configuration.FAMILIES:
        if registry.family in config:
            words[f"{registry.family}.kind"] = _kinds(registry.family, list(registry), whole=whole)
        for part in registry.values():
            words |= {f"{registry.family}.{part.name}.{name}": line for name, line in part.help().items()}
    return words


def _kinds(family: str, names: Sequence[str], *, whole: bool) -> str:
    """The kinds of a family; on the first page, protocols and rules stand below, among the methods."""
    own = f"a {family} of your choice, instead of the method's"
    kinds = f"one of {', '.join(names)}"
    if family in ("protocol", "rule"):
        return f"{own}: {kinds}" if whole else own
    return kinds


def _methods() -> Iterable[str]:
    for name, method in runs.methods.methods().items():
        source = f" ({method.source})" if method.source else ""
        yield f"  {name:<26} {method.title}{source}"


def _methods_by_family() -> Iterable[str]:
    families: dict[str, list[str]] = {}
    for name, method in runs.methods.methods().items():
        families.setdefault(method.families[0], []).append(name)
    for family, names in families.items():
        yield from textwrap.wrap(f"{family}: {', '.join(names)}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
