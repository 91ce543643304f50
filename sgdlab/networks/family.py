"""Networks: their registry."""

from sgdlab.registry import Registry

NETWORKS = Registry(
    "network",
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
