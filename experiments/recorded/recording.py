"""Records episodes into a folder: a file of each, and what is known of all in truth.json; what is there is kept."""

import contextlib
import json
import os
import pathlib
import platform
import tempfile
from typing import Any

import numpy as np
from tqdm import tqdm

from experiments.benchmarks import diagnosis
from experiments.benchmarks.faults.namespaces import Machines
from experiments.recorded import episodes, job
from sgdlab import data, files
from sgdlab.errors import UsageError


def record(folder: pathlib.Path, count: int, *, steps: int, workers: int, seed: int, namespaces: bool) -> None:
    """Record the episodes that a folder lacks.

    Args:
      folder: of the recording.
      count: number of episodes.
      steps: of each.
      workers: of each.
      seed: of the faults, of the parameters and of the noise in the images.
      namespaces: whether each worker is in a network namespace, whose link can be limited.

    Raises:
      UsageError: where the folder holds episodes of other settings, or this machine has a single core.
    """
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        raise UsageError("recording needs two cores: on one, a busy neighbour is next to all workers")
    settings = {"steps": steps, "workers": workers, "seed": seed, "namespaces": namespaces}
    machine = {"cores": cores, "system": platform.system(), "python": platform.python_version()}
    truth = _continued(folder, {"version": 1, "settings": settings, "machine": machine, "fleets": []})
    there = {known["file"] for known in truth["fleets"]}
    drawn = [episodes.draw(number, seed=seed, steps=steps, workers=workers) for number in range(count)]
    missing = [episode for episode in drawn if episode.file not in there]
    digits = data.digits().train
    images = np.round(16 * digits.images.reshape(len(digits), -1))
    rows = np.concatenate([images, digits.labels[:, None]], axis=1).astype(np.uint8)
    with contextlib.ExitStack() as stack:
        printed = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recorded")))
        machines = stack.enter_context(Machines(workers + 1, printed)) if namespaces and missing else None
        done = steps * (len(drawn) - len(missing))
        bar = stack.enter_context(tqdm(total=steps * len(drawn), initial=done, unit="step", disable=None))
        for episode in missing:
            with tempfile.TemporaryDirectory(prefix="recorded") as place:
                recording, facts = job.run(
                    episode, pathlib.Path(place), rows, machines,
                    workers=workers, steps=steps, seed=seed, report=bar.update,
                )  # fmt: skip
            recording.save(folder / episode.file)
            fleet = diagnosis.recorded(episode.file, episode.fault, recording, **episode.truth)
            truth["fleets"].append({**diagnosis.described(fleet), **facts})
            files.write_text(folder / diagnosis.TRUTH, json.dumps(truth, indent=1) + "\n")
            bar.write(f"{episode.number + 1} of {count}: {episode.file}")


def _continued(folder: pathlib.Path, begun: dict[str, Any]) -> dict[str, Any]:
    """Return what a folder says already; what it is to say at the beginning, where it says nothing."""
    path = folder / diagnosis.TRUTH
    if not path.exists():
        return begun
    truth = json.loads(path.read_text(encoding="utf-8"))
    for name, value in truth["settings"].items():
        if begun["settings"][name] != value:
            raise UsageError(f"--{name}={begun['settings'][name]} must be {value}, with which {path} was begun")
    return truth
