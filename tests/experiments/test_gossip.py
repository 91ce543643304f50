"""The gossip experiments: the process that is measured is the library's, its expectations, its bounds, its tables."""

import pathlib
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

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


def test_ticks_are_what_the_engine_computes():
    nodes, steps, alpha = 4, 60, 0.2
    schedule = schedule_of(TICKS, nodes, steps)
    noise = np.random.default_rng(5).standard_normal((steps, 2))
    partner, theta = quadratic.partner_of(schedule), np.ones((1, nodes, 2))
    for event in range(steps):
        pair = schedule.node[event : event + 1], partner[event : event + 1]
        quadratic.tick(theta, *pair, noise[event][None], PROBLEM, alpha, instantaneous=True)
    np.testing.assert_allclose(by_engine(schedule, noise, alpha, np.ones(2)), theta[0], rtol=0, atol=1e-13)


def test_memory_with_run_times_is_what_the_engine_computes_on():
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


def test_rounds_are_what_the_engine_computes():
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


def test_bounds_command_reports_and_continues(tmp_path, capsys):
    directory = store.finished_parts(tmp_path / "bounds", {"runs": 8})
    tests = [case for case in cases.bound_cases([4], 8) if case.fraction == 1.0]
    contractions = cases.contraction_cases([4], 8)
    measured = cases.simulate([*tests, *contractions], directory)
    assert "[1/9]" in capsys.readouterr().out
    again = cases.simulate([*tests, *contractions], directory)
    assert "9 finished cases found, 0 to do" in capsys.readouterr().out
    for case in tests:
        np.testing.assert_array_equal(again[case].distance, measured[case].distance)
    delayed, rest = ([case for case in tests if (case.mode == RUN_TIMES) == wanted] for wanted in (True, False))
    for case in rest:
        row = bounds.bound_row(case, measured[case])
        assert (row["mode"], row["p"], bool(row["consensus"])) == (case.mode, 4, case.mode == TICKS)
    assert "the printed distance bound" in bounds.bound_reading([*rest, *contractions], measured)[0]
    rows = [bounds.contraction_row(case, measured[case]) for case in contractions]
    assert rows[0][bounds.APPENDIX] == "0.84375"
    assert rows[0]["/ expected"] == "1.000"
    assert bounds.contraction_reading(contractions, measured)
    (row,) = bounds.run_times_rows(delayed, measured)
    assert row.keys() >= {"printed, together", "corrected, together", "printed, apart", "corrected, apart"}
    assert len(bounds.run_times_reading(delayed, measured)) == 2
    assert len(drawing.draw_bounds(rest, measured).axes) == 6
    assert len(drawing.draw_contraction(contractions, measured).axes) == 3
    assert len(drawing.draw_run_times(delayed, measured).axes) == 2


def test_margins_say_when_and_whether_sampling_explains_them():
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


def test_comparison_trains_reports_and_continues(tmp_path, capsys):
    config = comparison.shared_config(1.0, heterogeneous=False)
    config.evaluations, config.network.kind, config.network.mlp.widths = 3, "mlp", (8,)
    directory = store.finished_parts(tmp_path / "comparison", config.to_dict())
    lines = [comparison.Setting("all_reduce", 1, 8), comparison.Setting("elastic_averaging", 10, 8)]
    comparison.train_all(config, lines, 2, directory)
    comparison.train_all(config, lines, 2, directory)
    assert "4 finished runs found, 0 to do" in capsys.readouterr().out
    runs = {line: [directory.read(line.name(seed)) for seed in range(2)] for line in lines}
    rows = [comparison.row(line, runs[line]) for line in lines]
    assert rows[0].keys() == rows[1].keys()
    assert rows[0]["mean node, %"] == rows[0]["center, %"] == ""
    assert all("±" in rows[1][name] for name in ("average, %", "mean node, %", "worst node, %", "center, %"))
    every = {comparison.Setting(*key, 8): runs[lines[1]] for key in comparison.METHODS_AND_PERIODS}
    assert sum("p = 8: the paper:" in sentence for sentence in comparison.reading(every)) == 3
    assert len(comparison.draw(runs, "equal machines").axes) == 5


def test_time_to_a_loss_is_between_looks():
    look = lambda seconds, loss: {"seconds": seconds, "test_loss": loss, "train_loss": None}
    records = [{}, look(0.0, 2.0), look(10.0, 0.2), look(20.0, 0.1), {}]
    assert comparison.TARGETS["test_loss"] == 0.15
    assert comparison.seconds_to(records, "test_loss") == pytest.approx(15.0)
    assert comparison.seconds_to([*records[:2], {}], "test_loss") is None
    assert comparison.seconds_to(records, "train_loss") is None


def test_other_settings_and_bad_numbers_are_refused(tmp_path):
    store.finished_parts(tmp_path / "one", {"epochs": 1}).write("part", [{"kind": "summary"}])
    with pytest.raises(UsageError, match="holds results of other settings; name another --workdir"):
        store.finished_parts(tmp_path / "one", {"epochs": 2})
    for values in (["1"], ["x"], []):
        with pytest.raises(UsageError, match="--num_nodes="):
            store.node_counts(values)
    with pytest.raises(UsageError, match="--seeds=0 must be"):
        store.whole("seeds", 0)


@pytest.mark.parametrize(
    ("module", "arguments", "code", "words"),
    [
        ("bounds", ["--help"], 0, "python -m experiments.gossip.bounds"),
        ("comparison", ["--num_nodes=12"], 2, "error: --num_nodes=12 must divide the aggregate minibatch of 128"),
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
