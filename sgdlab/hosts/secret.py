"""`Seal`, by which processes prove to each other that they have the same secret, before anything else is believed."""

import hashlib
import hmac
import json
import os
import pathlib
import secrets
from collections.abc import Mapping
from typing import Any

from sgdlab.errors import UsageError
from sgdlab.hosts import messages

_ANY: Mapping[str, type] = {}
_LEAST = 16
_MOST = 4096


class NotProven(ValueError):
    """A message whose proof is missing or wrong."""

    def __init__(self) -> None:
        super().__init__("it does not prove that it has the secret of --hosts_secret_file")


def read(path: str | os.PathLike[str]) -> bytes:
    """Return the secret that a file holds, without the spaces and line ends around it.

    Raises:
      UsageError: where it cannot be read, or is shorter than 16 bytes, or longer than 4096.
    """
    try:
        with pathlib.Path(path).expanduser().open("rb") as file:
            secret = file.read(_MOST + 1).strip()
    except OSError as error:
        raise UsageError(f"--hosts_secret_file={path} cannot be read: {error.strerror}") from None
    if not _LEAST <= len(secret) <= _MOST:
        raise UsageError(
            f"--hosts_secret_file={path} must hold {_LEAST} to {_MOST} bytes, not {len(secret)}, such as those of "
            "`openssl rand -hex 32`"
        )
    return secret


class Seal:
    """One side of one connection, whose messages carry a proof: HMAC-SHA256 over them and a nonce of each side.

    Each side sends its nonce first, and makes a new one for each connection: what was recorded proves nothing later.
    The proof covers who sends, too, so that nobody can be sent its own messages. Contents are not hidden. Without a
    secret nothing is proven, no nonce is sent, and messages are as they are.

    Args:
      secret: that all processes have; b"" for none.
      is_first: True for the side of process 0.

    Example:
      >>> one, other = (Seal(b"16 bytes or more", is_first=first) for first in (True, False))
      >>> one.meet(other.greeting), other.meet(one.greeting)
      (True, True)
      >>> line = one.sealed({"why": "a test"})
      >>> other.opened(line, {"why": str})["why"]
      'a test'
      >>> other.opened(line.replace(b"test", b"lie"), {"why": str})
      Traceback (most recent call last):
      ...
      sgdlab.hosts.secret.NotProven: it does not prove that it has the secret of --hosts_secret_file
    """

    def __init__(self, secret: bytes, *, is_first: bool):
        self._secret, self._is_first = secret, is_first
        self._own, self._other = secrets.token_hex(16) if secret else "", ""

    @property
    def greeting(self) -> bytes:
        """Return the line that this side sends first; b"" without a secret."""
        return messages.line_of({"nonce": self._own}) if self._secret else b""

    def meet(self, line: bytes) -> bool:
        """Take in the other side's first line, its greeting; return False for later ones, and without a secret.

        Raises:
          ValueError: where it is no message; `NotProven` where it is another one.
        """
        if not self._secret or self._other:
            return False
        found = messages.read(line, _ANY).get("nonce")
        if not isinstance(found, str):
            raise NotProven
        self._other = found
        return True

    def sealed(self, message: Mapping[str, Any]) -> bytes:
        """Return the line of a message, with the proof once the other side's nonce is known."""
        return messages.line_of({**message, "proof": self._proof(message, own=True)} if self._other else message)

    def opened(self, line: bytes, *kinds: Mapping[str, type]) -> dict[str, Any]:
        """Return the message of a line; see `sgdlab.hosts.messages.read`.

        Raises:
          ValueError: where it is not of one of these kinds.
          NotProven: where its proof is missing or wrong.
        """
        if not self._secret:
            return messages.read(line, *kinds)
        message = messages.read(line, _ANY)
        proof = str(message.pop("proof", "")).encode(errors="replace")
        if not self._other or not hmac.compare_digest(proof, self._proof(message, own=False).encode()):
            raise NotProven
        return messages.read(messages.line_of(message), *kinds)

    def _proof(self, message: Mapping[str, Any], *, own: bool) -> str:
        nonces = (self._own, self._other) if own else (self._other, self._own)
        content = json.dumps([own == self._is_first, *nonces, message], sort_keys=True)
        return hmac.new(self._secret, content.encode(), hashlib.sha256).hexdigest()
