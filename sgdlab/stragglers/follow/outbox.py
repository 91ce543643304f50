"""`Outbox`, alarms that a thread of its own sends somewhere, and `webhook`, which posts them as JSON."""

import contextlib
import http.client
import json
import queue
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sgdlab

MOST = 1000
"""Alarms that wait; of more, the oldest are dropped."""
TIMEOUT = 5.0
"""Seconds that a server is given for an answer, and all alarms that wait at the end."""
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds between the tries of an alarm."""

Record = Mapping[str, Any]
_LAST_PAUSE = 0.2  # at the end
_LATER = (408, 425, 429)  # statuses of a request that may be sent again


class Refused(Exception):
    """Says that an alarm was refused, and would be again."""


class Outbox(contextlib.AbstractContextManager):
    """Sends alarms in their order, again where that fails; nobody waits for it, but for `TIMEOUT` at the end.

    Args:
      name: of the flag that asked for it.
      send: sends one; it raises `Refused`, or another exception where it is worth trying again.

    Attributes:
      given, sent: how many alarms there were, and how many have arrived.
      why: the last thing that went wrong.

    Example:
      >>> arrived = []
      >>> with Outbox("list", arrived.append) as box:
      ...     box.put({"kind": "slow worker"})
      >>> arrived, box.lost
      ([{'kind': 'slow worker'}], 0)
    """

    def __init__(
        self, name: str, send: Callable[[Record], object], *, most: int = MOST, pauses: Sequence[float] = PAUSES
    ):
        self.name, self._send, self._most, self._pauses = name, send, most, pauses
        self.given, self.sent, self.why = 0, 0, ""
        self._dropped = self._failed = 0
        self._queue: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
        self._closing, self._closed = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Return how many alarms were dropped or given up; after the end, all that are not known to have arrived."""
        return self.given - self.sent if self._closed else self._dropped + self._failed

    def put(self, record: Record) -> None:
        """Adds an alarm, of what JSON can hold."""
        self.given += 1
        if self._queue.qsize() >= self._most:
            with contextlib.suppress(queue.Empty):
                self._queue.get_nowait()
                self._dropped += 1
        self._queue.put(record)

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._queue.put(None)
        self._thread.join(TIMEOUT)
        self._closed = True
        self.why = self.why or ("there was no answer in time" if self.lost else "")

    def _run(self) -> None:
        while (record := self._queue.get()) is not None:
            if self._arrives(record):
                self.sent += 1
            else:
                self._failed += 1

    def _arrives(self, record: Record) -> bool:
        for pause in (0.0, *self._pauses):
            time.sleep(min(pause, _LAST_PAUSE))
            self._closing.wait(max(pause - _LAST_PAUSE, 0.0))
            try:
                self._send(record)
            except Refused as error:
                self.why = str(error)
                return False
            except Exception as error:  # whatever a server does, the diagnosis goes on
                self.why = str(error) or type(error).__name__
            else:
                return True
        return False


def checked(url: str) -> str:
    """Return an address of HTTP; the `ValueError` of another does not repeat it, since it may hold a secret."""
    with contextlib.suppress(ValueError):
        parts = urllib.parse.urlsplit(url)
        plain = all("!" <= letter <= "~" for letter in url) and "@" not in parts.netloc
        if plain and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return url
    raise ValueError("must be an address that begins with http:// or https://, without a user's name")


def webhook(url: str) -> Callable[[Record], None]:
    """Return what posts an alarm as JSON; redirections are not followed.

    Raises:
      ValueError: where `checked` does.
    """
    checked(url)
    opener = urllib.request.OpenerDirector()  # without the handlers of files and of redirections
    names = ("ProxyHandler", "HTTPHandler", "HTTPSHandler", "HTTPDefaultErrorHandler", "HTTPErrorProcessor")
    for name in names:
        opener.add_handler(getattr(urllib.request, name)())
    headers = {"Content-Type": "application/json", "User-Agent": f"sgdlab/{sgdlab.__version__}"}

    def post(record: Record) -> None:
        request = urllib.request.Request(url, json.dumps(record, allow_nan=False).encode(), headers)
        try:
            opener.open(request, timeout=TIMEOUT).close()
        except urllib.error.HTTPError as error:
            error.close()
            said = f"the server answers {error.code} {http.client.responses.get(error.code, '')}".strip()
            raise (ConnectionError if error.code >= 500 or error.code in _LATER else Refused)(said) from None
        except urllib.error.URLError as error:
            raise ConnectionError(getattr(error.reason, "strerror", None) or str(error.reason)) from None

    return post
