"""Makes the papers' tables and figures: sweeps (`sgdlab.runs.Sweep`), claims, pictures, commands."""

from experiments.harness import least
from experiments.harness.claims import Claim, Interval, above, all_of, below, interval
from experiments.harness.figures import Figure, Output, Scale, figure
from experiments.harness.pictures import PALETTE, PAPER, canvas, colour, look
from sgdlab.bounds import Count, NotNegative, Positive, Share, Whole
from sgdlab.runs.sweep import Session, Shard, Sweep, prepare, within
from sgdlab.runs.work import Alike, capacity, goes_by, trains

__all__ = [
    "PALETTE", "PAPER", "Alike", "Claim", "Count", "Figure", "Interval", "NotNegative", "Output", "Positive", "Scale",
    "Session", "Shard", "Share", "Sweep", "Whole", "above", "all_of", "below", "canvas", "capacity", "colour", "figure",
    "goes_by", "interval", "least", "look", "prepare", "trains", "within",
]  # fmt: skip
