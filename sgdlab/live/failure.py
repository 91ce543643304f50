"""An error of a worker in one line, which is sent to the server."""

import linecache
import os
import pathlib
import re
import traceback

from sgdlab.errors import is_library

_FRAME = re.compile(r'^  File "(.+)", line (\d+), in ', re.MULTILINE)
_PACKAGE = f"{pathlib.Path(__file__).parents[1]}{os.sep}"


def in_one_line(error: BaseException) -> str:
    """An error's type and message, and the last line of the user's own code, if any has a part in it.

    Errors of callbacks come out of compiled programs as text, with a traceback inside: then it is that text's error.

    Example:
      >>> in_one_line(ValueError("batch_size=3 must be even"))
      'ValueError: batch_size=3 must be even'
    """
    text = "".join(traceback.format_exception_only(error)).split("\n--------------------\n", maxsplit=1)[0].strip()
    within = "Traceback (most recent call last):" in text
    frames = [(frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__)]
    frames += [(found[1], int(found[2])) for found in _FRAME.finditer(text)]
    what = text.splitlines()[-1 if within else 0]
    for file, number in reversed(frames):
        line = linecache.getline(file, number).strip()
        if line and not is_library(file) and not file.startswith(_PACKAGE):
            return f"{what} ({file}, line {number}: {line})"
    return what
