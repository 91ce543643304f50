"""Sweeps: what identifies a run, that nothing is done twice, and what survives a kill."""

import collections
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
import sweep_works
from lib import tiny
from sweep_works import MOMENTS, doubled, failing, logged, slow, tripled

from configs import digits
from experiments.harness import Session, Shard, Sweep, goes_by, prepare, within
from sgdlab.errors import RunFailed
from sgdlab.results.records import as_stored
from sgdlab.runs import digests, executor
from sgdlab.runs.executor import Unfinished
from sgdlab.runs.plan import make_plan
from sgdlab.runs.store import Store
from sgdlab.runs.train import train


@pytest.fixture(name="session")
def a_session(tmp_path):
    with within(Session(tmp_path / "papers", jobs=1)) as session:
        yield session


def keys(sweep):
    return [run.key for run in sweep.runs]


def test_a_run_is_identified_by_its_own_settings_alone():
    every = Sweep({"factor": 3}, {"value": [1, 2, 3]}, work=doubled)
    other = Sweep({}, [{"value": 3, "factor": 3}, {"factor": 3, "value": 1}], work=doubled)
    assert keys(other) == [keys(every)[2], keys(every)[0]]
    assert keys(Sweep({"value": 1}, work=doubled)) == keys(Sweep({"value": 1, "factor": 2}, work=doubled))
    assert len({*keys(every), *keys(Sweep({"factor": 2}, {"value": [1, 2, 3]}, work=doubled))}) == 6


def test_the_work_counts():
    assert keys(Sweep({"value": 1}, work=doubled)) != keys(Sweep({"value": 1}, work=tripled))


def test_parts_that_a_configuration_does_not_use_do_not_count():
    config, other = digits.get_config(), digits.get_config()
    other.protocol.timeout.at_least = 0.25
    assert keys(Sweep(config)) == keys(Sweep(other))
    other.protocol.kind = "timeout"
    assert keys(Sweep(config)) != keys(Sweep(other))


def test_the_content_of_files_counts_and_not_their_place(tmp_path):
    def of(name, content):
        (tmp_path / name).write_text(content)
        return keys(Sweep({"log": str(tmp_path / name), "seed": 0}, work=logged, files=("log",)))

    assert of("one", "a") == of("two", "a") != of("one", "b")


def test_finished_runs_are_not_done_again_and_new_ones_move_nothing(session, capsys):
    first = Sweep({}, {"value": [1, 3]}, work=doubled).table()
    assert first["product"].tolist() == [2, 6]
    assert "2 runs to do" in capsys.readouterr().out
    again = Sweep({}, {"value": [3, 2, 1]}, work=doubled).table()
    assert again["product"].tolist() == [6, 4, 2]
    assert "1 run to do, 2 found" in capsys.readouterr().out
    assert set(session.used) == set(keys(Sweep({}, {"value": [1, 2, 3]}, work=doubled)))


def test_a_setting_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="over: colour not of its arguments; doubled takes value, factor"):
        keys(Sweep({"value": 1, "colour": 2}, work=doubled))
    with pytest.raises(ValueError, match="over: value missing"):
        keys(Sweep({}, work=doubled))
    with pytest.raises(
        ValueError, match=r"'cluster\.workers' must be an entry of the base; did you mean cluster.num_workers"
    ):
        keys(Sweep(digits.get_config(), {"cluster.workers": [1]}))


def test_changed_code_is_run_anew(session, monkeypatch, capsys):
    sweep = Sweep({"value": 1}, work=doubled)
    ((_, before),) = sweep.records()
    monkeypatch.setattr(digests, "of_code", lambda function: "other")
    ((_, after),) = sweep.records()
    assert before[0]["code"]["work"] != after[0]["code"]["work"] == "other"
    assert "1 of them anew, since their code or files have changed" in capsys.readouterr().out
    assert len(list(session.path.glob("runs/superseded/*.jsonl"))) == 1


def test_a_changed_part_or_function_that_the_work_goes_by_is_run_anew(session, monkeypatch, capsys):
    of_code = digests.of_code
    for sweep in (Sweep(tiny.config(evaluations=1)), Sweep({"value": 1}, work=goes_by(tripled)(doubled))):
        sweep.records()
        sweep.records()
        assert "\n1 run found finished in" in capsys.readouterr().out
        with monkeypatch.context() as patched:
            patched.setattr(digests, "of_run", lambda config: {"rule": "other"})
            patched.setattr(digests, "of_code", lambda code: "other" if code is tripled else of_code(code))
            sweep.records()
        assert "1 of them anew" in capsys.readouterr().out
    del doubled.code


def test_a_run_whose_files_are_gone_is_done_again(session, tmp_path):
    sweep = Sweep({"log": str(tmp_path / "log"), "seed": 1}, work=logged)
    (sweep.folders()[0] / "checkpoint").unlink()
    assert (sweep.folders()[0] / "checkpoint").read_text() == "whole"
    assert (tmp_path / "log").read_text().count("begins") == 2


def test_two_commands_at_once_do_every_run_once(tmp_path):
    sweep, tables = Sweep({"log": str(tmp_path / "log")}, {"seed": range(6)}, work=slow), []

    def command():
        with within(Session(tmp_path / "papers", jobs=1)):
            tables.append(sweep.table())

    threads = [threading.Thread(target=command) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((tmp_path / "log").read_text().splitlines()) == [f"begins {seed}" for seed in range(6)]
    assert [table["mean"].tolist() for table in tables] == [[0.0, 0.5, 1.0, 1.5, 2.0, 2.5]] * 3
    assert tables[0].counts[3] == [0, 1, 2]
    assert not list((tmp_path / "papers" / "runs" / "under_way").iterdir())


def test_what_is_no_setting_is_named():
    with pytest.raises(ValueError, match=r"settings.value=.* must be a number, a text"):
        keys(Sweep({"value": object()}, work=doubled))


def test_a_folder_that_other_code_has_left_is_not_continued(session, tmp_path, monkeypatch):
    sweep = Sweep({"log": str(tmp_path / "log"), "seed": 4}, work=logged)
    folder = session.store.folder(keys(sweep)[0])
    folder.mkdir(parents=True)
    (folder / "checkpoint").write_text("of an earlier version")
    (folder / "made.json").write_text(json.dumps({"work": "earlier"}))
    assert sweep.table().square.tolist() == [16]
    assert sweep.folders() == [folder]
    assert (folder / "checkpoint").read_text() == "whole"
    assert list((session.store.path / "superseded").glob("*/checkpoint"))


def test_several_sweeps_are_one_pool_and_one_array(tmp_path, capsys):
    """Runs of two works, of which two sweeps share some, are done once each; and by two tasks, half by each."""
    sweeps = (
        Sweep({}, {"value": range(20)}, work=doubled),
        Sweep({}, {"value": range(10, 30)}, work=tripled),
        Sweep({"factor": 2}, {"value": range(5)}, work=doubled),
    )
    with within(Session(tmp_path / "one", jobs=1)) as session:
        prepare(*sweeps)
        seen = capsys.readouterr().out
        assert seen.startswith("40 runs to do\n")
        assert "[40/40]" in seen
        assert len(list(session.path.glob("runs/*.jsonl"))) == 40
        assert sweeps[1].table()["product"].tolist() == [6 * value for value in range(10, 30)]
        assert sweeps[2].table()["product"].tolist() == [2 * value for value in range(5)]
        assert "to do" not in capsys.readouterr().out
        assert len(session.used) == 25  # of the sweeps that were asked for their results
    tasks = []
    for index in (1, 2):
        with within(Session(tmp_path / "two", jobs=1, shard=Shard(index, 2))) as session:
            with contextlib.nullcontext() if index == 2 else pytest.raises(Unfinished, match="of 40 runs are left"):
                prepare(*sweeps)
            tasks.append(len(list(session.path.glob("runs/*.jsonl"))))
    assert tasks[0] > 10
    assert tasks[1] == 40


@pytest.mark.full
def test_what_is_done_together_stays_so_among_other_sweeps(tmp_path):
    with within(Session(tmp_path / "papers", jobs=2)):
        first = Sweep({}, {"factor": [1, 2], "value": [1, 2, 3]}, work=doubled, together=("factor",))
        prepare(first, Sweep({}, {"value": range(4)}, work=tripled))
        assert first.table().groupby("factor").process.nunique().tolist() == [1, 1]


def test_an_error_names_the_run_and_keeps_what_is_finished(session):
    with pytest.raises(RunFailed, match=r"(?s)seed 1 failed.*seed 1 is unlucky"):
        Sweep({}, {"seed": [0, 1, 2]}, work=failing).table()
    assert session.store.read(keys(Sweep({"seed": 0}, work=failing))[0])[-1]["seed_again"] == 0


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, "must return a mapping of results, or several of them; it has returned None"),
        (3.0, "it has returned 3.0"),
        ([], r"it has returned \[\]"),
        ({"files": 7}, "must return no 'files': that is what the store calls its own entry"),
    ],
)
def test_what_is_no_result_is_named(session, returned, words):
    with pytest.raises(RunFailed, match=rf"(?s)returning\b.*{words}"):
        Sweep({}, {"value": [returned]}, work=returning).table()


def returning(*, value):
    return value


def test_what_was_under_way_is_removed_with_the_finished_run(session, tmp_path):
    Sweep({"log": str(tmp_path / "log")}, {"seed": [0, 1]}, work=logged).table()
    assert not list((session.store.path / "under_way").iterdir())


def test_shards_do_every_run_once(tmp_path):
    sweep, path, done = Sweep({}, {"value": range(40)}, work=doubled), tmp_path / "papers", []
    for index in (1, 2, 3):
        with within(Session(path, jobs=1, shard=Shard(index, 3))) as session:
            before = len(list(path.glob("runs/*.jsonl")))
            with contextlib.nullcontext() if index == 3 else pytest.raises(Unfinished, match="left to other shards"):
                sweep.table()
            done.append(len(list(path.glob("runs/*.jsonl"))) - before)
    assert sum(done) == 40
    assert min(done) > 4
    with within(Session(path, jobs=1)):
        assert sweep.table()["product"].tolist() == list(range(0, 80, 2))
    assert session.shard == Shard.of("3/3")


@pytest.mark.parametrize("text", ["-1/2", "3/2", "2", "a/b", "1/0", "0/0", "1/2/3", ""])
def test_a_shard_that_cannot_be_is_refused(text):
    with pytest.raises(ValueError, match="must be like 2/8"):
        Shard.of(text)


def test_training_equals_a_single_run_and_shares_one_program(session, monkeypatch, compilations):
    """Two seeds and two rates are one compiled program; each run is what `train` makes of it alone."""
    config = tiny.config(network__mlp__widths=(7,))  # which no other test has compiled
    points = [(0.05, 0), (0.05, 1), (0.1, 0)]
    over = [{"optimizer.learning_rate": rate, "seed": seed} for rate, seed in points]
    write, after = Store.write, []
    monkeypatch.setattr(Store, "write", lambda *given: (write(*given), after.append(len(compilations))))
    records = [found for _, found in Sweep(config, over).records()]
    assert after[0] > 0
    assert after == [after[0]] * 3
    for (rate, seed), found in zip(points, records, strict=True):
        config.optimizer.learning_rate, config.seed = rate, seed
        alone = [as_stored(record) for record in train(make_plan(config)).records]
        assert len(found) == len(alone) > 2
        for ours, theirs in zip(found[1:], alone[1:], strict=True):
            del theirs["kind"]
            theirs.pop("compute_seconds", None)
            for name, value in theirs.items():
                assert ours[name] == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value), name


def test_evaluations_have_a_row_each(session):
    config = tiny.config()
    config.evaluations = 3
    table = Sweep(config, {"seed": [0, 1]}).evaluations()
    assert table.groupby("seed").size().tolist() == [4, 4]  # the first is that of the initial parameters
    assert table.gradients.is_monotonic_increasing is False
    assert {"seed", "test_accuracy", "seconds"} <= set(table.columns)


def command(tmp_path, jobs, die_at=""):
    here = pathlib.Path(sweep_works.__file__)
    environment = os.environ | {"DIE_AT": die_at, "PYTHONPATH": f"{here.parents[2]}{os.pathsep}{here.parent}"}
    line = [sys.executable, str(here), str(tmp_path / "papers"), str(tmp_path / "log"), str(jobs)]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.full
def test_a_sweep_that_is_killed_loses_only_the_run_under_way(tmp_path):
    """Kill -9 at three moments of three runs, chosen by injected faults: no run lost, none done twice, no half file."""
    runs = tmp_path / "papers" / "runs"
    for number, moment in enumerate(MOMENTS, start=1):
        ended = command(tmp_path, 1, f"{moment}, {number}")
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        finished = [json.loads(file.read_text().splitlines()[-1]) for file in runs.glob("*.jsonl")]
        assert all(record["kind"] == "summary" for record in finished)
        assert len(finished) == number + (moment == "after the rename")
    ended = command(tmp_path, 1)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip().splitlines()[-1] == str([seed**2 for seed in range(6)])
    counts = collections.Counter((tmp_path / "log").read_text().splitlines())
    # A run that was killed at work, or before its records had their name, is begun again; no other is.
    assert [counts[f"begins {seed}"] for seed in range(6)] == [1, 2, 2, 1, 1, 1]
    assert [counts[f"ends {seed}"] for seed in range(6)] == [1, 1, 2, 1, 1, 1]
    assert len(list(runs.glob("*.jsonl"))) == 6
    assert not list(runs.glob("superseded/*"))


@pytest.mark.full
def test_an_interrupted_sweep_leaves_no_process_behind(tmp_path):
    log = tmp_path / "log"
    code = (
        "import pathlib, sweep_works; from experiments.harness import Session, Sweep, within\n"
        "if __name__ == '__main__':\n"
        f"    with within(Session(pathlib.Path({str(tmp_path / 'papers')!r}), jobs=2)):\n"
        f"        Sweep({{'log': {str(log)!r}}}, {{'seed': [1, 2]}}, work=sweep_works.watched).table()\n"
    )
    script = tmp_path / "interrupted.py"
    script.write_text(code)
    here = pathlib.Path(sweep_works.__file__)
    environment = os.environ | {"PYTHONPATH": f"{here.parents[2]}{os.pathsep}{here.parent}"}
    process = subprocess.Popen([sys.executable, str(script)], env=environment, stderr=subprocess.DEVNULL)
    while not log.exists() or len(log.read_text().splitlines()) < 2:
        time.sleep(0.05)
        assert process.poll() is None
    children = [int(line.split()[1]) for line in log.read_text().splitlines()]
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)  # a run takes longer
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)


def test_gradients_are_counted_for_progress(session, monkeypatch):
    seen = []

    class Seen(executor.pool.Progress):
        def take(self, message):
            seen.append(message)
            super().take(message)

    monkeypatch.setattr(executor.pool, "Progress", Seen)
    config = tiny.config()
    [(_, records)] = Sweep(config).records()
    assert sum(message.gradients for message in seen) == records[-1]["gradients"]
    assert seen[-1].result.endswith("x sync. SGD")
