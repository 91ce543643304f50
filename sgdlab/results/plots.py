"""The pictures of a comparison: accuracy, loss, staleness and gap."""

import itertools
import pathlib
from collections.abc import Iterator, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgdlab import files
from sgdlab.methods import METHODS
from sgdlab.results.summary import Group

STYLE = {
    "figure.constrained_layout.use": True,
    "figure.dpi": 110,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.titlesize": "medium",
    "legend.frameon": False,
    "legend.fontsize": "small",
    "lines.linewidth": 1.6,
    "svg.fonttype": "path",
    "svg.hashsalt": "sgdlab",
}

FAMILIES = {
    "Rounds: fresh gradients": ("synchronous", "backup_workers", "timeout", "cutoff", "partial", "rennala"),
    "Staleness, limited or not": ("asgd", "nag_asgd", "softsync", "bounded_staleness", "ringmaster"),
    "Where staleness comes from": ("asgd", "layerwise", "simulated_staleness"),
    "Penalties on momentum SGD": (
        "nag_asgd", "staleness_aware", "staleness_aware_gradient", "gap_aware", "exponential_penalty"
    ),
    "Corrections of plain SGD": ("asgd", "delay_adaptive", "delay_compensated"),
    "Look-ahead: DANA": ("nag_asgd", "dana", "dana_staleness_aware", "dana_gap_aware"),
    "Adam": ("adam", "adam_staleness_aware", "adam_gap_aware"),
    "No server": ("all_reduce", "pull_gossip", "push_gossip", "elastic_averaging"),
}  # fmt: skip
"""Methods that belong side by side; those that do nothing about staleness stand in several panels."""

_COLOURS = {
    "synchronous": "#1b7837",
    "backup_workers": "#a6761d",
    "timeout": "#d95f02",
    "cutoff": "#e7298a",
    "partial": "#7570b3",
    "rennala": "#2166ac",
    "softsync": "#1b7837",
    "bounded_staleness": "#a6761d",
    "ringmaster": "#2166ac",
    "layerwise": "#d95f02",
    "simulated_staleness": "#7570b3",
    "exponential_penalty": "#1b7837",
    "delay_adaptive": "#2166ac",
    "delay_compensated": "#d95f02",
    "all_reduce": "#1b7837",
    "pull_gossip": "#2166ac",
    "push_gossip": "#67a9cf",
    "elastic_averaging": "#d95f02",
    "asgd": "#7a7a7a",
    "nag_asgd": "#c51b1b",
    "staleness_aware": "#2166ac",
    "staleness_aware_gradient": "#67a9cf",
    "gap_aware": "#d95f02",
    "dana": "#7570b3",
    "dana_staleness_aware": "#2166ac",
    "dana_gap_aware": "#d95f02",
    "adam": "#c51b1b",
    "adam_staleness_aware": "#2166ac",
    "adam_gap_aware": "#d95f02",
}
_MARKERS = dict(zip(METHODS, itertools.cycle("sD^ov<P*X>ohp"), strict=False))
_OTHER = "#17806d"
"""Of methods without a colour of their own."""


def save(figure: Figure, path: pathlib.Path) -> None:
    """Writes a figure as PNG and SVG, each whole or not at all."""
    for kind in ("png", "svg"):
        with mpl.rc_context(STYLE), files.replacing(path.with_suffix(f".{kind}")) as file:
            figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else None)


def accuracy_by_workers(groups: Sequence[Group]) -> Figure:
    """Final test accuracy against the number of workers; bands are one standard deviation over the seeds."""
    ours = [group for group in groups if not group.baseline]
    counts = sorted({group.num_workers for group in ours})
    levels = [100 * group.spread("test_accuracy").mean for group in groups if not group.num_diverged]
    bottom = max(0.0, min(levels) - 2.0) if levels else 0.0
    with mpl.rc_context(STYLE):
        figure = _figure(ours)
        for axes, methods in _panels(figure, ours):
            for place, method in enumerate(methods):
                found = sorted((g for g in ours if g.method == method), key=lambda g: g.num_workers)
                _accuracy_line(axes, found, bottom, shift=1 + 0.04 * place)
            _baseline(axes, groups, methods)
            axes.set_xscale("log", base=2)
            axes.set_xticks(counts, [str(count) for count in counts])
            axes.minorticks_off()
            axes.set_ylim(bottom - 0.5, 100.5 if bottom > 60 else 102)
            axes.set_xlabel("workers")
            axes.set_ylabel("test accuracy, %")
            _legend(axes)
        figure.suptitle("Test accuracy at an equal number of used gradients (x at the foot: diverged)")
    return figure


def loss_by_time(groups: Sequence[Group]) -> Figure:
    """Training loss against virtual time at the largest number of workers."""
    ours = _largest(groups)
    with mpl.rc_context(STYLE):
        figure = _figure(ours)
        for axes, methods in _panels(figure, ours):
            for group in (g for m in methods for g in ours if g.method == m):
                seconds, loss = group.curve("seconds", "train_loss")
                axes.plot(seconds, loss, color=_COLOURS.get(group.method, _OTHER), label=_labelled(group))
            axes.set_yscale("log")
            axes.set_ylim(top=min(axes.get_ylim()[1], 10))  # a diverging run would flatten all others
            axes.set_xlabel("virtual time, s")
            axes.set_ylabel("training loss")
            _legend(axes)
        figure.suptitle(f"Training loss over virtual time, {ours[0].num_workers} workers")
    return figure


def staleness_and_gap(groups: Sequence[Group]) -> Figure:
    """Mean delay and mean gap of the gradients over training, at the largest number of workers."""
    ours = _largest(groups)
    with mpl.rc_context(STYLE):
        figure = _figure(ours)
        for axes, methods in _panels(figure, ours):
            here = [g for m in methods for g in ours if g.method == m]
            asynchronous = [g for g in here if METHODS[g.method].never_waits]
            if asynchronous:
                epochs, staleness = asynchronous[0].curve("epoch", "staleness")
                axes.plot(epochs, np.add(staleness, 1), color="black", linestyle=":", label="delay, asynchronous")
            for group in here:
                axes.plot(
                    *group.curve("epoch", "gap"),
                    color=_COLOURS.get(group.method, _OTHER),
                    label=f"gap, {_labelled(group)}",
                )
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:g}"))
            axes.set_xlabel("epoch of used gradients")
            axes.set_ylabel("delay, gap")
            _legend(axes)
        figure.suptitle(f"How stale the gradients are, in updates and in average steps, {ours[0].num_workers} workers")
    return figure


def _figure(groups: Sequence[Group]) -> Figure:
    panels = len(_families(groups))
    columns = min(panels, 2)
    return mpl.figure.Figure(figsize=(5.2 * columns, 4.1 * -(-panels // columns) + 0.3))


def _families(groups: Sequence[Group]) -> dict[str, list[str]]:
    present = {group.method for group in groups}
    families = {title: [m for m in methods if m in present] for title, methods in FAMILIES.items()}
    families["Others"] = sorted(present - {method for methods in FAMILIES.values() for method in methods})
    # A panel that only repeats what stands in others says nothing.
    shown: set[str] = set()
    told = {}
    for title, methods in families.items():
        if not set(methods) <= shown:
            told[title] = methods
            shown |= set(methods)
    return told


def _panels(figure: Figure, groups: Sequence[Group]) -> Iterator[tuple[Axes, list[str]]]:
    families = _families(groups)
    columns = min(len(families), 2)
    for place, (title, methods) in enumerate(families.items(), start=1):
        axes = figure.add_subplot(-(-len(families) // columns), columns, place)
        axes.set_title(title)
        yield axes, methods


def _legend(axes: Axes) -> None:
    """Below the panel, where it hides nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), ncols=2, borderaxespad=0)


def _accuracy_line(axes: Axes, found: list[Group], bottom: float, *, shift: float) -> None:
    """One method; its crosses are shifted sideways, so that several methods' stand side by side."""
    colour = _COLOURS.get(found[0].method, _OTHER)
    good = [group for group in found if not group.num_diverged]
    workers = [group.num_workers for group in good]
    spreads = [group.spread("test_accuracy") for group in good]
    mean, std = (100 * np.array([getattr(s, name) for s in spreads]) for name in ("mean", "std"))
    axes.plot(workers, mean, color=colour, marker=_MARKERS[found[0].method], markersize=5, label=found[0].title)
    if good:
        axes.fill_between(workers, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)
    lost = [shift * group.num_workers for group in found if group.num_diverged]
    if lost:
        axes.plot(lost, [bottom] * len(lost), color=colour, marker="x", linestyle="none", markersize=8)


def _baseline(axes: Axes, groups: Sequence[Group], methods: Sequence[str]) -> None:
    adam = METHODS[methods[0]].is_adam
    for group in groups:
        if group.baseline and METHODS[group.method].is_adam == adam and not group.num_diverged:
            level = 100 * group.spread("test_accuracy").mean
            axes.axhline(level, color="black", linestyle="--", linewidth=1, label=group.title)


def _largest(groups: Sequence[Group]) -> list[Group]:
    ours = [group for group in groups if not group.baseline]
    most = max(group.num_workers for group in ours)
    return [group for group in ours if group.num_workers == most]


def _labelled(group: Group) -> str:
    return f"{group.title} (diverged)" if group.num_diverged else group.title


def training(records: Sequence[dict]) -> Figure:
    """Loss and accuracy of one run over virtual time.

    Args:
      records: of its metrics file.
    """
    looks = records[1:-1]
    seconds = [look["seconds"] for look in looks]
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(10.4, 3.6))
        losses, accuracies = figure.subplots(1, 2)
        for axes, unit, scale, curves in (
            (losses, "loss", 1, {"train_loss": "training, between looks", "test_loss": "test"}),
            (accuracies, "accuracy, %", 100, {"test_accuracy": "test", "average_accuracy": "test, Polyak average"}),
        ):
            for name, label in curves.items():
                values = [np.nan if look[name] is None else scale * look[name] for look in looks]
                axes.plot(seconds, values, label=label)
            axes.set_xlabel("virtual time, s")
            axes.set_ylabel(unit)
            axes.legend()
        losses.set_yscale("log")
        figure.suptitle(f"{records[0]['title']}, {records[0]['num_workers']} workers")
    return figure
