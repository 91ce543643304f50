"""The entries `local` of a configuration: identity, times and epochs, batches, refusals, and runs on processes."""

import jax
import numpy as np
import pytest
from lib import tiny

from sgdlab import protocols, runs
from sgdlab.errors import UsageError
from sgdlab.replay.streaming import Stream
from sgdlab.runs import resolve
from sgdlab.runs.configuration import check_used
from sgdlab.runs.local_steps import state_of_worker
from sgdlab.runs.plan import make_plan
from sgdlab.runs.tasks import batches_of
from sgdlab.runs.train import train

BATCHES = 44  # of one epoch
STREAMING = {"method": "streaming_diloco"}


def local(**entries):
    return tiny.config(**{"method": "asgd"} | {name.replace("local_", "local__", 1): v for name, v in entries.items()})


class TestIdentity:
    def test_one_step_of_sgd_has_no_entries(self):
        assert "local" not in resolve(tiny.config()).identity
        assert resolve(local(local_steps=1)).identity == resolve(local()).identity
        plain = {"method": "diloco", "local_optimizer": "sgd", "local_steps": 1, "local_server_learning_rate": 0.5}
        plain |= {"local_keep_state": False, "local_follow_rate": False, "local_learning_rate": 1.0}
        plan = make_plan(local(**plain, rate__warmup_epochs=0.0))
        assert not plan.experiment.local.active
        assert plan.rates.max() == 0.5  # and so it is synchronous SGD
        plan = make_plan(local())
        task, _ = runs.tasks.workers_of(plan, runs.tasks.task_of(plan.experiment), 64)
        assert task.local is None
        assert task.grad_fn.func.__module__ == "sgdlab.tasks.network"  # the gradient itself, without a wrapper

    def test_what_a_method_means_can_be_changed(self):
        meant = resolve(local(method="async_diloco")).identity["local"]
        assert (meant["steps"], meant["optimizer"], meant["by_speed"]) == (8, "adamw", True)
        assert meant["learning_rate"] == tiny.config().optimizer.adam_learning_rate
        changed = resolve(local(method="async_diloco", local_steps=3, local_by_speed=False)).identity["local"]
        assert changed == meant | {"steps": 3, "by_speed": False}
        check_used(["local.steps", "optimizer.adam_learning_rate"], [resolve(local(method="async_diloco")).taken])
        own = resolve(local(method="async_diloco", local_learning_rate=0.01)).taken
        with pytest.raises(UsageError, match=r"optimizer\.adam_learning_rate has no effect: no rule of these runs"):
            check_used(["optimizer.adam_learning_rate"], [own])

    def test_the_server_has_no_weight_decay_where_the_workers_have_it(self):
        found = resolve(local(local_steps=4, optimizer__weight_decay=0.25)).identity
        assert found["local"]["weight_decay"] == 0.25
        plan = make_plan(local(local_steps=4, optimizer__weight_decay=0.25, optimizer__momentum=0.0))
        params = {"w": jax.numpy.ones(2)}
        rule = plan.rule(1.0, 4)
        message = rule.receive(params, rule.init(params), params, worker=0, delay=1, read_params=params)
        np.testing.assert_array_equal(message["w"], 1.0)


class TestRates:
    def test_the_servers_is_constant_where_workers_make_steps(self):
        decaying = {"rate__decay": "linear", "rate__warmup_epochs": 0.5}
        assert set(make_plan(local(local_steps=4, **decaying)).rates) == {1.0}
        plain = make_plan(local(**decaying))
        assert plain.rates.min() < 0.5 * plain.rates.max()

    def test_one_step_with_a_rate_is_sgd_with_that_rate(self):
        plan = make_plan(local(method="synchronous", local_learning_rate=0.25, optimizer__weight_decay=0.5))
        assert plan.experiment.local.weight_decay == 0.5  # which the server has no more
        assert set(plan.rates) == {1.0}  # and not four times 0.1 of each message again
        kept = make_plan(local(local_momentum=0.5, local_keep_state=True, optimizer__weight_decay=0.5))
        rate = kept.experiment.optimizer.learning_rate
        own = kept.experiment.local
        assert (own.learning_rate, own.weight_decay, kept.rates.max()) == (rate, 0.5, 1.0)

    def test_a_rule_with_a_rate_of_its_own_keeps_it(self):
        plain, several = (make_plan(local(method="adam", local_steps=steps)) for steps in (1, 4))
        assert several.experiment.local.server_learning_rate is None
        assert several.rates.max() == pytest.approx(plain.rates.max(), rel=0.1)  # of the last steps of a warm-up

    def test_a_method_that_means_a_rate_of_the_server_keeps_that_of_the_worker(self):
        plan = make_plan(local(method="fedasync", local_steps=1))
        own, optimizer = plan.experiment.local, plan.experiment.optimizer
        assert (own.steps, own.momentum, own.server_learning_rate) == (1, 0.0, 0.6)
        assert (own.learning_rate, own.weight_decay) == (optimizer.learning_rate, optimizer.weight_decay)

    def test_a_rule_that_multiplies_by_the_number_of_gradients_has_the_rate_of_an_update_too(self):
        plan = make_plan(local(protocol__kind="synchronous", rule__kind="linear_scaling", local_steps=4))
        assert plan.rates.max() * plan.schedule.gradients_per_update() == 1.0

    def test_shares_above_one_are_refused(self):
        with pytest.raises(UsageError, match=r"rule\.kind=fedasync.*max_learning_rate=1\.5"):
            make_plan(local(method="fedasync", local_server_learning_rate=1.5))


class TestRefusals:
    @pytest.mark.parametrize(
        ("entries", "words"),
        [
            ({"local_steps": 0}, r"--config\.local\.steps=0"),
            ({"local_optimizer": "lion"}, r"--config\.local\.optimizer='lion' must be"),
            ({"local_steps": 2, "local_learning_rate": -1.0}, r"--config\.local\.learning_rate=-1"),
            ({"local_steps": 2, "local_proximal": -1.0}, r"--config\.local\.proximal=-1"),
            ({"local_optimizer": "adamw", "local_momentum": 0.5}, r"--config\.local\.momentum=0.5 must be 0"),
            (
                {"local_proximal": 0.5},
                r"local\.proximal=0.5 must be left out for one step .* set local\.steps",
            ),
            (STREAMING | {"local_fragments": 0}, r"--config\.local\.fragments=0"),
            (STREAMING | {"local_overlap": -1}, r"--config\.local\.overlap=-1"),
            (STREAMING | {"local_overlap": 2}, r"--config\.local\.overlap=2 must be below local\.steps=2"),
            (STREAMING | {"local_mix": 1.5}, r"--config\.local\.mix=1\.5"),
            (STREAMING | {"local_keep_state": False}, r"local\.keep_state=False must be True with local\.fragments=4"),
            (STREAMING | {"local_by_speed": True}, r"--config\.local\.by_speed=True must be False with"),
        ],
    )
    def test_impossible_entries(self, entries, words):
        with pytest.raises(UsageError, match=words):
            resolve(local(**entries))

    def test_where_there_are_none(self):
        with pytest.raises(UsageError, match=r"--config\.local\.steps=4 must be .* without a server every node"):
            make_plan(local(method="pull_gossip", local_steps=4))
        with pytest.raises(UsageError, match=r"--config\.local\.steps=4 needs data that are in memory"):
            train(make_plan(local(local_steps=4, stream=True)))
        with pytest.raises(UsageError, match=r"--config\.local\.by_speed=True needs --emulate=SECONDS"):
            runs.live.make_job(local(method="async_diloco"))
        with pytest.raises(UsageError, match=r"--config\.local\.least_steps=9 must be"):
            resolve(local(local_steps=4, local_least_steps=9))


class TestFragments:
    """Streaming DiLoCo."""

    def test_what_they_mean(self):
        plan = make_plan(local(**STREAMING))
        own = plan.experiment.local
        assert (own.steps, own.keep_state, own.stream) == (2, True, Stream(4, 1, 0.5))
        assert plan.program.by_worker
        state = state_of_worker(own, {"w": np.ones(4)}, None)
        assert sorted(state) == ["memory", "messages", "optimizer", "params"]
        assert plan.rule(1.0, 4).init.args[0].fragments == 4
        assert plan.experiment.identity["local"]["fragments"] == 4

    def test_one_fragment_is_no_other_run_than_before(self):
        """A run of another method has no entries of fragments, so that what was recorded stays what it was."""
        assert "fragments" not in resolve(local(method="diloco")).identity["local"]
        plain = local(**STREAMING, local_fragments=1, local_overlap=0, local_mix=0.0)
        assert make_plan(plain).experiment.local.stream is None
        assert "fragments" not in resolve(plain).identity["local"]

    def test_what_goes_with_no_other_rule(self):
        with pytest.raises(UsageError, match=r"--config\.local\.fragments=3, .*streaming_diloco: the rule nag_asgd"):
            make_plan(local(method="diloco", local_fragments=3))
        with pytest.raises(UsageError, match=r"--config\.rule\.kind=streaming_nesterov must go with .*=synchronous"):
            make_plan(local(**STREAMING, protocol__kind="asynchronous"))


class TestTimes:
    def test_a_message_takes_the_sum_of_its_steps(self):
        constant = {"rate__warmup_epochs": 0.0, "rate__decay": "constant"}
        plan = make_plan(local(method="synchronous", local_steps=4, **constant))
        times = plan.experiment.cluster.law.draw(12, seed=plan.experiment.seeds.of("runtimes"))
        assert (plan.num_gradients, plan.gradients_per_epoch) == (BATCHES / 4, BATCHES / 4)
        expected = protocols.synchronous(times.reshape(3, 4, 4).sum(axis=1))
        np.testing.assert_allclose(plan.schedule.applied, expected.applied, rtol=1e-14)
        assert plan.rates.max() == 1.0  # of an update that averages four, and not four times that of a gradient

    def test_speedup_counts_steps(self):
        plain, several = (make_plan(local(local_steps=steps)) for steps in (1, 4))
        assert several.speedup == pytest.approx(plain.speedup, rel=0.2)

    def test_by_speed_all_send_about_equally_often(self):
        config = local(local_steps=32, local_by_speed=True, cluster__gamma__heterogeneous=True, epochs=20.0)
        plan = make_plan(config)
        assert len(set(plan.experiment.steps.tolist())) > 2
        assert plan.experiment.steps.max() == 32
        sent = np.bincount(plan.schedule.worker[plan.schedule.used()[:, 0]], minlength=4)
        assert sent.max() <= 1.35 * sent.min()
        used = plan.experiment.steps[plan.schedule.worker[plan.schedule.used()[:, 0]]].sum()
        assert 20 * BATCHES <= used < 20 * BATCHES + 32  # the last message is the first that reaches it
        assert plan.num_gradients / plan.gradients_per_epoch == pytest.approx(20, abs=32 / BATCHES)

    def test_one_fast_worker_does_not_shorten_the_run(self):
        config = local(method="async_diloco", cluster__gamma__heterogeneous=True, epochs=20.0)
        config.cluster.num_workers = 16
        plan = make_plan(config)
        assert (plan.experiment.steps.min(), plan.experiment.steps.max()) == (2, 8)
        used = plan.experiment.steps[plan.schedule.worker[plan.schedule.used()[:, 0]]].sum()
        assert 20 * BATCHES <= used < 20 * BATCHES + 8


def test_every_step_has_a_batch_of_its_worker():
    plan = make_plan(local(local_steps=4, local_by_speed=True, heterogeneity__alpha=0.1))
    data = plan.experiment.data
    rows = np.repeat(plan.program.worker, plan.steps_of_rows)
    batches, count = batches_of(plan, 64), np.zeros(4, int)
    for number in (0, 3, rows.size // 2, rows.size - 1):
        worker = rows[number]
        count = np.count_nonzero(rows[:number] == worker)
        own = data.own_order(data.shares, np.array([worker]), np.array([count]))[0]
        np.testing.assert_array_equal(batches(jax.numpy.int32(number)).targets, data.dataset.train.labels[own])
        assert set(own) <= set(data.shares.of(worker))
