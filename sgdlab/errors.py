"""Errors that command lines answer in one line: mistakes, failed runs, lost hosts; and the request to stop."""

import concurrent.futures.process
import contextlib
import os
import pathlib
import re
import site
import sysconfig
import traceback
from collections.abc import Iterator, Sequence

_PACKAGE = f"{pathlib.Path(__file__).parent}{os.sep}"
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in ', re.MULTILINE)


class UsageError(ValueError):
    """A value that a person gave is impossible; the message names it and says what would be right."""


@contextlib.contextmanager
def said_of(flag: str) -> Iterator[None]:
    """Re-raises the `ValueError`s of a block, which begin with an argument, with its flag in front.

    Args:
      flag: what the messages are put behind.

    Raises:
      UsageError: instead of a `ValueError`.

    Example:
      >>> with said_of("--config."):
      ...     raise ValueError("epochs=0 must be above 0")
      Traceback (most recent call last):
      ...
      sgdlab.errors.UsageError: --config.epochs=0 must be above 0
    """
    try:
        yield
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"{flag}{error}") from error


class RunFailed(Exception):
    """An error in a run: the message holds the traceback, then the run, the line of the user's code, and the error.

    It holds text alone, so that it can be pickled, and sent to the parent process, whatever the error was.
    """


class HostLost(Exception):
    """Another process of the same run ended, stopped to answer, or never came; the message names it."""


class Stopped(Exception):
    """A run was asked to stop, and has stopped.

    Args:
      gradients: number of gradients that had been executed.
      total: number of gradients of the run.
      saved: whether a checkpoint holds the state of the run after these gradients.

    Example:
      >>> print(Stopped(120, 400, saved=True))
      Stopped after 120 of 400 gradients; the same command continues
    """

    def __init__(self, gradients: int, total: int, *, saved: bool):
        super().__init__(gradients, total, saved)
        self.gradients, self.total, self.saved = gradients, total, saved

    def __str__(self) -> str:
        after = f"Stopped after {self.gradients:,} of {self.total:,} gradients"
        return f"{after}; the same command continues" if self.saved else f"{after}, without a checkpoint"


_PASSED = (
    UsageError,
    RunFailed,
    HostLost,
    Stopped,
    MemoryError,
    BrokenPipeError,
    concurrent.futures.process.BrokenProcessPool,
)


@contextlib.contextmanager
def failures_of(run: str) -> Iterator[None]:
    """Turns errors of a block into `RunFailed`, which names the run and the line of the user's own code.

    Mistakes in flags, a lack of memory, a reader that has gone, a lost host and interruptions pass as they are.

    Args:
      run: what the message calls it, such as "gap_aware, 8 workers, seed 0".

    Raises:
      RunFailed: instead of any other `Exception`.
    """
    try:
        yield
    except _PASSED:
        raise
    except Exception as error:
        frame = _own_frame(traceback.extract_tb(error.__traceback__))
        where = f"{frame.filename}, line {frame.lineno}, in {frame.name}:\n    {frame.line}\n" if frame else "\n"
        what = _first_words("".join(traceback.format_exception_only(error)))
        whole = "".join(traceback.format_exception(error))
        raise RunFailed(f"{whole}\nerror: {run} failed: {where}{what}") from None


@contextlib.contextmanager
def mistakes_of(flag: str, path: pathlib.Path) -> Iterator[None]:
    """Turns errors of a block that executes a person's Python file into one line: the flag, their line, the error.

    Raises:
      UsageError: instead of any `Exception`.
    """
    try:
        yield
    except Exception as error:
        where, line = _place_of(error)
        place = f": {where}" if where and not path.samefile(where) else ""  # of a module beside the file
        place += f", line {line}" if line else ""
        said = _first_words(error.msg if isinstance(error, SyntaxError) else str(error))
        refused = isinstance(error, ValueError) and traceback.extract_tb(error.__traceback__)[-1].filename
        # What this package refuses says what would be right.
        kind = "" if refused and refused.startswith(_PACKAGE) else type(error).__name__
        raise UsageError(f"{flag}{place}: {': '.join(filter(None, [kind, said]))}") from error


def with_place(error: Exception) -> str:
    """Return the message of an error, and the file and line of a person's own code that it comes from, if it does."""
    file, line = _place_of(error)
    return f"{error} ({pathlib.PurePath(file).name}, line {line})" if file else str(error)


def in_one_line(error: BaseException) -> str:
    """Return an error's type and message, and the last line of the user's own code, if any has a part in it.

    Errors of callbacks come out of compiled programs as text, with a traceback inside: then it is that text's error.

    Example:
      >>> in_one_line(ValueError("batch_size=3 must be even"))
      'ValueError: batch_size=3 must be even'
    """
    text = "".join(traceback.format_exception_only(error)).split("\n--------------------\n", maxsplit=1)[0].strip()
    inside = [traceback.FrameSummary(found[1], int(found[2]), "") for found in _FRAME.finditer(text)]
    what = text.splitlines()[-1 if "Traceback (most recent call last):" in text else 0]
    frame = _own_frame([*traceback.extract_tb(error.__traceback__), *inside])
    is_theirs = frame is not None and not frame.filename.startswith(_PACKAGE)
    return f"{what} ({frame.filename}, line {frame.lineno}: {frame.line})" if frame and is_theirs else what


def _place_of(error: Exception) -> tuple[str | None, int | None]:
    """Returns the file and the line of a person's own code that an error comes from, as far as they are known."""
    if isinstance(error, SyntaxError) and os.path.isfile(error.filename or ""):  # not of what `ast` was given
        return error.filename, error.lineno
    frame = _own_frame(traceback.extract_tb(error.__traceback__))
    return (None, None) if frame is None or frame.filename.startswith(_PACKAGE) else (frame.filename, frame.lineno)


def _first_words(text: str) -> str:
    r"""The first line of an error, with those after it while a line ends in a colon, which is not all it says.

    Example:
      >>> _first_words("ValueError: shapes do not fit:\n  (3,) and (4,)\nSee the guide.")
      'ValueError: shapes do not fit: (3,) and (4,)'
    """
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    end = next((number for number, line in enumerate(lines) if not line.endswith(":")), len(lines) - 1)
    return " ".join(lines[: end + 1])


def _own_frame(frames: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """The innermost frame outside of libraries; outside of this package too, where there is one."""
    # A line is missing of code that was made up, such as a dataclass's constructor.
    files = [frame for frame in frames if frame.line and not is_library(frame.filename)]
    theirs = [frame for frame in files if not frame.filename.startswith(_PACKAGE)]
    return (theirs or files or [None])[-1]


def is_theirs(error: Exception) -> bool:
    """Return True if an error was raised in somebody's own code, or in what that called."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__) if frame.line]
    return any(not is_library(file) and not file.startswith(_PACKAGE) for file in files)


def is_library(filename: str) -> bool:
    """Return True if code is that of Python or of an installed package other than this one.

    Example:
      >>> import pathlib
      >>> is_library(pathlib.__file__), is_library(__file__), is_library("/home/me/my_parts.py")
      (True, False, False)
    """
    roots = (*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("stdlib"))
    return filename.startswith(tuple(f"{root}{os.sep}" for root in roots)) and not filename.startswith(_PACKAGE)
