"""`Ledger`, what became of every gradient that was begun: each has exactly one fate, or is in flight."""

import collections

KINDS = {"late": "dropped", "interrupted": "dropped", "lost": "lost", "failed": "lost", "refused": "lost"}
"""Fates of gradients that enter no update: dropped by the protocol, or lost by a fault."""


class Ledger:
    """Counts of gradients, by fate and by worker; it refuses a second fate.

    Example:
      >>> ledger = Ledger()
      >>> ledger.began(0, worker=3)
      >>> ledger.began(1, worker=4)
      >>> ledger.taken(0)
      >>> ledger.counts()
      {'begun': 2, 'applied': 0, 'dropped': 0, 'lost': 0, 'in flight': 2}
      >>> ledger.applied()
      >>> ledger.ended(1, "late")
      >>> ledger.counts(), ledger.of(4)["dropped"]
      ({'begun': 2, 'applied': 1, 'dropped': 1, 'lost': 0, 'in flight': 0}, 1)
      >>> ledger.ended(0, "lost")
      Traceback (most recent call last):
      ...
      ValueError: ticket=0 must be of a gradient in flight; this one has its fate already, or was never begun
    """

    def __init__(self) -> None:
        self.fates: collections.Counter[str] = collections.Counter()
        self._begun = 0
        self._in_flight: dict[int, int] = {}  # ticket -> worker
        self._open: dict[int, int] = {}  # those that have entered the open update
        self._workers: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)

    def began(self, ticket: int, *, worker: int) -> None:
        """A worker begins a gradient; tickets rise by one."""
        if ticket != self._begun:
            raise ValueError(f"ticket={ticket} must be {self._begun}, the next one")
        self._begun += 1
        self._in_flight[ticket] = worker

    def taken(self, ticket: int) -> None:
        """A gradient enters the open update."""
        self._open[ticket] = self._landed(ticket)

    def applied(self) -> None:
        """The open update is made."""
        for worker in self._open.values():
            self._workers[worker]["applied"] += 1
        self.fates["applied"] += len(self._open)
        self._open.clear()

    def ended(self, ticket: int, fate: str) -> None:
        """A gradient enters no update, for one of the reasons in `KINDS`."""
        kind = KINDS[fate]
        self._workers[self._landed(ticket)][kind] += 1
        self.fates[fate] += 1

    def of(self, worker: int) -> collections.Counter[str]:
        """Number of a worker's gradients that were applied, dropped and lost."""
        return self._workers[worker]

    @property
    def in_flight(self) -> set[int]:
        """Tickets without a fate: being computed, or in the open update."""
        return self._in_flight.keys() | self._open.keys()

    def counts(self) -> dict[str, int]:
        """Number of gradients begun, applied, dropped, lost and in flight: the first is the sum of the others."""
        dropped, lost = (
            sum(self.fates[fate] for fate, of in KINDS.items() if of == kind) for kind in ("dropped", "lost")
        )
        return {
            "begun": self._begun,
            "applied": self.fates["applied"],
            "dropped": dropped,
            "lost": lost,
            "in flight": len(self._in_flight) + len(self._open),
        }

    def _landed(self, ticket: int) -> int:
        if ticket not in self._in_flight:
            raise ValueError(
                f"ticket={ticket} must be of a gradient in flight; this one has its fate already, or was never begun"
            )
        return self._in_flight.pop(ticket)
