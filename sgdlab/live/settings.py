"""`LiveSettings`, what a server does about workers that fail, and `Endpoint`, where it listens for those that join."""

import dataclasses
import os
import pathlib
import re
from typing import Any

from sgdlab import arguments
from sgdlab.errors import UsageError
from sgdlab.hosts.address import parse

_RESPAWNS = 1000
"""Number of times in a row, at least, that a place is freed without a gradient in between: it costs nothing."""
VARIABLE = "SGDLAB_TOKEN"
"""Environment variable that holds the token where none is given."""
_LEAST = 16

Token = str | os.PathLike[str] | None
"""The token itself, or a `pathlib.Path`: the file that holds it; None: it is in the environment, in `SGDLAB_TOKEN`."""


@dataclasses.dataclass(frozen=True)
class LiveSettings:
    """Sets what the server does about workers that are missing, silent or wrong, and how often it saves.

    Attributes:
      title: the method, for those who watch.
      unit: what workers send, for the same: a "gradient", or a "message" of several local steps.
      min_workers: how many workers a run needs. It begins, and goes on, with fewer than all of them, but ends with an
        error if fewer than these are there for `wait_seconds`.
      join_seconds: how long a worker's process may take until it is ready; then it is given up and started anew, and
        may take twice as long, and so on, at last 8 times as long. The start waits for the first process of every
        worker; then those that are there begin, if they are enough.
      wait_seconds: how long the run waits for `min_workers` whenever workers are lost; at the start, once every worker
        had a process, since the last one was ready.
      patience: a worker that says nothing for this many times its own usual time is lost.
      least_patience: seconds; no worker is lost earlier than this, however fast it usually is.
      first_patience: seconds; patience with a worker whose usual time is not known yet.
      kill_patience: a worker that says nothing for this many times as long is killed and started anew.
      respawns: how often in a row all workers' processes are started anew without a gradient in between before the run
        fails. A worker alone is started anew for ever while another is fine; and so are all that do not get ready where
        gradients have come before, until `wait_seconds` are over.
      respawn_seconds: time before a process is started anew; each further time in a row it is twice as long, at most a
        minute.
      failures: gradients in a row that may raise or be refused before their worker is started anew; so it is too if so
        many of its last 4 times as many were bad, and its share is 3 times that of the others. If all workers together
        fail so often on average, without one good gradient in between, the run fails.
      checkpoint_updates: updates between two checkpoints, at least.
      checkpoint_seconds: time between two checkpoints, at least.
      turn_seconds: longest time between two looks at the clock, at `stop` and at workers that are silent.
      watch_seconds: time between two calls of `watch`.

    Raises:
      ValueError: if a number is out of its range.
    """

    title: str = ""
    unit: str = "gradient"
    min_workers: int = 1
    join_seconds: float = 60.0
    wait_seconds: float = 300.0
    patience: float = 20.0
    least_patience: float = 10.0
    first_patience: float = 120.0
    kill_patience: float = 4.0
    respawns: int = 5
    respawn_seconds: float = 0.5
    failures: int = 10
    checkpoint_updates: int = 100
    checkpoint_seconds: float = 5.0
    turn_seconds: float = 0.25
    watch_seconds: float = 0.5

    def __post_init__(self) -> None:
        arguments.whole("min_workers", self.min_workers)
        arguments.whole("respawns", self.respawns, least=0)
        arguments.whole("failures", self.failures)
        arguments.whole("checkpoint_updates", self.checkpoint_updates)
        arguments.real("patience", self.patience, above=1)
        arguments.real("kill_patience", self.kill_patience, least=1)
        for name in ("wait_seconds", "respawn_seconds", "checkpoint_seconds", "watch_seconds"):
            arguments.real(name, getattr(self, name), least=0)
        for name in ("join_seconds", "least_patience", "first_patience", "turn_seconds"):
            arguments.real(name, getattr(self, name), above=0)


def fitting(settings: LiveSettings, num_workers: int) -> LiveSettings:
    """Return settings, once they are known to fit a number of workers.

    Raises:
      ValueError: where they are something else, or ask for more workers than there are.
    """
    if not isinstance(settings, LiveSettings):
        raise ValueError(f"settings={settings!r} must be a sgdlab.live.LiveSettings")
    arguments.whole("min_workers", settings.min_workers, most=num_workers, why="the workers there are")
    return settings


def patient(settings: LiveSettings) -> LiveSettings:
    """Return settings of a server that starts no process, by which a place may be freed as often as one likes."""
    return dataclasses.replace(settings, respawns=max(settings.respawns, _RESPAWNS))


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Says where a server listens, and which workers may join.

    Attributes:
      address: "HOST:PORT"; port 0 is a free one.
      token: which workers must show, of 16 characters or more; a `pathlib.Path` is a file that holds it, and None means
        the environment variable SGDLAB_TOKEN. It is neither printed nor written.
      certificate: a PEM file of the server's certificate, and of those that it is signed by: workers come by TLS then.
      key: a PEM file of its private key.
      insecure: whether to listen beyond this machine without a certificate, where others can read the token and the
        gradients, such as in a network that is encrypted already.

    Raises:
      ValueError: if the address is none, or is beyond this machine without a certificate and without `insecure`.

    Example:
      >>> Endpoint("0.0.0.0:8476", token="x" * 20)
      Traceback (most recent call last):
      ...
      sgdlab.errors.UsageError: address='0.0.0.0:8476' is beyond this machine, where others could read the token: give a
      certificate (and the server its key), or insecure=True if the network is encrypted already
    """

    address: str = "127.0.0.1:0"
    token: Token = dataclasses.field(default=None, repr=False)
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise UsageError("certificate and key must be given together: two PEM files")
        check_address(self.address, certificate=self.certificate, insecure=self.insecure)

    def listen(self, server: Any) -> str:
        """Let a gRPC server listen, and return the address, with the port that it has.

        Raises:
          ValueError: if a file cannot be read, or the port is taken.
        """
        try:
            if self.certificate is None or self.key is None:
                port = server.add_insecure_port(self.address)
            else:
                pair = (read(self.key, "key"), read(self.certificate, "certificate"))
                port = server.add_secure_port(self.address, grpc_or_error().ssl_server_credentials([pair]))
        except RuntimeError as error:
            why = "the port may be taken, or certificate and key do not fit" if self.key else "the port may be taken"
            raise UsageError(f"address={self.address!r} cannot be listened at: {why}") from error
        return f"{self.address.rpartition(':')[0]}:{port}"


def grpc_or_error() -> Any:
    """Return gRPC; UsageError if it is not installed."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else whoever connects without TLS fills the terminal with lines
    try:
        import grpc  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise UsageError(
            f"workers that connect need gRPC, which `pip install 'sgdlab[grpc]'` installs: {error}"
        ) from error
    return grpc


def channel(address: str, certificate: str | os.PathLike[str] | None, options: list[tuple[str, Any]]) -> Any:
    """Return a way to a server: by TLS where there is a certificate, its own or that of who has signed it."""
    grpc = grpc_or_error()
    if certificate is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(read(certificate, "certificate")), options=options)


def check_address(address: str, *, certificate: str | os.PathLike[str] | None, insecure: bool) -> None:
    """Check that an address is one, and that nothing goes beyond this machine that others could read.

    Raises:
      ValueError: if not.

    Example:
      >>> check_address("localhost:8476", certificate=None, insecure=False)
      >>> check_address("8476", certificate=None, insecure=False)
      Traceback (most recent call last):
      ...
      sgdlab.errors.UsageError: address='8476' must be HOST:PORT, such as 10.0.0.5:4321
    """
    is_loopback = parse(address, least_port=0, wrong="address={!r} must be").is_loopback
    if certificate is None and not insecure and not is_loopback:
        raise UsageError(
            f"address={address!r} is beyond this machine, where others could read the token: give a certificate (and "
            "the server its key), or insecure=True if the network is encrypted already"
        )


def token_of(given: Token) -> str:
    """Return the token that is given; the message of an error does not show it.

    Raises:
      ValueError: if there is none, or it is too short, or not of printable ASCII characters.

    Example:
      >>> token_of("secret")
      Traceback (most recent call last):
      ...
      sgdlab.errors.UsageError: token must have at least 16 printable ASCII characters, and no blanks; the one given has
      6: python -c 'import secrets; print(secrets.token_urlsafe())' > token
    """
    make = "python -c 'import secrets; print(secrets.token_urlsafe())' > token"
    if given is None and VARIABLE not in os.environ:
        raise UsageError(
            f"token=None must be a token, the pathlib.Path of its file, or in {VARIABLE}; to make one: {make}"
        )
    found = os.environ[VARIABLE] if given is None else given
    token = found if isinstance(found, str) else read(found, "token").decode("utf-8", "replace")
    token = token.strip()
    if not re.fullmatch(rf"[!-~]{{{_LEAST},}}", token):
        raise UsageError(
            f"token must have at least {_LEAST} printable ASCII characters, and no blanks; the one given has "
            f"{len(token)}: {make}"
        )
    return token


def read(path: str | os.PathLike[str], what: str) -> bytes:
    """Return the bytes of a file; UsageError, which names the argument, if it cannot be read."""
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{what}={os.fspath(path)!r} cannot be read: {error.strerror}") from error
