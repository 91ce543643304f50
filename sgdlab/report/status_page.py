"""`StatusPage`, a page on loopback: it shows what goes on, and threads answer the browsers of this machine alone."""

import base64
import dataclasses
import hashlib
import http.server
import json
import re
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from sgdlab.report import pages
from sgdlab.report.finite import finite

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost")
"""Names by which a browser of this machine may call it; other names come from foreign pages (DNS rebinding)."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class StatusPage:
    """Serves the newest state of something on loopback, to whoever is logged in on this machine.

    `show` only keeps the state, so that who calls it is not held up; requests are answered by other threads. To look
    from elsewhere, forward the port: `ssh -L 8000:127.0.0.1:PORT machine`.

    Args:
      package: the package whose `page.html`, which extends `status.html`, is sent; its own script and style run, and no
        others. It asks for `status.json`, the newest state.
      port: where to listen; 0 takes a free port.
      answers: path -> what returns another value that is sent as JSON.

    Attributes:
      address: what to open in a browser.

    Raises:
      ValueError: if the port cannot be used.
    """

    def __init__(self, package: str, port: int = 0, answers: Mapping[str, Callable[[], Any]] | None = None):
        if not 0 <= port <= 65535:
            raise ValueError(f"port={port} is not a port: 1 to 65535, or 0 for a free one")
        self._lock = threading.RLock()
        self._state: Any = None
        self._asked, self._is_read = float("-inf"), True
        text = pages.render(package, "page.html")
        try:
            self._server = _Server((HOST, port), _handler(text, {"/status.json": self._read, **(answers or {})}))
        except OSError as error:
            raise ValueError(
                f"port={port} of {HOST} cannot be used ({error.strerror}): another would do, or 0, for a free one"
            ) from None
        self.address = f"http://{HOST}:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="page", daemon=True).start()

    def show(self, state: Any) -> None:
        """Makes a state, of what JSON can hold or a dataclass of it, the newest one."""
        with self._lock:
            self._state, self._is_read = state, False

    def close(self, patience: float = 1.5) -> None:
        """Ends the page; those who watch it are given `patience` seconds to read the last state."""
        until = time.monotonic() + patience
        while self._is_awaited() and time.monotonic() < until:
            time.sleep(0.05)
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> Any:
        with self._lock:
            state, self._is_read, self._asked = self._state, True, time.monotonic()
        return dataclasses.asdict(state) if dataclasses.is_dataclass(state) else state

    def _is_awaited(self) -> bool:
        """Return True if somebody watches who has not read the newest state."""
        with self._lock:
            return not self._is_read and time.monotonic() - self._asked < 2


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has gone; the run's terminal is not the place to say so."""


def _handler(text: str, answers: Mapping[str, Callable[[], Any]]) -> type[http.server.BaseHTTPRequestHandler]:
    page, policy = text.encode(), _policy(text)

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
            if self.path == "/":
                return self._answer(200, "text/html; charset=utf-8", page)
            if self.path not in answers:
                return self._answer(404, "text/plain", b"There is nothing here.\n")
            value = finite(answers[self.path](), str)  # the page is told which number is not finite
            sent = json.dumps(value, allow_nan=False, separators=(",", ":"))
            return self._answer(200, "application/json", sent.encode())

        def _answer(self, code: int, kind: str, body: bytes, more: dict[str, str] | None = None) -> None:
            self.close_connection = True
            self.send_response(code)
            headers = {"Content-Type": kind, "Content-Length": str(len(body)), "Content-Security-Policy": policy}
            for name, value in (headers | _HEADERS | (more or {})).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        # pyrefly: ignore[bad-override]  # the names of what is not used do not matter
        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def _policy(text: str) -> str:
    """The policy under which a page's own script and style run, and no others."""

    def own(tag: str) -> str:
        parts = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digests = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    return (
        f"default-src 'none'; script-src {own('script')}; style-src {own('style')}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _is_local(hosts: list[str]) -> bool:
    # Any port: it may have been forwarded from another one.
    return len(hosts) == 1 and re.sub(r":\d+$", "", hosts[0]).lower() in NAMES
