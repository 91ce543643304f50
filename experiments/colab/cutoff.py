# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: tags
#     formats: ipynb,py:percent
#     notebook_metadata_filter: kernelspec,jupytext,-jupytext.text_representation.jupytext_version
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
"""
# From a trace to a cutoff: how many workers should the server wait for?

Many workers train one network together. In every iteration each of them computes a gradient, and the server averages
the gradients. If it waits for all workers, it waits for the slowest one, and all others are idle. If it continues after
the first $c$ gradients and interrupts the other workers, it loses a few gradients and saves time. The best $c$ changes,
because machines enter slow phases and recover. This notebook trains a model of a cluster on recorded compute times and
predicts $c$ for every iteration, as in *High Throughput Synchronous Distributed Stochastic Gradient Descent* (Teng and
Wood 2018).

1. Get compute times: of a simulated cluster, or from your own trace.
2. Measure the cost of waiting for all workers.
3. Train a deep Markov model on the first part of the compute times.
4. Predict the sorted compute times and the cutoff of iterations that were not used in training.
5. Run the predictor as in production, where late compute times are not observed, and compare it with simpler methods.
6. Train a small network with the resulting schedule.
7. Save and load the model.

The first cell installs sgdlab where it is not there. In Colab: choose a CPU runtime (no GPU), then *Runtime > Run all*.
This takes two to three minutes on two CPU cores. If Colab asks to restart after the installation, do so and run all
cells again. All settings are in the second cell.
"""

# %%
# @title Installation
# ruff: noqa: E402, RUF100 (imports follow the installation)
import importlib.util
import subprocess
import sys

# What pip installs where sgdlab is not there yet: its name, the path of a wheel or of a checkout, or git+https://...
SOURCE = "sgdlab"  # @param {type:"string"}

if importlib.util.find_spec("sgdlab") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "pandas", SOURCE], check=True)

# %% tags=["parameters"]
# @title Settings
# Your own trace (Parquet, CSV or .npy). If it is empty, a cluster is simulated.
TRACE = ""  # @param {type:"string"}
# Directory for the simulated trace and the model.
FOLDER = "cutoff_demo"  # @param {type:"string"}

# The simulated cluster: number of workers, of machines on which they run, and of recorded iterations.
NUM_WORKERS = 158  # @param {type:"integer"}
NUM_NODES = 4  # @param {type:"integer"}
STEPS = 4000  # @param {type:"integer"}

# Share of the iterations on which the model is trained, and the largest number of training steps.
TRAINING_SHARE = 0.85  # @param {type:"number"}
TRAINING_STEPS = 4000  # @param {type:"integer"}

# Number of updates of the small network in part 6.
NETWORK_UPDATES = 80  # @param {type:"integer"}
SEED = 0  # @param {type:"integer"}

# %%
import pathlib
import warnings

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from flax import nnx
from IPython.display import display as show

warnings.filterwarnings("ignore", message="IProgress not found")  # of NumPyro's bars, which are not drawn here

import sgdlab
from sgdlab import data, deep_markov, networks, predictors, tasks
from sgdlab.results.plots import STYLE
from sgdlab.results.timeline import WorkerRows, timeline

plt.rcParams.update(STYLE)
BLUE, RED, ORANGE, GREEN, GREY = "#2166ac", "#c51b1b", "#d95f02", "#1b7837", "#7a7a7a"
folder = pathlib.Path(FOLDER)
folder.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## 1. Compute times
#
# A trace is a table with a row for every worker and step: `worker, step, duration`, in seconds. A table with one column
# for each worker is accepted too, as is a `.npy` array of steps x workers. Enter the path of your trace in `TRACE`
# above.
#
# Without a trace, a cluster like the paper's is simulated: 158 workers on 4 nodes, whose compute times have a mean of
# 1.057 s and a standard deviation of 0.393 s. From time to time a node becomes slow and stays slow for about 20
# iterations, together with all its workers. The compute times are written as a trace, which is then read in the same
# way as your own.

# %%
trace = pathlib.Path(TRACE or folder / "trace.csv")


def simulate():
    """Writes a trace of a cluster whose nodes enter slow phases."""
    law = sgdlab.cluster.RegimeCluster(
        num_workers=NUM_WORKERS,
        num_nodes=NUM_NODES,
        mean=1.057,
        std=0.393,
        slow_factor=1.8,  # ratio of slow and ordinary compute times
        slow_share=0.15,  # share of the time in which a node is slow
        slow_steps=20.0,  # mean number of iterations of a slow phase
    )
    runtimes = law.draw(STEPS, seed=SEED)  # [steps, workers], seconds
    names = tuple(str(worker) for worker in range(NUM_WORKERS))
    sgdlab.cluster.Recording(runtimes, np.arange(STEPS), names).save(trace)


if not TRACE:
    simulate()
recording = sgdlab.cluster.recorded(trace)
print(recording)
runtimes = recording.complete().runtimes  # [steps, workers]: the steps for which all workers have a compute time
num_steps, num_workers = runtimes.shape

split = int(TRAINING_SHARE * num_steps)
train, test = runtimes[:split], runtimes[split:]
print(f"{len(train)} iterations for training, {len(test)} for testing")

# %% [markdown]
# ## 2. The cost of waiting
#
# Every row of the picture is a worker, every column an iteration. A bright band is a node in a slow phase: its workers
# are slow together, for several iterations.

# %%
figure, axes = plt.subplots(figsize=(9, 3.8))
shown = train[:300]
image = axes.imshow(
    shown.T, aspect="auto", origin="lower", interpolation="nearest", cmap="magma", vmax=np.quantile(shown, 0.995)
)
axes.grid(visible=False)
axes.set_xlabel("iteration")
axes.set_ylabel("worker")
axes.locator_params(integer=True)
axes.set_title(f"Compute times of the first {len(shown)} iterations")
figure.colorbar(image, label="compute time, s", extend="max")
plt.show()

# %%
slowest, average = train.max(axis=1).mean(), train.mean()
print(f"The mean compute time is {average:.2f} s, that of the slowest worker of an iteration {slowest:.2f} s.")
print(f"In full synchrony workers are idle for {1 - average / slowest:.0%} of the time.")

# %% [markdown]
# Let $x_{(1)} \le x_{(2)} \le \dots \le x_{(n)}$ be the compute times of an iteration in increasing order, its *order
# statistics*. After $x_{(c)}$ seconds $c$ gradients have arrived, so waiting for $c$ workers gives
#
# $$\Omega(c) = \frac{c}{x_{(c)}} \quad \text{gradients per second.}$$
#
# Left: sorted times of three iterations. Right: their throughput for each number of workers; dots mark the best.

# %%
typical = np.argsort(train.mean(axis=1))[[len(train) // 20, len(train) // 2, -1 - len(train) // 20]]
count = np.arange(1, num_workers + 1)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6))
for step, name, colour in zip(
    typical, ("fast iteration", "median iteration", "slow iteration"), (GREEN, BLUE, RED), strict=True
):
    ordered = np.sort(train[step])
    best = predictors.best_cutoff(ordered)
    left.plot(count, ordered, color=colour, label=f"{name}, number {step}")
    left.plot(best, ordered[best - 1], "o", color=colour)
    right.plot(count, count / ordered, color=colour)
    right.plot(best, best / ordered[best - 1], "o", color=colour)
left.set_ylabel("compute time, s")
left.set_ylim(bottom=0)
left.set_xlabel("workers in order of compute time")
left.legend()
right.set_ylabel("gradients per second")
right.set_ylim(bottom=0)
right.set_xlabel("workers waited for, c")
for axes in (left, right):
    axes.locator_params(axis="x", integer=True)
plt.show()

# %% [markdown]
# ### Independent, identical workers
#
# If compute times were independent and all from one normal distribution, its mean and standard deviation would
# determine the order statistics by Elfving's formula:
#
# $$E[x_{(j)}] \approx \mu + \sigma\, \Phi^{-1}\left(\frac{j - \pi/8}{n - \pi/4 + 1}\right).$$
#
# But the workers of a node are slow together. The formula can be right on average, but single iterations differ from it
# a lot, and no single curve fits all of them.

# %%
ordered = np.sort(train, axis=1)
by_formula = predictors.elfving(num_workers, mean=float(train.mean()), std=float(train.std()))
figure, axes = plt.subplots(figsize=(6.5, 3.8))
axes.fill_between(
    count, *np.quantile(ordered, (0.05, 0.95), axis=0), color=BLUE, alpha=0.2, linewidth=0, label="90 % of iterations"
)
axes.plot(count, ordered.mean(axis=0), color=BLUE, label="observed, mean")
axes.plot(count, by_formula, color=ORANGE, linestyle="--", label="Elfving's formula")
axes.set_xlabel("order statistic, j")
axes.locator_params(axis="x", integer=True)
axes.set_ylabel("j-th compute time, s")
axes.set_ylim(bottom=0)
axes.legend()
plt.show()

static, alike = (
    predictors.best_cutoff(ordered.mean(axis=0)),
    predictors.best_cutoff(np.maximum(by_formula, train.min())),
)
for name, c in (("all", num_workers), ("the best number by the formula", alike), ("the best constant number", static)):
    print(f"Waiting for {name}, c = {c}: {c / ordered[:, c - 1].mean():#.3g} gradients per second.")

# %% [markdown]
# ## 3. A model of the cluster
#
# The best cutoff of an iteration depends on which nodes are slow. The *deep Markov model* has a hidden state $z_t$ of
# the cluster that changes from iteration to iteration and determines the distribution of all compute times. Its
# functions are small neural networks:
#
# $$z_t \sim \mathcal N\big(\mu_\theta(z_{t-1}), \sigma_\theta(z_{t-1})\big), \qquad
# x_t \sim \mathcal N\big(m_\theta(z_t), s_\theta(z_t)\big), \qquad x_t \in \mathbb R^n.$$
#
# A second network, the *guide* $q_\phi(z_t \mid z_{t-1}, x)$, infers the state from the last 20 iterations. Both are
# trained together to maximise the evidence lower bound (ELBO)
#
# $$\mathbb E_{q_\phi}\big[\log p_\theta(x, z) - \log q_\phi(z \mid x)\big] \le \log p_\theta(x).$$
#
# The end of the training part is used for validation; training stops early if the validation ELBO no longer improves.

# %%
widths = deep_markov.Architecture()  # lag=20: iterations in a window
enough = 0.15 * len(train) >= widths.lag  # at least one window for validation
fitting = deep_markov.Fitting(
    steps=TRAINING_STEPS,
    learning_rate=6e-3,
    annealing=TRAINING_STEPS // 8,
    every=max(1, TRAINING_STEPS // 20),
    validation_share=0.15 if enough else 0.0,
)


def report(evaluation):
    """Prints how far the training is."""
    print(f"step {int(evaluation['step']):,}: validation ELBO {evaluation['validation_elbo']:.3f} nats per time")


model = deep_markov.fit(train, widths, fitting, seed=SEED, report=report)

# %%
steps, elbo, validation = (
    np.array([evaluation[name] for evaluation in model.history]) for name in ("step", "elbo", "validation_elbo")
)
figure, axes = plt.subplots(figsize=(6.5, 3.4))
axes.plot(steps, elbo, color=GREY, label="training")
axes.plot(steps, validation, color=BLUE, label="validation")
settled = steps > fitting.annealing
best = np.argmax(np.where(settled, validation, -np.inf))
axes.plot(steps[best], validation[best], "o", color=BLUE, label="parameters of the model")
axes.set_ylim(validation[settled].min() - 0.1, elbo.max() + 0.05)  # the first steps are far below
axes.set_xlabel("training step")
axes.set_ylabel("ELBO, nats per compute time")
axes.legend()
plt.show()

# %% [markdown]
# ## 4. Predict
#
# The guide draws 64 states given the last 20 iterations. For each of them the model draws the next state and all
# compute times, which are sorted. The mean of the draws is $E[x_{(j)}]$, and the cutoff is
#
# $$c = \arg\max_c \frac{c}{E[x_{(c)}]}.$$
#
# The picture shows four test iterations, each predicted from the 20 before it. They are chosen by the mean compute time
# of the *previous* iteration, not by their own: the model cannot know yet that a node has just become slow or
# recovered. The band is $\pm 2$ standard deviations.

# %%
predictor = deep_markov.DeepMarkov(model, samples=64)
last_window = train[-widths.lag :]
foreseen = predictors.run_online(test, predictor, history=last_window, censored=False, seed=SEED)

before = runtimes[split - 1 : -1].mean(axis=1)
chosen = np.argsort(before)[(np.array([0.1, 0.6, 0.8, 0.95]) * len(test)).astype(int)]
figure, panels = plt.subplots(1, 4, figsize=(12, 3.6), sharey=True)
for axes, i in zip(panels, chosen, strict=True):
    mean, std, observed = foreseen.mean[i], foreseen.std[i], foreseen.observed[i]
    axes.fill_between(
        count, mean - 2 * std, mean + 2 * std, color=BLUE, alpha=0.25, linewidth=0, label="predicted, ± 2 std"
    )
    axes.plot(count, mean, color=BLUE, label="predicted, mean")
    axes.plot(count, observed, color="black", linewidth=1.1, label="observed")
    axes.axvline(foreseen.cutoff[i], color=RED, linewidth=1.2, label="predicted cutoff")
    axes.set_title(f"iteration {split + i}\nc = {foreseen.cutoff[i]}, best {predictors.best_cutoff(observed)}")
    axes.set_xlabel("order statistic, j")
    axes.locator_params(axis="x", integer=True)
panels[0].set_ylabel("j-th compute time, s")
panels[0].set_ylim(bottom=0)
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
plt.show()

inside = (np.abs(foreseen.observed - foreseen.mean) <= 2 * foreseen.std).mean()
print(f"{inside:.0%} of the order statistics of the {len(test)} test iterations are in the band.")

# %% [markdown]
# ## 5. As in production
#
# A worker that is cut off is interrupted, so its compute time is not observed. The predictor draws the missing compute
# times from its own prediction, given that they are longer than the cutoff,
#
# $$\tilde x_i \sim p(x_i \mid x_i > x_{(c)}),$$
#
# so that its window is complete. `run_online` does this on the test part; `censored=True` is the default. The
# predictor is compared with:
#
# * **full synchrony**, which waits for all workers;
# * **static**, which always waits for the same number of workers, the best one of the training part;
# * **running mean**, which predicts the mean of the last sorted compute times; their number is tuned on the training
# part; * **oracle**, which knows the compute times in advance. No predictor has a larger $\Omega(c)$ in any iteration.

# %%
tail = train[-500:]
window = max(
    (1, 2, 3, 5, 8, 12, 20),
    key=lambda size: predictors.run_online(tail, predictors.RunningMean(size, at_least=0.0)).gradients_per_second(),
)
contenders = {
    "full synchrony": (predictors.Static(), GREY),
    f"static, {static}": (predictors.Static(static), GREEN),
    f"running mean of {window}": (predictors.RunningMean(window, at_least=0.0), ORANGE),
    "deep Markov": (predictor, BLUE),
    "oracle": (predictors.Oracle(test), "black"),
}
records = {
    name: predictors.run_online(test, contender, history=last_window, seed=SEED)
    for name, (contender, _) in contenders.items()
}

# %%
rates = {name: record.gradients_per_second() for name, record in records.items()}
figure, axes = plt.subplots(figsize=(8, 2.8))
bars = axes.barh(list(rates), list(rates.values()), color=[colour for _, colour in contenders.values()], height=0.65)
axes.bar_label(bars, [f"{rate:#.4g}  ({rate / rates['oracle']:.1%})" for rate in rates.values()], padding=4)
axes.set_xlim(0, 1.25 * max(rates.values()))
axes.set_xlabel("gradients per second")
axes.set_title(f"Throughput over {len(test)} test iterations, and its share of the oracle's")
axes.invert_yaxis()
axes.grid(visible=False, axis="y")
plt.show()

gain = rates["deep Markov"] / rates["full synchrony"]
print(f"The predicted cutoff gives {gain:.2f} times the gradients per second of full synchrony.")

# %% [markdown]
# The next picture shows the number of workers that each predictor waits for. In the simulated cluster, the oracle's
# dots fall when a node becomes slow and rise when it recovers. The model follows about one iteration later, after it
# has observed the change; the running mean takes several iterations.

# %%
figure, axes = plt.subplots(figsize=(10, 3.6))
lowest = num_workers
for index, (name, record) in enumerate(records.items()):
    style = {"linestyle": "none", "marker": ".", "markersize": 5} if name == "oracle" else {"linewidth": 1.4}
    cutoffs = record.cutoff[:150]
    lowest = min(lowest, cutoffs.min())
    axes.plot(
        split + np.arange(len(cutoffs)), cutoffs, color=contenders[name][1], label=name, zorder=2 + index, **style
    )
axes.set_xlabel("iteration")
axes.set_ylabel("workers waited for, c")
axes.locator_params(integer=True)
axes.set_ylim(0.9 * lowest, 1.03 * num_workers)
figure.legend(loc="outside upper center", ncols=5)
plt.show()

# %% [markdown]
# ## 6. Train a network
#
# `sgdlab.protocols.cutoff` turns compute times and a predictor into a **schedule**: which worker computed which
# gradient on which version of the network, and when it was used. Updates wait for all workers until the predictor's
# window is full.

# %%
run = runtimes[split - widths.lag : split + NETWORK_UPDATES]
schedule, record = sgdlab.protocols.cutoff_with_record(run, predictor=predictor, window=widths.lag, seed=SEED)
schedules = {"full synchrony": sgdlab.protocols.synchronous(run), "predicted cutoff": schedule}
print(schedule)

# %%
begin, end = record.seconds[: widths.lag - 2].sum(), record.seconds[: widths.lag + 6].sum()
figure = timeline(schedules, seconds=end, rows=WorkerRows.evenly(num_workers, most=24))
for axes in figure.axes:
    axes.set_xlim(begin, end)
figure.set_size_inches(10, 2 + 0.25 * min(num_workers, 24))
show(figure)

# %% [markdown]
# The picture shows at most 24 workers. After the last two updates that wait for all workers the cutoff begins:
# iterations are shorter, and workers are idle for less time. Gradients in red are interrupted; bars that touch are
# separate gradients.
#
# A schedule does not depend on the network. `sgdlab.replay.run` executes a schedule exactly, gradient by gradient; here
# with plain SGD and a small network on the UCI digits of 8 x 8 pixels, with about 320 images per update. Both runs make
# the same number of updates. Time is the virtual time of the cluster, from the schedule.

# %%
digits = data.digits()
train_images, train_labels = jnp.asarray(digits.train.images), jnp.asarray(digits.train.labels)
held_out = data.Batch(jnp.asarray(digits.test.images), jnp.asarray(digits.test.labels))
network = tasks.classification(networks.MLP((64, 32, 10), rngs=nnx.Rngs(SEED)))
rule = sgdlab.rules.asgd(learning_rate=0.4)
images_each = max(1, 320 // num_workers)


def batch(gradient):
    """Draws the images of a gradient."""
    key = jax.random.fold_in(jax.random.key(SEED), gradient)
    chosen = jax.random.randint(key, (images_each,), 0, len(train_labels))
    return data.Batch(train_images[chosen], train_labels[chosen])


def evaluate(params, stats):
    """Loss and accuracy on the held-out digits."""
    return network.evaluate(params, stats, held_out)


watch = sgdlab.replay.Watch(every=4 * num_workers, evaluate=evaluate)
results = {name: sgdlab.replay.run(planned, rule, network, batch, watch=watch) for name, planned in schedules.items()}

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.6))
for (name, result), colour in zip(results.items(), (GREY, BLUE), strict=True):
    seconds, loss, accuracy = (
        [evaluation[key] for evaluation in result.history.evaluations] for key in ("seconds", "loss", "accuracy")
    )
    axes.plot(seconds, loss, color=colour, label=name)
    print(f"{name}: accuracy on held-out digits {accuracy[-1]:.1%} after {seconds[-1]:.0f} s")
axes.set_xlabel("virtual time, s")
axes.set_ylabel("loss on held-out digits")
axes.set_ylim(bottom=0)
axes.legend()
plt.show()

# %% [markdown]
# ## 7. Save the model
#
# A saved model is a directory with the parameters of the networks, the number of workers and the scale of the
# compute times. Compute times of a different number of workers raise a `ValueError`.

# %%
model.save(folder / "model")
loaded = deep_markov.TrainedModel.load(folder / "model")
again = deep_markov.DeepMarkov(loaded)
state = again.start(test[-widths.lag :], seed=SEED)
print(f"The next iteration should wait for {again.predict(state).cutoff} of {loaded.num_workers} workers.")
try:
    again.start(test[-widths.lag :, :-1], seed=SEED)
except ValueError as error:
    print(f"Compute times of one worker less: {error}")

# %% [markdown]
# In production: call `start` with the first full window. In every iteration call `predict`, wait for this number of
# workers, interrupt the others, and pass to `observe` the compute times (NaN for workers that were cut off) and the
# time of the cutoff:
#
# ```python
# state = predictor.start(window, seed=0)
# while training:
#     c = predictor.predict(state).cutoff
#     ...                                  # wait for c gradients, average them, interrupt the other workers
#     state = predictor.observe(state, runtimes, cut_at)
# ```
#
# ## Where to go next
#
# ```bash
# # Which protocol is fastest on my cluster? A table, pictures and a self-contained page.
# sgdlab advise --trace=mine.csv
#
# # Train on the digits with a cutoff, and compare with other protocols and rules.
# sgdlab train --config.method=cutoff --workdir=runs/one
# sgdlab compare --methods=synchronous,backup_workers,cutoff,asgd --num_workers=16 --workdir=runs/several
# ```
#
# In a checkout of the repository:
#
# ```bash
# # Train a model on a trace, with checkpoints; a command that was killed continues where it stopped.
# python -m experiments.cutoff.train --config=configs/cutoff.py:two_state --config.cluster.kind=recorded \
#     --config.cluster.recorded.trace=mine.csv --config.cluster.train_steps=2000 --workdir=runs/mine
#
# # Compare all predictors on several clusters, with confidence intervals.
# python -m experiments.cutoff.throughput
# ```
#
# The parts used here: `sgdlab/cluster/` (compute times), `sgdlab/predictors/` and `sgdlab/deep_markov/` (predictors),
# `sgdlab/protocols/cutoff.py` (the schedule), `sgdlab/replay/` (training).
