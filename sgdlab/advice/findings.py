"""The results of `advise`: the split recording, the table of measurements, the recommendation and the stragglers."""

import dataclasses
import pathlib

from sgdlab.advice import comparison, stragglers, table, verdict
from sgdlab.advice.comparison import Report
from sgdlab.advice.recording import Parts
from sgdlab.advice.stragglers import Stragglers
from sgdlab.advice.table import Table
from sgdlab.advice.uncertainty import Resamples
from sgdlab.advice.verdict import Verdict


@dataclasses.dataclass(frozen=True, eq=False)
class Findings:
    """All results for one recording.

    Attributes:
      parts: the recording, split into tuning and evaluation steps.
      table: the measurements of all protocols.
      verdict: the recommended protocol.
      stragglers: which workers are slow, in all complete steps.
    """

    parts: Parts
    table: Table
    verdict: Verdict
    stragglers: Stragglers


def find(parts: Parts, directory: pathlib.Path, *, most_steps: int, seed: int, report: Report = print) -> Findings:
    """Compares all protocols and chooses one.

    Args:
      parts: the recording, split into tuning and evaluation steps.
      directory: where the trained deep Markov model is saved.
      most_steps: upper bound on the optimiser's steps in training that model.
      seed: of its training, of the predictors' random draws and of the bootstrap.
      report: called with one line about the progress.
    """
    compared = comparison.compare(parts, directory, most_steps=most_steps, seed=seed, report=report)
    answers = table.Table(compared, Resamples(len(parts.test), seed=seed))
    return Findings(parts, answers, verdict.decide(answers), stragglers.find(parts.complete))
