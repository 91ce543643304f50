"""Tables 4 to 6 and Figures 2, 6 and 7 of Barkai et al. 2020: configurations, verdicts on known numbers, smoke."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

from experiments.gap_aware import figure7, figures2_6, lines, printed, tables4_6
from experiments.gap_aware.accuracies import (
    PAPER_CELLS,
    SINGLE_TITLE,
    Accuracies,
    everywhere,
    everywhere_on_paper,
    paper_accuracy,
)
from experiments.gap_aware.accuracies import accuracies as of_runs
from experiments.gap_aware.frameworks import FRAMEWORKS, METHODS, sweep
from experiments.harness import Session, within
from sgdlab.runs import resolve
from tests.lib.accuracies import accuracies
from tests.lib.unlike import unlike


def around(means, *, seeds=5, lost=()):
    """Runs whose mean accuracies are known up to a thousandth: for each framework, N and method."""
    noise = np.random.default_rng(0)
    of = {key: mean + noise.normal(scale=1e-3, size=seeds) for key, mean in means.items()}
    return accuracies(of, train=lambda test: unlike(test.round(2)), lost=lost)


def of_the_paper(**changed):
    """Runs with the means of the paper's tables."""
    means = {(f, n, m): paper_accuracy(f, n, m) for f, n in PAPER_CELLS for m in METHODS.values()}
    means |= {(f, 1, SINGLE_TITLE): printed.SINGLE[f] for f in FRAMEWORKS}
    return around(means, **changed)


class TestConfigurations:
    """Appendix C.4."""

    PAPER = (
        ("R", 160, (80, 120), 0.1, 10, 0.0005),
        ("W", 200, (60, 120, 160), 0.2, 10, 0.0005),
        ("W100", 200, (60, 120, 160), 0.2, 100, 0.0005),
    )

    @pytest.mark.parametrize(("letter", "epochs", "steps", "factor", "classes", "decay"), PAPER)
    def test_paper(self, letter, epochs, steps, factor, classes, decay):
        config = FRAMEWORKS[letter].config("paper")
        assert (config.epochs, config.rate.steps, config.rate.factor) == (epochs, steps, factor)
        assert (config.rate.decay, config.rate.warmup_epochs, config.batch_size) == ("step", 5, 128)
        assert (config.optimizer.learning_rate, config.optimizer.weight_decay) == (0.1, decay)
        assert not config.cluster.gamma.heterogeneous
        assert FRAMEWORKS[letter].classes == classes
        assert config.data.kind == ("cifar100" if classes == 100 else "cifar10")

    @pytest.mark.parametrize(("letter", "epochs", "steps", "factor", "classes", "decay"), PAPER)
    @pytest.mark.parametrize("size", ["laptop", "gpu"])
    def test_smaller_sizes_keep_the_protocol(self, size, letter, epochs, steps, factor, classes, decay):
        del classes
        config = FRAMEWORKS[letter].config(size)
        np.testing.assert_allclose(np.array(config.rate.steps) / config.epochs, np.array(steps) / epochs)
        np.testing.assert_allclose(config.rate.warmup_epochs / config.epochs, 5 / epochs)
        assert (config.rate.factor, config.optimizer.weight_decay) == (factor, decay)
        resolve(config)

    def test_the_papers_sweep(self):
        runs = sweep("R", "paper", num_workers=printed.WORKERS, seeds=5).runs
        assert len(runs) == 7 * 10 * 5 + 5
        assert {run.varied["cluster.num_workers"] for run in runs} == {1, *printed.WORKERS}
        assert {run.varied["method"] for run in runs if run.varied["cluster.num_workers"] == 1} == {"nag_asgd"}


class TestPrinted:
    """Test what the paper itself says of its numbers."""

    def test_tables(self):
        found = printed.tables()
        assert len(found) == 3 * 10 * 7
        for letter, (tuned, gap_aware, dana) in printed.TABLE_1.items():  # rounded or cut to a decimal
            exact = printed.grid(letter).to_numpy().max(), *(paper_accuracy(letter, 32, m) for m in ("GA", "DANA-GA"))
            np.testing.assert_allclose((tuned, gap_aware, dana), exact, atol=0.1)


class TestVerdicts:
    """On numbers for which they are known."""

    def test_on_the_papers_means_they_are_those_on_paper(self):
        for claim in tables4_6.claims(of_the_paper()):
            assert claim.holds.holds == claim.on_paper.holds, claim.says
            assert claim.verdict == ("holds" if claim.holds.holds else "fails")

    def test_a_worse_cell_fails_and_an_equal_one_is_open(self):
        def verdict(shift):
            noise = np.random.default_rng(0).normal(size=(2, 5))
            found = accuracies({("R", 8, "GA"): 90 + noise[0], ("R", 8, "SA"): 90 - shift + noise[1]})
            return everywhere(found, [("GA", "SA")])[1].holds

        assert [verdict(shift) for shift in (10.0, 0.0, -10.0)] == [True, None, False]

    def test_on_paper(self):
        assert everywhere_on_paper([("GA", "SA")])[1]
        assert not everywhere_on_paper([("DANA-GA", "DANA")])[1]
        assert everywhere_on_paper([("DANA-GA", "DANA")], [("W", 8)])[1]

    def test_lost_runs_count_as_they_are_and_are_marked(self):
        found = around({("R", 8, "DANA"): 10.0, ("R", 8, "GA"): 90.0}, lost=("DANA",))
        assert (found.lost(("R", 8), "DANA"), found.lost(("R", 8), "GA")) == ("5 of 5", "")
        assert found.values(("R", 8), "DANA").mean() == pytest.approx(10.0, abs=0.01)

    def test_training_error(self):
        (zero, *_) = figures2_6.claims(of_the_paper())
        assert zero.holds.holds is False  # test accuracies stand for training's there

    def test_a_hard_task_is_one_in_print_and_here(self):
        """W100 has 23.28 % test error in print; digits with 6 % say nothing of it. That of R is 7.57 %."""
        single = {"R": 98.0, "W": 98.0, "W100": 94.0}
        means = {(f, n, m): single[f] - 5 for f, n in PAPER_CELLS for m in METHODS.values()}
        found = around(means | {(f, 1, SINGLE_TITLE): accuracy for f, accuracy in single.items()})
        claims = [claim for claim in tables4_6.claims(found) if "DANA potentially" in claim.says]
        assert [claim.verdict for claim in claims] == ["fails", "fails", "not in our regime"]
        assert claims[2].premises[0].says == "23.28 % test error of the single worker"
        assert len({claim.cause for claim in claims}) == 1

    def test_lost_runs_are_counted_and_not_averaged(self):
        """Of 20 seeds, 3 of GA are lost: its mean is far lower, with an interval that says nothing; 17 are worse."""
        ga, sa = 90 + 0.01 * np.arange(20), 91 + 0.02 * np.arange(20)
        ga[:3] = 10.0
        assert everywhere(accuracies({("R", 8, "GA"): ga, ("R", 8, "SA"): sa}), [("GA", "SA")])[1].holds is None
        evidence = accuracies({("R", 8, "GA"): ga, ("R", 8, "SA"): sa}, lost=("GA",)).better(("R", 8), "GA", "SA")
        assert evidence.holds is False
        assert evidence.p_against == pytest.approx(1 / 2**20)  # none of 20 at even odds
        # Where those of SA are lost, its mean is lower, and GA is not worse for being so in 17 seeds; nor better.
        ga[:3], sa[:3] = 90.0, 10.0
        evidence = accuracies({("R", 8, "GA"): ga, ("R", 8, "SA"): sa}, lost=("SA",)).better(("R", 8), "GA", "SA")
        assert evidence.holds is None

    def test_losses_are_better_where_they_are_lower(self):
        found = around({("R", 8, "GA"): 95.0, ("R", 8, "SA"): 90.0})
        difference = found.difference(("R", 8), "GA", "SA", "test_loss")
        assert difference.mean == pytest.approx(math.log(11 / 6), rel=1e-2)
        assert found.better(("R", 8), "GA", "SA", "test_loss").holds is True

    def test_an_example_is_the_least_half_width(self):
        found = accuracies({("R", 8, "GA"): [95.0, 95.0, 95.0], ("R", 8, "SA"): [94.9, 94.9, 94.9]})
        assert found.better(("R", 8), "GA", "SA").holds is None
        for example, holds in ((0.05, True), (0.2, None)):
            known = Accuracies(found.runs.assign(example=example))
            assert known.better(("R", 8), "GA", "SA").holds is holds

    @pytest.mark.parametrize(("worse", "holds"), [((), True), (("SA",), True), (("SA", "NAG-ASGD", "DANA"), False)])
    def test_the_training_loss_agrees_with_the_test_error(self, worse, holds):
        """GA and DANA-GA are better, by training loss, too, but than those whose loss is turned round."""
        found = around({("R", 8, m): 90.0 + 3 * (m == "GA") + 2 * (m == "DANA-GA") for m in METHODS.values()}
                       | {("R", 1, SINGLE_TITLE): 95.0})  # fmt: skip
        runs = found.runs.assign(train_loss=found.runs.test_loss - 3.0 * found.runs.method.isin(worse))
        claim = figures2_6.claims(Accuracies(runs))[2]
        assert claim.holds.holds is holds
        assert claim.ours.startswith("of 4 comparisons the test error decides")


class TestConvergence:
    """Figure 7."""

    EPOCHS = np.arange(0.0, 21.0)

    def curves(self, methods, seeds=3):
        """Exact straight lines of the loss's logarithm over that of epochs: method -> epoch at which it is 0.1."""
        runs = []
        for (method, reached), seed in itertools.product(methods.items(), range(seeds)):
            slope = np.log(23) / np.log(20 * (1 + 0.001 * seed))
            loss = np.log(0.1) - slope * (np.log(np.maximum(self.EPOCHS, 0.5)) - np.log(reached * (1 + 0.001 * seed)))
            about = {"framework": "R", "method": method, "seed": seed}
            runs.append(pd.DataFrame({**about, "epoch": self.EPOCHS, "error": 5.0, "loss": loss}))
        return pd.concat(runs)

    @pytest.mark.parametrize(("sa", "dana", "verdicts"), [(5.5, 4.5, [True, True]), (9.0, 12.0, [False, False])])
    def test_epochs_to_a_common_loss(self, sa, dana, verdicts):
        """A tenth of 20 epochs is 2; that a method is slower by a factor is so at every loss."""
        curves = self.curves({"GA": 5.0, "SA": sa, "DANA-GA": dana, SINGLE_TITLE: 4.0})
        epochs = figure7.convergence(curves)
        np.testing.assert_allclose(epochs["R", "SA"] / epochs["R", "GA"], sa / 5, rtol=0.02)
        claims = figure7.claims(curves)
        assert [claim.holds.holds for claim in claims] == verdicts

    def test_a_run_that_does_not_reach_it_decides_nothing(self):
        curves = self.curves({"GA": 5.0, "SA": 5.0, "DANA-GA": 4.5, SINGLE_TITLE: 4.0})
        lost = (curves.method == "SA") & (curves.seed == 0)
        curves.loc[lost, "loss"] = np.log(np.log(10))
        epochs = figure7.convergence(curves)
        assert np.isnan(epochs["R", "SA", 0])
        assert figure7.claims(curves)[0].holds.holds is None


@pytest.mark.full
def test_smoke(tmp_path):
    """All three commands, on the same runs."""
    with within(Session(tmp_path, jobs=1)) as session:
        tables = tables4_6.tables4_6(**tables4_6.tables4_6.values("smoke"))
        done = len(list(session.store.path.glob("*.jsonl")))
        curves = figures2_6.figures2_6(**figures2_6.figures2_6.values("smoke"))
        epochs = figure7.figure7(**figure7.figure7.values("smoke"))
        assert len(list(session.store.path.glob("*.jsonl"))) == done == 8
    ours = tables.table.set_index(["method", "N"]).ours
    errors = curves.table[curves.table.error == "test, %"].set_index(["method", "N"]).ours
    np.testing.assert_allclose(ours + errors, 100)
    last = epochs.table[epochs.table.quantity == "test error at the end, %"].set_index("method").ours
    np.testing.assert_allclose(last["GA"], errors["GA", 4])
    assert tables.table.paper.notna().all()
    assert math.isnan(curves.table[curves.table.error != "test, %"].paper.max())
    assert all(output.picture is not None for output in (tables, curves, epochs))
    assert tables.table["test loss"].between(0, math.log(10) + 1e-6).all()


@pytest.mark.parametrize("logarithmic", [False, True])
def test_means_are_drawn_with_their_intervals(logarithmic):
    values = [np.array([1.0, 2.0, 4.0]), np.array([3.0])]
    panel = Figure().subplots()
    lines.banded(panel, [4, 8], values, {"color": "k"}, logarithmic=logarithmic)
    lines.bars(panel, [4, 8], [np.log(own) if logarithmic else own for own in values], {}, logarithmic=logarithmic)
    shown = np.log(values[0]) if logarithmic else values[0]
    half = stats.t.ppf(0.975, 2) * shown.std(ddof=1) / math.sqrt(3)
    low, middle, high = (shown.mean() + sign * half for sign in (-1, 0, 1))
    low, middle, high = map(math.exp, (low, middle, high)) if logarithmic else (low, middle, high)
    for line in panel.get_lines()[:2]:
        np.testing.assert_allclose(line.get_ydata(), [middle, 3.0])
    corners = panel.collections[0].get_paths()[0].vertices[:, 1]
    bar = panel.containers[0][2][0].get_segments()
    for drawn in (corners, np.concatenate(bar)[:, 1]):
        np.testing.assert_allclose([drawn.min(), drawn.max()], [low, high])
    assert np.ptp(bar[1][:, 1]) == pytest.approx(0, abs=1e-9)  # of a single value, no interval is known


def test_a_climb_above_many_workers_is_not_said_without_few():
    """Train 48 workers alone, which does not show where the error begins to climb."""
    means = {("R", 48, m): paper_accuracy("R", 48, m) for m in METHODS.values()} | {("R", 1, SINGLE_TITLE): 92.43}
    (claim,) = (c for c in tables4_6.claims(around(means)) if "climbs" in c.says)
    assert claim.holds.holds is None


def test_one_worse_cell_among_many_is_named_and_decides_nothing_unless_it_is_sure():
    def said(worse):
        differences = {n: np.full(5, 10.0) + np.arange(5) for n in range(2, 61)} | {61: np.array(worse)}
        of = {("R", n, m): 50 + sign * d for n, d in differences.items() for m, sign in (("GA", 1), ("SA", 0))}
        return everywhere(accuracies(of), [("GA", "SA")])

    words, holds = said([-1.0, -1.2, -0.8, -1.1, -0.5])  # t = 7.5: beyond 2.8 by itself, and not beyond 9.2 of 60
    assert holds.holds is None
    assert "worse in 1 (R N=61)" in words
    assert said([-1.0, -1.01, -0.99, -1.0, -1.0])[1].holds is False


def test_a_run_that_ends_like_a_guess_is_lost(monkeypatch):
    class Runs:
        def table(self):
            columns = {"method": "dana", "cluster.num_workers": 8, "seed": range(4), "train_accuracy": 0.5}
            columns |= {"test_examples": 2048, "test_loss": [0.1, math.nan, 1e9, 0.1], "train_loss": 0.1}
            return pd.DataFrame(columns | {"test_accuracy": [0.9, 0.149, 0.151, 0.9], "diverged": [0, 0, 0, 1]})

    monkeypatch.setattr("experiments.harness.prepare", lambda *sweeps: None)
    found = of_runs({"R": Runs()})
    assert found.runs.lost.tolist() == [False, True, False, True]
    np.testing.assert_allclose(
        np.exp(found.runs.test_loss), [0.1, math.log(10), math.log(10), 0.1]
    )  # a guess's at most
    assert found.example == 100 / 2048
    assert of_runs({"W100": Runs()}).runs.lost.tolist() == [False, False, False, True]
