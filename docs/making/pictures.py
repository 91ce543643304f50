"""The pictures of the site: a time-line of five workers for each protocol."""

import io
import re

import matplotlib as mpl
from matplotlib.figure import Figure

from docs.making import simulated
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.results import plots
from sgdlab.results.timeline import timeline
from sgdlab.runs.methods import Method

SECONDS = 60.0
"""Seconds that are drawn: about seven gradients of an average worker."""
PLACE = (0.065, 0.34, 0.92, 0.54)
"""Of the axes in the figure: left, bottom, width and height."""


def name(method: Method) -> str:
    """Return the file of a method's picture, which those that wait for the same workers share."""
    entries = [*sorted(method.entries.items()), *sorted(method.local.items())]
    meant = "".join(f"-{entry}-{value}" for entry, value in entries)
    return f"pictures/{method.protocol}{re.sub(r'[^A-Za-z0-9_.-]', '_', meant)}.svg"


def drawn(method: Method) -> str:
    """Return the time-line of a method's protocol as SVG, the same bytes each time."""
    title = PROTOCOLS[method.protocol].title + "".join(f", {value}" for value in method.entries.values())
    if "steps" in method.local:
        title += f", {local_steps(method)}"
    made = simulated.schedule_of_five(method.name)
    figure = timeline({title: made}, seconds=seconds(method), messages=[title] if "steps" in method.local else ())
    # All have one shape: to lay each out by its texts would take as long as to draw it.
    figure.set_layout_engine("none")
    figure.axes[0].set_position(PLACE)
    return svg(figure)


def local_steps(method: Method) -> str:
    """Return how many local steps a message has.

    Example:
      >>> from sgdlab.runs.methods import methods
      >>> local_steps(methods()["local_sgd"]), local_steps(methods()["async_diloco"])
      ('8 local steps', 'up to 8 local steps (fewer on slower workers)')
    """
    most = f"{method.local['steps']} local steps"
    return f"up to {most} (fewer on slower workers)" if method.local.get("by_speed") else most


def seconds(method: Method) -> float:
    """Return what is drawn, from the start of a run."""
    return SECONDS * method.local.get("steps", 1)


def svg(figure: Figure) -> str:
    """Return a figure as SVG, its words as text."""
    with mpl.rc_context(plots.STYLE | {"svg.fonttype": "none"}), io.StringIO() as file:
        figure.savefig(file, format="svg", metadata={"Date": None}, transparent=False)
        return file.getvalue()
