"""The registry of compressors, which make a worker's message shorter."""

import dataclasses
from typing import Literal

from sgdlab.registry import Facts, Registry


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompressionFacts(Facts):
    """Facts that runs ask of a compressor.

    Attributes:
      feedback: the memory that it has by default (`sgdlab.rules.feedback.FEEDBACKS`): what its source gives it.
    """

    feedback: Literal["none", "error", "ef21"] = "none"


COMPRESSIONS = Registry(
    "compression",
    facts=CompressionFacts,
    given={},
    modules=(
        "sgdlab.compressions.compressor",
        "sgdlab.compressions.sparse",
        "sgdlab.compressions.rounded",
        "sgdlab.compressions.power_sgd",
    ),
)
"""Compressors of messages: frozen classes of `sgdlab.compressions.Compressor`, made of their entries alone."""
