"""Claims of papers other than the five: what their figures measure and judge, on made-up numbers and toy runs."""

import math
import types
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest
from lib import tiny

from experiments.beyond import (
    birch,
    birch_winners,
    by_time,
    clipping,
    disagreeing,
    dropcompute,
    four_speeds,
    m_synchronous,
    methods,
    mindflayer,
    one_step_delay,
    optireduce,
    ringleader,
    single_worker,
)
from experiments.harness import Session, within
from sgdlab import policies, replay
from sgdlab.cluster import Fixed
from sgdlab.runs import resolve
from sgdlab.runs.configuration import flat
from sgdlab.runs.plan import make_plan
from tests.lib.unlike import unlike

FIGURES = [ringleader.ringleader, dropcompute.dropcompute, optireduce.optireduce, four_speeds.four_speeds]
FIGURES += [mindflayer.mindflayer, birch.birch, birch_winners.birch_winners, disagreeing.disagreeing]
FIGURES += [m_synchronous.m_synchronous, one_step_delay.one_step_delay, clipping.clipping]


def plain(**changes):
    given = {"rate__of": "update", "rate__warmup_epochs": 0.0, "rate__decay": "constant", "average_decay": None}
    return tiny.config(method="asgd", **given, **changes)


@pytest.mark.parametrize("made", FIGURES, ids=lambda made: made.name)
def test_a_figure_is_of_a_row_of_its_paper(made):
    assert set(made.numbers) <= set(made.paper.rows)
    assert {"smoke", "laptop", "gpu", "paper"} <= set(made.scales)


def test_a_run_takes_the_time_that_it_is_given():
    for method in ("asgd", "synchronous", "rennala"):
        plan = by_time.until(plain(protocol__kind={"asgd": "asynchronous"}.get(method, method)), 300.0)
        longer = make_plan(tiny.config(**{**_of(plan.experiment.source), "epochs": plan.experiment.epochs * 2}))
        assert plan.schedule.wall_clock() <= 300.0
        # Another update would be too late.
        assert longer.schedule.applied[plan.schedule.num_updates, 0] > 300.0


def _of(config):
    names = ("rate.of", "rate.warmup_epochs", "rate.decay", "average_decay", "protocol.kind", "method")
    entries = dict(flat(config))
    return {name.replace(".", "__"): entries[name] for name in names}


@pytest.mark.full
def test_what_is_measured_is_of_the_training_set():
    plan = by_time.until(plain(), 200.0)
    found = by_time.measured(plan)
    assert len(found["seconds"]) == len(found["loss"]) == len(found["squared_norm"]) == 4
    assert found["loss"][0] > found["loss"][-1]
    assert found["seconds"][0] == 0.0
    assert found["seconds"][-1] == plan.schedule.wall_clock()
    assert found["gradients"] == plan.num_gradients
    # All 1437 examples: an accuracy is a whole number of them.
    assert found["accuracy"][-1] * 1437 == pytest.approx(round(found["accuracy"][-1] * 1437), abs=1e-3)


def test_numbers_at_times_and_times_of_numbers():
    run = {"seconds": [0.0, 10.0, 20.0], "loss": [2.0, by_time.WORST, 0.5]}
    assert by_time.at_times(run, "loss", np.array([9.0, 10.0, 25.0])).tolist() == [2.0, by_time.WORST, 0.5]
    assert by_time.first_time(run, "loss", 0.5) == 20.0
    assert by_time.first_time(run, "loss", 0.4) == math.inf
    assert by_time._finite(math.nan) == by_time._finite(math.inf) == by_time.WORST


def test_clients_have_the_labels_of_the_experiment(monkeypatch):
    """0.1 for each of 10 labels, the same shares for all seeds, and the ladder of compute times."""
    seen = []
    monkeypatch.setattr(by_time, "until", lambda config, seconds: seen.append((config, seconds)))
    monkeypatch.setattr(by_time, "measured", lambda plan: {})
    given = {"images": "digits", "num_workers": 100, "seconds": 7.0, "hidden": 128, "alpha": 0.1}
    for seed in (1, 2):
        ringleader.trained(**given, method="ringleader", rate=0.05, seed=seed)
    (first, seconds), (second, _) = seen
    assert (first.heterogeneity.alpha, first.batch_size, seconds) == (pytest.approx(1.0), 4, 7.0)
    plan = make_plan(first)
    shares = [resolve(config).data.shares.examples for config in (first, second)]
    np.testing.assert_array_equal(*shares)
    assert (plan.rates == 0.05).all()
    assert plan.experiment.cluster.law.draw(50, seed=0).min(axis=0).sum() == pytest.approx(5050, rel=0.05)  # 1 to 100 s


def test_claims_of_ringleader_are_on_pairs():
    ends = {"ringleader": [1.0, 2.0, 4.0], "malenia": [2.0, 4.1, 8.0], "ace": [0.5, 1.0, 2.1], "asgd": [1.0, 2.1, 3.9]}
    ends["newest"] = ends["ringleader"]
    given = {"loss": ends, "squared_norm": ends}
    found = ringleader.claims(given, [0.5, 0.9, 1.0], 300_000.0)
    assert [claim.holds.holds for claim in found] == [True, False, None]
    assert [claim.verdict for claim in found] == ["holds", "fails", "inconclusive"]
    # What is printed in the authors' repository is not the paper's.
    assert [claim.on_paper.holds for claim in found] == [None] * 3
    # Short runs say nothing of long ones, nor clients of whom all agree of those who do not.
    short = ringleader.claims(given, [0.5, 0.9, 1.0], 3000.0)
    assert {claim.verdict for claim in short} == {"not in our regime"}
    agree = ringleader.claims(given, [0.97, 0.98, 1.0], 300_000.0)
    assert [claim.verdict for claim in agree] == ["holds", "fails", "not in our regime"]


def test_a_lost_run_is_not_chosen(monkeypatch, tmp_path):
    """A dead network: a guess's loss, and the smallest gradient."""

    def trained(*, method, rate, **given):
        loss, norm = (2.3, 1e-6) if rate == 0.2 else (rate, 0.1)
        updates = 20 if method == "ace" else 10
        run = {"seconds": [0.0, 50.0, 100.0], "loss": [2.5, 1.5, loss], "squared_norm": [3.0, 2.0, norm]}
        return run | {"accuracy": [0.1, 0.5, 0.9], "gradients": 20, "updates": updates}

    monkeypatch.setattr(ringleader, "trained", ringleader.goes_by()(trained))
    monkeypatch.setattr(ringleader, "GRIDS", dict.fromkeys(ringleader.TITLES, (0.1, 0.2)))
    monkeypatch.setattr(ringleader, "Sweep", _Called)
    output = ringleader.ringleader(**ringleader.ringleader.values("smoke") | {"rates": 2})
    assert set(output.table.rate) == {0.1}
    assert "Ringleader ASGD 0.2 (loss 2.3)" in output.notes[1]
    # A mean over 601 points of steps: 3 before 50 s, 2 before 100 s, then the end.
    assert "Ringleader ASGD 0.2 (2.5)" in output.notes[2]
    assert "10 updates and IA²SGD 20" in output.notes[3]
    assert "after 10, IA²SGD has a loss of 1.5" in output.notes[3]
    assert "Their repository" in output.notes[4]


class _Called:
    """A sweep whose work is called at once."""

    def __init__(self, base, points, *, work, together):
        self.rows = [base | point | work(**base, **point) for point in points]

    def table(self):
        return pd.DataFrame(self.rows)


def test_a_threshold_gains_what_two_workers_lose():
    """Without noise there is nothing to gain; with much, the closed form and the simulation say about the same."""
    given = {"law": "log-normal", "num_workers": 16, "micro_batches": 12, "communication": 1.0, "rounds": 40, "seed": 0}
    still = dropcompute.simulated(variation=1e-6, **given)
    assert (still["speedup"], still["dropped"]) == (pytest.approx(1.0, abs=1e-4), pytest.approx(0.0, abs=0.1))
    loud = dropcompute.simulated(variation=0.5, **given)
    assert 1.05 < loud["speedup"] == pytest.approx(loud["expected"], rel=0.1)
    # The share that is dropped costs, the time that is saved gains.
    assert 0 < loud["dropped"] < 50
    # Where sums are normal, the closed form is right, and so it is of the rounds' own largest sum.
    normal = dropcompute.simulated(variation=0.3, **given | {"law": "normal"})
    assert normal["speedup"] == pytest.approx(normal["expected"], rel=0.02)
    assert normal["speedup"] == pytest.approx(normal["given"], rel=0.02)


def test_claims_of_dropcompute():
    runs = pd.DataFrame(
        [
            {"law": law, "num_workers": n, "seed": seed, "speedup": own, "expected": own * off, "given": own}
            for law, off in (("log-normal", 0.8), ("normal", 0.99))
            for n, speedup in ((8, 1.1), (16, 1.2))
            for seed in range(3)
            for own in [speedup + 0.001 * seed]
        ]
    )
    runs[["speedup", "expected"]] = unlike(runs[["speedup", "expected"]])
    # Only normal times are what the closed form assumes.
    grows, close = dropcompute.claims(runs)
    assert (grows.holds.holds, close.holds.holds) == (True, True)
    assert "off by at most 0.99999" in close.ours
    assert "log-normal times by 20.00000" in close.ours
    _, close = dropcompute.claims(runs.assign(expected=unlike(runs.speedup * 0.9)))
    assert close.holds.holds is False


def test_time_saved_is_against_the_same_seed():
    spread = math.log(3.0) / optireduce._NORMAL_99
    rows = [("synchronous", 0, 100.0), ("synchronous", 1, 200.0), ("synchronous", 2, 100.0)]
    rows += [("cutoff", 0, 50.0), ("cutoff", 1, None), ("cutoff", 2, 100.0)]
    rows += [("timeout", 0, 60.0), ("timeout", 1, 119.0), ("timeout", 2, 59.8)]
    runs = pd.DataFrame(
        [
            {"method": m, "seed": seed, "cluster.long_tailed.spread": spread, "test_accuracy": 0.9,
             "seconds_to_target": reached, "seconds": 300.0, "speedup": faster}
            for m, seed, reached in rows
            for faster in [1.0 if m == "synchronous" else 1.25 + seed / 100]
        ]
    )  # fmt: skip
    found = optireduce.measured(runs).set_index(["method", "seed"])
    assert found.ratio.unique().tolist() == [3.0]
    assert found.gain["cutoff"].tolist() == [50.0, -50.0, 0.0]
    assert found.gain["timeout"].tolist() == pytest.approx([40.0, 40.5, 40.2])
    cutoff, _, timeout, faster = optireduce.claims(found.reset_index(), 8)
    assert (cutoff.holds.holds, timeout.holds.holds, faster.holds.holds) == (None, True, True)
    assert found.faster["timeout"].tolist()[0] == pytest.approx(20.0)
    assert "16.4 %" in cutoff.because
    # Of one wait for 8 gradients, nobody can save 30 %.
    assert (cutoff.verdict, faster.verdict) == ("not in our regime", "holds")
    assert not timeout.because


def test_the_mean_gradient_of_quadratics_that_disagree_is_that_of_h():
    """ASGD and Ringleader ASGD on four workers, a second time: with the events of `protocols`, the updates by hand."""
    given, rate = (4, 0.1, 0.3), 0.05
    generator = np.random.default_rng([5, 1])
    minima = generator.standard_normal((4, 10))
    start, minima = generator.standard_normal(10) / disagreeing.EIGENVALUES, minima - minima.mean(axis=0)
    noise = 0.3 * np.random.default_rng([5, 2]).standard_normal((4096, 10))
    made = disagreeing.schedule(4, 0.1, "asgd", 30.0, seed=5)
    assert 30.0 < made.wall_clock() < 36.0
    (result,) = disagreeing._replayed(*given, "asgd", 30.0, seed=5, rates=[rate])
    versions, program = [start], replay.lower(made)
    for number in range(int(made.used().sum())):
        row = program.gradient[number]
        read = versions[made.read[row, 0]]
        gradient = disagreeing.EIGENVALUES * read - minima[made.worker[row]] - noise[number]
        versions.append(versions[-1] - rate * gradient)
    np.testing.assert_allclose(result.params, versions[-1], rtol=1e-4, atol=1e-4)
    last = result.history.evaluations[-1]
    assert last["squared_norm"] == pytest.approx(np.sum((disagreeing.EIGENVALUES * versions[-1]) ** 2), rel=1e-3)


def test_norms_are_averaged_over_the_last_fifth_of_the_time():
    evaluations = [{"seconds": s, "squared_norm": n} for s, n in ((0.0, 9.0), (70.0, 4.0), (90.0, 2.0), (101.0, 99.0))]
    result = types.SimpleNamespace(history=types.SimpleNamespace(evaluations=evaluations))
    assert disagreeing.measured(result, 100.0) == pytest.approx(3.0, abs=0.02)  # half of the time 4, half 2


def test_claims_of_workers_who_disagree():
    def norms(long, **changes):
        found = {"asgd": (0.1, 0.1), "ringleader": (1e-2, 6e-4), "ace": (5e-3, 7e-4), "rescaled": (7e-3, 8e-4)}
        found |= {"malenia": (9e-3, 1e-3), "malenia_4": (9e-3, 1e-3), "malenia_16": (9e-3, 1e-3)} | changes
        horizons = (100.0, long)
        values = {(m, s): v for m, of in found.items() for s, v in zip(horizons, of, strict=True)}
        return {key: unlike(np.full(3, value), seed=k) for k, (key, value) in enumerate(values.items())}

    verdicts = lambda *given, **changes: [claim.verdict for claim in disagreeing.claims(norms(*given, **changes), 4)]
    assert verdicts(4000.0) == ["holds", "holds", "holds"]
    assert verdicts(2000.0) == ["holds"] + ["not in our regime"] * 2  # 1,000 compute times of the slowest worker
    assert verdicts(4000.0, asgd=(0.1, 0.01))[0] == "fails"
    assert verdicts(4000.0, malenia_16=(9e-3, 1e-4))[1] == "holds in part"
    worse = dict.fromkeys(("malenia", "malenia_4", "malenia_16"), (9e-3, 1e-4))
    assert verdicts(4000.0, **worse, ace=(1e-3, 1e-4)) == ["holds", "fails", "fails"]


def test_what_could_be_saved():
    """Save more by knowing all than who waits for a fixed number; without tails there is nothing to save."""
    most = optireduce.savings(3.0, 8)
    assert 10 < most["fixed"] < most["known"] < 30 < most["ring"]
    # The slowest of two log-normal numbers: 2 exp(s^2 / 2) Phi(s / sqrt 2) on average.
    spread = math.log(3.0) / optireduce._NORMAL_99
    slowest = 2 * math.exp(spread**2 / 2) * NormalDist().cdf(spread / math.sqrt(2))
    assert optireduce.savings(3.0, 2)["ring"] == pytest.approx(100 * (1 - 1 / slowest), abs=0.5)
    none = optireduce.savings(1.0 + 1e-9, 4)
    assert max(none.values()) == pytest.approx(0, abs=1e-6)


def test_tails_are_as_long_as_they_are_called():
    config = optireduce.configured("digits", num_workers=8, epochs=1.0, target=0.9, network="mlp")
    config.cluster.long_tailed.spread = math.log(3.0) / optireduce._NORMAL_99
    seconds = resolve(config).cluster.law.draw(40_000, seed=0)
    assert np.quantile(seconds, 0.99) / np.quantile(seconds, 0.5) == pytest.approx(3.0, rel=0.02)


def test_methods_of_four_speeds_are_told_apart():
    points = [four_speeds._point(m, 0.1, 0) for m in four_speeds.METHODS]
    assert four_speeds.named(pd.DataFrame(points)).name.tolist() == list(four_speeds.METHODS)
    losses = {"sync": (1.0, 1.1, 0.9), "naive": (2.0, 2.1, 1.9), "dn_dylu": (1.02, 1.11, 0.93)}
    runs = pd.DataFrame(
        [
            {"name": m, "seed": seed, "test_loss": loss, "seconds": 10.0 if m == "sync" else 4.0}
            for m in four_speeds.METHODS
            for seed, loss in enumerate(losses.get(m, losses["naive"]))
        ]
    )
    runs["test_loss"] = unlike(runs.test_loss)
    once = runs.assign(length=20.0)
    verdicts = lambda runs: [claim.holds.holds for claim in four_speeds.claims(runs)]
    assert verdicts(once) == [True, True, True, True]
    # The naive way is the best: there is no gap, of which nothing can be said; of one length, nothing fails.
    turned = once.assign(test_loss=once.test_loss.where(once.name != "naive", once.test_loss / 4))
    assert verdicts(turned) == [None, None, None, True]
    both = lambda long: pd.concat([turned, long.assign(length=80.0)])
    assert verdicts(both(turned)) == [False, None, False, True]
    assert verdicts(both(once)) == [None, None, None, True]
    closed = lambda runs: four_speeds.claims(runs)[1].verdict  # with no gap in any length, there is nothing to close
    assert [closed(runs) for runs in (once, turned, both(once), both(turned))] == [
        "holds", "inconclusive", "inconclusive", "not in our regime",
    ]  # fmt: skip
    far = once.assign(test_loss=once.test_loss.where(once.name != "dn_dylu", 2 * once.test_loss))
    assert verdicts(pd.concat([far, far.assign(length=80.0)]))[:2] == [True, False]


def test_slow_workers_make_fewer_steps():
    config = four_speeds.configured("digits", epochs=1.0, steps=20, network="mlp")
    config.update_from_flattened_dict(four_speeds._point("dn_dylu", 0.1, 0))
    plan = make_plan(config)
    expected = [math.floor(20 * 0.58 / seconds) for seconds in four_speeds.SECONDS]
    assert plan.experiment.steps.tolist() == expected == [20, 15, 7, 3]


def test_claims_of_mindflayer():
    ends = {
        "mindflayer": (1.0, 1.0),
        "learned": (1.0, 9.0),
        "rennala": (1.0, 4.0),
        "asgd": (2.0, 2.0),
        "synchronous": (0.5, 3.0),
    }
    runs = pd.DataFrame(
        [
            {"index": index, "method": m, "seed": seed, "end": end * (1 + 0.01 * seed)}
            for m, of_tails in ends.items()
            for index, end in zip((6.0, 0.5), of_tails, strict=True)
            for seed in range(3)
        ]
    )
    runs["end"] = unlike(runs.end)
    assert [claim.holds.holds for claim in mindflayer.claims(runs)] == [True, True, True, None, True, True, False]
    alike = runs.assign(end=runs.end.where(runs.method != "learned", unlike(1.05 * (1 + 0.01 * runs.seed))))
    assert mindflayer.claims(alike)[-1].holds.holds


def test_limits_of_mindflayer(monkeypatch):
    seen = []
    monkeypatch.setattr(by_time, "until", lambda config, seconds: seen.append(config.protocol.mindflayer))
    monkeypatch.setattr(by_time, "measured", lambda plan, norms: {})
    given = {"images": "digits", "num_workers": 3, "seconds": 7.0, "tail_share": 0.2, "hidden": 4, "index": 0.5}
    for method in ("mindflayer", "learned"):
        mindflayer.trained(**given, method=method, rate=0.1, seed=0)
    assert [own.seconds for own in seen] == [(1.5,) * 3, None]
    assert [own.trials for own in seen] == [(2,) * 3] * 2


def test_what_comes_after_the_end_does_not_count():
    """A run whose first update is too late ends where it began."""
    runs = pd.DataFrame(
        [{"seconds": [0.0, 5.0, 9.0], "loss": [3.0, 2.0, 1.0]}, {"seconds": [0.0, 99.0], "loss": [3.0, 1.0]}]
    )
    assert mindflayer.ended(runs, 7.0).end.tolist() == [2.0, 3.0]


def test_the_theorem_promises_what_it_says():
    """Equal workers and a batch of each: R = N - 1, so that N (4 + 8) gradients, of 1 / N s each, are enough."""
    given = {"num_workers": 8, "power": 0.0, "noise": 8, "rounds": 20}
    found = birch.promised(method="synchronous", **given)
    assert (found["tree_distance"], found["seconds"]) == (7, pytest.approx(4 + 8))
    assert found["least"] == pytest.approx(2.0)  # (N + sigma^2 / epsilon) / sum 1 / tau
    # Of a straggler, full synchrony takes its pace.
    slow = birch.promised(method="synchronous", **given | {"power": 1.0})
    assert slow["seconds"] == pytest.approx(8 * found["seconds"])


def test_claims_of_birch():
    rows = [("rennala", 7, 10.0), ("ringmaster", 7, 9.0), ("synchronous", 7, 100.0), ("asynchronous", 30, 17.0)]
    runs = pd.DataFrame(
        [{"method": m, "tree_distance": far, "noise": 8, "seconds": s, "least": 1.0} for m, far, s in rows]
    )
    assert [claim.holds.holds for claim in birch.claims(runs)] == [True, True, True, True]
    assert [claim.holds.holds for claim in birch.claims(runs.assign(noise=7))][:2] == [False, False]
    assert [claim.holds.holds for claim in birch.claims(runs.assign(least=0.5))][2:] == [False, True]


def test_the_theorem_knows_what_messages_cost():
    """Local SGD of N equal workers: R = N H - 1, and a round of H h + tau seconds has N H gradients."""
    given = {"num_workers": 4, "noise": 4, "method": "synchronous", "rounds": 8}
    for steps in (1, 2):
        found = birch_winners.promised(**given, regime="slow", steps=[steps])
        round_ = 10 * steps + 100
        assert found["tree_distance"] == 4 * steps - 1
        assert found["seconds"] == pytest.approx((4 * 4 * steps + 8 * 4) * round_ / (4 * steps))
    best = birch_winners.promised(**given, regime="slow", steps=[1, 2, 4, 32])
    assert best["chosen"] == 4  # 4 (10 H + 100) + 8 (10 + 100 / H) is least near H = 4.5
    assert birch_winners.promised(**given, regime="free", steps=[1, 2, 4])["chosen"] == 1


def test_claims_of_birch_winners():
    times = {"free": (1.0, 2.0), "slow": (3.0, 1.0), "computing": (1.0, 1.5), "messages": (1.0, 1.5)}
    rows = [
        {"regime": regime, "num_workers": 4, "noise": noise, "method": method, "local": local, "seconds": far * s}
        for regime, of in times.items()
        for noise in (1, 4)
        for method, far in (("synchronous", 2.0), ("ringmaster", 1.0))
        for local, s in zip((False, True), of, strict=True)
    ]
    runs = pd.DataFrame(rows)
    assert [claim.holds.holds for claim in birch_winners.claims(runs)] == [True, True, True]
    assert "slow messages: Ringmaster ASGD, local steps (N = 4)" in birch_winners._winners(runs, "much")
    tied = birch_winners._winners(runs.assign(seconds=1.0), "little")
    assert "free messages: full synchrony and full synchrony, local steps and Ringmaster ASGD and" in tied
    worse = runs.assign(seconds=runs.seconds.where(runs.method == "synchronous", 9.0), local=~runs.local)
    assert [claim.holds.holds for claim in birch_winners.claims(worse)] == [False, False, False]


def test_a_figure_is_made_whole(tmp_path):
    with within(Session(tmp_path, jobs=1)):
        output = dropcompute.dropcompute(**dropcompute.dropcompute.values("smoke"))
    assert len(output.table) == 2 * 4 * 2
    assert len(output.claims) == 2


def test_the_comparison_of_all_methods_asks_for_what_is_possible():
    with pytest.raises(ValueError, match="methods=asgb must be all, or names"):
        methods.methods(methods=["asgb"])
    with pytest.raises(ValueError, match="num_workers=1 must be at least 2"):
        methods.methods(num_workers=[1])


@pytest.mark.parametrize("size", [1, 3, 7])
def test_collecting_is_as_long_as_an_update_of_rennala_sgd_that_interrupts(size):
    runtimes = np.random.default_rng(size).gamma(4.0, 0.25, (60, 5)) * np.arange(1, 6)
    schedule = policies.simulate(
        lambda num_workers: policies.Collect(size=size, interrupt=True), runtimes, num_gradients=4 * size
    )
    rows, ends = np.zeros(5, int), [0.0]
    for update in range(4):  # each begins with the compute times that come next, of all workers
        block = np.stack([np.append(runtimes[row:, w], np.full(row, 1e9)) for w, row in enumerate(rows)], axis=1)
        ends.append(ends[-1] + m_synchronous.collecting(block[:20], [size])[0])
        rows = np.bincount(schedule.worker[schedule.started < ends[-1] - 1e-9], minlength=5)
        assert schedule.applied[update, 0] == pytest.approx(ends[-1], rel=1e-12)
    with pytest.raises(ValueError, match=r"runtimes of 2 rows must be more: they end after \d gradients"):
        m_synchronous.collecting(runtimes[:2], [40])


def test_times_of_m_synchronous_sgd_are_those_of_formulas(monkeypatch):
    monkeypatch.setitem(m_synchronous.LAWS, "fixed", ("", lambda n: Fixed(num_workers=n, seconds=(2.0,))))
    found = m_synchronous.measured(law="fixed", num_workers=4, rounds=2, seed=0)
    # All 4 at once; Rennala SGD has no better batches than multiples of 4, of which the largest is 16.
    for place, noise in enumerate((0.04, 0.4, 4.0, 16.0)):
        best = min((1 + noise / size) * 2.0 * math.ceil(size / 4) for size in range(1, 17))
        assert found[f"ratio_{place}"] == pytest.approx((1 + noise / 4) * 2.0 / best)
    assert found["waited_for"] == 1.0
    runs = pd.DataFrame(
        [
            {"law": law, "num_workers": count, "seed": seed, **dict.fromkeys(("ratio_0", "ratio_1", "ratio_2"), 1.0)}
            | {"ratio_3": 1.3 + seed / 1e3 + (law == "ladder") * count / (90 + seed)}
            for law in m_synchronous.LAWS
            for count in (10, 100)
            for seed in range(4)
        ]
    )
    assert [claim.holds.holds for claim in m_synchronous.claims(runs)] == [True, True, True]
    far = runs.assign(ratio_1=runs.ratio_3 + np.where(runs.law == "exponential", 5.0, 0.0))
    assert [claim.holds.holds for claim in m_synchronous.claims(far)] == [False, False, True]
    turned = runs.assign(num_workers=110 - runs.num_workers)
    assert [claim.holds.holds for claim in m_synchronous.claims(turned)] == [True, True, False]


@pytest.mark.long("four runs that are compiled")
def test_a_norm_that_is_never_reached_clips_nothing_and_delays_are_of_the_slow_half():
    small = {"images": "digits", "num_workers": 4, "gradients": 60, "hidden": 4, "rate": 0.1, "seed": 0}
    plain, wide, tight = (clipping.trained(**small, slow=7.0, norm=norm) for norm in (None, 1e6, 0.01))
    assert plain == wide
    assert tight["loss"][-1] > plain["loss"][-1]  # hardly moved
    assert plain["delay"] >= 2 * 6  # two fast workers while a slow one computes
    assert clipping.trained(**small, slow=clipping.ALONE, norm=None)["delay"] == 1


def test_claims_on_clipping_are_of_the_largest_delay():
    def of(costs):  # logarithm of the loss that the slow half costs, without and with clipping
        return pd.DataFrame(
            {
                "clipped": clipped,
                "slow": slow,
                "seed": seed,
                "end": math.exp(seed + slow / 100 * (cost + (seed + clipped * seed**2) / 1e4)),
            }
            for clipped, cost in zip((False, True), costs, strict=True)
            for slow in (clipping.ALONE, 10.0, 100.0)
            for seed in range(5)
        )

    verdicts = lambda costs: [claim.holds.holds for claim in clipping.claims(of(costs))]
    assert verdicts((0.5, 0.0)) == [True, True, True]
    assert verdicts((0.0, 0.5))[1:] == [False, False]
    *_, last = clipping.claims(of((-0.1, 0.0)))
    assert not last.premises[0].met  # nothing to remove


@pytest.mark.parametrize("costs", [(0.2, 0.0), (0.0, 0.2)])
def test_claims_on_a_delay_of_one_step_compare_the_optimizers(costs):
    runs = pd.DataFrame(
        {
            "task": "digits",
            "rule": rule,
            "case": case,
            "seed": seed,
            "test_loss": math.exp(seed + late + 1e-4 * (late + len(case)) * (-1) ** seed),
        }
        for rule, cost in zip(one_step_delay.GRIDS, costs, strict=True)
        for case, late in (("none", 0.0), ("same", 2 * cost), ("own", cost))
        for seed in range(5)
    )
    suffers, robust, less = [claim.holds.holds for claim in one_step_delay.claims(runs)]
    assert (robust, less) == ((True, True) if costs[0] else (False, False))
    assert suffers is (True if costs[0] else None)


def test_the_least_time_to_accuracy_counts_gradients_up_to_the_target():
    runs = pd.DataFrame({"gradients": [100, 100], "epochs": [4.0, 4.0], "capacity": [5.0, 5.0]})
    found = optireduce.floors(runs.assign(epochs_to_target=[1.0, None]))
    assert found.tolist() == [5.0, 20.0]


def alone(accuracies, *, lost=()):
    """Runs of a single worker: by factor, the accuracy of each seed; and the factors whose last run diverged."""
    return pd.DataFrame(
        [
            {"factor": factor, single_worker.ENTRY: 0.0125 * factor, "seed": seed, "test_accuracy": accuracy / 100}
            | {"diverged": factor in lost and seed == len(of_factor) - 1, "test_examples": 360}
            for factor, of_factor in accuracies.items()
            for seed, accuracy in enumerate(of_factor)
        ]
    )


def test_a_rate_as_good_as_the_best_is_among_the_best():
    noise = np.random.default_rng(0).normal(scale=0.2, size=(3, 12))
    first, second, third = np.tile([96.0, 97.0, 98.0, 99.0], 3) + noise - [[2.0], [0.0], [0.0]]
    table, claim = single_worker.judged(alone({0.1: first, 1.0: second, 4.0: third}))
    assert table[single_worker.AMONG].tolist() == [False, True, True]
    assert claim.holds.holds
    assert (table.low <= table.ours).all()
    assert (table.ours <= table.high).all()
    # 0 of 12 runs: 1 - 0.025^(1/12).
    assert table["diverged, high"].tolist() == pytest.approx([100 * (1 - 0.025 ** (1 / 12))] * 3)
    # A configuration whose rate is the worst of these.
    _, claim = single_worker.judged(alone({1.0: first, 10.0: second, 40.0: third}))
    assert claim.holds.holds is False
    assert "times the rate" in claim.ours


def test_rates_are_known_to_one_test_example_and_by_three_seeds():
    equal = {0.3: [97.0] * 3, 1.0: [97.5 - 100 / 360] * 3, 3.0: [97.5] * 3}
    table, claim = single_worker.judged(alone(equal))
    assert table[single_worker.AMONG].tolist() == [False, True, True]
    assert table[f"{single_worker.FROM_BEST}, ±"][1] == pytest.approx(100 / 360)
    assert claim.holds.holds
    _, claim = single_worker.judged(alone({factor: of_factor[:2] for factor, of_factor in equal.items()}))
    assert claim.holds.holds is None


def test_a_rate_that_loses_a_run_is_not_among_the_best():
    good, bad = [97.0, 97.5, 98.0, 97.0, 97.2], [99.0, 99.0, 99.0, 99.0, 10.0]
    table, claim = single_worker.judged(alone({1.0: good, 3.0: good, 10.0: bad}, lost=[10.0]))
    assert table[single_worker.AMONG].tolist() == [True, True, False]
    assert table.diverged.tolist() == [0.0, 0.0, 20.0]
    assert math.isnan(table[single_worker.FROM_BEST][2])
    assert claim.holds.holds
    table, claim = single_worker.judged(alone({1.0: bad, 3.0: good}, lost=[1.0]))
    assert table[single_worker.AMONG].tolist() == [False, True]
    assert claim.holds.holds is None


def test_the_configurations_own_rate_must_be_among_those_tried():
    with pytest.raises(ValueError, match=r"factors=0\.3,3 must have 1"):
        single_worker.single_worker(factors=[0.3, 3.0])
