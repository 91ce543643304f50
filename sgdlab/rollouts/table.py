"""The answer of `sgdlab rollouts`: a table, a picture, a page and JSON."""

import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sgdlab import files
from sgdlab.report import pages
from sgdlab.report.finite import finite
from sgdlab.report.table import Column, Number, Table, in_csv, numbers
from sgdlab.report.words import number
from sgdlab.results import plots, simultaneous
from sgdlab.results.panels import PALETTE
from sgdlab.rollouts.compare import Tried
from sgdlab.rollouts.predict import ClosedForms
from sgdlab.theory.participation import UNDER_USED

_FIGURES = {
    "s a step": ("seconds_per_step", "seconds from one version at the engines to the next"),
    "stale": ("staleness", "mean staleness by trained rollout: steps between the version it began on and its own step"),
    "most": ("largest_staleness", "the same of the stalest rollout"),
    "by token": ("token_staleness", "mean over trained tokens, by the version on which their rollouts began"),
    "in flight": ("token_staleness_in_flight", "mean over trained tokens, by the version that made each of them"),
    "slots": ("slots_busy", "share of the time in which slots of engines decode"),
    "train": ("trainer_busy", "share of the time in which the trainer trains"),
    "wasted": ("wasted", "share of all tokens that were made and are not trained on"),
    "too old": ("stale", "of these, thrown away as too stale"),
    "over": ("overflow", "of these, by a full queue"),
    "aborted": ("aborted", "of these, of groups that were aborted while they were decoded"),
    "withheld": ("withheld", "of these, of rollouts whose rewards alone count"),
    "tokens/s": ("goodput", "trained tokens a second"),
    "length": ("trained_over_offered", "mean tokens of a trained rollout over those of one that was asked for"),
    "longest": ("longest_tenth", "share that the tenth of the prompts with the longest rollouts has of the trained "
                "ones, over an equal share: below 1 it is starved"),
}  # fmt: skip
_CLOSED = "closed form of the mean staleness by rollout (<=: at most, over a whole run); grows: for ever; -: unknown"
ON_PAGE, BUSY = ("too old", "over", "aborted", "withheld"), ("slots", "train")
"""List columns that a page alone has room for, always or where others have intervals."""

_SHARES = (*BUSY, "wasted", *ON_PAGE)
_WITH_INTERVALS = ("s a step", "tokens/s", "longest")


def columns() -> list[Column]:
    """Return the columns of the table."""

    def column(heading: str) -> Column:
        name, meaning = _FIGURES[heading]

        def cell(one: Tried) -> Number:
            value, _, high = one.interval(name)
            shown = f"{100 * value:.0f} %" if heading in _SHARES else number(value)
            if one.spread and heading in _WITH_INTERVALS:
                shown = f"{shown} ± {number(float(f'{high - value:.2g}'))}"
            return Number(shown, value)

        return Column(heading, cell, meaning, name)

    first, second, *others = map(column, _FIGURES)
    policy = Column("policy", lambda one: one.candidate.title)
    return [policy, first, second, Column("theory", _closed, _CLOSED), *others]


def _closed(one: Tried) -> str:
    relation, staleness = one.closed
    if not relation:
        return "grows" if math.isinf(staleness) else "-"
    return "<= " * (relation == "<=") + number(staleness)


def table(found: Sequence[Tried], notes: Sequence[str]) -> Table:
    """Return the table of policies."""
    return Table.of(columns(), found, [*notes, *_rates(found)], obvious=["policy"])


def _rates(found: Sequence[Tried]) -> list[str]:
    """Return what staleness allows the learning rates of two policies to be, where some are stale."""
    stale = [one for one in found if one.figures["largest_staleness"]]
    if not stale:
        return []
    ends = dict.fromkeys(of(stale, key=lambda one: one.figures["largest_staleness"]) for of in (min, max))
    rates = [f"c / {number(one.figures['largest_staleness'])} under `{one.candidate.title}`" for one in ends]
    return [
        "Stale rollouts do no harm at learning rates far below c / most, where c depends on the task and is not known "
        f"(arXiv 2607.01083): {', '.join(rates)}."
    ]


class Cell(NamedTuple):
    """Holds what is learned under a policy with a rule for stale tokens, from S seeds."""

    policy: str
    rule: str  # name of the ratio rule
    rate: float  # learning rate that was chosen
    rewards: np.ndarray  # float64[S, K], expected reward of each class in the end, the longest prompts last
    seconds: np.ndarray  # float64[S], until the mean reward reached the target; infinite: never


def of_learning(cells: Sequence[Cell], target: float) -> Table:
    """Return the table of what is learned."""
    from sgdlab.results.standing import interval  # noqa: PLC0415 (SciPy's statistics take a while to import)

    standing = simultaneous.compare(np.array([cell.rewards.mean(axis=1) for cell in cells]), higher_is_better=True)
    behind = zip(standing.first, -standing.difference, standing.half, strict=True)
    shown = ["first" if first else f"{less:.3f} ± {half:.3f}" for first, less, half in behind]

    def seconds(cell: Cell) -> str:
        found = (np.median(cell.seconds), *interval(cell.seconds.tolist()))
        middle, low, high = (number(second) if math.isfinite(second) else "never" for second in found)
        return middle if low == high else f"{middle} ({low}-{high})"

    columns = [
        Column("policy", lambda row: row[0].policy),
        Column("rule", lambda row: row[0].rule, "what is done with stale tokens"),
        Column("rate", lambda row: number(row[0].rate), "learning rate of SGD, the best for the cell on other seeds"),
        Column("reward", lambda row: f"{row[0].rewards.mean():.3f}", "expected reward in the end, mean of all classes"),
        Column("behind", lambda row: row[1], "the best by so much; first: paired seeds do not tell it apart from that"),
        Column("longest", lambda row: f"{row[0].rewards[:, -1].mean():.3f}", "of the class with the longest prompts"),
        Column("seconds", lambda row: seconds(row[0]), f"median until the reward is {target:g}, with a 95 % interval"),
    ]
    seeds, classes = cells[0].rewards.shape
    note = (
        f"Trained: a linear softmax policy with one right answer for each of {classes} classes of prompts by length; "
        f"{seeds} seeds, each with a workload of its own."
    )
    return Table.of(columns, list(zip(cells, shown, strict=True)), [note], obvious=["policy"], left=2)


def as_json(found: Sequence[Tried], prediction: ClosedForms, **more: Any) -> str:
    """Return all of it for programs."""
    whole = {"closed_forms": prediction.figures(), "policies": [one.as_dict() for one in found], **more}
    return json.dumps(finite(whole), indent=1) + "\n"


def headline(found: Sequence[Tried], best: Tried | None, most: float, gpus: int | None, was: Mapping | None) -> str:
    """Return a sentence on the policy that starves most, and one on what is recommended instead.

    Args:
      found: policies on the machines as they are.
      best: what is recommended.
      most: bound of its mean staleness.
      gpus: of engines and trainer, where other splits of them were tried.
      was: figures of the job's log, with which that is compared; None: with the policy that starves most.
    """
    poor = min(found, key=lambda one: one.figures["longest_tenth"])
    worst, said, starved = poor.figures, "", poor.figures["longest_tenth"] < UNDER_USED
    if starved:
        said = (
            f"Under `{poor.candidate.title}` {100 * worst['wasted']:.0f} % of the tokens are wasted, and the longest "
            f"tenth of the prompts has {worst['longest_tenth']:.2g} of its share. "
        )
    if best is None:
        return f"{said}No policy here has a mean staleness of at most {most:g} and starves nobody."
    figures = best.figures
    split = (
        "" if gpus is None else f" with {best.system.engines} engines and {gpus - best.system.engines} GPUs to train"
    )
    beside = starved and was is None
    times = f", {figures['goodput'] / worst['goodput']:.1f} times as many," if beside else ""
    if was is not None:
        had, (value, low, _) = was["goodput"], best.interval("goodput")
        same = ": the job is as fast already" * (abs(value - had) <= max(value - low, 0.05 * had))  # logs are not exact
        times = f" (the log has {number(had)}, at mean staleness {number(was['staleness'])}{same})"
    instead = [f" instead of {number(worst[name])}" * beside for name in ("staleness", "largest_staleness")]
    return (
        f"{said}Recommended: `{best.candidate.title}`{split}: it trains on {number(figures['goodput'])} tokens a second"
        f"{times} and starves nobody, at mean staleness {number(figures['staleness'])} by rollout{instead[0]} (largest "
        f"{figures['largest_staleness']:.0f}{instead[1]})."
    )


def picture(found: Sequence[Tried]) -> Figure:
    """Return trained tokens a second against mean staleness, and shares of the prompts by length."""
    with mpl.rc_context(plots.STYLE):
        figure = mpl.figure.Figure(figsize=(11, 4.4 + 0.12 * len(found)))
        speed, shares = figure.subplots(1, 2)
        for index, one in enumerate(found):
            look = {"color": PALETTE[index % len(PALETTE)], "marker": "osD^vP*<>Xphd"[index % 13]}
            place = one.figures["staleness"], one.figures["goodput"]
            speed.plot(*place, linestyle="none", label=one.candidate.title, **look)
            shares.plot(range(1, 11), one.tenths, linestyle=("-", "--", ":")[index // len(PALETTE) % 3], **look)
        speed.set(xlabel="mean staleness by rollout, versions", ylabel="trained tokens a second")
        shares.axhline(1, color="black", linewidth=1)
        shares.set(xlabel="tenth of the prompts, longest last", xticks=range(1, 11))
        shares.set_ylabel("share of the trained rollouts, over an equal one")
        for axes in (speed, shares):
            axes.set_ylim(bottom=0)
        figure.legend(*speed.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def write(
    workdir: pathlib.Path, found: Sequence[Tried], shown: Mapping[str, Table], as_json: str, *, said: Sequence[str]
) -> None:
    """Writes rollouts.json, .csv, .md, .png, .svg and .html, a self-contained page of tables by heading."""
    plots.save(picture(found), workdir / "rollouts")
    values = {"said": said, "shown": shown, "picture": pages.embedded(workdir / "rollouts.svg")}
    rows = [{"policy": one.candidate.title, "engines": one.system.engines, **numbers(columns(), one)} for one in found]
    contents = {"json": as_json, "csv": in_csv(rows), "md": "\n".join(one.markdown() for one in shown.values())}
    for ending, content in (contents | {"html": pages.render("sgdlab.rollouts", "page.html", **values)}).items():
        files.write_text(workdir / f"rollouts.{ending}", content)
