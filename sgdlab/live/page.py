"""A live run as a page in the browser of the same machine: it shows, and changes nothing."""

import base64
import collections
import dataclasses
import hashlib
import http.server
import importlib.resources
import json
import math
import re
import socketserver
import threading
import time
from typing import Any, Self

from sgdlab.live.status import Status

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost")
"""What a browser of this machine may call it. A request for another name comes from a foreign page (DNS rebinding)."""
STRIP_SECONDS = 60.0
"""The page shows what each worker did for so long."""
CURVE_POINTS = 500
"""A curve has at most so many points; then every second one is left out."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Page:
    """Serves the newest `Status` on loopback, to whoever is logged in on this machine.

    `show` only keeps the status, so that the server of the run is not held up; requests are answered by other threads.
    To look from elsewhere, forward the port: `ssh -L 8000:127.0.0.1:PORT machine`.

    Args:
      port: where to listen; 0 takes a free port.

    Attributes:
      address: what to open in a browser.

    Raises:
      ValueError: if the port cannot be used.
    """

    def __init__(self, port: int = 0):
        self._run = _Run()
        if not 0 <= port <= 65535:
            raise ValueError(f"port={port} is not a port: 1 to 65535, or 0 for a free one")
        try:
            self._server = _Server((HOST, port), _handler(self._run))
        except OSError as error:
            raise ValueError(
                f"port={port} of {HOST} cannot be used ({error.strerror}): port=0 takes a free one"
            ) from None
        self.address = f"http://{HOST}:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="page", daemon=True).start()

    def show(self, status: Status) -> None:
        """Makes a status the newest one."""
        self._run.show(status)

    def close(self, patience: float = 1.5) -> None:
        """Ends the page; those who watch it are given `patience` seconds to read the last status."""
        until = time.monotonic() + patience
        while self._run.is_awaited() and time.monotonic() < until:
            time.sleep(0.05)
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Run:
    """The newest status, and what is kept of earlier ones, for pages that are opened in the middle of a run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._status: Status | None = None
        self._recent: collections.deque[tuple[float, str]] = collections.deque()
        self._curve: list[tuple[int, float | None, float]] = []
        self._every, self._shown = 1, 0
        self._asked = float("-inf")
        self._is_read = True

    def show(self, status: Status) -> None:
        with self._lock:
            if (
                self._status is not None and status.seconds < self._status.seconds
            ):  # the clock has begun, or begins anew
                self._recent.clear()
                self._curve.clear()
                self._every, self._shown = 1, 0
            self._status, self._is_read = status, False
            self._recent.append((status.seconds, "".join(worker.state[:1] for worker in status.workers)))
            while self._recent[0][0] < status.seconds - STRIP_SECONDS:
                self._recent.popleft()
            if self._shown % self._every == 0:
                self._curve.append((status.gradients, status.loss, status.gradients_per_second))
            if len(self._curve) > CURVE_POINTS:
                self._curve = self._curve[::2]
                self._every *= 2
            self._shown += 1

    def status(self) -> bytes:
        with self._lock:
            status, self._is_read, self._asked = self._status, True, time.monotonic()
        return _json(None if status is None else dataclasses.asdict(status))

    def history(self) -> bytes:
        with self._lock:
            recent, curve = list(self._recent), list(self._curve)
        return _json({"recent": recent, "curve": curve})

    def is_awaited(self) -> bool:
        """Whether somebody watches who has not read the newest status."""
        with self._lock:
            return not self._is_read and time.monotonic() - self._asked < 2


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has gone; the run's terminal is not the place to say so."""


def _handler(run: _Run) -> type[http.server.BaseHTTPRequestHandler]:
    page, policy = _page()
    answers = {
        "/": ("text/html; charset=utf-8", lambda: page),
        "/status.json": ("application/json", run.status),
        "/history.json": ("application/json", run.history),
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 5  # seconds for a request to be sent
        server_version, sys_version = "sgdlab", ""

        def parse_request(self) -> bool:
            if not super().parse_request():
                return False
            if self.command != "GET":
                self._answer(405, "text/plain", b"This page can only be read.\n", {"Allow": "GET"})
                return False
            return True

        def do_GET(self) -> None:
            if not _is_local(self.headers.get_all("Host", [])):
                names = " or ".join(NAMES)
                return self._answer(403, "text/plain", f"This page is called {names}.\n".encode())
            if self.path not in answers:
                return self._answer(404, "text/plain", b"There is nothing here.\n")
            kind, body = answers[self.path]
            return self._answer(200, kind, body())

        def _answer(self, code: int, kind: str, body: bytes, more: dict[str, str] | None = None) -> None:
            self.close_connection = True
            self.send_response(code)
            headers = {"Content-Type": kind, "Content-Length": str(len(body)), "Content-Security-Policy": policy}
            for name, value in (headers | _HEADERS | (more or {})).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _page() -> tuple[bytes, str]:
    """The page, and the policy under which its own script and style run, and no others."""
    text = (importlib.resources.files("sgdlab.live") / "page.html").read_text(encoding="utf-8")
    sources = {
        tag: " ".join(_digest(part) for part in re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL))
        for tag in ("script", "style")
    }
    policy = (
        f"default-src 'none'; script-src {sources['script']}; style-src {sources['style']}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text.encode(), policy


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _is_local(hosts: list[str]) -> bool:
    # Any port: it may have been forwarded from another one.
    return len(hosts) == 1 and re.sub(r":\d+$", "", hosts[0]).lower() in NAMES


def _json(value: Any) -> bytes:
    return json.dumps(_finite(value), allow_nan=False, separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity; they become "nan", "inf" and "-inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
