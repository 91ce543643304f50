"""What Chen et al. 2016 train: Table 2 with Figure 7, Figures 8 and 9, and the paper's own sizes of Figures 2, 5 and 6.

Small runs of all of them are in tests/harness/test_papers.py; here, their claims are made of curves that are known.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from experiments.backup_workers import figure2, figure8, figure9, figures5_6, table2_figure7, training
from experiments.backup_workers.figure8 import ASYNC, EARLIER, SYNC, UNCLIPPED
from experiments.backup_workers.figure9 import SERIAL
from experiments.backup_workers.figure9 import SYNC as ONE_BACKUP
from sgdlab.data.imagenet import decode
from sgdlab.runs import plan, rates, resolve
from tests.lib.unlike import unlike

IMAGENET, PER_GRADIENT = 1_281_167, 32
SEEDS = 4


def run(gradients, precision, *, per_update=1, seconds=1.0):
    """The evaluations of a run whose update takes so many gradients and seconds."""
    updates = np.asarray(gradients) / per_update
    return pd.DataFrame(
        {
            "gradients": gradients,
            "updates": updates,
            "average_accuracy": precision,
            "hours": updates * seconds / 3600,
            "staleness": 0.0,
        }
    )


def claim(output, begins):
    """The only claim that begins so."""
    (found,) = [each for each in output.claims if each.says.startswith(begins)]
    return found


def ours(output, **where):
    """The numbers `ours` of the rows with these entries, a column's name with _ for a space."""
    table = output.table
    for name, value in where.items():
        table = table[table[name.replace("_", " ")] == value]
    return table.ours.to_numpy(float)


def captured(monkeypatch, function, runs=None, **values):
    """The configurations of a figure's runs, none of which is done, and the figure that `runs` give."""
    found = []

    class Caught(Exception):
        """Instead of the runs."""

    def curves(sweep):
        found.extend(each.settings for each in sweep.runs)
        if runs is None:
            raise Caught
        return [runs(settings) for settings in found]

    for module in (training, figure8):
        monkeypatch.setattr(module, "curves", curves)
    try:
        return found, function(**values)
    except Caught:
        return found, None


def test_reached_and_convergence_are_of_the_first_evaluation_that_is_high_enough():
    curve = run([0, 10, 20, 30, 40], [0.1, 0.7, 0.6, 0.798, 0.8])
    assert [training.reached(curve, level, "updates") for level in (0.05, 0.65, 0.75, 0.9)] == [0, 10, 30, math.inf]
    assert training.at_convergence(curve, "updates") == 30  # 0.2 points from the highest precision


@pytest.mark.parametrize("seeds", [2, 5])
def test_what_rises_in_most_seeds_rises(seeds):
    rising = np.arange(4.0)[:, None] + np.zeros(seeds)
    assert training.rises(rising) == (True, 1.0)
    assert training.rises(-rising) == (False, -1.0)
    assert training.rises(rising * 0) == (None, 0.0)
    rising[3] = math.inf  # never reached, which is last
    assert training.rises(rising) == (True, 1.0)
    mixed = rising.copy()
    mixed[:, ::2] *= -1
    assert training.rises(mixed)[0] is None


def test_page_needs_more_than_one_seed_and_two_rates():
    for shape in ((3, 1), (2, 8)):
        assert training.rises(np.arange(np.prod(shape)).reshape(shape).astype(float))[0] is None


def test_the_exact_p_value_of_page():
    # All 24 orders of 4 are as probable: one seed in the order has p = 1/24, which alone is above 2.5 %.
    order = np.arange(4.0)[:, None]
    assert training.rises(np.hstack([order, order]))[0] is True  # 1/576
    swapped = np.array([0.0, 1.0, 3.0, 2.0])[:, None]
    least = {p: sum(x * y for x, y in zip(range(4), p, strict=True)) for p in itertools.permutations(range(4))}
    total = least[0, 1, 2, 3] + least[0, 1, 3, 2]
    share = np.mean([a + b >= total for a, b in itertools.product(least.values(), repeat=2)])
    assert training.rises(np.hstack([order, swapped]))[0] is (True if share < 0.025 else None)


def test_the_papers_inception_is_trained_as_in_appendix_a2():
    config = training.inception("paper")
    assert (config.network.kind, config.data.kind, config.cluster.kind) == ("inception", "imagenet", "long_tailed")
    assert (config.batch_size, config.optimizer.momentum, config.rule.rmsprop.decay) == (PER_GRADIENT, 0.9, 0.9)
    assert config.average_decay == 0.9999
    given = config.data.imagenet
    assert decode(given.crops, tuple(given.sides), given.size, given.test_side).size == 299
    machines, waits = config.cluster.num_workers, config.protocol.backup_workers.backups
    assert (machines, waits) == (106, 6)
    # gamma_0 beta^(t N / (2 T)), with T the minibatches of the data
    per_epoch = IMAGENET // PER_GRADIENT
    found = rates.rates(
        resolve(config).rate,
        peak=0.045 * 100,
        num_workers=machines,
        epochs=config.epochs,
        updates_per_epoch=per_epoch / 100,
    )
    t = np.array([0, 1000, 76_000])
    np.testing.assert_allclose(found[t], 4.5 * 0.94 ** (t * 100 / (2 * per_epoch)))
    assert abs(len(found) - 76_200) < 2


@pytest.mark.parametrize("size", ["laptop", "gpu"])
def test_smaller_runs_end_at_the_papers_share_of_the_rate_and_average_alike(size):
    paper, config = training.inception("paper"), training.inception(size)
    end = lambda c: c.rate.factor ** (c.epochs / c.rate.period)
    assert end(config) == pytest.approx(end(paper))
    examples = {"laptop": config.data.digit_pairs.num_examples, "gpu": 50_000}[size]
    updates = config.epochs * (examples // config.batch_size) / 100
    assert 0.1 < 1 / (1 - config.average_decay) / updates < 0.2  # the paper's is 10,000 of 76,200


@pytest.mark.parametrize("size", ["laptop", "paper"])
def test_table2_trains_the_four_rates_of_an_update(monkeypatch, size):
    figure = table2_figure7.table2_figure7
    found, _ = captured(monkeypatch, figure, **figure.values(size))
    at_first = [config.optimizer.learning_rate * 100 for config in found]
    expected = {"paper": [1.125, 2.25, 4.5, 9.0], "laptop": [0.2, 0.4, 0.8, 1.6]}[size]
    assert sorted(set(np.round(at_first, 12))) == expected
    assert np.divide(expected, expected[0]).tolist() == list(table2_figure7.PUBLISHED)
    for config in found:
        assert (config.cluster.num_workers, config.protocol.backup_workers.backups) == (106, 6)
        assert (config.protocol.kind or config.method) == "backup_workers"


def four_rates(lows, highs, tops, seed=0):
    """Runs that reach 0.75 and 0.77 after so many updates, and end at `tops`."""
    jitter = 1e-4 * np.random.default_rng(seed).random(SEEDS)
    return {
        float(2**i): [
            run(unlike([0, low, high, 1000], (i, n)), [0.0, 0.75 + e, min(0.771, top) + e, top + e])
            for n, e in enumerate((1 + i / 1000) * jitter)
        ]
        for i, (low, high, top) in enumerate(zip(lows, highs, tops, strict=True))
    }  # fmt: skip


def test_small_rates_that_are_fast_and_poor_are_what_the_paper_says():
    # The lowest rate reaches 0.75 first and 0.7711, its highest, last; each higher rate ends higher.
    runs = four_rates([10, 20, 30, 40], [900, 800, 700, 600], [0.771, 0.775, 0.78, 0.785])
    output = table2_figure7.compared(runs, 75 / 77.75)
    assert claim(output, "Small rates require").holds
    assert claim(output, "Small rates either").holds
    assert claim(output, "... but to poorer").holds
    lowest = claim(output, "The lowest rate")
    assert lowest.holds
    assert lowest.ours.startswith("with 1 against 4: 3 ")  # 30 updates over 10
    tops = ours(output, quantity="test precision at convergence, %")
    np.testing.assert_allclose(tops, [77.1, 77.5, 78.0, 78.5], atol=0.02)
    assert output.table.paper.isna().all()  # the body of Table 2 is not in our copy
    published = output.table["as published, not in our copy"].dropna().to_list()
    assert published == [number for row in table2_figure7.PUBLISHED.values() for number in row]


def test_rates_whose_larger_ones_are_faster_and_better_contradict_half_of_it():
    runs = four_rates([40, 30, 20, 10], [900, 800, 700, 600], [0.771, 0.775, 0.78, 0.785])
    output = table2_figure7.compared(runs, 75 / 77.75)
    fast = claim(output, "Small rates require")
    assert (fast.holds, bool(fast.because)) == (False, True)
    assert claim(output, "Small rates either").holds
    assert claim(output, "The lowest rate").holds is False
    assert table2_figure7.compared(runs, 75 / 77.75, "paper").claims[0].because == ""


def test_a_rate_that_never_reaches_the_precision_is_counted_and_not_averaged():
    runs = four_rates([10, 20, 30, 40], [900, 800, 700, 600], [0.771, 0.775, 0.78, 0.3])
    output = table2_figure7.compared(runs, 75 / 77.75)
    last = output.table[output.table["initial rate"] == 8.0].set_index("quantity")
    assert last["seeds without"].to_list() == [0, 0, 0, SEEDS]  # 0.75 is reached on the way
    assert math.isnan(last.ours.iloc[-1])


def machines(sync, asynchronous, unclipped=0.1, seed=0):
    """Runs at 53, 106 and 212 machines, from (precision, gradients to it, seconds an update) of each."""
    noise, runs = 1e-3 * np.random.default_rng(seed).random(SEEDS), {}
    for method, given in ((SYNC, sync), (ASYNC, asynchronous)):
        for count, (top, spent, seconds) in zip((53, 106, 212), given, strict=True):
            per_update = count - round(figure8.SHARE * count) if method == SYNC else 1
            epoch = 1 if method == SYNC else count
            runs[method, count] = [
                run([0, own[1], 10_000], [0.0, own[0], own[0]], per_update=per_update, seconds=own[2]).assign(
                    epochs=lambda found, epoch=epoch: found.updates / epoch
                )
                for n, e in enumerate(noise)
                for own in [unlike([top + e, spent, seconds], (n, per_update))]
            ]
    runs[UNCLIPPED, 212] = [each.assign(average_accuracy=unclipped + e) for each, e in zip(runs[ASYNC, 212], noise)]  # noqa: B905
    return runs


def test_figure8_of_the_papers_own_numbers():
    # Of 53 machines synchronous training takes longer to converge, of 106 and 212 less time.
    sync = [(0.78, 9000, 2.0), (0.78, 5000, 2.0), (0.78, 5000, 2.0)]
    slow = [(0.775, 9000, 1.0 / 53), (0.775, 9000, 2.0 / 106), (0.775, 9000, 2.0 / 212)]
    output = figure8.compared(machines(sync, slow))
    assert claim(output, "Synchronous training attains").holds
    assert claim(output, "It converges earlier").holds
    caption = claim(output, "Synchronous training with backup")
    assert (caption.holds, caption.on_paper) == (False, False)  # with 53 machines it does not
    assert claim(output, "In the asynchronous mode").holds
    count = dict(zip(EARLIER, (50, 100, 200), strict=True))
    for number, (_, spent, seconds) in zip(EARLIER, sync, strict=True):
        where = {"machines": number, "method": SYNC}
        assert ours(output, **where, quantity="epochs to converge") == pytest.approx(spent / count[number])
        assert ours(output, **where, quantity="hours to converge") == pytest.approx(
            spent / count[number] * seconds / 3600
        )
        assert ours(output, **where, quantity="seconds per epoch") == pytest.approx(seconds)
        where["method"] = ASYNC
        assert ours(output, **where, quantity="epochs to converge") == pytest.approx(9000 / number)
    assert claim(output, "It has a comparable").holds is False  # twice as long at 53
    better = ours(output, method=f"{SYNC} is better by", quantity="test precision, %")
    np.testing.assert_allclose(better, 0.5)


def test_figure8_where_clipping_does_not_help_and_asynchrony_is_better():
    sync, other = [(0.7, 5000, 1.0)] * 3, [(0.75, 5000, 0.01)] * 3
    output = figure8.compared(machines(sync, other, unclipped=0.75))
    assert claim(output, "Synchronous training attains").holds is False
    assert claim(output, "In the asynchronous mode").holds is False


@pytest.mark.parametrize(("size", "rate"), [("laptop", 0.008), ("paper", 0.045)])
def test_figure8_trains_53_106_and_212_machines_in_both_ways(monkeypatch, size, rate):
    figure = figure8.figure8
    found, _ = captured(monkeypatch, figure, **figure.values(size) | {"seeds": 1})
    assert all(config.optimizer.learning_rate == rate for config in found)
    waiting = [config for config in found if config.protocol.kind == "backup_workers"]
    assert [(c.cluster.num_workers, c.protocol.backup_workers.backups) for c in waiting] == [
        (53, 3),
        (106, 6),
        (212, 12),
    ]
    assert [c.optimizer.clip_norm for c in waiting] == [None] * 3  # "gradient clipping is no longer needed"
    never = [(c.cluster.num_workers, c.optimizer.clip_norm) for c in found if c.protocol.kind == "asynchronous"]
    assert never == [(53, 1.0), (106, 1.0), (212, 1.0), (212, None)]


def test_figure8_shares_its_synchronous_runs_with_table2(monkeypatch):
    keys = {}
    for module, figure in ((training, table2_figure7.table2_figure7), (figure8, figure8.figure8)):
        with monkeypatch.context() as patch:
            sweeps = []

            def caught(sweep, sweeps=sweeps):
                sweeps.append(sweep)
                raise InterruptedError

            patch.setattr(module, "curves", caught)
            with pytest.raises(InterruptedError):
                figure(seeds=2)
        keys[module] = {each.key for each in sweeps[0].runs}
    assert len(keys[training] & keys[figure8]) == 2  # N = 100 with the third rate


def test_figure9_gives_all_runs_the_same_number_of_updates(monkeypatch):
    figure = figure9.figure9
    found, _ = captured(monkeypatch, figure, **figure.values("laptop") | {"seeds": 1})
    plans = [plan.make_plan(config) for config in found]
    assert [len(each.rates) for each in plans] == [1200] * 5
    assert [each.schedule.num_workers for each in plans] == [1, 8, 8, 16, 16]
    assert [each.schedule.gradients_per_update() for each in plans] == [1, 7, 1, 15, 1]
    for each in plans:
        np.testing.assert_allclose(each.rates[[0, 600]], 0.004 * 0.03 ** np.array([0, 0.5]))


def test_the_papers_pixelcnn_is_trained_as_in_appendix_a4():
    config = training.pixelcnn("paper", updates=200_000, rate=1e-4)
    assert (config.data.kind, config.batch_size, config.optimizer.momentum) == ("cifar10", 4, 0.9)
    assert config.rule.rmsprop.decay == 0.95
    found = rates.rates(resolve(config).rate, peak=1e-4, num_workers=8, epochs=1, updates_per_epoch=200_001)
    np.testing.assert_allclose(found[[0, -1]], [1e-4, 3e-6])
    assert figure9.figure9.values("paper")["updates"] == 200_000


KINDS = ((SERIAL, 1), (ONE_BACKUP, 8), (figure9.ASYNC, 8), (ONE_BACKUP, 16), (figure9.ASYNC, 16))


def ending(*ends, seconds=(36.0,) * 5):
    """Figure 9 of runs whose losses end so, of each kind and number of machines, or of the first."""
    noise = 1e-3 * np.arange(SEEDS)
    return {kind: losses(end, pace, noise) for kind, end, pace in zip(KINDS, ends, seconds)}  # noqa: B905


def losses(ends, seconds, noise):
    """Curves that fall linearly to `ends` within 100 updates."""
    there = np.arange(0, 101, 10)
    return [
        run(there, 0.0, seconds=pace).assign(best=3 - (3 - end) * there / 100)
        for seed, e in enumerate(noise)
        for end, pace in [unlike([ends + e, seconds], (seed, round(100 * abs(ends))))]
    ]


def test_figure9_of_the_papers_own_order():
    runs = ending(1.3, -3.0, 1.4, -5.0, 1.5, seconds=(36.0, 36.0, 4.0, 36.0, 2.0))
    output = figure9.compared(runs)
    assert [each.holds for each in output.claims] == [True] * 5
    # eps is serial training's highest end; with 16 machines it is reached after 3 of 10 evaluations, not 10 or 9.
    eps = max(each.best.iloc[-1] for each in runs[SERIAL, 1])
    assert eps == pytest.approx(1.3 + 1e-3 * (SEEDS - 1))
    pairs = [zip(each.updates, each.best, strict=True) for each in runs[ONE_BACKUP, 16]]
    updates = [min(update for update, low in of_seed if low <= eps) for of_seed in pairs]
    spent = ours(output, machines=16, kind=ONE_BACKUP, quantity="hours to eps")
    assert spent == pytest.approx(np.mean(updates) * 36 / 3600)
    assert ours(output, machines=16, kind=figure9.ASYNC, quantity="runs that do not reach eps") == SEEDS
    assert claim(output, "Synchronous training reduces").on_paper


def test_figure9_where_asynchrony_is_best():
    output = figure9.compared(ending(1.5, 1.4, 1.3, 1.4, 1.2))
    assert [each.holds for each in output.claims] == [False] * 5


def test_figure9_pairs_each_asynchronous_run_with_the_serial_run_of_its_seed():
    # Seed 3 is the worst of both: its serial end is eps, which all asynchronous runs of other seeds get below.
    noise = 0.1 * np.arange(SEEDS)
    runs = {key: losses(1.0, 36.0, noise) for key in ((SERIAL, 1), (ONE_BACKUP, 8))}
    runs[figure9.ASYNC, 8] = losses(1.01, 36.0, noise + 1e-3 * np.arange(SEEDS))
    output = figure9.compared(runs)
    never = claim(output, "This level is not even achieved")
    assert never.holds
    assert never.ours.startswith(f"{SEEDS} of {SEEDS} runs with 8 did not reach")
    assert ours(output, kind=figure9.ASYNC, quantity="runs that do not reach eps") == 1


@pytest.mark.parametrize(
    ("ends", "holds"),
    [
        ([1.1, 1.2, 1.1, 1.2], True),
        ([1.1, 1.2, 1.1, 0.9], None),  # mixed
        ([2.0, 2.1, 2.2, 2.1, 2.0, 2.2, 2.1, 0.99], None),  # the mean is above, but one run reaches it
        ([1.1, 0.8, 0.9, 0.9, 0.8, 0.9, 0.8, 0.8], False),  # mixed, but an interval says so
    ],
)
def test_a_level_that_some_runs_reach_is_open_unless_their_mean_is_below(ends, holds):
    assert figure9.never_reached(np.array(ends) - 1.0) is holds


def test_one_of_several_is_above_only_where_all_intervals_hold_at_once():
    values = 5.0 + np.array([-1.0, -1.0, 1.0, 1.0])
    error = math.sqrt(4 / 3 / 4)
    one, eight = (error * scipy.stats.t.isf(0.025 / cases, 3) for cases in (1, 8))
    assert figure9.at_least([values], 5.0 - 1.01 * one) is True
    assert figure9.at_least([values, *[values - 100] * 7], 5.0 - 0.99 * eight) is None
    assert figure9.at_least([values, *[values - 100] * 7], 5.0 - 1.01 * eight) is True
    assert figure9.at_least([values] * 8, 5.0 + 1.01 * one) is False
    assert figure9.at_least([], 5.0) is None


def test_what_holds_needs_no_reason():
    faster = figure9.compared(ending(1.3, -5.0, 1.4))
    assert [each.because for each in faster.claims if each.holds] == [""] * 4
    slower = figure9.compared(ending(1.3, 1.3, 1.3))
    assert claim(slower, "Synchronous training reduces").because
    rates = four_rates([10, 20, 30, 40], [900, 800, 700, 600], [0.771, 0.775, 0.78, 0.785])
    lowest = claim(table2_figure7.compared(rates, 75 / 77.75), "The lowest rate")
    assert (lowest.holds, lowest.because) == (True, "")


@pytest.mark.parametrize(
    ("staleness", "besides", "holds"), [(10, 1, False), (15, 1, True), (20, 1, True), (20, 0, None)]
)
def test_the_ramp_is_not_relevant_with_less_than_15(monkeypatch, staleness, besides, holds):
    class Swept:
        """Runs that are all lost without the ramp at one staleness, and good otherwise but for one, or for none."""

        def __init__(self, _, over):
            self.over = over

        def table(self):
            runs = pd.DataFrame(itertools.product(*self.over.values()), columns=list(self.over))
            ramp, average, *_ = self.over
            accuracy = 0.95 - 1e-3 * runs.seed - 1e-3 * runs[average]
            lost = (runs[ramp] == 0) & (runs[average] == staleness)
            lost[0] |= besides > 0
            return runs.assign(diverged=lost, train_accuracy=1.0, test_accuracy=accuracy, average_accuracy=accuracy)

    monkeypatch.setattr(figure2, "Sweep", Swept)
    output = figure2.figure2(staleness=[0, 10, 15, 20], rates=[*0.1 / np.arange(1, 11)])
    assert claim(output, "The ramp is not relevant").holds is holds


def test_a_single_machine_cannot_have_a_backup():
    with pytest.raises(ValueError, match=r"^machines=1 must be at least 2"):
        figure9.figure9(machines=[1])


def test_the_papers_mnist_is_trained_as_in_appendix_a1():
    values = figure2.figure2.values("paper")
    config = figure2.configured("paper", values["epochs"], values["decay"])
    assert (config.network.kind, config.data.kind, config.average_decay) == ("weight_norm_cnn", "mnist", 0.9999)
    found = rates.rates(
        resolve(config).rate, peak=max(values["rates"]), num_workers=1, epochs=config.epochs, updates_per_epoch=1875
    )
    hold = 15 * 1875
    np.testing.assert_allclose(found[[0, hold, hold + 5 * 1875]], [0.1, 0.1, 0.05])
    assert found[-1] == pytest.approx(0.1 / (10 * 1875))


def test_figures5_6_of_the_paper_wait_for_n_of_n_plus_6():
    values = figures5_6.figures5_6.values("paper")
    assert list(values["gradients"]) == [50, 70, 80, 90, 100]
    config = figures5_6.configured(
        "paper", values["epochs"], values["examples"], values["optimizer"], figures5_6.BACKUPS
    )
    assert (config.batch_size, config.rule.kind, config.protocol.backup_workers.backups) == (32, "rmsprop", 6)
    assert values["rates"] == [0.045]
    # The longest of the paper's runs, 137,500 updates of 50 gradients, ends before the data do.
    assert config.rate.period == 2.0
    assert config.epochs * (IMAGENET // 32) > max(n * updates for n, updates in figures5_6.PRINTED.items())


@pytest.mark.parametrize("size", ["gpu", "paper"])
def test_what_stands_for_inception_is_planned(size):
    config = training.inception(size)
    config.data.kind = "mock"
    config.data.mock.update(image_shape=(75, 75, 3), num_classes=3, num_examples=64, num_test=4)
    config.update_from_flattened_dict(training.synchronous(106, 6) | {"epochs": 100.0})
    planned = plan.make_plan(config)
    assert planned.schedule.gradients_per_update() == 100
    assert planned.rates[0] == pytest.approx(0.045 * 100)
    assert planned.schedule.staleness().max() == 0


def test_what_stands_for_pixelcnn_on_a_gpu_is_planned():
    config = training.pixelcnn("gpu", updates=20, rate=1e-3)
    config.data.kind = "mock"
    config.data.mock.update(image_shape=(4, 4, 3), num_classes=3, num_examples=16, num_test=4)
    config.update_from_flattened_dict(training.taking(config, training.asynchronous(16, None), 20))
    planned = plan.make_plan(config)
    np.testing.assert_allclose(planned.rates, 1e-3 * 0.03 ** (np.arange(20) / 20))
