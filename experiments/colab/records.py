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
# Read a run: how do its records become a custom figure?

`sgdlab train` and `sgdlab compare` leave a file of records for each run: what was run, what was measured on the way,
and a summary. Their report shows what most readers want to know. This notebook reads the records with pandas, for the
questions that the report does not answer.

1. Get runs: those of a directory of yours, or a small comparison.
2. Open one file.
3. Read all files into two tables, one of evaluations and one of runs.
4. See in which settings the runs differ.
5. Draw figures: test error over time, and the time to any accuracy.
6. The same with less code, where means over the seeds suffice.

The first cell installs sgdlab where it is not there. In Colab: choose a CPU runtime (no GPU), then *Runtime > Run all*.
This takes one to two minutes on two CPU cores. If Colab asks to restart after the installation, do so and run all cells
again. All settings are in the second cell.
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
# Directory of finished runs, the --workdir of `sgdlab compare` or `sgdlab train`. If it is empty, some runs are made.
RUNS = ""  # @param {type:"string"}
# Directory for these runs and for the figures. Runs that are there already are not done again.
FOLDER = "records_demo"  # @param {type:"string"}

# The runs that are made: methods (`sgdlab train --help` lists all), number of workers, seeds of each method, passes
# over the training images, and the network: a small convolutional net, or a multilayer perceptron.
METHODS = "synchronous, backup_workers, asgd, gap_aware"  # @param {type:"string"}
NUM_WORKERS = 16  # @param {type:"integer"}
SEEDS = 3  # @param {type:"integer"}
EPOCHS = 10.0  # @param {type:"number"}
NETWORK = "conv"  # @param ["conv", "mlp"]

# %%
import itertools
import json
import pathlib

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import display as show
from matplotlib import ticker
from sgdlab.configs import digits

import sgdlab
from sgdlab.results import summary
from sgdlab.results.panels import PALETTE
from sgdlab.results.plots import STYLE
from sgdlab.runs import configuration

plt.rcParams.update(STYLE)
folder = pathlib.Path(FOLDER)
folder.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## 1. Runs
#
# `sgdlab.compare` does in a notebook what a command line would do, here
# `sgdlab compare --methods=synchronous,backup_workers,asgd,gap_aware --num_workers=16 ...`. It returns a table of runs,
# too; this notebook reads the files, as it would read those of a command.

# %%
runs = pathlib.Path(RUNS or folder / "runs")
if not RUNS:
    config = digits.get_config()
    config.epochs, config.network.kind = EPOCHS, NETWORK
    methods = [name.strip() for name in METHODS.split(",")]
    sgdlab.compare(
        methods=methods, num_workers=[NUM_WORKERS], seeds=SEEDS, config=config, equal="gradients", workdir=runs
    )

# %% [markdown]
# ## 2. One file
#
# Each finished run is a file of JSON lines below `metrics/`. Its first record, `"kind": "run"`, says what was run. Then
# there is a record for each evaluation on the test set, and a summary at the end.

# %%
files = sorted((runs / "metrics").glob("*.jsonl"))
print(f"{len(files)} runs, the first of them {files[0].name}")
records = [json.loads(line) for line in files[0].read_text(encoding="utf-8").splitlines()]
print("records:", ", ".join(record["kind"] for record in records[:3]), "...,", records[-1]["kind"])

# %% [markdown]
# The first record: the method, its title, the number of workers and the seed; `about` describes the run in words;
# `made` names the version, JAX and the device; `config` holds all settings, and `code` digests of the parts' code.

# %%
opening = records[0]
print(f"{opening['title']}, {opening['num_workers']} workers, seed {opening['seed']}")
print(f"made with {opening['made']}")
for label, text in opening["about"].items():
    print(f"{label:>15}: {text}")

# %% [markdown]
# An evaluation: gradients used so far, updates, epochs, the virtual time of the cluster in seconds, loss and accuracy.
# `train_loss`, `staleness` and `gap` are means over the gradients since the evaluation before. What a method does not
# have is missing (`None`), such as the accuracy of single nodes where there is a server.

# %%
show(pd.Series(records[len(records) // 2], name="in the middle of the run").dropna().to_frame())

# %% [markdown]
# ## 3. All files
#
# `summary.read` reads the files of a directory: for each finished run its list of records. Two tables are enough for
# nearly everything: one row for each evaluation of each run, and one row for each run.

# %%
found = summary.read(runs)


def named(run):
    """Return what stands in tables and legends for all seeds of a method at a number of workers."""
    title, workers = run[0]["title"], run[0]["num_workers"]
    return title if run[0]["serial"] else f"{title}, {workers} workers"


evaluations = pd.DataFrame(
    {"name": named(run), "seed": run[0]["seed"], "index": index} | record
    for run in found
    for index, record in enumerate(run[1:-1])
)
ends = pd.DataFrame({"name": named(run)} | run[-1] for run in found)
print(f"runs: {len(ends)}, evaluations: {len(evaluations)}")

# %% [markdown]
# Means and standard deviations over the seeds, of quantities that you choose. `idle_share` is the share of the workers'
# time in which they wait, `wasted_share` that in which they compute gradients that are not used.

# %%
chosen = ["test_accuracy", "seconds", "staleness", "idle_share", "wasted_share"]
show(ends.set_index("name")[chosen].astype(float).groupby("name").agg(["mean", "std"]).round(3))

# %% [markdown]
# ## 4. Settings
#
# `config` is nested; `flat` names each setting as its flag is named. In a table with a column for each, the columns
# with more than one value are those in which the runs differ. A setting of a part that a method does not use is empty.

# %%
entries = [{name: str(value) for name, value in configuration.flat(run[0]["config"])} for run in found]
settings = pd.DataFrame(entries).fillna("")
differing = settings.columns[settings.nunique() > 1]
table = settings[differing].assign(name=[named(run) for run in found]).set_index("name")
show(table.drop(columns="seed", errors="ignore").drop_duplicates().T)
print(f"{settings.shape[1] - len(differing)} other settings are the same in all runs.")

# %% [markdown]
# ## 5. Figures
#
# Test error over the virtual time of the cluster, a panel for each method. Every coloured line is a run; the runs of
# all other methods are grey. Both scales are logarithmic: a single worker takes much longer than many, and a step from
# 96 to 98 % accuracy halves the error.

# %%
names = list(dict.fromkeys(named(group.runs[0]) for group in summary.groups(found)))  # in the order of the methods
colours = dict(zip(names, itertools.cycle(("black", *PALETTE)), strict=False))
dashes = dict(zip(names, itertools.cycle(("--", "-", "-.", ":")), strict=False))
evaluations["accuracy"] = (100 * evaluations["test_accuracy"]).round(4)  # %; the records are in single precision
evaluations["error"] = 100 - evaluations["accuracy"]
trained = evaluations[evaluations["seconds"] > 0]  # the first evaluation is before the first update


def logarithmic(axis):
    """Plain numbers on a logarithmic scale; few of them where it spans many powers of ten."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(ticker.LogLocator(subs=(1,) if high > 500 * low else (1, 2, 5)))
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_formatter(ticker.NullFormatter())


columns = min(len(names), 3)
lines = -(-len(names) // columns)
figure, panels = plt.subplots(
    lines, columns, figsize=(3.6 * columns, 2.9 * lines), sharex=True, sharey=True, squeeze=False
)
for axes, name in zip(panels.flat, names, strict=False):
    axes.set_title(name, color=colours[name])
    for (other, _), run in trained.groupby(["name", "seed"]):
        if other == name:
            axes.plot(run["seconds"], run["error"], color=colours[name], zorder=3)
        else:
            axes.plot(run["seconds"], run["error"], color="0.85", linewidth=0.8)
for axes in panels.flat[len(names) :]:
    axes.set_axis_off()
for axes in panels.flat[len(names) - columns : len(names)]:  # no panel stands below them
    axes.tick_params(labelbottom=True)
axes = panels[0, 0]
axes.set_xscale("log")
axes.set_yscale("log")
logarithmic(axes.xaxis)
logarithmic(axes.yaxis)
figure.supxlabel("virtual time, s", fontsize="medium")
figure.supylabel("test error, %", fontsize="medium")
for kind in ("png", "svg"):
    figure.savefig(folder / f"error.{kind}")
plt.show()

# %% [markdown]
# The report gives the time to one accuracy, the target of the configuration. The evaluations give the time to any: of
# each run, the time of the first evaluation at which the accuracy was reached; then means over the seeds. A line ends
# where some seed does not get further. Lines may cross: who is first at 90 % need not be first at 96 %. Runs are
# evaluated a few dozen times, so that the times at low accuracies are coarse.
#
# The thin dotted line is the time in which all workers together (the most, of several numbers), none ever waiting,
# compute as many gradients as a single worker needs: `capacity` is how many they make per second. What a method takes
# longer, it loses to waiting and to staleness; it can only be below if it needs fewer gradients than the single worker.

# %%
goals = np.arange(80.0, 100.0, 0.5)  # test accuracy, %
every = pd.MultiIndex.from_frame(ends[["name", "seed"]])


def first(column):
    """A column of the first evaluation at which each run reaches each accuracy."""
    reached = {goal: trained[trained["accuracy"] >= goal].groupby(["name", "seed"])[column].min() for goal in goals}
    return pd.DataFrame({goal: values.reindex(every) for goal, values in reached.items()})


seconds, gradients = first("seconds"), first("gradients")
most = ends[ends["num_workers"] == ends["num_workers"].max()].reindex(columns=["capacity"])
pace = most["capacity"].astype(float).mean()  # unknown of runs that earlier versions have made

figure, axes = plt.subplots(figsize=(8.5, 4.2))
for name in names:
    axes.plot(goals, seconds.loc[name].mean(skipna=False), dashes[name], color=colours[name], linewidth=2.2, label=name)
for name in ends.loc[ends["serial"], "name"].unique() if pace > 0 else ():
    axes.plot(goals, gradients.loc[name].mean(skipna=False) / pace, ":k", linewidth=1, label=f"{name}, shared out")
axes.set_yscale("log")
logarithmic(axes.yaxis)
axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
axes.set_xlabel("test accuracy that is to be reached, %")
axes.set_ylabel("virtual time until then, s")
axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
for kind in ("png", "svg"):
    figure.savefig(folder / f"time_to_accuracy.{kind}")
plt.show()

# %% [markdown]
# ## 6. With less code
#
# `summary.groups` puts the seeds of each method and number of workers together. A group has the means over its seeds as
# a curve, `spread` for a mean and a deviation of the last record, and `about` in words. Over epochs instead of seconds,
# methods are compared at an equal number of gradients.

# %%
figure, axes = plt.subplots(figsize=(8.5, 4.2))
for group in summary.groups(found):
    name = named(group.runs[0])
    axes.plot(*group.curve("epoch", "train_loss"), dashes[name], color=colours[name], label=name)
    accuracy = group.spread("test_accuracy")
    print(f"{name}: test accuracy {accuracy.mean:.1%} ± {accuracy.std:.1%}")
axes.set_yscale("log")
logarithmic(axes.yaxis)
axes.set_xlabel("epochs of used gradients")
axes.set_ylabel("training loss")
axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# ## Where to go next
#
# * **The report** of a directory, `report.html`, has the table, the pictures and the definitions of all columns;
#   `table.csv` has the table as numbers.
# * **More runs** in the same directory: the same command with more methods, workers or seeds. Finished runs are not
#   done again.
# * **A rule of your own** beside the others: the notebook `rule.py` beside this one.
