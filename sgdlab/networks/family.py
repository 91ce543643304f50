"""Networks: their registry."""

import dataclasses
from typing import Literal

from sgdlab.registry import Facts, Registry


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkFacts(Facts):
    """Facts that runs ask of a network.

    Attributes:
      task: what it is trained for, unless `config.task.kind` says so: one of `sgdlab.tasks.TASKS`; these are the
        package's own.
      lanes: how the gradients of a wave are computed, on any device; None: by `vmap`, but for CPUs.
      lanes_on_cpu: how they are computed on a CPU.
    """

    task: Literal["classification", "density", "language"] = "classification"
    lanes: Literal["map", "vmap"] | None = None
    lanes_on_cpu: Literal["map", "vmap"] = "vmap"


NETWORKS = Registry(
    "network",
    facts=NetworkFacts,
    given={
        "image_shape": "data.kind",
        "num_classes": "data.kind",
        "levels": "data.kind",
        "vocabulary": "data.kind",
        "rngs": "",
    },
    modules=("sgdlab.networks.parts",),
)
"""Flax networks: `(*, rngs, **own) -> nnx.Module`, with what they ask of the data: `image_shape` and `num_classes`,
`image_shape` and `levels` (`task="density"`), or `vocabulary` (`task="language"`)."""
