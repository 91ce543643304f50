"""Runs whose workers have examples of their own: simulated, streamed, on processes, and recorded ones replayed."""

import jax
import numpy as np
import pytest
from lib import tiny

from sgdlab import runs
from sgdlab.data.shares import own_order
from sgdlab.errors import UsageError
from sgdlab.runs import configuration, resolve
from sgdlab.runs.plan import make_plan
from sgdlab.runs.tasks import batches_by_ticket, batches_of

GRADIENTS = 44


def config(**changes):
    return tiny.config(**{"method": "asgd", "heterogeneity__alpha": 0.1, **changes})


def batches(plan, size=64):
    """The targets and keys of all gradients."""
    made = batches_of(plan, size)
    found = [made(jax.numpy.int32(g)) for g in range(plan.program.num_rows)]
    return np.array([b.targets for b in found]), np.array([b.inputs for b in found])


def test_without_shares_there_are_no_entries():
    assert "heterogeneity" not in resolve(tiny.config()).identity
    assert resolve(config()).identity["heterogeneity"] == {"alpha": 0.1, "seed": None}
    assert make_plan(tiny.config()).experiment.data.shares is None
    with pytest.raises(UsageError, match=r"--config\.heterogeneity\.seed has no effect"):
        configuration.check_used(["heterogeneity.seed"], [resolve(tiny.config()).identity])


@pytest.mark.parametrize("method", ["asgd", "synchronous", "backup_workers", "pull_gossip", "elastic_averaging"])
def test_a_gradient_has_a_batch_of_its_worker(method):
    plan = make_plan(config(method=method))
    shares = plan.experiment.data.shares
    program, train = plan.program, plan.experiment.data.dataset.train
    count = np.zeros(4, int)
    labels, inputs = batches(plan)
    seed = plan.experiment.seeds.of("batches")
    for row, worker in enumerate(program.worker):
        expected = own_order(shares, [worker], [count[worker]], batch_size=32, seed=seed)[0]
        np.testing.assert_array_equal(labels[row], train.labels[expected])
        np.testing.assert_array_equal(inputs[row], train.images[expected])
        assert set(expected) <= set(shares.of(worker))
        count[worker] += 1
    assert count.min() > 0


def test_a_stream_gives_the_same_batches():
    plan, streamed = make_plan(config()), make_plan(config(stream=True))
    labels, inputs = batches(plan)
    feed = batches_of(streamed, 64)
    for row, (pixels, found) in enumerate(feed.read(np.arange(GRADIENTS))):
        np.testing.assert_array_equal(found, labels[row])
        np.testing.assert_array_equal(pixels.astype(np.float32) / np.float32(16), inputs[row])


def test_a_single_worker_draws_as_a_run_without_shares():
    for changes in ({"cluster__num_workers": 1}, {"cluster__first_workers": 1}):
        ours = batches(make_plan(config(**changes)))
        theirs = batches(make_plan(config(heterogeneity__alpha=None, **changes)))
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other)


def test_shares_can_stay_while_the_run_has_another_seed():
    of = lambda **changes: resolve(config(**changes)).data.shares.examples
    assert (of(seed=1) != of(seed=2)).any()
    np.testing.assert_array_equal(of(seed=1, heterogeneity__seed=7), of(seed=2, heterogeneity__seed=7))


def test_tickets_past_the_table_begin_anew():
    plan = make_plan(config())
    made = batches_by_ticket(plan.experiment, worker=2)
    first, later = (made(jax.numpy.int32(ticket)) for ticket in (3, 3 + 64))
    np.testing.assert_array_equal(first.inputs, later.inputs)
    assert (jax.random.key_data(first.key) != jax.random.key_data(later.key)).any()


def test_what_cannot_be_divided_is_refused():
    for changes, message in (
        ({"cluster__num_workers": 45}, r"--config\.cluster\.num_workers=45 must be at most 44 with"),
        ({"cluster__num_workers": 90, "cluster__first_workers": 45}, r"--config\.cluster\.first_workers=45 must be"),
        ({"heterogeneity__alpha": 0.0}, r"--config\.heterogeneity\.alpha=0\.0 must be"),
        ({"heterogeneity__seed": -1}, r"--config\.heterogeneity\.seed=-1 must be"),
        ({"data__kind": "stdlib_text", "network__kind": "transformer_xl"}, "is a text; it has no labels"),
    ):
        with pytest.raises(UsageError, match=message):
            make_plan(config(**changes))
    make_plan(config(cluster__num_workers=44))


def test_the_report_says_who_has_what():
    about = runs.records.about_run(make_plan(config()))["data"]
    assert "each worker has 359 or 360 examples of its own" in about
    assert "alpha 0.1" in about
    assert "own" not in runs.records.about_run(make_plan(tiny.config()))["data"]
