"""Many processes as one: start-up, agreement through the coordination service, failures, stopping, and the mesh."""

from sgdlab.hosts import secret
from sgdlab.hosts.connection import (
    Timeouts,
    announce,
    barrier,
    connect,
    connected,
    disconnect,
    gather,
    host_of,
    is_first,
    leave,
    num_processes,
    process_id,
    wait_for_reason,
)
from sgdlab.hosts.shared import check_shared, mesh
from sgdlab.hosts.stopping import stop_requested, stopping

__all__ = [
    "Timeouts",
    "announce",
    "barrier",
    "check_shared",
    "connect",
    "connected",
    "disconnect",
    "gather",
    "host_of",
    "is_first",
    "leave",
    "mesh",
    "num_processes",
    "process_id",
    "secret",
    "stop_requested",
    "stopping",
    "wait_for_reason",
]
