"""One net of each kind: wave mode is event mode, and so are four devices, a run that was cut, and streamed batches.

The batches are augmented, the networks have BatchNorm, dropout or a memory of each worker.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lib import tiny
from lib.replay_cases import assert_close

from sgdlab import data, networks, replay, tasks
from sgdlab.checkpoints import Checkpoints
from sgdlab.errors import UsageError
from sgdlab.runs import records, resolve
from sgdlab.runs.plan import make_plan
from sgdlab.runs.tasks import batches_of, evaluation_of, task_of
from sgdlab.runs.train import train

KINDS = {
    "classification": {
        "data__kind": "mock",
        "data__mock__image_shape": (8, 8, 3),
        "data__mock__num_examples": 48,
        "data__mock__num_test": 10,
        "data__mock__augment": True,
        "network__kind": "conv",
        "network__conv__channels": (4, 8),
        "network__conv__batch_norm": True,
        "evaluation_batch": 4,
    },
    "density": {
        "data__kind": "photographs",
        "data__photographs__size": 6,
        "data__photographs__stride": 60,
        "data__photographs__levels": 4,
        "network__kind": "pixelcnn",
        "network__pixelcnn__layers": 2,
        "network__pixelcnn__width": 6,
        "network__pixelcnn__first_kernel": 3,
        "network__pixelcnn__head": 8,
        "train_examples": 8,
        "test_examples": 8,
    },
    "language": {
        "data__kind": "stdlib_text",
        "data__stdlib_text__segment": 6,
        "data__stdlib_text__max_bytes": 4000,
        "network__kind": "transformer_xl",
        "network__transformer_xl__layers": 2,
        "network__transformer_xl__width": 8,
        "network__transformer_xl__heads": 2,
        "network__transformer_xl__head_width": 4,
        "network__transformer_xl__inner": 8,
        "network__transformer_xl__memory": 8,
        "test_examples": 9,
        "train_examples": 9,
    },
}
GRADIENTS, EVALUATIONS = 12, 3
TOLERANCE = {"classification": 1e-10, "density": 1e-5, "language": 1e-5}  # float64, float32, float32


@functools.cache
def planned(kind, method="gap_aware"):
    config = tiny.config(**KINDS[kind], batch_size=4, target=None, evaluations=EVALUATIONS, method=method)
    config.epochs = GRADIENTS / (len(resolve(config).data.dataset.train) // 4)
    return make_plan(config)


@functools.cache
def task(kind):
    """In float64 with BatchNorm, whose gradients double a rounding difference with every step."""
    if kind != "classification":
        return task_of(planned(kind).experiment)
    options = {"image_shape": (8, 8, 3), "batch_norm": True, "param_dtype": jnp.float64}
    return tasks.classification(lambda rngs: networks.ConvNet((4, 8), **options, rngs=rngs))


def replayed(kind, mode="event", **options):
    plan, task_ = planned(kind), task(kind)
    capacity = plan.program.capacity
    return replay.run(
        plan.program,
        plan.rule(plan.rates, capacity.workers),
        task_,
        options.pop("batches", None) or batches_of(plan, capacity.rows),
        mode=mode,
        **options,
    )


@functools.cache
def event(kind):
    return replayed(kind)


def of(result):
    return (result.params, result.state, result.stats, result.local, result.history.aux)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", KINDS)
def test_wave_mode_is_event_mode(kind):
    wave = replayed(kind, "wave")
    assert planned(kind).program.mean_wave_length() > 1
    assert_close(of(wave), of(event(kind)), TOLERANCE[kind])


def test_a_wave_one_gradient_after_the_other_is_event_mode_bit_for_bit():
    wave = replayed("classification", "wave", lanes="map")
    jax.tree.map(np.testing.assert_array_equal, of(wave), of(event("classification")))


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", KINDS)
def test_four_devices_are_one(kind):
    mesh = jax.make_mesh((4,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))
    assert_close(of(replayed(kind, "wave", mesh=mesh)), of(event(kind)), TOLERANCE[kind])


class Killed(BaseException):
    pass


class Killing(Checkpoints):
    """Kills the run as soon as its first state has been saved."""

    def save(self, *state):
        super().save(*state)
        self.wait()
        raise Killed


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", KINDS)
def test_continued_is_uninterrupted(kind, tmp_path):
    with pytest.raises(Killed), Killing(tmp_path, {}) as checkpoints:
        replayed(kind, checkpoints=checkpoints)
    with Checkpoints(tmp_path, {}) as checkpoints:
        assert checkpoints.newest == planned(kind).program.pauses[0]
        continued = replayed(kind, checkpoints=checkpoints)
    jax.tree.map(np.testing.assert_array_equal, of(continued), of(event(kind)))


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", ["event", "wave"])
def test_streamed_is_resident(mode):
    pytest.importorskip("grain")
    plan = planned("classification")
    computing = dataclasses.replace(plan.experiment.computing, stream=True, chunk=4)
    streamed = dataclasses.replace(plan, experiment=dataclasses.replace(plan.experiment, computing=computing))
    fed = batches_of(streamed, plan.program.capacity.rows)
    assert isinstance(fed, replay.Feed)
    resident = event("classification") if mode == "event" else replayed("classification", "wave")
    jax.tree.map(np.testing.assert_array_equal, of(replayed("classification", mode, batches=fed)), of(resident))


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_is_of_all_examples_whatever_the_batches(kind):
    """Against one batch of all; of a text, against segments one after the other by hand."""
    plan, task_ = planned(kind), task(kind)
    most = plan.experiment.reporting.test_examples
    found = evaluation_of(plan.experiment, task_, "test", most)(task_.params, task_.stats)
    if kind == "language":
        tokens = np.asarray(plan.experiment.data.dataset.test.tokens[: most * 6 + 1])
        batches = tasks.text_batches(tokens, 6, streams=4)
        local, total = task_.local, {"loss": 0.0, "count": 0.0}
        for k in range(batches.inputs.shape[0]):
            one = jax.tree.map(lambda leaf, k=k: leaf[k], batches)
            sums, local = task_.sums(task_.params, None, one, local)
            total = {name: total[name] + sums[name] for name in total}
        assert total["count"] == tokens.size - 1
        expected = np.exp(total["loss"] / total["count"])
    else:
        test = plan.experiment.data.dataset.test
        finish = data.Finish(plan.experiment.data.dataset.preprocess, test.white, kind == "density", train=False)
        chosen = slice(None) if most is None else np.sort(np.random.default_rng(0).permutation(len(test))[:most])
        batch = finish(jnp.asarray(test.pixels[chosen]), jnp.asarray(test.labels[chosen]))
        expected = task_.evaluate(task_.params, task_.stats, batch)[plan.experiment.task.facts.metric]
    np.testing.assert_allclose(found[plan.experiment.task.facts.metric], expected, rtol=1e-5)
    guess = records.what(plan)["guess"]  # a net that has learned nothing is about as good as a guess
    assert 0.3 < found[plan.experiment.task.facts.metric] / guess < 3 or kind == "classification"


@pytest.mark.full
@pytest.mark.parametrize("kind", ["classification", "language"])
def test_a_run_with_local_steps_is_evaluated_as_one_without(kind):
    """A worker that keeps its optimizer's state has more of its own than what the network remembers."""
    records = train(planned(kind, "diloco")).records
    first = next(record for record in records if record["kind"] == "evaluation")
    plan, task_ = planned(kind), task_of(planned(kind).experiment)
    metric = plan.experiment.task.facts.metric
    found = evaluation_of(plan.experiment, task_, "test", plan.experiment.reporting.test_examples)
    np.testing.assert_allclose(first[f"test_{metric}"], found(task_.params, task_.stats)[metric], rtol=1e-6)


def test_a_network_for_other_data_is_refused():
    config = tiny.config(network__kind="transformer_xl")
    with pytest.raises(
        UsageError, match=r"--config\.network\.kind=transformer_xl .*language.*vocabulary.*data\.kind=digits"
    ):
        make_plan(config)
    text = {name: value for name, value in KINDS["language"].items() if not name.endswith("examples")}
    with pytest.raises(UsageError, match=r"--config\.batch_size=4 must be smaller, or segment=6"):
        make_plan(tiny.config(**text, batch_size=4, cluster__num_workers=400))
    with pytest.raises(UsageError, match=r"--config\.stream=True has no effect"):
        make_plan(tiny.config(**text, batch_size=4, stream=True))
