"""A run directory: claimed by its first finished run, shared by runs that agree, refused to all others."""

import json
import math

import pytest

from sgdlab.results import summary
from sgdlab.results.directory import OtherConfiguration, RunDirectory, put_aside

SHARED = {"epochs": 2, "cluster": {"heterogeneous": True}, "widths": (1, 2)}
MADE = {"version": "0.4.0", "commit": "abc", "jax": "0.10.2", "device": "cpu"}
SUMMARY = {"kind": "summary", "loss": 0.5}


def stored(path):
    return json.loads((path / "config.json").read_text())


class TestClaiming:
    def test_nothing_is_written_before_the_first_finished_run(self, tmp_path):
        directory = RunDirectory(tmp_path / "a" / "runs", SHARED, MADE)
        assert directory.read("one") is None
        assert directory.changed_since() is None
        assert list(tmp_path.iterdir()) == []
        directory.write("one", [{"kind": "run"}, SUMMARY])
        assert stored(tmp_path / "a" / "runs") == {"config": SHARED | {"widths": [1, 2]}, "made": MADE}

    def test_a_process_that_does_not_write_leaves_all_as_it_is(self, tmp_path):
        RunDirectory(tmp_path, SHARED, MADE).write("one", [{"kind": "run"}, SUMMARY])
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        directory = RunDirectory(tmp_path, SHARED | {"epochs": 3}, MADE, writes=False)
        directory.claim()
        with directory.under_way("one") as write:
            write({"kind": "run"})
        directory.write("one", [{"kind": "run"}, SUMMARY | {"loss": 0.25}])
        directory.tidy()
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        assert directory.read("one") == [{"kind": "run"}, SUMMARY]

    def test_records_that_cannot_be_written_claim_nothing(self, tmp_path):
        directory = RunDirectory(tmp_path / "runs", SHARED)
        with pytest.raises(TypeError):
            directory.write("one", [{"kind": "summary", "loss": object()}])
        assert list(tmp_path.iterdir()) == []

    def test_it_can_be_claimed_for_other_files(self, tmp_path):
        RunDirectory(tmp_path, SHARED, MADE).claim()
        (tmp_path / "parameters.npz").write_bytes(b"")
        RunDirectory(tmp_path, SHARED, MADE).claim()
        assert stored(tmp_path)["made"] == MADE

    def test_what_a_kill_left_behind_does_not_count(self, tmp_path):
        (tmp_path / ".config.json.abc.part").write_text("{")
        RunDirectory(tmp_path, SHARED).write("one", [SUMMARY])
        assert RunDirectory(tmp_path, SHARED).read("one") == [SUMMARY]


class TestSharing:
    def test_finished_runs_are_found_again(self, tmp_path):
        RunDirectory(tmp_path, SHARED).write("one", [{"kind": "run", "config": {"rate": math.inf}}, SUMMARY])
        again = RunDirectory(tmp_path, SHARED)
        assert again.read("one") == [{"kind": "run", "config": {"rate": None}}, SUMMARY]
        lines = (tmp_path / "metrics/one.jsonl").read_text().splitlines()
        assert [json.loads(line)["kind"] for line in lines] == ["run", "summary"]
        assert summary.read(tmp_path) == [again.read("one")]

    def test_entries_of_parts_that_others_do_not_use_are_added(self, tmp_path):
        RunDirectory(tmp_path, {"epochs": 2, "rule": {"dana": {"momentum": 0.9}}}).write("dana", [SUMMARY])
        other = RunDirectory(tmp_path, {"epochs": 2, "rule": {"adam": {"b1": 0.9}}, "seed": 1})
        before = stored(tmp_path)
        assert before["config"] == {"epochs": 2, "rule": {"dana": {"momentum": 0.9}}}
        other.write("adam", [SUMMARY])
        rule = {"dana": {"momentum": 0.9}, "adam": {"b1": 0.9}}
        assert stored(tmp_path)["config"] == {"epochs": 2, "rule": rule, "seed": 1}

    def test_an_entry_added_by_a_run_binds_those_that_come_after(self, tmp_path):
        early = RunDirectory(tmp_path, {"rule": {"adam": {"b1": 0.8}}})
        RunDirectory(tmp_path, {"rule": {"adam": {"b1": 0.9}}}).write("adam", [SUMMARY])
        with pytest.raises(OtherConfiguration, match=r"config\.rule\.adam\.b1=0\.9, not 0\.8"):
            early.write("late", [SUMMARY])
        assert early.read("late") is None

    def test_the_first_runs_provenance_is_kept(self, tmp_path):
        RunDirectory(tmp_path, SHARED, MADE).write("one", [SUMMARY])
        assert RunDirectory(tmp_path, SHARED, MADE | {"device": "gpu"}).changed_since() is None
        later = RunDirectory(tmp_path, SHARED, MADE | {"version": "0.5.0", "commit": None})
        assert all(word in later.changed_since() for word in ("0.4.0", "abc", "0.5.0", "unknown"))
        assert "\n" not in later.changed_since()
        later.write("two", [SUMMARY])
        assert stored(tmp_path)["made"] == MADE


class TestRefusing:
    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"cluster": {"heterogeneous": False}}, r"config\.cluster\.heterogeneous=True, not False"),
            ({"cluster": 1}, r"config\.cluster="),
            ({"widths": (1, 3), "epochs": 3}, r"config\.epochs=2, not 3"),
        ],
    )
    def test_another_configuration_by_its_first_difference(self, tmp_path, changed, message):
        RunDirectory(tmp_path, SHARED).write("one", [SUMMARY])
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        with pytest.raises(OtherConfiguration, match=message):
            RunDirectory(tmp_path, SHARED | changed)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before

    def test_a_finished_run_of_another_identity(self, tmp_path):
        config = {"rate": 0.1, "rule": {"momentum": 0.9}}
        directory = RunDirectory(tmp_path, {"rate": 0.1})
        directory.write("one", [{"kind": "run", "config": config}, SUMMARY])
        assert directory.read("one", identity=config)[-1] == SUMMARY
        assert directory.read("two", identity=config) is None
        for other, entry in (
            ({"rate": 0.1, "rule": {"momentum": 0.8}}, r"config\.rule\.momentum=0\.9, not 0\.8"),
            ({"rate": 0.1}, r"config\.rule\.momentum=0\.9, not none"),
            (config | {"warm_up": 5}, r"without config\.warm_up, not 5"),
        ):
            with pytest.raises(OtherConfiguration, match=entry):
                directory.read("one", identity=other)

    def test_foreign_directories_and_files(self, tmp_path):
        thesis = tmp_path / "thesis.tex"
        thesis.write_text("years of work")
        for path in (tmp_path, thesis, thesis / "runs"):
            with pytest.raises(OtherConfiguration, match="--workdir="):
                RunDirectory(path, SHARED)
        assert list(tmp_path.iterdir()) == [thesis]

    @pytest.mark.parametrize("text", ["", "[]", '{"epochs": 2}', '{"config": {}}'])
    def test_a_config_of_an_earlier_version_or_of_something_else(self, tmp_path, text):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(OtherConfiguration, match=r"config\.json"):
            RunDirectory(tmp_path, {"epochs": 2})


@pytest.mark.parametrize("text", ["", "1\n", '{"kind": "run"}\n', '{"kind": "run"}\n{"kind": "summ'])
def test_a_half_written_file_does_not_count(tmp_path, text):
    directory = RunDirectory(tmp_path, SHARED)
    directory.metrics_path("one").parent.mkdir()
    directory.metrics_path("one").write_text(text)
    assert directory.read("one") is None
    assert summary.read(tmp_path) == []


def test_only_directories_of_runs_are_read(tmp_path):
    with pytest.raises(ValueError, match="directory="):
        summary.read(tmp_path)


class TestRunAnew:
    """Finished runs are never lost, and those that are run anew do not bind the directory."""

    def finished(self, path, shared, name, records=None, **options):
        directory = RunDirectory(path, shared, MADE, **options)
        directory.write(name, records or [{"kind": "run", "config": shared}, {"kind": "summary", "test_accuracy": 0.5}])
        return directory

    def test_each_old_run_is_put_aside_under_a_number_of_its_own(self, tmp_path):
        for value in range(3):
            records = [{"kind": "run", "config": {"a": 1}}, {"kind": "summary", "value": value}]
            self.finished(tmp_path, {"a": 1}, "x", records)
        aside = {path.name: json.loads(path.read_text().splitlines()[-1])["value"] for path in aside_of(tmp_path)}
        assert aside == {"x.1.jsonl": 0, "x.2.jsonl": 1}
        assert RunDirectory(tmp_path, {"a": 1}, MADE).read("x")[-1]["value"] == 2

    def test_an_old_run_stands_until_the_new_one_does(self, tmp_path, monkeypatch):
        directory = self.finished(tmp_path, {"a": 1}, "x")

        def full(*arguments):
            raise OSError("no space left")

        monkeypatch.setattr("os.replace", full)
        with pytest.raises(OSError, match="no space left"):
            directory.write("x", [{"kind": "summary", "test_accuracy": 0.9}])
        assert directory.read("x")[-1]["test_accuracy"] == 0.5

    def test_what_is_put_aside_frees_its_entries(self, tmp_path):
        self.finished(tmp_path, {"a": 1, "rule": {"mine": {"cap": 3}}}, "mine")
        self.finished(tmp_path, {"a": 1}, "other")
        with pytest.raises(OtherConfiguration, match=r"config\.rule\.mine\.cap=3, not 4"):
            RunDirectory(tmp_path, {"a": 1, "rule": {"mine": {"cap": 4}}}, MADE)
        assert put_aside(tmp_path, ["mine", "missing"]) == 1
        assert RunDirectory(tmp_path, {"a": 1}, MADE).read("mine") is None
        self.finished(tmp_path, {"a": 1, "rule": {"mine": {"cap": 4}}}, "mine")
        with pytest.raises(OtherConfiguration, match=r"config\.a=1, not 2"):
            RunDirectory(tmp_path, {"a": 2}, MADE)

    def test_runs_that_will_be_superseded_do_not_bind(self, tmp_path):
        self.finished(tmp_path, {"a": 1, "rule": {"mine": {"cap": 3}}}, "mine")
        self.finished(tmp_path, {"a": 1}, "other")
        changed = {"a": 1, "rule": {"mine": {"cap": 4, "new": True}}}
        directory = self.finished(tmp_path, changed, "mine", superseding=["mine"])
        assert json.loads((tmp_path / "config.json").read_text())["config"] == changed
        assert directory.read("mine", identity=changed)
        with pytest.raises(OtherConfiguration, match=r"config\.a=1, not 2"):
            RunDirectory(tmp_path, {"a": 2}, MADE, superseding=["mine"])

    def test_what_is_under_way_claims_nothing_and_stays_of_a_killed_run(self, tmp_path):
        first = RunDirectory(tmp_path, {"a": 1}, MADE)
        with first.under_way("x") as append, first.under_way("y") as other:
            append({"kind": "run", "gap": float("nan")})
            other({"kind": "run"})
            (x, y) = sorted((tmp_path / "metrics/under_way").iterdir())
            assert json.loads(x.read_text()) == {"kind": "run", "gap": None}  # at once, not at the end
        assert first.read("x") is None
        second = self.finished(tmp_path, {"a": 2}, "x")  # another configuration
        assert [path.name for path in (tmp_path / "metrics/under_way").iterdir()] == [y.name]
        second.tidy()
        assert y.exists()
        second.write("y", [{"kind": "summary"}])
        second.tidy()
        assert not (tmp_path / "metrics/under_way").exists()

    def test_errors_of_a_run_are_not_said_of_the_directory(self, tmp_path):
        with pytest.raises(PermissionError, match="somewhere else"), RunDirectory(tmp_path, {}, MADE).under_way("x"):
            raise PermissionError("somewhere else")


def aside_of(path):
    return sorted((path / "metrics/superseded").iterdir())
