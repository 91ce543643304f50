"""Tuning: the same points for all in units of each, the stages and their data, and what a ledger saves."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from lib import tiny

from sgdlab.commands import compare as compare_command
from sgdlab.errors import UsageError
from sgdlab.knobs import Knob
from sgdlab.registry import PROTOCOLS, RULES
from sgdlab.runs import Session, compare, compared, executor, resolve, space, sweep, tuned_report, tuning
from sgdlab.runs.ledger import COLUMNS, RunLedger, row_of
from sgdlab.runs.methods import REPRESENTATIVE, methods
from sgdlab.runs.plan import make_plan
from sgdlab.runs.store import key_of
from sgdlab.runs.sweep import Noted


def at(config, **changes):
    point = dict.fromkeys(space.COORDINATES, 0.5) | changes
    return space.settings(resolve(config), [point[name] for name in space.COORDINATES])


class TestSpace:
    def test_points_are_spread_over_the_cube_and_the_same_for_all(self):
        points = space.points(24)
        assert points.shape == (24, 5)
        whole = space.points(32)
        np.testing.assert_array_equal(points, whole[:24])
        # Each half, quarter and eighth of every coordinate has as many of the 32 points.
        for parts in (2, 4, 8, 16, 32):
            counts = [np.bincount((column * parts).astype(int), minlength=parts) for column in whole.T]
            assert {int(count) for column in counts for count in column} == {32 // parts}

    def test_at_one_point_all_steps_are_as_long(self):
        """eta / (1 - gamma) of rules with and without momentum, and at every momentum."""
        found = set()
        for method, momentum in (("asgd", 0.5), ("nag_asgd", 0.2), ("nag_asgd", 0.9), ("d_psgd", 0.4)):
            settings = at(tiny.config(method=method), rate=0.3, momentum=momentum)
            gamma = settings.get("optimizer.momentum", 0.0)
            found.add(round(settings["optimizer.learning_rate"] / (1 - gamma), 12))
        assert found == {round(0.05 / 0.1 * 10 ** (3 * (0.3 - 0.5)), 12)}

    def test_the_rate_is_over_three_decades_and_momentum_from_0_to_098(self):
        config = tiny.config(method="nag_asgd")
        low, high = (at(config, rate=share, momentum=1.0)["optimizer.learning_rate"] for share in (0.0, 1.0))
        assert high / low == pytest.approx(1000)
        assert np.sqrt(low * high) == pytest.approx(0.5)
        assert [at(config, momentum=share)["optimizer.momentum"] for share in (0.0, 1.0)] == pytest.approx([0.98, 0.0])

    def test_other_rules_have_their_own_unit(self):
        settings = at(tiny.config(method="adam"))
        assert settings["optimizer.adam_learning_rate"] == pytest.approx(0.003)
        settings = at(tiny.config(method="diloco"), own=1.0)
        assert settings["local.learning_rate"] == pytest.approx(0.003)
        assert settings["local.steps"] == 32

    def test_a_schedule_of_its_own_stays(self):
        assert "rate.decay" not in at(tiny.config(method="growing_ringmaster"))
        assert at(tiny.config(method="asgd"), warmup=0.1, decay=0.9) == {
            "optimizer.learning_rate": pytest.approx(0.5),
            "rate.warmup_epochs": 0.0,
            "rate.decay": "cosine",
        }

    @pytest.mark.representatives(*REPRESENTATIVE)
    @pytest.mark.parametrize("method", methods())
    def test_every_method_can_be_run_at_every_corner(self, method):
        for corner in ([0.0] * 5, [1.0] * 5, [0.5] * 5):
            config = tiny.config(method=method, batch_size=32)
            settings = space.settings(resolve(config), corner)
            config.update_from_flattened_dict(settings)
            assert make_plan(config).num_gradients > 0
            assert len([name for name in settings if not name.startswith("rate.")]) <= 3

    def test_knobs_are_entries_of_their_parts(self):
        known = {f"predictor.running_mean.{name}" for name in ("window", "at_least")}
        for registry in (PROTOCOLS, RULES):
            for part in registry.values():
                if (knob := part.facts.tunes) is not None:
                    assert knob.entry in {*part.defaults, *known}, part.name
        with pytest.raises(ValueError, match=r"low=0\.0 must be"):
            Knob("share", 0.0, 1.0)
        with pytest.raises(ValueError, match=r"high=1\.0 must be"):
            Knob("share", 1.0, 1.0)

    def test_a_method_may_name_its_own(self):
        assert space.own(make_plan(tiny.config(method="ringmaster")).experiment) == Knob(
            "protocol.ringmaster.max_delay", 0.25, 8.0, whole=True, per_worker=True
        )
        # What its name means is not tuned.
        assert space.own(make_plan(tiny.config(method="delay_compensated_adaptive")).experiment) is None


@pytest.fixture(scope="module", name="tuned")
def tuned_once(tmp_path_factory):
    """Returns a small tuning, where it is done, and its outcome."""
    path = tmp_path_factory.mktemp("tuned")
    config = tiny.config(epochs=4.0, target=0.6, budget=1.0, evaluations=20, spacing="geometric")
    one = tuning.Tuning(config, ["asgd", "synchronous"], [4], trials=6, seeds=3)
    session = Session(path, jobs=1, folder="metrics")
    return one, session, tuning.tune(one, session)


def interrupted(*asked):
    raise KeyboardInterrupt


class TestTuning:
    @pytest.mark.long("a whole tuning of two methods")
    def test_stages(self, tuned):
        one, _, outcome = tuned
        for method in one.methods:
            rows = {
                stage: [r for r in outcome.rows if r["method"] == method and r["stage"] == stage]
                for stage in tuning.STAGES
            }
            assert [len(rows[stage]) for stage in tuning.STAGES] == [6, 16, 3, 3]
            assert {row["seed"] for row in rows["trial"]} == {1000}
            assert {row["seed"] for row in rows["repeat"]} == {1001, 1002, 1003, 1004}
            # Only trials end at the target; what blows up after it must be seen before it is chosen.
            assert all(row["seconds"] == row["whole_seconds"] for row in rows["repeat"] if not row["diverged"])
            assert any(row["seconds"] < row["whole_seconds"] for row in rows["trial"])
            assert [row["seed"] for row in rows["evaluation"]] == [0, 1, 2]
            best = sorted(
                rows["trial"], key=lambda row: (row["seconds_to_target"] is None, row["seconds_to_target"] or 0)
            )
            reached = [row["trial"] for row in best if row["seconds_to_target"]][:4]
            assert set(reached) <= {row["trial"] for row in rows["repeat"]}
            # By hand: the least mean logarithm over the five seeds.
            means, again = {}, {row["trial"] for row in rows["repeat"]}
            candidates = [row for row in rows["trial"] + rows["repeat"] if row["trial"] in again]
            longest = max(row["whole_seconds"] for row in candidates)
            for trial in again:
                of = [row for row in candidates if row["trial"] == trial]
                assert len(of) == 5
                times = [
                    2 * longest if row["diverged"] or row["seconds_to_target"] is None else row["seconds_to_target"]
                    for row in of
                ]
                means[trial] = np.log(times).mean()
            assert rows["evaluation"][0]["trial"] == min(means, key=means.get)
            assert rows["evaluation"][0]["settings"] == outcome.chosen[method, 4]

    def test_trials_see_no_fold_that_is_reported(self, tuned):
        one, session, outcome = tuned
        folds = {"trial": set(), "evaluation": set()}
        for row in outcome.rows:
            if row["stage"] in folds:
                (file,) = session.store.path.glob(f"*{row['key']}.jsonl")
                folds[row["stage"]].add(json.loads(file.read_text().splitlines()[0])["config"]["split"])
        assert folds == {"trial": {"validation"}, "evaluation": {"rotating"}}
        configs = [one.settings(("asgd", 4), {}) for _ in range(4)]
        for seed, config in enumerate(configs):
            config.seed = seed
        plans = [make_plan(config).experiment for config in configs]
        assert [plan.data.fold for plan in plans] == [(1, 0), (2, 0), (3, 0), (4, 0)]

    def test_a_ledger_is_enough(self, tuned, tmp_path):
        one, session, outcome = tuned
        ledger = session.path / tuning.TUNED
        anew = Session(tmp_path, jobs=1, folder="metrics")
        again = tuning.tune(one, anew, ledger)
        assert again.chosen == outcome.chosen
        assert not (tmp_path / "metrics").exists()
        assert tuning.read(tmp_path / tuning.CHOSEN) == outcome.chosen
        found = RunLedger.read(ledger)
        assert len(found.rows) == len(outcome.rows) == 56
        for row in outcome.rows:
            assert set(row) == set(COLUMNS)
            stored = found.rows[row["key"]]
            assert {name: stored[name] for name in ("stage", "seed", "settings", "diverged")} == {
                name: row[name] for name in ("stage", "seed", "settings", "diverged")
            }
            assert stored["metric"] == pytest.approx(row["metric"], rel=1e-6)

    def test_one_key_is_enough_for_a_stage_of_a_method(self, tuned, monkeypatch):
        one, session, outcome = tuned
        ledger, keys = RunLedger.read(session.path / tuning.TUNED), []
        monkeypatch.setattr(sweep, "key_of", lambda settings: keys.append(key_of(settings)) or keys[-1])
        found = one.run(Session(noted=Noted()), ledger, say=lambda line: None)
        assert [row["key"] for row in found.rows] == [row["key"] for row in outcome.rows]
        assert len(keys) == len(tuning.STAGES) * len(one.methods)

    @pytest.mark.parametrize("stage", tuning.STAGES)
    def test_rows_of_another_configuration_are_not_taken(self, tuned, stage):
        """Keeps rows of another configuration apart, alone in the file, before and after those of this one."""
        one, session, outcome = tuned
        ours = RunLedger.read(session.path / tuning.TUNED).rows
        others = {f"of another {key}": row | {"key": f"of another {key}", "seconds_to_target": 1e-3}
                  for key, row in ours.items() if row["stage"] == stage}  # fmt: skip
        for rows in (others | ours, ours | others):
            found = one.run(Session(noted=Noted()), RunLedger(None, rows), say=lambda line: None)
            assert [row["key"] for row in found.rows] == [row["key"] for row in outcome.rows]
        alone = {key: row for key, row in ours.items() if row["stage"] != stage} | others
        with pytest.raises(executor.Unfinished):
            one.run(Session(noted=Noted()), RunLedger(None, alone), say=lambda line: None)

    @pytest.mark.parametrize("stage", tuning.STAGES)
    def test_a_row_that_is_missing_is_noticed(self, tuned, stage):
        one, session, _ = tuned
        rows = RunLedger.read(session.path / tuning.TUNED).rows
        last = [key for key, row in rows.items() if row["stage"] == stage][-1]
        noted = Noted()
        with pytest.raises(executor.Unfinished):
            one.run(
                Session(noted=noted),
                RunLedger(None, {key: row for key, row in rows.items() if key != last}),
                say=lambda line: None,
            )
        assert list(noted.missing) == [last]

    def test_the_tuned_methods_are_compared(self, tuned):
        """The comparison that follows finds the runs of the evaluation, and asks for single workers alone."""
        one, session, outcome = tuned
        runs = compared.comparison(one.config, one.methods, [4], 3, tuned=outcome.chosen).runs
        there = [session.store.read(point.name) is not None for point in runs]
        assert there == [not compared.is_serial(point) for point in runs]

    def test_what_rows_lack_is_said_before_it_is_done(self, tuned, tmp_path, monkeypatch, capsys):
        """The report needs records: of three evaluated runs of each method, which have rows, and of single workers."""
        one, session, _ = tuned
        (tmp_path / "metrics").mkdir()
        shutil.copy(session.path / tuning.TUNED, tmp_path)
        given = {"methods": one.methods, "num_workers": one.num_workers, "seeds": one.seeds, "tune": one.trials}
        said = []

        def asked(sweeps, session):
            said.append(capsys.readouterr().out)
            raise InterruptedError

        monkeypatch.setattr(compare, "finish", asked)
        for path in (tmp_path, session.path):
            with pytest.raises(InterruptedError):
                compare.compare(**given, config=one.config, workdir=path)
        assert (tmp_path / "tuned" / "table.md").exists()
        assert f"6 of its 9 runs have a row, but no records in {tmp_path / 'metrics'}, and are done again" in said[0]
        assert "done again" not in said[1]

    def test_table_and_pictures(self, tuned, tmp_path):
        one, _, outcome = tuned
        text = tuned_report.publish(one, outcome, tmp_path)
        assert "ASGD" in text
        assert "98 % intervals of all methods at once" in " ".join(text.split())
        markdown = (tmp_path / "tuned" / "table.md").read_text()
        assert tuned_report.words(outcome.chosen["asgd", 4]) in markdown
        assert f"Tuned settings: {tmp_path / 'tuned' / 'table.md'}; " in text
        assert text.endswith(f"--tune={tmp_path / tuning.CHOSEN}")
        view = tuned_report.TunedView.of(one, outcome, 4)
        first = [dataclasses.replace(group, runs=group.runs[:1]) for group in view.best]
        assert view.table.notes[0].startswith("4 workers; 3 seeds, each")
        assert dataclasses.replace(view, best=first).table.notes[0].startswith("4 workers; 1 seed, each")
        assert "the test loss decided" not in text
        assert {path.name for path in (tmp_path / "tuned").glob("*.png")} == {
            "standing-n4.png", "budget-n4.png", "sensitivity-n4.png",
        }  # fmt: skip

    def test_methods_that_never_reach_the_target(self, tuned, tmp_path):
        """Of single trials no picture is drawn against their number."""
        one, _, outcome = tuned
        missed = [
            row | {"seconds_to_target": None} if row["method"] == "asgd" else row
            for row in outcome.rows
            if row["stage"] != "trial" or row["trial"] == 0
        ]
        text = tuned_report.publish(one, dataclasses.replace(outcome, rows=missed), tmp_path)
        said = "No trial of ASGD reached 60 % test accuracy: the test loss decided; more trials, or a lower"
        assert f"{said} --config.target." in " ".join(text.split())
        (row,) = (line.split() for line in text.splitlines() if line.startswith("ASGD "))
        assert row[1] == "never"
        assert "never-never" not in text
        assert {path.name for path in (tmp_path / "tuned").glob("*.png")} == {"standing-n4.png", "sensitivity-n4.png"}

    def test_the_page_of_a_comparison_has_the_settings(self, tuned, tmp_path):
        _, _, outcome = tuned
        titles = {"synchronous": "Synchronous SGD", "asgd": "ASGD"}
        others = {("synchronous", 2): None, ("asgd", 2): {"optimizer.momentum": 0.5}}
        table = tuned_report.chosen_settings(outcome.chosen | others, titles)
        assert table.rows == [
            ["Synchronous SGD", "2", "not tuned"],
            ["ASGD", "2", "momentum 0.5"],
            ["Synchronous SGD", "4", tuned_report.words(outcome.chosen["synchronous", 4])],
            ["ASGD", "4", tuned_report.words(outcome.chosen["asgd", 4])],
        ]

    def test_a_cost_is_of_what_the_check_has_planned(self, tuned, tmp_path, monkeypatch, capsys):
        one, _, _ = tuned
        cost = one.cost()
        assert cost.endswith("core-hours, plus compiling and evaluating")
        given = {"methods": one.methods, "num_workers": one.num_workers, "seeds": one.seeds, "tune": one.trials}

        def ended(*args):
            raise InterruptedError

        monkeypatch.setattr(tuning, "make_plan", ended)
        monkeypatch.setattr(tuning.Tuning, "run", lambda *args: ended())
        with pytest.raises(InterruptedError):
            compare.compare(**given, config=one.config, workdir=tmp_path)
        assert f"Tuning by 6 trials of each method: {cost}." in capsys.readouterr().out

    def test_a_check_is_of_the_folds_that_are_reported(self):
        with pytest.raises(UsageError, match=r"--config.split must be own with --config.data.kind=stdlib_text"):
            compared.check(compared.comparison(tiny.config(data__kind="stdlib_text"), ["asgd"], [4], 1, tuned={}))

    def test_what_was_done_before_an_interrupt_is_in_the_ledger(self, tuned, tmp_path, monkeypatch):
        one, session, outcome = tuned
        monkeypatch.setattr(tuning, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one.run(session, RunLedger.read(tmp_path / "ledger.csv"))
        trials = [row["key"] for row in outcome.rows if row["stage"] == "trial"]
        assert sorted(RunLedger.read(tmp_path / "ledger.csv").rows) == sorted(trials)

    @pytest.mark.full
    def test_shards_tune_whole_methods(self, tuned, tmp_path, monkeypatch):
        one, session, _ = tuned
        shards = [dataclasses.replace(one, shard=tuning.Shard(index, 2)).kinds for index in (1, 2)]
        assert shards == [[("asgd", 4)], [("synchronous", 4)]]
        one_of = dataclasses.replace(session, path=tmp_path, shard=tuning.Shard(1, 2))
        small = dataclasses.replace(one, trials=1, seeds=1)
        with pytest.raises(executor.Unfinished):
            tuning.tune(small, one_of)
        # The last one does all that is left, the single workers too, of whatever share they are.
        monkeypatch.setattr(tuned_report, "publish", lambda *given: "")
        last = dataclasses.replace(one_of, shard=tuning.Shard(2, 2))
        sweep = compared.comparison(small.config, small.methods, [4], 1)
        runs, found, chosen = compare.finished(sweep, last, small, {}, equal="time")
        assert {point.key for point in runs.runs} == found.keys()
        assert set(chosen) == set(tuning.read(tmp_path / tuning.CHOSEN)) == {("asgd", 4), ("synchronous", 4)}
        # With their rows as a ledger, nothing is done in another work directory, as a task of an array either.
        rows = [row for file in sorted(tmp_path.glob("tuned-*.csv")) for row in RunLedger.read(file).rows.values()]
        ledger = RunLedger(tmp_path / "ledger.csv", {})
        ledger.add(rows)
        elsewhere = dataclasses.replace(session, path=tmp_path / "elsewhere", shard=tuning.Shard(1, 1))
        elsewhere.path.mkdir()
        assert tuning.tune(small, elsewhere, ledger.path).chosen == chosen

    def test_refusals(self, tmp_path):
        with pytest.raises(UsageError, match=r"--tune must go with --config.target=VALUE"):
            tuning.Tuning(tiny.config(target=None), ["asgd"], [4], 2, 2)
        (tmp_path / "other.json").write_text("{}")
        must = "must be a number of trials, or the tuned.json of a tuned comparison"
        with pytest.raises(ValueError, match=rf"^tune=.*other.json {must}: it has no settings$"):
            tuning.read(tmp_path / "other.json")
        for value in ("0", "-1"):
            with pytest.raises(UsageError, match=rf"^--tune={value} must be at least 1, or the tuned.json of a tuned"):
                compare_command._checked_tune(value, None)
        for value in ("1.5", "abc.json"):
            with pytest.raises(UsageError, match=rf"^--tune={value} {must}: there is no such file$"):
                compare_command._checked_tune(value, None)
        (tmp_path / "other.csv").write_text("a,b\n1,2\n")
        with pytest.raises(ValueError, match=r"other.csv must be a ledger of runs, with the columns key, stage"):
            RunLedger.read(tmp_path / "other.csv")
        with pytest.raises(UsageError, match=r"^--ledger=.*other.csv must be a ledger of runs"):
            compare_command._checked_tune("2", str(tmp_path / "other.csv"))
        with pytest.raises(UsageError, match=r"^--ledger=.* must be a CSV file$"):
            compare_command._checked_tune("2", str(tmp_path))
        ledger = RunLedger(tmp_path / "half.csv", {})
        ledger.add([{"key": "a", "stage": "trial", "method": "asgd", "settings": {}, "diverged": True}])
        (tmp_path / "half.csv").write_text(ledger.path.read_text(encoding="utf-8").replace("{}", "{"), "utf-8-sig")
        with pytest.raises(ValueError, match=r"^ledger=.*half.csv, line 2 cannot be read: Expecting"):
            RunLedger.read(tmp_path / "half.csv")
        with pytest.raises(UsageError, match=r"^--tune must go with --num_workers above 1"):
            tuning.Tuning(tiny.config(), ["asgd"], [1], 2, 2)
        easy = tuning.Tuning(tiny.config(target=0.01), ["asgd"], [4], 1, 1)
        with pytest.raises(UsageError, match=r"^--config.target=0.01 must be one that an untrained network misses"):
            easy.run(Session(tmp_path / "easy", jobs=1, folder="metrics"), RunLedger.read(None))


def test_a_miss_is_worse_than_any_time():
    row = {"trial": 0, "settings": {}, "whole_seconds": 100.0, "seconds": 3.0, "test_loss": 9.0, "diverged": True}
    assert tuning.log_time(row | {"seconds_to_target": None}, 200.0) == np.log(200.0)
    assert tuning.log_time(row | {"seconds_to_target": 50.0}, 200.0) == np.log(200.0)  # what it reached, it has lost
    assert tuning.log_time(row | {"seconds_to_target": 50.0, "diverged": False}, 200.0) == np.log(50.0)


def test_where_all_miss_the_loss_decides_and_not_when_their_last_updates_were():
    row = {"settings": {}, "seconds_to_target": None, "diverged": False}
    early = [row | {"trial": 0, "test_loss": loss, "whole_seconds": 99.0} for loss in (4.0, 5.0)]
    late = [row | {"trial": 1, "test_loss": loss, "whole_seconds": 99.5} for loss in (0.2, 0.3)]
    assert tuning.choose([*early, *late]).trial == 1
    # All misses count alike: here as 200 s, by which 10 and a miss are behind 43 and 45, and as 180 s they were not.
    some = [
        row | {"trial": trial, "test_loss": 0.2, "whole_seconds": whole, "seconds_to_target": time}
        for trial, whole, time in ((0, 100.0, 10.0), (0, 90.0, None), (1, 100.0, 43.0), (1, 90.0, 45.0))
    ]
    assert tuning.choose(some).trial == 1
    # One that is reached by a single run is before one that none reaches, whatever the losses.
    early[0]["seconds_to_target"] = 90.0
    assert tuning.choose([*early, *late]).trial == 0


def test_rows_are_written_as_they_are_read(tmp_path):
    ledger = RunLedger.read(tmp_path / "some" / "ledger.csv")
    records = [
        {"kind": "run"},
        {"seconds_to_target": None, "test_accuracy": 0.5, "test_loss": float("inf"), "diverged": True},
    ]
    row = row_of(
        "ab", records, stage="trial", method="asgd", num_workers=8, trial=3, seed=1000, settings={"rate.decay": None}
    )
    ledger.add([row])
    assert RunLedger.read(ledger.path).rows["ab"] == {name: row.get(name) for name in COLUMNS}


def test_methods_have_equal_time_or_equal_gradients():
    timed = compared.comparison(tiny.config(), ["asgd", "synchronous"], [4], 1)
    plans = [make_plan(point.settings) for point in timed.runs]
    alone, *others = plans
    assert alone.experiment.epochs == 1.0
    ends = [plan.schedule.wall_clock() for plan in others]
    assert ends[0] == pytest.approx(ends[1], rel=0.2)
    equal = compared.comparison(tiny.config(), ["asgd", "synchronous"], [4], 1, equal="gradients")
    assert {make_plan(point.settings).experiment.epochs for point in equal.runs} == {1.0}
    swept = compared.comparison(tiny.config(), ["asgd"], [4], 1, {"seconds": [30.0, 60.0]})
    assert [(run.settings.seconds, run.settings.budget) for run in swept.runs[-2:]] == [(30.0, None), (60.0, None)]
    given = compared.comparison(tiny.config(seconds=60.0), ["asgd", "synchronous"], [4], 1)
    assert all(make_plan(point.settings).schedule.wall_clock() <= 60 for point in given.runs)
    with pytest.raises(ValueError, match="equal='steps' must be one of time, gradients"):
        compared.comparison(tiny.config(), ["asgd"], [4], 1, equal="steps")
