"""From the recording of a run on processes to a plan that replays it, and what the two have in common."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from sgdlab import replay
from sgdlab.errors import UsageError, said_of
from sgdlab.live import recording as live_recording
from sgdlab.live import resume
from sgdlab.live.lines import path_in
from sgdlab.live.recording import LiveRecording
from sgdlab.live.repeat import as_computed, repeat
from sgdlab.results.records import as_stored
from sgdlab.runs.configuration import Reach, flat
from sgdlab.runs.experiment import Experiment, resolve
from sgdlab.runs.live import config_of, job_of, policy_of
from sgdlab.runs.plan import Plan, RecordedEvents, make_plan


def load(path: str | os.PathLike[str]) -> LiveRecording:
    """Read a recording, or make one of the log in a directory, as of a run that was stopped or has crashed.

    Raises:
      FileNotFoundError: where there is neither.
      ValueError: where the file is no recording, or the log cannot be followed.
    """
    if not pathlib.Path(path).is_dir():
        return LiveRecording.load(path)
    return resume.examined(path, _policy_of)


def _policy_of(header: Mapping[str, Any]) -> Any:
    """Return the policy of a log's run."""
    if "config" not in header:
        raise ValueError(
            "its run has no configuration, as of a loop of your own: continue it to its end, or name a file"
        )
    return policy_of(make_plan(config_of(header["config"])))


def configured(recording: LiveRecording) -> Experiment | None:
    """Return the experiment of a recorded run; None where a program of its own has made it, without a configuration."""
    own = recording.config.get("config")
    return resolve(config_of(own)) if isinstance(own, Mapping) and "method" in own else None


def content_of(path: str | os.PathLike[str]) -> pathlib.Path:
    """Return the file that holds the events of a recording: itself, or the log of a directory."""
    path = pathlib.Path(path)
    return path_in(path) if path.is_dir() else path


def plan_of(config: ConfigDict, recording: LiveRecording) -> Plan:
    """Return the plan that replays a recording.

    Learning rates are those of the run: by the number of the update, as planned from the configuration. The speed-up is
    over synchronous SGD on the compute times that were recorded, as far as all workers have them. The configuration is
    the recording's own, or one with other rules.

    Raises:
      UsageError: where the configuration cannot be that of a replay of these gradients.
    """
    plan = make_plan(config)
    schedule = recording.schedule
    if not recording.used_tickets().size:
        raise UsageError("--recording must hold a gradient that was applied; this one ended before")
    plan = of_events(plan, recording)
    with said_of(f"--config.rule.kind={plan.experiment.rule.name} with the recorded gradients: "):
        replay.check_rule(schedule, plan.rule(plan.rates, schedule.num_workers))
    return plan


def repeated(plan: Plan, recording: LiveRecording) -> Plan:
    """Return a plan (`plan_of`) that the programs of the live run execute (`sgdlab.live.repeat`): equal to the bit."""
    events = _events_of(plan, recording)
    job = job_of(plan, emulate=recording.config.get("emulate"))
    compute = as_computed(recording, plan.program, job.compute_of)
    again = functools.partial(repeat, steps=job.steps(), compute=compute, aux=job.gradients.aux)
    return dataclasses.replace(plan, recorded=dataclasses.replace(events, repeat=again))


def of_events(plan: Plan, recording: LiveRecording) -> Plan:
    """Return a plan with the schedule that happened, in the place of the simulated one."""
    return dataclasses.replace(
        plan,
        schedule=recording.schedule,
        recorded=_events_of(plan, recording),
        speedup=speedup(recording, plan.experiment.steps),
        seconds=None,
    )


def _events_of(plan: Plan, recording: LiveRecording) -> RecordedEvents:
    streams = plan.experiment.local.stream is not None
    return RecordedEvents(recording.ticket, recording.begins_anew(streams=streams))


def speedup(recording: LiveRecording, steps: np.ndarray) -> float:
    """Return the used gradients per second, over those of synchronous SGD on the recorded times; NaN if unknown.

    Row t of the compute times is each worker's t-th gradient; rows in which one is missing are left out. Of local
    steps, int[N] for each worker's gradients, steps are counted, each of which has taken its part of a gradient's time.
    """
    times, schedule = recording.runtimes(), recording.schedule
    times = times[~np.isnan(times).any(axis=1)] / steps[: times.shape[1]]
    if not times.size:
        return float("nan")
    each = 1.0 if steps.max() == 1 else float(steps[schedule.worker[schedule.used()[:, 0]]].mean())
    return each * schedule.gradients_per_second() / (times.size / times.max(axis=1).sum())


def changes(experiment: Experiment, recording: LiveRecording) -> dict[str, tuple[Any, Any]]:
    """Return the entries on which parameters depend and that differ: name -> the recording's value, the new one.

    Of a part that only one of the two uses, its kind says all.
    """
    recorded = resolve(config_of(recording.config["config"]))
    before, after = (dict(flat(as_stored(one.identity))) for one in (recorded, experiment))
    pairs = {name: (before.get(name), after.get(name)) for name in dict.fromkeys([*before, *after])}
    found = {name: (old, new) for name, (old, new) in pairs.items() if old != new and name not in Reach.RECORD.value}
    both = {name: values for name, values in found.items() if name in before and name in after and name != "method"}
    return both or found


def other_versions(recording: LiveRecording) -> list[str]:
    """Return the libraries, devices and settings of JAX that are others now than in the run, in words."""
    now = live_recording.versions()
    return [
        f"{name} {before} (here {now.get(name)})"
        for name, before in recording.versions.items()
        if now.get(name) != before
    ]


def largest_difference(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> float:
    """Return the largest absolute difference of two sets of arrays; infinite where names or shapes differ.

    Example:
      >>> largest_difference({"w": np.zeros(2)}, {"w": np.array([0.0, 0.5])})
      0.5
      >>> largest_difference({"w": np.array([np.nan])}, {"w": np.array([np.nan])})
      0.0
    """
    shapes = [{name: np.shape(leaf) for name, leaf in leaves.items()} for leaves in (first, second)]
    if shapes[0] != shapes[1]:
        return float("inf")
    found = 0.0
    for name, leaf in first.items():
        left, right = np.asarray(leaf, float), np.asarray(second[name], float)
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        apart = np.abs(np.where(same, 0.0, left) - np.where(same, 0.0, right))
        found = max(found, float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0)))
    return found
