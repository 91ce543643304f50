"""How a process ended, in words."""

import pathlib
import signal

_LINES = 3
_BYTES = 4096
_COUNTERS = pathlib.Path("/proc/vmstat")


class Witness:
    """Remembers how many processes this machine had killed for lack of memory when it was made."""

    def __init__(self):
        self._before = _killed_for_memory()

    def more(self) -> bool:
        """Whether there are more by now; where nobody counts, False."""
        return _killed_for_memory() > self._before


def described(code: int, witness: Witness) -> str:
    """An exit code in words.

    Args:
      code: of `subprocess.Popen`: the number of a signal is negative.
      witness: made when the process was started.

    Example:
      >>> described(-9, Witness()), described(1, Witness())
      ('killed by SIGKILL', 'exit code 1')
    """
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    memory = ", perhaps for lack of memory: the system has killed a process for it since" if witness.more() else ""
    return f"killed by {name}{memory if -code == signal.SIGKILL else ''}"


def last_lines(file: pathlib.Path) -> str:
    """The last lines of a file that are not empty, as one; '' if there is none."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - _BYTES))
            text = opened.read().decode(errors="replace")
    except OSError:
        return ""
    return " | ".join([line.strip() for line in text.splitlines() if line.strip()][-_LINES:])


def _killed_for_memory() -> int:
    try:
        lines = _COUNTERS.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
