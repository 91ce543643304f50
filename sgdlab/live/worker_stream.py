"""`WorkerStream`, what the server of workers that connect knows of one of them, and sends it."""

import collections
import queue
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from sgdlab.live import frames
from sgdlab.live.fields import aligned
from sgdlab.live.frames import FrameError, header
from sgdlab.live.shared_arrays import MemoryLayout
from sgdlab.live.transport import Link
from sgdlab.types import Tree

MOST_UNREAD = 20_000
"""Messages that wait for a worker that does not read, at most: more than it can have been asked for in good order."""


class WorkerStream(Link):
    """One worker's stream, from its beginning to its end.

    Threads of gRPC change the last three, the server's thread all else.
    """

    def __init__(self, worker: int, context: Any, size: int):
        super().__init__()
        self.worker, self.context = worker, context
        self.out: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()  # headers; an empty one ends it
        self._versions: dict[tuple[int, int], SentVersion] = {}  # (run, ticket) -> what it is computed on, not yet sent
        self.memory = aligned(size)
        self.asked: collections.deque[tuple[int, int]] = collections.deque()  # (run, ticket), unanswered
        self.gone, self.error, self.refused = False, "its connection has ended", False

    def is_gone(self) -> bool:
        """Return True if it has ended, and nobody was told."""
        return self.gone

    def kill(self) -> None:
        """Cut it without a message; the worker's process, which others have started, may come back."""
        self.context.cancel()

    def _ask(self, asked: dict[str, int], handle: "SentVersion") -> None:
        number = asked["run"], asked["ticket"]
        self.asked.append(number)
        self._versions[number] = handle
        self.out.put({"kind": "begin", **asked})
        if self.out.qsize() > MOST_UNREAD:
            self.error = f"it has not read what it was sent: {MOST_UNREAD:,} messages wait for it"
            self.context.cancel()

    def _give_up(self, asked: dict[str, int]) -> None:
        for number in list(self._versions):  # of one that is stopped, none is kept that nobody wants
            if number <= (asked["run"], asked["ticket"]):
                self._versions.pop(number, None)
        self.out.put({"kind": "interrupt", **asked})

    def sent(self) -> Iterator[bytes]:
        """Yield all that the worker is told, until it is left; a version once, whoever else has it."""
        there: Any = None
        while told := self.out.get():
            if told["kind"] != "begin":
                yield header(**told)
            elif (version := self._versions.pop((told["run"], told["ticket"]), None)) is None:
                yield header(**told, size=0, void=True)  # nobody wants it any more
            else:
                yield header(**told, size=0 if version is there else version.size)
                if version is not there:
                    yield from version.sent()
                there = version

    def answered(self, said: dict[str, Any]) -> None:
        """Check that an answer is that of the earliest question, and take that off."""
        if not self.asked:
            raise FrameError(f"{said['kind']}: it was asked for nothing")
        if (said.get("run"), said.get("ticket")) != self.asked.popleft():
            raise FrameError(f"{said['kind']}: ticket={str(said.get('ticket'))[:20]} is not what it was asked for")
        seconds = said.get("seconds", 0.0)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
            raise FrameError(f"{said['kind']}: seconds={str(seconds)[:20]} must be a number, and not below 0")


class SentVersion:
    """Parameters as they are sent: arrays that do not change, cut into messages by who sends them."""

    def __init__(self, layout: MemoryLayout, tree: Tree):
        fixed = lambda leaf: leaf.copy() if leaf.flags.writeable else leaf
        self._layout, self._arrays = layout, [fixed(np.asarray(leaf)) for leaf in jax.tree.leaves(tree)]
        self.size = layout.size
        layout.check_arrays(self._arrays)

    def sent(self) -> Iterator[bytes]:
        """Yield its messages."""
        return frames.chunks(self._layout, self._arrays)
