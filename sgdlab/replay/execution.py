"""`Execution`: a run under way, from pause to pause: what it evaluates, reports and saves, and where it continues."""

import contextlib
import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import jax
import numpy as np

from sgdlab import hosts
from sgdlab.errors import Stopped
from sgdlab.replay.feed import Feed, Placement, spans_of
from sgdlab.replay.history import History, Result
from sgdlab.replay.peer_engine import PeerCarry
from sgdlab.replay.program import Program
from sgdlab.replay.server_step import Carry
from sgdlab.replay.watch import Evaluation, Watch
from sgdlab.types import Tree

_SECONDS_OF_A_PIECE = 2.0
"""About so often a run asks whether it is to stop: well within the grace time of a cluster."""
_FASTEST_GROWTH = 8


class _Agreed(NamedTuple):
    """Agrees with all processes of a run on what to do next."""

    stop: bool
    end: bool
    save: bool
    piece: int  # how many gradients, or waves, the device executes before they agree again.


class Execution:
    """A run under way, in one process or in many, which then all do the same.

    Args:
      engine: the compiled loop of a program.
      carry: the state before the first gradient.
      watch: what to evaluate and report at pauses.
      waves: whether the loop counts waves, not gradients.
      checkpoints: where the state is saved at pauses; a run continues from the newest that is there.
      stop: whether somebody wants the run to stop. None: nobody can.
    """

    def __init__(
        self,
        engine: Any,  # a `ServerEngine`, a `PeerEngine`, or another with their methods
        carry: Carry | PeerCarry,
        watch: Watch,
        *,
        waves: bool,
        checkpoints: Any,  # `Checkpoints`, or None
        stop: Callable[[], bool] | None,
    ):
        self._engine, self._watch, self._waves, self._checkpoints = engine, watch, waves, checkpoints
        self._stop = stop or (lambda: False)
        # None: nobody asks, and the device executes everything up to the next pause without the host.
        self._piece = None if stop is None and not engine.layout.many_processes else 1
        self._carry, saved = (carry, None) if checkpoints is None else checkpoints.latest(carry)
        self._evaluations: list[Evaluation] = []
        self._done = 0
        self._ended = False  # before its schedule, since the watch has said so
        if saved is None:
            self._evaluate(0)
            self._report()
            return
        self._done = saved["gradients"]
        engine.cut_at(self._done)
        for evaluation in saved["evaluations"]:
            self._evaluations.append(evaluation)
            self._report()

    @property
    def _program(self) -> Program:
        return self._engine.program

    def finish(self, feed: Feed | None) -> Result:
        """Executes all gradients that are left, and returns the result.

        Raises:
          Stopped: if the run was asked to stop; its state is saved where there are checkpoints.
        """
        with contextlib.closing(self._segments(feed)) as segments:
            for (first, last), batch_fn in segments:
                self._advance(first, last, batch_fn)
                if self._ended:
                    break
        if self._engine.layout.many_processes:
            self._evaluations = json.loads(hosts.gather("the evaluations", json.dumps(self._evaluations))[0])
        history = self._history()
        return Result(
            **self._engine.outcome(self._carry), history=history.first(self._done) if self._ended else history
        )

    def _segments(self, feed: Feed | None) -> Generator[tuple[tuple[int, int], Any], None, None]:
        """Yield what the device executes without the host: gradients from one to another, and the host's batches."""
        program, begin, spans = self._program, self._done, []
        pauses = program.pauses[program.pauses > begin].tolist()
        if feed is None:
            return ((span, None) for span in itertools.pairwise([begin, *pauses]))
        ends = program.waves[1:] if self._waves else np.arange(1, program.num_rows + 1)
        for pause in pauses:
            between = slice(*np.searchsorted(ends, [begin, pause], side="right"))
            spans += spans_of(ends[between].tolist(), begin, feed.size)
            begin = pause
        return feed.chunks(spans, Placement(self._engine.layout, self._engine.device))

    def _advance(self, first: int, last: int, batch_fn: Callable[[jax.Array], Tree] | None) -> None:
        """Executes gradients `first` to `last`, in pieces where the run can be asked to stop."""
        begin, end = self._index(first), self._index(last)
        while begin < end and not self._ended:
            until = end if self._piece is None else min(end, begin + self._piece)
            started = time.monotonic()
            self._carry = self._engine.advance(self._carry, begin, until, batch_fn)
            if self._piece is not None:
                jax.block_until_ready(self._carry)
                growth = _SECONDS_OF_A_PIECE / max(time.monotonic() - started, 1e-3)
                self._piece = max(1, int((until - begin) * min(growth, _FASTEST_GROWTH)))
            begin = until
            self._ask(self._gradients(begin))

    def _ask(self, gradients: int) -> None:
        """Evaluates at a pause, and saves or stops if that is what the processes agree on."""
        pause, end = gradients in self._program.pauses, gradients == self._program.num_rows
        if pause:
            self._evaluate(gradients)
        asks = pause and self._watch.ends is not None and bool(self._evaluations)  # which the first process has
        agreed = self._agreed(ends=asks and self._watch.ends(self._evaluations))
        self._piece = None if self._piece is None else agreed.piece
        self._done, self._ended = gradients, agreed.end and not end
        if self._ended:
            self._end_at(gradients)
        if pause:
            self._report()
        if end or self._ended:
            return
        if self._checkpoints is not None and (agreed.save or agreed.stop):
            facts = {"gradients": gradients, "evaluations": list(self._evaluations)}
            self._checkpoints.save(gradients, self._carry, facts)
        if agreed.stop:
            saved = self._checkpoints is not None and self._checkpoints.enabled
            if saved:
                self._checkpoints.wait()  # what has failed is not said to be saved
            raise Stopped(gradients, self._program.num_rows, saved=saved)

    def _agreed(self, *, ends: bool) -> _Agreed:
        """All stop if one wants to; when to end, when to save and how often to agree is as the first process has it."""
        due = self._checkpoints is not None and self._checkpoints.due()
        own = _Agreed(self._stop(), ends, due, self._piece or 0)
        if not self._engine.layout.many_processes:
            return own
        found = [_Agreed(*json.loads(value)) for value in hosts.gather("a pause of the run", json.dumps(own))]
        return found[0]._replace(stop=any(agreed.stop for agreed in found))

    def _index(self, gradients: int) -> int:
        """Return what the loop counts, after a number of gradients."""
        return int(np.searchsorted(self._program.waves, gradients)) if self._waves else gradients

    def _gradients(self, index: int) -> int:
        """The opposite."""
        return int(self._program.waves[index]) if self._waves else index

    def _end_at(self, gradients: int) -> None:
        """Makes a pause the last one of the run, which the result is of, and at which nodes are evaluated."""
        pauses = self._program.pauses
        self._engine.program = dataclasses.replace(self._program, pauses=pauses[pauses <= gradients])
        if self._watch.nodes_at_end:
            del self._evaluations[-1:]
            self._evaluate(gradients)

    def _evaluate(self, gradients: int) -> None:
        if self._watch.evaluate is None:
            return
        pause = int(np.searchsorted(self._program.pauses, gradients)) + 1 if gradients else 0
        updates, seconds = self._program.made(gradients)
        values = jax.device_get(self._engine.evaluated(self._carry, pause))
        if not self._engine.layout.evaluates:
            return
        counts = {"gradients": gradients, "updates": updates, "seconds": seconds}
        self._evaluations.append(counts | {name: float(value) for name, value in values.items()})

    def _report(self) -> None:
        """Reports the newest evaluation, which the first process has."""
        if self._watch.report is not None and self._evaluations and self._engine.layout.evaluates:
            self._watch.report(self._history().first(self._evaluations[-1]["gradients"]))

    def _history(self) -> History:
        recorded = self._engine.records(self._carry)
        return History(**self._program.record(), **recorded, evaluations=list(self._evaluations))
