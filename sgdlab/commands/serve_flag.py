"""The flag --serve of commands that show a page while they run."""

from collections.abc import Sequence
from typing import Any

from absl import flags

from sgdlab.errors import UsageError

_LAST_PORT = 65535


class _PortParser(flags.ArgumentParser):
    """A port, or nothing: --serve, --serve=8080, --noserve."""

    syntactic_help = f"a port, from 0 (any that is free) to {_LAST_PORT}"

    def flag_type(self) -> str:
        return "port"

    def parse(self, argument: Any) -> int | None:
        if argument in ("true", "false"):
            return 0 if argument == "true" else None
        port = int(argument)
        if not 0 <= port <= _LAST_PORT:
            raise ValueError(f"{port} must be {self.syntactic_help}")
        return port


def define(words: str, module: str) -> None:
    """Defines it, as a flag of a module by its `__name__`, with the words that --help has."""
    # With a value or without, so it is a switch that has a number.
    flag = flags.Flag(_PortParser(), flags.ArgumentSerializer(), "serve", None, words, boolean=True)
    flags.DEFINE_flag(flag, module_name=module)


def check(argv: Sequence[str]) -> None:
    """Refuses a port that stands apart from the flag."""
    if flags.FLAGS.serve is not None and (apart := [word for word in argv[1:] if word.isdecimal()]):
        raise UsageError(f"--serve {apart[0]} must be one word: --serve={apart[0]}")
