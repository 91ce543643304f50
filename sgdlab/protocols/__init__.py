"""Whom to wait for: protocols turn run-times [T, N] into a `Schedule`. No learning happens here."""

from sgdlab.protocols.asynchronous import asynchronous
from sgdlab.protocols.runtimes import NotEnoughRuntimes, with_enough_rows
from sgdlab.protocols.synchronous import backup_workers, synchronous

__all__ = ["NotEnoughRuntimes", "asynchronous", "backup_workers", "synchronous", "with_enough_rows"]
