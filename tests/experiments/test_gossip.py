"""The gossip experiments: simulation against replay, exact expectations, bounds, and what figures make of results."""

import itertools

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from experiments.gossip import bounds, cases, comparison, figure1, inequalities, margins, quadratic, sizes
from experiments.gossip.comparison import Compared
from experiments.gossip.quadratic import PROCESSES, ROUNDS, RUN_TIMES, TICKS
from experiments.harness import Session, within
from sgdlab import protocols, rules
from sgdlab.replay import run
from sgdlab.runs.plan import make_plan
from sgdlab.tasks import Task
from tests.lib.unlike import unlike

PROBLEM = quadratic.Quadratic(np.array([1.0, 4.0]), variance=1.0)
WORDS = comparison.quantities(figure1.TARGETS["laptop"])
START = np.array([[1.0, 2.0], [-1.0, 0.0], [3.0, 1.0]])


def schedule_of(process, num_nodes, num_steps):
    runtimes = np.random.default_rng(3).exponential(size=(6 * num_steps, num_nodes)) + 1e-9
    gradients = quadratic.first_tick(process, num_nodes) + num_steps * (num_nodes if process == ROUNDS else 1)
    clock = quadratic.CLOCKS[process]
    return protocols.gossip(runtimes, include_self=True, num_gradients=gradients, seed=4, clock=clock)


def by_engine(schedule, noise, alpha, start):
    """Every node's parameters after its last step; `start` holds the nodes' average."""
    grad_fn = lambda params, batch: (PROBLEM.curvature * params + batch, {})
    rule = rules.asgd(learning_rate=alpha)
    return np.asarray(run(schedule, rule, Task(grad_fn, jnp.asarray(start)), lambda g: jnp.asarray(noise)[g]).nodes)


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
        theta = quadratic.round_(theta, partner[row][None], noise[row][None], PROBLEM, alpha)
    found = by_engine(schedule, noise.reshape(-1, 2), alpha, np.ones(2))
    np.testing.assert_allclose(found, theta[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("process", [TICKS, RUN_TIMES])
def test_ticks_and_partners_are_uniform(process):
    drawn = quadratic.partners(process, num_nodes=4, num_steps=200, runs=50, seed=0)
    pairs = np.bincount((4 * drawn.node + drawn.partner).ravel(), minlength=16) / drawn.node.size
    assert np.abs(pairs - 1 / 16).max() < 5 * np.sqrt(1 / 16 / drawn.node.size)


@pytest.mark.covering
@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.4])
def test_simulation_agrees_with_the_exact_expectation(alpha, process):
    drawn = quadratic.partners(process, num_nodes=3, num_steps=12, runs=2000, seed=1)
    shared = {"start": START, "alpha": alpha, "when": [0, 1, 2, 5, 12]}
    measured = quadratic.measure(drawn, PROBLEM, seed=2, **shared, instantaneous=process == TICKS)
    exact = quadratic.expected(PROBLEM, **shared, process=process)
    for name in ("distance", "consensus"):
        difference = np.abs(measured[name] - exact[name])
        assert (difference <= 4 * measured[f"{name}_error"] + 1e-12).all()
    assert measured["gradient"][0] == pytest.approx(np.square(PROBLEM.curvature * START).sum() / 3)


@pytest.mark.parametrize("process", PROCESSES)
def test_expectations_are_those_of_all_partners(process):
    """Without noise: the mean over every choice of partners, and of nodes that tick, enumerated."""
    found = [[], []]
    nodes = [None] if process == ROUNDS else range(3)
    choices = itertools.product(range(3), repeat=3) if process == ROUNDS else range(3)
    for node, partner in itertools.product(nodes, choices):
        theta = START[None].copy()
        if process == ROUNDS:
            theta = quadratic.round_(theta, np.array([partner]), 0.0, PROBLEM, 0.1)
        else:
            pair = np.array([node]), np.array([partner])
            quadratic.tick(theta, *pair, 0.0, PROBLEM, 0.1, instantaneous=process == TICKS)
        found[0].append(np.square(theta).sum())
        found[1].append(np.square(theta - theta.mean(axis=1, keepdims=True)).sum())
    noiseless = quadratic.Quadratic(PROBLEM.curvature, variance=0.0)
    exact = quadratic.expected(noiseless, start=START, alpha=0.1, when=[1], process=process)
    assert [exact["distance"][0], exact["consensus"][0]] == pytest.approx(np.mean(found, axis=1))


@pytest.mark.parametrize("process", PROCESSES)
def test_schedules_begin_alike_however_long_they_are(process):
    """A case may be simulated on the first part of a longer schedule."""
    short, long = (quadratic.partners(process, num_nodes=4, num_steps=steps, runs=2, seed=0) for steps in (9, 60))
    np.testing.assert_array_equal(short.partner, long.partner[:, :9])
    if process != ROUNDS:
        np.testing.assert_array_equal(short.node, long.node[:, :9])


@pytest.mark.parametrize("p", [2, 4, 64])
def test_averaging_alone_contracts_by_the_lambda_of_the_appendix(p):
    start = np.random.default_rng(0).standard_normal((p, 2))
    exact = quadratic.expected(PROBLEM, start=start, alpha=0.0, when=[0, 1, 7])["consensus"]
    proved = inequalities.contraction(p, printed=False)
    np.testing.assert_allclose(exact, exact[0] * proved ** np.array([0, 1, 7]), rtol=1e-12)
    assert inequalities.contraction(p, printed=True) < proved


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.4])
@pytest.mark.parametrize("p", [2, 16])
def test_bounds_hold_in_exact_expectation(p, alpha):
    ticks = np.arange(0, int(4 * p / alpha), p)
    start = np.ones((p, 2)) + np.random.default_rng(0).standard_normal((p, 2))
    shared = {"start": start, "alpha": alpha, "when": ticks.tolist()}
    exact = {process: quadratic.expected(PROBLEM, **shared, process=process) for process in (TICKS, RUN_TIMES)}
    shared = {"step": ticks, "alpha": alpha, "num_nodes": p}
    first = exact[TICKS]["distance"][0]
    printed = inequalities.distance_bound(PROBLEM, **shared, first=first)
    assert (exact[TICKS]["distance"] <= printed).all()
    corrected = inequalities.distance_bound(PROBLEM, **shared, first=first, corrected=True)
    assert (exact[RUN_TIMES]["distance"] <= corrected).all()
    for values in exact.values():
        settings = shared | {"first": values["consensus"][0], "gradient": values["gradient"].max()}
        assert (values["consensus"] <= inequalities.consensus_bound(PROBLEM, **settings)).all()
    rounds = quadratic.expected(PROBLEM, start=start, alpha=alpha, when=(ticks // p).tolist(), process=ROUNDS)
    settings = shared | {"step": ticks // p, "first": first}
    assert (rounds["distance"] <= inequalities.distance_bound(PROBLEM, **settings, synchronous=True)).all()


@pytest.mark.parametrize("p", [2, 16])
def test_the_printed_distance_bound_fails_where_averaging_takes_half_of_a_step_back(p):
    alpha, problem = 0.01, quadratic.Quadratic(np.array([1.0, 100.0]), variance=0.0)
    ticks = np.arange(0, int(4 * p / alpha), p)
    start = np.tile([1.0, 0.0], (p, 1))  # along m
    shared = {"start": start, "alpha": alpha, "when": ticks.tolist()}
    exact, delayed = (
        quadratic.expected(problem, **shared, process=process)["distance"] for process in (TICKS, RUN_TIMES)
    )
    shared = {"step": ticks, "first": exact[0], "alpha": alpha, "num_nodes": p}
    printed = inequalities.distance_bound(problem, **shared)
    assert (exact <= printed).all()
    assert delayed[-1] > 2 * printed[-1]
    assert (delayed <= inequalities.distance_bound(problem, **shared, corrected=True)).all()


@pytest.mark.parametrize("p", [2, 5, 64])
@pytest.mark.parametrize("process", [ROUNDS, TICKS])
def test_pull_gossip_reduces_the_diffusion_potential_to_a_floor(process, p):
    """The disagreement falls at a fixed rate, and a part of it becomes a share of the mean that is not 1 / p."""
    case = cases.Case(process, p, 0.0, "contributions", 2000)
    exact = quadratic.expected(case.problem, start=case.first(), alpha=0.0, when=[0, 1, 2000], process=process)
    assert exact["distance"][0] == pytest.approx(p - 1)
    np.testing.assert_allclose(exact["distance"][0], exact["consensus"][0])
    if process == ROUNDS:
        assert exact["distance"][1] == pytest.approx((p - 1) / 2)
        assert exact["consensus"][1] == pytest.approx((p - 1) * (1 / 2 - 1 / (4 * p)))
        assert exact["distance"][2] == pytest.approx((p - 1) / (2 * p + 1))
    else:
        assert exact["distance"][1] == pytest.approx((p - 1) * (1 - 1 / (2 * p)))
        floor, left = (p - 1) / (p + 1), exact["consensus"][2] * (1 - 1 / (p + 1))
        assert exact["distance"][2] == pytest.approx(floor + left, rel=1e-6)


def test_push_sum_reduces_the_diffusion_potential_by_a_fixed_rate():
    """Of every choice of targets of three nodes, enumerated; the simulation has the same mean."""
    after = []
    for targets in itertools.product(range(3), repeat=3):
        has = np.eye(3) / 2
        for node, target in enumerate(targets):
            has[target] += np.eye(3)[node] / 2
        after.append(sum((has[i, j] - has[i].sum() / 3) ** 2 for i in range(3) for j in range(3)))
    rate = 1 / 2 - 1 / 12
    assert np.mean(after) == pytest.approx(2 * rate)
    found = cases.push_sum(num_nodes=3, rounds=4, runs=2000)
    difference = np.abs(np.array(found["potential"]) - 2 * rate ** np.arange(5))
    assert (difference <= 4 * np.array(found["error"]) + 1e-12).all()
    assert margins.push_sum_potential(3)[:5] == pytest.approx(2 * rate ** np.arange(5))


def test_margins_have_their_step_and_standard_error():
    step, bound, measured = np.array([0, 5, 9]), np.ones(3), np.array([0.0, 2.0, 0.5])
    assert inequalities.smallest(step, bound, measured, np.full(3, 0.1)) == (0.5, 5, pytest.approx(0.025), True)
    assert not inequalities.smallest(step, bound, measured, np.full(3, 0.3)).fails
    assert inequalities.smallest(step, bound, measured).fails
    equal = inequalities.smallest(step, bound, np.array([0.5, 1.0 + 1e-12, 0.5]), np.full(3, 1e-17))
    assert (equal.step, equal.error, equal.fails) == (5, 0.0, False)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    with within(Session(tmp_path_factory.mktemp("gossip"), jobs=1)):
        yield bounds.bounds(num_nodes=[4, 16], fractions=[0.3], runs=8)


def test_bounds_show_what_was_measured(made):
    rows = made.table[made.table.quantity == f"margin: {bounds.DISTANCE}"].set_index(["process", "p"]).sort_index()
    p, alpha = 16, 0.3 * 2 / 11
    when = np.array(cases.Case(RUN_TIMES, p, 0.3, "together", 51 * p).when())
    shared = {"start": np.ones((p, 4)), "alpha": alpha, "when": when.tolist()}
    exact = quadratic.expected(cases.PROBLEM, **shared, process=RUN_TIMES)["distance"]
    bound = (1 - 2 * alpha / p * 10 / 11) ** when * 4 * p + p * alpha * 11 / 20
    assert rows.alpha.tolist() == pytest.approx([alpha] * 6)
    assert (bound / exact).min() < 1
    assert rows.exact["step, then average", p] == pytest.approx((bound / exact).min())
    assert (rows.exact[["average, then step", "rounds"]] > 1).all()
    rates = made.table[made.table.quantity.str.startswith("lambda")]
    assert rates.paper.tolist() == pytest.approx([1 - 1 / 4, 1 - 1 / 16])
    assert rates.exact.tolist() == pytest.approx([1 - 1 / 8 - 1 / 32, 1 - 1 / 32 - 1 / 512])
    assert set(made.table.process) == {"step, then average", "average, then step", "rounds", "push-sum"}


def test_bounds_judge_the_recursion_of_the_appendix_apart(made):
    #  synchronous, step then average, average then step, printed lambda, appendix's, push-sum, pull
    verdicts = ["holds", "fails", "holds", "fails", "holds", "inconclusive", "fails"]  # the last two of 8 runs
    assert [claim.verdict for claim in made.claims] == verdicts
    assert [claim.identity for claim in made.claims] == [True] * 5 + [False] * 2


@pytest.mark.parametrize(("slower", "error", "expected"), [(1.0, 1e-3, True), (1.0, 0.1, None), (1.2, 1e-3, False)])
def test_a_fixed_rate_is_judged_by_its_interval(made, slower, error, expected):
    rate = slower * (1 / 2 - 1 / 16)
    potential = 3 * rate ** np.arange(bounds.LAST + 1)
    pushed = {4: pd.Series({"potential": potential, "error": error * potential})}
    case = cases.Case(ROUNDS, 4, 0.0, "contributions", bounds.LAST)
    halves = 3 * 0.5 ** np.arange(bounds.LAST + 1)
    pulled = {case: pd.Series({"expected_distance": halves, "distance": halves, "distance_error": 0.01 * halves})}
    found = pd.DataFrame({"quantity": [], "process": [], "fails": [], "exact": [], "end": []})
    *_, push, pull = bounds.claims(found, pulled, pushed, runs=1000)
    assert (push.holds.holds, pull.holds.holds) == (expected, None)


@pytest.mark.parametrize("p", [8, 16])
def test_figure1_takes_the_rate_and_the_minibatch_of_the_paper(p):
    config = sizes.configured("laptop", epochs=3.0, heterogeneous=True)
    for method in comparison.TITLES:
        config.method, config.cluster.num_workers, config.batch_size = method, p, 256 // p
        plan = make_plan(config)
        assert plan.rates[[0, -1]] == pytest.approx([0.1, 0.001])
        assert plan.experiment.cluster.law.heterogeneous


def runs_of(seconds):
    """Runs of two seeds at p = 16, by method and tau: seconds to the test loss, and the whole run's."""
    rows = [
        {"p": 16, "method": method, "tau": tau, "seed": seed, "seconds_to_test_loss": value, "seconds": 100.0}
        for (method, tau), values in seconds.items()
        for seed, value in enumerate(values)
    ]
    return pd.DataFrame(rows).set_index(comparison.KEYS).sort_index()


def test_methods_are_compared_by_seed():
    found = Compared(
        runs_of(
            {
                comparison.REDUCE: [10.0, 20.0, 30.0],
                comparison.PUSH: [9.8, 19.7, 29.7],  # less with every seed, though seeds differ by much more
                comparison.ELASTIC: [50.0, 80.0, np.inf],
            }
        ),
        16,
        WORDS,
    )
    speed = "seconds_to_test_loss"
    assert found.there == [comparison.REDUCE, comparison.ELASTIC, comparison.PUSH]
    assert found.less(comparison.PUSH, [comparison.REDUCE], speed).holds is True
    assert found.less(comparison.REDUCE, [comparison.PUSH], speed).holds is False
    assert found.values(comparison.ELASTIC, speed).tolist() == [50.0, 80.0, 100.0]
    assert found.alike(comparison.REDUCE, [comparison.PUSH], speed).holds is True
    assert found.alike(comparison.REDUCE, [comparison.PUSH, comparison.ELASTIC], speed).holds is False
    assert "not always (Elastic averaging, tau = 10)" in found.words(speed, [comparison.ELASTIC])


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        ([10.0, 11.0, 12.0], [90.0, 95.0, np.inf], True),  # the other's time is at least 100
        ([90.0, 95.0, np.inf], [10.0, 11.0, 12.0], False),
        ([10.0, 11.0, np.inf], [40.0, 41.0, np.inf], None),
        ([10.0, 11.0, np.inf], [13.0, 14.0, 103.0], None),  # less after the whole run, and possibly more later
    ],
)
def test_a_target_that_is_not_reached_gives_a_lower_limit(own, other, expected):
    found = Compared(runs_of({comparison.REDUCE: own, comparison.PUSH: other}), 16, WORDS)
    assert found.less(comparison.REDUCE, [comparison.PUSH], "seconds_to_test_loss").holds is expected
    alike = found.alike(comparison.REDUCE, [comparison.PUSH], "seconds_to_test_loss").holds
    assert alike is (None if expected is None else False)
    same = Compared(runs_of({comparison.REDUCE: own, comparison.PUSH: unlike(own)}), 16, WORDS)
    alike = same.alike(comparison.REDUCE, [comparison.PUSH], "seconds_to_test_loss").holds
    assert alike is (None if np.inf in own else True)


def many(pace, loss=1.0, lowest=1.0):
    """Runs of three seeds at p = 8 of three methods, of which all-reduce has a pace of its own."""
    rows = [
        dict(zip(comparison.KEYS, (8, *run, seed), strict=True))
        | dict.fromkeys(WORDS, 1.0)
        | {"seconds_a_step": pace if run == comparison.REDUCE else 1.0, "test_loss": loss, "lowest_loss": lowest}
        | {"seconds": 9.0, "steps": 99.0, "idle_share": 0.2}
        for run in (comparison.REDUCE, comparison.PUSH, comparison.ELASTIC)
        for seed in range(3)
    ]
    runs = pd.DataFrame(rows).set_index(comparison.KEYS).sort_index()
    return runs.assign(seconds_a_step=unlike(runs.seconds_a_step), lowest_loss=unlike(runs.lowest_loss, seed=1))


@pytest.mark.parametrize(("paces", "expected"), [((1.15, 1.02), None), ((1.15, 1.3), False), ((1.05, 1.02), True)])
def test_synchronization_overhead_is_judged_with_every_scatter(paces, expected):
    claims = figure1.claims({0.1: many(paces[0]), 0.02: many(paces[1])}, WORDS)
    (found,) = (claim for claim in claims if "overhead" in claim.says)
    assert found.holds.holds is expected
    assert f"{paces[1]:g}" in found.ours
    assert ("where it holds" in found.ours) is (expected is not False)


@pytest.mark.parametrize(("end", "verdict"), [(1.01, "holds"), (1.03, "not in our regime")])
def test_what_is_said_of_validation_losses_presupposes_that_they_fall(end, verdict):
    (found,) = (c for c in figure1.claims({0.1: many(1.0, loss=end)}, WORDS) if "minimum loss" in c.says)
    assert found.verdict == verdict


def test_annealing_presupposes_a_first_rate_that_has_done_its_work():
    runs = many(1.0).assign(first_rate_loss=[0.95] * 3 + [0.85] * 6)
    found = Compared(runs, 8, WORDS)
    assert found.settled(comparison.REDUCE).met
    assert not found.settled(comparison.PUSH).met


def test_each_method_has_the_rate_that_is_best_with_a_seed_that_decides_nothing(monkeypatch):
    asked = []

    class Table:
        """Runs whose test loss at the end is lowest at 0.1 for all-reduce and at 0.2 for push gossip."""

        def __init__(self, base, points):
            asked.append(points)
            best = {"all_reduce": 0.1, "push_gossip": 0.2}
            self.rows = [p | {"test_loss": abs(p[comparison.RATE] - best[p["method"]])} for p in points]

        def table(self):
            return pd.DataFrame(self.rows)

        evaluations = table

    monkeypatch.setattr(comparison, "Sweep", Table)
    runs = [(8, comparison.REDUCE), (8, comparison.PUSH)]
    base = sizes.configured("laptop", epochs=3.0)
    table, _ = comparison.trained(base, runs, {8: 32}, 2, rates=[0.1, 0.2], scattered=[(0.02, runs[1])])
    tuning, deciding = ([(p["method"], p["seed"], p[comparison.RATE]) for p in points] for points in asked)
    assert {seed for _, seed, _ in tuning} == {2}
    assert len(tuning) == 4
    assert set(deciding) == {
        ("all_reduce", 0, 0.1),
        ("all_reduce", 1, 0.1),
        ("push_gossip", 0, 0.2),
        ("push_gossip", 1, 0.2),
    }
    assert table.scatter.tolist() == [0.1] * 4 + [0.02] * 2


def test_evaluations_give_times_and_steps():
    key = {"p": 8, "method": "all_reduce", "tau": 1, "seed": 0}
    at = [(0, 0.0, 2.0, np.nan), (80, 10.0, 0.2, 0.1), (160, 20.0, 0.1, 0.04)]
    evaluations = pd.DataFrame(
        [
            key | {"gradients": g, "seconds": s, "epoch": g / 40, "test_loss": test, "train_loss": train}
            for g, s, test, train in at
        ]
    )
    summary = key | {"gradients": 160, "seconds": 20.0, "test_accuracy": 0.9}
    found = comparison.measured(
        pd.DataFrame([summary]), evaluations, annealed=2.0, targets={"test_loss": 0.15, "train_loss": 0.05}
    )
    (row,) = found.itertuples()
    assert row.seconds_to_test_loss == pytest.approx(15.0)
    assert row.seconds_to_train_loss == pytest.approx(10 + 10 * 5 / 6)
    assert row.steps_to_train_loss == pytest.approx(10 + 10 * 5 / 6)
    assert (row.late_loss, row.first_rate_loss, row.lowest_loss, row.seconds_a_step) == (2.0, 0.2, 0.1, 1.0)


def test_figure1_refuses_nodes_that_do_not_divide_the_minibatch():
    with pytest.raises(ValueError, match="num_nodes=12 must divide aggregate=256"):
        figure1.figure1(num_nodes=[12])


def test_pictures_show_what_was_measured(made):
    *_, consensus, diffusion = made.picture.axes
    _, proved, printed = consensus.get_lines()
    rounds = proved.get_xdata()
    np.testing.assert_allclose(proved.get_ydata(), (1 - 1 / 32 - 1 / 512) ** (16 * rounds))
    np.testing.assert_allclose(printed.get_ydata(), (1 - 1 / 16) ** (16 * rounds))
    by_p = {line.get_label(): line for line in diffusion.get_lines()}
    rows = made.table[made.table.quantity.str.startswith("diffusion potential after 1 round") & (made.table.p == 16)]
    pulled = rows.ours[rows.process == "rounds"].item()
    assert by_p["pull, p = 16"].get_ydata()[1] == pytest.approx(pulled)


def test_curves_are_geometric_means_over_seeds_and_ratios_are_paired():
    losses = {"all_reduce": [[4.0, 1.0], [2.0, 0.5]], "push_gossip": [[4.0, 2.0], [2.0, 1.0]]}
    evaluations = pd.DataFrame(
        [
            {"p": 8, "method": method, "tau": 1, "seed": seed, "seconds": 10.0 * at, "test_loss": loss}
            for method, of_seeds in losses.items()
            for seed, values in enumerate(of_seeds)
            for at, loss in enumerate(values)
        ]
    )
    drawn = comparison.draw(evaluations, [8], "digits")
    curves, ratios = ({line.get_label(): line.get_ydata() for line in axes.lines} for axes in drawn.axes)
    np.testing.assert_allclose(curves["All-reduce"][[0, -1]], [8**0.5, 0.5**0.5])
    np.testing.assert_allclose(ratios["Push gossip, tau = 1"][[0, -1]], [1.0, 2.0])
    np.testing.assert_allclose(ratios["Push gossip, tau = 1"], 2 ** np.linspace(0, 1, comparison.POINTS))
