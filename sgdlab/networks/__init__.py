"""Networks in Flax (nnx); `parts` registers them for configurations, `convolution` is what they share.

Flax is imported at the first use of a module.
"""

from sgdlab import lazy
from sgdlab.networks import parts
from sgdlab.networks.family import NETWORKS

__getattr__, _, _ = lazy.attach(
    __name__,
    names={
        "adaptive_softmax": ["TiedSoftmax"],
        "convolution": ["Convolution", "conv"],
        "inception": ["Inception"],
        "normalization": ["BATCH_NORM_MOMENTUM", "batch_norm"],
        "pixelcnn": ["PixelCNN"],
        "plain": ["CNN", "MLP", "ConvNet", "WeightNormCNN", "WeightNormConvolution"],
        "residual": ["CifarResNet", "ResNet", "WideResNet"],
        "transformer_xl": ["TransformerXL"],
        "windows": ["max_pool", "mean_pool"],
    },
)
__all__ = [
    "BATCH_NORM_MOMENTUM",
    "CNN",
    "MLP",
    "NETWORKS",
    "CifarResNet",
    "ConvNet",
    "Convolution",
    "Inception",
    "PixelCNN",
    "ResNet",
    "TiedSoftmax",
    "TransformerXL",
    "WeightNormCNN",
    "WeightNormConvolution",
    "WideResNet",
    "batch_norm",
    "conv",
    "max_pool",
    "mean_pool",
    "parts",
]


def __dir__() -> list[str]:
    return list(__all__)
