"""Work functions of the tests of sweeps, for processes that import them, and the command that is killed."""

import os
import pathlib
import signal
import sys
import time

import numpy as np

from experiments.harness import Session, Sweep, within
from sgdlab import files

MOMENTS = ("at work", "before the rename", "after the rename")


def note(log: str, word: str, seed: int) -> None:
    """Appends a line, as one write."""
    with open(log, "ab", buffering=0) as file:
        file.write(f"{word} {seed}\n".encode())


def logged(*, log: str, seed: int, folder: pathlib.Path, report) -> dict:
    """Says that it begins, checks that nothing half written is there, and says that it ends."""
    note(log, "begins", seed)
    half = folder / "checkpoint"
    if half.exists() and half.read_text() != "whole":
        raise ValueError(f"{half} is half a file")
    report({"kind": "evaluation", "gradients": 1})
    with files.replacing(half) as file:
        file.write(b"who")
        die("at work", seed)
        file.write(b"le")
    note(log, "ends", seed)
    return {"square": seed**2}


def doubled(*, value: int, factor: int = 2) -> dict:
    """A work with a default."""
    return {"product": value * factor, "process": os.getpid()}


def tripled(*, value: int, factor: int = 2) -> dict:
    """Takes what `doubled` takes."""
    return {"product": value * factor * 3}


def slow(*, log: str, seed: int) -> dict:
    """Says that it begins, and takes its time."""
    note(log, "begins", seed)
    time.sleep(0.05)
    return {"counts": np.arange(seed), "mean": np.float64(seed / 2)}


def failing(*, seed: int) -> dict:
    """Fails for one seed."""
    if seed == 1:
        raise RuntimeError("seed 1 is unlucky")
    return {"seed_again": seed}


def watched(*, seed: int, log: str) -> dict:
    """Takes a minute, in the one process that is interrupted."""
    note(log, "begins", os.getpid())
    time.sleep(60)
    return {}


def die(moment: str, seed: int) -> None:
    """Kills this process, as nobody can refuse, at the moment and seed that the environment names."""
    if os.environ.get("DIE_AT") == f"{moment}, {seed}":
        os.kill(os.getpid(), signal.SIGKILL)


def killed_sweep(path: str, log: str, jobs: int) -> None:
    """Does the sweep, and dies where the environment says."""
    rename = os.replace

    def replaced(source, target, **given):
        name = pathlib.Path(target)
        at = [seed for seed in range(6) if keys.get(name.name) == seed]
        for seed in at:
            die("before the rename", seed)
        rename(source, target, **given)
        for seed in at:
            die("after the rename", seed)

    sweep = Sweep({"log": log}, {"seed": range(6)}, work=logged)
    keys = {f"{run.key}.jsonl": run.varied["seed"] for run in sweep.runs}
    os.replace = replaced
    with within(Session(pathlib.Path(path), jobs=jobs)):
        print(sweep.table().square.tolist())


if __name__ == "__main__":
    killed_sweep(sys.argv[1], sys.argv[2], int(sys.argv[3]))
