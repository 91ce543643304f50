"""`resolve`: a configuration is read once, and what it says is an `Experiment`, which all else is made from."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from sgdlab import registry as registries
from sgdlab.errors import UsageError, said_of
from sgdlab.registry import FAMILIES, NETWORKS, TASKS, Part, Registry
from sgdlab.runs import configuration, local_steps, parts
from sgdlab.runs.compression import Compression
from sgdlab.runs.configuration import Reach
from sgdlab.runs.datasets import FOLDS, Participants, TrainingData
from sgdlab.runs.local_steps import Local, local_of
from sgdlab.runs.methods import Method, UsedPart, chosen
from sgdlab.runs.rates import InnerRate, RateSchedule
from sgdlab.tasks.family import OUTCOMES

_OFF_BY_DEFAULT = ("budget", "seconds", "until_target", "spacing", "split")
"""Entries on the first level that make no difference at their defaults."""

STREAMS = ("parameters", "batches", "runtimes", "protocol", "augmentation", "shares", "compression", "failures")
"""Sources of randomness of a run: network, order and shares of examples, compute times, draws of its protocol, ..."""


@dataclasses.dataclass(frozen=True)
class Seeds:
    """The seeds of a run, one for each of `STREAMS`, so that a change of one leaves the others as they are."""

    run: int

    def of(self, stream: str) -> int:
        """Return the seed of one of `STREAMS`.

        Example:
          >>> Seeds(0).of("runtimes") == Seeds(0).of("protocol")
          False
        """
        sequence = np.random.SeedSequence(self.run, spawn_key=(STREAMS.index(stream),))
        return int(sequence.generate_state(1)[0])


@dataclasses.dataclass(frozen=True)
class RunTimes:
    """The compute times of the gradients of a run, each of a number of examples, by the law of its cluster."""

    used: UsedPart
    workers: Participants
    batch_size: int
    seed: int
    pieces: int = 1  # gradients that a batch is divided into, each of which takes as large a part of its seconds

    @functools.cached_property
    def law(self) -> Any:
        """Return its law, which draws compute times."""
        return self.used.make(num_workers=self.workers.cluster, batch_size=self.batch_size)

    def runtimes(self, steps: np.ndarray, rows: int) -> np.ndarray:
        """Return float64[rows, N], seconds: what each worker's messages take, those of its int[N] steps added up."""
        each = int(steps.max())
        batches = math.ceil(rows * each / self.pieces)
        times = parts.drawn(self.used.part, self.law, batches, self.workers.cluster, self.seed)
        times = times[:, : self.workers.number]
        if self.pieces > 1:
            times = np.repeat(times / self.pieces, self.pieces, axis=0)[: rows * each]
        return times if each == 1 else local_steps.of_messages(times, steps)

    def rows(self, gradients: int, steps: np.ndarray) -> int:
        """Return how many rows of compute times to begin with: about as many as are needed; a trace that ends, whole.

        Such a trace may be long enough, though the guess at what is needed is longer.
        """
        rows = getattr(self.law, "num_rows", None)
        if rows is None:
            return -(-2 * gradients // self.workers.number) + 2
        return max(rows * self.pieces // int(steps.max()), 1)


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """The entries `config.optimizer` that rules share, with the learning rate of the rule's kind, such as Adam's."""

    learning_rate: float
    momentum: float | None
    nesterov: bool | None
    weight_decay: float
    clip_norm: float | None


@dataclasses.dataclass(frozen=True)
class Reporting:
    """The entries on the first level of a configuration that say what is measured during a run."""

    evaluations: int
    target: float | None
    evaluation_batch: int
    train_examples: int | None
    test_examples: int | None
    average_decay: float | None
    spacing: str


@dataclasses.dataclass(frozen=True)
class Ending:
    """The entries on the first level of a configuration that say when a run ends before, or after, its epochs."""

    # its virtual time, over that of synchronous SGD for the epochs. None: it ends after its epochs
    budget: float | None
    seconds: float | None  # its virtual time. None: likewise
    until_target: bool  # it ends at the target, or once it has diverged

    @property
    def early(self) -> bool:
        """Return if the number of gradients is not known before."""
        return self.budget is not None or self.seconds is not None or self.until_target


@dataclasses.dataclass(frozen=True)
class Computing:
    """The entries on the first level of a configuration that say how a run is computed."""

    mode: str | None
    lanes: str | None
    layout: str | None
    memory: float | None
    stream: bool
    chunk: int
    readers: int

    def limit(self, free: float) -> float:
        """Return the bytes that a run may take, of those that are free."""
        return free if self.memory is None else self.memory * 2**30


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A configuration that was read once (`resolve`): nothing behind it looks at a configuration again."""

    method: Method  # one made for the purpose where a protocol or a rule is named
    rank: int  # of the method among all
    protocol: UsedPart  # whom to wait for
    rule: UsedPart  # what to do with a gradient
    predictor: UsedPart | None  # of how many to wait for; None where the protocol takes none
    cluster: RunTimes  # how long gradients take
    transport: UsedPart | None  # how long messages take; None where they are free
    failures: UsedPart | None  # who fails; None where nobody does
    network: UsedPart
    data: TrainingData  # what it is trained on
    task: UsedPart  # what it is trained for: the network's own, or another
    compression: Compression | None  # how messages are compressed; None where they are not
    epochs: float
    ending: Ending  # when it ends, where that is not after its epochs
    local: Local  # steps of a worker between two messages
    optimizer: Optimizer  # what rules share
    rate: RateSchedule  # warm-up and decay of the learning rate
    reporting: Reporting
    computing: Computing
    seeds: Seeds  # of all that is random
    source: Mapping[str, Any]  # the configuration itself, from which another process resolves the same

    @property
    def parts(self) -> dict[str, UsedPart]:
        """Return the parts that the run uses, by family; the task where it is custom, or not what the network says.

        The package's tasks count with its engine, as its graphs do: their runs stay the same.
        """
        task = self.task if self.task.part.is_foreign or self.task.name != self.network.facts.task else None
        used = (
            *(self.protocol, self.rule, self.predictor, self.cluster.used, self.transport, self.failures),
            *(self.network, self.data.used, task, None if self.compression is None else self.compression.used),
        )
        return {one.registry.family: one for one in used if one is not None}

    @property
    def num_workers(self) -> int:
        """Return N, of the workers that take part."""
        return self.cluster.workers.number

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """Return the entries that the run depends on: those of its parts, and those that belong to no part.

        What is off has none. So another part's new entry changes nothing of it.

        Example:
          >>> from configs import digits
          >>> found = resolve(digits.get_config()).identity
          >>> sorted(found["rule"]), "timeout" in found["protocol"], found["cluster"]["num_workers"], "local" in found
          (['gap_aware', 'kind'], False, 8, False)
        """
        own = {"method": self.method.name, "optimizer": self._of_optimizer(), "local": self.local.entries()}
        own |= {registry.family: self._of_family(registry) for registry in FAMILIES}
        off = {*Reach.COST.value, *self.data.off, *(name for name, entries in own.items() if not entries)}
        unset = configuration.defaults()
        off |= {name for name in _OFF_BY_DEFAULT if self.source.get(name, unset[name]) == unset[name]}
        return {name: own.get(name, value) for name, value in self.source.items() if name not in off}

    def _of_family(self, registry: Registry) -> dict[str, Any]:
        used = self.parts.get(registry.family)
        if used is None:
            return {}
        own = {name: value for name, value in self.source[registry.family].items() if name not in registry}
        return {**own, "kind": used.name, used.name: dict(used.entries)}

    def _of_optimizer(self) -> dict[str, Any]:
        """Return the entries of `optimizer` that the rule, or local steps, take."""
        wanted = {_rate_of(self.rule.part), *self.rule.part.given, "clip_norm"}
        if self.local != Local():
            wanted |= {"weight_decay", self._rate_of_workers}
        return {name: value for name, value in self.source["optimizer"].items() if name in wanted}

    @property
    def _rate_of_workers(self) -> str:
        """Return the entry of `optimizer` that is the learning rate of local steps, unless `local` has another."""
        return "adam_learning_rate" if self.local.optimizer == "adamw" else "learning_rate"

    @property
    def taken(self) -> dict[str, Any]:
        """Return `identity` without the learning rates that nothing takes, which the keys of stored runs hold.

        Example:
          >>> from configs import digits
          >>> config = digits.get_config()
          >>> config.method = "adam"
          >>> experiment = resolve(config)
          >>> [name for name in experiment.identity["optimizer"] if name not in experiment.taken["optimizer"]]
          ['learning_rate']
        """
        rates = {_rate_of(self.rule.part)} if self.local.server_learning_rate is None else set()
        own = self.source["local"].get("learning_rate"), self.method.local.get("learning_rate")
        if self.local.active and own == (None, None):
            rates.add(self._rate_of_workers)
        optimizer = self.identity["optimizer"].items()
        kept = {name: value for name, value in optimizer if name in rates or not name.endswith("learning_rate")}
        return {**self.identity, "optimizer": kept}

    @property
    def not_taken(self) -> dict[str, float | bool]:
        """Return the entries that rules share and are set, and that a custom rule does not name.

        Rules of this package have what they need, as their sources have it; nobody else's rule is known so well.
        """
        if not self.rule.part.is_foreign:
            return {}
        shared = {"momentum": self.optimizer.momentum, "nesterov": self.optimizer.nesterov}
        if not self.local.active and self.optimizer.weight_decay:  # with local steps it is the workers' matter
            shared["weight_decay"] = self.optimizer.weight_decay
        taken = self.rule.part.given
        return {name: value for name, value in shared.items() if value is not None and name not in taken}

    @property
    def outcomes(self) -> int | None:
        """Return the number of values that a target can take; None where there is no guess among them."""
        facts = self.task.facts
        return None if facts.of_guess is None else getattr(self.data.dataset, OUTCOMES[facts.targets])

    @functools.cached_property
    def steps(self) -> np.ndarray:
        """Return int[N], local steps of each worker's gradients, by the speeds that the cluster gives them."""
        workers = self.num_workers
        if not self.local.by_speed or self.local.steps == 1:
            return np.full(workers, self.local.steps)
        rows = min(local_steps.SAMPLE, getattr(self.cluster.law, "num_rows", None) or local_steps.SAMPLE)
        return local_steps.steps_by_worker(self.local, self.cluster.runtimes(np.ones(workers, int), rows))

    @property
    def mean_steps(self) -> float:
        """Return the local steps of a gradient, the mean over the workers."""
        return float(self.steps.mean() if self.local.by_speed else self.local.steps)  # of any number of workers

    @property
    def num_gradients(self) -> int:
        """Return the gradients of the run; of several local steps, as many as use the examples of its epochs.

        Where slower workers make fewer steps, a gradient counts as the mean of all workers: an estimate, of which a
        plan makes what its schedule needs.
        """
        return math.ceil(self.epochs * self.data.batches_per_epoch / self.mean_steps)

    @property
    def rate_is_constant(self) -> bool:
        """Return if the server's rate is without the warm-up and decay of `rate`: by local steps, or by the rule."""
        return self.local.rate_is_constant or self.rule.facts.own_schedule

    def predictor_of(self, times: np.ndarray) -> Any:
        """Return the predictor, for a run of these compute times, float64[T, N], seconds."""
        return self.parts["predictor"].make(runtimes=times)

    def inner_rate(self, steps_per_update: float) -> InnerRate | None:
        """Return the rate of workers with so many steps an update; None where it is constant, or they make none."""
        if not self.local.follow_rate:
            return None
        return InnerRate.of(
            self.rate,
            num_workers=self.num_workers,
            epochs=self.epochs,
            steps_per_epoch=self.data.batches_per_epoch / self.num_workers,
            steps_per_update=steps_per_update,
        )


def metric_of(config: ConfigDict) -> str:
    """Return the metric that runs of a configuration are judged by: of its task, or of its network's own.

    Example:
      >>> from configs import digits
      >>> metric_of(digits.get_config())
      'accuracy'
    """
    network = UsedPart.of(config, NETWORKS)
    return UsedPart.of(config, TASKS, network.facts.task).facts.metric


def resolve(config: ConfigDict) -> Experiment:
    """Check a configuration, and return what it says.

    Parts check their own entries where they are made.

    Raises:
      UsageError: at the first entry that cannot be; it names the flag.

    Example:
      >>> from configs import digits
      >>> config = digits.get_config()
      >>> config.protocol.kind, config.rule.kind = "bounded_staleness", "staleness_aware"
      >>> resolve(config).method.title
      'Staleness-Aware + Bounded staleness'
    """
    method, protocol, rule, rank = chosen(config)
    predictor = UsedPart.of(config, registries.PREDICTORS) if "predictor" in protocol.part.given else None
    cluster, network, data = (
        UsedPart.of(config, registry) for registry in (registries.CLUSTERS, NETWORKS, registries.DATASETS)
    )
    task = UsedPart.of(config, TASKS, network.facts.task)
    transport, failures = (
        UsedPart.of(config, registries.TRANSPORTS, "free"),
        UsedPart.of(config, registries.FAILURES, "none"),
    )
    with said_of("--config."):
        configuration.check(config, task.facts)
        local = local_of(config.local, config.optimizer, method.local, own_rate=rule.facts.rate is not None)
    with said_of("--config.rate."):
        rate = RateSchedule(**config.rate)
    seeds, shares = Seeds(config.seed), config.heterogeneity
    own = (shares.alpha, seeds.of("shares") if shares.seed is None else shares.seed)
    workers, size = Participants(config.cluster.num_workers, config.cluster.first_workers), config.batch_size
    pieces = _pieces(config, protocol)
    batches = (size // pieces, config.micro_batches, config.replacement, seeds.of("batches"))
    optimizer = {**config.optimizer, "learning_rate": config.optimizer[_rate_of(rule.part)]}
    return Experiment(
        method=method,
        rank=rank,
        protocol=protocol,
        rule=rule,
        predictor=predictor,
        cluster=RunTimes(cluster, workers, size, seeds.of("runtimes"), pieces),
        transport=None if transport.name == "free" else transport,
        failures=None if failures.name == "none" else failures,
        network=network,
        data=TrainingData(data, workers, *batches, *own, pieces, _fold(config)),
        task=task,
        compression=Compression.of(config, seeds.of("compression")),
        epochs=config.epochs,
        ending=_record(Ending, config),
        local=local,
        optimizer=_record(Optimizer, optimizer),
        rate=rate,
        reporting=_record(Reporting, config),
        computing=_record(Computing, config),
        seeds=seeds,
        source=config.to_dict(),
    )


def _pieces(config: ConfigDict, protocol: UsedPart) -> int:
    """Return into how many gradients the protocol divides a worker's batch; 1 for most.

    Raises:
      UsageError: where the batch cannot be divided so.
    """
    entry = protocol.facts.pieces
    if entry is None:
        return 1
    pieces, size = protocol.entries[entry], config.batch_size
    if isinstance(pieces, int) and pieces >= 1 and size % (pieces * config.micro_batches):
        micro = f" micro-batches of --config.micro_batches={config.micro_batches} each" * (config.micro_batches > 1)
        raise UsageError(
            f"--config.batch_size={size} must be a multiple of --config.protocol.{protocol.name}.{entry}={pieces}"
            f"{micro}: the gradients of a worker's batch"
        )
    return pieces if isinstance(pieces, int) else 1  # the protocol itself refuses another


def _fold(config: ConfigDict) -> tuple[int, int] | None:
    """Return the fold that a run is tested on, and of which division; None: the test set of its data.

    Fold 0 of division 0 is for tuning alone; the others of it take turns with the seed. Else a division is left when
    all its folds have had their turn, so that no two seeds have a test set in common.
    """
    division, turn = divmod(config.seed, FOLDS)
    rotating = 1 + config.seed % (FOLDS - 1)
    return {"own": None, "validation": (0, 0), "rotating": (rotating, 0), "drawn": (turn, division)}[config.split]


def _record(kind: Any, entries: Mapping[str, Any]) -> Any:
    """Return a record whose fields are entries of the same names."""
    return kind(**{name: entries[name] for name in kind.__dataclass_fields__})


def _rate_of(rule: Part) -> str:
    """Return the entry of `optimizer` that is the rule's learning rate."""
    return rule.facts.rate or "learning_rate"
