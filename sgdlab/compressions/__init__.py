"""Compressors: what a worker's message becomes on its way to the server, and how many bytes it has.

`sgdlab.rules.compressed` makes any rule one of compressed messages, with or without a memory of what was left out.
"""

from sgdlab.compressions.compressor import Compressor, Uncompressed, VectorCompressor
from sgdlab.compressions.family import COMPRESSIONS
from sgdlab.compressions.power_sgd import PowerSgd
from sgdlab.compressions.rounded import FourBit, Qsgd, Sign
from sgdlab.compressions.sparse import RandomK, TopK

__all__ = [
    "COMPRESSIONS",
    "Compressor",
    "FourBit",
    "PowerSgd",
    "Qsgd",
    "RandomK",
    "Sign",
    "TopK",
    "Uncompressed",
    "VectorCompressor",
]
