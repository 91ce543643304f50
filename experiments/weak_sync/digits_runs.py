"""Trains on digits with the schedules of the simulated cluster: the configurations, the plans and the runs."""

import dataclasses
import math
import pathlib
from collections.abc import Iterable
from typing import Any

import jax
from absl import flags
from ml_collections import ConfigDict

from configs import digits
from experiments.weak_sync import kept, simulation
from experiments.weak_sync.simulation import Case, Cluster
from sgdlab import protocols, replay
from sgdlab.jobs import plan, provenance, train
from sgdlab.results.directory import RunDirectory
from sgdlab.results.summary import Group

BATCH_SIZE = 4
"""Examples of a gradient: 900 iterations of 32 x 4 examples are 80 epochs of 1437 digits; the paper has 90."""


def define_flags() -> None:
    """Defines the flags of the commands that train."""
    simulation.define_flags()
    flags.DEFINE_float(
        "learning_rate", 0.1, "Learning rate of an update of 32 gradients; an update of d gradients has d / 32 of it."
    )


def configuration(cluster: Cluster, case: Case, learning_rate: float) -> ConfigDict:
    """The configuration of a run: digits, a small perceptron, and the paper's optimiser.

    All settings have the same number of iterations, so with c of 32 gradients in each they use c / 32 of the examples.
    Epochs count used gradients: a smaller c has fewer epochs, and the learning rate, which falls after each third of
    the run as in the paper, falls after fewer epochs.
    """
    config, setting = digits.get_config(), case.setting
    config.method, config.seed, config.batch_size = "partial", case.seed, BATCH_SIZE
    config.network.kind, config.network.mlp.widths = "mlp", (64,)
    config.cluster.num_workers, config.cluster.gamma.heterogeneous = cluster.num_workers, False
    protocol = config.protocol.partial
    protocol.pull_delays = ConfigDict(dataclasses.asdict(cluster.delays(case.late)))
    protocol.num_servers = case.num_servers
    protocol.push_at_least, protocol.pull_at_least = float(setting.push_at_least), setting.pull_at_least
    protocol.push_timeout, protocol.pull_timeout, protocol.keep_newer = 0.0, 0.0, case.keep_newer
    config.optimizer.learning_rate = learning_rate / cluster.num_workers
    config.optimizer.momentum, config.optimizer.nesterov, config.optimizer.weight_decay = 0.9, False, 0.0001
    config.evaluations = 90
    rate, per_epoch = config.rate, plan.batches_per_epoch(config, plan.dataset_of(config))
    config.epochs = cluster.iterations * setting.push_at_least / per_epoch
    rate.warmup_epochs, rate.decay = 0.0, "step"
    rate.steps, rate.factor = (config.epochs / 3, 2 * config.epochs / 3), 0.1
    return config


def make_plan(cluster: Cluster, case: Case, learning_rate: float) -> plan.Plan:
    """The plan of a run with the schedule of the simulated cluster."""
    schedule, synchronous = cluster.schedule(case), protocols.synchronous(cluster.runtimes(case.seed))
    made = plan.make_plan(configuration(cluster, case, learning_rate), schedule=schedule)
    return dataclasses.replace(made, speedup=schedule.gradients_per_second() / synchronous.gradients_per_second())


def most_blocks(cluster: Cluster, case: Case, most: int = 32) -> int:
    """The largest number of servers, up to `most`, among which the network's parameters can be split."""
    config = configuration(cluster, case, 1.0)
    params = train.classifier(config, plan.dataset_of(config)).params
    for blocks in range(most, 1, -1):
        try:
            replay.partition(params, blocks)
        except ValueError:
            continue
        return blocks
    return 1


def train_all(
    cluster: Cluster, cases: Iterable[Case], path: pathlib.Path, *, learning_rate: float, processes: int | None = None
) -> dict[Case, Group]:
    """Trains the cases that have no finished run in `path` yet.

    Args:
      cluster: model of the cluster.
      cases: the runs.
      path: directory of all results; it has a subdirectory for each cluster model and learning rate.
      learning_rate: learning rate of an update of all workers' gradients.
      processes: number of processes; None: one for each core, or a single one on a GPU.

    Returns:
      The runs of all seeds, for each case with seed 0.
    """
    cases = tuple(cases)
    name = f"digits-{cluster.mean_seconds:g}s-{cluster.variation:g}-rate{learning_rate:g}"
    directory = RunDirectory(
        path / name, {**dataclasses.asdict(cluster), "learning_rate": learning_rate}, made=provenance.made_with()
    )
    if processes is None and jax.default_backend() != "cpu":
        processes = 1
    jobs = {case.name: (cluster, case, learning_rate) for case in cases}
    records = kept.run_missing(jobs, _trained, directory, processes=processes, what="trainings on digits")
    runs: dict[Case, list[list[dict[str, Any]]]] = {}
    for case in cases:
        runs.setdefault(dataclasses.replace(case, seed=0), []).append(records[case.name])
    return {case: dataclasses.replace(Group.of(seeds), title=str(case.setting)) for case, seeds in runs.items()}


def _trained(job: tuple[Cluster, Case, float]) -> list[dict[str, Any]]:
    return train.train(make_plan(*job)).records


def rate_of_flags() -> float:
    """The value of --learning_rate.

    Raises:
      UsageError: if it is not a finite number above 0.
    """
    simulation.positive("learning_rate", flags.FLAGS.learning_rate)
    return flags.FLAGS.learning_rate


def final_error(group: Group) -> tuple[float, float]:
    """Mean and standard deviation over seeds of the final test error; of a run that diverged, its last one."""
    accuracy = group.spread("test_accuracy")
    if accuracy is None:
        return math.nan, math.nan
    return 1 - accuracy.mean, accuracy.std
