"""Records episodes into a folder: a file of each, and what is known of all in truth.json; what is there is kept."""

import contextlib
import json
import os
import pathlib
import platform
import tempfile

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
    truth, path = {"version": 1, "settings": settings, "machine": machine, "fleets": []}, folder / diagnosis.TRUTH
    if path.exists():
        try:
            truth = {**json.loads(path.read_text(encoding="utf-8"))}
        except (ValueError, TypeError) as error:
            raise UsageError(f"--workdir={folder}: {path} must be what an earlier call has left: {error}") from error
        truth["fleets"] = [known for known in truth.get("fleets", []) if (folder / known["file"]).exists()]
    if truth.get("settings") != settings:
        raise UsageError(f"--workdir={folder} was begun with {truth.get('settings')}, and not with {settings}")
    there = {known["file"] for known in truth["fleets"]}
    drawn = [episodes.draw(number, seed=seed, steps=steps, workers=workers) for number in range(count)]
    digits = data.digits().train
    images = np.round(16 * digits.images.reshape(len(digits), -1))
    rows = np.concatenate([images, digits.labels[:, None]], axis=1).astype(np.uint8)
    with contextlib.ExitStack() as stack:
        printed = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recorded")))
        machines = stack.enter_context(Machines(workers + 1, printed)) if namespaces else None
        for episode in tqdm(drawn, unit="episode"):
            if episode.file in there:
                continue
            with tempfile.TemporaryDirectory(prefix="recorded") as place:
                recording, facts = job.run(
                    episode, pathlib.Path(place), rows, machines, workers=workers, steps=steps, seed=seed
                )
            recording.save(folder / episode.file)
            who = {"workers": [episode.worker], "since": episode.since, "until": episode.until}
            fleet = diagnosis.recorded(episode.file, episode.fault, recording, **who)
            truth["fleets"].append({**diagnosis.described(fleet), **facts})
            files.write_text(path, json.dumps(truth, indent=1) + "\n")
