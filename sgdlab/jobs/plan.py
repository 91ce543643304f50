"""From a configuration to what a run needs before its first gradient: a schedule and learning rates."""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
import optax
from ml_collections import ConfigDict

from sgdlab import replay, rules, runtimes
from sgdlab.data import Dataset, Text, streams_of
from sgdlab.errors import UsageError, said_of
from sgdlab.jobs import configuration, memory
from sgdlab.jobs.methods import Choice, chosen
from sgdlab.jobs.rates import rates
from sgdlab.jobs.seeds import seed_of
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.registry import CLUSTERS, DATASETS, NETWORKS, PREDICTORS, PROTOCOLS, RULES
from sgdlab.replay.blocks import check_num_blocks
from sgdlab.schedule import Schedule
from sgdlab.tasks.kinds import Kind, kind_of

AnySchedule = Schedule | PeerSchedule
AnyDataset = Dataset | Text


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that a run needs before its first gradient; made on the host, in milliseconds.

    Attributes:
      config: the configuration.
      choice: its method, protocol and rule.
      dataset: what it trains and tests on.
      law: its cluster.
      schedule: who computes what, and when.
      rates: float64[U], the learning rate of each update; of each gradient, where there is no server.
      num_gradients: gradients to use.
      speedup: used gradients per second, over those of synchronous SGD on the same cluster.
      tickets: int[G], of a schedule that was recorded: which batch each of its gradients was computed on. None: the
        k-th gradient that is used has batch k.
    """

    config: ConfigDict
    choice: Choice
    dataset: AnyDataset
    law: Any
    schedule: AnySchedule
    rates: np.ndarray
    num_gradients: int
    speedup: float
    tickets: np.ndarray | None = None

    @functools.cached_property
    def program(self) -> replay.Program:
        """The lowered schedule, with a pause for every evaluation."""
        every = math.ceil(self.num_gradients / self.config.evaluations)
        return replay.lower(self.schedule, every=every, by_worker=self.kind.remembers)

    @property
    def kind(self) -> Kind:
        """Classification, density estimation or language modelling: what the network is for."""
        return kind_of(NETWORKS[self.config.network.kind])

    @property
    def outcomes(self) -> int:
        """Number of values that a target can take."""
        return getattr(self.dataset, {"density": "levels", "language": "vocabulary"}.get(self.kind.name, "num_classes"))

    @property
    def batches_per_epoch(self) -> int:
        """Gradients that use one epoch of data."""
        return batches_per_epoch(self.config, self.dataset)

    def rule(self, learning_rate: np.ndarray | float, num_workers: int) -> rules.ServerRule:
        """The rule with the configuration's hyperparameters.

        Args:
          learning_rate: float64[U], of each update; or one for all.
          num_workers: how many to keep state for, where it is kept per worker.

        Raises:
          UsageError: where a hyperparameter cannot be, or the rule cannot be used with the schedule.
        """
        optimizer, table = self.config.optimizer, np.atleast_1d(np.asarray(learning_rate, float))
        given = {
            "learning_rate": rules.tabulated(table),
            "max_learning_rate": float(table.max()),
            "num_workers": num_workers,
            "weight_decay": optimizer.weight_decay,
            "momentum": optimizer.momentum,
            "nesterov": optimizer.nesterov,
        }
        # What the configuration leaves open is as the rule has it: momentum 0.9, or none.
        given = {name: value for name, value in given.items() if value is not None}
        made = RULES.make(self.choice.rule.name, self.config.rule[self.choice.rule.name], **given)
        return rules.server_rule(made) if isinstance(made, optax.GradientTransformation) else made


def make_plan(config: ConfigDict, *, schedule: AnySchedule | None = None) -> Plan:
    """Checks a configuration and makes its schedule and learning rates.

    Args:
      config: such as `configs/digits.py` makes.
      schedule: one that is given, instead of the protocol's own on the configuration's cluster.

    Raises:
      UsageError: where an entry is impossible, or the run would not fit the memory; it names the flag.

    Example:
      >>> from configs import digits
      >>> config = digits.get_config()
      >>> config.epochs, config.method = 1.0, "synchronous"
      >>> print(make_plan(config).schedule)  # doctest: +ELLIPSIS
      Schedule: 8 workers, ... updates from ... gradients (0 dropped, 0 pending) in ... s, mean staleness 0
    """
    configuration.check(config)
    choice, dataset, law = chosen(config), dataset_of(config), law_of(config)
    network_arguments(config, dataset)
    if isinstance(dataset, Text):
        _check_text(config, dataset)
    per_epoch = batches_per_epoch(config, dataset)
    gradients = num_gradients(config, dataset)
    memory.check_schedule(config, gradients, num_blocks=_num_blocks(choice))
    speedup = 1.0
    if schedule is None:
        schedule = _schedule(config, law, choice.protocol.name, choice.entries, gradients)
        twin = _schedule(config, law, "synchronous", {}, gradients)
        speedup = schedule.gradients_per_second() / twin.gradients_per_second()
    per_update = schedule.gradients_per_update()
    table = rates(
        config.rate,
        peak=_peak(config, choice, per_update),
        num_workers=num_workers(config),
        epochs=config.epochs,
        updates_per_epoch=per_epoch / per_update,
    )
    plan = Plan(config, choice, dataset, law, schedule, table, gradients, speedup)
    rule = plan.rule(table, schedule.num_workers)
    with said_of(f"--config.rule.kind={choice.rule.name} with protocol {choice.protocol.name}: "):
        replay.check_rule(schedule, rule)
    return plan


def network_arguments(config: ConfigDict, dataset: AnyDataset) -> dict[str, Any]:
    """What a network is given of the data.

    Raises:
      UsageError: where the network is one for data of another kind.
    """
    kind = config.network.kind
    part = NETWORKS.check(kind)
    if isinstance(dataset, Text):
        given = {"vocabulary": dataset.vocabulary}
    else:
        given = {"image_shape": dataset.image_shape, "num_classes": dataset.num_classes}
        if "levels" in part.given:
            with said_of(f"--config.data.kind={config.data.kind}: "):
                given["levels"] = dataset.levels
    missing = sorted(part.given - given.keys() - {"rngs"})
    if missing:
        raise UsageError(
            f"--config.network.kind={kind} is a network for {kind_of(part).name} and needs {' and '.join(missing)}, "
            f"which --config.data.kind={config.data.kind} does not have"
        )
    return given


def _check_text(config: ConfigDict, text: Text) -> None:
    """Every worker reads streams of its own, which must be there."""
    with said_of("--config."):
        streams_of(text.train, num_workers=num_workers(config), batch_size=config.batch_size)
    if config.stream:
        raise UsageError(f"--config.stream=True has no effect: {config.data.kind} is a text, which is on the device")


def batches_per_epoch(config: ConfigDict, dataset: AnyDataset) -> int:
    """Gradients that use one epoch of data.

    Raises:
      UsageError: where a batch is larger than the data.
    """
    if config.batch_size > len(dataset.train):
        raise UsageError(
            f"--config.batch_size={config.batch_size} must be at most {len(dataset.train)}, the training examples of "
            f"{config.data.kind}"
        )
    return len(dataset.train) // config.batch_size


def num_gradients(config: ConfigDict, dataset: AnyDataset) -> int:
    """Gradients that a run uses."""
    return math.ceil(config.epochs * batches_per_epoch(config, dataset))


def dataset_of(config: ConfigDict) -> AnyDataset:
    """What a configuration trains and tests on."""
    return DATASETS.make(config.data.kind, config.data[config.data.kind])


def law_of(config: ConfigDict) -> Any:
    """The configuration's cluster."""
    kind = config.cluster.kind
    return CLUSTERS.make(
        kind, config.cluster[kind], num_workers=config.cluster.num_workers, batch_size=config.batch_size
    )


def num_workers(config: ConfigDict) -> int:
    """N, of the workers that take part."""
    return config.cluster.first_workers or config.cluster.num_workers


def _num_blocks(choice: Choice) -> int:
    """Parameter blocks of the protocol's schedules, which a compiled replay must bear."""
    name = choice.protocol.facts.get("blocks")
    if name is None:
        return 1
    with said_of(f"--config.protocol.{choice.protocol.name}."):
        return check_num_blocks(choice.entries[name], name)


def _peak(config: ConfigDict, choice: Choice, per_update: float) -> float:
    """The rate after warm-up; a rule that multiplies by the number of gradients itself takes that of one."""
    rate = config.optimizer[choice.rule.facts.get("rate", "learning_rate")]
    scales = choice.rule.facts.get("scales_by_num_gradients", False)
    if config.rate.of == "gradient":
        return rate if scales else rate * per_update
    return rate / per_update if scales else rate


def _schedule(config: ConfigDict, law: Any, protocol: str, entries: Any, gradients: int) -> AnySchedule:
    """The protocol on as few run-times as it needs."""
    given = {
        "num_gradients": gradients,
        "gradients_per_epoch": gradients / config.epochs,
        "seed": seed_of(config, "protocol"),
        "predictor": functools.partial(predictor_of, config),
    }
    seed, guess = seed_of(config, "runtimes"), -(-2 * gradients // num_workers(config)) + 2
    # A trace that ends is taken whole at first: it may be long enough, though the guess at what is needed is longer.
    rows = getattr(law, "num_rows", None) or guess

    def draw(rows: int) -> np.ndarray:
        with said_of(f"--config.cluster.{config.cluster.kind}."):
            return law.draw(rows, seed=seed)[:, : num_workers(config)]

    return runtimes.with_enough_rows(
        lambda times: PROTOCOLS.make(protocol, entries, runtimes=times, **given), draw, rows=rows
    )


def predictor_of(config: ConfigDict, times: np.ndarray) -> Any:
    """The configuration's predictor, for a run of these run-times, float64[T, N] seconds."""
    kind = config.predictor.kind
    return PREDICTORS.make(kind, config.predictor[kind], runtimes=times)
