"""Makes the papers' tables and figures: sweeps (`sgdlab.runs.Sweep`), claims, pictures, commands."""

from experiments.harness import least
from experiments.harness.claims import Claim, Premise, enough
from experiments.harness.evidence import (
    Evidence,
    above,
    all_of,
    any_of,
    below,
    between,
    known,
    more_often,
    share_above,
    some_of,
)
from experiments.harness.figures import Figure, Output, Scale, figure
from experiments.harness.intervals import Interval, interval
from experiments.harness.pictures import PALETTE, PAPER, band, bars, canvas, colour, look, quartiles
from experiments.harness.regions import for_only, given, throughout
from experiments.harness.thresholds import Threshold
from sgdlab.bounds import Count, NotNegative, Positive, Share, Whole
from sgdlab.runs.sweep import Session, Shard, Sweep, prepare, within
from sgdlab.runs.work import Alike, capacity, goes_by, trains

__all__ = [
    "PALETTE", "PAPER", "Alike", "Claim", "Count", "Evidence", "Figure", "Interval", "NotNegative", "Output",
    "Positive", "Premise", "Scale", "Session", "Shard", "Share", "Sweep", "Threshold", "Whole", "above", "all_of",
    "any_of", "band", "bars", "below", "between", "canvas", "capacity", "colour", "enough", "figure", "for_only",
    "given", "goes_by", "interval", "known", "least", "look", "more_often", "prepare", "quartiles", "share_above",
    "some_of", "throughout", "trains", "within",
]  # fmt: skip
