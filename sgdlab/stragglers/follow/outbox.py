"""`Outbox`, alarms that are sent somewhere by a thread of their own, and `webhook`, which posts one as JSON."""

import collections
import contextlib
import http.client
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import sgdlab

MOST = 1000
"""Alarms that wait; of more, the oldest are dropped."""
TIMEOUT = 5.0
"""Seconds that a server may take."""

Record = Mapping[str, Any]
_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_LAST_PAUSE = 0.2  # at the end, when nothing more comes
_LATER = (408, 425, 429)  # statuses of a request that may be sent again


class Refused(Exception):
    """Says that an alarm was refused, and would be again."""


class Outbox(contextlib.AbstractContextManager):
    """Sends alarms in their order; who has one to send never waits.

    One that cannot be sent is tried again after pauses that grow from half a second to half a minute, eight times in
    all. At the end of the block, those that wait are given some seconds.

    Args:
      name: of the flag that asked for it.
      send: sends one; it raises `Refused`, or another exception where it is worth trying again.
      most: alarms that wait.
      pauses: seconds between two tries of one.
      patience: seconds at the end.

    Attributes:
      sent: alarms that arrived.
      lost: those that were given up, or dropped since others came.
      why: the last thing that went wrong.

    Example:
      >>> arrived = []
      >>> with Outbox("list", arrived.append) as box:
      ...     box.put({"kind": "slow worker"})
      >>> arrived, box.lost
      ([{'kind': 'slow worker'}], 0)
    """

    def __init__(
        self,
        name: str,
        send: Callable[[Record], object],
        *,
        most: int = MOST,
        pauses: tuple[float, ...] = _PAUSES,
        patience: float = TIMEOUT,
    ):
        self.name, self._send, self._most, self._pauses, self._patience = name, send, most, pauses, patience
        self.sent, self.lost, self.why = 0, 0, ""
        self._queue: collections.deque[Record] = collections.deque()
        self._sending = self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, record: Record) -> None:
        """Adds an alarm, of what JSON can hold."""
        with self._changed:
            if len(self._queue) >= self._most:
                self._queue.popleft()
                self.lost += 1
            self._queue.append(record)
            self._changed.notify()

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(self._patience)
        with self._changed:  # a thread that still waits for an answer ends with the process
            self.lost += len(self._queue) + self._sending
            self.why = self.why or ("there was no answer in time" if self.lost else "")
            self._queue.clear()
            self._sending = False

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    return
                record, self._sending = self._queue.popleft(), True
            arrived = self._delivered(record)
            with self._changed:
                if self._sending:  # it does not count as lost yet
                    self.sent, self.lost = self.sent + arrived, self.lost + (not arrived)
                self._sending = False

    def _delivered(self, record: Record) -> bool:
        for pause in (0.0, *self._pauses):
            time.sleep(min(pause, _LAST_PAUSE))
            with self._changed:
                self._changed.wait_for(lambda: self._closing, max(pause - _LAST_PAUSE, 0.0))
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
    """Return an address of HTTP.

    Raises:
      ValueError: where it is another; the message does not repeat it, since it may hold a secret.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc or any(not "!" <= letter <= "~" for letter in url):
        raise ValueError("must be an address that begins with http:// or https://, without a user's name")
    return url


def webhook(url: str) -> Callable[[Record], None]:
    """Return what posts an alarm as JSON: redirections are not followed, and no answer is read.

    Raises:
      ValueError: where the address is not one of HTTP.
    """
    checked(url)
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
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
