"""Stand-ins for the commands of a cluster: they record how they are called, and run what they are given here."""

import json
import os
import pathlib
import subprocess
import sys
import time

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"

RECORDING = f"""#!{sys.executable} -I
import json, os, pathlib, subprocess, sys
name, arguments = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
with open(os.environ["CALLS"], "a") as file:
    print(json.dumps([name, *arguments]), file=file)
"""


def answer(*command, **given):
    """A command that has ended, with what it has written."""
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **given)


class Cluster:
    """A folder of stand-ins, which come first in PATH.

    Args:
      folder: where they go.
    """

    def __init__(self, folder):
        self.folder, self._calls = folder, folder / "calls.jsonl"
        folder.mkdir()
        self._calls.touch()
        self.environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "CALLS": str(self._calls)}

    def add(self, name, program=""):
        """Adds a command that records its call, and then does what a Python program says."""
        path = self.folder / name
        path.write_text(RECORDING + program)
        path.chmod(0o755)

    def calls(self, name):
        """The arguments of each call of a command, in their order."""
        calls = map(json.loads, self._calls.read_text().splitlines())
        return [arguments for called, *arguments in calls if called == name]


def until(condition, seconds=60.0):
    """Waits until something is so.

    Args:
      condition: a function without arguments; what it returns is returned once it is true.
      seconds: after which the test has failed.
    """
    ends = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < ends, f"not so within {seconds:g} s"
        time.sleep(0.02)
    return found


def is_running(pid):
    """Return whether there is a process of this number that has not ended (one that has may wait to be collected)."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"
