"""Seeds put together: the mean and spread of each method at each number of workers, from records alone."""

import dataclasses
import json
import math
import os
import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sgdlab.results.metric import ACCURACY, Metric
from sgdlab.results.records import Records, read_records


@dataclasses.dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds (0 for a single seed)."""

    mean: float
    std: float


_LEARNED = ("test_loss", "train_loss", "gap", "penalty", "consensus", "seconds_to_target", "epochs_to_target")
"""Entries of summaries that divergence spoils, besides those of the metric; the others follow from the schedule."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group:
    """The runs of one method at one number of workers, one for each seed.

    Attributes:
      method: its name.
      title: the field's name for it.
      protocol: name of the protocol, whom to wait for.
      rule: name of the rule, what the server does with a gradient.
      families: titles of the panels in which the method is drawn; its own first.
      rank: position of the method among all methods.
      baseline: name of the method that, run by a single worker, this one is compared with.
      serial: whether this is such a single worker.
      never_waits: whether no worker ever waits.
      measures_gap: whether the rule itself measures the gap.
      num_workers: N.
      about: label -> what was run, in words.
      target: value of the metric, on the test set, of `seconds_to_target`; None where there is none.
      runs: the records of each run's metrics file.
      metric: by which the runs are judged.
    """

    method: str
    title: str
    protocol: str
    rule: str
    families: tuple[str, ...]
    rank: int
    baseline: str
    serial: bool
    never_waits: bool
    measures_gap: bool
    num_workers: int
    about: Mapping[str, str]
    target: float | None
    runs: tuple[Records, ...]
    metric: Metric = ACCURACY

    @classmethod
    def of(cls, runs: Sequence[Records]) -> "Group":
        """The group of runs that differ in their seed alone, described as the first of them describes itself.

        Raises:
          ValueError: where there is no run, or its record lacks an entry.
        """
        if not runs:
            raise ValueError("runs=[] must hold at least one run")
        record = runs[0][0]
        names = [field.name for field in dataclasses.fields(cls) if field.name not in ("runs", "metric")]
        missing = [name for name in names if name not in record]
        if missing:
            raise ValueError(f"runs: a run record has no {', '.join(missing)}; it must say what was run")
        facts = {name: record[name] for name in names} | {"families": tuple(record["families"])}
        return cls(**facts, runs=tuple(runs), metric=Metric.of(record))

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """The last record of each run."""
        return [records[-1] for records in self.runs]

    @property
    def configs(self) -> list[dict[str, Any]]:
        """All configuration entries of each run."""
        return [records[0].get("config", {}) for records in self.runs]

    @property
    def ends_at_target(self) -> bool:
        """Return if runs end at the target, so that the metric in the end says nothing more."""
        return any(config.get("until_target", False) for config in self.configs)

    @property
    def ends_by_time(self) -> bool:
        """Return if runs end after a virtual time, and not after their epochs of used gradients."""
        return any(config.get(name) is not None for config in self.configs for name in ("budget", "seconds"))

    @property
    def num_diverged(self) -> int:
        """Seeds whose runs were lost, as their summaries say."""
        return sum(summary["diverged"] for summary in self.summaries)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs, in order; runs of several groups with the same seed are pairs."""
        return tuple(records[0].get("seed", 0) for records in self.runs)

    @property
    def test(self) -> Any:  # Spread | None
        """Mean and deviation of the metric on the test set; None where some seed has none, or diverged."""
        return self.spread(self.metric.test)

    @property
    def level(self) -> float:
        """The mean of the metric on the test set as it is drawn and shown, where all seeds have one."""
        return self.metric.scale * self.test.mean

    @property
    def speedup(self) -> float:
        """The mean speed-up, where all seeds have one."""
        return self.spread("speedup").mean

    def label(self, longest: int = 34) -> str:
        """Return the title for a picture, cut where it has more letters; the table has all of it."""
        return self.title if len(self.title) <= longest else f"{self.title[: longest - 1].rstrip()}…"

    def columns(self, names: Iterable[str]) -> dict[str, float | None]:
        """Return means and deviations of entries as columns of a CSV file, None where some seed has none.

        What is learned has a median besides, which it has where runs diverged and there is no mean.
        """
        found: dict[str, float | None] = {}
        for name in names:
            at = self.spread(name)
            found |= {f"{name}_{kind}": at and getattr(at, kind) for kind in ("mean", "std")}
            if self._is_learned(name):
                found[f"{name}_median"] = self.median(name)
        return found

    def spread(self, name: str) -> Any:  # Spread | None
        """Mean and deviation of an entry of the summaries; None where some seed has none.

        What is learned has no mean where some run diverged, whose values are of another kind: see `median`.
        """
        if self.num_diverged and self._is_learned(name):
            return None
        return spread(summary.get(name) for summary in self.summaries)

    def median(self, name: str) -> float | None:
        """Median of an entry over all runs, those that diverged included; None where it is no finite number.

        A run without a number of it counts as the worst.
        """
        worst = -math.inf if self.metric.sign > 0 and name.endswith(self.metric.name) else math.inf
        found = statistics.median(worst if (value := s.get(name)) is None else value for s in self.summaries)
        return found if math.isfinite(found) else None

    def _is_learned(self, name: str) -> bool:
        return name in _LEARNED or name.endswith(f"_{self.metric.name}")

    def num_with(self, name: str) -> int:
        """Seeds that have the entry."""
        return sum(summary[name] is not None for summary in self.summaries)

    def curve(self, x: str, y: str) -> tuple[list[float], list[float]]:
        """Means over seeds of two entries, one point an evaluation, less the evaluations without them.

        Where some run diverged, they are medians, in which a run without a number counts as infinite.
        """
        points: tuple[list[float], list[float]] = ([], [])
        middle = _median if self.num_diverged else lambda values: (found := spread(values)) and found.mean
        for evaluations in zip(*(records[1:-1] for records in self.runs), strict=False):
            here = [middle([evaluation[name] for evaluation in evaluations]) for name in (x, y)]
            if None not in here:
                for values, value in zip(points, here, strict=True):
                    values.append(value)
        return points


def read(directory: str | os.PathLike[str]) -> list[Records]:
    """Return the records of every finished run of a directory, by name of the run.

    Args:
      directory: with `metrics/*.jsonl`, as commands leave it, or `runs/*.jsonl`, as a `Session` does.

    Raises:
      ValueError: where it has no such folder.
    """
    folders = [pathlib.Path(directory) / name for name in ("metrics", "runs")]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None:
        raise ValueError(f"directory={os.fspath(directory)!r} must be a directory of runs, with metrics/*.jsonl")
    found = (read_records(file) for file in sorted(folder.glob("*.jsonl")))
    return [records for records in found if records is not None]


def groups(runs: Iterable[Records]) -> list[Group]:
    """Puts the seeds of each method and number of workers together.

    Runs belong together where they are of the same method and all entries of their configurations but the seed agree.

    Returns:
      Single workers first, then by number of workers, then by the methods' order.

    Raises:
      ValueError: where a run does not say what it was, or the same seed of the same runs is there twice.

    Example:
      >>> run = {"method": "dana", "title": "DANA", "protocol": "asynchronous", "rule": "dana", "families": ["DANA"],
      ...        "rank": 3, "baseline": "nag_asgd", "serial": False, "never_waits": True, "measures_gap": False,
      ...        "num_workers": 8, "about": {}, "target": 0.9, "config": {}}
      >>> end = {"diverged": False}
      >>> runs = [[run | {"seed": seed}, end | {"test_accuracy": 0.8 + 0.1 * seed}] for seed in range(2)]
      >>> [group] = groups(runs)
      >>> group.title, round(group.spread("test_accuracy").mean, 3)
      ('DANA', 0.85)
    """
    together: dict[tuple[Any, ...], list[Records]] = {}
    for records in runs:
        record = records[0]
        entries = {name: value for name, value in record.get("config", {}).items() if name != "seed"}
        identity = [record.get(name) for name in ("method", "title", "protocol", "rule", "num_workers", "serial")]
        together.setdefault((*identity, json.dumps(entries, sort_keys=True)), []).append(records)
    found = []
    for seeds in together.values():
        seeds.sort(key=lambda records: records[0].get("seed", 0))
        group = Group.of(seeds)
        given = [records[0].get("seed") for records in seeds]
        if len(set(given)) < len(given):
            raise ValueError(
                f"runs: {group.title} at {group.num_workers} workers must have each seed once, not {given}"
            )
        found.append(group)
    return sorted(found, key=lambda group: (not group.serial, group.num_workers, group.rank))


def compared(groups: Iterable[Group]) -> list[Group]:
    """The groups that are not single workers to compare with; a `ValueError` where there are none."""
    found = [group for group in groups if not group.serial]
    if not found:
        raise ValueError("groups must hold a method besides the single workers that methods are compared with")
    return found


def metric_of(groups: Iterable[Group]) -> Metric:
    """The metric by which all groups are judged.

    Raises:
      ValueError: where there is no group, or where two are judged by different metrics.
    """
    found = list(dict.fromkeys(group.metric for group in groups))
    if len(found) != 1:
        names = [metric.name for metric in found]
        raise ValueError(f"groups: they are judged by metrics={names}; they must be judged by one and the same")
    return found[0]


def largest(groups: Iterable[Group]) -> list[Group]:
    """The compared groups at the largest number of workers; raises as `compared` does."""
    ours = compared(groups)
    most = max(group.num_workers for group in ours)
    return [group for group in ours if group.num_workers == most]


def single_workers(groups: Iterable[Group]) -> dict[str, Group]:
    """The single workers that some method is compared with and that did not diverge.

    Returns:
      By the name of what the single worker ran, the methods' `baseline`.
    """
    found = list(groups)
    wanted = {group.baseline for group in found if not group.serial}
    return {g.method: g for g in found if g.serial and g.method in wanted and not g.num_diverged}


def _median(values: Sequence[Any]) -> Any:  # float | None
    found = statistics.median(math.inf if value is None else value for value in values)
    return found if math.isfinite(found) else None


def spread(values: Iterable[Any]) -> Any:  # Spread | None
    """Mean and sample standard deviation; None where a value is missing or not finite.

    Example:
      >>> spread([1.0, 3.0])
      Spread(mean=2.0, std=1.4142135623730951)
    """
    numbers = list(values)
    if not numbers or any(number is None or not math.isfinite(number) for number in numbers):
        return None
    return Spread(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else 0.0)
