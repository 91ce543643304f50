"""A second replay of several blocks, in plain NumPy, written from what a `Schedule` means and not from sgdlab.replay.

Parameters are one flat vector, of which each block is a part. Nothing has an order of execution: version v of a block
is asked for, and asks for the gradients of its update, which ask for the versions that they were computed on. Every
version of every block and every gradient is stored.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass
class Block:
    """All that a server ever held; `versions[v]`, `averages[v]`: after v updates; `sent[v]`: what workers read."""

    server: object  # of tests/lib/naive.py, on a dict of one vector.
    versions: list
    sent: list
    averages: list


class Blocks:
    """Replays a schedule.

    Args:
      schedule: of S blocks.
      server: (dict of one vector) -> a server of `tests/lib/naive.py`.
      gradient: (flat parameters, number among the used gradients) -> (flat gradient, aux).
      start: flat parameters.
      sizes: how many of them each block has.
      decay: of the Polyak average.
    """

    def __init__(self, schedule, server, gradient, start, sizes, *, decay=0.5):
        self.schedule, self.gradient_of, self.decay = schedule, gradient, decay
        self.edges = [0, *np.cumsum(sizes).tolist()]
        assert self.edges[-1] == start.size
        self.used = np.flatnonzero((schedule.update >= 0).any(axis=1))
        self.blocks = []
        for a, b in zip(self.edges[:-1], self.edges[1:], strict=True):
            made = server({"": np.array(start[a:b])})
            self.blocks.append(Block(made, [made.theta[""]], [made.send()[""]], [made.theta[""]]))
        self.gradients, self.aux = {}, {}
        self.distance, self.step = (np.full(schedule.update.shape, np.nan) for _ in range(2))
        self.params = np.concatenate([self.block(s, self.num_updates(s)) for s in range(len(sizes))])
        for row in self.used:
            self.gradient(row)

    def num_updates(self, s, before=None):
        """Updates of block s that are complete once all rows before this one are there."""
        column = self.schedule.update[:, s]
        before = column.size if before is None else before
        count = 0
        while (column == count).any() and np.flatnonzero(column == count).max() < before:
            count += 1
        return count

    def gradient(self, row):
        """The gradient in a row of the schedule, whole."""
        if row not in self.gradients:
            read = [self.made(s, v).sent[v] for s, v in enumerate(self.schedule.read[row])]
            number = int(np.searchsorted(self.used, row))
            self.gradients[row], self.aux[row] = self.gradient_of(np.concatenate(read), number)
        return self.gradients[row]

    def block(self, s, version):
        """A version of block s."""
        return self.made(s, version).versions[version]

    def made(self, s, version):
        """Block s, with all versions up to this one."""
        block = self.blocks[s]
        while len(block.versions) <= version:
            self._update(s)
        return block

    def _update(self, s):
        block, update = self.blocks[s], len(self.blocks[s].versions) - 1
        rows = np.flatnonzero(self.schedule.update[:, s] == update)
        gradients = [self.gradient(row)[self.edges[s] : self.edges[s + 1]] for row in rows]
        assert len(block.versions) == update + 1  # no gradient has asked for what it is a part of
        theta, server = block.versions[update], block.server
        messages, delays = [], []
        for row, gradient in zip(rows, gradients, strict=True):
            version = self.schedule.read[row, s]
            delays.append(int(update - version) + 1)
            messages.append(server.receive({"": gradient}, {"": block.sent[version]}, delays[-1]))
            self.distance[row, s] = np.linalg.norm(theta - block.sent[version])
        mean = [{"": sum(part[""] for part in parts) / len(parts)} for parts in zip(*messages, strict=True)]
        server.apply(*mean, delay=sum(delays) / len(delays), worker=int(self.schedule.worker[rows[0]]))
        new = server.theta[""]
        self.step[rows, s] = 0.0
        self.step[rows[-1], s] = np.linalg.norm(new - theta)
        block.versions.append(new)
        block.sent.append(server.send()[""])
        block.averages.append(self.decay * block.averages[-1] + (1 - self.decay) * new)

    def after(self, rows):
        """(flat parameters, flat average, updates of each block) once so many used gradients are there."""
        before = self.used[rows - 1] + 1 if rows else 0
        counts = [self.num_updates(s, before) for s in range(len(self.blocks))]
        parts = list(zip(self.blocks, counts, strict=True))
        params, average = ([getattr(b, kind)[n] for b, n in parts] for kind in ("versions", "averages"))
        return np.concatenate(params), np.concatenate(average), counts
