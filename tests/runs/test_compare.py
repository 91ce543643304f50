"""A comparison is a sweep: which runs it has, what they are called, and which of them are there."""

import csv
import json
import pathlib
import sys
import tempfile
import types

import pytest
from lib import tiny, undrawn

import sgdlab
from sgdlab.errors import UsageError
from sgdlab.runs import Session, Sweep, compared, compared_report, digests, executor, methods, resolve, varied, work


def named(sweep):
    return [run.name.rpartition("-")[0] for run in sweep.runs]


def test_methods_are_compared_with_the_first_worker_of_the_smallest_cluster():
    sweep = compared.comparison(tiny.config(), ["nag_asgd", "dana", "adam"], [1, 8, 4], 1)
    alone = ["nag_asgd-n1-seed0", "adam-n1-seed0"]
    several = ["nag_asgd-n8-seed0", "nag_asgd-n4-seed0", "dana-n1-seed0", "dana-n8-seed0", "dana-n4-seed0"]
    assert named(sweep) == [*alone, *several, "adam-n8-seed0", "adam-n4-seed0"]
    first = [run.settings.cluster for run in sweep.runs if run.settings.cluster.first_workers]
    assert [(cluster.first_workers, cluster.num_workers) for cluster in first] == [(1, 4)] * 3
    assert [compared.is_serial(run) for run in sweep.runs] == [True] * 2 + [False] * 7
    assert str(sweep.runs[0]) == "nag_asgd, 1 worker, seed 0"


def test_tables_say_what_to_install_before_any_run_is_done(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    for module in ("compare", "sweep"):
        monkeypatch.setattr(f"sgdlab.runs.{module}.finish", lambda *given: pytest.fail("a run was done"))
    for asked in (sgdlab.compare, Sweep(tiny.config(), {"seed": [0]}).table):
        with pytest.raises(
            UsageError, match=r"table of pandas, which is not installed: pip install 'sgdlab\[pandas\]'"
        ):
            asked()


def test_the_baseline_alone_is_no_comparison():
    with pytest.raises(UsageError, match="--num_workers=1 with nag_asgd is the baseline itself"):
        compared.comparison(tiny.config(), ["nag_asgd"], [1], 2)


def test_the_baseline_has_its_own_rule_where_another_is_set():
    config = tiny.config()
    config.protocol.kind, config.rule.kind = "bounded_staleness", "staleness_aware"
    sweep = compared.comparison(config, ["asgd"], [4], 1)
    assert named(sweep) == ["nag_asgd-n1-seed0", "bounded_staleness+staleness_aware-n4-seed0"]
    with pytest.raises(UsageError, match=r"asgd and nag_asgd are both bounded_staleness\+staleness_aware"):
        compared.check(compared.comparison(config, ["asgd", "nag_asgd"], [4], 1))


def test_a_person_is_told_once_of_each_method_where_most_comes_to_nothing():
    config = tiny.config(epochs=4.0)
    sweep = compared.comparison(config, ["asgd", "rennala", "ata"], [8, 12], 2)
    lines = compared.check(sweep).notes
    assert [line.split()[1] for line in lines] == ["rennala", "ata"]
    assert all("12 workers" in line for line in lines)


def test_all_that_is_swept_is_done_of_every_run():
    over = {"optimizer.learning_rate": [0.1, 0.2], "batch_size": [16, 32]}
    sweep = compared.comparison(tiny.config(), ["asgd"], [4], 2, over)
    assert len(sweep.runs) == len({run.key for run in sweep.runs}) == 2 * 4 * 2
    assert str(sweep.runs[-1]) == "asgd, 4 workers, learning_rate=0.2, batch_size=32, seed 1"
    assert sweep.runs[-1].settings.optimizer.learning_rate == 0.2
    # What a run is called does not depend on the sweep that asks for it.
    other = compared.comparison(tiny.config(optimizer__learning_rate=0.2, batch_size=32), ["asgd"], [4], 2)
    assert other.runs[-1].name == sweep.runs[-1].name


def test_what_a_method_does_not_use_makes_no_other_run_of_it():
    over = {"rule.gap_aware.granularity": ["parameter", "layer"]}
    sweep = compared.comparison(tiny.config(), ["asgd", "gap_aware"], [4], 1, over)
    keys = {name: {run.key for run in sweep.runs if run.varied["method"] == name} for name in ("asgd", "gap_aware")}
    assert [len(found) for found in keys.values()] == [1, 2]


def test_a_rule_with_a_rate_of_its_own_is_run_once_and_said_not_to_take_the_others():
    over = {"optimizer.learning_rate": [0.1, 0.2], "batch_size": [16, 32]}
    sweep = compared.comparison(tiny.config(), ["asgd", "adam", "diloco"], [4], 1, over)
    counts = {}
    for run in sweep.runs:
        counts[run.label] = counts.get(run.label, 0) + 1
    one_a_value = dict.fromkeys(["nag_asgd-n1-seed0", "asgd-n4-seed0"], 4)
    assert counts == one_a_value | dict.fromkeys(["adam-n1-seed0", "adam-n4-seed0", "diloco-n4-seed0"], 2)
    # They are the runs of a comparison that varies nothing.
    plain = compared.comparison(tiny.config(batch_size=32), ["adam"], [4], 1)
    assert {run.name for run in plain.runs} == {
        r.name for r in sweep.runs if r.label[:4] == "adam" if r.varied["batch_size"] == 32
    }
    # DiLoCo's server has a rate of its own, and its workers Adam's.
    assert compared.check(sweep, [*over, "optimizer.momentum", "optimizer.weight_decay"]).notes == [
        "Note: adam, diloco do not take optimizer.learning_rate, but optimizer.adam_learning_rate",
        "Note: adam does not take optimizer.momentum",
    ]
    only = compared.comparison(tiny.config(), ["adam"], [4], 1, over)
    with pytest.raises(
        UsageError, match=r"^--config\.optimizer\.learning_rate has no effect: .*; set --config\.optimizer\.ad"
    ):
        compared.check(only, over)


def test_the_time_line_of_a_report_is_given_who_is_down(monkeypatch, tmp_path):
    config = tiny.config(failures__kind="independent", failures__independent__mean_up_hours=0.01)
    sweep, given = compared.comparison(config, ["asgd", "synchronous"], [4], 1), []

    def publish(*arguments):
        given.extend(arguments)
        raise InterruptedError

    monkeypatch.setattr(compared_report.results.publish, "publish", publish)
    monkeypatch.setattr(compared_report.results.summary, "groups", list)
    with pytest.raises(InterruptedError):
        compared_report.report(sweep, {run.key: [{}] for run in sweep.runs}, tmp_path)
    down = given[-1]
    assert down.keys() == given[2].keys() == {"ASGD", "Synchronous SGD"}
    assert all(len(each) > 0 for each in down.values())


def test_a_run_of_other_code_is_done_anew_and_its_records_are_put_aside(tmp_path, monkeypatch, capsys):
    sweep, session = compared.comparison(tiny.config(), ["asgd"], [4], 1), Session(tmp_path, jobs=1, folder="metrics")
    for run, changed in zip(sweep.runs, ({"rule": "0"}, {}), strict=True):
        code = digests.of_run(resolve(run.settings)) | changed
        session.store.write(run.name, [{"kind": "run", "code": code}, {"kind": "summary", "test_accuracy": 0.5}])
    trained = lambda task, point, send: ([{"kind": "run", "code": task.code[point.key]}, {"kind": "summary"}], 0.0)
    monkeypatch.setattr(executor._Task, "_records", trained)
    monkeypatch.setattr(executor.works, "outcome", lambda *arguments: "done")
    executor.finish([sweep], session)
    said = capsys.readouterr().out
    assert "1 run to do, 1 found; 1 of them anew, since their code or files have changed (rule)" in said
    assert f"their old records go to {tmp_path / 'metrics/superseded'}" in said
    (aside,) = (tmp_path / "metrics/superseded").iterdir()
    assert json.loads(aside.read_text().splitlines()[0])["code"]["rule"] == "0"


def test_values_are_of_the_type_of_their_entry():
    texts = [
        "optimizer.learning_rate=1,0.05,1", "network.mlp.widths=(8,),(16, 16)", "batch_size=8,16",
        "replacement=true,false", "optimizer.clip_norm=none,1.5", "cluster.kind=gamma,exponential",
    ]  # fmt: skip
    assert varied.read(texts, tiny.config()) == {
        "optimizer.learning_rate": [1.0, 0.05],
        "network.mlp.widths": [(8,), (16, 16)],
        "batch_size": [8, 16],
        "replacement": [True, False],
        "optimizer.clip_norm": [None, 1.5],
        "cluster.kind": ["gamma", "exponential"],
    }


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["optimizer.learning_rate"], "must be an entry and its values, as in optimizer.learning_rate=0.01,0.05"),
        (["optimizer.learning_rate="], "must be an entry and its values"),
        (["learning_rate=0.1"], r"sweep=learning_rate must be an entry .* did you mean optimizer\.learning_rate\?"),
        (["batch_size=8,x"], "sweep=batch_size='x' must be of type int, as the entry is"),
        (["batch_size=8.5"], r"sweep=batch_size=8\.5 must be of type int"),
        (["seed=1,2"], "sweep=seed must be left out: a comparison sets it by seeds"),
        (["rule.kind=asgd,dana"], r"sweep=rule\.kind must be left out: a comparison sets it by methods"),
        (["batch_size=8", "batch_size=16"], "sweep=batch_size=16 must be joined with sweep=batch_size=8"),
    ],
)
def test_what_cannot_be_swept_is_named(texts, words):
    with pytest.raises(ValueError, match=words):
        varied.read(texts, tiny.config())


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"optimizer.learning_rate": []}, r"^sweep=optimizer\.learning_rate=\[\] must be at least one value"),
        ({"optimizer.learning_rate": "0.1"}, r"^sweep=optimizer\.learning_rate='0\.1' must be of type float"),
        ({"network.mlp.widths": (8, 8)}, r"^sweep=network\.mlp\.widths=8 must be of type tuple"),
        (["optimizer.learning_rate"], r"^sweep=\['optimizer.learning_rate'\] must be a mapping of entries to their"),
    ],
)
def test_what_are_no_values_is_named(over, words):
    with pytest.raises(ValueError, match=words):
        varied.check(over, tiny.config())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"config": {"epochs": 1}}, r"^config=\{'epochs': 1\} must be a configuration, .* or its file"),
        ({"methods": "agsd"}, "^methods=agsd must be one of"),
        ({"methods": 5}, "^methods=5 must be one of"),
        ({"methods": []}, r"^methods=\[\] must be at least one"),
        ({"num_workers": "4"}, "^num_workers='4' must be a whole number"),
        ({"num_workers": []}, r"^num_workers=\[\] must be at least one"),
        ({"seeds": [0, 1]}, r"^seeds=\[0, 1\] must be a whole number"),
        ({"parts": "nowhere.py"}, "^--parts=nowhere.py must be a Python file"),
    ],
)
def test_a_wrong_argument_is_named(changed, words):
    with pytest.raises(ValueError, match=words):
        sgdlab.compare(**{"methods": ["asgd"], "num_workers": [4], "config": tiny.config(), **changed})


def test_what_tuning_sets_is_not_varied(tmp_path):
    (tmp_path / "tuned.json").write_text(json.dumps({"settings": {"asgd": {"4": {"optimizer.learning_rate": 0.1}}}}))
    for tune, name, words in (
        (4, "batch_size", r"^sweep=batch_size must be left out beside tune=4: each method is tuned once"),
        (
            tmp_path / "tuned.json",
            "optimizer.learning_rate",
            r"^sweep=optimizer\.learning_rate must be left out: tune gives",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            sgdlab.compare(methods="asgd", num_workers=4, config=tiny.config(), tune=tune, sweep={name: [1, 2]})


def test_a_target_that_the_untrained_network_meets_compares_no_times(capsys):
    end = {"diverged": False, "seconds_to_target": 12.0, "epochs_to_target": 0.5}
    found = {key: [{"target": 0.1}, {"kind": "evaluation"}, end] for key in "ab"}
    assert compared_report._with_times(found) == found
    found["b"] = [{"target": 0.1}, end | {"seconds_to_target": 0.0, "epochs_to_target": 0.0}]
    for run, *_, last in compared_report._with_times(found).values():
        assert (run["target"], last["seconds_to_target"], last["epochs_to_target"]) == (None, None, None)
    assert "in 1 of 2 runs the untrained network is there" in capsys.readouterr().out


def test_settings_of_other_methods_are_none_of_a_comparison():
    groups = [
        types.SimpleNamespace(method=method, title=method.upper(), serial=serial, num_workers=count)
        for method, serial, count in (("asgd", True, 1), ("asgd", False, 4), ("dana", False, 4))
    ]
    assert compared_report._chosen(groups, {("asgd", 8): {}, ("adam", 4): {}}) is None
    shown = compared_report._chosen(groups, {("asgd", 4): {"optimizer.momentum": 0.5}})
    assert shown.rows == [["ASGD", "4", "momentum 0.5"], ["DANA", "4", "not tuned"]]


def test_parts_that_were_registered_after_a_configuration_have_entries(monkeypatch):
    config, asked = tiny.config(), []
    with config.unlocked():
        del config.rule.gap_aware  # as if it had come later

    def caught(base, names, counts, seeds, over, **others):
        asked.append((base, over))
        raise InterruptedError

    monkeypatch.setattr(compared, "comparison", caught)
    with pytest.raises(InterruptedError):
        sgdlab.compare(methods="gap_aware", config=config, sweep={"rule.gap_aware.granularity": "layer"})
    [(base, over)] = asked
    assert over == {"rule.gap_aware.granularity": ["layer"]}
    assert base.rule.gap_aware == tiny.config().rule.gap_aware
    assert "gap_aware" not in config.rule  # what a person holds is as it was


def test_a_single_value_needs_no_list(monkeypatch):
    asked = []

    def caught(base, names, counts, seeds, over, **others):
        asked.append((names, counts, dict(over), base.epochs))
        raise InterruptedError

    monkeypatch.setattr(compared, "comparison", caught)
    for changed in (
        {"methods": "asgd", "num_workers": 4, "sweep": {"optimizer.learning_rate": 0.1, "rate.decay": "cosine"}},
        {"methods": "all", "config": pathlib.Path("configs/digits.py")},
    ):
        with pytest.raises(InterruptedError):
            sgdlab.compare(**changed)
    assert asked[0] == (["asgd"], [4], {"optimizer.learning_rate": [0.1], "rate.decay": ["cosine"]}, 20.0)
    assert (len(asked[1][0]), asked[1][1]) == (len(methods.methods()), [8, 32])


def test_runs_are_called_the_same_with_one_worker_and_with_several():
    def named(counts):
        return [str(point) for point in compared.comparison(tiny.config(), ["asgd", "dana"], counts, 1).runs]

    assert named([1])[:2] == ["nag_asgd, 1 worker, seed 0", "asgd, 1 worker, seed 0"]
    assert named([1, 4])[0] == named([4])[0] == "nag_asgd, 1 worker, seed 0"


def test_progress_compares_several_workers_alone_and_keeps_three_digits():
    summary = {"diverged": False, "test_accuracy": 0.5, "seconds": 0.01234, "speedup": 1.0}
    assert work.outcome(work.train, summary | {"num_workers": 1}) == "50.0 %, 0.0123 virtual s"
    assert work.outcome(work.train, summary | {"num_workers": 2}) == "50.0 %, 0.0123 virtual s, 1.00 x sync. SGD"


class TestInPython:
    """`sgdlab.compare` is what the command does, and returns a table."""

    def compared(self, path, **changed):
        given = {"methods": ["asgd", "gap_aware"], "num_workers": [4], "seeds": 2, "config": tiny.config(epochs=0.5)}
        return sgdlab.compare(**given | {"processes": 1, "workdir": path} | changed)

    def test_a_row_a_run_and_a_report(self, tmp_path, monkeypatch, capsys):
        undrawn.leave_undrawn(monkeypatch)
        rates = {"optimizer.learning_rate": [0.02, 0.1]}
        table = self.compared(tmp_path, methods=["asgd", "adam"], sweep=rates)
        assert table.columns.tolist()[:4] == ["method", "num_workers", "seed", "optimizer.learning_rate"]
        assert table.method.value_counts().to_dict() == {"nag_asgd": 4, "asgd": 4, "adam": 4}
        assert table.serial.sum() == 4 + 2
        # Adam does not take the entry: it has one row of each seed, and no value of it, also in the report.
        assert table["optimizer.learning_rate"][table.method == "adam"].isna().all()
        rows = list(csv.DictReader((tmp_path / "sweep.csv").read_text().splitlines()))
        assert [row["optimizer.learning_rate"] for row in rows if row["method"] == "adam"] == ["", ""]
        assert set(table.num_workers[table.serial]) == {1}
        for name in ("report.html", "sweep.csv", "plots/sweep_optimizer_learning_rate.svg"):
            assert (tmp_path / name).exists()
        said = capsys.readouterr().out
        assert f"Report: {tmp_path / 'report.html'}" in said
        assert "Note: adam does not take optimizer.learning_rate, but optimizer.adam_learning_rate" in said
        # Runs are those of a comparison with one of the values alone.
        one = self.compared(tmp_path, methods=["asgd"], config=tiny.config(epochs=0.5, optimizer__learning_rate=0.1))
        assert "4 runs found finished" in capsys.readouterr().out
        part = table[table["optimizer.learning_rate"] == 0.1]
        assert one.test_accuracy.tolist() == part.test_accuracy.tolist()

    def test_what_is_swept_stands_beside_what_was_done(self, tmp_path):
        table = self.compared(None, methods=["asgd"], seeds=1, sweep={"epochs": [0.5, 1.0]})
        assert table.columns.tolist()[:4] == ["method", "num_workers", "seed", "epochs"]
        assert table.epochs.tolist() == [0.5, 1.0] * 2
        assert (table.run_epochs != table.epochs).any()  # at equal time, as many as there are in it

    def test_a_report_is_drawn_again_where_what_it_shows_or_itself_has_changed(self, tmp_path, monkeypatch, capsys):
        undrawn.leave_undrawn(monkeypatch)

        def again():
            self.compared(tmp_path, methods=["asgd"], seeds=1)
            said, page = capsys.readouterr().out, f"Report: {tmp_path / 'report.html'}\n"
            assert said.endswith(page)
            return "Drawing the report" in said, "Nothing to do: 2 runs and their report are up to date" in said

        assert again() == (True, False)
        drawn = (tmp_path / "report.html").stat().st_mtime_ns
        assert again() == (False, True)
        assert (tmp_path / "report.html").stat().st_mtime_ns == drawn
        next((tmp_path / "plots").iterdir()).unlink()
        assert again() == (True, False)
        (tmp_path / "table.csv").write_text("edited")
        assert again() == (True, False)
        record = next((tmp_path / "metrics").glob("asgd-n4-*.jsonl"))
        record.write_text(record.read_text())  # whoever has written it anew may have changed it
        assert again() == (True, False)
        (tmp_path / "drawn.json").write_text("damaged")
        assert again() == (True, False)
        assert again() == (False, True)

    def test_without_a_directory_nothing_is_left(self, tmp_path, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        table = self.compared(None, methods=["asgd"], seeds=1)
        assert table.test_accuracy.between(0, 1).all()
        assert not list(tmp_path.iterdir())

    def test_a_file_is_a_configuration_too(self, tmp_path):
        file = tmp_path / "mine.py"
        file.write_text("from lib import tiny\n\ndef get_config(mode):\n    return tiny.config(epochs=float(mode))\n")
        table = self.compared(None, methods=["asgd"], seeds=1, config=f"{file}:0.25", equal="gradients")
        assert table.gradients.tolist() == [11, 11]

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"methods": ["asgb"]}, "methods=asgb must be one of"),
            ({"num_workers": [0]}, "num_workers=0 must be a whole number of at least 1"),
            ({"seeds": 0}, "seeds=0 must be a whole number"),
            ({"sweep": {"seed": [1]}}, "sweep=seed must be left out"),
            (
                {"methods": ["asgd"], "sweep": {"rule.gap_aware.granularity": ["layer"]}},
                r"gap_aware\.granularity has no effect",
            ),
            ({"config": "nowhere.py"}, r"nowhere\.py"),
            ({"parts": ["nowhere.py"]}, r"--parts=nowhere\.py must be a Python file"),
        ],
    )
    def test_what_cannot_be_is_named(self, changed, words, tmp_path):
        with pytest.raises(ValueError, match=words):
            self.compared(tmp_path, **changed)
        assert not list(tmp_path.iterdir())


def test_names_of_the_work_that_keys_hold_stay():
    """Else runs that are stored would be done anew."""
    assert work.name_of(work.train) == "experiments.harness.training.train"
