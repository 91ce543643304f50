"""The address at which process 0 is found, and the host's own name, which collectives on CPUs need."""

import dataclasses
import errno
import ipaddress
import os
import socket

from sgdlab.errors import UsageError

_LARGEST_PORT = 65535
_BACKLOG = 1024
"""Processes of a run that call at the same moment."""


@dataclasses.dataclass(frozen=True)
class Address:
    """Where process 0 listens.

    Attributes:
      host: a name, or an IPv4 or IPv6 address.
      port: from 1 to 65535.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def resolved(self) -> "Address":
        """The same with the host's number instead of its name.

        Raises:
          OSError: where the name does not resolve (`socket.gaierror`).
        """
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        return Address(str(found[0][4][0]), self.port)

    @property
    def is_loopback(self) -> bool:
        """Whether a number is one that no other host can reach."""
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def family(self) -> socket.AddressFamily:
        """Of a number: IPv4 or IPv6."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET


def parse(text: str) -> Address:
    """Reads HOST:PORT.

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
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    usable = colon and bare and port.isdecimal() and 1 <= int(port) <= _LARGEST_PORT
    if not usable or (":" in bare and bare == host):
        raise UsageError(f"--hosts={text} must be none, auto or HOST:PORT, such as 10.0.0.5:4321")
    return Address(bare, int(port))


def listen(address: Address, given: Address) -> socket.socket:
    """Listens on one address of this host and on no other.

    Args:
      address: with a number.
      given: as it was given, for messages.

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
    """Checks that this host's name resolves: collectives on CPUs listen on its address.

    Returns:
      The address, such as "10.0.0.5".

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
