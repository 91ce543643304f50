"""The configurations of the papers: every entry is known, the rates are the papers', the tiny variants train."""

import dataclasses
import importlib
import itertools
import math
import pathlib

import jax
import numpy as np
import pytest
from flax import nnx

from configs import digits
from sgdlab.commands import launch, train
from sgdlab.registry import FAMILIES, NETWORKS
from sgdlab.runs import configuration, resolve
from sgdlab.runs.configuration import Reach
from sgdlab.runs.experiment import Computing, Ending, Optimizer, Reporting
from sgdlab.runs.local_steps import ENTRIES
from sgdlab.runs.plan import make_plan
from sgdlab.runs.rates import RateSchedule, rates
from sgdlab.runs.tasks import task_of
from sgdlab.runs.train import train as train_plan

ROOT = pathlib.Path(__file__).parents[2]
# ml_collections loads a configuration's file by an importer's method that Python is about to drop.
pytestmark = pytest.mark.filterwarnings(
    "ignore:the load_module:DeprecationWarning", "ignore::DeprecationWarning:importlib"
)
IMAGES = {  # examples, image shape, classes
    "mnist": (60_000, (28, 28, 1), 10),
    "cifar10": (50_000, (32, 32, 3), 10),
    "cifar100": (50_000, (32, 32, 3), 100),
    "imagenet": (1_281_167, (224, 224, 3), 1000),
}
PAPERS = sorted(path.stem for path in (ROOT / "configs").glob("*_*.py") if path.stem != "__init__")
GRADIENTS = 4


def config_of(name, variant="paper"):
    return importlib.import_module(f"configs.{name}").get_config(variant)


def planned(name, per_epoch):
    """The plan of the whole run, on so few data that an epoch is `per_epoch` gradients."""
    config = config_of(name)
    if config.data.kind == "wikitext103":
        config.data.kind, segment = "stdlib_text", 8
        config.data.stdlib_text.update(segment=segment, max_bytes=per_epoch * config.batch_size * segment + 1)
    else:
        config.data.kind = "mock"
        # A plan does not depend on the size of the images.
        config.data.mock.update(num_examples=per_epoch * config.batch_size, num_test=2, image_shape=(2, 2, 1))
    return make_plan(config)


@pytest.mark.parametrize("variant", configuration.VARIANTS)
@pytest.mark.parametrize("name", PAPERS)
def test_every_entry_is_known_and_in_its_range(name, variant):
    config = config_of(name, variant)
    known = {entry for entry, _ in configuration.flat(digits.get_config())}
    assert {entry for entry, _ in configuration.flat(config)} == known
    resolve(config)


def test_every_entry_that_belongs_to_no_part_is_in_a_record():
    """So none is forgotten where a configuration is read."""
    config, fields = digits.get_config(), lambda record: set(record.__dataclass_fields__)
    assert set(config.rate) == fields(RateSchedule)
    assert set(config.local) == set(ENTRIES)
    assert fields(Optimizer) < set(config.optimizer)
    groups = {"heterogeneity", "local", "optimizer", "rate", *(registry.family for registry in FAMILIES)}
    own = {"method", "seed", "epochs", "split", "batch_size", "micro_batches", "replacement"}
    assert set(config) == groups | own | fields(Ending) | fields(Reporting) | fields(Computing)
    assert {*Reach.COST.value, *Reach.RECORD.value} - {"recording"} == fields(Reporting) | fields(Computing)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PAPERS)
def test_the_network_takes_its_entries_and_data_of_that_shape(name):
    """Its forward pass is the networks' own test."""
    config = config_of(name)
    if config.data.kind == "wikitext103":
        given = {"vocabulary": 267_735}
    else:
        _, shape, classes = IMAGES[config.data.kind]
        size = config.data.imagenet.size if config.data.kind == "imagenet" else shape[0]
        given = {"image_shape": (size, size, shape[2]), "num_classes": classes, "levels": 256}
    kind = config.network.kind
    network = nnx.eval_shape(lambda: NETWORKS.make(kind, config.network[kind], **given, rngs=nnx.Rngs(0)))
    count = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(network, nnx.Param)))
    module = importlib.import_module(f"configs.{name}")
    assert f"{count:,} parameters" in module.__doc__.replace("\n", " ")


@pytest.mark.parametrize("name", [name for name in PAPERS if not name.startswith("wikitext")])
def test_mocked_data_have_the_shape_of_the_real_ones(name):
    config = config_of(name)
    _, shape, classes = IMAGES[config.data.kind]
    size = config.data.imagenet.size if config.data.kind == "imagenet" else shape[0]
    config.data.kind = "mock"
    config.data.mock.update(num_examples=2, num_test=2)
    found = resolve(config).data.dataset
    assert (found.image_shape, found.num_classes) == ((size, size, shape[2]), classes)


def at(plan, epoch):
    """The rate of the first update of an epoch."""
    return plan.rates[round(epoch * len(plan.rates) / plan.experiment.epochs)]


@pytest.mark.parametrize(
    ("name", "after"),  # epoch -> rate, from which on it holds
    [
        ("cifar10_resnet20", {5: 0.1, 80: 0.01, 120: 0.001, 160: None}),
        ("cifar10_wrn", {5: 0.1, 60: 0.02, 120: 0.004, 160: 0.0008, 200: None}),
        ("cifar100_wrn", {5: 0.1, 60: 0.02, 120: 0.004, 160: 0.0008, 200: None}),
        ("imagenet_resnet50", {5: 0.1, 30: 0.01, 60: 0.001, 90: None}),
    ],
)
def test_rates_of_gap_aware_rise_for_five_epochs_and_fall_in_steps(name, after):
    per_epoch = 4
    plan = planned(name, per_epoch)
    assert len(plan.rates) == per_epoch * max(after)
    workers = plan.experiment.num_workers
    np.testing.assert_allclose(plan.rates[0], 0.1 / workers)
    np.testing.assert_allclose(at(plan, 2.5), 0.1 * (1 + 1 / workers) / 2)
    epochs = list(after)
    for begin, end in itertools.pairwise(epochs):
        held = plan.rates[begin * per_epoch : end * per_epoch]
        np.testing.assert_allclose(held, after[begin], rtol=1e-6)


def test_rates_of_transformer_xl_are_a_cosine_to_zero_after_the_warm_up():
    config = config_of("wikitext103_transformer_xl")
    segments = (103_227_021 - 1) // 150
    assert math.ceil(config.epochs * (segments // 64)) == 200_000
    plan = planned("wikitext103_transformer_xl", 20)
    epoch = np.arange(len(plan.rates)) / 20
    cosine = 0.00025 * (1 + np.cos(np.pi * epoch / config.epochs)) / 2
    np.testing.assert_allclose(plan.rates, cosine * (1 / 4 + 3 / 4 * np.minimum(1, epoch / 5)), rtol=1e-5, atol=1e-9)
    assert config.optimizer.clip_norm == 0.25


def test_rates_of_mnist_fall_to_zero_in_the_last_ten_epochs():
    plan = planned("mnist_cnn", 4)
    epoch = np.arange(100) / 4
    np.testing.assert_allclose(plan.rates, 0.1 * np.minimum(1, (25 - epoch) / 10), rtol=1e-5)
    assert plan.experiment.reporting.average_decay == 0.9999


def test_rates_of_inception_are_of_a_hundred_gradients_and_fall_every_two_epochs():
    plan = planned("imagenet_inception", 100)  # an update an epoch
    assert plan.schedule.gradients_per_update() == 100
    assert plan.schedule.num_workers == 106
    epoch = np.arange(len(plan.rates))
    np.testing.assert_allclose(plan.rates, 0.045 * 100 * 0.94 ** (epoch / 2), rtol=1e-4)
    config = config_of("imagenet_inception")
    assert math.ceil(config.epochs * (IMAGES["imagenet"][0] // 32)) == 76_200 * 100
    assert config.average_decay == 0.9999


def test_rates_of_pixelcnn_fall_to_three_hundredths_in_200_000_updates():
    config = config_of("cifar10_pixelcnn")
    per_epoch = IMAGES["cifar10"][0] // 4
    assert math.ceil(config.epochs * per_epoch) == 200_000 * 7
    few = config_of("cifar10_pixelcnn")
    few.data.kind, few.data.mock.num_examples, few.epochs = "mock", 400, 1.0
    peak = make_plan(few).rates[0]
    np.testing.assert_allclose(peak, 1e-4)
    table = rates(resolve(few).rate, peak=peak, num_workers=8, epochs=config.epochs, updates_per_epoch=per_epoch / 7)
    assert len(table) == 200_000
    np.testing.assert_allclose(table, 1e-4 * 0.03 ** (np.arange(200_000) / 200_000), rtol=1e-4)
    np.testing.assert_allclose(table[-1], 3e-6, rtol=1e-4)
    np.testing.assert_allclose(config.target * math.log(2), 2.183)


@pytest.mark.parametrize(("method", "per_update"), [("all_reduce", 8), ("pull_gossip", 1)])
def test_rates_of_resnet18_fall_after_150_000_and_300_000_iterations_of_all_nodes(method, per_update):
    config = config_of("imagenet_resnet18")
    per_epoch = IMAGES["imagenet"][0] // 32
    np.testing.assert_allclose(np.multiply(config.rate.steps, per_epoch), [150_000 * 8, 300_000 * 8])
    config.method, config.data.kind = method, "mock"
    config.data.mock.update(num_examples=80 * 32, num_test=2, image_shape=(2, 2, 1))
    config.epochs = 90.0
    found = make_plan(config).rates
    assert len(found) == 90 * 80 // per_update
    iteration = np.arange(len(found)) * per_update / 80 * per_epoch / 8
    annealed = (iteration >= 150_000).astype(int) + (iteration >= 300_000)
    np.testing.assert_allclose(found, 0.1 * 0.1**annealed, rtol=1e-6)


def steps(plan, gradient=2.0):
    """The steps of the plan's rule, at a rate of 1, for a gradient and then for zero."""
    rule, params = plan.rule(1.0, plan.schedule.num_workers), np.zeros(1)
    state, found = rule.init(params), []
    for grads in (np.full(1, gradient), np.zeros(1)):
        extra = {"worker": 0, "delay": 1}
        message = rule.receive(grads, state, params, **extra, read_params=params)
        updates, state = rule.update(message, state, params, num_gradients=1, **extra)
        found.append(-float(updates[0]))
    return found


def test_momentum_and_its_form_are_the_papers():
    nesterov = 0.9 * 2 + 2, 0.9 * 0.9 * 2
    for name in ("cifar10_resnet20", "imagenet_resnet18"):
        np.testing.assert_allclose(steps(planned(name, 8)), nesterov)
    for name in ("cifar10_wrn", "cifar100_wrn", "imagenet_resnet50"):  # as ResNet-20
        config, same = config_of(name), config_of("cifar10_resnet20")
        assert config.rule.to_dict() == same.rule.to_dict()
        assert config.method == same.method
        assert config.optimizer.momentum is config.optimizer.nesterov is None
    np.testing.assert_allclose(steps(planned("mnist_cnn", 4)), (2, 0))
    for name, decay, eps in (("imagenet_inception", 0.9, 1.0), ("cifar10_pixelcnn", 0.95, 1e-10)):
        config = config_of(name)
        config.data.kind, config.data.mock.image_shape, config.data.mock.num_examples = "mock", (2, 2, 1), 3200
        config.epochs = 1.0
        first = 2 / math.sqrt(decay + (1 - decay) * 4 + eps)
        np.testing.assert_allclose(steps(make_plan(config)), (first, 0.9 * first), rtol=1e-6)


@pytest.mark.representatives("mnist_cnn")
@pytest.mark.parametrize("name", PAPERS)
def test_the_tiny_variant_trains(name):
    config = config_of(name, "tiny")
    config.epochs = GRADIENTS / resolve(config).data.batches_per_epoch
    config.evaluations, config.train_examples, config.test_examples = 1, 8, 8
    plan = make_plan(config)
    run = train_plan(plan)
    assert GRADIENTS <= run.records[-1]["gradients"] <= 6
    _, before, *_, summary = run.records
    assert np.isfinite([before["test_loss"], summary["test_loss"], summary["train_loss"]]).all()
    assert before["test_loss"] != summary["test_loss"]
    begun, ended = task_of(plan.experiment).params, run.result.params
    moved = jax.tree.map(lambda before, after: bool((np.asarray(before) != np.asarray(after)).any()), begun, ended)
    assert any(jax.tree.leaves(moved))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(ended))


def answer(capsys, monkeypatch, *arguments):
    """Return what `sgdlab train` makes of its command line: the exit code, the configuration, what it prints."""
    monkeypatch.chdir(ROOT)
    seen = []
    main = lambda argv: seen.append(launch.CONFIG.value)
    code = dataclasses.replace(train.COMMAND, main=main).answer(["train", *arguments])
    return code, seen, capsys.readouterr()


def test_a_variant_is_chosen_by_what_stands_behind_the_colon(capsys, monkeypatch):
    code, (config,), _ = answer(capsys, monkeypatch, "--config=configs/mnist_cnn.py:tiny", "--config.seed=3")
    assert (code, config.data.kind, config.seed) == (0, "digits", 3)
    code, (config,), _ = answer(capsys, monkeypatch, "--config=configs/mnist_cnn.py")
    assert (code, config.data.kind) == (0, "mnist")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("configs/mnist_cnn.py:huge", "variant='huge'"),
        ("configs/mnist_cnn.py:", "variant=''"),
        ("configs/digits.py:tiny", "--config=configs/digits.py"),
        ("configs/cutoff.py:huge", "name='huge'"),
    ],
)
def test_an_unknown_variant_is_one_line(capsys, monkeypatch, config, says):
    code, seen, printed = answer(capsys, monkeypatch, f"--config={config}")
    (line,) = printed.err.strip().splitlines()
    assert (code, seen) == (2, [])
    assert line.startswith(f"error: --config={config}")
    assert says in line


def test_help_says_what_entries_mean_whatever_the_configuration(capsys, monkeypatch):
    code, _, printed = answer(capsys, monkeypatch, "--config=configs/cifar10_resnet20.py:tiny", "--help")
    assert code == 0
    words = {line.split()[0]: line.split()[1:] for line in printed.out.splitlines() if line.startswith("  --config.")}
    assert words["--config.batch_size=16"]
    assert words["--config.epochs=2.0"]


def test_what_is_off_is_known_by_the_defaults_alone(monkeypatch):
    """Whoever changes a default changes what is off with it: there is no second list."""
    config = digits.get_config()
    assert "spacing" not in resolve(config).identity
    add = configuration._add_evaluations

    def otherwise(config):
        add(config)
        config.spacing = "geometric"

    monkeypatch.setattr(configuration, "_add_evaluations", otherwise)
    configuration.defaults.cache_clear()
    try:
        assert resolve(config).identity["spacing"] == "even"
        assert "spacing" not in resolve(digits.get_config()).identity
    finally:
        configuration.defaults.cache_clear()
