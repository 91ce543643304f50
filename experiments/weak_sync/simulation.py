"""What the commands share: the paper's four settings, its cluster as a model, and simulated runs that are kept."""

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from absl import flags

from experiments.weak_sync import kept
from sgdlab.cluster import MessageDelays
from sgdlab.errors import UsageError
from sgdlab.jobs import provenance
from sgdlab.protocols import blocks_behind, partial
from sgdlab.results.directory import RunDirectory
from sgdlab.results.summary import Spread, spread
from sgdlab.schedule import Schedule

DEFAULT_WORKDIR = "runs/weak_sync"


@dataclasses.dataclass(frozen=True)
class Setting:
    """Whom the servers and the workers wait for, and what the paper measured with injected delays (Table 1).

    Attributes:
      push_at_least: c, the gradients that a server waits for, of 32.
      pull_at_least: b, the share of the servers that a worker waits for.
      paper_minutes: running time.
      paper_error: top-1 validation error, of ResNet-50 on CIFAR-10.
    """

    push_at_least: int
    pull_at_least: float
    paper_minutes: float
    paper_error: float

    @property
    def name(self) -> str:
        """For files."""
        return f"c{self.push_at_least}-b{100 * self.pull_at_least:g}"

    def __str__(self) -> str:
        return f"c = {self.push_at_least}, b = {100 * self.pull_at_least:g} %"


SETTINGS = (
    Setting(32, 1.0, 199.97, 0.1479),
    Setting(28, 1.0, 164.97, 0.1609),
    Setting(28, 0.9, 139.95, 0.1565),
    Setting(20, 0.75, 136.54, 0.2914),
)


@dataclasses.dataclass(frozen=True)
class Case:
    """One run on the cluster.

    Attributes:
      setting: whom to wait for.
      late: 0.16 % of the servers' responses come 4 s later.
      seed: of run-times and delays.
      num_servers: blocks of the parameters; so many responses each worker gets in an iteration.
      keep_newer: workers take late blocks too, unlike line 10 of Algorithm 1.
    """

    setting: Setting
    late: bool
    seed: int
    num_servers: int = 32
    keep_newer: bool = False

    @property
    def name(self) -> str:
        """The name of its file."""
        marks = f"-s{self.num_servers}{'-late' * self.late}{'-newer' * self.keep_newer}"
        return f"{self.setting.name}{marks}-seed{self.seed}"


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The paper's cluster as a model: gamma run-times, a small gamma delay of every response, now and then a large one.

    The paper gives the delays that it injects, and neither the run-times nor the other delays. The mean run-time is
    taken from its two settings that hardly ever wait for a late response: 139.95 and 136.54 minutes for 900 iterations
    are 9.3 and 9.1 s each, message delays and the wait for the 28th or the 20th of 32 workers among them; so 9.0 s. Of
    the coefficient of variation they say little: the distance from the 28th to the 20th worker, 2.5 % of the time,
    would be 3.5 %, the reductions that a simulation was expected to give fit 2 % best. From 2 to 3.5 % no reduction
    moves by more than 0.7 points (two seeds); 2.5 % is within 1 % of both running times. The base delay is
    `MessageDelays`' own.

    Attributes:
      num_workers: N.
      iterations: updates; the paper's 90 epochs of 50,000 images in minibatches of 5120 are about 900.
      mean_seconds: of a gradient.
      variation: coefficient of variation of a gradient's seconds.
      base_seconds: mean delay of a response; its gamma distribution has shape 2.
      late_share: of the responses, where delays are injected.
      late_seconds: how much later they come.
    """

    num_workers: int = 32
    iterations: int = 900
    mean_seconds: float = 9.0
    variation: float = 0.025
    base_seconds: float = 0.05
    late_share: float = 0.0016
    late_seconds: float = 4.0

    def runtimes(self, seed: int) -> np.ndarray:
        """float64[T, N], seconds."""
        shape = 1 / self.variation**2
        return np.random.default_rng(seed).gamma(shape, self.mean_seconds / shape, (self.iterations, self.num_workers))

    def delays(self, late: bool) -> MessageDelays:
        """Of the servers' responses."""
        return MessageDelays(
            base_seconds=self.base_seconds,
            late_share=self.late_share if late else 0.0,
            late_seconds=self.late_seconds,
        )

    def schedule(self, case: Case) -> Schedule:
        """The run, message by message; without time-outs, as in the paper."""
        return partial(
            self.runtimes(case.seed),
            num_servers=case.num_servers,
            push_at_least=case.setting.push_at_least,
            pull_at_least=case.setting.pull_at_least,
            pull_delays=self.delays(case.late),
            keep_newer=case.keep_newer,
            seed=case.seed,
        )

    def share_with_late(self, num_servers: int) -> float:
        """The share of iterations in which at least one response is late."""
        return 1 - (1 - self.late_share) ** (self.num_workers * num_servers)


def define_flags() -> None:
    """Defines the flags that the commands of this folder share."""
    flags.DEFINE_integer("seeds", 3, "How many seeds: 0, 1, ... The paper's figures are means of 3 runs.")
    flags.DEFINE_integer("processes", None, "Runs at once. By default one for each core.")
    flags.DEFINE_float("mean_seconds", 9.0, "Seconds that a worker computes for a gradient, on average.")
    flags.DEFINE_float("variation", 0.025, "Their coefficient of variation.")


def cluster_of_flags() -> Cluster:
    """The cluster that the flags describe.

    Raises:
      UsageError: where a flag is impossible.
    """
    given = flags.FLAGS
    for name in ("seeds", "processes"):
        if given[name].value is not None and given[name].value < 1:
            raise UsageError(f"--{name}={given[name].value} must be a whole number of at least 1")
    for name in ("mean_seconds", "variation"):
        positive(name, given[name].value)
    if given.variation > 1:
        raise UsageError(f"--variation={given.variation:g} must be at most 1")
    return Cluster(mean_seconds=given.mean_seconds, variation=given.variation)


def positive(flag: str, value: float) -> None:
    """Raises `UsageError` where a flag is not a finite number above 0."""
    if not (np.isfinite(value) and value > 0):
        raise UsageError(f"--{flag}={value:g} must be a finite number above 0")


def simulate(
    cluster: Cluster, cases: Iterable[Case], path: pathlib.Path, *, processes: int | None = None
) -> dict[Case, dict[str, Any]]:
    """The summary of each case's run; those that `path` does not hold yet are run.

    Args:
      cluster: the model.
      cases: what to run on it.
      path: the directory of all results; each model's runs have one of their own in it.
      processes: how many at once; None: one for each core.

    Returns:
      For each case `seconds`, until the last update; `behind`, the counts of `blocks_behind`; `updates`, those of the
      block that ended with fewest.
    """
    cases = tuple(cases)
    name = f"cluster-{cluster.mean_seconds:g}s-{cluster.variation:g}"
    directory = RunDirectory(path / name, dataclasses.asdict(cluster), made=provenance.made_with())
    jobs = {case.name: (cluster, case) for case in cases}
    found = kept.run_missing(jobs, _simulated, directory, processes=processes, what="simulations of the cluster")
    return {case: found[case.name][-1] for case in cases}


def _simulated(job: tuple[Cluster, Case]) -> list[dict[str, Any]]:
    cluster, case = job
    schedule = cluster.schedule(case)
    return [
        {
            "kind": "summary",
            "seconds": float(np.nanmax(schedule.applied)),
            "updates": int(np.isfinite(schedule.applied).sum(axis=0).min()),
            "behind": blocks_behind(schedule).tolist(),
        }
    ]


def minutes(runs: dict[Case, dict[str, Any]], cases: Sequence[Case]) -> Spread:
    """Mean and deviation of the running time over the seeds."""
    found = spread(runs[case]["seconds"] / 60 for case in cases)
    if found is None:
        raise ValueError("cases must not be empty")
    return found
