"""Starts the commands: flags are checked before JAX is imported, a mistake is one line, --help is a page."""

import concurrent.futures.process
import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NoReturn

from absl import app, flags, logging
from absl.testing import flagsaver
from ml_collections import ConfigDict, config_flags

from sgdlab import files, hosts, runs
from sgdlab.commands import flag_names, help_page
from sgdlab.errors import HostLost, RunFailed, Stopped, UsageError, failures_of
from sgdlab.hosts.lifeline import LOST

DEFAULT_CONFIG = "configs/digits.py"

CONFIG = config_flags.DEFINE_config_file("config", None, "Configuration file; its entries are flags too.")
_WORKDIR = "Directory for the results; if it holds results of an earlier call, the command continues them."
WORKDIR = flags.DEFINE_string("workdir", None, _WORKDIR)
PARTS = flags.DEFINE_list(
    "parts", [], "Python files with custom components (rules, protocols, data, ...), separated by commas."
)

_STOPPED, _INTERRUPTED = 75, 130
"""Exit codes: the same command continues from a checkpoint; from the runs that have finished."""

_LONGEST_LINE = 500
_COMMUNICATION = re.compile(r"gloo|nccl|coordination service|UNAVAILABLE:|DEADLINE_EXCEEDED", re.IGNORECASE)
"""Words of errors that come of the end of another process."""

_HELP = {"--help", "-help", "-h", "--helpshort"}
_HELP_ON_ALL = {"--help=all", "-help=all", "--helpfull"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A command: what it does, its flags, and how its command line is read."""

    main: Callable[[Sequence[str]], None]  # does it, given the arguments that are no flags, the command's name first
    usage: str | None  # what --help begins with: the docstring of its module
    define: Callable[[], None] = lambda: None  # defines the command's own flags
    # whether the command takes a configuration: True, by default configs/digits.py; the file that is the default, such
    # as a paper's; or a function that is given the arguments and returns the file that they ask for
    configured: bool | str | Callable[[Sequence[str]], str] = True
    # entries of the configuration that the command sets by a flag of its own: entry -> flag
    own_entries: Mapping[str, str] = dataclasses.field(default_factory=dict)
    positional: bool = False  # whether one argument may be a file instead of a flag; `main` is given it
    unlisted: Sequence[str] = ()  # flags and entries of the configuration that --help leaves to --help=all
    hidden: Sequence[str] = ()  # flags that no help shows, since the command refuses or ignores them
    workdir: str = _WORKDIR  # help of --workdir

    def run(self) -> None:
        """Does what the command line of this process says; a mistake is one line, and ends it."""
        self.define()
        _keep_compiled_programs()
        app.run(lambda argv: _guarded(self.main, argv), flags_parser=lambda argv: _parsed(list(argv), self))

    def answer(self, argv: Sequence[str]) -> int:
        """Do in this process what a command line would, in a notebook or a test, and return the exit code.

        Args:
          argv: the command line, its first word the command's name. Flags that the command defines are forgotten
            afterwards.
        """
        before, given = flagsaver.save_flag_values(), sys.argv
        sys.argv = list(argv)  # where the flags of a configuration's entries are looked for
        flags.FLAGS.unparse_flags()
        try:
            self.define()
            _guarded(self.main, _parsed(list(argv), self))
        except SystemExit as ended:
            return int(ended.code or 0)
        finally:
            sys.argv = given
            flagsaver.restore_flag_values(before)
        return 0


def workdir(default: str) -> pathlib.Path:
    """Returns the directory of the results, which can be written, or is refused; called before anything long begins."""
    path = pathlib.Path(os.path.expanduser(WORKDIR.value or default))  # shells leave the ~ of --workdir=~/runs
    if hosts.is_first():  # of many processes, the others are told by `hosts.check_shared`
        files.check_writable(path)
    return path


def given_entries() -> list[str]:
    """Names of the configuration's entries that were set on the command line."""
    return list(config_flags.get_override_values(flags.FLAGS["config"]))


def refuse_entries(groups: Collection[str], why: str) -> None:
    """Refuses entries of the configuration that flags have set, where they are of some groups; says why."""
    for name in given_entries():
        if name.partition(".")[0] in groups:
            raise UsageError(f"--config.{name} must be left out: {why}")


def _keep_compiled_programs() -> None:
    """Compiled programs are kept between runs; by the environment, which JAX reads when it is imported."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(pathlib.Path.home() / ".cache" / "sgdlab" / "compiled")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")


def _guarded(main: Callable[[Sequence[str]], None], argv: Sequence[str]) -> None:
    """Runs a command, whose errors are one line and an exit code; over hosts, an error of one process ends all."""
    logging.set_verbosity(logging.ERROR)
    try:
        with failures_of("the command"):
            main(argv)
            hosts.disconnect()
    except Stopped as stopped:
        if hosts.is_first():
            print(stopped, file=sys.stderr)
        try:
            hosts.disconnect()
        except HostLost as error:
            _end(LOST, f"error: {error}")
        sys.exit(_STOPPED if stopped.saved else _INTERRUPTED)
    except UsageError as error:
        _end(2, f"error: {error}")
    except RunFailed as error:
        _end(1, str(error))
    except HostLost as error:
        _end(LOST, f"error: {error}")
    except MemoryError as error:
        _end(2, f"error: out of memory; fewer epochs or workers need less ({error})")
    except concurrent.futures.process.BrokenProcessPool:
        _end(
            1,
            "error: a process ended before its time. If the traceback of a script of yours stands above, start the "
            'command under `if __name__ == "__main__":` there, since processes import the script. Else the process was '
            "killed from outside (out of memory?): the same command continues, and a single process needs less memory "
            "(--processes=1; of a paper's figure, --jobs=1)",
        )
    except BrokenPipeError:  # as by `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        hosts.leave(1, "nobody reads what it prints")
    except KeyboardInterrupt:
        _end(_INTERRUPTED, "\nInterrupted; the same command continues where it stopped.")
    except SystemExit as ended:
        if hosts.connected() and ended.code:
            hosts.leave(ended.code if isinstance(ended.code, int) else 1)
        raise


def _end(code: int, message: str) -> NoReturn:
    """Ends the command with a message on stderr; over hosts, all of its processes."""
    last = message[message.rfind("\nerror: ") + 1 :].removeprefix("error: ")
    if hosts.connected() and _COMMUNICATION.search(last):
        hosts.wait_for_reason()
        code = LOST
    with contextlib.suppress(OSError):  # such as of a log on a disk that is full: the others are told all the same
        print(message, file=sys.stderr)
    hosts.leave(code, " ".join(last.split())[:_LONGEST_LINE])


def _parsed(argv: list[str], command: Command) -> list[str]:
    configured = command.configured
    default = DEFAULT_CONFIG if configured is True or callable(configured) else configured
    asks = set(argv) & (_HELP | _HELP_ON_ALL)
    given = [arg for arg in argv if arg not in asks]
    try:
        flag_names.check(
            given[1:],
            configured=bool(configured),
            entries=lambda: runs.configuration.entries_of(str(default)),
            positional=command.positional,
        )
        given = [given[0], *flag_names.files_last(given[1:])]
        for file in flag_names.values(given[1:], "parts"):
            runs.parts.load(file)
        if callable(configured):
            default = configured(argv[1:])
        if configured:
            _refuse(given[1:], command.own_entries)
            given = _with_file(given, str(default))
        remaining = _by_absl(given, configured=bool(configured))
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    if asks:
        config, whole = flags.FLAGS.config if configured else None, bool(asks & _HELP_ON_ALL)
        flags.FLAGS["workdir"].help = command.workdir
        with contextlib.suppress(BrokenPipeError):  # a pager that was closed, or head
            hidden = (*command.own_entries, *command.hidden, *(() if whole else command.unlisted))
            print(help_page.page(command.usage or "", config, str(default), hidden, whole=whole), flush=True)
        sys.exit(0)
    return remaining


def _by_absl(given: list[str], *, configured: bool) -> list[str]:
    """Parses flags, and so imports the configuration; of a wrong one, the entry is named that may have been meant."""
    logging.set_verbosity(logging.ERROR)
    sys.modules.pop("config_config", None)  # or a file without get_config would have that of the one before it
    try:
        unset = _unset(given) if configured else []
        remaining = flags.FLAGS(functools.reduce(flag_names.without, (f"config.{name}" for name in unset), given))
        # A file that it could not load ml_collections reports at its first use.
        if configured and not isinstance(flags.FLAGS.config, ConfigDict):
            raise TypeError("no configuration")
        if configured:
            flags.FLAGS.config.update_from_flattened_dict(dict.fromkeys(unset))
            config_flags.get_override_values(flags.FLAGS["config"]).update(dict.fromkeys(unset))
            _drop_target(given)
    except Exception as error:
        if configured:
            runs.configuration.load(_named_in(given))  # whose own mistakes come before those of its entries
        raise UsageError(_refusal(given, error)) from error
    return remaining


def _unset(given: list[str]) -> list[str]:
    """Return the entries that the last of their flags sets to None, or none, of those that can be None.

    Flags of ml_collections have a type, and None has not.
    """
    last = {name: value for name, value in flag_names.pairs(given[1:]) if name.startswith("config.")}
    found = [name.removeprefix("config.") for name, value in last.items() if value in ("None", "none")]
    if not found:
        return []
    config = runs.configuration.load(_named_in(given))
    return [name for name in found if runs.configuration.can_be_none(config, name)]


def _drop_target(given: list[str]) -> None:
    """Leave no target that a configuration's file has for its own metric, where flags ask for a task of another one."""
    config, entries = flags.FLAGS.config, given_entries()
    changed = any(name.startswith(("network.", "task.")) for name in entries)
    if not changed or "target" in entries or config.get("target") is None:
        return
    with contextlib.suppress(UsageError):  # which the command says itself
        if runs.experiment.metric_of(config) != runs.experiment.metric_of(runs.configuration.load(_named_in(given))):
            config.target = None


def _refusal(given: list[str], error: Exception) -> str:
    """Returns what to say of flags that cannot be parsed."""
    if isinstance(error, AttributeError | KeyError):
        entries = runs.configuration.entries_of(_named_in(given))
        return flag_names.unknown_entry(_culprit(given, error), entries)
    if group := re.search(r"--config\.(\w+)=(\w+).*as a ConfigDict", str(error), re.DOTALL):
        name, value = group.groups()
        meant = f"--config.{name}.kind={value}"
        return f"--config.{name}={value} must be an entry; did you mean {meant}?"
    message = re.sub(r"invalid literal for int\(\).*", "must be a whole number", " ".join(str(error).split()))
    message = re.sub(r"could not convert string to float.*", "must be a number", message)
    message = re.sub(r"\('Non-boolean argument.*", "must be true or false", message)
    return re.sub(r"^flag (--\S+?=.*?): (?=must be)", r"\1 ", message)


def _refuse(arguments: Sequence[str], own_entries: Mapping[str, str]) -> None:
    """Refuses entries that a command sets by flags of its own."""
    for argument in arguments:
        entry = argument.lstrip("-").split("=")[0].removeprefix("config.")
        if argument.lstrip("-").startswith("config.") and entry in own_entries:
            raise UsageError(f"{argument} must be left out: this command sets it by --{own_entries[entry]}")


def _culprit(given: list[str], error: Exception) -> str:
    """The flag whose entry ml_collections did not find: the last whose name is quoted in its message."""
    words = str(error.args[0]).replace("\\", "")
    named = [arg for arg in given if any(f"'{part}'" in words for part in re.split(r"[.=]", arg.lstrip("-")))]
    return named[-1] if named else f"--config ({words})"


def _with_file(given: list[str], default: str) -> list[str]:
    """Return the same arguments, with the configuration's file behind the command's name, as a path that is there."""
    named = flag_names.values(given[1:], "config", split=False)
    others = flag_names.without(given[1:], "config")
    config = runs.configuration.found(named[-1] if named else default)
    runs.parts.python_file("--config", config.partition(":")[0])
    return [given[0], f"--config={config}", *others]


def _named_in(given: Sequence[str]) -> str:
    """Return the file of a command line that names one, its name first; the last of several."""
    return flag_names.values(given[1:], "config", split=False)[-1]
