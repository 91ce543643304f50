"""Failures in sentences and as JSON: time between them, how often to write a checkpoint, and spares."""

import math
from typing import Any

from sgdlab.report.words import counted, figure, listed, percent, sentence
from sgdlab.stragglers.diagnosis.causes import named
from sgdlab.stragglers.estimate import Estimate
from sgdlab.stragglers.failures import UP, Failures, Outage
from sgdlab.stragglers.recording import SplitRecording

_MOST_TOLD = 3


def said(failures: Failures | None, parts: SplitRecording) -> str:
    """Say who failed, how often, and what to do about it; empty where nobody did and no checkpoint was asked about."""
    if failures is None or not (failures.outages or failures.known == "flag"):
        return ""
    number, between = len(failures.outages), failures.between
    told = [_outage(each, parts) for each in failures.outages[:_MOST_TOLD]]
    if number > _MOST_TOLD:
        told.append(f"{number - _MOST_TOLD} more")
    apart = f"at least {_duration(between.low)}" if number < 2 else _ranged(between)
    text = [
        f"{counted(number, 'failure') if number else 'No failure'} in {_duration(failures.up)}"
        f"{': ' * bool(told)}{listed(told)}. The mean time between failures is {apart}"
        f"{f', and a repair takes {_repair(failures)}' if number else ''}.",
        _checkpoints(failures),
        _spares(failures),
        "Workers that stopped and did not come back are not counted." if parts.stopped else "",
        "A log that was interrupted looks the same; intervals are of 95 %, for failures that come at random."
        if number
        else "",
    ]
    return sentence(" ".join(filter(None, text)))


def as_dict(failures: Failures | None, parts: SplitRecording) -> dict[str, Any] | None:
    """Return the same for programs; `machine_readable` describes it."""
    if failures is None:
        return None
    steps, workers = parts.recording.steps, parts.recording.workers
    return {
        "outages": [
            {
                "step": int(steps[each.row]),
                "workers": [workers[worker] for worker in each.workers],
                "seconds": each.seconds,
            }
            for each in failures.outages
        ],
        "between": failures.between,
        "repair": failures.repair,
        "checkpoint_seconds": failures.checkpoint_seconds,
        "checkpoint_known": failures.known,
        "checkpoint_every": failures.checkpoint_every,
        "spares": [{"up": share, "workers": failures.spares(share)} for share in UP],
    }


def _outage(outage: Outage, parts: SplitRecording) -> str:
    recording = parts.recording
    who = f"{named(recording.workers, list(outage.workers))} missing" if outage.workers else "all stood still"
    return f"{who} from step {recording.steps[outage.row]} on for {_duration(outage.seconds)}"


def _repair(failures: Failures) -> str:
    repair = failures.repair
    return "" if repair is None else _duration(repair.value) if len(failures.outages) < 2 else _ranged(repair)


def _checkpoints(failures: Failures) -> str:
    every, seconds = failures.checkpoint_every, figure(failures.checkpoint_seconds, 2)
    known = {"flag": "", "phase": " (as its phase says)", "": " (an example: --checkpoint_seconds says another)"}
    often = _ranged(every) if math.isfinite(every.high) else f"at least {_duration(every.low)}"
    return (
        f"With {seconds} s for a checkpoint{known[failures.known]}, the least time is lost with {often} of work "
        "between two (Young's interval)."
    )


def _spares(failures: Failures) -> str:
    if not failures.outages:
        return ""
    counts = []
    for share in UP:
        spares = failures.spares(share)
        if spares is not None:
            counts.append(f"{_count(spares)} for {percent(share).replace('.0', '')} of the time")
    return f"Spare workers that keep all {failures.workers} up, if they fail independently: {listed(counts)}."


def _count(spares: Estimate) -> str:
    value, low, high = (f"{each:.0f}" if math.isfinite(each) else "no number" for each in spares)
    return value if low == high else f"{value} ({low} to {high})"


def _ranged(seconds: Estimate) -> str:
    return f"{_duration(seconds.value)} ({_duration(seconds.low)} to {_duration(seconds.high)})"


def _duration(seconds: float) -> str:
    for scale, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * scale:
            return f"{figure(seconds / scale, 2)} {unit}"
    return f"{figure(seconds, 2)} s"
