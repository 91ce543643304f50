"""The results of `advise`: the split recording, what is slow, the table of measurements and the recommendation."""

import dataclasses
import pathlib

from sgdlab.stragglers import comparison, diagnosis, failures, network, what_if
from sgdlab.stragglers import timeouts as of_job
from sgdlab.stragglers.answer import verdict
from sgdlab.stragglers.answer.table import Measurements
from sgdlab.stragglers.answer.verdict import Verdict
from sgdlab.stragglers.comparison.comparison import Comparison, ComparisonSettings, Report
from sgdlab.stragglers.comparison.measured import Resamples
from sgdlab.stragglers.diagnosis.diagnosis import Diagnosis
from sgdlab.stragglers.failures import Failures
from sgdlab.stragglers.network import Network
from sgdlab.stragglers.recording import SplitRecording
from sgdlab.stragglers.timeouts import JobTimeouts
from sgdlab.stragglers.what_if.what_if import WhatIf


@dataclasses.dataclass(frozen=True, eq=False)
class Findings:
    """All results for one recording.

    Attributes:
      parts: the recording, split into tuning and evaluation steps.
      diagnosis: what is slow in all complete steps, since when, and what it costs.
      table: the measurements of all protocols.
      verdict: the recommendation.
      what_if: what full synchrony would gain if single things were as fast as usual.
      settings: with which the protocols were compared.
      network: what communication costs; None where it was not recorded.
      failures: that the recording shows; None where its rows do not tell.
      timeouts: of the job; None where they were not asked for.
    """

    parts: SplitRecording
    diagnosis: Diagnosis
    table: Measurements
    verdict: Verdict
    what_if: WhatIf
    settings: ComparisonSettings
    network: Network | None = None
    failures: Failures | None = None
    timeouts: JobTimeouts | None = None

    @property
    def comparison(self) -> Comparison:
        """The measurements of all protocols."""
        return self.table.comparison


def gather_findings(
    parts: SplitRecording,
    directory: pathlib.Path,
    *,
    settings: ComparisonSettings | None = None,
    layers: int | None = None,
    checkpoint_seconds: float | None = None,
    max_false_drop: float | None = None,
    report: Report = print,
) -> Findings:
    """Finds what is slow, compares all protocols and chooses one.

    Args:
      parts: the recording, split into tuning and evaluation steps.
      directory: where the trained deep Markov model is saved.
      settings: of the comparison.
      layers: that each stage of a pipeline holds, if it is known.
      checkpoint_seconds: that writing a checkpoint takes, if it is known.
      max_false_drop: the largest probability of a false drop in a step, for time-outs. None: without time-outs.
      report: called with one line about the progress.
    """
    settings = settings or ComparisonSettings()
    report("looking for what is slow, since when, and what it costs")
    slow = diagnosis.find_causes(parts.complete, parts.pauses)
    repaired = what_if.try_repairs(parts.complete, parts.pauses, slow, seed=settings.seed, layers=layers)
    compared = comparison.compare(parts, slow, directory, settings=settings, report=report)
    answers = Measurements(compared, Resamples(len(parts.test), seed=settings.seed))
    decided = verdict.decide(answers, slow, parts.train_steps)
    costs = network.measure(parts, seed=settings.seed)
    failed = failures.find_failures(parts, checkpoint_seconds)
    waits = None
    if max_false_drop is not None:
        waits = of_job.find_timeouts(parts, max_false_drop, settings.rejoin_seconds)
    return Findings(parts, slow, answers, decided, repaired, settings, costs, failed, waits)
