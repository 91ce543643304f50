"""Custom laws: what their draws must be, asked at the first use; and a loop that would never end."""

import dataclasses
import itertools

import numpy as np
import pytest

from sgdlab import cluster
from sgdlab.errors import UsageError
from sgdlab.registry import CLUSTERS
from sgdlab.runs import parts
from sgdlab.runtimes import NotEnoughRuntimes, with_enough_rows

WORKERS, COUNT = (
    4,
    itertools.count(),
)  # as many as the rows that are asked for at first: an array that is turned is square


@pytest.fixture(name="drawn")
def draw_of_a_law(monkeypatch):
    """Draws rows of a law that is registered with this `draw`."""
    monkeypatch.setattr(CLUSTERS, "_parts", dict(CLUSTERS))
    monkeypatch.setattr(parts, "_asked", set())

    def drawn(draw, times=1, rows=6):
        @CLUSTERS.register("theirs", title="Theirs")
        @dataclasses.dataclass(frozen=True)
        class Theirs:
            num_workers: int

        Theirs.draw, Theirs.__module__ = draw, "theirs"
        law = CLUSTERS.make("theirs", {}, num_workers=WORKERS)
        return [parts.drawn(CLUSTERS["theirs"], law, rows, WORKERS, 0) for _ in range(times)][-1]

    return drawn


def _sound(self, rows, *, seed):
    return np.random.default_rng(seed).uniform(1, 2, (rows, self.num_workers))


def test_a_sound_law_is_asked_once(drawn):
    asked = []

    def draw(self, rows, *, seed):
        asked.append(rows)
        return _sound(self, rows, seed=seed)

    np.testing.assert_array_equal(drawn(draw, times=2), _sound(cluster.Gamma(WORKERS), 6, seed=0))
    assert asked == [6, 6, 12, 6, 6]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (
            lambda self, rows, *, seed: None,
            r"shape \(4, 4\), and returned None: is `return` missing\? \(theirs, Theirs\)",
        ),
        (
            lambda self, rows, *, seed: _sound(self, rows, seed=seed).T,
            r"shape \(8, 4\), and returned an array of shape \(4, 8",
        ),
        (lambda self, rows, *, seed: np.ones((rows, 3)), r"shape \(4, 4\), and returned an array of shape \(4, 3\)"),
        (lambda self, rows, *, seed: _sound(self, rows, seed=seed)[:-1], r"returned an array of shape \(3, 4\)"),
        (
            lambda self, rows, *, seed: np.full((rows, 4), np.nan),
            r"Theirs\): draw\[0, 0\]=nan must be positive and finite",
        ),
        (lambda self, rows, *, seed: np.full((rows, 4), 1.0 + next(COUNT)), "same times for the same seed"),
        (
            lambda self, rows, *, seed: np.random.default_rng(seed).uniform(1, 2, (4, rows)).T,
            "same first rows however many it is asked for, and row 0 of 4 differs from row 0 of 8",
        ),
        (lambda self, rows, of_seed: np.ones((rows, 4)), r"must have a method `draw\(rows, \*, seed\)`.*of_seed"),
    ],
    ids=["none", "turned_square", "columns", "rows", "nan", "not_by_seed", "earlier_rows", "signature"],
)
def test_an_unsound_law_is_refused_by_name(drawn, draw, message):
    with pytest.raises(UsageError, match=rf"^--config\.cluster\.kind=theirs.*{message}"):
        drawn(draw, rows=4)


def _needs_twenty(self, rows, *, seed):
    if rows < 20:
        raise ValueError("of at least 20 rows")
    return _sound(self, rows, seed=seed)


def _ends(self, rows, *, seed):
    return _sound(self, 24, seed=seed)[np.arange(rows)]


def _is_a_table(self, rows, *, seed):
    return np.concatenate([_sound(self, 30, seed=seed), np.full((9, self.num_workers), np.nan)])[:rows]


def _rounds(self, rows, *, seed):
    return _sound(self, rows, seed=seed) * (1 + 1e-12 * rows)


@pytest.mark.parametrize(
    "draw",
    [
        _needs_twenty,
        _ends,
        _is_a_table,
        _rounds,
        lambda self, rows, *, seed: np.ones((max(rows, 64), self.num_workers)),
        lambda self, rows, *, seed: np.ones((rows, self.num_workers + 1)),
        lambda self, rows, *, seed: [[1.0] * self.num_workers] * rows,
    ],
    ids=["needs_twenty", "ends", "is_a_table", "rounds", "more_rows", "more_workers", "lists"],
)
def test_a_law_that_is_only_unusual_passes(drawn, draw):
    times = drawn(draw, rows=24)
    assert times.shape[0] >= 24
    assert times.shape[1] >= WORKERS


def test_a_law_that_needs_more_rows_than_are_asked_of_it_passes(drawn, monkeypatch):
    monkeypatch.setattr(parts, "_ROWS", 8)
    assert drawn(_needs_twenty, rows=24).shape == (24, WORKERS)


def test_what_a_law_says_of_the_runs_rows_is_said(drawn):
    with pytest.raises(UsageError, match=r"^--config\.cluster\.theirs\.of at least 20 rows"):
        drawn(_needs_twenty, rows=6)


def test_a_draw_of_too_few_rows_ends():
    wants = lambda times: (_ for _ in ()).throw(NotEnoughRuntimes("more", rows=2 * len(times)))
    with pytest.raises(UsageError, match=r"the draw returned 4 rows of compute times, where 10 were asked for"):
        with_enough_rows(wants, lambda rows: np.ones((4, rows)), rows=10)
    with pytest.raises(UsageError, match=r"it must ask for more"):
        with_enough_rows(
            lambda times: (_ for _ in ()).throw(NotEnoughRuntimes("more", rows=7)),
            lambda rows: np.ones((rows, 4)),
            rows=10,
        )


def test_a_draw_of_more_rows_than_asked_for_is_welcome():
    asked = []

    def protocol(times):
        if len(times) < 40:
            raise NotEnoughRuntimes("more", rows=len(times) + 1)
        return len(times)

    def draw(rows):
        asked.append(rows)
        return np.ones((-(-rows // 16) * 16, 4))

    assert with_enough_rows(protocol, draw, rows=5) == 48
    assert asked == [5, 17, 33]
