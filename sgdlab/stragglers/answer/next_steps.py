"""Proposes the next steps as command lines, on the steps that were evaluated."""

import shlex

import numpy as np

from sgdlab.stragglers.answer.pictures import window
from sgdlab.stragglers.comparison import learned
from sgdlab.stragglers.comparison.protocol import Protocol
from sgdlab.stragglers.findings import Findings
from sgdlab.stragglers.recording import SplitRecording
from sgdlab.traces import Recording

ANSWERED = "answered.parquet"
"""File of the compute times that the proposed commands use."""

_DIGITS_BATCHES = 179
"""Gradients in an epoch of configs/digits.py. Runs with more workers than that are not proposed."""

_MOST_STEPS, _MOST_VALUES = 4000, 1_000_000
"""Most steps and compute times that are written: 20 epochs of digits use fewer, if an update has several gradients."""

_MOST_PROCESSES = 16
"""Most workers for which a run on processes of one machine is proposed."""


def answered(parts: SplitRecording, chosen: Protocol) -> Recording:
    """The evaluation steps, after as many tuning steps as a run waits for all workers before its first prediction.

    A run on them cuts the evaluation steps as the table says, because its predictor has seen the same steps before.
    """
    before = np.flatnonzero(~parts.paused[: parts.train_steps])
    before = before[before.size - min(chosen.warm_up, before.size) :]
    rows = np.concatenate([before, parts.train_steps + np.arange(_written(parts))])
    complete = parts.complete
    return Recording(parts.runtimes[rows], complete.steps[rows], complete.workers, complete.nodes)


def commands(findings: Findings, workdir: str) -> list[tuple[str, str]]:
    """Pairs of a purpose and a command line; `workdir` is that of the results, which has the file `ANSWERED`."""
    parts, chosen = findings.parts, findings.verdict.chosen
    workers = len(parts.workers)
    pairs = []
    if chosen.flags:
        where, trace = shlex.quote(workdir), shlex.quote(f"{workdir}/{ANSWERED}")
        method = " ".join(chosen.flags)
        first, steps = window.typical_steps(parts, chosen)
        if first + steps > parts.test_steps[_written(parts) - 1]:
            first = parts.test_steps[0]
        epochs = _epochs(parts, chosen)
        cluster = (
            f"--config.cluster.kind=recorded --config.cluster.recorded.trace={trace} "
            f"--config.cluster.num_workers={workers} --config.epochs={epochs}"
        )
        draw = (
            f"sgdlab timeline --trace={trace} --first_step={first} --steps={steps} {method} --workdir={where}/timeline"
        )
        pairs.append(("Draw who computes, waits and is dropped in typical evaluation steps", draw))
        if epochs and chosen.backups != 0:
            purpose = "Train a small network on digits with this protocol and these compute times, to see the loss"
            pairs.append((purpose, f"sgdlab train {method} {cluster} --workdir={where}/digits"))
            if workers <= _MOST_PROCESSES:
                purpose = (
                    "The same on real processes of this machine, slowed down like these workers, with 0.2 s for a "
                    "gradient on average (docs/live.md; with --transport=ray on a Ray cluster)"
                )
                pairs.append((purpose, f"sgdlab live {method} {cluster} --emulate=0.2 --serve --workdir={where}/live"))
    few = []
    if len(parts.train) < learned.ENOUGH and findings.settings.model != "no":
        few.append(f"the deep Markov model needs {learned.ENOUGH} to learn from, and there are {len(parts.train)}")
    if parts.recording.gaps:
        few.append("what happens from one step to the next can only be learned from steps without gaps")
    if few:
        purpose = f"Record at least {2 * learned.ENOUGH} consecutive steps, since {' and '.join(few)}"
        pairs.append((purpose, "sgdlab advise longer.csv"))
    return pairs


def _written(parts: SplitRecording) -> int:
    """Return the number of evaluation steps that are written."""
    return min(len(parts.test), _MOST_STEPS, _MOST_VALUES // len(parts.workers))


def _epochs(parts: SplitRecording, chosen: Protocol) -> float:
    """The number of epochs of digits that the evaluation steps are enough for; 0 if there are too many workers."""
    workers = len(parts.workers)
    steps = _written(parts)
    if workers > _DIGITS_BATCHES:
        return 0.0
    gradients = min((steps - 2) * workers / 2, 0.9 * steps * chosen.result.waited_for)
    return min(20.0, int(10 * gradients / _DIGITS_BATCHES) / 10)
