"""How the command lines start: a useful --help, one clear line for a mistake, exit code 2, and a compilation cache."""

import concurrent.futures.process
import os
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

import jax
from absl import app, flags, logging
from absl.testing import flagsaver
from ml_collections import config_flags

from sgdlab.errors import UsageError
from sgdlab.jobs import configuration
from sgdlab.jobs.methods import methods

DEFAULT_CONFIG = "configs/digits.py"

CONFIG = config_flags.DEFINE_config_file("config", None, "Configuration file; its entries are flags too.")
WORKDIR = flags.DEFINE_string("workdir", None, "Directory for the results (default: see above).")


def run(main: Callable[[Sequence[str]], None], usage: str, *, configured: bool | str = True) -> None:
    """Parses flags and calls `main`; a UsageError is said in one line.

    Args:
      main: what to do.
      usage: the module's docstring, which --help begins with.
      configured: the command takes a configuration, by default this file, or configs/digits.py; those that draw a
        paper's figure have their own.
    """
    _keep_compiled_programs()
    app.run(lambda argv: _guarded(main, argv), flags_parser=lambda argv: _parsed(list(argv), usage, configured))


def command(module: ModuleType) -> None:
    """Runs one of this folder's commands: its `define_flags`, then `main`, which its docstring describes."""
    module.define_flags()
    run(module.main, module.__doc__, configured=getattr(module, "CONFIGURED", True))


def answer(
    main: Callable[[Sequence[str]], None],
    usage: str,
    argv: Sequence[str],
    *,
    configured: bool | str = True,
    define: Callable[[], None] = lambda: None,
) -> int:
    """Does in this process what a command line would, in a notebook or a test.

    Args:
      main: what to do.
      usage: the module's docstring.
      argv: the command line, its first word the command's name.
      configured: as in `run`.
      define: defines the command's own flags, which are forgotten afterwards.

    Returns:
      The exit code.
    """
    before, given = flagsaver.save_flag_values(), sys.argv
    sys.argv = list(argv)  # where the flags of a configuration's entries are looked for
    flags.FLAGS.unparse_flags()
    try:
        define()
        _guarded(main, _parsed(list(argv), usage, configured))
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        sys.argv = given
        flagsaver.restore_flag_values(before)
    return 0


def _keep_compiled_programs() -> None:
    """Compiled programs are kept between runs."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(pathlib.Path.home() / ".cache" / "sgdlab" / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def _guarded(main: Callable[[Sequence[str]], None], argv: Sequence[str]) -> None:
    logging.set_verbosity(logging.ERROR)
    if len(argv) > 1:
        _fail(f"{argv[1]!r} is not a flag; flags begin with --")
    try:
        main(argv)
    except UsageError as error:
        _fail(str(error))
    except MemoryError as error:
        _fail(f"out of memory; fewer epochs or workers need less ({error})")
    except concurrent.futures.process.BrokenProcessPool:
        print("error: a process was killed (out of memory?); the same command continues", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("\nInterrupted; the same command continues where it stopped.", file=sys.stderr)
        sys.exit(130)


def _parsed(argv: list[str], usage: str, configured: bool | str) -> list[str]:
    default = DEFAULT_CONFIG if configured is True else configured
    asks = {"--help", "-help", "-h", "--helpfull", "--helpshort"}
    given = [arg for arg in argv if arg not in asks]
    with_config = [arg for arg in given[1:] if re.split(r"[.=]", arg.lstrip("-"))[0] == "config"]
    if with_config and not configured:
        _fail(f"{with_config[0]} is not a flag of this command: it has its own configuration; --help lists its flags")
    if configured and not any(arg.lstrip("-").split("=")[0] == "config" for arg in given[1:]):
        given.insert(1, f"--config={default}")
    try:
        remaining = flags.FLAGS(given)
    except (AttributeError, KeyError) as error:
        _fail(f"{_culprit(given, error)} must be an entry of the configuration; --help lists them")
    except (flags.Error, TypeError, ValueError, OSError) as error:
        message = re.sub(r"invalid literal for int\(\).*", "must be a whole number", " ".join(str(error).split()))
        _fail(re.sub(r"could not convert string to float.*", "must be a number", message))
    try:
        if configured:
            flags.FLAGS.config.items()
    except OSError:  # ml_collections reports a file that it could not load at its first use
        _fail(f"--config={config_flags.get_config_filename(flags.FLAGS['config'])} must be a configuration file")
    if asks & set(argv):
        _help(usage, default)
        sys.exit(0)
    return remaining


def _culprit(given: list[str], error: Exception) -> str:
    """The flag whose entry ml_collections did not find: the last whose name is quoted in its message."""
    words = str(error.args[0])
    named = [arg for arg in given if any(f"'{part}'" in words for part in re.split(r"[.=]", arg.lstrip("-")))]
    return named[-1] if named else f"--config ({words})"


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def _help(usage: str, default_config: str | bool) -> None:
    print(f"{usage.strip()}\n\nFlags:")
    for flag in sorted(_own_flags(), key=lambda flag: flag.name):
        if flag.name == "config" and not default_config:
            continue
        default = f" (default: {flag.default_as_str})" if flag.default is not None else ""
        default = f" (default: {default_config})" if flag.name == "config" else default
        print(f"  --{flag.name}: {flag.help}{default}")
    if not default_config:
        return
    print("\nEntries of the configuration, each a flag:")
    words = _help_of_parts() if "method" in flags.FLAGS.config else {}
    for name, value in configuration.flat(flags.FLAGS.config):
        flag = f"--config.{name}={'' if value is None else value}"
        print(f"  {flag:<60} {words[name]}" if name in words else f"  {flag}")
    if "method" not in flags.FLAGS.config:
        return
    print("\nMethods:")
    for name, method in methods().items():
        print(f"  {name:<26} {method.title} ({method.source})" if method.source else f"  {name:<26} {method.title}")


def _help_of_parts() -> dict[str, str]:
    """What the docstrings of parts say of their entries; of kinds, which there are."""
    words = {}
    for registry in configuration.FAMILIES:
        words[f"{registry.family}.kind"] = f"one of {', '.join(registry)}"
        for part in registry.values():
            words |= {f"{registry.family}.{part.name}.{name}": line for name, line in part.help().items()}
    return words


def _own_flags() -> list[flags.Flag]:
    """Flags that this project defines, less one for each entry of the configuration."""
    by_module = flags.FLAGS.flags_by_module_dict()
    ours = [
        flag for module, found in by_module.items() if "experiments" in module or "sgdlab" in module for flag in found
    ]
    return [flag for flag in ours if not flag.name.startswith("config.")]
