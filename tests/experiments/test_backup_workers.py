"""The tables and figures of Chen et al. 2016: their formulas, and their numbers counted a second time."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from experiments.backup_workers import stragglers
from experiments.backup_workers.figure2 import KEYS, figure2
from experiments.backup_workers.figures3_4 import figures3_4
from experiments.backup_workers.figures5_6 import BEST, PRINTED, THROUGH, compared, figures5_6, paper_updates, resampled
from experiments.backup_workers.table1 import CLIPPED, FORWARD, expected, staleness, table1
from experiments.backup_workers.table1 import PRINTED as PRINTED_STALENESS
from experiments.harness import Session, within
from experiments.harness.claims import HOLDS, OUTSIDE
from sgdlab.runs import crossing
from tests.lib.unlike import unlike


@pytest.fixture(scope="module", name="session")
def a_session(tmp_path_factory):
    with within(Session(tmp_path_factory.mktemp("papers"), jobs=1)) as session:
        yield session


def cells(table, **where):
    """The rows of a table with these entries; a column's name has _ in place of everything but letters."""
    for name, value in where.items():
        column = next(c for c in table.columns if "".join(x if x.isalpha() else "_" for x in c) == name)
        table = table[table[column] == value]
    return table


def one(table, **where):
    """The number `ours` of the only row with these entries."""
    (value,) = cells(table, **where).ours
    return value


def claim(output, begins):
    """The claims that begin so."""
    return [claim for claim in output.claims if claim.says.startswith(begins)]


@pytest.mark.parametrize(("workers", "layers"), [(40, 19), (12, 5)])
def test_mean_staleness_of_a_layer_is_the_share_of_the_others_that_its_parameters_are_held(workers, layers):
    found = staleness(workers, layers, 4000, seed=0)
    assert found.shape == (4000, layers)
    assert expected(workers, layers)[0] == workers - 1
    np.testing.assert_allclose(found.mean(axis=0), expected(workers, layers), atol=0.02 * workers)


def test_other_timings_of_table1():
    workers, layers = 12, 4
    forward = staleness(workers, layers, 4000, seed=0, reads="forward").mean(axis=0)
    np.testing.assert_allclose(forward, (workers - 1) * (1 - np.arange(layers) / layers), atol=0.02 * workers)
    clipped = staleness(workers, layers, 4000, seed=0, pushes="end")
    np.testing.assert_allclose(clipped.mean(axis=0), workers - 1, atol=0.02 * workers)
    assert (clipped == clipped[:, :1]).all()


def test_the_formula_reproduces_the_papers_bottom_and_top_layer():
    for layer in (0, 18):
        assert expected(40, 19)[layer] == pytest.approx(PRINTED_STALENESS[layer][1], abs=0.005 * 40)


def test_table1_at_another_size():
    workers, layers, gradients = 4, 19, 50
    output = table1(workers=workers, layers=layers, gradients=gradients, seed=1)
    main = staleness(workers, layers, gradients, 1)
    for layer, printed in PRINTED_STALENESS.items():
        rows = cells(output.table, layer=layer, timing="read at the start, pushed backward")
        column = main[:, layer]
        ours = [column.min(), column.mean(), np.median(column), column.max(), column.std(ddof=1), column.size]
        np.testing.assert_allclose(rows.ours.to_numpy(float), ours)
        assert tuple(rows.paper) == printed
        formula = one(output.table, layer=layer, timing="(N - 1)(1 - 2/3 l/L)")
        assert formula == pytest.approx((workers - 1) * (1 - 2 / 3 * layer / layers))
        assert one(output.table, layer=layer, timing=CLIPPED) == pytest.approx(workers - 1, abs=0.2)
        assert one(output.table, layer=layer, timing=FORWARD) <= column.mean()
    increases, falls, clipping = output.claims
    assert (increases.holds.holds, increases.on_paper.holds) == (None, True)
    assert falls.on_paper.holds is False  # layer 12 is less stale than layer 18
    assert clipping.holds.holds
    assert all(each.identity for each in output.claims)


def test_the_papers_top_layer_is_within_2_percent_for_these_shares_of_the_backward_pass(monkeypatch):
    region = table1(gradients=100).claims[0].ours.rpartition("holds with ")[2]
    for share, sign in zip(region.split(" to "), (1, -1), strict=True):
        monkeypatch.setattr("experiments.backup_workers.table1.BACKWARD_SHARE", float(share[:-1]) / 100)
        assert expected(40, 19)[18] == pytest.approx(PRINTED_STALENESS[18][1] * (1 + sign * 0.02), abs=0.02)


def test_figures3_4_at_the_size_of_tests():
    output = figures3_4(iterations=300, seed=2)
    times = stragglers.collected(300, seed=2)
    for name in ("median, s", "mean, s", "longest, s"):
        assert (np.diff(cells(output.table, quantity=name).ours) >= 0).all()
    assert one(output.table, quantity="under 2 s, %", k=98) == pytest.approx(100 * (times[:, 97] < 2).mean())
    assert one(output.table, quantity="mean, s", k=100) == pytest.approx(times[:, 99].mean())
    assert output.claims[0].holds.holds
    assert all(each.identity for each in output.claims)  # the law was made from these numbers
    assert f"Within 2 s, {(times[:, 97] < 2).mean():.0%} of the 98th" in output.notes[0]


def test_nothing_is_said_of_a_single_iteration():
    assert [claim.holds.holds for claim in figures3_4(iterations=1).claims] == [None] * 2


@pytest.mark.parametrize(
    ("last", "holds"), [(2.0 ** np.arange(6) ** 1.5, True), (0.5 ** np.arange(6), False), (np.arange(1.0, 7.0), False)]
)
def test_the_last_waits_grow_exponentially_if_their_factors_rise(last, holds, monkeypatch):
    waits = np.r_[np.full(stragglers.MACHINES - 6, 1e-3), last]
    noise = np.random.default_rng(0).lognormal(0, 0.1, (2000, stragglers.MACHINES))
    monkeypatch.setattr("experiments.backup_workers.figures3_4.collected", lambda *_: np.cumsum(waits * noise, axis=1))
    (grows,) = claim(figures3_4(iterations=2000), "The time to collect the final few")
    assert grows.holds.holds is holds


@pytest.mark.parametrize(("k", "share"), [(98, 0.8), (100, 0.3)])
def test_lateness_is_the_inverse_of_under(k, share):
    assert stragglers.under(k, stragglers.lateness(k, share)) == pytest.approx(share)


def test_under_is_a_sum_of_binomial_probabilities():
    late, machines = 0.02, stragglers.MACHINES
    terms = [math.comb(machines, j) * late**j * (1 - late) ** (machines - j) for j in range(3)]
    assert stragglers.under(98, late) == pytest.approx(sum(terms))


def test_independent_machines_cannot_have_the_papers_two_shares():
    assert stragglers.lateness(100, 0.295) < stragglers.lateness(98, 0.805)  # the most, and the least, when rounded


def test_the_cluster_lies_between_the_papers_two_shares():
    times = stragglers.collected(4000, seed=1)
    late = (times >= stragglers.LIMIT).mean()
    assert stragglers.lateness(100, 0.3) < late < stragglers.lateness(98, 0.8)
    for k in (98, 100):
        share = stragglers.under(k, late)
        error = scipy.stats.binom.std(len(times), share) / len(times)
        assert (times[:, k - 1] < stragglers.LIMIT).mean() == pytest.approx(share, abs=4 * error)


def test_the_longest_gradient_is_longer_than_its_median_in_half_of_the_draws():
    seconds = 50.0
    count = round(stragglers.iterations_until(seconds))
    longest = [stragglers.collected(count, seed)[:, -1].max() for seed in range(200)]
    assert np.mean(np.greater(longest, seconds)) == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(200))


@pytest.mark.full
def test_figure2_counts_lost_runs_and_chooses_the_best_rate(session):
    session.used.clear()
    output = figure2(staleness=[0, 5], rates=[0.05, 50.0], seeds=1, epochs=0.5)
    table = output.table
    assert sorted(zip(*(table[key] for key in KEYS), strict=True)) == [
        *itertools.product((0.0, 3.0), (0, 5), (0.05, 50.0))
    ]
    assert (cells(table, rate=50.0)["lost, %"] == 100).all()
    assert cells(table, rate=50.0).ours.isna().all()
    assert (table["best rate"] == (table.rate == 0.05)).all()
    for records in session.used.values():
        config, summary = records[0]["config"], records[-1]
        entries, rate = config["protocol"]["simulated_staleness"], config["optimizer"]["learning_rate"]
        if rate < 1:
            where = {"ramp__epochs": entries["ramp_epochs"], "average_staleness": entries["average"]}
            assert one(table, **where, rate=rate) == pytest.approx(100 * (1 - summary["average_accuracy"]))
        if (entries["average"], entries["ramp_epochs"]) == (5, 0.0):  # the first five gradients cannot be so stale
            assert summary["staleness"] == pytest.approx(5 - (5 + 4 + 3 + 2 + 1) / summary["gradients"])
    assert all(claim.holds.holds is None for claim in output.claims)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("optimizer", "average"), [("nesterov", None), ("rmsprop", 0.5)])
def test_updates_are_those_of_the_first_evaluation_that_reaches_the_target(session, optimizer, average):
    session.used.clear()
    target, gradients = 0.2, [90, 100]
    small = {"gradients": gradients, "rates": [0.01], "seeds": 2, "epochs": 1.0, "target": target, "iterations": 20}
    changed = {"average_decay": average} if average else {}
    output = figures5_6(**small, optimizer=optimizer, **changed)
    naive, accuracy = {n: [] for n in gradients}, "average_accuracy" if average else "test_accuracy"
    assert {records[0]["config"]["split"] for records in session.used.values()} == {"drawn"}
    for records in session.used.values():
        config = records[0]["config"]
        assert (config["rule"]["kind"] == "rmsprop") == (optimizer == "rmsprop")
        assert config["average_decay"] == (average or 0.98)
        evaluations = [record for record in records if record["kind"] == "evaluation"]
        smooth = crossing.smoothed(*([record[name] for record in evaluations] for name in ("gradients", accuracy)))
        after = next(index for index, value in enumerate(smooth) if value >= target)
        ends = smooth[after - 1], smooth[after]
        between = np.interp(target, ends, [evaluations[index]["updates"] for index in (after - 1, after)])
        naive[records[-1]["num_workers"]].append(between)
    for n in gradients:
        assert one(output.table, updates_of="r = 0.01", quantity="updates", N=n) == pytest.approx(np.mean(naive[n]))
    waits = stragglers.collected(20, seed=0).mean(axis=0)
    assert one(output.table, quantity="seconds per update", N=96) == pytest.approx(waits[95])
    assert len(output.claims) == 3


def test_a_target_that_is_never_reached_leaves_its_rate_out(session):
    output = figures5_6(gradients=[90, 100], rates=[1e-6], seeds=1, epochs=0.5, target=1.0, iterations=20)
    assert set(output.table["updates of"]) == {"all", THROUGH}
    assert output.notes[0].startswith("2 of 2 runs did not reach the target")
    assert [c.holds.holds for c in output.claims] == [None] * 3


@pytest.mark.parametrize("gradients", [[50], [50, 101]])
def test_impossible_gradients_are_named(gradients):
    with pytest.raises(ValueError, match=f"^gradients={','.join(map(str, gradients))} must be "):
        figures5_6(gradients=gradients)


def test_the_shortest_time_is_of_updates_times_their_duration():
    counts = np.arange(94, 101)
    seconds = np.array([1.0, 1.0, 1.0, 1.2, 1.5, 2.0, 4.0])
    measured = {94: np.array([99.0, 101.0, 100.0]), 100: np.array([87.0, 89.0, 88.0])}
    table, _, claims = compared(counts, np.tile(seconds, (3, 1)), {"r = 1": measured})
    linear = 100 - 2 * (counts - 94)
    assert one(table, quantity="N with the shortest time") == counts[np.argmin(linear * seconds)] == BEST
    relative = linear * seconds / (linear * seconds).min()
    np.testing.assert_allclose(cells(table, quantity="time, over the shortest").ours.to_numpy(float), relative)
    # Not run with N = 50; fastest in every sample; N = 100 waits.
    assert [c.holds.holds for c in claims] == [None, True, True]
    _, _, claims = compared(counts, np.ones((3, 7)), {"r = 1": measured})
    assert [c.holds.holds for c in claims] == [None, False, False]
    for draws, seeds in ((1, 2), (2, 1)):
        of_seeds = {n: values[:seeds] for n, values in measured.items()}
        found = compared(counts, np.tile(seconds, (draws, 1)), {"r = 1": of_seeds})[2]
        assert [c.holds.holds for c in found] == [None] * 3


@pytest.mark.parametrize(("slower", "verdict"), [(96, HOLDS), (95, OUTSIDE)])
def test_the_best_n_is_decided_where_the_spread_of_run_times_does_not_change_it(slower, verdict):
    counts = np.arange(94, 101)
    seconds = np.where(counts > BEST, 9.0, 1.0)
    measured = {94: np.array([99.0, 101.0, 100.0]), 100: np.array([87.0, 89.0, 88.0])}
    others = {0.1: np.where(counts > slower, 9.0, 1.0), 0.03: seconds}
    (_, fastest, _) = compared(counts, np.tile(seconds, (3, 1)), {"r = 1": measured}, others)[2]
    assert fastest.verdict == verdict
    assert f"N = {slower} with a spread of 0.1, N = 96 with a spread of 0.03" in fastest.premises[0].ours


def test_nothing_is_said_of_values_of_n_that_are_not_among_those_compared():
    counts = np.arange(60, 91)
    table, _, claims = compared(counts, np.ones((2, 31)), {THROUGH: {n: np.array([1e4 / n]) for n in counts.tolist()}})
    assert one(table, quantity="N with the shortest time") == 90
    assert cells(table, quantity="updates").paper.isna().all()
    assert [(c.holds.holds, c.on_paper.holds) for c in claims] == [(None, True), (None, None), (None, None)]


def test_no_verdict_rests_on_the_curve_through_the_papers_numbers():
    counts = np.arange(50, 101)
    seconds = np.tile(np.where(counts > BEST, 9.0, 1.0), (2, 1))
    updates = {n: np.array([value]) for n, value in zip(counts.tolist(), paper_updates(counts), strict=True)}
    table, _, claims = compared(counts, seconds, {THROUGH: updates})
    assert one(table, quantity="N with the shortest time") == BEST
    assert [c.holds.holds for c in claims] == [None] * 3


def test_verdicts_rest_on_the_first_rate():
    counts, at_100 = np.arange(50, 101), np.array([10.0, 100.0, 1000.0])
    by_rate = {f"r = {factor}": {50: factor * unlike(at_100), 100: at_100} for factor in (1.8, 1.1)}
    for names, holds in ((["r = 1.8", "r = 1.1"], True), (["r = 1.1", "r = 1.8"], False)):
        halving = compared(counts, np.ones((2, 51)), {name: by_rate[name] for name in names})[2][0]
        assert halving.holds.holds is holds
        assert all(name in halving.ours for name in names)
    lost = {"r = 1.8": {50: at_100 + np.inf, 100: at_100}, "r = 1.1": by_rate["r = 1.1"]}  # the target is not reached
    assert compared(counts, np.ones((2, 51)), lost)[2][0].holds.holds is None


def test_halving_is_judged_by_ratios_that_are_paired_by_seed():
    counts, at_100 = np.arange(50, 101), np.array([10.0, 100.0, 1000.0])
    for factor, holds in ((1.8, True), (1.1, False)):
        updates = {50: factor * unlike(at_100), 100: at_100}
        table, _, claims = compared(counts, np.ones((2, 51)), {"r = 1": updates})
        assert one(table, quantity="updates, over those of N = 100") == pytest.approx(factor)
        assert (claims[0].holds.holds, claims[0].on_paper.holds) == (holds, True)


def test_papers_updates_go_through_the_two_that_are_printed():
    np.testing.assert_allclose(paper_updates(np.array(list(PRINTED))), list(PRINTED.values()))
    at_50, at_100, serial = paper_updates(np.array([50, 100, np.inf]))
    assert at_100 - serial == pytest.approx(at_50 - at_100)  # b / 100 = b / 50 - b / 100


def test_resampling_draws_the_same_seeds_for_all_n_and_durations_apart():
    counts = np.arange(10, 21)
    drawn = lambda *given: {*resampled(*given).tolist()}
    assert drawn(counts, np.ones((2, 11)), {10: [20, 20], 20: [10, 10]}) == {20}
    assert drawn(counts, np.ones((2, 11)), {10: [20, 5], 20: [10, 10]}) == {10, 20}
    assert drawn(counts, np.ones((1, 11)), {10: [20, 5], 20: [10, 10]}) == set()
    assert drawn(counts, np.ones((2, 11)), {10: [20], 20: [10]}) == set()
    slow = np.array([1.0, 100.0])  # a seed that needs 100 times as many updates at each N changes no ratio
    assert drawn(counts, np.ones((2, 11)), {10: 1.1 * slow, 20: slow}) == {20}
    durations = np.array([[1.0, 3.0, 3.0], [6.0, 2.0, 3.0]])
    assert drawn(np.arange(10, 13), durations, {10: [1, 1], 12: [1, 1]}) == {10, 11}


@pytest.mark.parametrize("rows", [1, 7, 40])
def test_parts_have_the_mean_of_all_rows(rows):
    seconds = np.random.default_rng(rows).random((rows, 3))
    assert len(stragglers.in_parts(seconds)) == min(rows, 20)
    np.testing.assert_allclose(stragglers.in_parts(seconds).mean(axis=0), seconds.mean(axis=0))
