"""The results for a recorded trace: figures equal independent computations, files are whole, commands run."""

import base64
import csv
import html.parser
import re
import shlex

import numpy as np
import pytest
from toy_traces import STEPS, WORKERS, saved, toy

from sgdlab import protocols
from sgdlab.advice import findings, next_steps, publish, recording, sentences, tuning
from sgdlab.commands import launch, timeline

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
    found = findings.find(parts, directory / "out/model", most_steps=20, seed=0)
    commands = next_steps.commands(parts, found.verdict.chosen, str(trace), str(directory / "out"))
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


def test_the_second_worker_is_the_straggler_that_the_choice_leaves_out(found):
    results, _ = found
    assert results.stragglers.persistent.tolist() == [1]
    assert results.verdict.chosen.backups == 1
    text = dict(sentences.all_of(results))
    assert "w1" in text["Stragglers"]
    assert not re.search("w[0234]", text["Stragglers"])
    line = results.table.line(results.verdict.chosen, "throughput")
    assert f"{line.relative:.3f} ({line.low:.3f}-{line.high:.3f})" in text["Recommendation"]


def test_all_files_are_written(found):
    directory = found[1] / "out"
    for name in ("runtimes", "protocols", "backups", "idle", "predictions"):
        for kind in ("png", "svg"):
            assert (directory / f"{name}.{kind}").stat().st_size > 0
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
    assert len(references.found) == 5
    prefix = "data:image/svg+xml;base64,"
    for reference in references.found:
        assert reference.startswith(prefix)
        picture = base64.b64decode(reference.removeprefix(prefix)).decode()
        linked = re.findall(r'(?:href|src)="([^"]*)"', picture) + re.findall(r"url\(([^)]*)\)", picture)
        assert all(link.startswith(("#", "data:")) for link in linked)
    assert "url(" not in page
    assert "@import" not in page


def test_the_proposed_command_draws_every_protocol_that_flags_select(found, monkeypatch, capsys):
    results, directory = found
    monkeypatch.chdir(directory)
    selected = [protocol for protocol in results.table.comparison.protocols if protocol.flags]
    assert {protocol.title for protocol in selected} >= {"full synchrony", "deep Markov cutoff", "asynchrony"}
    for protocol in selected:
        pairs = next_steps.commands(results.parts, protocol, "toy.csv", "drawn")
        (line,) = [shlex.split(command) for _, command in pairs if command.startswith("sgdlab timeline ")]
        code = launch.answer(timeline.main, timeline.__doc__, line[1:], define=timeline.define_flags)
        assert code == 0, capsys.readouterr().err
        assert (directory / "drawn/timeline/timeline.svg").is_file()
        (directory / "drawn/timeline/timeline.svg").unlink()
