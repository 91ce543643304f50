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
# From a trace to a cutoff: how many workers should one wait for?

Many workers train one network together. In every iteration each of them computes a gradient, and the server averages
them. If it waits for all, it waits for the slowest, and all others idle. If it goes on after the first $c$ gradients
and interrupts the rest, it loses a few gradients and wins time. The best $c$ changes: machines fall into slow phases
and recover. This notebook learns the habits of a cluster from recorded run-times and predicts $c$ anew for every
iteration, as in *High Throughput Synchronous Distributed Stochastic Gradient Descent* (Teng and Wood 2018).

1. Get run-times: of a simulated cluster, or your own trace.
2. Look at them: what waiting for everybody costs.
3. Train a deep Markov model on the first part.
4. Predict the sorted run-times of iterations it has not seen, and the cutoff.
5. Run it as in production, where late workers are never seen, beside simpler ideas.
6. Train a small network with that schedule.
7. Save the model, load it, and go on.

In Colab: choose a CPU runtime (a GPU is not needed), fill in `REPOSITORY` in the first cell, then *Runtime > Run all*.
It takes two to three minutes on two CPU cores. Where Colab asks to restart after the installation, do so and run all
again. All settings are in the second cell.
"""

# %%
# @title Installation
# ruff: noqa: E402, RUF100 (imports follow the installation)
import importlib.util
import subprocess
import sys

# What pip can install, such as git+https://HOST/OWNER/sgdlab or the path of an uploaded archive.
REPOSITORY = ""  # @param {type:"string"}

if importlib.util.find_spec("sgdlab") is None:
    if not REPOSITORY:
        raise ValueError("REPOSITORY must be filled in: sgdlab is not installed here")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", REPOSITORY], check=True)

# %% tags=["parameters"]
# @title Settings
# Your own trace: Parquet, CSV or .npy. Empty: a cluster is simulated.
TRACE = ""  # @param {type:"string"}
# Where the simulated trace and the model are written.
FOLDER = "cutoff_demo"  # @param {type:"string"}

# The simulated cluster: workers, the machines they live on, recorded iterations.
NUM_WORKERS = 158  # @param {type:"integer"}
NUM_NODES = 4  # @param {type:"integer"}
STEPS = 4000  # @param {type:"integer"}

# The share of the iterations that the model is trained on, and for how many steps at most.
TRAINING_SHARE = 0.85  # @param {type:"number"}
TRAINING_STEPS = 4000  # @param {type:"integer"}

# Updates of the small network in part 6.
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
from sklearn.datasets import load_digits
from tqdm import tqdm

warnings.filterwarnings("ignore", message="IProgress not found")  # tqdm draws a bar of text then

import sgdlab
from sgdlab import cutoff, models
from sgdlab.results.plots import STYLE
from sgdlab.results.timeline import timeline

plt.rcParams.update(STYLE)
BLUE, RED, ORANGE, GREEN, GREY = "#2166ac", "#c51b1b", "#d95f02", "#1b7837", "#7a7a7a"
folder = pathlib.Path(FOLDER)
folder.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## 1. Run-times
#
# A trace is a table with a line for every worker and step: `worker, step, duration`, in seconds. A table with one
# column a worker works too, as does a `.npy` array of steps x workers. Name yours in `TRACE` above.
#
# Without one we simulate a cluster like the paper's: 158 workers on 4 nodes, whose run-times have a mean of 1.057 s and
# a standard deviation of 0.393 s. Now and then a node becomes slow, stays so for about 20 iterations, and all its
# workers with it. We write that as a trace and read it back, so that from here on both ways are one.

# %%
trace = pathlib.Path(TRACE or folder / "trace.csv")


def simulate():
    """Writes the run-times of a cluster whose nodes fall into slow phases."""
    law = sgdlab.cluster.RegimeCluster(
        num_workers=NUM_WORKERS,
        num_nodes=NUM_NODES,
        mean=1.057,
        std=0.393,
        slow_factor=1.8,  # how much longer a slow node takes
        slow_share=0.15,  # of the time that a node is slow
        slow_steps=20.0,  # how long it stays slow, on average
    )
    runtimes = law.draw(STEPS, seed=SEED)  # [steps, workers], seconds
    names = tuple(str(worker) for worker in range(NUM_WORKERS))
    sgdlab.cluster.Recording(runtimes, np.arange(STEPS), names).save(trace)


if not TRACE:
    simulate()
recording = sgdlab.cluster.recorded(trace)
print(recording)
runtimes = recording.complete().runtimes  # [steps, workers]: the steps in which no worker is missing
num_steps, num_workers = runtimes.shape

split = int(TRAINING_SHARE * num_steps)
train, unseen = runtimes[:split], runtimes[split:]
print(f"{len(train)} iterations to train on, {len(unseen)} to predict")

# %% [markdown]
# ## 2. What waiting costs
#
# Every row of the picture is a worker, every column an iteration. A bright band is a node in a slow phase: its workers
# are slow together, and for a while.

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
axes.set_title(f"Run-times of the first {len(shown)} iterations")
figure.colorbar(image, label="run-time, s", extend="max")
plt.show()

# %%
slowest, average = train.max(axis=1).mean(), train.mean()
print(f"A worker needs {average:.2f} s on average, the slowest of an iteration {slowest:.2f} s.")
print(f"Who waits for all is idle for {1 - average / slowest:.0%} of the time.")

# %% [markdown]
# Let $x_{(1)} \le x_{(2)} \le \dots \le x_{(n)}$ be the run-times of an iteration in rising order: its *order
# statistics*. After $x_{(c)}$ seconds $c$ gradients are there, so that waiting for $c$ workers gives
#
# $$\Omega(c) = \frac{c}{x_{(c)}} \quad \text{gradients per second.}$$
#
# Left: three iterations, sorted. Right: what each number of workers would have given in them; dots mark the best.

# %%
typical = np.argsort(train.mean(axis=1))[[len(train) // 20, len(train) // 2, -1 - len(train) // 20]]
count = np.arange(1, num_workers + 1)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6))
for step, name, colour in zip(
    typical, ("a fast iteration", "a middling one", "a slow one"), (GREEN, BLUE, RED), strict=True
):
    ordered = np.sort(train[step])
    best = cutoff.best_cutoff(ordered)
    left.plot(count, ordered, color=colour, label=f"{name}, no. {step}")
    left.plot(best, ordered[best - 1], "o", color=colour)
    right.plot(count, count / ordered, color=colour)
    right.plot(best, best / ordered[best - 1], "o", color=colour)
left.set_ylabel("run-time, s")
left.set_ylim(bottom=0)
left.set_xlabel("workers, fastest first")
left.legend()
right.set_ylabel("gradients per second")
right.set_ylim(bottom=0)
right.set_xlabel("workers waited for, c")
for axes in (left, right):
    axes.locator_params(axis="x", integer=True)
plt.show()

# %% [markdown]
# ### What if all workers were alike?
#
# Were run-times independent, all from one normal distribution, two numbers would say it all: by Elfving's formula
#
# $$E[x_{(j)}] \approx \mu + \sigma\, \Phi^{-1}\left(\frac{j - \pi/8}{n - \pi/4 + 1}\right).$$
#
# They are not. Workers of a node are slow together: the formula can be right on average, but single iterations are far
# from it, and no single curve fits them all.

# %%
ordered = np.sort(train, axis=1)
by_formula = cutoff.elfving(num_workers, mean=float(train.mean()), std=float(train.std()))
figure, axes = plt.subplots(figsize=(6.5, 3.8))
axes.fill_between(
    count, *np.quantile(ordered, (0.05, 0.95), axis=0), color=BLUE, alpha=0.2, linewidth=0, label="90 % of iterations"
)
axes.plot(count, ordered.mean(axis=0), color=BLUE, label="observed, mean")
axes.plot(count, by_formula, color=ORANGE, linestyle="--", label="Elfving's formula")
axes.set_xlabel("order statistic, j")
axes.locator_params(axis="x", integer=True)
axes.set_ylabel("j-th run-time, s")
axes.set_ylim(bottom=0)
axes.legend()
plt.show()

static, alike = cutoff.best_cutoff(ordered.mean(axis=0)), cutoff.best_cutoff(np.maximum(by_formula, train.min()))
for name, c in (("everybody", num_workers), ("the best number by the formula", alike), ("the best in fact", static)):
    print(f"Waiting for {name}, c = {c}: {c / ordered[:, c - 1].mean():#.3g} gradients per second.")

# %% [markdown]
# ## 3. A model of the cluster
#
# One number for all iterations is not enough: which nodes are slow now? The *deep Markov model* has a hidden state
# $z_t$ of the cluster that moves from iteration to iteration, and from which all run-times follow; the functions are
# small neural networks:
#
# $$z_t \sim \mathcal N\big(\mu_\theta(z_{t-1}), \sigma_\theta(z_{t-1})\big), \qquad
# x_t \sim \mathcal N\big(m_\theta(z_t), s_\theta(z_t)\big), \qquad x_t \in \mathbb R^n.$$
#
# A second network, the *guide* $q_\phi(z_t \mid z_{t-1}, x)$, reads the last 20 iterations and tells the state. Both
# are trained together: they maximise the evidence lower bound (ELBO)
#
# $$\mathbb E_{q_\phi}\big[\log p_\theta(x, z) - \log q_\phi(z \mid x)\big] \le \log p_\theta(x).$$
#
# The end of the first part is kept for validation; training stops early where it no longer gets better there.

# %%
widths = cutoff.Architecture()  # lag=20: iterations in a window
enough = 0.15 * len(train) >= widths.lag  # a window for validation at least
fitting = cutoff.Fitting(
    steps=TRAINING_STEPS,
    learning_rate=6e-3,
    annealing=TRAINING_STEPS // 8,
    every=max(1, TRAINING_STEPS // 20),
    validation_share=0.15 if enough else 0.0,
)

with tqdm(total=TRAINING_STEPS, unit="step") as bar:

    def report(look):
        """Moves the bar."""
        bar.update(int(look["step"]) - bar.n)
        bar.set_postfix(validation_elbo=f"{look['validation_elbo']:.3f}")

    model = cutoff.fit(train, widths, fitting, seed=SEED, report=report)

# %%
steps, elbo, validation = (
    np.array([look[name] for look in model.history]) for name in ("step", "elbo", "validation_elbo")
)
figure, axes = plt.subplots(figsize=(6.5, 3.4))
axes.plot(steps, elbo, color=GREY, label="training")
axes.plot(steps, validation, color=BLUE, label="validation")
settled = steps > fitting.annealing
kept = np.argmax(np.where(settled, validation, -np.inf))
axes.plot(steps[kept], validation[kept], "o", color=BLUE, label="the parameters that are kept")
axes.set_ylim(validation[settled].min() - 0.1, elbo.max() + 0.05)  # the first steps are far below
axes.set_xlabel("training step")
axes.set_ylabel("ELBO, nats per run-time")
axes.legend()
plt.show()

# %% [markdown]
# ## 4. Predict
#
# The guide draws 64 states from the last 20 iterations; each makes one step ahead and draws all run-times; these are
# sorted. Their mean is $E[x_{(j)}]$, and the cutoff is
#
# $$c = \arg\max_c \frac{c}{E[x_{(c)}]}.$$
#
# Below are four of the unseen iterations, each predicted from the 20 before it. They are chosen by how slow the
# iteration *before* was, not by how they came out: where a node has just become slow, or has recovered, the model
# cannot know it yet. The band is $\pm 2$ standard deviations.

# %%
predictor = cutoff.DeepMarkov(model, samples=64)
last_window = train[-widths.lag :]
foreseen = cutoff.run_online(unseen, predictor, history=last_window, censored=False, seed=SEED)

before = runtimes[split - 1 : -1].mean(axis=1)
chosen = np.argsort(before)[(np.array([0.1, 0.6, 0.8, 0.95]) * len(unseen)).astype(int)]
figure, panels = plt.subplots(1, 4, figsize=(12, 3.6), sharey=True)
for axes, i in zip(panels, chosen, strict=True):
    mean, std, came = foreseen.mean[i], foreseen.std[i], foreseen.observed[i]
    axes.fill_between(
        count, mean - 2 * std, mean + 2 * std, color=BLUE, alpha=0.25, linewidth=0, label="predicted, ± 2 std"
    )
    axes.plot(count, mean, color=BLUE, label="predicted, mean")
    axes.plot(count, came, color="black", linewidth=1.1, label="observed")
    axes.axvline(foreseen.cutoff[i], color=RED, linewidth=1.2, label="predicted cutoff")
    axes.set_title(f"iteration {split + i}\nc = {foreseen.cutoff[i]}, the best was {cutoff.best_cutoff(came)}")
    axes.set_xlabel("order statistic, j")
    axes.locator_params(axis="x", integer=True)
panels[0].set_ylabel("j-th run-time, s")
panels[0].set_ylim(bottom=0)
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
plt.show()

inside = (np.abs(foreseen.observed - foreseen.mean) <= 2 * foreseen.std).mean()
print(f"Of all order statistics of the {len(unseen)} unseen iterations, {inside:.0%} lie in the band.")

# %% [markdown]
# ## 5. As in production
#
# A worker that is cut off is interrupted: nobody ever learns how long it would have taken. The predictor must live with
# that. It draws the missing run-times from its own prediction, given that they are longer than the cutoff,
#
# $$\tilde x_i \sim p(x_i \mid x_i > x_{(c)}),$$
#
# so that its window stays full. `run_online` does that over the unseen part; `censored=True` is the default. Beside it:
#
# * **full synchrony** waits for all;
# * **static** waits for the same number always, the best of the first part;
# * **running mean** expects the mean of the last sorted run-times; how many is tuned on the first part;
# * **oracle** knows the run-times beforehand. Nobody can be better at $\Omega(c)$ in any iteration.

# %%
tail = train[-500:]
window = max(
    (1, 2, 3, 5, 8, 12, 20),
    key=lambda size: cutoff.run_online(tail, cutoff.RunningMean(window=size)).gradients_per_second(),
)
contenders = {
    "full synchrony": (cutoff.Static(), GREY),
    f"static, {static}": (cutoff.Static(static), GREEN),
    f"running mean of {window}": (cutoff.RunningMean(window=window), ORANGE),
    "deep Markov": (predictor, BLUE),
    "oracle": (cutoff.Oracle(unseen), "black"),
}
records = {
    name: cutoff.run_online(unseen, contender, history=last_window, seed=SEED)
    for name, (contender, _) in tqdm(contenders.items(), unit="predictor")
}

# %%
rates = {name: record.gradients_per_second() for name, record in records.items()}
figure, axes = plt.subplots(figsize=(8, 2.8))
bars = axes.barh(list(rates), list(rates.values()), color=[colour for _, colour in contenders.values()], height=0.65)
axes.bar_label(bars, [f"{rate:#.4g}  ({rate / rates['oracle']:.1%})" for rate in rates.values()], padding=4)
axes.set_xlim(0, 1.25 * max(rates.values()))
axes.set_xlabel("gradients per second")
axes.set_title(f"Throughput over {len(unseen)} unseen iterations, and its share of the oracle's")
axes.invert_yaxis()
axes.grid(visible=False, axis="y")
plt.show()

gain = rates["deep Markov"] / rates["full synchrony"]
print(f"The predicted cutoff gives {gain:.2f} times the gradients per second of full synchrony.")

# %% [markdown]
# This is how many workers each of them waits for. In the simulated cluster, the oracle's dots fall where a node becomes
# slow and rise where it recovers. The model follows about one iteration later, when it has seen it; the running mean
# takes several.

# %%
figure, axes = plt.subplots(figsize=(10, 3.6))
lowest = num_workers
for place, (name, record) in enumerate(records.items()):
    style = {"linestyle": "none", "marker": ".", "markersize": 5} if name == "oracle" else {"linewidth": 1.4}
    waited = record.cutoff[:150]
    lowest = min(lowest, waited.min())
    axes.plot(split + np.arange(len(waited)), waited, color=contenders[name][1], label=name, zorder=2 + place, **style)
axes.set_xlabel("iteration")
axes.set_ylabel("workers waited for, c")
axes.locator_params(integer=True)
axes.set_ylim(0.9 * lowest, 1.03 * num_workers)
figure.legend(loc="outside upper center", ncols=5)
plt.show()

# %% [markdown]
# ## 6. Train with it
#
# `sgdlab.protocols.cutoff` turns run-times and a predictor into a **schedule**: who computed which gradient on which
# version of the network, and when it was used. It first waits for everybody until the predictor's window is full.

# %%
run = runtimes[split - widths.lag : split + NETWORK_UPDATES]
schedule, record = sgdlab.protocols.cutoff_with_record(run, predictor=predictor, window=widths.lag, seed=SEED)
schedules = {"full synchrony": sgdlab.protocols.synchronous(run), "predicted cutoff": schedule}
print(schedule)

# %%
begin, end = record.seconds[: widths.lag - 2].sum(), record.seconds[: widths.lag + 6].sum()
figure = timeline(schedules, seconds=end)
for axes in figure.axes:
    axes.set_xlim(begin, end)
    if num_workers > 24:  # rows for all would be too narrow
        axes.set_ylim(23.5, -0.6)
        axes.set_xlabel("virtual time, s" if axes is figure.axes[-1] else "")
figure.set_size_inches(10, 2 + 0.25 * min(num_workers, 24))
show(figure)

# %% [markdown]
# These are the first 24 workers at most. The last two updates with everybody, then the cutoff sets in: iterations are
# shorter, and workers idle less. Red is what was given up; bars that touch
# are several gradients.
#
# A schedule does not depend on what is trained. `sgdlab.replay.run` executes one exactly, gradient by gradient; here
# with plain SGD and a small network on scikit-learn's 8 x 8 digits, about 320 images an update. Both runs make equally
# many updates. Time is virtual: that of the cluster, as the schedule has it.

# %%
digits = load_digits()
images, labels = jnp.asarray(digits.images[..., None] / 16.0, jnp.float32), jnp.asarray(digits.target)
images_seen, labels_seen, held_out = images[:1437], labels[:1437], models.Batch(images[1437:], labels[1437:])
network = models.classifier(models.MLP((64, 32, 10), rngs=nnx.Rngs(SEED)))
rule = sgdlab.rules.asgd(learning_rate=0.4)
images_each = max(1, 320 // num_workers)


def batch(gradient):
    """Images drawn anew for every gradient."""
    key = jax.random.fold_in(jax.random.key(SEED), gradient)
    chosen = jax.random.randint(key, (images_each,), 0, len(labels_seen))
    return models.Batch(images_seen[chosen], labels_seen[chosen])


def evaluate(params, stats):
    """Loss and accuracy on the digits that are not trained on."""
    return network.evaluate(params, stats, held_out)


watch = sgdlab.replay.Watch(every=4 * num_workers, evaluate=evaluate)
results = {
    name: sgdlab.replay.run(planned, rule, network.grad_fn, network.params, batch, watch=watch)
    for name, planned in schedules.items()
}

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.6))
for (name, result), colour in zip(results.items(), (GREY, BLUE), strict=True):
    looks = result.history.evaluations
    axes.plot([look["seconds"] for look in looks], [look["loss"] for look in looks], color=colour, label=name)
    print(f"{name}: {looks[-1]['accuracy']:.1%} of held-out digits after {looks[-1]['seconds']:.0f} s")
axes.set_xlabel("virtual time, s")
axes.set_ylabel("loss on held-out digits")
axes.set_ylim(bottom=0)
axes.legend()
plt.show()

# %% [markdown]
# ## 7. Keep the model
#
# A saved model is a directory; it holds the networks and what they need to know of the cluster. It refuses run-times of
# another number of workers.

# %%
model.save(folder / "model")
loaded = cutoff.TrainedModel.load(folder / "model")
again = cutoff.DeepMarkov(loaded)
state = again.start(unseen[-widths.lag :], seed=SEED)
print(f"The next iteration should wait for {again.predict(state).cutoff} of {loaded.num_workers} workers.")
try:
    again.start(unseen[-widths.lag :, :-1], seed=SEED)
except ValueError as error:
    print(f"With a worker less: {error}")

# %% [markdown]
# In production: `start` with the first full window; then in every iteration `predict`, wait for that many, interrupt
# the others, and tell `observe` what came (NaN for who was cut off) and when it was cut:
#
# ```python
# state = predictor.start(window, seed=0)
# while training:
#     c = predictor.predict(state).cutoff
#     ...                                  # wait for c gradients; average them; interrupt the rest
#     state = predictor.observe(state, runtimes, cut_at)
# ```
#
# ## Where to go next
#
# In a checkout of the repository:
#
# ```bash
# # What would be fastest on my cluster? A table, pictures and one self-contained page.
# python -m experiments.advise --trace=mine.csv
#
# # Train a model of a trace, with checkpoints; a command that was killed continues.
# python -m experiments.cutoff.train --config=configs/cutoff.py:two_state --config.cluster.kind=recorded \
#     --config.cluster.recorded.trace=mine.csv --config.cluster.train_steps=2000 --workdir=runs/mine
#
# # All predictors on five clusters, five paired runs each, with confidence intervals.
# python -m experiments.cutoff.throughput
#
# # Train on the digits with a cutoff, and compare with other ways to treat late gradients.
# python -m experiments.main --config=configs/digits.py --config.method=cutoff --workdir=runs/one
# python -m experiments.compare --config=configs/digits.py --methods=synchronous,backup_workers,cutoff,asgd \
#     --num_workers=16 --workdir=runs/several
# ```
#
# The parts used here: `sgdlab/cluster/` (run-times), `sgdlab/predictors/` and `sgdlab/deep_markov/` (predictors),
# `sgdlab/protocols/cutoff.py` (the schedule), `sgdlab/replay/` (training).
