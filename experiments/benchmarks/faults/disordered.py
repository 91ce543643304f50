"""`Disordered`, a transport that hands messages on twice, late, and out of order."""

import random
from typing import Any

from sgdlab.live.messages import Came, Failed, GaveUp, Joined, Message
from sgdlab.live.transport import Transport

_SHARE = 0.3
_LATEST = 6
_PAUSE = 0.02
"""Seconds between two calls while a message is held back."""


class Disordered:
    """Hands on what another transport does; answers of workers come again, late and in any order while `on`.

    Attributes:
      on: whether messages are disordered.
      again: number of messages that came once more.
      late: number of messages that were held back.
    """

    def __init__(self, transport: Transport, *, seed: int = 0, on: bool = True):
        self.inner, self.on = transport, on
        self.again = self.late = 0
        self._draw, self._calls = random.Random(seed), 0
        self._held: list[tuple[int, Message]] = []

    def __getattr__(self, name: str) -> Any:
        """Return what the other transport has: its clock, its versions, its workers."""
        return getattr(self.inner, name)

    def next(self, timeout: float | None) -> list[Message]:
        """Return the messages of the other, or some of them, and some of earlier ones."""
        self._calls += 1
        wait = timeout if not self._held else _PAUSE if timeout is None else min(timeout, _PAUSE)
        found = [message for message in self.inner.next(wait) if not self._put_off(message)]
        due = [message for when, message in self._held if when <= self._calls or not self.on]
        self._held = [(when, message) for when, message in self._held if when > self._calls and self.on]
        found += due
        if self.on and not any(isinstance(message, Joined) for message in found):
            self._draw.shuffle(found)
        return found

    def _put_off(self, message: Message) -> bool:
        """Return whether a message comes later; perhaps it comes later once more."""
        if not self.on or not isinstance(message, Came | GaveUp | Failed):
            return False
        if self._draw.random() < _SHARE:
            self.again += 1
            self._hold(message)
        if self._draw.random() < _SHARE:
            self.late += 1
            self._hold(message)
            return True
        return False

    def _hold(self, message: Message) -> None:
        self._held.append((self._calls + self._draw.randint(1, _LATEST), message))
