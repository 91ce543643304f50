"""The tables of the page on the recorded data set: its labels, and the scores that are stored."""

import json
import pathlib

import numpy as np

from docs.making import tables
from experiments.benchmarks.diagnosis import TRUTH
from experiments.recorded.episodes import KINDS

_EXPERIMENTS = pathlib.Path(__file__).parents[2] / "experiments"


def labels() -> str:
    """Return the faults of the sample: how each is made, how strong it is, and what is seen of it."""
    rows = []
    for fault, kind in KINDS.items():
        here = [known for known in _truth()["fleets"] if known["fault"] == fault]
        seen = [known["seen"] for known in here]
        ways = "; ".join(sorted({known["how"] for known in here}))
        strength = f"{kind.least} to {kind.most} {kind.unit}"
        rows.append([fault, ways, strength, kind.phase, f"{np.median(seen):.2f} ({min(seen):.2f}-{max(seen):.2f})"])
    return tables.table(["fault", "how", "strength", "phase", "seen in the sample"], rows)


def others() -> str:
    """Return which share of the processors' time other processes took: the least and the most of an episode, in %."""
    shares = [100 * known["others"] for known in _truth()["fleets"]]
    return f"{min(shares):.0f} to {max(shares):.0f} %"


def step() -> str:
    """Return how long a step took: the least and the most of the episodes' medians, in ms."""
    steps = [1e3 * known["seconds_of_a_step"] for known in _truth()["fleets"]]
    return f"{min(steps):.0f} to {max(steps):.0f} ms"


def machine() -> str:
    """Return on what the sample was recorded."""
    made = _truth()["machine"]
    return f"{made['cores']} cores, {made['system']}, Python {made['python']}"


def scores() -> str:
    """Return the stored table of scores."""
    return (_EXPERIMENTS / "results" / "recorded" / "README.md").read_text(encoding="utf-8")


def _truth() -> dict:
    return json.loads((_EXPERIMENTS / "recorded" / "sample" / TRUTH).read_text(encoding="utf-8"))
