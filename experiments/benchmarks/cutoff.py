"""The deep Markov predictor: times of a prediction, of a training step beside Pyro's, and of the whole training.

The comparison with Pyro needs `pip install torch pyro-ppl`; without these packages it is left out.
"""

import contextlib
import importlib.util
import math
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.benchmarks.compilation import compilations
from experiments.benchmarks.timing import ROUNDS, Figure, at_least, at_most, ratio
from sgdlab import deep_markov, predictors
from sgdlab.cluster.regimes import RegimeCluster
from sgdlab.deep_markov import WindowModel

SMALL = RegimeCluster(num_workers=158, num_nodes=4, mean=1.057, std=0.393)
LARGE = RegimeCluster(num_workers=2175, num_nodes=32, mean=1.057, std=0.393)
RUN = 4000  # iterations of the training run
SAMPLES, ITERATIONS, WARM_UP = 64, 300, 20
EVERY = 50  # training steps in one turn

_NARROW = -2.5  # before the softplus: a standard deviation of about a sixth, as that of the clusters' noise


def figures() -> Iterator[Figure]:
    """Training for 158 workers and its result, predictions for 158 and 2175, and training steps relative to Pyro's."""
    begin = time.perf_counter()
    small = deep_markov.fit(SMALL.draw(RUN, seed=0), deep_markov.Architecture(), deep_markov.Fitting(), seed=0)
    seconds = time.perf_counter() - begin
    best = max(evaluation["validation_elbo"] for evaluation in small.history)
    yield at_most(
        f"training to early stopping, {SMALL.num_workers} workers, {RUN} iterations",
        seconds,
        "s",
        300,
        f"{small.history[-1]['step']:.0f} steps, {best:.3f} nats per value, {_share_of_oracle(small):.1%} of oracle",
    )
    yield from _predictions(SMALL, small, goal=2)
    yield from _predictions(LARGE, _untrained(LARGE), goal=15)
    yield from _steps()


def _share_of_oracle(trained: deep_markov.TrainedModel) -> float:
    """Throughput on a run that is not the training run, as a share of the oracle's."""
    runtimes = SMALL.draw(ITERATIONS, seed=1)
    both = deep_markov.DeepMarkov(trained), predictors.Oracle(runtimes[WARM_UP:])
    predicted, oracle = (predictors.run_online(runtimes, p, window=WARM_UP).gradients_per_second() for p in both)
    return predicted / oracle


def _untrained(law: RegimeCluster) -> deep_markov.TrainedModel:
    """Return an untrained model whose predictions take as long as a trained model's, with a similar cutoff."""
    widths = deep_markov.Architecture()
    parameters = WindowModel(law.num_workers, widths, seed=0).initial
    emission = parameters["emission"]
    emission["mean"]["kernel"] = (
        np.asarray(emission["mean"]["kernel"]) / 10
    )  # so that predictions depend little on the state
    emission["std"]["bias"] = np.full_like(emission["std"]["bias"], _NARROW)
    return deep_markov.TrainedModel(widths, law.num_workers, 2 * law.mean, parameters)


class _Timed:
    """A predictor that records the seconds of each of its calls."""

    def __init__(self, predictor: predictors.Predictor):
        self.title, self.start = predictor.title, predictor.start
        self._predictor = predictor
        self.seconds: dict[str, list[float]] = {"predict": [], "observe": []}

    def predict(self, state: Any, *, rate: float | None = None) -> predictors.Prediction:
        begin = time.perf_counter()
        prediction = self._predictor.predict(state, rate=rate)
        self.seconds["predict"].append(time.perf_counter() - begin)
        return prediction

    def observe(self, state: Any, runtimes: np.ndarray, cut_at: float) -> Any:
        begin = time.perf_counter()
        state = self._predictor.observe(state, runtimes, cut_at)
        self.seconds["observe"].append(time.perf_counter() - begin)
        return state


def _predictions(law: RegimeCluster, trained: deep_markov.TrainedModel, goal: float) -> Iterator[Figure]:
    """Times of predictions and observations in a censored run, after a short one for compilation."""
    predictor = deep_markov.DeepMarkov(trained, samples=SAMPLES)
    runtimes = law.draw(ITERATIONS + WARM_UP, seed=2)
    begin = time.perf_counter()
    predictors.run_online(runtimes[: WARM_UP + 2], predictor)
    first = time.perf_counter() - begin
    timed = _Timed(predictor)
    with compilations() as compiled:
        record = predictors.run_online(runtimes, timed)
        predictors.run_online(runtimes, predictor, objective="rate")
    shared = f"{law.num_workers} workers, {SAMPLES} samples"
    for name, seconds in timed.seconds.items():
        milliseconds = 1e3 * statistics.median(seconds)
        what, wanted = ("prediction", goal) if name == "predict" else ("observation", None)
        tenth = 1e3 * statistics.quantiles(seconds, n=10)[-1]
        detail = f"90th percentile {tenth:.2f}; waits for {record.cutoff[WARM_UP:].mean():.0f} workers"
        yield at_most(f"one {what}, {shared}", milliseconds, "ms", wanted, detail)
    calls = 2 * len(timed.seconds["predict"])
    detail = f"{calls} predictions, both objectives; the first call took {first:.1f} s"
    yield Figure(
        f"new compilations between predictions, {law.num_workers} workers", len(compiled), "", "0", not compiled, detail
    )


class _Enough(Exception):
    """Ends a training."""


def _steps() -> Iterator[Figure]:
    """Steps per second of `fit`, including one evaluation of the validation windows every `EVERY` steps.

    sgdlab and Pyro take turns, with the same initial parameters and run-times. Both maximise the plain evidence lower
    bound, without blind windows and annealing.
    """
    widths = deep_markov.Architecture()
    fitting = deep_markov.Fitting(every=EVERY, blind_share=0.0, annealing=0, validation_share=0.0)
    runtimes = SMALL.draw(RUN, seed=0)
    initial = WindowModel(SMALL.num_workers, widths, seed=0).initial
    pyro = _pyro(widths, fitting, initial, runtimes)
    seconds: dict[str, list[float]] = {"sgdlab": [], "Pyro": []}
    elbos: dict[str, float] = {}
    begun = [time.perf_counter()]

    def take_turns(evaluation: dict[str, float]) -> None:
        seconds["sgdlab"].append(time.perf_counter() - begun[-1])
        elbos["sgdlab"] = evaluation["elbo"]
        if pyro is not None:
            begin = time.perf_counter()
            elbos["Pyro"] = pyro.advance(EVERY)
            seconds["Pyro"].append(time.perf_counter() - begin)
        if len(seconds["sgdlab"]) > ROUNDS:
            raise _Enough
        begun.append(time.perf_counter())

    with contextlib.suppress(_Enough):
        deep_markov.fit(runtimes, widths, fitting, seed=0, report=take_turns)
    rates = {name: EVERY / statistics.median(turns[1:]) for name, turns in seconds.items() if turns}
    shared = f"{SMALL.num_workers} workers, B={fitting.batch}, lag {widths.lag}"
    yield Figure(
        f"SVI steps per second, {shared}", rates["sgdlab"], "/s", detail=f"compiled in {seconds['sgdlab'][0]:.0f} s"
    )
    name = f"SVI steps per second over Pyro's, {shared}"
    if pyro is None:
        yield Figure(name, math.nan, "x", detail="not measured: pip install torch pyro-ppl")
        return
    gain = ratio(seconds["Pyro"][1:], seconds["sgdlab"][1:])
    rates_in_words = ", ".join(f"{who} {rate:,.0f}/s" for who, rate in rates.items())
    nats = ", ".join(f"{who} {elbo:.3f}" for who, elbo in elbos.items())
    count, after = pyro.networks.num_parameters(), EVERY * len(seconds["Pyro"])
    detail = f"{rates_in_words}; {count:,} parameters each; ELBO per value after {after} steps: {nats}"
    yield at_least(name, gain, "x", 5, detail)


def _pyro(
    widths: deep_markov.Architecture, fitting: deep_markov.Fitting, initial: dict[str, Any], runtimes: np.ndarray
) -> Any | None:
    """Return the training in Pyro; None if it is not installed."""
    if any(importlib.util.find_spec(package) is None for package in ("torch", "pyro")):
        return None
    from experiments.benchmarks.pyro_model import PyroTraining  # noqa: PLC0415

    return PyroTraining(
        runtimes.shape[1],
        widths,
        initial,
        runtimes / (2 * runtimes[: widths.lag].mean()),
        batch=fitting.batch,
        learning_rate=fitting.learning_rate,
        clip=fitting.clip,
        seed=0,
    )
