"""A run of a directory that was interrupted is continued: with other room, after damage, but not by other code."""

import dataclasses
import shutil

import jax
import numpy as np
import pytest
from lib import tiny

from sgdlab.errors import UsageError
from sgdlab.runs import digests
from sgdlab.runs.plan import make_plan
from sgdlab.runs.store import Store
from sgdlab.runs.train import Place, train, train_and_record


class Killed(BaseException):
    pass


def killing(evaluations):
    """`report` that kills the run at so many evaluations."""
    seen = []

    def report(record):
        seen.append(record["kind"])
        if seen.count("evaluation") == evaluations:
            raise Killed

    return report


@pytest.fixture(name="plan", scope="module")
def planned():
    return make_plan(tiny.config(method="gap_aware", evaluations=4))


@pytest.fixture
def killed(plan, tmp_path):
    """A store whose run was killed at its fourth evaluation: states after the first two or three."""
    store = Store.of(tmp_path / "runs")
    with pytest.raises(Killed):
        train_and_record(plan, Place(store, "run"), checkpoint_seconds=0, report=killing(4))
    assert store.state_path("run").is_dir()
    return store


def continued(plan, store, **options):
    lines = []
    run = train_and_record(plan, Place(store, "run"), checkpoint_seconds=0, say=lines.append, **options)
    store.write("run", run.records)
    assert not store.state_path("run").exists()
    return run, lines


def assert_same(run, plan):
    whole = train(plan)
    jax.tree.map(np.testing.assert_array_equal, run.result.params, whole.result.params)
    for records in (run.records, whole.records):
        records[-1] = {name: value for name, value in records[-1].items() if name != "compute_seconds"}
    assert run.records == whole.records


@pytest.mark.sample(1)
@pytest.mark.parametrize("room", ["as before", "more", "less"])
def test_in_a_comparison_of_other_sizes(plan, tmp_path, room):
    """The state has the sizes of the runs that it was once to be executed with."""
    own = plan.program.capacity
    larger = dataclasses.replace(own, rows=4 * own.rows, slots=4 * own.slots, workers=4 * own.workers)
    before, after = {"as before": (larger, larger), "more": (None, larger), "less": (larger, None)}[room]
    store = Store.of(tmp_path / "runs")
    with pytest.raises(Killed):
        train_and_record(plan, Place(store, "run"), capacity=before, checkpoint_seconds=0, report=killing(4))
    run, (line,) = continued(plan, store, capacity=after)
    assert line.startswith("Continued from checkpoint")
    assert_same(run, plan)


def test_after_damage_it_says_from_where(plan, killed):
    newest, before = sorted(int(found.name) for found in killed.state_path("run").iterdir() if found.is_dir())[::-1]
    shutil.rmtree(killed.state_path("run") / str(newest) / "state")
    run, lines = continued(plan, killed)
    assert [line.partition(" in ")[0] for line in lines] == [
        f"The checkpoint {newest}",
        f"Continued from checkpoint {before}",
    ]
    assert_same(run, plan)


def test_other_code_begins_anew(plan, killed, monkeypatch):
    monkeypatch.setattr(digests, "of_run", lambda config: {"rule": "edited"})
    run, (line,) = continued(plan, killed)
    assert "has changed; it is begun anew" in line
    jax.tree.map(np.testing.assert_array_equal, run.result.params, train(plan).result.params)


def test_another_configuration_is_a_line(killed):
    other = make_plan(tiny.config(method="gap_aware", evaluations=4, batch_size=16))
    with pytest.raises(UsageError, match=r"config\.batch_size=32, not 16.*--rerun begins anew") as caught:
        train_and_record(other, Place(killed, "run"), checkpoint_seconds=0)
    assert "\n" not in str(caught.value)


def test_a_writing_that_fails_in_the_end_loses_nothing(plan, tmp_path, monkeypatch):
    from sgdlab import checkpoints  # noqa: PLC0415 (to be patched)

    def failing(self):
        keeper.close()
        raise OSError(28, "No space left on device")

    store = Store.of(tmp_path / "runs")
    opened = checkpoints.Checkpoints._open
    keeper = None

    def open_(self):
        nonlocal keeper
        opened(self)
        keeper, self._keeper = self._keeper, type("Failing", (), {})()
        for name in ("save_async", "checkpoints", "wait", "load", "metadata"):
            setattr(type(self._keeper), name, property(lambda _, name=name: getattr(keeper, name)))
        type(self._keeper).close = failing

    monkeypatch.setattr(checkpoints.Checkpoints, "_open", open_)
    run, (line,) = continued(plan, store)
    assert "No space left" in line
    assert_same(run, plan)
