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
# A custom rule: what should the server do with a late gradient?

Many workers train one network together, and nobody waits: each worker reads the parameters, computes a gradient and
sends it to the server, which applies it at once. Meanwhile other workers have changed the parameters, so the gradient
belongs to an older version of them: it is late. A *rule* says what the server does with a gradient that it receives. It
can use the gradient as it is, make its step smaller, or correct it.

This notebook defines a new rule in a dozen lines, trains networks with it and with rules of the literature on the same
simulated cluster, and shows the results in a table and a picture.

1. Write the rule as an optax transform, and register it.
2. Try it on single gradients.
3. See how late gradients are on the cluster.
4. Compare the rule with others.
5. Vary the rule's own number.

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
# Directory for the runs. Runs that are there already are not done again.
FOLDER = "rule_demo"  # @param {type:"string"}

# Number of workers, passes over the training images, and seeds of each method.
NUM_WORKERS = 32  # @param {type:"integer"}
EPOCHS = 20.0  # @param {type:"number"}
SEEDS = 3  # @param {type:"integer"}
# The network: a small convolutional net, or a multilayer perceptron.
NETWORK = "conv"  # @param ["conv", "mlp"]

# What the rule is compared with (`sgdlab train --help` lists all methods), and the powers of part 5.
OTHERS = "synchronous, nag_asgd, staleness_aware, gap_aware"  # @param {type:"string"}
POWERS = "0, 0.25, 0.5, 0.75, 1"  # @param {type:"string"}

# %%
import pathlib

import jax
import matplotlib.pyplot as plt
import numpy as np
import optax
from IPython.display import Image
from IPython.display import display as show
from matplotlib import ticker
from sgdlab.configs import digits

import sgdlab
from sgdlab import runs
from sgdlab.results.plots import STYLE
from sgdlab.rules import RULES

plt.rcParams.update(STYLE)
BLUE, GREY = "#2166ac", "#7a7a7a"
folder = pathlib.Path(FOLDER)

# %% [markdown]
# ## 1. The rule
#
# The *delay* $\tau$ of a gradient is 1 if it is fresh, and 1 plus the number of updates that were made after its worker
# had read the parameters. *Staleness-Aware* (Zhang et al. 2015) divides the step of a gradient by its delay. With 32
# workers the mean delay is about 32, so that many steps are very small. *NAG-ASGD* does not divide at all, and may
# diverge. The rule of this notebook is between the two: it divides by a power of the delay,
#
# $$v_{k+1} = \gamma v_k + g_k, \qquad \theta_{k+1} = \theta_k - \frac{\eta}{\tau_k^{\,p}}\,(\gamma v_{k+1} + g_k),$$
#
# where $g$ is the gradient (with weight decay), $v$ the velocity, $\gamma$ the momentum and $\eta$ the learning rate.
# With $p = 0$ it is NAG-ASGD, with $p = 1$ Staleness-Aware.
#
# Any optax transform can be a rule. What the server knows of a gradient, its `delay` and its `worker`, arrives as a
# keyword argument of `update`: name it without a default, so that a mistake cannot go unnoticed. Registering a function
# makes it a rule of the library, with the function's name. `learning_rate` is required; every other keyword argument
# with a default becomes an entry of the configuration.


# %%
def scale_by_delay_power(power):
    """Divides updates by a power of the delay."""

    def update(updates, state, params=None, *, delay, **extra_args):
        return jax.tree.map(lambda u: u / delay**power, updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


@RULES.register(title="Power of the delay")
def delay_power(*, learning_rate, momentum: float = 0.9, weight_decay: float = 0.0, power: float = 0.5):
    """The step is divided by a power of the gradient's delay."""
    return optax.chain(
        optax.add_decayed_weights(weight_decay),
        optax.trace(momentum, nesterov=True),
        scale_by_delay_power(power),
        optax.scale_by_learning_rate(learning_rate),
    )


# %% [markdown]
# The rule is compiled, so `delay` is a traced number: write `jnp.minimum(delay, 8)`, not `min(delay, 8)`. The order of
# the chain matters: here the division follows the momentum and makes the *step* smaller; before `optax.trace` it would
# make the *gradient* smaller, which is another rule.
#
# ## 2. Single gradients
#
# Before anything is trained, the rule can be tried on a gradient of 1, at a learning rate of 1 and without momentum.

# %%
delays, powers = (1, 4, 16, 64), [float(power) for power in POWERS.split(",")]
print("delay " + "".join(f"{delay:>10}" for delay in delays))
for power in powers:
    transform = delay_power(learning_rate=1.0, momentum=0.0, power=power)
    zero = np.zeros(1, np.float32)
    steps = [transform.update(zero + 1, transform.init(zero), zero, delay=delay)[0].item() for delay in delays]
    print(f"p = {power:<5g}" + "".join(f"{step:>10.3f}" for step in steps))

# %% [markdown]
# ## 3. How late are the gradients?
#
# When a gradient arrives does not depend on what is trained. `make_plan` simulates the cluster and returns the
# **schedule**: which worker computed each gradient, on which version of the parameters, and when it was applied. The
# workers are of unequal speed: fast ones send many gradients with a small delay, slow ones a few with a large delay.

# %%
config = digits.get_config()  # after the rule has been registered: its arguments are entries now
config.method = "delay_power"
config.cluster.num_workers = NUM_WORKERS
config.epochs = EPOCHS
config.network.kind = NETWORK

schedule = runs.plan.make_plan(config).schedule
delay = schedule.delay().compressed()
print(schedule)

# %%
figure, axes = plt.subplots(figsize=(7, 3.4))
axes.hist(delay, bins=np.arange(0.5, delay.max() + 1.5, max(1, delay.max() // 60)), color=BLUE)
axes.axvline(delay.mean(), color="black", linestyle="--", label=f"mean, {delay.mean():.1f}")
axes.set_xlim(left=0)
axes.set_xlabel("delay of the gradient, updates")
axes.set_ylabel("gradients")
axes.set_title(f"{delay.size:,} gradients of {NUM_WORKERS} workers")
axes.legend()
plt.show()

# %% [markdown]
# ## 4. The comparison
#
# A comparison is a *sweep*: each method with each seed, and a single worker alone, whose accuracy the methods should
# equal. All methods use the same learning rate, the same number of gradients and, of one seed, the same images
# and compute times. Rules of a notebook run in this process, one run after the other. Runs are stored in `FOLDER`, with
# a report; if you edit the rule and run the cells again, only its own runs are repeated. `sgdlab.compare` returns a
# table with a row for each run, for questions of your own.

# %%
methods = ["delay_power", *(name.strip() for name in OTHERS.split(","))]
chosen = {"num_workers": [NUM_WORKERS], "seeds": SEEDS, "config": config, "equal": "gradients", "workdir": folder}
compared = sgdlab.compare(methods=methods, **chosen)

# %%
print((folder / "table.md").read_text())

# %% [markdown]
# The picture has a row for each method. Synchronous SGD waits for all workers, so that its gradients are always
# fresh, but fast workers are often idle. The methods that do not wait make equally many gradients per second; they
# differ only in what they do with late gradients. A few seeds on a small data set are not much evidence: look at the
# deviations in the table before you call one method better than another.

# %%
show(Image(folder / "plots/standing.png"))

# %% [markdown]
# Training loss against the virtual time of the cluster, means over the seeds:

# %%
show(Image(folder / "plots/loss.png"))

# %% [markdown]
# ## 5. The power
#
# `power` is an entry of the configuration because it is an argument of the rule. The next runs differ in it and in
# their seed alone; the table has a row for each run.

# %%
swept = sgdlab.compare(methods=["delay_power"], sweep={"rule.delay_power.power": powers}, **chosen)
table = swept[swept.method == "delay_power"].sort_values(["rule.delay_power.power", "seed"])
show(table[["rule.delay_power.power", "seed", "test_accuracy", "diverged"]])
errors = 100 - 100 * table.test_accuracy.to_numpy().reshape(len(powers), SEEDS)

# %% [markdown]
# Every dot is a run. The scale of the test error is logarithmic, since a run that diverged is wrong on most images. The
# left end, $p = 0$, is NAG-ASGD, and the right end, $p = 1$, Staleness-Aware.

# %%
figure, axes = plt.subplots(figsize=(7, 3.8))
axes.plot(powers, np.median(errors, axis=1), color=BLUE, label="median of the seeds")
sideways = np.array(powers)[:, None] + 0.01 * (np.arange(SEEDS) - (SEEDS - 1) / 2)  # so that equal errors can be seen
axes.plot(sideways.ravel(), errors.ravel(), "o", color=BLUE, alpha=0.5, label="one run")
alone = compared[compared.num_workers == 1].test_accuracy
axes.axhline(100 - 100 * alone.mean(), color=GREY, linestyle="--", label="single worker, mean")
axes.set_yscale("log")
axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 3, 5)))
axes.yaxis.set_major_formatter("{x:g}")
axes.yaxis.set_minor_formatter(ticker.NullFormatter())
axes.set_xticks(powers)
axes.set_xlabel("power p of the delay")
axes.set_ylabel("test error, %")
axes.set_title(f"Final test error, {NUM_WORKERS} workers, {EPOCHS:g} epochs")
axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# ## Where to go next
#
# * **A rule that needs more** than the delay, such as the parameters that a gradient was computed on or a state for
#   each worker, gives its own `init`, `receive`, `update` and `send`: see `sgdlab/rules/gap_aware.py` and
#   `sgdlab/rules/dana.py`.
# * **From the command line.** Put the cell of part 1 into a file `my_parts.py`, with its imports. Runs then share the
#   cores of the machine, and the result is one page, `report.html`, with the table and all pictures:
#
# ```bash
# sgdlab compare --parts=my_parts.py --methods=delay_power,staleness_aware,gap_aware --workdir=runs/mine
# sgdlab train --parts=my_parts.py --config.method=delay_power --config.rule.delay_power.power=0.25 --workdir=runs/one
# ```
#
# * **Another protocol.** A rule goes with any protocol, such as bounded staleness, in which fast workers wait when they
#   are too far ahead: `--config.protocol.kind=bounded_staleness --config.rule.kind=delay_power`.
# * **Pictures of your own** from the records of the runs: the notebook `records.py` beside this one.
