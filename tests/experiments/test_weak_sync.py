"""Weak synchronization at toy size: the model of the cluster, what is counted of its runs, table and figures."""

import dataclasses
import itertools
import types

import numpy as np
import pandas as pd
import pytest

from experiments.harness import Session, interval, within
from experiments.weak_sync import blocks_behind, figure2, figures3_4, identities, messages, table1, timeouts, training
from experiments.weak_sync.settings import BOTH, SETTINGS, SMALL, SYNCHRONOUS
from experiments.weak_sync.simulation import Cluster, count_messages, simulate
from sgdlab import protocols, replay
from sgdlab.runs import plan, rates, resolve, tasks
from sgdlab.runs.datasets import TrainingData

TOY = Cluster(iterations=6)
TOY_RUN = {"cluster": dataclasses.asdict(Cluster(iterations=7)), "seed": 0}


@pytest.fixture(name="made", scope="module")
def made_at_toy_size(tmp_path_factory):
    """Makes a figure at the scale smoke, in one directory for all."""
    session = Session(tmp_path_factory.mktemp("runs"), jobs=1)

    def make(figure, **changed):
        with within(session):
            return figure(**figure.values("smoke") | changed)

    return make


def ours(output, **where):
    """The numbers of the rows of a table in which these columns have these values."""
    table = output.table
    return table[np.logical_and.reduce([table[name] == value for name, value in where.items()])].ours.tolist()


class TestCluster:
    def test_has_its_moments(self):
        cluster = Cluster(iterations=2000)
        runtimes = cluster.runtimes(0)
        assert runtimes.shape == (2000, 32)
        error = 5 / np.sqrt(runtimes.size)
        assert runtimes.mean() == pytest.approx(cluster.mean_seconds, rel=error * cluster.variation)
        assert runtimes.std() / runtimes.mean() == pytest.approx(cluster.variation, rel=error)
        assert cluster.delays(False).late_share == 0
        assert cluster.delays(True).late_share == cluster.late_share
        assert Cluster(num_workers=1, late_share=0.5).share_with_late(2) == 0.75

    def test_waiting_for_all_without_delays_is_synchronous(self):
        cluster = dataclasses.replace(TOY, base_seconds=0.0)
        schedule, delays = cluster.schedule(late=False, seed=0, num_servers=2, **SYNCHRONOUS.waits)
        synchronous = protocols.synchronous(cluster.runtimes(0))
        assert not delays.any()
        np.testing.assert_allclose(schedule.applied[:, 0], np.cumsum(cluster.runtimes(0).max(axis=1)))
        for block in range(2):
            np.testing.assert_array_equal(schedule.applied[:, block], synchronous.applied[:, 0])
            np.testing.assert_array_equal(schedule.read[:, block], synchronous.read[:, 0])

    @pytest.mark.parametrize("late", [False, True])
    def test_its_delays_are_those_that_the_protocol_draws(self, late):
        schedule, _ = TOY.schedule(late=late, seed=3, num_servers=8, **SMALL.waits)
        drawn = protocols.partial(TOY.runtimes(3), num_servers=8, pull_delays=TOY.delays(late), seed=3, **SMALL.waits)
        for name in ("read", "update", "applied"):
            np.testing.assert_array_equal(getattr(schedule, name), getattr(drawn, name))


def counted_one_by_one(schedule, delays, blocks):
    """As `count_messages`, message by message."""
    counts = dict.fromkeys(count_messages(schedule, delays, blocks), 0)
    gradients = range(schedule.num_gradients)
    stamp = [sorted(read)[delays.shape[2] - blocks] for read in schedule.read.tolist()]

    def arrives(version, worker, server):
        return (schedule.applied[version - 1, server] if version else 0.0) + delays[version, worker, server]

    for g, s in itertools.product(gradients, range(delays.shape[2])):
        newer = (arrives(v, schedule.worker[g], s) for v in range(stamp[g] + 1, delays.shape[0]))
        counts["pushes_used"] += schedule.used()[g, s]
        counts["pushes_avoidable"] += schedule.dropped()[g, s]
        counts["pushes_foreseeable"] += schedule.dropped()[g, s] and any(t <= schedule.arrived[g, s] for t in newer)
    for v, n, s in itertools.product(*map(range, delays.shape)):
        own = [g for g in gradients if schedule.worker[g] == n]
        if any(schedule.read[g, s] == v and arrives(v, n, s) <= schedule.started[g] for g in own):
            counts["responses_used"] += 1
        elif any(stamp[g] >= v for g in own):
            counts["responses_avoidable"] += 1
    return counts


class TestMessages:
    @pytest.mark.parametrize("seed", range(40))
    def test_equal_those_counted_one_by_one(self, seed):
        generator = np.random.default_rng(seed)
        shape = generator.integers(1, 7, 3)
        push, pull = (int(generator.integers(1, most + 1)) for most in shape[1:])
        delays = generator.choice([0.0, 0.1, 0.5, 2.0, 5.0], size=shape)
        schedule = protocols.partial(
            generator.choice([0.5, 1.0, 1.5, 3.0], size=shape[:2]), num_servers=int(shape[2]), push_at_least=push,
            pull_at_least=pull, pull_delays=delays, pull_timeout=float(generator.choice([0.0, 0.3])),
        )  # fmt: skip
        assert count_messages(schedule, delays, pull) == counted_one_by_one(schedule, delays, pull)

    def test_a_block_that_comes_late_and_a_gradient_that_comes_late(self):
        """Two servers and two workers; worker 1 needs 5 s for its first gradient, worker 0 misses one block."""
        delays = np.zeros((3, 2, 2))
        delays[1, 0, 1] = 0.5
        runtimes = np.array([[1.0, 5.0], [1.0, 1.0], [1.0, 1.0]])
        schedule = protocols.partial(runtimes, num_servers=2, push_at_least=1, pull_at_least=1, pull_delays=delays)
        # Updates at 1, 2 and 3 s are all worker 0's: its second gradient does without block 1 of version 1.
        np.testing.assert_array_equal(schedule.read[schedule.worker == 0], [[0, 0], [1, 0], [2, 2]])
        counts = count_messages(schedule, delays, 1)
        assert counts["pushes_used"] == 3 * 2
        assert counts["responses_used"] == 3 * 2 - 1 + 2  # worker 1 has begun with version 0 only
        assert counts["responses_avoidable"] == 1
        assert counts["pushes_avoidable"] == counts["pushes_foreseeable"] == 0  # it has not ended by then

    def test_synchronous_sgd_uses_all(self):
        counts = simulate(**TOY_RUN, **SYNCHRONOUS.waits, late=True, num_servers=4)
        assert counts["pushes_used"] == counts["responses_used"] == 7 * 32 * 4
        assert counts["pushes_avoidable"] == counts["responses_avoidable"] == 0

    def test_in_the_table_they_add_up(self, made):
        output = made(messages.messages)
        for setting in SETTINGS:
            run = simulate(**TOY_RUN, **setting.waits, late=True, num_servers=4)
            for kind in ("pushes", "responses"):
                found = {
                    name: ours(output, **{"(c, b)": str(setting)}, messages=kind, quantity=name)[0]
                    for name in ("sent", "used", "avoidable")
                }
                assert found["used"] == run[f"{kind}_used"] / 7
                assert found["sent"] == pytest.approx(found["used"] + found["avoidable"])
        pushes, responses = output.claims
        assert (pushes.verdict, responses.verdict) == ("inconclusive", "not in our regime")  # a seed; no printed rule
        assert [line.get_width() for line in output.picture.axes[0].patches[::3]] == [
            pytest.approx(simulate(**TOY_RUN, **s.waits, late=True, num_servers=4)["pushes_used"] / 7) for s in SETTINGS
        ]


class TestTimeouts:
    @pytest.mark.parametrize("setting", [BOTH, SMALL])
    def test_a_very_long_one_waits_for_all(self, setting):
        run, naive = (
            simulate(**TOY_RUN, late=True, num_servers=4, **waits)
            for waits in (setting.waits | {"timeout": 1000.0}, SYNCHRONOUS.waits)
        )
        assert run["minutes"] == naive["minutes"]
        assert len(run["behind"]) == 1

    def test_the_table_has_what_is_simulated(self, made):
        output = made(timeouts.timeouts)
        for setting, tau in itertools.product((BOTH, SMALL), (0.0, 4.0)):
            run = simulate(**TOY_RUN, **setting.waits, late=True, timeout=tau)
            where = {"(c, b)": str(setting), "tau1 = tau2, s": tau}
            minutes, behind = ours(output, **where)
            assert minutes == run["minutes"]
            assert behind == pytest.approx(np.average(range(len(run["behind"])), weights=run["behind"]))

    def test_falling_is_paired_by_seed(self):
        first, steps = np.array([1.0, 5.0, 9.0]), np.array([0.1, 0.11, 0.12])
        assert timeouts.falls(np.stack([first, first - steps])).holds is True
        assert timeouts.falls(np.stack([first, first - steps, first])).holds is False
        assert (
            timeouts.falls(np.stack([first, first - steps, first - 0.99 * steps])).holds is True
        )  # less than 1 % of 5
        assert timeouts.falls(np.stack([first, first + [0.1, -0.1, 0.0]])).holds is None  # noqa: RUF005 (an array)


class TestTraining:
    def test_every_setting_makes_as_many_updates_and_the_rate_is_linear_in_its_gradients(self):
        for setting in SETTINGS:
            schedule, _ = TOY.schedule(late=False, seed=0, num_servers=4, **setting.waits)
            config = training.configuration(TOY, late=False, seed=0, blocks=4, learning_rate=0.1, **setting.waits)
            planned = plan.make_plan(config, schedule=schedule)
            assert planned.schedule.num_updates == TOY.iterations == planned.rates.size
            assert planned.rates[0] == pytest.approx(0.1 / TOY.num_workers)
            assert planned.rates[-1] == pytest.approx(0.01 * planned.rates[0])
            assert planned.num_gradients >= TOY.iterations * setting.push_at_least
            assert config.protocol.partial.push_at_least == setting.push_at_least
            assert config.protocol.partial.pull_at_least == setting.pull_at_least
            assert not config.optimizer.nesterov

    def test_the_perceptron_can_be_split_among_32_servers(self):
        config = training.configuration(TOY, late=False, seed=0, blocks=32, learning_rate=0.1, **BOTH.waits)
        params = tasks.task_of(resolve(config)).params
        assert replay.partition(params, 32).num_blocks == 32


class TestThePapersOwnSize:
    @pytest.mark.parametrize("figure", [table1.table1, figures3_4.figures3_4])
    @pytest.mark.parametrize(("scale", "network"), [("gpu", "cifar_resnet"), ("paper", "resnet50")])
    def test_is_90_epochs_of_cifar10_on_32_workers_with_160_each(self, figure, scale, network, monkeypatch):
        monkeypatch.setattr(TrainingData, "dataset", types.SimpleNamespace(train=range(50_000)))
        values = figure.values(scale)
        assert values["seeds"] == 3
        cluster = Cluster(iterations=values["iterations"], mean_seconds=values["mean_seconds"])
        sweep = training.sweep(
            cluster, seeds=values["seeds"], size=values["size"], blocks=values["blocks"],
            learning_rate=values["learning_rate"],
        )  # fmt: skip
        assert len(sweep.runs) == 4 * 2 * 3
        assert cluster.iterations * 32 * 160 / 50_000 == pytest.approx(90, abs=0.1)
        for run in sweep.runs:
            config = training.on_cifar10(**run.settings)
            resolve(config)
            assert (config.data.kind, config.network.kind, config.network[network].get("stem")) == (
                "cifar10", network, "cifar" if network == "resnet50" else None,
            )  # fmt: skip
            c = config.protocol.partial.push_at_least
            assert (config.batch_size, config.cluster.num_workers) == (160, 32)
            assert config.protocol.partial.num_servers == 32
            assert config.protocol.partial.push_timeout == 0
            table = rates.rates(
                resolve(config).rate, peak=config.optimizer.learning_rate, num_workers=32, epochs=config.epochs,
                updates_per_epoch=312 / c,
            )  # fmt: skip
            assert len(table) == pytest.approx(cluster.iterations, abs=1)
            (falls,) = np.nonzero(np.diff(table))
            assert (falls + 1) * 90 / cluster.iterations == pytest.approx([30, 60], abs=0.2)
            assert 32 * table[[0, falls[0] + 1, -1]] == pytest.approx(0.02 * 5120 / 256 * np.array([1, 0.1, 0.01]))
            assert (config.optimizer.momentum, config.optimizer.nesterov) == (0.9, False)
            assert config.optimizer.weight_decay == 1e-4

    def test_its_run_times_give_the_papers_times(self):
        """Of the two settings that almost never wait for a late response."""
        part = Cluster(iterations=100, mean_seconds=training.WHOLE["mean_seconds"])
        for setting in (BOTH, SMALL):
            schedule, _ = part.schedule(late=True, seed=0, **setting.waits)
            minutes = schedule.wall_clock() / 60 * training.WHOLE["iterations"] / part.iterations
            assert minutes == pytest.approx(setting.paper_minutes, rel=0.01)

    def test_its_work_trains_what_it_says(self, monkeypatch):
        """On other data, with another network; reports come as the run goes on."""
        on_cifar10, reported = training.on_cifar10, []

        def on_small_images(**settings):
            with monkeypatch.context() as patch:
                patch.setattr(TrainingData, "dataset", types.SimpleNamespace(train=range(50_000)))
                config = on_cifar10(**settings)
            config.data.kind, config.data.mock.image_shape, config.data.mock.num_examples = "mock", (8, 8, 1), 480
            config.epochs, config.batch_size, config.evaluations = 4.0, 160, 2
            config.rate.steps = (1.0, 3.0)
            return config

        monkeypatch.setattr(training, "on_cifar10", on_small_images)
        cluster = dataclasses.asdict(Cluster(num_workers=4, iterations=3))
        waits = SYNCHRONOUS.waits | {"push_at_least": 4}
        records = training.trained_on_cifar10(
            cluster=cluster, network="mlp", late=False, seed=0, blocks=2, learning_rate=0.1, report=reported.append,
            **waits,
        )  # fmt: skip
        assert (records[-1]["updates"], records[-1]["gradients"]) == (3, 12)
        assert reported == records[: len(reported)]
        assert [record["kind"] for record in reported].count("evaluation") >= 2


class TestIdentities:
    def test_it_contains_synchronous_sgd_and_steps_grow_with_their_gradients(self, made):
        output = made(identities.identities)
        assert [(claim.identity, claim.holds.holds) for claim in output.claims] == [(True, True)] * 2
        steps = output.table.dropna(subset="d")
        np.testing.assert_allclose(steps.ours, [1, 2, 3, 4], rtol=1e-12)
        assert steps.paper.tolist() == steps.d.tolist()

    def test_another_number_of_gradients_is_another_run(self, x64):
        """See that what the figure compares differs where servers do not wait for all."""
        generator = np.random.default_rng(0)
        runtimes, noise = generator.gamma(4.0, size=(5, 4)), generator.standard_normal((20, 12))
        expected = identities.by_hand(noise.reshape(5, 4, 12))
        same = identities.replayed(
            protocols.partial(runtimes, num_servers=3, push_at_least=4, pull_at_least=1.0), noise
        )
        np.testing.assert_allclose(same, expected, rtol=1e-12, atol=1e-14)
        fewer = protocols.partial(runtimes, num_servers=3, push_at_least=3, pull_at_least=1.0)
        other = identities.replayed(fewer, noise)
        assert np.abs(other[-1] - expected[-1]).max() > 1e-3


class TestTable1:
    @pytest.mark.parametrize(("means", "expected"), [((30, 29), True), ((25, 24), False), ((25, 30), None)])
    def test_running_times_are_judged_with_all_that_is_assumed(self, means, expected):
        found = {
            32: [interval([mean - 0.2, mean, mean + 0.2]) for mean in means],
            64: [interval([30.0, 30.1, 29.9])] * 2,
        }
        claim = table1._timed("says", "4.3", found, 30, "why", 30.0)
        assert (claim.holds.holds, claim.on_paper.holds) == (expected, True)
        assert claim.because == ("why" if expected is False else "")
        assert f"2 assumptions on run-times and delays, {sum(mean > 27 for mean in means)} of them" in claim.ours

    @pytest.mark.full
    def test_the_papers_minutes_give_its_reductions(self, made):
        """The paper has both: minutes, and reductions in per cent with one decimal."""
        output = made(table1.table1)
        reductions = output.table[output.table.quantity == "reduction of the running time, %"].paper
        np.testing.assert_allclose(reductions, 2 * [17.5, 30.0, 31.7], atol=0.05)
        on_paper = [claim.on_paper.holds for claim in output.claims]
        assert on_paper == [True, True, None, None, True, True]

    def test_running_times_and_errors_are_those_of_the_runs(self, made):
        output = made(table1.table1)
        for setting, late, servers in itertools.product(SETTINGS, (False, True), (4, 8)):
            run, first = (
                simulate(**TOY_RUN, late=late, num_servers=servers, **waits)["minutes"]
                for waits in (setting.waits, SYNCHRONOUS.waits)
            )
            where = {"(c, b)": str(setting), "servers": servers, "delays": "injected" if late else "none"}
            assert ours(output, **where, quantity="running time, min") == [run]
            if late and setting is not SYNCHRONOUS:
                (reduction,) = ours(output, **where, quantity="reduction of the running time, %")
                assert reduction == pytest.approx(100 * (1 - run / first))
        records = training.trained(**TOY_RUN, **SMALL.waits, late=True, blocks=2, learning_rate=0.1)
        (error,) = ours(output, **{"(c, b)": str(SMALL)}, servers=2, delays="injected", quantity="error, %")
        assert error == pytest.approx(100 * (1 - records[-1]["test_accuracy"]))


def test_the_curves_are_those_of_the_runs(made):
    output = made(figures3_4.figures3_4)
    for panel, x, late in zip(
        output.picture.axes, ("updates", "seconds", "seconds"), (False, False, True), strict=True
    ):
        records = training.trained(**TOY_RUN, **BOTH.waits, late=late, blocks=2, learning_rate=0.1)[1:-1]
        line = next(line for line in panel.get_lines() if line.get_label() == str(BOTH))
        unit = 90 / 7 if x == "updates" else 1 / 60
        expected = [(unit * record[x], 100 * (1 - record["test_accuracy"])) for record in records]
        np.testing.assert_allclose(line.get_xydata(), expected)
    where = {"(c, b)": str(BOTH), "figure": "Figure 4"}
    assert ours(output, **where, quantity="minutes in all") == [pytest.approx(records[-1]["seconds"] / 60)]
    reached = made(figures3_4.figures3_4, target=0.999, variations=[0.05])
    assert "and 5 %" in reached.claims[0].ours
    assert "{" not in reached.claims[0].ours
    (first,) = ours(reached, **where, quantity="minutes to 99.9 % error")
    assert 0 <= first <= records[-1]["seconds"] / 60


def test_times_to_a_target_are_interpolated():
    """Evaluations so far apart are smoothed by none: 30 % lies halfway between 50 and 10 % of seed 0."""
    columns = {"gradients": [0, 100, 300, 900], "minutes": [0.0, 1.0, 3.0, 9.0], "epochs": [0.0, 2.0, 6.0, 18.0]}
    curves = [
        pd.DataFrame(columns | {"error": e, "seed": i}) for i, e in enumerate(([90, 50, 10, 5], [90, 80, 70, 60]))
    ]
    found = figures3_4.results(pd.concat(curves), target=0.3)
    np.testing.assert_allclose(found[figures3_4.REACHED], [2.0, np.nan])
    np.testing.assert_allclose(found["epochs to {}"], [4.0, np.nan])
    assert found[figures3_4.END].tolist() == [5, 60]


def test_errors_that_are_equal_with_all_seeds_are_known_to_a_test_example():
    mine = {figures3_4.ALL: np.array([80.0, 81.0, 79.0]), figures3_4.END: np.full(3, 5.0)}
    its = {figures3_4.ALL: np.full(3, 100.0), figures3_4.END: np.full(3, 5.0)}
    decided = [figures3_4.compared(mine, its, figures3_4.ALL, -0.1, known)[1].holds for known in (0.3, 3.0)]
    assert decided == [True, None]  # a test example of 3 points says nothing of 1 point


class TestFigure2:
    def test_the_density_is_that_of_what_is_drawn(self, made):
        delays = Cluster(late_share=0.25).delays(True)
        x = np.linspace(0, 6, 200_001)
        density = figure2.density(delays, x)
        assert np.trapezoid(density, x) == pytest.approx(1, abs=1e-6)
        assert np.trapezoid(density * x, x) == pytest.approx(delays.base_seconds + 0.25 * delays.late_seconds, abs=1e-5)
        for axes, late in zip(made(figure2.figure2).picture.axes, (False, True), strict=True):
            (line,) = axes.get_lines()
            np.testing.assert_allclose(line.get_ydata(), figure2.density(TOY.delays(late), line.get_xdata()))

    def test_only_injected_delays_are_longer_than_a_second(self, made):
        output = made(figure2.figure2)
        above = ours(output, quantity="above 1 s, %")
        assert above[0] == 0
        share, count = 100 * TOY.late_share, 10 * 32 * 32
        assert above[1] == pytest.approx(share, abs=4 * 10 * np.sqrt(share / count))


class TestBlocksBehind:
    def test_shares_of_blocks_add_up(self, made):
        output = made(blocks_behind.blocks_behind)
        for setting, late in itertools.product(SETTINGS, (False, True)):
            behind = simulate(**TOY_RUN, **setting.waits, late=late, num_servers=4)["behind"]
            where = {
                "(c, b)": str(setting), "delays": "injected" if late else "none", "late blocks": "discarded",
            }  # fmt: skip
            assert ours(output, **where, quantity="newest, %") == [pytest.approx(100 * behind[0] / sum(behind))]
            mean = np.average(range(len(behind)), weights=behind)
            assert ours(output, **where, quantity="mean, versions") == [pytest.approx(mean)]
            assert ours(output, **where, quantity="most, versions") == [len(behind) - 1]
            schedule, _ = Cluster(iterations=7).schedule(late=late, seed=0, num_servers=4, **setting.waits)
            used = schedule.used().any(axis=1)
            least = min(row.count(max(row)) / 4 for row in schedule.read[used].tolist())
            assert ours(output, **where, quantity="newest of a gradient's, least, %") == [100 * least]
            assert least >= setting.pull_at_least
        for axes in output.picture.axes:
            for line in axes.get_lines():
                assert line.get_ydata().sum() == pytest.approx(100)

    def test_accepting_late_blocks_leaves_fewer_behind(self):
        cluster = dataclasses.asdict(Cluster(iterations=20))
        run = {"cluster": cluster, "late": False, "seed": 0, "num_servers": 8, **SMALL.waits}
        discarded, accepted = (simulate(**run, keep_newer=newer)["behind"] for newer in (False, True))
        assert len(discarded) > len(accepted)
