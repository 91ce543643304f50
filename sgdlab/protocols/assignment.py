"""AsGrad's assignments: after an update the server says who computes on the new version (Islamov et al. 2024)."""

import dataclasses
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count, Whole
from sgdlab.protocols.policy import Action, Begin, Take
from sgdlab.protocols.register import register
from sgdlab.protocols.softsync import Softsync

KINDS = ("pure", "random", "shuffled")
"""To whom a new version goes: those whose gradients made it, workers drawn at random, or the next of a permutation."""


@dataclasses.dataclass
class Assignment(Softsync):
    """After every update, as many gradients are assigned as the update had; who is busy does them one by one, later.

    There are as many assignments as workers: those to come, and those in the open update. What a worker was to do when
    it is lost is assigned anew, on the newest version, where fewer assignments than workers are left.

    Attributes:
      kind: one of `KINDS`.
      size: b, gradients of an update, or as many as workers are there.
      seed: of the assignments.
      count: gradients of the open update.
      queues: worker -> the versions that it is to compute on when it has done what it computes, the first one first.
      waiting: version -> how many assignments of it are in the queues.
      drawn: number of workers that were drawn.
      permutation: workers that the permutation in use still has, the next one first.
    """

    kind: str = "shuffled"
    seed: int = 0
    queues: dict[int, deque[int]] = dataclasses.field(default_factory=dict, init=False)
    waiting: dict[int, int] = dataclasses.field(default_factory=dict, init=False)
    drawn: int = dataclasses.field(default=0, init=False)
    permutation: deque[int] = dataclasses.field(default_factory=deque, init=False)

    def held(self) -> set[int]:
        """The versions that busy workers will compute on."""
        return set(self.waiting)

    def start(self, workers: Sequence[int]) -> list[Action]:
        """Every worker begins on the initial parameters."""
        self.queues = {worker: deque() for worker in workers}
        return super().start(workers)

    def arrival(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """Takes every gradient; its worker goes on with what it was assigned before."""
        self.count += 1
        taken = Take(worker, self.version)
        closed = self._close_if_complete()
        return [taken, *closed, *self._begin_next([worker, *(self._assign() if closed else ())])]

    def lost(self, now: float, worker: int) -> list[Action]:
        """Leave to the others what the worker was to do."""
        for version in self.queues.pop(worker, ()):
            self._left(version)
        return super().lost(now, worker)

    def after_loss(self, now: float) -> list[Action]:
        """Closes an update if nothing else will come for it, and assigns what nobody will do now."""
        closed = self._close_if_complete() if self.count and self.alive else []
        return [*closed, *self._begin_next(self._assign())]

    def joined(self, now: float, worker: int) -> list[Action]:
        """The worker begins on the newest version, unless there are as many assignments as workers already."""
        self.alive.add(worker)
        self.queues[worker] = deque()
        if self._missing() > 0 or not self._outstanding():
            self._give(worker)
        return self._begin_next([worker])

    def _close_if_complete(self) -> list[Action]:
        """Closes an update that has its gradients, or all that can come."""
        if self.count < self.size and self._outstanding():
            return []
        self.count = 0
        return [self.close()]

    def _outstanding(self) -> int:
        """Number of gradients that are assigned and have not come."""
        return len(self.busy) + sum(self.waiting.values())

    def _missing(self) -> int:
        """Return how many assignments there are to make, so that there are as many as workers."""
        return len(self.alive) - self._outstanding() - self.count

    def _assign(self) -> list[int]:
        """Assigns the newest version until nothing is missing; returns to whom."""
        workers = [self._next(given) for given in range(self._missing())]
        for worker in workers:
            self._give(worker)
        return workers

    def _next(self, given: int) -> int:
        """Return who gets the next assignment, after some that were given at this moment."""
        workers = sorted(self.alive)
        if self.kind == "pure":
            return [worker for worker in workers if worker not in self.busy][given]
        self.drawn += 1
        # A generator for each draw: the state of the policy is numbers, the same after the same events.
        generator = np.random.default_rng([self.seed, self.drawn])
        if self.kind == "random":
            return workers[generator.integers(len(workers))]
        while True:
            if not self.permutation:
                self.permutation.extend(generator.permutation(workers).tolist())
            if (worker := self.permutation.popleft()) in self.alive:
                return worker

    def _give(self, worker: int) -> None:
        self.queues[worker].append(self.version)
        self.waiting[self.version] = self.waiting.get(self.version, 0) + 1

    def _left(self, version: int) -> None:
        """One of the assignments of a version is not in a queue any more."""
        self.waiting[version] -= 1
        if not self.waiting[version]:
            del self.waiting[version]

    def _begin_next(self, workers: Iterable[int]) -> list[Action]:
        """Those of these workers that are idle begin what they were assigned first."""
        actions: list[Action] = []
        for worker in workers:
            if worker not in self.busy and self.queues[worker]:
                self.busy[worker] = self.queues[worker].popleft()
                self._left(self.busy[worker])
                actions.append(Begin(worker, self.busy[worker]))
        return actions


@register("assignment", title="Assigned workers", source="Islamov et al. 2024", families=("Limits on staleness",))
def assignment(*, num_workers: Count, seed: Whole, kind: str = "shuffled", gradients_per_update: int = 1) -> Assignment:
    r"""After every update the server says who computes on the new version: AsGrad's assignments.

    All N workers begin on the initial parameters. An update averages b gradients, of any age, and then b gradients are
    assigned on the new version: to the workers whose gradients it had ("pure": asynchronous SGD), to workers drawn
    uniformly with replacement ("random"), or to the next workers of a random permutation, which is drawn anew when it
    is used up ("shuffled"). A worker that is busy does what it was assigned afterwards, on the version of the
    assignment, in the order of assignments. So, however fast they are, all workers have equal shares of the updates if
    "shuffled", and in expectation if "random" ("pure" gives the fast ones more), and the delays of slow ones grow: an
    assignment waits for all that its worker was assigned before.

    .. math:: \theta_{k+1} = \theta_k - \eta_k \frac{1}{b} \sum_{j=1}^{b} g_{i_j}(\theta_{\pi_j}), \qquad
        i_{k+1} \sim \text{pure, random or shuffled}

    With one worker it is plain SGD; "pure" with b = 1 is `asynchronous`; "pure" and "shuffled" with b = N are
    `synchronous`.

    Args:
      num_workers: N.
      seed: of the assignments.
      kind: who is assigned the new version: "pure", "random" or "shuffled".
      gradients_per_update: b, how many gradients an update waits for, from 1 to N.

    Raises:
      ValueError: where `kind` is another, or `gradients_per_update` is not from 1 to N.

    Source: Islamov, Safaryan and Alistarh 2024, AsGrad: A Sharp Unified Analysis of Asynchronous-SGD Algorithms
    (arXiv 2310.20452); the kinds, the queues and the reshuffling are those of the authors' code. That updates of b
    gradients average them and that "random" draws with replacement for b above 1 is a reconstruction.

    Example:
      >>> policy = assignment(num_workers=2, seed=4, kind="shuffled")
      >>> policy.start([0, 1])
      [Begin(worker=0, version=0), Begin(worker=1, version=0)]
      >>> policy.arrived(1.0, worker=0, version=0, seconds=1.0)  # the permutation begins with worker 1, which is busy
      [Take(worker=0, update=0), Close(update=0)]
      >>> policy.held()
      {1}
      >>> policy.arrived(4.0, worker=1, version=0, seconds=4.0)
      [Take(worker=1, update=1), Close(update=1), Begin(worker=1, version=1), Begin(worker=0, version=2)]
    """
    why = f"of {num_workers} workers, no more gradients are under way at a time"
    return Assignment(
        kind=arguments.one_of("kind", kind, KINDS),
        size=arguments.whole("gradients_per_update", gradients_per_update, most=num_workers, why=why),
        seed=seed,
    )
