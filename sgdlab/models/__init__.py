"""Networks in Flax (nnx): the parts `conv` and `mlp`, their modules, and a network as pure functions (`classifier`).

Flax is imported at the first use of a module or of `classifier`.
"""

import lazy_loader

from sgdlab.models.networks import conv, mlp

__getattr__, _, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "batch": ["Batch"],
        "classification": ["Classifier", "classifier"],
        "convolution": ["MatmulConv"],
        "modules": ["BATCH_NORM_MOMENTUM", "MLP", "ConvNet"],
    },
)
__all__ = ["BATCH_NORM_MOMENTUM", "MLP", "Batch", "Classifier", "ConvNet", "MatmulConv", "classifier", "conv", "mlp"]


def __dir__() -> list[str]:
    return list(__all__)
