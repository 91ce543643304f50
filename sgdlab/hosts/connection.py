"""`connect`, and what connected processes do together: `gather`, `barrier`, and an end that leaves nobody waiting."""

import contextlib
import ctypes
import dataclasses
import importlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from sgdlab.errors import HostLost, UsageError
from sgdlab.hosts import address as addresses
from sgdlab.hosts import jax_private, rendezvous
from sgdlab.hosts.lifeline import LOST, Lifeline

_SHUTDOWN_SECONDS = 30
_REASON_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Timeouts:
    """Seconds for which processes wait for each other."""

    start: float = 60.0  # until all have come
    heartbeat: float = 60.0  # without a sign of life from a process, after which it counts as lost
    barrier: float = 1800.0  # at a barrier, for the last process


@dataclasses.dataclass
class _Connection:
    """This process among the others."""

    index: int
    hosts: tuple[str, ...]  # the name of the host of each process
    lifeline: Lifeline
    client: Any  # of JAX's coordination service
    timeouts: Timeouts
    meetings: int = 0  # barriers so far, which makes their names unique


_connection: _Connection | None = None


def connect(
    where: str,
    *,
    num_processes: int | None = None,
    process_id: int | None = None,
    least_processes: int | None = None,
    facts: Mapping[str, str] = MappingProxyType({}),
    timeouts: Timeouts = Timeouts(),
    secret: bytes = b"",
) -> None:
    """Connect this process with the others of its run, before JAX is asked for a device.

    All processes call it with equal arguments but for `process_id`. A single process is not connected.

    Args:
      where: "none"; HOST:PORT, the address at which process 0 listens, and no other; or "auto", which asks the cluster
        (SLURM, Open MPI, TPU pods, GKE). Nothing is detected unless it is asked for.
      num_processes: how many there are; detected with "auto".
      process_id: which of them this is, from 0; detected with "auto".
      least_processes: how many must have come after `timeouts.start` for the run to go on without the others, process 0
        among them; those that have come are numbered anew then. None: all must.
      facts: what must be equal on all processes, such as versions and entries of the configuration: name -> value.
      timeouts: how long to wait.
      secret: that all processes prove to have when they meet (`sgdlab.hosts.secret.read`); b"" for none. It guards the
        meeting and the watch over each other, not what JAX sends afterwards.

    Raises:
      UsageError: where arguments are impossible, the address cannot be used, or processes do not belong together.
      HostLost: where not all processes come in time; it says which.

    Example:
      >>> connect("none")
      >>> connected(), num_processes(), process_id(), is_first()
      (False, 1, 0, True)
    """
    if where == "none":
        for name, value in (("num_processes", num_processes), ("process_id", process_id)):
            if value is not None:
                raise UsageError(f"--{name}={value} needs --hosts=HOST:PORT, the address of process 0, or --hosts=auto")
        return
    if _connection is not None:
        raise RuntimeError("this process is connected already")
    if where == "auto":
        if least_processes is not None:
            raise UsageError(
                f"--num_processes={least_processes}:{num_processes} needs --hosts=HOST:PORT: a cluster that is asked "
                "has one number of processes"
            )
        found = addresses.detect(num_processes, process_id, timeouts.start)
    else:
        found = addresses.Detected(str(addresses.parse(where)), *_checked(where, num_processes, process_id), None)
    given = addresses.parse(found.address)
    _check_range(found.num_processes, found.process_id, least_processes)
    if found.num_processes == 1:
        return
    if jax_private.uses_devices():
        raise RuntimeError("connect must be called before JAX is asked for a device")
    own_address = addresses.check_own_name()
    least = least_processes or 0
    own = rendezvous.Member(found.process_id, found.num_processes, facts, socket.gethostname(), own_address, least)
    met = rendezvous.meet(own, given, timeouts.start, secret)
    _begin(found, given, met, timeouts)


def _checked(where: str, num_processes: int | None, process_id: int | None) -> tuple[int, int]:
    if num_processes is None or process_id is None:
        name = "num_processes" if num_processes is None else "process_id"
        raise UsageError(f"--hosts={where} needs --{name} (and each process its own --process_id, from 0)")
    return num_processes, process_id


def _check_range(count: int, index: int, least: int | None) -> None:
    if count < 1:
        raise UsageError(f"--num_processes={count} must be at least 1")
    if least is not None and not 1 <= least <= count:
        raise UsageError(f"--num_processes={least}:{count} must be the least number, from 1, and the largest")
    if not 0 <= index < count:
        raise UsageError(f"--process_id={index} must be from 0 to {count - 1}, below --num_processes={count}")


def _begin(found: addresses.Detected, given: addresses.Address, met: rendezvous.Members, timeouts: Timeouts) -> None:
    """Connect JAX; all processes are there."""
    global _connection  # noqa: PLW0603 (one per process)
    jax = importlib.import_module("jax")
    _delay_aborts()
    # Its handler of SIGTERM would take the place of `stopping`.
    jax.config.update("jax_enable_preemption_service", False)
    late = threading.Timer(timeouts.start, _too_late, (given, timeouts.start))
    late.daemon = True
    late.start()
    lifeline = Lifeline(met.index, met.hosts, met.connections, timeouts.heartbeat)
    jax.distributed.initialize(
        str(given),
        len(met.hosts),
        met.index,
        local_device_ids=found.local_device_ids,
        cluster_detection_method="deactivate",
        initialization_timeout=int(2 * timeouts.start) + 1,
        # Later than ours, which names the process; JAX aborts.
        heartbeat_timeout_seconds=int(2 * timeouts.heartbeat) + 30,
        shutdown_timeout_seconds=_SHUTDOWN_SECONDS,
        coordinator_bind_address=str(given.resolved()),
    )
    late.cancel()
    _connection = _Connection(met.index, met.hosts, lifeline, jax_private.coordination_client(), timeouts)


def _delay_aborts() -> None:
    """Delay aborts, which come when process 0 is gone, by a few seconds: the lifeline can end the process with a line.

    The handler is the C library's own `sleep`, called with the number of the signal, 6: no Python runs in it, it may be
    called in any handler, and afterwards the process aborts.
    """
    if os.name != "posix":
        return
    library = ctypes.CDLL(None)
    library.signal.argtypes, library.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    library.signal(signal.SIGABRT, ctypes.cast(library.sleep, ctypes.c_void_p))


def _too_late(given: addresses.Address, seconds: float) -> None:
    sys.stderr.write(f"error: all processes had come to {given}, but JAX did not connect them in {seconds:g} s\n")
    sys.stderr.flush()
    os._exit(LOST)


def connected() -> bool:
    """Return True if this process is one of several."""
    return _connection is not None


def num_processes() -> int:
    """Return the number of processes; 1 if this one is not connected."""
    return 1 if _connection is None else len(_connection.hosts)


def process_id() -> int:
    """Return the number of this process, from 0."""
    return 0 if _connection is None else _connection.index


def is_first() -> bool:
    """Return True if this process is the one that writes files and prints results."""
    return process_id() == 0


def host_of(index: int) -> str:
    """Return the name of a process's host."""
    return socket.gethostname() if _connection is None else _connection.hosts[index]


def gather(name: str, value: str) -> list[str]:
    """Return every process's value, in the order of their numbers; all processes call it, and wait for each other.

    It touches no device. It is called by main threads alone, in the same order everywhere.

    Args:
      name: of what is agreed upon, for messages.
      value: this process's.

    Raises:
      HostLost: where a process does not come in time; it says which.

    Example:
      >>> gather("stop", "no")
      ['no']
    """
    if _connection is None:
        return [value]
    this, client = _connection, _connection.client
    this.meetings += 1
    folder = f"sgdlab/{this.meetings}"
    client.key_value_set(f"{folder}/{this.index}", value)
    try:
        client.wait_at_barrier(f"sgdlab/{this.meetings}", int(1000 * this.timeouts.barrier))
        found = dict(client.key_value_dir_get(f"{folder}/"))
    except Exception as error:
        if "DEADLINE_EXCEEDED" not in str(error):
            wait_for_reason()
        came = set()
        with contextlib.suppress(Exception):
            came = {key.rpartition("/")[2] for key, _ in client.key_value_dir_get(f"{folder}/")}
        missing = [this.lifeline.name(i) for i in range(len(this.hosts)) if str(i) not in came]
        if "DEADLINE_EXCEEDED" in str(error) and missing:
            why = f"waited {this.timeouts.barrier:g} s at {name!r} for {', '.join(missing)}"
            raise HostLost(why) from None
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise HostLost(f"the coordination service failed at {name!r}: {why}") from error
    if this.index == 0 and this.meetings > 1:  # all have read what was gathered before
        client.key_value_delete(f"sgdlab/{this.meetings - 1}")
    return [found[f"{folder}/{i}"] for i in range(len(this.hosts))]


def barrier(name: str) -> None:
    """Wait until all processes have come here; see `gather`."""
    gather(name, "")


def announce(line: str, code: int) -> None:
    """Tell the others that this process ends, and why: they end with this exit code, and with a line that names it."""
    if _connection is not None:
        _connection.lifeline.announce(line, code)


def wait_for_reason(seconds: float = _REASON_SECONDS) -> None:
    """Wait for some seconds where communication has failed; if another process has ended, this one ends with a line."""
    if _connection is not None:
        time.sleep(seconds)


def leave(code: int, line: str = "") -> NoReturn:
    """End this process with an exit code, and all others, where there are any, with a line that says what happened."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if _connection is None:
        sys.exit(code)
    announce(line or f"ended with exit code {code}", code)
    _connection.lifeline.linger()
    # At a normal exit JAX would wait for the others, and then abort.
    os._exit(code)


def disconnect() -> None:
    """Wait until all processes have come to their end, and end their connection."""
    global _connection  # noqa: PLW0603 (one per process)
    if _connection is None:
        return
    barrier("the end")
    _connection.lifeline.close()
    _connection = None
    importlib.import_module("jax").distributed.shutdown()
