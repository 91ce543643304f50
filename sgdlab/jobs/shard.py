"""The share of one task of a scheduler's array in a sweep of runs."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TypeVar

Run = TypeVar("Run")


@dataclasses.dataclass(frozen=True)
class Shard:
    """One of `count` tasks, each of which does its own share of a sweep.

    A share depends on the sweep and on the two numbers alone, and not on what has finished: tasks may be started in any
    order, at any time, and again. Schedulers number from 0 or from 1: task 0 of n is task n.

    Attributes:
      index: from 1 to `count`, or from 0 to `count` - 1.
      count: number of tasks, at least 1.

    Example:
      >>> Shard.of("2/8")
      Shard(index=2, count=8)
    """

    index: int
    count: int

    @classmethod
    def of(cls, text: str) -> "Shard":
        """Reads "2/8", as `$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT` is.

        Args:
          text: two whole numbers, the first from 0 to the second.

        Raises:
          ValueError: where it is not that.
        """
        index, _, count = text.partition("/")
        whole = all(number.isdecimal() and number.isascii() for number in (index, count))
        if not (whole and int(count) >= 1 and int(index) <= int(count)):
            raise ValueError(
                f"shard={text!r} must be like 2/8: task 2 of the tasks 1 to 8 (or of 0 to 7; a scheduler's array must "
                "have consecutive numbers that begin at 0 or 1)"
            )
        return cls(int(index), int(count))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def share(self, groups: Iterable[Sequence[Run]]) -> list[Run]:
        """This task's runs, where the runs of a group are better done together, as they share a compiled program.

        The shares of all tasks are disjoint, hold every run, and have at most ceil(runs / count) runs each. A group is
        divided only where it does not fit into any share as a whole.

        Args:
          groups: all runs of the sweep, in the same order for every task.

        Returns:
          The task's runs, group by group.

        Example:
          >>> [Shard(index, 2).share(["aaaa", "bb", "cc"]) for index in (1, 2)]
          [['a', 'a', 'a', 'a'], ['b', 'b', 'c', 'c']]
          >>> [Shard(index, 3).share(["aaaa", "bb"]) for index in (1, 2, 3)]
          [['b', 'b'], ['a', 'a'], ['a', 'a']]
        """
        groups = sorted((list(group) for group in groups), key=len, reverse=True)
        size = -(-sum(map(len, groups)) // self.count)
        shares: list[list[Run]] = [[] for _ in range(self.count)]
        divided = []
        for group in groups:
            # The fullest share that still takes all of it, so that large gaps stay for large groups.
            fits = [share for share in shares if len(share) + len(group) <= size]
            if fits:
                max(fits, key=len).extend(group)
            else:
                divided.append(group)
        for group in divided:
            begin = 0
            for share in sorted(shares, key=len):
                end = begin + size - len(share)
                share.extend(group[begin:end])
                begin = end
        return shares[(self.index - 1) % self.count]
