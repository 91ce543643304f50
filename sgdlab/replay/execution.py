"""`Execution`: a run under way, from pause to pause: what it evaluates, reports and saves, and where it continues."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sgdlab.replay.feed import Feed, spans_of
from sgdlab.replay.history import History, Result
from sgdlab.replay.peer_engine import PeerCarry, PeerEngine
from sgdlab.replay.program import Program
from sgdlab.replay.server_engine import Carry, ServerEngine
from sgdlab.replay.watch import Evaluation, Watch

if TYPE_CHECKING:
    from sgdlab.checkpoints import Checkpoints

Tree = Any


class Execution:
    """A run under way.

    Args:
      program: the program.
      engine: its compiled loop.
      carry: the state before the first gradient.
      watch: what to evaluate and report at pauses.
      waves: whether the loop counts waves, not gradients.
      checkpoints: where the state is saved at pauses; a run continues from the newest that is there.
    """

    def __init__(
        self,
        program: Program,
        engine: ServerEngine | PeerEngine,
        carry: Carry | PeerCarry,
        watch: Watch,
        *,
        waves: bool,
        checkpoints: "Checkpoints | None",
    ):
        self._program, self._engine, self._watch = program, engine, watch
        self._waves, self._checkpoints = waves, checkpoints
        self._carry, saved = (carry, None) if checkpoints is None else checkpoints.latest(carry)
        self._evaluations: list[Evaluation] = []
        self._done = 0
        if saved is None:
            self._evaluate(0)
            return
        self._done = saved["gradients"]
        for evaluation in saved["evaluations"]:
            self._add(evaluation)

    def finish(self, feed: Feed | None) -> Result:
        """Executes all gradients that are left, and returns the result."""
        pauses = set(self._program.pauses.tolist())
        with contextlib.closing(self._segments(feed)) as segments:
            for (first, last), batch_fn in segments:
                self._carry = self._engine.advance(self._carry, self._index(first), self._index(last), batch_fn)
                if last in pauses:
                    self._evaluate(last)
                    self._save(last)
        return Result(**self._engine.outcome(self._carry), history=self._history())

    def _segments(self, feed: Feed | None) -> Iterator[tuple[tuple[int, int], Callable[[jax.Array], Tree] | None]]:
        """What the device executes without the host: gradients from one to another, and batches that the host makes."""
        program, begin, spans = self._program, self._done, []
        ends = program.waves[1:] if self._waves else np.arange(1, program.num_rows + 1)
        for pause in program.pauses[program.pauses > begin].tolist():
            spans += spans_of(ends[(ends > begin) & (ends <= pause)].tolist(), begin, feed and feed.size)
            begin = pause
        return feed.chunks(spans) if feed else ((span, None) for span in spans)

    def _index(self, gradients: int) -> int:
        """What the loop counts, after so many gradients."""
        return int(np.searchsorted(self._program.waves, gradients)) if self._waves else gradients

    def _evaluate(self, gradients: int) -> None:
        if self._watch.evaluate is None:
            return
        pause = int(np.searchsorted(self._program.pauses, gradients)) + 1 if gradients else 0
        updates, seconds = self._program.made(gradients)
        values = jax.device_get(self._engine.evaluated(self._carry, pause))
        counts = {"gradients": gradients, "updates": updates, "seconds": seconds}
        self._add(counts | {name: float(value) for name, value in values.items()})

    def _add(self, evaluation: Evaluation) -> None:
        self._evaluations.append(evaluation)
        if self._watch.report is not None:
            self._watch.report(self._history().first(evaluation["gradients"]))

    def _save(self, gradients: int) -> None:
        if self._checkpoints is not None and gradients < self._program.num_rows:
            facts = {"gradients": gradients, "evaluations": list(self._evaluations)}
            self._checkpoints.save(gradients, self._carry, facts)

    def _history(self) -> History:
        recorded = self._engine.records(self._carry)
        return History(**self._program.record(), **recorded, evaluations=list(self._evaluations))
