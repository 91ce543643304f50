"""Weak synchronization at toy size: the model of the cluster, what is kept, the tables and the figures."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from experiments import figure
from experiments.weak_sync import blocks_behind, digits_runs, figure2, figures3_4, kept, simulation, table1
from experiments.weak_sync.simulation import SETTINGS, Case, Cluster, Setting
from sgdlab.errors import UsageError
from sgdlab.results.directory import RunDirectory

ROOT = pathlib.Path(__file__).parents[2]
TOY = Cluster(num_workers=32, iterations=6)


def test_the_model_is_what_it_says():
    cluster = Cluster(iterations=2000)
    runtimes = cluster.runtimes(0)
    assert runtimes.shape == (2000, 32)
    error = 5 / np.sqrt(runtimes.size)
    assert runtimes.mean() == pytest.approx(cluster.mean_seconds, rel=error * cluster.variation)
    assert runtimes.std() / runtimes.mean() == pytest.approx(cluster.variation, rel=error)
    assert cluster.delays(False).late_share == 0
    assert cluster.delays(True).late_share == cluster.late_share
    assert Cluster(num_workers=1, late_share=0.5).share_with_late(2) == 0.75


def test_without_delays_waiting_for_all_costs_the_slowest_worker():
    cluster = dataclasses.replace(TOY, base_seconds=0.0)
    schedule = cluster.schedule(Case(SETTINGS[0], False, 0, num_servers=2))
    np.testing.assert_allclose(schedule.applied[:, 0], np.cumsum(cluster.runtimes(0).max(axis=1)))


def test_finished_simulations_are_not_run_again(tmp_path, monkeypatch):
    cases = [Case(setting, True, 0, num_servers=4) for setting in SETTINGS[2:]]
    first = simulation.simulate(TOY, cases[:1], tmp_path, processes=1)
    done = []
    monkeypatch.setattr(simulation, "_simulated", lambda job: done.append(job[1]) or [{"kind": "summary"}])
    again = simulation.simulate(TOY, cases, tmp_path, processes=1)
    assert done == cases[1:]
    assert again[cases[0]] == first[cases[0]]


def _square(number):
    return [{"kind": "summary", "square": number**2}]


def test_several_processes_keep_the_same(tmp_path, capsys):
    jobs = {f"job{i}": i for i in range(3)}
    directory = RunDirectory(tmp_path / "runs", {})
    found = kept.run_missing(jobs, _square, directory, processes=2, what="squares")
    assert {name: records[-1]["square"] for name, records in found.items()} == {n: i**2 for n, i in jobs.items()}
    assert directory.read("job2") == found["job2"]
    assert "3 squares to do, 0 found" in capsys.readouterr().out


def test_running_times_beside_the_paper(tmp_path):
    cases = table1.time_cases(1)
    runs = simulation.simulate(dataclasses.replace(TOY, iterations=2), cases, tmp_path, processes=2)
    rows = table1.times(runs, 1)
    assert [row["paper, %"] for row in rows[:4]] == ["0.0", "-17.5", "-30.0", "-31.7"]
    assert [(row["servers"], row["expected, %"]) for row in rows[4:]] == [
        (64, "0.0"), (64, "-15.0"), (64, "-28.8"), (64, "-29.5"),
    ]  # fmt: skip
    assert rows[0]["reduction, %"] == "0.0"
    assert any("81 % of the iterations" in sentence for sentence in table1.time_reading(TOY, runs, 1))


def test_every_setting_makes_as_many_updates_and_the_rate_is_linear_in_its_gradients():
    for setting in SETTINGS:
        case = Case(setting, False, 0, num_servers=4)
        plan = digits_runs.make_plan(TOY, case, 0.1)
        assert plan.schedule.num_updates == TOY.iterations == plan.rates.size
        assert plan.rates[0] == pytest.approx(0.1 / TOY.num_workers)
        assert plan.rates[-1] == pytest.approx(0.01 * plan.rates[0])
        assert plan.num_gradients >= TOY.iterations * setting.push_at_least
        assert plan.config.protocol.partial.push_at_least == setting.push_at_least


def test_the_perceptron_has_room_for_32_servers():
    assert digits_runs.most_blocks(TOY, Case(SETTINGS[0], False, 0)) == 32


def test_errors_and_curves(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(digits_runs, "most_blocks", lambda cluster, case: 2)
    groups = table1.trained(TOY, tmp_path, seeds=1, learning_rate=0.1, processes=1)
    rows = table1.errors(groups)
    assert [row["paper, points"] for row in rows] == ["+0.00", "+1.30", "+0.86", "+14.35"]
    ends = [figures3_4.curve(group)[0][-1] for group in groups[True]]
    assert ends[0] == pytest.approx(groups[True][0].runs[0][-1]["seconds"] / 60)
    title = "Figure 4"
    figure.publish(
        tmp_path, "figure4", figures3_4.rows(groups[True]), title=title,
        reading=table1.error_reading(groups, 0.1), figure=figures3_4.draw(groups[True], title),
    )  # fmt: skip
    assert (tmp_path / "figure4.png").stat().st_size > 0
    assert "where the paper's goes up by 14.4" in capsys.readouterr().out


def test_the_density_is_that_of_what_is_drawn():
    delays = Cluster(late_share=0.25).delays(True)
    x = np.linspace(0, 6, 200_001)
    density = figure2.density(delays, x)
    assert np.trapezoid(density, x) == pytest.approx(1, abs=1e-6)
    assert np.trapezoid(density * x, x) == pytest.approx(delays.base_seconds + 0.25 * delays.late_seconds, abs=1e-5)
    drawn = {late: TOY.delays(late).draw((1000,), np.random.default_rng(0)) for late in (False, True)}
    assert figure2.rows(drawn)[0]["above 1 s, %"] == 0
    assert len(figure2.draw(drawn, TOY).axes) == 2


def test_shares_of_blocks_add_up_over_seeds():
    cases = blocks_behind.cases(2)
    runs = {case: {"behind": [8, 2] if case.seed == 0 else [6, 2, 2]} for case in cases}
    shares = blocks_behind.histograms(runs)
    assert len(shares) == len(cases) / 2
    for share in shares.values():
        np.testing.assert_allclose(share, [0.7, 0.2, 0.1])
    assert blocks_behind.rows(shares)[0]["farthest"] == 2
    assert len(blocks_behind.draw(shares).axes) == 2
    assert len(blocks_behind.reading(shares)) >= 3


def test_taking_late_blocks_leaves_fewer_behind(tmp_path):
    setting = Setting(20, 0.75, 1.0, 1.0)
    cases = [Case(setting, False, 0, num_servers=8, keep_newer=keep) for keep in (False, True)]
    runs = simulation.simulate(dataclasses.replace(TOY, iterations=20), cases, tmp_path, processes=1)
    line10, newer = (runs[case]["behind"] for case in cases)
    assert len(line10) > len(newer)
    everything = simulation.simulate(TOY, [Case(SETTINGS[1], True, 0, num_servers=8)], tmp_path / "all", processes=1)
    (run,) = everything.values()
    assert len(run["behind"]) == 1
    assert json.loads(json.dumps(run)) == run


@pytest.mark.parametrize("module", [table1, figure2, figures3_4, blocks_behind])
def test_the_commands_say_what_they_show(module):
    name = module.__name__.rsplit(".", 1)[1]
    assert f"python -m experiments.weak_sync.{name} --workdir=runs/weak_sync" in module.__doc__
    assert "Expected" in module.__doc__


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [("seeds", 0, "--seeds=0 must be"), ("variation", 0.0, "--variation=0 must be"), ("variation", 2.0, "at most 1")],
)
def test_impossible_flags_are_refused(flag, value, words):
    with flagsaver.flagsaver():
        simulation.define_flags()
        flags.FLAGS.mark_as_parsed()
        setattr(flags.FLAGS, flag, value)
        with pytest.raises(UsageError, match=words):
            simulation.cluster_of_flags()


def test_a_mistake_is_one_line(tmp_path):
    answer = subprocess.run(
        [sys.executable, "-m", "experiments.weak_sync.table1", "--config.seed=1", f"--workdir={tmp_path / 'runs'}"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: --config.seed=1 is not a flag of this command")
    assert answer.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()
