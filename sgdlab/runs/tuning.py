"""Tunes every method with the same trials, on data that nothing is reported on, and compares them at their best."""

import dataclasses
import json
import math
import os
import pathlib
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from sgdlab import files
from sgdlab.errors import UsageError
from sgdlab.results import ranking
from sgdlab.runs import space
from sgdlab.runs.executor import find_finished, finish
from sgdlab.runs.experiment import resolve
from sgdlab.runs.ledger import NAMES, Row, RunLedger, row_of
from sgdlab.runs.plan import make_plan
from sgdlab.runs.sweep import Noted, Session, Shard, Sweep
from sgdlab.runs.work import label

FIRST_SEED = 1000
"""Of tuning: it draws another cluster, other shares and other batches than any run that is reported."""

BEST, REPEATED = 4, 4
"""So many of the best trials are run with so many further seeds, and the best of these is chosen.

A trial ends at the target. Its further seeds go to the end: a rate that still rises is soon at the target, and may blow
up after it. Such a run counts as a miss.
"""

STAGES = ("trial", "repeat", "evaluation", "untuned")

BUDGET = 1.5
"""Times the virtual time of synchronous SGD for its epochs, in which methods are compared."""

EVALUATIONS = 800
"""Of a run at geometric spacing, by which a time to the target is known to 1 % (`benchmarks crossings`)."""

PRICE = 1.5e-4
"""Seconds of a core for a gradient of the small conv net of `configs/digits.py`, by which a cost is said beforehand."""

COARSE = 100
"""At most so many evaluations of a trial, whose time to the target decides on no more than its settings."""

TUNED = "tuned.csv"
"""The ledger of a work directory."""

_TOGETHER = 8
"""Methods whose runs are asked for at once, so that all processes are busy and rows are written every few minutes."""

CHOSEN = "tuned.json"
"""The file of a work directory with what was chosen."""

Kind = tuple[str, int]
"""A method's name and the number of workers."""

Tuned = Mapping[Kind, Mapping[str, Any]]
"""Entries of the configuration, by kind."""


class WantedRun(NamedTuple):
    """A run that is asked for: what for, and the entries of the configuration that it has."""

    kind: Kind
    stage: str
    trial: int | None
    seed: int
    settings: Mapping[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        """Return the columns of its row that are known before."""
        found = self._asdict()
        method, count = found.pop("kind")
        return {"method": method, "num_workers": count, **found}

    @property
    def name(self) -> tuple[Any, ...]:
        """Return what its row is found by in `RunLedger.named`."""
        return tuple(self.facts[column] for column in NAMES)


@dataclasses.dataclass(frozen=True)
class Choice:
    """The settings that were chosen for a method."""

    trial: int  # its number
    settings: dict[str, Any]  # entries of the configuration


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The tuning of methods on one workload: its trials, its choices, and the runs that are reported.

    Raises:
      UsageError: where the configuration has no target.
    """

    config: ConfigDict  # the workload, with a target
    methods: Sequence[str]
    num_workers: Sequence[int]  # numbers of workers
    trials: int  # of each method, at each number of workers
    seeds: int  # 0, 1, ... of the runs that are reported
    shard: Shard | None = None  # tunes its share of the methods. None: all

    def __post_init__(self) -> None:
        if self.config.target is None:
            raise UsageError("--tune must go with --config.target=VALUE, which the time to is tuned")
        if self.methods and all(count == 1 for count in self.num_workers):
            raise UsageError("--tune must go with --num_workers above 1: single workers are not tuned")

    @property
    def kinds(self) -> list[Kind]:
        """Return what is tuned, each for itself."""
        kinds = [(method, count) for count in self.num_workers if count > 1 for method in self.methods]
        return kinds if self.shard is None else kinds[(self.shard.index - 1) % self.shard.count :: self.shard.count]

    def cost(self, gradients: Mapping[Kind, int] = MappingProxyType({})) -> str:
        """Return what it will take at most, in words: no trial may reach the target. Unknown gradients are planned."""
        runs = self.trials + BEST * REPEATED + 2 * self.seeds
        each = (gradients.get(kind) or make_plan(self.settings(kind, {})).num_gradients for kind in self.kinds)
        total = runs * sum(each)
        return (
            f"{runs * len(self.kinds):,} runs of at most {total / 1e6:,.3g} million gradients in all, which at "
            f"{1e3 * PRICE:g} ms of a core for each are {total * PRICE / 3600:,.2g} core-hours, plus compiling and "
            "evaluating"
        )

    def run(self, session: Session, ledger: RunLedger, say: Callable[[str], None] = print) -> "Outcome":
        """Do what is missing, some methods after the other, and return what was chosen, and the rows of all runs.

        Runs that the ledger has are not done again; those that are done are added to it.

        Raises:
          UsageError: where a configuration is impossible.
          RunFailed: where a run raises an error.
        """
        chosen: dict[Kind, Mapping[str, Any]] = {}
        rows: list[Row] = []
        for first in range(0, len(self.kinds), _TOGETHER):
            kinds = self.kinds[first : first + _TOGETHER]
            names = ", ".join(f"{method} with {count}" for method, count in kinds)
            say(f"Tuning {first + 1} to {first + len(kinds)} of {len(self.kinds)}: {names}")
            asked = [trial for kind in kinds for trial in self._trials(kind)]
            trials = self._rows(asked, session, ledger)
            if met := sum(row["seconds_to_target"] == 0 for row in trials):
                raise UsageError(
                    f"--config.target={self.config.target:g} must be one that an untrained network misses: {met} of "
                    f"{len(trials)} trials are there before their first update"
                )
            best = {kind: _best(rows) for kind, rows in _by_kind(trials).items()}
            asked = [
                WantedRun(kind, "repeat", row["trial"], FIRST_SEED + 1 + seed, row["settings"])
                for kind, rows in best.items()
                for row in rows
                for seed in range(REPEATED)
            ]
            repeats = self._rows(asked, session, ledger)
            again = _by_kind(repeats)
            found = {kind: choose([*best[kind], *again[kind]]) for kind in kinds}
            chosen |= {kind: choice.settings for kind, choice in found.items()}
            rows += [*trials, *repeats, *self._rows(self._reported(found), session, ledger)]
        return Outcome(chosen, rows)

    def settings(self, kind: Kind, settings: Mapping[str, Any]) -> ConfigDict:
        """Return the configuration of a run that is reported."""
        return self._sweep([WantedRun(kind, "evaluation", None, 0, settings)]).runs[0].settings

    def _trials(self, kind: Kind) -> list[WantedRun]:
        method, count = kind
        config = self.config.copy_and_resolve_references()
        config.update_from_flattened_dict({"method": method, "cluster.num_workers": count})
        experiment, points = resolve(config), enumerate(space.points(self.trials))
        return [
            WantedRun(kind, "trial", number, FIRST_SEED, space.settings(experiment, point)) for number, point in points
        ]

    def _reported(self, chosen: Mapping[Kind, Choice]) -> list[WantedRun]:
        """Return the runs that are reported: tuned, and as the configuration is."""
        tuned = [
            WantedRun(kind, "evaluation", choice.trial, seed, choice.settings)
            for kind, choice in chosen.items()
            for seed in range(self.seeds)
        ]
        plain = [WantedRun(kind, "untuned", None, seed, {}) for kind in chosen for seed in range(self.seeds)]
        return [*tuned, *plain]

    def _sweep(self, asked: Iterable[WantedRun]) -> Sweep:
        base = self.config.copy_and_resolve_references()
        by_time(base)
        over = []
        for (method, count), stage, _, seed, settings in asked:
            if stage in ("evaluation", "untuned"):
                base.split = "rotating"
            else:
                base.split, base.evaluations = "validation", min(base.evaluations, COARSE)
                base.until_target = stage == "trial"
            over.append({"method": method, "cluster.num_workers": count, **settings, "seed": seed})
        return Sweep(base, over, label=label)

    def _rows(self, asked: Sequence[WantedRun], session: Session, ledger: RunLedger) -> list[Row]:
        """Return the row of each run that is asked for, in this order; runs that have none are done first."""
        rows = self._known(asked, ledger)
        if left := [one for one in asked if one.name not in rows]:
            sweep = self._sweep(left)
            named = list(zip(sweep.runs, left, strict=True))
            if missing := [(point, one) for point, one in named if point.key not in ledger.rows]:
                sweeps, found = [dataclasses.replace(sweep, over=[point.varied for point, _ in missing])], {}
                try:
                    found = finish(sweeps, session)
                except BaseException:  # the ledger goes on elsewhere, where what was done before is not at hand
                    found = find_finished(sweeps, session)
                    raise
                finally:
                    done = [(point, one) for point, one in missing if point.key in found]
                    ledger.add(row_of(point.key, found[point.key], **one.facts) for point, one in done)
            rows |= {one.name: ledger.rows[point.key] for point, one in named}
        return [rows[one.name] for one in asked]

    def _known(self, asked: Sequence[WantedRun], ledger: RunLedger) -> dict[tuple[Any, ...], Row]:
        """Return rows that are known by what they say of themselves: the keys of thousands of runs take minutes.

        The runs of a method's stage are written at once. Where each has a single row, the key of the first shows that
        they are of this configuration. All others are left to their keys.
        """
        stages: dict[Any, list[WantedRun]] = {}
        for one in asked:
            stages.setdefault((one.kind, one.stage), []).append(one)
        found: dict[tuple[Any, ...], Row] = {}
        for runs in stages.values():
            rows = {one.name: ledger.named.get(one.name, []) for one in runs}
            single = all([row["settings"] for row in rows[one.name]] == [one.settings] for one in runs)
            if single and self._sweep(runs[:1]).runs[0].key == rows[runs[0].name][0]["key"]:
                found |= {name: row for name, [row] in rows.items()}
        return found


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of tuning."""

    chosen: Tuned  # the entries of each method
    rows: Sequence[Row]  # of all runs: of trials, of the best ones' further seeds, and of those that are reported


def tune(
    tuning: Tuning,
    session: Session,
    ledger: str | os.PathLike[str] | None = None,
    gradients: Mapping[Kind, int] = MappingProxyType({}),
) -> Outcome:
    """Tune methods in a work directory, and leave what was chosen there.

    Over a shard, whole methods are tuned; for one worker none is. Runs of the `ledger`, a CSV file, by default one
    in the work directory, are not done again. `gradients` are as of `Tuning.cost`.

    Raises:
      UsageError: where a configuration is impossible.
      RunFailed: where a run raises an error.
      Unfinished: where other shards have methods left.
    """
    part, alone = dataclasses.replace(tuning, shard=session.shard), dataclasses.replace(session, shard=None)
    shard = session.shard
    own = TUNED if shard is None else f"tuned-{shard.index}-of-{shard.count}.csv"
    rows = RunLedger.read(session.path / own if ledger is None else pathlib.Path(ledger))
    print(f"Tuning by {tuning.trials} trials of each method: {part.cost(gradients)}.", flush=True)
    outcome = part.run(alone, rows)
    if session.shard is not None:  # the last to finish has all
        known = RunLedger.read(None) if ledger is None else rows
        outcome = tuning.run(dataclasses.replace(alone, noted=Noted()), known)
    write(session.path / CHOSEN, outcome.chosen, tuning)
    return outcome


def write(path: pathlib.Path, chosen: Tuned, tuning: Tuning, **about: Any) -> None:
    """Write what was chosen, for `read`, whole or not at all; `about` is said with it, as by which command."""
    by_method: dict[str, dict[str, Any]] = {}
    for (method, count), settings in chosen.items():
        by_method.setdefault(method, {})[str(count)] = dict(settings)
    about |= {"trials": tuning.trials, "target": tuning.config.target, "epochs": tuning.config.epochs}
    files.write_text(path, json.dumps({**about, "settings": by_method}, indent=1, sort_keys=True) + "\n")


def read(path: str | os.PathLike[str]) -> Tuned:
    """Read what a tuned comparison has chosen, or raise a `ValueError` where the file cannot be read as such."""
    try:
        found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["settings"]
        return {(method, int(n)): settings for method, of in found.items() for n, settings in of.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        words = {FileNotFoundError: "there is no such file", KeyError: "it has no settings"}
        why = words.get(type(error), error)
        raise ValueError(
            f"tune={os.fspath(path)} must be a number of trials, or the {CHOSEN} of a tuned comparison: {why}"
        ) from error


def by_time(config: ConfigDict, varied: Collection[str] = ()) -> None:
    """Set what compares methods at equal time, where the configuration does not say otherwise.

    A run ends after `BUDGET` times the virtual time of synchronous SGD for its epochs, unless `seconds` or `budget` are
    given, or among the entries that are `varied`; it has `EVALUATIONS` at geometric spacing, unless that is given.
    """
    if config.seconds is None and config.budget is None and not {"seconds", "budget"} & set(varied):
        config.budget = BUDGET
    if config.spacing == "even":
        config.spacing, config.evaluations = "geometric", EVALUATIONS


def choose(rows: Sequence[Row]) -> Choice:
    """Return the settings whose runs are soonest at the target: by the geometric mean of the time, over their seeds.

    A run that misses the target, or diverges after it, counts as twice the length of the longest. Where none reaches
    it, the mean test loss decides.

    Example:
      >>> row = {"diverged": False, "test_loss": 0.2, "whole_seconds": 90.0, "settings": {}}
      >>> runs = [row | {"trial": 0, "seconds_to_target": time} for time in (10.0, None)]
      >>> runs += [row | {"trial": 1, "seconds_to_target": time} for time in (30.0, 40.0)]
      >>> choose(runs).trial
      1
    """
    trials: dict[int, list[Row]] = {}
    for row in rows:
        trials.setdefault(row["trial"], []).append(row)
    # Runs of one budget end with their last updates, which settings move: all misses have one time, or it would decide.
    miss = ranking.MISS * max(row["whole_seconds"] for row in rows)
    mean = statistics.fmean
    rank = lambda rows: (mean(log_time(row, miss) for row in rows), mean(map(_loss, rows)))
    trial = min(trials, key=lambda trial: rank(trials[trial]))
    return Choice(trial, trials[trial][0]["settings"])


def log_time(row: Row, miss: float) -> float:
    """Return the logarithm of the time to the target; of a run that does not reach it, that of `miss`."""
    reached = ranking.seconds_to_target(row)
    return math.log(miss if reached is None else reached)


def _best(rows: Sequence[Row]) -> list[Row]:
    """Return the trials that are soonest at the target; of those that miss it, the lowest losses, lost runs last."""
    rank = lambda row: (row["seconds_to_target"] is None, row["seconds_to_target"] or 0.0, _loss(row))
    return sorted(rows, key=rank)[:BEST]


def _loss(row: Row) -> float:
    loss = row["test_loss"]
    return math.inf if row["diverged"] or loss is None or not math.isfinite(loss) else loss


def _by_kind(rows: Iterable[Row]) -> dict[Kind, list[Row]]:
    found: dict[Kind, list[Row]] = {}
    for row in rows:
        found.setdefault((row["method"], row["num_workers"]), []).append(row)
    return found
