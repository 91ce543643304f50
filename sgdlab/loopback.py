"""A page on loopback: a thread answers the browsers of this machine, and nobody else."""

import base64
import hashlib
import http.server
import json
import math
import re
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost")
"""What a browser of this machine may call it. A request for another name comes from a foreign page (DNS rebinding)."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Loopback:
    """Serves a page and what it asks for, to whoever is logged in on this machine.

    To look from elsewhere, forward the port: `ssh -L 8000:127.0.0.1:PORT machine`.

    Args:
      text: the page; its own script and style run, and no others.
      answers: path -> what returns the value that is sent as JSON.
      port: where to listen; 0 takes a free port.

    Attributes:
      address: what to open in a browser.

    Raises:
      ValueError: if the port cannot be used.
    """

    def __init__(self, text: str, answers: Mapping[str, Callable[[], Any]], port: int = 0):
        if not 0 <= port <= 65535:
            raise ValueError(f"port={port} is not a port: 1 to 65535, or 0 for a free one")
        try:
            self._server = _Server((HOST, port), _handler(text, answers))
        except OSError as error:
            raise ValueError(
                f"port={port} of {HOST} cannot be used ({error.strerror}): port=0 takes a free one"
            ) from None
        self.address = f"http://{HOST}:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="page", daemon=True).start()

    def close(self, is_awaited: Callable[[], bool], patience: float) -> None:
        """Ends the page, once nobody awaits the last state, or after `patience` seconds."""
        until = time.monotonic() + patience
        while is_awaited() and time.monotonic() < until:
            time.sleep(0.05)
        self._server.shutdown()
        self._server.server_close()


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
            return self._answer(200, "application/json", _json(answers[self.path]()))

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
    sources = {
        tag: " ".join(_digest(part) for part in re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL))
        for tag in ("script", "style")
    }
    return (
        f"default-src 'none'; script-src {sources['script']}; style-src {sources['style']}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


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
