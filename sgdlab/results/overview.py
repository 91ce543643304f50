"""The picture that a report opens with: the metric against speed-up, a point for each method and number of workers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sgdlab.results import labels, metric_axis
from sgdlab.results.panels import Style, styles
from sgdlab.results.plots import STYLE
from sgdlab.results.summary import Group, compared, largest, metric_of, single_workers

_AREA = (26.0, 95.0)
"""Of the markers at the fewest and at the most workers, points squared."""

_LEAST_RANGE = 1.5
"""Between the ends of the axis of speed-ups, as a ratio."""

_PALE = 0.4
"""Opacity of fewer workers than the most, which alone have labels."""


@dataclasses.dataclass(frozen=True)
class PictureSizes:
    """Sizes of one form of the picture.

    Attributes:
      width: of the figure, inches.
      height: of the panel with the points, inches, unless more labels need more.
      font: size of the text, points.
      legend_columns: entries of the legend side by side.
      ticks: most labels on the axis of speed-ups.
      longest_label: letters of a method's title; longer ones are cut.
    """

    width: float
    height: float
    font: float
    legend_columns: int
    ticks: int
    longest_label: int

    @property
    def line(self) -> float:
        """Height of a line of text, inches."""
        return 1.45 * self.font / 72


WIDE = PictureSizes(width=8.4, height=4.2, font=9.0, legend_columns=4, ticks=8, longest_label=34)
NARROW = PictureSizes(width=3.85, height=3.1, font=7.6, legend_columns=2, ticks=5, longest_label=22)


def overview(groups: Sequence[Group], layout: PictureSizes = WIDE) -> Figure:
    """Draws the final metric on the test set against speed-up, one point for each method and number of workers.

    Points at the largest number of workers have the method's name beside them, or at the right edge with a thin line to
    the point. Fewer workers are smaller and paler. Methods with a run that diverged stand below, each in a row of its
    own, with a cross at the speed-up of each number of workers at which that happened. Dashed lines are the single
    workers. Better is always higher up (`metric_axis`); speed-ups are to a logarithmic scale.

    Raises:
      ValueError: where all groups are single workers.
    """
    ours, most = _drawable(compared(groups)), largest(groups)[0].num_workers
    sound = [group for group in ours if not group.num_diverged]
    named = [group for group in sound if group.num_workers == most]
    lost, legend, longest = _lost(ours), _legend(groups), layout.longest_label
    with mpl.rc_context(STYLE | {"font.size": layout.font}):
        heights = _Heights(
            points=max(layout.height, (len(named) + 2) * layout.line),
            crosses=max(len(lost) + 0.6, 3.6) * layout.line if lost else 0.0,
            axis=3.3 * layout.line,
            legend=-(-len(legend) // layout.legend_columns) * layout.line,
        )
        figure = mpl.figure.Figure(figsize=(layout.width, sum(heights) + 1.6 * layout.line))
        # Positions are set below, in inches; no layout engine is to move them when the figure is saved.
        figure.set_layout_engine(mpl.layout_engine.PlaceHolderLayoutEngine(True, colorbar_gridspec=True))
        FigureCanvasAgg(figure)  # which measures texts
        texts = [_lost_label(found, most, longest) for found in lost.values()] + [g.label(longest) for g in named]
        margin = max((_text_size(figure, text)[0] for text in texts), default=0.0) / figure.dpi + 0.32
        axes, foot = _panels(figure, heights, left=2.9 * layout.line, right=layout.width - margin)
        _scales(axes, foot, groups, layout)
        marks, sizes = styles(groups), _sizes(groups)
        _points(axes, sound, marks, sizes)
        points = _markers(axes, sound, sizes)
        lines = _single_worker_lines(axes, groups, points)
        _name_points(axes, named, [group.label(longest) for group in named], marks, [*points, *lines])
        if lost:
            _crosses(foot, lost, marks, sizes)
            _name_crosses(foot, [_lost_label(found, most, longest) for found in lost.values()], lost, marks)
        foot.set_xlabel("used gradients per second, x synchronous SGD", loc="left")
        across = axes.get_position().width * layout.width
        name = f"final {metric_of(groups).test_label}"
        axes.set_title(name, loc="left", fontsize=layout.font, x=-2.4 * layout.line / across)
        figure.legend(
            handles=legend, loc="lower left", bbox_to_anchor=(0.01, 0.0), ncols=layout.legend_columns,
            fontsize=layout.font, handletextpad=0.3, columnspacing=1.2, labelspacing=0.25, borderaxespad=0.1,
        )  # fmt: skip
    return figure


class _Heights(NamedTuple):
    """From top to bottom, in inches; `crosses` is 0 where no run diverged."""

    points: float
    crosses: float
    axis: float
    legend: float


def _drawable(groups: Sequence[Group]) -> list[Group]:
    """Those that can be drawn: a speed-up and, unless they diverged, a value of the metric."""
    return [g for g in groups if g.spread("speedup") and (g.num_diverged or g.test)]


def _lost(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Method -> its groups in which some seed diverged; the fastest method last, which is at the top."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        if group.num_diverged:
            found.setdefault(group.method, []).append(group)
    return dict(sorted(found.items(), key=lambda item: (item[1][-1].speedup, -item[1][-1].rank)))


def _lost_label(found: Sequence[Group], most: int, longest: int) -> str:
    """Title of a method and, unless all seeds at the most workers diverged, at which workers or how many of them."""
    group, label = found[-1], found[-1].label(longest)
    if group.num_workers < most:
        return f"{label} (at {group.num_workers})"
    several = f" ({group.num_diverged} of {len(group.runs)})" if group.num_diverged < len(group.runs) else ""
    return f"{label}{several}"


def _legend(groups: Sequence[Group]) -> list[Line2D]:
    """The numbers of workers, by the size of the points."""
    sizes = _sizes(groups)
    most = max(sizes)
    return [
        Line2D([], [], linestyle="none", color="#555555", marker="o", markersize=area**0.5, label=f"{count} workers",
               alpha=1.0 if count == most else _PALE, markeredgewidth=0)
        for count, area in sizes.items()
    ]  # fmt: skip


def _sizes(groups: Sequence[Group]) -> dict[int, float]:
    counts = sorted({group.num_workers for group in compared(groups)})
    return dict(zip(counts, np.linspace(*_AREA, len(counts) + 1)[1:].tolist(), strict=True))


def _text_size(figure: Figure, text: str) -> tuple[float, float]:
    drawn = figure.text(0, 0, text)
    box = drawn.get_window_extent(figure.canvas.get_renderer())
    drawn.remove()
    return box.width, box.height


def _panels(figure: Figure, heights: _Heights, *, left: float, right: float) -> tuple[Axes, Axes]:
    """The panel of points and that of crosses below it, between two inches; one and the same without crosses."""
    width, height = figure.get_size_inches().tolist()
    across = (left / width, (right - left) / width)
    bottom = heights.axis + heights.legend

    def panel(bottom: float, tall: float, above: Axes | None = None) -> Axes:
        return figure.add_axes((across[0], bottom / height, across[1], tall / height), sharex=above)

    axes = panel(bottom + heights.crosses, heights.points)
    return axes, panel(bottom, heights.crosses, axes) if heights.crosses else axes


def _scales(axes: Axes, foot: Axes, groups: Sequence[Group], layout: PictureSizes) -> None:
    levels, metric = [group.level for group in _drawable(groups) if not group.num_diverged], metric_of(groups)
    foot_level, top_level = metric_axis.limits(metric, levels)
    most_ticks = round(axes.get_window_extent().height / 20)
    metric_axis.set_scale(axes, metric, foot_level, top_level, most_ticks=most_ticks)
    ours = compared(groups)
    speeds = [group.speedup for group in _drawable(ours)]
    if len({group.num_workers for group in ours}) > 1:
        # Speed-ups grow with the number of workers from that of synchronous SGD, 1, which is then always on the axis.
        speeds.append(1.0)
    ends = np.log2([min(speeds, default=1.0), max(speeds, default=1.0)])
    narrow = max(np.log2(_LEAST_RANGE) - (ends[1] - ends[0]), 0.0)
    pad = 0.06 * (ends[1] - ends[0]) + 0.5 * narrow
    axes.set_xscale("log", base=2)
    axes.set_xlim(2 ** (ends[0] - pad), 2 ** (ends[1] + pad))
    foot.xaxis.set_major_locator(mpl.ticker.FixedLocator(_speed_ticks(*axes.get_xlim(), layout.ticks)))
    foot.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    foot.xaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:g}"))
    if foot is not axes:
        axes.tick_params(axis="x", labelbottom=False, length=0)


def _speed_ticks(low: float, high: float, most: int) -> list[float]:
    for ticks in (
        np.arange(0.9, 2.0, 0.1).round(1).tolist(),
        [0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5],
        [0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16],
    ):
        inside = [tick for tick in ticks if low <= tick <= high]
        if 2 <= len(inside) <= most and ticks[0] / 1.3 <= low and high <= ticks[-1] * 1.3:
            return inside
    powers = [float(power) for power in 2.0 ** np.arange(-10, 24) if low <= power <= high]
    if len(powers) > 1:
        return powers[:: -(-len(powers) // most)]
    return [tick for tick in mpl.ticker.MaxNLocator(most - 1).tick_values(low, high).tolist() if low <= tick <= high]


def _points(axes: Axes, sound: Sequence[Group], marks: Mapping[str, Style], sizes: Mapping[int, float]) -> None:
    for method in dict.fromkeys(group.method for group in sound):
        found, style = [group for group in sound if group.method == method], marks[method]
        x, y = [group.speedup for group in found], [group.level for group in found]
        axes.plot(x, y, color=style.colour, linewidth=0.8, alpha=0.3, zorder=1)
        for group in found:
            _point(axes, group, group.level, style.colour, sizes, marker=style.marker, linewidths=0, zorder=3)


def _point(
    axes: Axes, group: Group, height: float, colour: str, sizes: Mapping[int, float], *, share: float = 1.0, **look: Any
) -> None:
    """Draws a group at its speed-up: more workers are larger (a share of their area), fewer than the most paler."""
    alpha = 1.0 if group.num_workers == max(sizes) else _PALE
    label, area = f"{group.title}, {group.num_workers}", share * sizes[group.num_workers]
    axes.scatter(group.speedup, height, s=area, color=colour, alpha=alpha, label=label, **look)


def _markers(axes: Axes, sound: Sequence[Group], sizes: Mapping[int, float]) -> list[labels.Box]:
    """The rectangles of all points, in pixels."""
    found = []
    for group in sound:
        x, y = axes.transData.transform((group.speedup, group.level)).tolist()
        radius = _radius(axes, sizes[group.num_workers])
        found.append(labels.Box(x - radius, y - radius, x + radius, y + radius))
    return found


def _radius(axes: Axes, area: float) -> float:
    """Half the width in pixels of a marker of an area in points squared."""
    return 0.5 * area**0.5 * axes.figure.dpi / 72


def _single_worker_lines(axes: Axes, groups: Sequence[Group], taken: Sequence[labels.Box]) -> list[labels.Box]:
    """Draws a line for each single worker.

    Returns:
      The rectangles of the lines and of the label that they have in common.
    """
    alone = [group for group in single_workers(groups).values() if group.test]
    levels = [group.level for group in alone]
    if not levels:
        return []
    frame, scale = axes.get_window_extent(), axes.figure.dpi / 72
    heights = [float(axes.transData.transform((1.0, level))[1]) for level in levels]
    lines = [labels.Box(frame.x0, y - scale, frame.x1, y + scale) for y in heights]
    for level in levels:
        axes.axhline(level, color="black", linestyle="--", linewidth=1, zorder=2)
    text = f"single worker, {alone[0].metric.text(alone[0].test.mean)}" if len(alone) == 1 else "single workers"
    width, height = _text_size(axes.figure, text)
    # Above or below the lines, wherever it covers no point; if nowhere, above them at the left end.
    starts = np.linspace(frame.x0 + 3 * scale, frame.x1 - width - 3 * scale, 9).tolist()
    bottoms = (max(heights) + 2 * scale, min(heights) - height - 2 * scale)
    boxes = [labels.Box(x, y, x + width, y + height) for y in bottoms for x in starts]
    inside = [box for box in boxes if box.within(labels.Box(*frame.extents))] or boxes
    box = next((box for box in inside if not any(box.meets(other) for other in taken)), inside[0])
    x, y = axes.figure.transFigure.inverted().transform((box.left, box.bottom))
    axes.figure.text(x, y, text, va="bottom", ha="left")
    return [*lines, box]


def _name_points(
    axes: Axes,
    named: Sequence[Group],
    texts: Sequence[str],
    marks: Mapping[str, Style],
    taken: Sequence[labels.Box],
) -> None:
    """Writes each method beside its point, or in a column at the right edge with a line to the point."""
    if not texts:
        return
    figure, frame = axes.figure, axes.get_window_extent()
    sizes = [_text_size(figure, text) for text in texts]
    at = axes.transData.transform([(group.speedup, group.level) for group in named])
    scale = figure.dpi / 72
    radius = _radius(axes, _AREA[1])
    # Where many never wait, their points are at the right edge, one above the other.
    edge = at[:, 0] > frame.x1 - 0.12 * frame.width
    order = [index for index in np.argsort(-at[:, 1]).tolist() if not edge[index]]
    boxes = labels.beside(
        at[order], [sizes[index] for index in order], area=labels.Box(*frame.extents),
        taken=taken, away=radius + 1.5 * scale,
    )  # fmt: skip
    column = np.flatnonzero(edge).tolist()
    for index, box in zip(order, boxes, strict=True):
        if box is None:
            column.append(index)
        else:
            _write(axes, texts[index], marks[named[index].method], (box.left, box.bottom))
    spacing = 1.12 * max(height for _, height in sizes)
    heights = labels.apart([at[index, 1] for index in column], spacing, frame.y0 + spacing / 2, frame.y1)
    for index, height in zip(column, heights.tolist(), strict=True):
        start = frame.x1 + 0.24 * figure.dpi
        _write(axes, texts[index], marks[named[index].method], (start + 2 * scale, height - sizes[index][1] / 2))
        ends = np.array([at[index] + [radius, 0], [frame.x1 + 2 * scale, at[index, 1]], [start, height]])
        x, y = figure.transFigure.inverted().transform(ends).T
        figure.add_artist(Line2D(x, y, color=marks[named[index].method].colour, linewidth=0.6, alpha=0.8))


def _write(axes: Axes, text: str, style: Style, corner: tuple[float, float]) -> None:
    """Writes a text whose lower left corner is given in pixels."""
    x, y = axes.figure.transFigure.inverted().transform(corner)
    axes.figure.text(x, y, text, color=_ink(style.colour), va="bottom", ha="left")


def _ink(colour: str) -> tuple[float, float, float]:
    """A colour, darkened so far that thin letters of it can be read on white: to a luminance of at most 0.18."""
    rgb = np.array(mpl.colors.to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ [0.2126, 0.7152, 0.0722])
    linear = linear * min(1.0, 0.18 / luminance) if luminance else linear
    return tuple(np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055).tolist())


def _crosses(
    foot: Axes, lost: Mapping[str, Sequence[Group]], marks: Mapping[str, Style], sizes: Mapping[int, float]
) -> None:
    """A row for each method of which a run diverged."""
    for row, (method, found) in enumerate(lost.items()):
        for group in found:
            _point(foot, group, row, marks[method].colour, sizes, share=0.6, marker="x", linewidths=1.6)
    margin = max(0.8, (4.4 - len(lost)) / 2)
    foot.set_ylim(-margin, len(lost) - 1 + margin)
    foot.set_yticks([(len(lost) - 1) / 2], ["diverged"], rotation=90, va="center")
    foot.tick_params(axis="y", length=0)
    foot.set_facecolor("#f6f6f6")
    foot.grid(False, axis="y")


def _name_crosses(
    foot: Axes, texts: Sequence[str], lost: Mapping[str, Sequence[Group]], marks: Mapping[str, Style]
) -> None:
    """Writes each method at the right end of its row."""
    aside = foot.transAxes + mpl.transforms.ScaledTranslation(0.26, 0, foot.figure.dpi_scale_trans)
    right_end = mpl.transforms.blended_transform_factory(aside, foot.transData)
    for row, (text, method) in enumerate(zip(texts, lost, strict=True)):
        foot.text(1, row, text, color=_ink(marks[method].colour), va="center", ha="left", transform=right_end)
