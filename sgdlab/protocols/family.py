"""Whom to wait for: the registry of protocols, and what is known of each of them."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

from sgdlab.errors import UsageError
from sgdlab.knobs import Knob
from sgdlab.registry import Facts, Registry


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProtocolFacts(Facts):
    """Holds what methods, tables and drivers ask of a protocol.

    Attributes:
      families: groups in tables and pictures.
      rule: what the server does with its gradients where a method names the protocol alone; None makes no such method.
      policy: makes its policy, `(*, num_workers, **entries)`; None where there is none.
      no_policy: why there is none.
      peers: whether its policy is a `PeerPolicy`, and its schedule a `PeerSchedule`.
      fast: an array program, `(policy, runtimes, num_gradients) -> Schedule`; it returns None where it does not apply.
      ends: what `num_gradients=None` means: until a worker that has to begin again runs out of compute times ("first"),
        an update for each row of compute times ("rows"), or all T N gradients ("all").
      never_waits: whether no worker ever waits, so that its throughput is the largest there is.
      blocks: the entry that says how many blocks of parameters there are.
      averages: how many parameters are averaged at once, `(entries, num_workers) -> int`.
      expected_gradients: gradients that an update is expected to have, `(entries, num_workers) -> int`.
      explores: whether nodes go ways of their own, held together loosely, so that each has a single worker's rate.
      waste: the entry that says how many gradients are thrown away, or how long workers wait.
      pieces: the entry that says into how many gradients a worker's batch is divided, with its seconds.
      tunes: the entry that is tuned, besides the learning rate and the momentum, with its range.
    """

    families: tuple[str, ...] | None = None
    rule: str | None = None
    policy: Callable[..., Any] | None = None
    no_policy: str = ""
    peers: bool = False
    fast: Callable[..., Any] | None = None
    ends: Literal["first", "rows", "all"] = "first"
    never_waits: bool = False
    blocks: str | None = None
    averages: Callable[[Mapping[str, Any], int], int] | None = None
    expected_gradients: Callable[[Mapping[str, Any], int], float] | None = None
    explores: bool = False
    waste: str | None = None
    pieces: str | None = None
    tunes: Knob | None = None


class ProtocolRegistry(Registry):
    """Protocols by name: `make` gives a schedule, `policy` the policy that decides it event by event."""

    def policy(self, name: str, entries: Mapping[str, Any], /, **given: Any) -> Any:
        """Make the policy of a protocol, for `simulate` or for real processes.

        Args:
          name: of the protocol.
          entries: its group of the configuration, or only what differs from its defaults.
          **given: what the run knows: `num_workers`, `predictor`, `seed`.

        Returns:
          A `Policy`, or a `PeerPolicy` of a protocol with the fact `peers`.

        Raises:
          UsageError: where there is no such protocol, it has no policy, or it refuses an argument.

        Example:
          >>> PROTOCOLS.policy("softsync", {"gradients_per_update": 2}, num_workers=4).size
          2
        """
        return self.call(self.with_policy(name), entries, given, by="policy")

    def with_policy(self, name: str) -> Any:
        """Return a protocol that has a policy.

        Raises:
          UsageError: where there is no such protocol, or it has no policy; the message says why.
        """
        part = self.check(name)
        if part.facts.policy is None:
            why = part.facts.no_policy or "it is a function of run-times, and no policy"
            raise UsageError(f"--config.protocol.kind={name} must be another, which docs/live.md names: {why}")
        return part


PROTOCOLS = ProtocolRegistry(
    "protocol",
    given={
        "runtimes": "",
        "num_gradients": "epochs",
        "num_seconds": "seconds",
        "gradients_per_epoch": "",
        "predictor": "predictor.kind",
        "seed": "seed",
        "transport": "transport.kind",
        "outages": "failures.kind",
    },
    flags={"num_workers": "cluster.num_workers"},
    facts=ProtocolFacts,
    modules=(
        "sgdlab.protocols.rounds",
        "sgdlab.protocols.cutoff",
        "sgdlab.protocols.threshold",
        "sgdlab.protocols.partial",
        "sgdlab.protocols.collect",
        "sgdlab.protocols.softsync",
        "sgdlab.protocols.bounded_staleness",
        "sgdlab.protocols.delayed_rounds",
        "sgdlab.protocols.layerwise",
        "sgdlab.protocols.simulated_staleness",
        "sgdlab.protocols.all_reduce",
        "sgdlab.protocols.gossip",
        "sgdlab.protocols.elastic_averaging",
        "sgdlab.protocols.a2cid2",
        "sgdlab.protocols.ad_psgd",
        "sgdlab.protocols.assignment",
        "sgdlab.protocols.ata",
        "sgdlab.protocols.d_psgd",
        "sgdlab.protocols.growing_ringmaster",
        "sgdlab.protocols.lb_bsp",
        "sgdlab.protocols.malenia",
        "sgdlab.protocols.mindflayer",
        "sgdlab.protocols.quorum",
        "sgdlab.protocols.ringleader",
        "sgdlab.protocols.sgp",
    ),
)
"""Whom to wait for: `(runtimes, *, num_gradients=None, **own) -> Schedule | PeerSchedule`, and policies."""
