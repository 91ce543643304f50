"""This machine, in words."""

import contextlib
import functools
import os
import pathlib
import platform
import re


@functools.cache
def processor() -> str:
    """Return the name of this machine's processor."""
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*:\s*(.+)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        if found:
            return re.sub(r"\s+", " ", re.sub(r"\((R|TM)\)|CPU|Processor", "", found.group(1))).strip()
    return platform.processor() or os.uname().machine


def duration(seconds: float) -> str:
    """Return a time that a person can read.

    Example:
      >>> [duration(seconds) for seconds in (0.42, 42, 4210, 40_000, 1e6, 1e9)]
      ['0.4 s', '42 s', '70 min', '11 h', '12 days', '32 years']
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, size, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800), ("days", 86_400, 7e7)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 31_557_600:.0f} years"


def seconds_of(words: str) -> float | None:
    """Return the time that words such as "4 min" begin with, seconds; None where they begin otherwise.

    Example:
      >>> [seconds_of(words) for words in ("4 min", "2 h, estimated", "1.5 days", "GPU-weeks, estimated")]
      [240.0, 7200.0, 129600.0, None]
    """
    found = re.match(r"(?:about )?([\d.]+) (s|min|h|hours?|days?)\b", words)
    return None if found is None else float(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[found[2][0]]


def size(count: float) -> str:
    """Return a number of bytes with its unit.

    Example:
      >>> size(999), size(2 * 2**20), size(3.5 * 2**30)
      ('1.0 KiB', '2.0 MiB', '3.5 GiB')
    """
    for unit, each in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20)):
        if count >= each:
            return f"{count / each:,.1f} {unit}"
    return f"{count / 2**10:,.1f} KiB"
