"""The registry of transports, which say how long messages between workers and a server take."""

import dataclasses

from sgdlab.registry import Registry


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The bytes of the messages of a run, as its network, its compression and its local steps make them.

    Attributes:
      gradient: of what a worker sends.
      parameters: of what the server answers.
    """

    gradient: float
    parameters: float


TRANSPORTS = Registry(
    "transport",
    given={"num_workers": "cluster.num_workers", "sizes": ""},
    modules=("sgdlab.transports.star", "sgdlab.transports.presets", "sgdlab.transports.collectives"),
)
"""Costs of messages: `(*, num_workers, sizes, **own) -> Star`."""
