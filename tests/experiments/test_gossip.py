"""The gossip experiments: simulation against replay, exact expectations, bounds, tables and figures."""

import csv
import pathlib
import subprocess
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import figure
from experiments.gossip import bounds, cases, comparison, drawing, inequalities, margins, quadratic, store
from experiments.gossip.quadratic import ROUNDS, RUN_TIMES, TICKS
from sgdlab import protocols, rules
from sgdlab.errors import UsageError
from sgdlab.replay import run_peers

ROOT = pathlib.Path(__file__).parents[2]
PROBLEM = quadratic.Quadratic(np.array([1.0, 4.0]), variance=1.0)


def schedule_of(mode, num_nodes, num_steps):
    runtimes = np.random.default_rng(3).exponential(size=(6 * num_steps, num_nodes)) + 1e-9
    gradients = quadratic.first_tick(mode, num_nodes) + num_steps * (num_nodes if mode == ROUNDS else 1)
    return protocols.gossip(runtimes, include_self=True, num_gradients=gradients, seed=4, clock=quadratic.CLOCKS[mode])


def by_engine(schedule, noise, alpha, start):
    """Every node's parameters after its last step; `start` holds the nodes' average."""
    grad_fn = lambda params, batch: (PROBLEM.curvature * params + batch, {})
    rule = rules.asgd(learning_rate=alpha)
    return np.asarray(run_peers(schedule, rule, grad_fn, jnp.asarray(start), lambda g: jnp.asarray(noise)[g]).nodes)


def test_ticks_are_those_of_replay():
    nodes, steps, alpha = 4, 60, 0.2
    schedule = schedule_of(TICKS, nodes, steps)
    noise = np.random.default_rng(5).standard_normal((steps, 2))
    partner, theta = quadratic.partner_of(schedule), np.ones((1, nodes, 2))
    for event in range(steps):
        pair = schedule.node[event : event + 1], partner[event : event + 1]
        quadratic.tick(theta, *pair, noise[event][None], PROBLEM, alpha, instantaneous=True)
    np.testing.assert_allclose(by_engine(schedule, noise, alpha, np.ones(2)), theta[0], rtol=0, atol=1e-13)


def test_memory_with_run_times_is_that_of_replay():
    nodes, steps, alpha = 4, 60, 0.2
    schedule = schedule_of(RUN_TIMES, nodes, steps)
    noise = np.random.default_rng(5).standard_normal((nodes + steps, 2))
    partner, theta = quadratic.partner_of(schedule), np.ones((1, nodes, 2))
    computing = {int(node): event for event, node in enumerate(schedule.node[:nodes])}
    for event in range(nodes, nodes + steps):
        node = int(schedule.node[event])
        # The tick ends the gradient that the node has begun before, whose noise it is.
        pair = np.array([node]), partner[event : event + 1]
        quadratic.tick(theta, *pair, noise[computing[node]][None], PROBLEM, alpha, instantaneous=False)
        computing[node] = event
    last = np.array([noise[computing[node]] for node in range(nodes)])
    after = theta[0] - alpha * (PROBLEM.curvature * theta[0] + last)
    np.testing.assert_allclose(by_engine(schedule, noise, alpha, np.ones(2)), after, rtol=0, atol=1e-13)


def test_rounds_are_those_of_replay():
    nodes, steps, alpha = 3, 20, 0.2
    schedule = schedule_of(ROUNDS, nodes, steps)
    noise = np.random.default_rng(6).standard_normal((steps + 1, nodes, 2))
    assert schedule.node.reshape(-1, nodes).tolist() == [[0, 1, 2]] * (steps + 1)
    theta = np.ones((1, nodes, 2))
    partner = quadratic.partner_of(schedule).reshape(-1, nodes)
    assert partner[0].tolist() == [0, 1, 2]
    for row in range(steps + 1):
        theta, _ = quadratic.round_(theta, partner[row][None], noise[row][None], PROBLEM, alpha)
    found = by_engine(schedule, noise.reshape(-1, 2), alpha, np.ones(2))
    np.testing.assert_allclose(found, theta[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("mode", [TICKS, RUN_TIMES])
def test_ticks_and_partners_are_uniform(mode):
    drawn = quadratic.partners(mode, num_nodes=4, num_steps=200, runs=50, seed=0)
    pairs = np.bincount((4 * drawn.node + drawn.partner).ravel(), minlength=16) / drawn.node.size
    assert np.abs(pairs - 1 / 16).max() < 5 * np.sqrt(1 / 16 / drawn.node.size)


@pytest.mark.parametrize("mode", [TICKS, RUN_TIMES])
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.4])
def test_simulation_agrees_with_the_exact_expectation(alpha, mode):
    drawn = quadratic.partners(mode, num_nodes=3, num_steps=12, runs=2000, seed=1)
    start = np.array([[1.0, 2.0], [-1.0, 0.0], [3.0, 1.0]])
    shared = {"start": start, "alpha": alpha, "looks": [0, 1, 2, 5, 12], "instantaneous": mode == TICKS}
    measured = quadratic.measure(drawn, PROBLEM, steps=12, seed=2, **shared)
    exact = quadratic.expected(PROBLEM, **shared)
    for name in ("distance", "consensus"):
        difference = np.abs(getattr(measured, name) - getattr(exact, name))
        assert (difference <= 4 * getattr(measured, f"{name}_error") + 1e-12).all()
    assert measured.gradient[0] == pytest.approx(np.square(PROBLEM.curvature * start).sum() / 3)


@pytest.mark.parametrize("p", [2, 4, 64])
def test_averaging_alone_contracts_by_the_lambda_of_the_appendix(p):
    start = np.random.default_rng(0).standard_normal((p, 2))
    exact = quadratic.expected(PROBLEM, start=start, alpha=0.0, looks=[0, 1, 7]).consensus
    proved = inequalities.contraction(p, printed=False)
    np.testing.assert_allclose(exact, exact[0] * proved ** np.array([0, 1, 7]), rtol=1e-12)
    assert inequalities.contraction(p, printed=True) < proved


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.4])
@pytest.mark.parametrize("p", [2, 16])
def test_bounds_hold_in_exact_expectation(p, alpha):
    ticks = np.arange(0, int(4 * p / alpha), p)
    start = np.ones((p, 2)) + np.random.default_rng(0).standard_normal((p, 2))
    shared = {"start": start, "alpha": alpha, "looks": ticks.tolist()}
    exact, delayed = (quadratic.expected(PROBLEM, **shared, instantaneous=instantly) for instantly in (True, False))
    shared = {"step": ticks, "alpha": alpha, "num_nodes": p}
    printed = inequalities.distance_bound(PROBLEM, **shared, first=exact.distance[0], synchronous=False)
    assert (exact.distance <= printed).all()
    assert (
        exact.consensus
        <= inequalities.consensus_bound(PROBLEM, **shared, first=exact.consensus[0], gradient=exact.gradient.max())
    ).all()
    corrected = inequalities.corrected_distance_bound(PROBLEM, **shared, first=delayed.distance[0])
    assert (delayed.distance <= corrected).all()


@pytest.mark.parametrize("p", [2, 16])
def test_the_printed_distance_bound_fails_where_averaging_takes_half_of_a_step_back(p):
    alpha, problem = 0.01, quadratic.Quadratic(np.array([1.0, 100.0]), variance=0.0)
    ticks = np.arange(0, int(4 * p / alpha), p)
    start = np.tile([1.0, 0.0], (p, 1))  # along m
    shared = {"start": start, "alpha": alpha, "looks": ticks.tolist()}
    exact, delayed = (quadratic.expected(problem, **shared, instantaneous=instantly) for instantly in (True, False))
    shared = {"step": ticks, "first": exact.distance[0], "alpha": alpha, "num_nodes": p}
    printed = inequalities.distance_bound(problem, **shared, synchronous=False)
    assert (exact.distance <= printed).all()
    assert delayed.distance[-1] > 2 * printed[-1]
    assert (delayed.distance <= inequalities.corrected_distance_bound(problem, **shared)).all()


def written(path, name):
    """The rows of a table, parsed from its CSV file; its other files must not be empty."""
    for kind in ("md", "png", "svg"):
        assert (path / f"{name}.{kind}").stat().st_size > 0
    with (path / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_bounds_writes_its_tables_and_continues(tmp_path, monkeypatch):
    monkeypatch.setattr(figure, "directory", lambda default: tmp_path)
    monkeypatch.setattr(bounds.flags, "FLAGS", types.SimpleNamespace(seeds=8, num_nodes=["4"]))
    bounds.main([])
    names = ("bounds", "contraction", "run_times")
    tables = {name: written(tmp_path / "bounds", name) for name in names}

    tests, contractions = cases.bound_cases([4], 8), cases.contraction_cases([4], 8)
    directory = store.finished_parts(tmp_path / "bounds", cases.SHARED)
    measured = {case: cases.read(directory, case) for case in [*tests, *contractions]}
    idealised = [case for case in tests if case.mode != RUN_TIMES]
    for case, row in zip(idealised, tables["bounds"], strict=True):
        distance = measured[case].distance
        ratio = (margins.distance_bound(case, measured[case]) / distance).min()
        assert (row["mode"], row["p"], bool(row["consensus"])) == (case.mode, "4", case.mode == TICKS)
        assert float(row["distance"].split(" @ ")[0]) == pytest.approx(ratio, rel=1e-3)
    for case, row in zip(contractions, tables["contraction"], strict=True):
        consensus = measured[case].consensus
        assert float(row[bounds.APPENDIX]) == pytest.approx(1 - 2 * 0.25 / 4 - 2 * 0.25 / 4**2)
        assert float(row[bounds.PRINTED]) == pytest.approx(1 - 2 * 0.25 / 4 - 2 * 0.25 / 4)
        if case.fraction == 0:
            per_tick = (consensus[-1] / consensus[0]) ** (1 / case.steps)
            assert float(row["per tick, measured"]) == pytest.approx(per_tick, abs=5e-6)
            assert float(row["/ expected"]) == pytest.approx(1, abs=5e-4)  # averaging alone: the bound is an equality
    assert [float(row["alpha"]) for row in tables["run_times"]] == [
        pytest.approx(fraction * cases.PROBLEM.largest_step) for fraction in cases.FRACTIONS
    ]

    monkeypatch.setattr(quadratic, "measure", lambda *args, **settings: pytest.fail("simulated again"))
    bounds.main([])
    assert {name: written(tmp_path / "bounds", name) for name in names} == tables


def test_figures_of_bounds_show_what_was_measured():
    case = cases.Case(TICKS, 4, 0.0, "around", 24, 8)
    partners = quadratic.partners(TICKS, num_nodes=4, num_steps=24, runs=8, seed=0)
    values = quadratic.measure(
        partners, cases.PROBLEM, start=case.first(), alpha=0.0, steps=24, looks=cases.looks(24), seed=1
    )
    axes = drawing.draw_contraction([case], {case: values}).axes[0]
    measured, proved, printed = axes.get_lines()
    np.testing.assert_allclose(measured.get_xydata(), np.transpose([values.step / 4, values.consensus]))
    start = values.consensus[0]
    np.testing.assert_allclose(proved.get_ydata(), start * inequalities.contraction(4, printed=False) ** values.step)
    np.testing.assert_allclose(printed.get_ydata(), start * inequalities.contraction(4, printed=True) ** values.step)


def test_margins_have_their_step_and_standard_errors():
    margin = margins.smallest(
        np.array([0, 5, 9]), np.array([1.0, 1.0, 1.0]), np.array([0.0, 2.0, 0.5]), np.full(3, 0.1)
    )
    assert (margin.value, margin.step, margin.errors, margin.fails) == (0.5, 5, pytest.approx(10.0), True)
    assert not margins.smallest(np.array([0]), np.array([1.0]), np.array([1.1]), np.array([0.1])).fails


def test_comparison_takes_the_rate_of_the_paper():
    config = comparison.shared_config(3.0, heterogeneous=True)
    reduced = comparison.Setting("all_reduce", 1, 16).configured(config, seed=2)
    peer = comparison.Setting("pull_gossip", 10, 16).configured(config, seed=2)
    assert comparison.make_plan(reduced).rates[0] == pytest.approx(0.1)
    assert comparison.make_plan(peer).rates[0] == pytest.approx(0.1)
    assert (peer.batch_size, peer.protocol.gossip.period, peer.cluster.gamma.heterogeneous) == (8, 10, True)


def test_comparison_trains_writes_its_table_and_continues(tmp_path, monkeypatch):
    config = comparison.shared_config(1.0, heterogeneous=False)
    config.evaluations, config.network.kind, config.network.mlp.widths = 3, "mlp", (8,)
    directory = store.finished_parts(tmp_path / "comparison", config.to_dict())
    lines = [comparison.Setting("all_reduce", 1, 8), comparison.Setting("elastic_averaging", 10, 8)]
    comparison.train_all(config, lines, 2, directory)
    runs = {line: [directory.read(line.name(seed)) for seed in range(2)] for line in lines}
    monkeypatch.setattr(comparison.train, "train", lambda *args, **settings: pytest.fail("trained again"))
    comparison.train_all(config, lines, 2, directory)

    every = {comparison.Setting(*key, 8): runs[lines[1]] for key in comparison.METHODS_AND_PERIODS}
    drawn = comparison.draw(runs, "equal machines")
    rows = [comparison.row(line, runs[line]) for line in lines]
    figure.publish(tmp_path, "comparison", rows, title="Peers", reading=comparison.reading(every), figure=drawn)
    reduced, elastic = written(tmp_path, "comparison")
    assert reduced["mean node, %"] == reduced["center, %"] == ""
    for column, name in (
        ("average, %", "test_accuracy"), ("mean node, %", "mean_node_accuracy"),
        ("worst node, %", "worst_accuracy"), ("center, %", "center_accuracy"),
    ):  # fmt: skip
        values = [100 * records[-1][name] for records in runs[lines[1]]]
        mean, deviation = map(float, elastic[column].split(" ± "))
        assert mean == pytest.approx(np.mean(values), abs=0.05 + 1e-9)
        assert deviation == pytest.approx(np.std(values, ddof=1), abs=0.05 + 1e-9)

    columns = ("test_loss", "test_loss", "train_loss", "train_loss", "consensus")
    for axes, x, y in zip(drawn.axes, ("seconds", "epoch", "seconds", "epoch", "seconds"), columns, strict=True):
        assert axes.get_yscale() == "log"
        curves = {curve.get_label(): curve for curve in axes.get_lines()}
        assert (lines[0].title in curves) == (y != "consensus")  # the nodes of all-reduce are equal
        for line in lines:
            if line.title not in curves:
                continue
            pairs = [
                [np.mean([record[name] for record in seeds]) for name in (x, y)]
                for seeds in zip(*(records[1:-1] for records in runs[line]), strict=True)
                if None not in [record[y] for record in seeds] and (y != "consensus" or seeds[0]["gradients"] > 0)
            ]
            np.testing.assert_allclose(curves[line.title].get_xydata(), pairs)


def test_time_to_a_loss_is_interpolated_between_evaluations():
    evaluation = lambda seconds, loss: {"seconds": seconds, "test_loss": loss, "train_loss": None}
    records = [{}, evaluation(0.0, 2.0), evaluation(10.0, 0.2), evaluation(20.0, 0.1), {}]
    assert comparison.TARGETS["test_loss"] == 0.15
    assert comparison.seconds_to(records, "test_loss") == pytest.approx(15.0)
    assert comparison.seconds_to([*records[:2], {}], "test_loss") is None
    assert comparison.seconds_to(records, "train_loss") is None


def test_other_settings_and_bad_numbers_are_refused(tmp_path):
    store.finished_parts(tmp_path / "one", {"epochs": 1}).write("part", [{"kind": "summary"}])
    with pytest.raises(UsageError, match=str(tmp_path / "one")):
        store.finished_parts(tmp_path / "one", {"epochs": 2})
    for values in (["1"], ["x"], []):
        with pytest.raises(UsageError, match="--num_nodes="):
            store.node_counts(values)
    with pytest.raises(UsageError, match="--seeds=0 must be"):
        store.whole("seeds", 0)


@pytest.mark.parametrize(
    ("module", "arguments", "code", "words"),
    [
        ("bounds", ["--help"], 0, "\n  --num_nodes: "),
        ("comparison", ["--num_nodes=12"], 2, "error: --num_nodes=12 must "),
    ],
)
def test_the_command_line_helps_and_refuses(module, arguments, code, words, tmp_path):
    command = [sys.executable, "-m", f"experiments.gossip.{module}", *arguments, f"--workdir={tmp_path / 'w'}"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == code, answer.stderr
    assert words in answer.stdout + answer.stderr
    assert not (tmp_path / "w").exists()
    if code:
        assert len(answer.stderr.strip().splitlines()) == 1
