"""Compares what networks learn from real data with what a simple model of the same data reaches."""

import time
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from configs import digits
from experiments.benchmarks.timing import Figure
from sgdlab.runs.plan import Plan, make_plan
from sgdlab.runs.train import train
from sgdlab.tasks.baselines import interpolated_trigram, pixel_histogram

WORKERS = 4  # asynchronous
ACCURACY = 0.97


def figures() -> Iterator[Figure]:
    """ResNet-20 and PixelCNN on digits of 8x8 pixels, and Transformer-XL on source text, byte by byte."""
    plan, summary, detail = _trained(_resnet())
    accuracy = summary["test_accuracy"]
    goal = f">= {100 * ACCURACY:g}"
    yield Figure("ResNet-20 on digits: test accuracy", 100 * accuracy, "%", goal, accuracy >= ACCURACY, detail)

    plan, summary, detail = _trained(_pixelcnn())
    images = plan.experiment.data.dataset
    histogram = pixel_histogram(images.train.pixels, images.test.pixels, levels=images.levels)
    detail = f"a histogram of each pixel: {histogram:.3f}; {images.levels} levels; {detail}"
    yield _below("PixelCNN on digits: nats per dimension", summary["test_loss"], histogram, detail)

    plan, summary, detail = _trained(_transformer_xl())
    text = plan.experiment.data.dataset
    trigram = interpolated_trigram(text.train.tokens, text.test.tokens, vocabulary=text.vocabulary)
    source = f"{text.facts['python']}, SHA-256 {text.facts['sha256'][:8]}"
    detail = f"an interpolated trigram: {trigram:.3f}; {len(text.test.tokens):,} bytes of {source}; {detail}"
    yield _below("Transformer-XL on the standard library: nats per byte", summary["test_loss"], trigram, detail)


def _below(name: str, loss: float, baseline: float, detail: str) -> Figure:
    return Figure(name, loss, "nats", f"< {baseline:.3f}", loss < baseline, detail)


def _trained(config: ConfigDict) -> tuple[Plan, dict[str, Any], str]:
    """Return what was planned, the summary of the run, and how it was trained, in words."""
    plan = make_plan(config)
    begin = time.perf_counter()
    summary = train(plan).records[-1]
    seconds = time.perf_counter() - begin
    how = f"{summary['title']}, {WORKERS} workers, B={config.batch_size}, {summary['gradients']:,} gradients"
    return plan, summary, f"{how}; {seconds:.0f} s with compilation and evaluation"


def _config(network: str, dataset: str = "digits") -> ConfigDict:
    config = digits.get_config()
    config.network.kind, config.data.kind = network, dataset
    config.cluster.num_workers = WORKERS
    config.evaluations, config.average_decay, config.target = 1, None, None
    return config


def _resnet() -> ConfigDict:
    config = _config("cifar_resnet")
    config.method, config.optimizer.learning_rate = "gap_aware", 0.1
    config.batch_size, config.epochs, config.rate.warmup_epochs = 32, 12.0, 1.0
    return config


def _pixelcnn() -> ConfigDict:
    config = _with_adam(_config("pixelcnn"))
    config.network.pixelcnn.update(layers=4, width=24, first_kernel=5, head=64)
    config.batch_size, config.epochs, config.rate.warmup_epochs = 32, 14.0, 1.0
    config.optimizer.clip_norm = 1.0
    return config


def _transformer_xl() -> ConfigDict:
    config = _with_adam(_config("transformer_xl", "stdlib_text"))
    config.network.transformer_xl.update(layers=2, width=64, heads=4, head_width=16, inner=256, memory=64, dropout=0.0)
    config.data.stdlib_text.segment = 64
    config.batch_size, config.epochs, config.rate.warmup_epochs = 8, 0.2, 0.005
    config.optimizer.clip_norm = 0.25
    return config


def _with_adam(config: ConfigDict) -> ConfigDict:
    config.method, config.optimizer.adam_learning_rate = "adam_gap_aware", 3e-3
    config.optimizer.weight_decay = 0.0
    return config
