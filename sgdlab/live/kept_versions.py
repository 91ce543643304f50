"""`KeptVersions`, the parameters that gradients in flight are computed on: each is kept while it has a reader."""

from collections.abc import Callable, Hashable
from typing import Any

from sgdlab.live.transport import Transport

Tree = Any


class KeptVersions:
    """The versions that valid tickets read, and the newest.

    Attributes:
      newest: number of the newest version.
    """

    def __init__(self) -> None:
        self.newest = 0
        self._trees: dict[int, Tree] = {}
        self._handles: dict[int, Hashable] = {}
        self._readers: dict[int, int] = {}

    def formed(self, version: int, transport: Transport) -> None:
        """A new version exists; the one before is kept for its readers only."""
        before, self.newest = self.newest, version
        if not self._readers.get(before):
            self._forget(before, transport)

    def begin(self, version: int, sent: Callable[[], Tree], transport: Transport) -> Hashable:
        """A gradient begins on a version, which is the newest.

        Args:
          version: its number.
          sent: the version, asked for the first time only.
          transport: to which it is then published.

        Returns:
          The transport's handle of it.
        """
        if version not in self._trees:
            self._trees[version] = sent()
        if version not in self._handles:
            self._handles[version] = transport.publish(self._trees[version])
        self._readers[version] = self._readers.get(version, 0) + 1
        return self._handles[version]

    def read(self, version: int) -> Tree:
        """The parameters of a version that has a reader."""
        return self._trees[version]

    def done(self, version: int, transport: Transport) -> None:
        """A gradient on this version has come, or never will."""
        self._readers[version] -= 1
        if not self._readers[version] and version != self.newest:
            self._forget(version, transport)

    def held(self) -> dict[int, Tree]:
        """The versions with readers."""
        return {version: self._trees[version] for version, readers in self._readers.items() if readers}

    def restore(self, trees: dict[int, Tree]) -> None:
        """Puts the parameters of a checkpoint in the place of those that were not computed again."""
        self._trees |= trees

    def published_nowhere(self) -> None:
        """Forgets all handles: the transport is another one."""
        self._handles.clear()

    def release(self, transport: Transport) -> None:
        """Nobody will begin or need a gradient any more."""
        for handle in self._handles.values():
            transport.release(handle)
        self._handles.clear()

    def _forget(self, version: int, transport: Transport) -> None:
        self._readers.pop(version, None)
        self._trees.pop(version, None)
        if version in self._handles:
            transport.release(self._handles.pop(version))
