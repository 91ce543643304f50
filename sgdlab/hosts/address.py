"""The address at which process 0 is found, given or said by a cluster's launcher, and the name of this host."""

import dataclasses
import errno
import ipaddress
import os
import re
import socket

from sgdlab.errors import UsageError
from sgdlab.hosts import jax_private

_ADDRESS = re.compile(
    r"((?P<name>[A-Za-z0-9_.-]+)|\[(?P<number>[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?)\]):(?P<port>[0-9]{1,5})"
)
_LARGEST_PORT = 65535
_BACKLOG = 1024
"""Processes of a run that call at the same moment."""


@dataclasses.dataclass(frozen=True)
class Address:
    """The address at which process 0 listens."""

    host: str  # a name, or an IPv4 or IPv6 address
    port: int  # from 1 to 65535

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def resolved(self) -> "Address":
        """Return the same with the host's number instead of its name.

        Raises:
          OSError: where the name does not resolve (`socket.gaierror`).
        """
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        return Address(str(found[0][4][0]), self.port)

    @property
    def is_loopback(self) -> bool:
        """Return True if no other host can reach it; names may mean anything, but for localhost."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def family(self) -> socket.AddressFamily:
        """Return the family of a number, IPv4 or IPv6."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET


def parse(text: str, *, least_port: int = 1, wrong: str = "--hosts={} must be none, auto or") -> Address:
    """Read HOST:PORT.

    Args:
      text: of the address.
      least_port: 0, where that is a free one.
      wrong: how the message of an error begins.

    Raises:
      UsageError: where it is something else.

    Example:
      >>> parse("node7:4321"), str(parse("[::1]:4321"))
      (Address(host='node7', port=4321), '[::1]:4321')
      >>> parse("node7")
      Traceback (most recent call last):
      ...
      sgdlab.errors.UsageError: --hosts=node7 must be none, auto or HOST:PORT, such as 10.0.0.5:4321
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or not least_port <= int(found["port"]) <= _LARGEST_PORT:
        raise UsageError(f"{wrong.format(text)} HOST:PORT, such as 10.0.0.5:4321")
    return Address(found["name"] or found["number"], int(found["port"]))


@dataclasses.dataclass(frozen=True)
class Detected:
    """The processes of a job."""

    address: str  # HOST:PORT of process 0
    num_processes: int
    process_id: int  # of this one
    local_device_ids: tuple[int, ...] | None  # accelerators of the host that this process uses; None: all


def detect(num_processes: int | None, process_id: int | None, seconds: float) -> Detected:
    """Ask JAX's detection of clusters, which reads the environment, or asks the cluster for so many seconds.

    Args:
      num_processes: as given; None: to be detected.
      process_id: likewise.
      seconds: how long a cluster may take to answer.

    Raises:
      UsageError: where this process does not run on a cluster that is known.
    """
    clusters = jax_private.clusters()
    try:
        address, count, own, devices = clusters.auto_detect_unset_distributed_params(
            None, num_processes, process_id, None, None, int(seconds)
        )
    except Exception as error:
        line = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise UsageError(f"--hosts=auto: the cluster could not be asked: {line}") from error
    if address is None or count is None or own is None:
        raise UsageError(
            "--hosts=auto found no cluster (it knows SLURM, Open MPI, TPU pods and GKE); name the address of process "
            "0: --hosts=HOST:PORT"
        )
    return Detected(address, int(count), int(own), None if devices is None else tuple(devices))


def listen(address: Address, given: Address) -> socket.socket:
    """Listen on one address of this host, a number, and on no other; errors name it as it was given.

    Raises:
      UsageError: where the port is taken, or the address is not one of this host's.
    """
    listener = socket.socket(address.family, socket.SOCK_STREAM)
    # A port whose last connections have just ended may be used again; one on which somebody listens may not.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address.host, address.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        number = "" if address == given else f" ({address.host})"
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"--hosts={given}: port {address.port} of {given.host} is taken; name another") from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise UsageError(
                f"--hosts={given} must be an address of the host of process 0: {given.host}{number} is none of "
                f"{socket.gethostname()}"
            ) from None
        why = os.strerror(error.errno) if error.errno else str(error)
        raise UsageError(f"--hosts={given}: process 0 cannot listen there: {why}") from None
    return listener


def check_own_name() -> str:
    """Return the address that this host's name resolves to, such as "10.0.0.5": collectives on CPUs listen there.

    Raises:
      UsageError: where the name does not resolve.
    """
    name = socket.gethostname()
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        raise UsageError(
            f"the name of this host, {name}, does not resolve ({error.strerror or error}), which collectives need: add "
            "it to /etc/hosts or to the name server"
        ) from None
