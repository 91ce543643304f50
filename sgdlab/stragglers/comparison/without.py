"""Full synchrony without the workers that the diagnosis names: what draining a machine would gain."""

from collections.abc import Sequence

import numpy as np

from sgdlab.report.words import node_named, some
from sgdlab.stragglers.comparison import measured
from sgdlab.stragglers.comparison.protocol import DRAINED, Protocol
from sgdlab.stragglers.diagnosis.causes import Cause, named
from sgdlab.stragglers.diagnosis.diagnosis import Diagnosis
from sgdlab.stragglers.recording import SplitRecording

MOST = 5
"""Most rows."""


def rows(parts: SplitRecording, diagnosis: Diagnosis) -> list[Protocol]:
    """Full synchrony of the other workers, for each cause that names workers, and for all of these causes together.

    Causes that ended before the evaluation steps are left out, since protocols are compared on those.

    Returns:
      At most `MOST` rows, in the order of the causes, each of other workers.
    """
    causes = [
        cause
        for cause in diagnosis.causes
        if cause.workers and (cause.until is None or cause.until >= parts.train_steps)
    ]
    several = {tuple(sorted(cause.workers)): machines(parts, [cause]) for cause in reversed(causes)}
    several = dict(reversed(several.items()))
    together = tuple(sorted({worker for workers in several for worker in workers}))
    chosen = dict(list(several.items())[: MOST if together in several else MOST - 1])
    if len(chosen) > 1 and together not in chosen:
        chosen[together] = machines(parts, causes)
    found = []
    for workers, name in chosen.items():
        if rest := len(parts.workers) - len(workers):
            setting = "the other worker alone" if rest == 1 else f"full synchrony of the other {rest}"
            result = measured.interrupted(np.delete(parts.test, workers, axis=1), rest)
            found.append(Protocol(name, setting, DRAINED, result, without=workers))
    return found


def machines(parts: SplitRecording, causes: Sequence[Cause]) -> str:
    """The workers and nodes of some causes as a sentence names them: "workers 2 and 11 and node b"."""
    nodes = {cause.node: cause.workers for cause in causes if cause.node is not None}
    inside = {worker for workers in nodes.values() for worker in workers}
    others = sorted({worker for cause in causes for worker in cause.workers} - inside)
    first = [named(parts.workers, others)] if others else []
    return some([*first, *map(node_named, nodes)])
