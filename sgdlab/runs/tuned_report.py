"""A tuned comparison as tables and pictures, from the rows of its runs alone."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sgdlab import files
from sgdlab.report.table import Table
from sgdlab.report.words import listed
from sgdlab.results import facts, panels, plots, ranking, simultaneous, standing, tuned
from sgdlab.results.metric import Metric
from sgdlab.results.summary import Group
from sgdlab.results.table import diverged
from sgdlab.runs import records
from sgdlab.runs.experiment import Experiment, resolve
from sgdlab.runs.ledger import Row
from sgdlab.runs.tuning import CHOSEN, Kind, Outcome, Tuning

FOLDER = "tuned"
"""Of a work directory."""


@dataclasses.dataclass(frozen=True)
class TunedView:
    """Holds the findings of tuning at one number of workers."""

    best: list[Group]  # the methods at their best, on the runs that are reported
    untuned: list[Group]  # the methods with the settings of the configuration
    outcome: Outcome  # with the trials, and what was chosen

    @classmethod
    def of(cls, tuning: Tuning, outcome: Outcome, count: int) -> "TunedView":
        """Return what was found with a number of workers."""
        names = [method for method, of in outcome.chosen if of == count]
        experiments = {name: resolve(tuning.settings((name, count), outcome.chosen[name, count])) for name in names}
        best, untuned = (_groups(experiments, outcome, count, stage) for stage in ("evaluation", "untuned"))
        return cls(best, untuned, outcome)

    @functools.cached_property
    def trials(self) -> dict[str, np.ndarray]:
        """Return method -> float64[trials], seconds to the target of each; infinite for a miss."""
        found: dict[str, list[Row]] = {group.method: [] for group in self.best}
        for row in self._of("trial"):
            found[row["method"]].append(row)
        return {name: np.array(ranking.times(rows)) for name, rows in found.items()}

    @functools.cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Return what is said of each method, as numbers and words, the soonest at the target first.

        `seconds` and `untuned` are medians of the time to the target, infinite for misses, each with the ends of its
        interval, `_low` and `_high`; `ratio` with its ends is of the paired times to the fastest method's, or None
        where nothing is decided; `first` is 1 where it is statistically indistinguishable from that; the metric by its
        name is a median.
        """
        plain, ranked = {group.method: group for group in self.untuned}, ranking.by_time(self.best)
        found = []
        for group in sorted(self.best, key=lambda group: group.rank):
            times, metric, trials = ranking.times(group.summaries), group.metric, self.trials[group.method]
            found.append({
                "method": group.method,
                **_median("seconds", times),
                **_median("untuned", ranking.times(plain[group.method].summaries)),
                "ratio": ranked.ratio(group) if ranked is not None and ranked.decides else None,
                "first": int(ranked is not None and ranked.is_first(group)),
                metric.name: float(np.median([summary[metric.test] for summary in group.summaries])),
                "diverged": group.num_diverged,
                "seeds": len(group.runs),
                "trials_that_reach": int(np.isfinite(trials).sum()),
                "trials": trials.size,
                "settings": words(self.outcome.chosen[group.method, group.num_workers]),
            })  # fmt: skip
        return sorted(found, key=lambda row: row["seconds"])

    @property
    def table(self) -> Table:
        """Return the methods at their best, beside the configuration as it is."""
        metric, target = self.best[0].metric, self.best[0].target
        groups = {group.method: group for group in self.best}
        rows = [
            [
                groups[row["method"]].title,
                _with_interval(row, "seconds"),
                "-" if row["ratio"] is None else "{:.2f} ({:.2f}-{:.2f})".format(*row["ratio"]) + "*" * row["first"],
                metric.number(row[metric.name]),
                diverged(groups[row["method"]]),
                _with_interval(row, "untuned"),
                f"{row['trials_that_reach']} of {row['trials']}",
                row["settings"],
            ]
            for row in self.rows
        ]
        goal = metric.reach(target) if target is not None else "the target"
        columns = {
            "method": "",
            "seconds": f"median virtual seconds to {goal}, and the 95 % interval of the median",
            "x fastest": "mean ratio to the time of the fastest method with the same seed; a miss counts as twice "
            f"the longest run; in brackets {100 * simultaneous.LEVEL:.0f} % intervals of all methods at once; *: "
            "statistically indistinguishable from the fastest",
            f"test {metric.short}": "median at the end of the run",
            "diverged": "runs, and the 95 % interval of their share (Clopper and Pearson)",
            "untuned": "the same seconds with the configuration as it is",
            "trials": "that reach the target, of those that are tuned by",
            "tuned": "what was chosen",
        }
        notes = [
            f"{self.best[0].num_workers} workers; {facts.seeds(self.best)}, each with its own cluster and one of "
            "four folds to test on; the same without tuning. All runs with one seed end at one instant, "
            f"{self.best[0].about.get('length', '')}.",
            *self._undecided(goal),
        ]
        return Table(columns, rows, notes)

    def _undecided(self, goal: str) -> list[str]:
        """Return a sentence on the methods of which the target has chosen nothing; none where there are none."""
        rows = [*self._of("trial"), *self._of("repeat")]
        reached = {row["method"] for row in rows if ranking.seconds_to_target(row) is not None}
        if not (missed := [group.title for group in self.best if group.method not in reached]):
            return []
        nearer = "lower" if self.best[0].metric.higher_is_better else "higher"
        return [
            f"No trial of {listed(missed)} reached {goal}: the test loss decided; more trials, or a {nearer} "
            "--config.target."
        ]

    @functools.cached_property
    def of_trials(self) -> tuned.Trials:
        """Return how much hangs on tuning: the expected best of few trials, and the share that reach the target."""
        miss = ranking.MISS * max((row["whole_seconds"] for row in self._of("trial")), default=math.nan)
        titles = {group.method: group.title for group in self.best}
        return tuned.Trials(self.trials, titles, panels.styles(self.best), miss)

    def figures(self) -> dict[str, Figure]:
        """Return name -> picture; of single trials, nothing is drawn against their number."""
        found = {"standing": standing.standing(self.best), "sensitivity": self.of_trials.sensitivity_figure()}
        if max(map(len, self.trials.values())) > 1:
            found["budget"] = self.of_trials.budget_figure()
        return found

    def _of(self, stage: str) -> list[Row]:
        return _rows(self.outcome, self.best[0].num_workers, stage)


def publish(tuning: Tuning, outcome: Outcome, path: pathlib.Path) -> str:
    """Write what tuning has found to the folder `tuned` of a work directory, and return it for a terminal.

    `table.md` has the methods at their best beside the configuration as it is, `trials.md` how much hangs on tuning;
    for each number of workers, the pictures `standing`, `budget` and `sensitivity` show the same.
    """
    folder, views = path / FOLDER, {}
    for count in sorted({count for _, count in outcome.chosen}):
        views[count] = TunedView.of(tuning, outcome, count)
        for name, figure in views[count].figures().items():
            plots.save(figure, folder / f"{name}-n{count}")
    trials = [table.markdown() for view in views.values() for table in view.of_trials.tables()]
    files.write_text(folder / "table.md", "\n\n".join(view.table.markdown() for view in views.values()) + "\n")
    files.write_text(folder / "trials.md", "\n\n".join(trials) + "\n")
    tables = "\n\n".join(view.table.without(("tuned",)).text() for view in views.values())
    return f"{tables}\n\nTuned settings: {folder / 'table.md'}; to compare with them again: --tune={path / CHOSEN}"


def chosen_settings(chosen: Mapping[Kind, Mapping[str, Any] | None], titles: Mapping[str, str]) -> Table:
    """Return a table of what was chosen for methods, for the page of their comparison; None: it was not tuned."""
    found = sorted((count, list(titles).index(name), name) for name, count in chosen)
    said = {kind: "not tuned" if settings is None else words(settings) for kind, settings in chosen.items()}
    rows = [[titles[name], str(count), said[name, count]] for count, _, name in found]
    return Table({"method": "", "workers": "", "tuned settings": ""}, rows)


def words(settings: Mapping[str, Any]) -> str:
    """Return chosen settings as a reader wants them.

    Example:
      >>> words({"optimizer.learning_rate": 0.01234, "optimizer.momentum": 0.5, "rate.warmup_epochs": 0.0,
      ...        "rate.decay": "cosine", "protocol.ringmaster.max_delay": 9})
      'rate 0.0123, momentum 0.5, max delay 9, no warm-up, cosine'
    """
    found = []
    for name, value in settings.items():
        last = name.rpartition(".")[2]
        if name == "rate.warmup_epochs":
            found.append("warm-up" if value is None else "no warm-up")
        elif name == "rate.decay":
            found.append(value)
        else:
            short = "rate" if last.endswith("learning_rate") else last.replace("_", " ")
            found.append(f"{short} {value:.3g}" if isinstance(value, float) else f"{short} {value}")
    order = ("warm-up", "no warm-up", "constant", "cosine")
    return ", ".join(sorted(found, key=lambda text: text in order))


def _groups(experiments: Mapping[str, Experiment], outcome: Outcome, count: int, stage: str) -> list[Group]:
    """Return the runs of one stage as those of records are."""
    by_method: dict[str, list[Row]] = {}
    for row in _rows(outcome, count, stage):
        by_method.setdefault(row["method"], []).append(row)
    found = []
    for name, experiment in experiments.items():
        about = {"config": {}, "about": records.about_before(experiment), **records.what_before(experiment)}
        test = {"test_examples": len(experiment.data.dataset.test)}
        runs = []
        for row in sorted(by_method[name], key=lambda row: row["seed"]):
            last = {**row, **test, Metric.of(about).test: row["metric"]}
            runs.append([about | {"seed": row["seed"]}, last])
        found.append(Group.of(runs))
    return found


def _rows(outcome: Outcome, count: int, stage: str) -> list[Row]:
    return [row for row in outcome.rows if row["num_workers"] == count and row["stage"] == stage]


def _median(name: str, times: Sequence[float]) -> dict[str, float]:
    """Return the median and the ends of its interval, as `<name>`, `<name>_low` and `<name>_high`."""
    low, high = standing.interval(times)
    return {name: float(np.median(times)), f"{name}_low": low, f"{name}_high": high}


def _with_interval(row: Mapping[str, Any], name: str) -> str:
    """Return a median and its interval; a miss is beyond all."""
    found = [row[key] for key in (name, f"{name}_low", f"{name}_high")]
    if not any(map(math.isfinite, found)):
        return "never"
    return "{} ({}-{})".format(*(f"{value:,.0f}" if math.isfinite(value) else "never" for value in found))
