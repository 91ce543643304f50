"""A log of rollouts: how it is read, what it says of the run, and the workload and speed that are fitted to it."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from sgdlab.predictors import censoring
from sgdlab.rollouts.engines import LoadedSpeed
from sgdlab.rollouts.schedule import of_lags
from sgdlab.rollouts.workload import Workload

COLUMNS = ("start", "end", "tokens", "version", "group", "step")
"""Names of the columns of a log."""

OTHERS = ("engine", "attempt")
"""Names of columns that may come besides."""

VERSIONS = ("start", "end", "tokens")
"""Names which version a log holds: that on which a rollout began, the newest when it was over, or a list of those that
made each of its tokens."""

_ROUNDS, _NARROW = 40, 0.02
"""Rounds of Gibbs sampling, and the relative spread below which a speed is constant."""

_APART, _FULL = 10, 0.9
"""Versions over which the seconds of a step are measured, since one is seen late where no rollout begins; and the share
of the slots that are busy where rollouts wait: 1 in synchronous runs, 0.4 to 0.62 where stale ones are left out."""


@dataclasses.dataclass(frozen=True, eq=False)
class RolloutLog:
    """Holds the rollouts of a job.

    Attributes:
      start: float64[R], seconds.
      end: float64[R], seconds; NaN where it was not over.
      tokens: float64[R], tokens made; NaN where that is not known of one that was not over.
      read: int64[R], the version on which it began.
      lag: float64[R], mean over its tokens of the step less the version that made each; NaN where that is not known.
      group: int64[R], its group.
      step: int64[R], the trainer step that its group entered; -1: none.
      engine: int64[R], from 0.
      attempt: int64[R], how often its prompt had been tried before.
    """

    start: np.ndarray
    end: np.ndarray
    tokens: np.ndarray
    read: np.ndarray
    lag: np.ndarray
    group: np.ndarray
    step: np.ndarray
    engine: np.ndarray
    attempt: np.ndarray

    @property
    def over(self) -> np.ndarray:
        """bool[R]: the rollout was over when the log ended."""
        return np.isfinite(self.end)

    def figures(self) -> dict[str, float]:
        """Return what was, by the names that a simulated run has, and "shortest_step", seconds, without a tenth."""
        trained, versions = self.step >= 0, _came(self.start, self.read)
        lag, first = (self.step - self.read)[trained], self.step[trained].min()
        seconds = float(versions[-1] - versions[0]) if versions.size > 1 else np.nan
        steps = (self.step > first) & (self.step < first + versions.size)
        given = np.isfinite(self.lag) & trained
        in_flight = np.average(self.lag[given], weights=self.tokens[given]) if given.any() else np.nan
        apart = min(_APART, versions.size - 1)
        least = np.quantile(versions[apart:] - versions[:-apart], 0.1) / apart if apart > 0 else np.nan
        return {
            "seconds_per_step": seconds / max(versions.size - 1, 1),
            "shortest_step": float(least),
            **of_lags(lag, self.tokens[trained]),
            "token_staleness_in_flight": float(in_flight),
            "not_trained": float(np.nansum(self.tokens[~trained]) / np.nansum(self.tokens)),
            "goodput": float(self.tokens[steps].sum()) / seconds,
        }

    def batch(self) -> int:
        """Return the groups of a step: the most frequent number."""
        groups = np.unique(np.stack([self.step, self.group])[:, self.step >= 0], axis=1)
        return int(np.bincount(np.bincount(groups[0])[groups[0].min() :]).argmax())

    def slots(self) -> int:
        """Return the most rollouts that an engine had at a time."""
        return int(self._busy().max())

    def _busy(self) -> np.ndarray:
        """int[R]: the rollouts that its engine had when each one had begun, it among them."""
        busy = np.empty(self.start.size, np.int64)
        for engine in np.unique(self.engine):
            rows = self.engine == engine
            begun, over = (np.sort(times) for times in (self.start[rows], self.end[rows & self.over]))
            busy[rows] = np.subtract(*(np.searchsorted(times, self.start[rows], "right") for times in (begun, over)))
        return busy

    def synchronous(self) -> bool:
        """Return True if trained rollouts are all there were: fresh, in even steps and groups, and none seems missing.

        One that begins after the first of its step was over has waited for a slot: if slots were free, rollouts that
        are not in the log had them. What began with the others and was thrown away leaves no trace.
        """
        before, busy = np.searchsorted(np.sort(self.step), self.step), self._busy()
        late = np.searchsorted(np.sort(self.end), self.start, "right") > before
        both = np.stack([self.step, self.group])
        steps, groups, inside = (np.unique(of, axis=-1, return_counts=True)[1] for of in (self.step, self.group, both))
        whole = steps.size == np.ptp(self.step) + 1 and groups.size == inside.size
        even = whole and not (np.ptp(steps) or np.ptp(groups))
        full = busy[late].sum() >= _FULL * busy.max() * late.sum()
        return bool((self.over & (self.step == self.read)).all() and even and full)

    def speed(self) -> float | LoadedSpeed:
        """Return the tokens a second of a slot, by the rollouts that were over: a number, or falling with load.

        The seconds of a token are fitted as a line in the busy slots of its engine, on average over the rollout. Where
        engines wait for transfers, these are in it.
        """
        rows = self.over & (self.tokens > 0) & (self.end > self.start)
        seconds, busy = self.end - self.start, np.empty(rows.size)
        last = np.nanmax(np.append(self.end, self.start.max()))
        for engine in np.unique(self.engine):
            here = self.engine == engine
            own = rows & here
            started, ended = np.sort(self.start[here]), np.sort(np.where(self.over, self.end, last)[here])
            until, begin = (_integral(started, at) - _integral(ended, at) for at in (self.end[own], self.start[own]))
            busy[own] = (until - begin) / seconds[own]
        busy, seconds = busy[rows], seconds[rows]
        each = seconds / self.tokens[rows]
        slope, alone = 0.0, 1.0
        if np.ptp(busy) > _NARROW * busy.max():
            slope, alone = np.polyfit(busy, each, 1, w=np.sqrt(self.tokens[rows]))
        if slope <= 0 or alone <= 0 or slope * np.ptp(busy) < _NARROW * np.median(each):
            return float(np.median(1 / each))
        return LoadedSpeed(float(1 / alone), float(alone / slope))

    def workload(self, *, prompts: int = 20_000, attempts: int = 4, seed: int = 0) -> Workload:
        """Return a workload with the groups of the log, in random order.

        Rollouts that were not over are drawn anew for each seed, longer than they had become, from log-normal laws
        fitted to all, which have a part of the group's own; so are the attempts after the first.

        Args:
          prompts: P, groups, drawn with replacement.
          attempts: A.
          seed: of the draws.

        Raises:
          ValueError: where the log has too few groups, or trained rollouts alone, and is not `synchronous`: what was
            thrown away, or was too long to be over, is not in it.
        """
        if (self.step >= 0).all() and not self.synchronous():
            raise ValueError(
                "it holds trained rollouts alone, and predicts no other policy: those that were thrown away, or still "
                "ran when it ended, are the long ones, and without them the workload seems shorter than it is; log "
                "every rollout when it begins; trained ones are all if none is stale, steps and groups have one size "
                "each, and slots are full while rollouts wait"
            )
        random = np.random.default_rng(seed)
        rows = np.flatnonzero(self.attempt == 0)
        rows = rows[np.argsort(self.group[rows], kind="stable")]
        _, group, count = np.unique(self.group[rows], return_inverse=True, return_counts=True)
        if count.size < 10:
            raise ValueError(f"it has {count.size} groups, and at least 10 are needed")
        at = group, np.arange(rows.size) - (np.cumsum(count) - count)[group]
        logs, least = np.full((2, count.size, count.max()), [[[np.nan]], [[0.0]]])
        over, tokens = self.over[rows], self.tokens[rows]
        logs[at] = np.where(over, np.log(np.maximum(tokens, 1)), np.nan)
        least[at] = np.log1p(np.nan_to_num(np.where(over, 0.0, tokens)))
        cap = np.nanmax(logs)
        cap = cap if (logs == cap).sum() > max(0.002 * np.isfinite(logs).sum(), 2) else np.inf
        missing, filled = np.isnan(logs), np.where(np.isnan(logs), np.maximum(least, np.nanmean(logs)), logs)
        own, within = np.empty(0), 0.0
        for _ in range(_ROUNDS):
            own, within = _drawn_parts(random, filled)
            mean, std = (np.broadcast_to(value, logs.shape) for value in (own[:, None], max(within, 1e-9)))
            filled = np.where(missing, np.minimum(censoring.truncated_normal(random, mean, std, least), cap), logs)
        order = random.integers(count.size, size=prompts)
        first = np.exp(filled[order])
        later = own[order, None] + within * random.standard_normal((attempts - 1, *first.shape))
        later = np.exp(np.minimum(later, cap))
        return Workload(np.maximum(np.ceil(np.concatenate([first[None], later]) - 1e-6), 1).astype(np.int64))


def _integral(times: np.ndarray, until: np.ndarray) -> np.ndarray:
    """Return the integral up to each instant of how many of some sorted times have come."""
    count = np.searchsorted(times, until, side="right")
    return count * until - np.append(0.0, np.cumsum(times))[count]


def _drawn_parts(random: np.random.Generator, filled: np.ndarray) -> tuple[np.ndarray, float]:
    """Draw each group's own part of its log lengths, float64[K], given these; and return the deviation within groups.

    Gibbs sampling, with the variances within groups and between them that the log lengths have at present.
    """
    size, mean = filled.shape[1], filled.mean()
    within = filled.var(axis=1, ddof=1).mean() if size > 1 else 0.0
    between = max(filled.mean(axis=1).var() - within / size, 0.0)
    weight = size * between / max(within + size * between, 1e-300)
    own = mean + weight * (filled.mean(axis=1) - mean)
    return own + np.sqrt((1 - weight) * between) * random.standard_normal(own.size), float(np.sqrt(within))


def read_log(path: pathlib.Path, *, version: str, columns: Mapping[str, str] | None = None) -> RolloutLog:
    """Reads a log of rollouts, a row each, from a Parquet or CSV file or JSON lines.

    Args:
      path: ends in .parquet, .csv or .jsonl.
      version: which version its column holds, of `VERSIONS`; it cannot be told from the numbers.
      columns: name here -> name in the file, where they differ; names are `COLUMNS`, `engine` and `attempt`. Cells of
        `end` are empty where a rollout was not over, those of `step` where its group was not trained on.

    Raises:
      ValueError: where the file is no such log; the message names the column or the row.
      FileNotFoundError: where there is no such file.
    """
    from sgdlab.traces import cells  # noqa: PLC0415 (PyArrow takes a while to import, and only a log needs it)

    table = _table(path)
    names = {name: (columns or {}).get(name, name) for name in (*COLUMNS, *OTHERS)}
    for name in COLUMNS:
        if names[name] not in table.column_names:
            there = ", ".join(table.column_names)
            raise ValueError(f"it must have a column {names[name]!r} ({name}); it has {there}")
    there = {name: table[called].to_pylist() for name, called in names.items() if called in table.column_names}
    size = table.num_rows

    def plain(name: str) -> np.ndarray:
        found = [cells.number(cell) for cell in there.get(name, [0] * size)]
        if None in found:
            raise ValueError(f"its column {names[name]!r} must hold numbers, not {there[name][found.index(None)]!r}")
        return np.array(found, np.float64)

    start, end, tokens, step = map(plain, ("start", "end", "tokens", "step"))
    over = np.isfinite(end)
    for name, bad, right in (
        ("start", ~np.isfinite(start), "a number of seconds"),
        ("end", end < start, "no earlier than its start"),
        ("tokens", (tokens < 0) | over & np.isnan(tokens), "at least 0, and known where the rollout is over"),
    ):
        if bad.any():
            row = int(np.argmax(bad))  # it has a line of the file, and CSV one before with the names
            raise ValueError(
                f"row {row + 1 + (path.suffix == '.csv')}: {names[name]}={there[name][row]} must be {right}"
            )
    step = np.where(np.isnan(step), -1, step).astype(np.int64)
    if not size or (step < 0).all():
        raise ValueError(f"it must have rows with a {names['step']!r}: nothing was trained on")
    lag = np.full(size, np.nan)
    if version == "tokens":
        lists = [cell if isinstance(cell, list) and cell else [cell] for cell in there["version"]]
        lag = step - np.array([np.mean(np.array([cells.number(one) for one in made], np.float64)) for made in lists])
        there["version"] = [made[0] for made in lists]
    read = plain("version")
    if np.isnan(read[over if version == "end" else slice(None)]).any():
        raise ValueError(f"its column {names['version']!r} must hold a version in every row")
    if version == "end":
        # A version has come between the last rollout that ended without it and the first that ended with it.
        read = np.searchsorted(_came(end[over], read[over]), start, side="right")
    if (step[step >= 0] < read[step >= 0]).any():
        raise ValueError(
            f"{names['step']!r} must be no smaller than the version on which a rollout began; is it counted from 0, "
            f"and is {names['version']!r} that of the {version}?"
        )
    group, engine = (
        cells.Names.of(names[name], there.get(name, [0] * size)).codes.astype(np.int64) for name in ("group", "engine")
    )
    attempt = plain("attempt").astype(np.int64)
    return RolloutLog(start, end, tokens, read.astype(np.int64), lag, group, step, engine, attempt)


def _came(times: np.ndarray, versions: np.ndarray) -> np.ndarray:
    """Return when each version from 1 on was there, by the first of these times that has it or a later one."""
    order = np.argsort(times, kind="stable")
    newest = np.maximum.accumulate(versions[order])
    return times[order][np.searchsorted(newest, np.arange(1, newest[-1] + 1))]


def _table(path: pathlib.Path) -> Any:
    """Read a file as a table of PyArrow, whose data sets would take the types of columns from the first rows alone."""
    from pyarrow import ArrowException, csv, json, parquet  # noqa: PLC0415 (as above)

    readers = {".parquet": parquet.read_table, ".csv": csv.read_csv, ".jsonl": json.read_json}
    if path.suffix not in readers:
        raise ValueError(f"its name must end in one of {', '.join(readers)}")
    try:
        return readers[path.suffix](path)
    except ArrowException as error:
        raise ValueError(f"it cannot be read: {error}") from error
