"""A comparison is a sweep: which runs it has, what they are called, and which of them are there."""

import json

import pytest
from lib import tiny

from sgdlab.errors import UsageError
from sgdlab.jobs import Session, compare, digests, executor, work
from sgdlab.jobs.configuration import identity


def named(sweep):
    return [run.name.rpartition("-")[0] for run in sweep.runs]


def test_methods_are_compared_with_the_first_worker_of_the_smallest_cluster():
    sweep = compare.comparison(tiny.config(), ["nag_asgd", "dana", "adam"], [1, 8, 4], 1)
    alone = ["nag_asgd-n1-seed0", "adam-n1-seed0"]
    several = ["nag_asgd-n8-seed0", "nag_asgd-n4-seed0", "dana-n1-seed0", "dana-n8-seed0", "dana-n4-seed0"]
    assert named(sweep) == [*alone, *several, "adam-n8-seed0", "adam-n4-seed0"]
    first = [run.settings.cluster for run in sweep.runs if run.settings.cluster.first_workers]
    assert [(cluster.first_workers, cluster.num_workers) for cluster in first] == [(1, 4)] * 3
    assert [compare.is_serial(run) for run in sweep.runs] == [True] * 2 + [False] * 7
    assert str(sweep.runs[0]) == "nag_asgd, 1 worker, seed 0"


def test_the_baseline_alone_is_no_comparison():
    with pytest.raises(UsageError, match="--num_workers=1 with nag_asgd is the baseline itself"):
        compare.comparison(tiny.config(), ["nag_asgd"], [1], 2)


def test_the_baseline_has_its_own_rule_where_another_is_set():
    config = tiny.config()
    config.protocol.kind, config.rule.kind = "bounded_staleness", "staleness_aware"
    sweep = compare.comparison(config, ["asgd"], [4], 1)
    assert named(sweep) == ["nag_asgd-n1-seed0", "bounded_staleness+staleness_aware-n4-seed0"]
    with pytest.raises(UsageError, match=r"asgd and nag_asgd are both bounded_staleness\+staleness_aware"):
        compare.check(compare.comparison(config, ["asgd", "nag_asgd"], [4], 1))


def test_all_that_is_swept_is_done_of_every_run():
    over = {"optimizer.learning_rate": [0.1, 0.2], "batch_size": [16, 32]}
    sweep = compare.comparison(tiny.config(), ["asgd"], [4], 2, over)
    assert len(sweep.runs) == len({run.key for run in sweep.runs}) == 2 * 4 * 2
    assert str(sweep.runs[-1]) == "asgd, 4 workers, learning_rate=0.2, batch_size=32, seed 1"
    assert sweep.runs[-1].settings.optimizer.learning_rate == 0.2
    # What a run is called does not depend on the sweep that asks for it.
    other = compare.comparison(tiny.config(optimizer__learning_rate=0.2, batch_size=32), ["asgd"], [4], 2)
    assert other.runs[-1].name == sweep.runs[-1].name


def test_what_a_method_does_not_use_makes_no_other_run_of_it():
    over = {"rule.gap_aware.granularity": ["parameter", "layer"]}
    sweep = compare.comparison(tiny.config(), ["asgd", "gap_aware"], [4], 1, over)
    keys = {name: {run.key for run in sweep.runs if run.varied["method"] == name} for name in ("asgd", "gap_aware")}
    assert [len(found) for found in keys.values()] == [1, 2]


class TestThere:
    """A run that is there counts where its code is that of today."""

    @pytest.fixture(name="sweep")
    def a_sweep(self):
        return compare.comparison(tiny.config(), ["asgd"], [4], 1)

    def finish(self, tmp_path, sweep, monkeypatch, **records):
        """Finishes the sweep, with runs that are put there before; returns those that were done."""
        session, done = Session(tmp_path, jobs=1, folder="metrics"), []
        for run in sweep.runs:
            opening = {"kind": "run", "config": identity(run.settings), "code": digests.of_run(run.settings)} | records
            session.store.write(run.name, [opening, {"kind": "summary", "test_accuracy": 0.5}])

        def trained(task, point, send):
            done.append(point.name)
            return [{"kind": "run", "code": task.code[point.key]}, {"kind": "summary", "compute_seconds": 1.0}]

        monkeypatch.setattr(executor._Task, "_records", trained)
        monkeypatch.setattr(executor, "outcome", lambda *arguments: "done")
        executor.finish([sweep], session)
        return done

    def test_of_the_same_code(self, tmp_path, sweep, monkeypatch, capsys):
        assert self.finish(tmp_path, sweep, monkeypatch) == []
        assert capsys.readouterr().out == f"2 runs found finished in {tmp_path / 'metrics'}\n"

    def test_of_other_code(self, tmp_path, sweep, monkeypatch, capsys):
        assert len(self.finish(tmp_path, sweep, monkeypatch, code={"rule": "0"})) == 2
        said = capsys.readouterr().out
        assert "2 runs to do; 2 of them anew, since their code or files have changed" in said
        assert f"their old records go to {tmp_path / 'metrics/superseded'}" in said
        aside = [json.loads(file.read_text().splitlines()[0]) for file in (tmp_path / "metrics/superseded").iterdir()]
        assert [record["code"] for record in aside] == [{"rule": "0"}] * 2

    def test_runs_of_other_settings_stand_beside_them(self, tmp_path, sweep, monkeypatch):
        self.finish(tmp_path, sweep, monkeypatch)
        longer = compare.comparison(tiny.config(epochs=2.0), ["asgd"], [4], 1)
        session = Session(tmp_path, jobs=1, folder="metrics")
        executor.finish([longer], session)
        assert len(list(session.store.path.glob("*.jsonl"))) == 4


def test_names_of_the_work_that_keys_hold_stay():
    """Else runs that are stored would be done anew."""
    assert work.name_of(work.train) == "experiments.harness.training.train"
