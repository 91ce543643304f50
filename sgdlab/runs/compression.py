"""`Compression`, what `config.compression` says of the messages of a run."""

import dataclasses
import functools
from typing import Any

import jax
from ml_collections import ConfigDict

from sgdlab.compressions import COMPRESSIONS, Compressor
from sgdlab.errors import UsageError, said_of
from sgdlab.rules import ServerRule, compressed
from sgdlab.rules.feedback import Channel
from sgdlab.runs.methods import UsedPart
from sgdlab.types import Tree

NONE = "none"
_MEMORIES = {NONE: "no memory", "error": "error feedback", "ef21": "EF21"}


def names_with(trait: str) -> str:
    """Return the names of the compressors that have a trait, such as `adds_up`."""
    return ", ".join(part.name for part in COMPRESSIONS.values() if getattr(part.make, trait, False))


@dataclasses.dataclass(frozen=True)
class Compression:
    """Compressed messages of a run."""

    used: UsedPart  # the compressor
    feedback: str  # the memory of workers, one of `sgdlab.rules.feedback.FEEDBACKS`
    seed: int  # of random compressors

    @classmethod
    def of(cls, config: ConfigDict, seed: int) -> "Compression | None":
        """Return what a configuration says, or refuse it; None where messages are not compressed."""
        used = UsedPart.of(config, COMPRESSIONS, NONE)
        if used.name == NONE:
            return None
        feedback = config.compression.feedback
        found = cls(used, used.facts.feedback if feedback is None else feedback, seed)
        with said_of("--config.compression."):
            found.channel  # noqa: B018 (it refuses what cannot be)
        return found

    @functools.cached_property
    def channel(self) -> Channel:
        """Return the compressor with the memory."""
        made = self.used.make()
        if not isinstance(made, Compressor):
            what = f"returned a {type(made).__name__}, which must be a sgdlab.compressions.Compressor"
            raise UsageError(f"--config.compression.kind={self.used.name} {what} ({self.used.part.where})")
        return Channel(made, self.feedback)

    def rule(self, rule: ServerRule, num_workers: int, *, unpacked: bool = False) -> ServerRule:
        """Return a rule of the compressed messages of so many workers; `unpacked` as of `sgdlab.rules.compressed`."""
        given: dict[str, Any] = {"num_workers": num_workers, "feedback": self.feedback, "seed": self.seed}
        return compressed(rule, self.channel.compressor, unpacked=unpacked, **given)

    def of_worker(self) -> dict[str, Any]:
        """Return the fields of `sgdlab.live.work.Work` that a worker's end needs."""
        return {"channel": self.channel, "seed": self.seed}

    def check(self, *, has_server: bool, protocol: str, fragments: bool) -> None:
        """Raise a `UsageError` where messages are not those of workers to a server, or cannot be compressed."""
        flag = f"--config.compression.kind={self.used.name}"
        if not has_server:
            raise UsageError(
                f"{flag} must be none with protocol {protocol}: what is compressed are messages of workers to a server"
            )
        if fragments and not (self.channel.compressor.entrywise and self.feedback == NONE):
            raise UsageError(
                f"{flag} with feedback={self.feedback} must be one of {names_with('entrywise')}, with "
                "--config.compression.feedback=none, for messages of fragments: others mix them with the rest"
            )

    def words(self, entries: str, params: Tree = None) -> str:
        """Return what it is, in words, given its entries in words; with parameters, the bytes of a message too."""
        what = f"{self.used.part.title}{f' ({entries})' if entries else ''}, {_MEMORIES[self.feedback]}"
        if params is None:
            return what
        size, whole = self.bytes_of(params), sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
        return f"{what}; {size:,.0f} bytes each, {100 * size / whole:.3g} % of uncompressed ones"

    def bytes_of(self, params: Tree) -> float:
        """Return the bytes of a message, given the parameters or their outlines."""
        leaves = jax.tree.leaves(params)
        return self.channel.compressor.message_bytes([leaf.shape for leaf in leaves], jax.numpy.result_type(*leaves))
