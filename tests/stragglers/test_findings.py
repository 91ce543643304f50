"""The results for a recorded trace: figures equal independent computations, files are whole, commands run."""

import base64
import csv
import dataclasses
import html.parser
import json
import re
import shlex

import numpy as np
import pytest
from toy_traces import STEPS, WORKERS, saved, toy

from sgdlab import deep_markov, predictors, protocols, traces
from sgdlab.commands import timeline, train
from sgdlab.schedule import Schedule
from sgdlab.stragglers import findings, recording
from sgdlab.stragglers.answer import headline, next_steps, publish, rules
from sgdlab.stragglers.comparison import tuning
from sgdlab.stragglers.comparison.comparison import ComparisonSettings

# ml_collections loads a configuration's file by an importer's method that Python is about to drop.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)


@pytest.fixture(scope="module", name="found")
def found_once(tmp_path_factory):
    """The results of the toy trace, and the directory that they are written to."""
    directory = tmp_path_factory.mktemp("advice")
    trace = saved(directory / "toy.csv", toy())
    parts = recording.read(trace, train_share=0.5)
    found = findings.gather_findings(
        parts, directory / "out/model", settings=ComparisonSettings("yes", most_steps=20), report=lambda line: None
    )
    commands = next_steps.commands(found, "out")
    publish.write(directory / "out", found, commands)
    return found, directory


@pytest.fixture(scope="module", name="rows")
def rows_of_csv(found):
    with (found[1] / "out/advice.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    def select(protocol, objective="throughput", **wanted):
        matching = [row for row in rows if row["protocol"] == protocol and row["objective"] == objective]
        return [row for row in matching if all(row[name] == str(value) for name, value in wanted.items())]

    return select


@pytest.mark.full
def test_full_synchrony_and_backup_workers_equal_sorted_run_times(rows):
    test = toy()[STEPS // 2 :]
    ordered = np.sort(test, axis=1)
    base = ordered.size / ordered[:, -1].sum()
    (full,) = rows("full synchrony")
    assert float(full["gradients_per_second"]) == pytest.approx(base)
    assert float(full["idle"]) == pytest.approx(1 - test.sum() / (WORKERS * ordered[:, -1].sum()))
    for b in range(1, WORKERS):
        closes = ordered[:, WORKERS - 1 - b]
        (row,) = rows("backups, interrupted", backups=b)
        assert float(row["relative"]) == pytest.approx((WORKERS - b) * len(test) / closes.sum() / base)
        assert float(row["iteration_seconds"]) == pytest.approx(closes.mean())
        busy = np.minimum(test, closes[:, None])
        discarded = (busy * (test > closes[:, None])).sum()
        assert float(row["lost_work"]) == pytest.approx(discarded / busy.sum())
        (row,) = rows("backups, finishing", backups=b)
        schedule = protocols.backup_workers(test, backups=b)
        assert float(row["gradients_per_second"]) == pytest.approx(schedule.gradients_per_second())
        assert float(row["waited_for"]) == pytest.approx(WORKERS - b)


@pytest.mark.long("its fixture compares protocols on a whole recording")
def test_asynchrony_is_an_endless_run(rows):
    (row,) = rows("asynchrony")
    endless = protocols.asynchronous(np.tile(toy()[STEPS // 2 :], (50, 1))).gradients_per_second()
    assert float(row["gradients_per_second"]) == pytest.approx(endless, rel=2e-3)


def test_oracles_are_the_best_of_each_iteration_and_of_the_run(rows):
    ordered = np.sort(toy()[STEPS // 2 :], axis=1)
    (row,) = rows("oracle")
    count = np.arange(1, WORKERS + 1)
    best = (count / ordered).argmax(axis=1)
    rate = (best + 1).sum() / ordered[np.arange(len(best)), best].sum()
    assert float(row["gradients_per_second"]) == pytest.approx(rate)
    # No constant price of a second gives more gradients per second over the run.
    (row,) = rows("oracle", "rate")
    prices = np.linspace(0, 2 * rate, 4001)
    chosen = (count - prices[:, None, None] * ordered).argmax(axis=2)
    seconds = np.take_along_axis(ordered.T[None], chosen[:, None], axis=1)[:, 0]
    assert float(row["gradients_per_second"]) == pytest.approx(((chosen + 1).sum(1) / seconds.sum(1)).max(), rel=1e-12)


def test_every_predictor_lies_between_its_bounds(rows):
    for title in ("median + k MAD", "running mean", "Elfving", "Kalman filter", "deep Markov cutoff"):
        paper, rate = rows(title) + rows(title, "rate")
        assert float(paper["low"]) <= float(paper["relative"]) <= float(paper["high"])
        assert 0 < float(rate["share_of_oracle"]) <= 1 + 1e-12
    tuned = tuning.static(toy()[: STEPS // 2])
    assert len(rows("backups, interrupted", role="deployable", backups=WORKERS - tuned)) == 1
    (full,) = rows("full synchrony")
    assert (full["relative"], full["low"], full["high"]) == ("1.0", "1.0", "1.0")


def test_the_second_worker_is_the_straggler_and_comes_first(found):
    results, _ = found
    assert results.diagnosis.causes[0].workers == (1,)
    said = headline.headline(results)
    assert "w1" in said.problem
    assert not re.search("w[0234]", str(said))
    test = toy()[STEPS // 2 :]
    others = np.delete(test, 1, axis=1)
    gain = (others.size / others.max(axis=1).sum()) / (test.size / test.max(axis=1).sum())
    (row,) = [row for row in results.comparison.by_role("drained") if row.without == (1,)]
    assert results.table.relative(row.result)[0] == pytest.approx(gain)
    assert f"{gain:.2f}" in said.problem


def test_all_files_are_written(found):
    directory = found[1] / "out"
    for name in ("runtimes", "protocols", "backups", "idle", "predictions", "histories", "window"):
        for kind in ("png", "svg"):
            assert (directory / f"{name}.{kind}").stat().st_size > 0
    answer = json.loads((directory / "advice.json").read_text())
    assert answer["causes"][0]["workers"] == ["w1"]
    assert {row["role"] for row in answer["protocols"]} >= {"deployable", "drained", "asynchronous", "ceiling"}
    assert "| full synchrony" in (directory / "advice.md").read_text()
    assert (directory / "model/model.json").is_file()
    assert not list(directory.glob(".*"))


class _References(html.parser.HTMLParser):
    """Collects everything that a browser would fetch."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "link", "iframe", "base")
        self.found += [value for name, value in attrs if name in ("src", "href", "srcset", "data", "poster")]


def test_the_page_refers_to_nothing_outside(found):
    page = (found[1] / "out/advice.html").read_text()
    references = _References()
    references.feed(page)
    assert len(references.found) == len(list((found[1] / "out").glob("*.svg")))
    prefix = "data:image/svg+xml;base64,"
    for reference in references.found:
        assert reference.startswith(prefix)
        picture = base64.b64decode(reference.removeprefix(prefix)).decode()
        linked = re.findall(r'(?:href|src)="([^"]*)"', picture) + re.findall(r"url\(([^)]*)\)", picture)
        assert all(link.startswith(("#", "data:")) for link in linked)
    assert "url(" not in page
    assert "@import" not in page


def chosen_instead(results, protocol):
    return dataclasses.replace(results, verdict=dataclasses.replace(results.verdict, chosen=protocol))


def commands_of(results, name):
    pairs = next_steps.commands(results, "drawn")
    (line,) = [shlex.split(command) for _, command in pairs if command.startswith(f"sgdlab {name} ")]
    return line[1:]


def answered(results, protocol):
    """Writes the compute times that the commands for a protocol use."""
    recorded = next_steps.answered(results.parts, protocol)
    recorded.save("drawn/answered.parquet")
    return recorded


def run(module, line, *more):
    return module.COMMAND.answer([*line, *more])


@pytest.mark.full
def test_the_proposed_drawing_drops_what_the_page_says(found, monkeypatch, tmp_path, capsys):
    results, directory = found
    monkeypatch.chdir(tmp_path)
    (tmp_path / "drawn").mkdir()
    (tmp_path / "out").symlink_to(directory / "out")
    titles = ("backups, interrupted", "backups, finishing", "median + k MAD", "deep Markov cutoff")
    selected = [row for row in results.comparison.protocols if row.flags and row.title in titles]
    assert len(selected) == len(titles)
    for protocol in selected:
        line = commands_of(chosen_instead(results, protocol), "timeline")
        line = [word if "model" not in word else word.replace(str(directory), str(tmp_path)) for word in line]
        recorded = answered(results, protocol)
        assert recorded.steps[protocol.warm_up] == results.parts.test_steps[0]
        assert run(timeline, line, f"--steps={STEPS}") == 0, capsys.readouterr().err
        schedule = Schedule.load("drawn/timeline/schedule.npz")
        used = np.bincount(schedule.update[schedule.used()[:, 0], 0])
        if protocol.title == "deep Markov cutoff":  # the draws of a run are its own
            assert used[: protocol.warm_up].tolist() == [WORKERS] * protocol.warm_up
            assert used.size == protocol.warm_up + len(results.parts.test)
            continue
        expected = [WORKERS] * protocol.warm_up + protocol.result.gradients[:, 0].tolist()
        assert used.tolist() == expected[: used.size]
        assert used.size >= 0.7 * len(expected)  # workers that finish dropped gradients run out of rows


@pytest.mark.full
def test_the_proposed_training_runs_on_the_same_steps(found, monkeypatch, tmp_path, capsys):
    results, _ = found
    monkeypatch.chdir(tmp_path)
    (fixed,) = [p for p in results.comparison.protocols if p.title == "backups, interrupted" and p.flags]
    line = commands_of(chosen_instead(results, fixed), "train")
    (tmp_path / "drawn").mkdir()
    recorded = answered(results, fixed)
    small = ("--config.evaluations=1", "--config.network.kind=mlp", "--config.network.mlp.widths=(8,)")
    assert run(train, line, *small) == 0, capsys.readouterr().err
    schedule = Schedule.load("drawn/digits/schedule.npz")
    used = np.bincount(schedule.update[schedule.used()[:, 0], 0])
    assert used[0] == WORKERS  # its warm-up
    assert set(used[1:-1]) == {WORKERS - fixed.backups}
    ordered = np.sort(recorded.runtimes, axis=1)
    np.testing.assert_allclose(np.diff(schedule.applied[:-1, 0]), ordered[1 : used.size - 1, used[1] - 1], rtol=1e-6)


def test_answered_steps_are_read_back_as_they_were_evaluated(found, tmp_path):
    results, _ = found
    path = tmp_path / "answered.parquet"
    next_steps.answered(results.parts, results.verdict.chosen).save(path)
    again = traces.read(path)
    np.testing.assert_array_equal(again.runtimes[-len(results.parts.test) :], results.parts.test)
    assert again.workers == results.parts.workers


def test_the_loop_of_the_learned_model_waits_as_it_was_measured(found):
    results, directory = found
    (deep,) = [p for p in results.comparison.protocols if p.title == "deep Markov cutoff"]
    counts, rows = [], iter(results.parts.test)

    def first_arrivals(params, count):
        row = next(rows)
        counts.append(count)
        return np.where(row <= np.sort(row)[count - 1], row, np.nan), [params] * count

    names = {"steps": range(len(results.parts.test)), "history": deep.history, "params": 0}
    names |= {"first_arrivals": first_arrivals, "update": lambda params, mean: params, "mean": len}
    code = rules.loop(deep, WORKERS, model=directory / "out/model")
    exec(compile(code, "loop", "exec"), names)
    saved_model = deep_markov.DeepMarkov(deep_markov.TrainedModel.load(directory / "out/model"))
    again = predictors.run_online(results.parts.test, predictors.Guarded(saved_model), history=deep.history)
    assert counts == again.cutoff.tolist()
