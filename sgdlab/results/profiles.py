r"""Performance profiles: on what share of the workloads each method is within a factor of the best.

.. math:: \rho_m(\tau) = \frac{1}{W} \bigl|\{w : r_{m,w} \le \tau\}\bigr|, \qquad
    r_{m,w} = \frac{t_{m,w}}{\min_{m'} t_{m',w}}

At 1 it is how often a method is the best, far to the right how often it gets there at all.

Source: Dolan and More 2002.
"""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sgdlab.results.panels import Style
from sgdlab.results.plots import STYLE

NAMED = 8
"""So many lines of a picture have a colour and a name; the others are grey."""

_LARGEST = 32.0
"""Ratio at which pictures end, unless methods reach further and none so far."""


def ratios(times: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the ratio of each method's time to the best method's, of each workload.

    Args:
      times: method -> float64[W], positive; infinite where it misses the target.

    Returns:
      Method -> float64[W]; infinite also where no method reaches the target.

    Raises:
      ValueError: where times are not positive, or of different numbers of workloads.

    Example:
      >>> ratios({"a": np.array([2.0, 9.0]), "b": np.array([4.0, np.inf])})["b"].tolist()
      [2.0, inf]
    """
    values = _checked("times", times, least=0.0)
    best = values.min(axis=0)
    reached = np.isfinite(best)
    found = np.full(values.shape, np.inf)
    found[:, reached] = values[:, reached] / best[reached]
    return dict(zip(times, found, strict=True))


def shares(ratios: Mapping[str, np.ndarray], factors: Sequence[float]) -> dict[str, np.ndarray]:
    """Return the profiles at given factors.

    Args:
      ratios: method -> float64[W], at least 1 and infinite for a miss, as the function of that name returns them.
      factors: float64[K], finite.

    Returns:
      Method -> float64[K], share of the workloads.

    Raises:
      ValueError: where ratios are below 1, or of different numbers of workloads.

    Example:
      >>> shares({"a": np.array([1.0, 1.0, 3.0, np.inf])}, [1.0, 2.0, 3.0])["a"].tolist()
      [0.5, 0.5, 0.75]
    """
    values = _checked("ratios", ratios, least=1.0)
    within = values[:, :, None] <= np.asarray(factors, float) * (1 + 1e-12)  # but for rounding
    return dict(zip(ratios, within.mean(axis=1), strict=True))


def figure(ratios: Mapping[str, np.ndarray], titles: Mapping[str, str], looks: Mapping[str, Style]) -> Figure:
    """Draw the profiles; the `NAMED` methods with the largest area below theirs have colours and names."""
    # By the area below the profile, to a logarithmic scale: by the mean log ratio.
    order = sorted(ratios, key=lambda name: np.log(np.minimum(np.asarray(ratios[name], float), _LARGEST)).mean())
    reached = [float(value) for values in ratios.values() for value in values if np.isfinite(value)]
    end = min(max(1.5, 1.1 * max(reached, default=1.0)), _LARGEST)
    factors = np.geomspace(1.0, end, 400)
    found = shares(ratios, factors.tolist())
    with mpl.rc_context(STYLE):
        drawn = mpl.figure.Figure(figsize=(8.4, 4.4))
        axes = drawn.subplots()
        for name in reversed(order[NAMED:]):
            axes.step(factors, 100 * found[name], where="post", color="#c8c8c8", linewidth=0.8, zorder=1)
        for place, name in enumerate(order[:NAMED]):
            look = looks[name]
            every = (20 * place, 160)  # so that marks of equal profiles do not lie on one another
            axes.step(factors, 100 * found[name], where="post", color=look.colour, marker=look.marker, markevery=every,
                      label=titles[name], zorder=3)  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_xlim(1.0, end)
        axes.set_ylim(0, 102)
        axes.xaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
        axes.set_xlabel("factor of the best method's time to the target")
        axes.set_ylabel("% of workloads within it")
        number = len(next(iter(ratios.values())))
        grey = f"; grey: {len(order) - NAMED} others" if len(order) > NAMED else ""
        axes.set_title(f"Performance profiles over {number} workloads{grey}")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawn


def _checked(name: str, values: Mapping[str, np.ndarray], *, least: float) -> np.ndarray:
    """Return values as float64[methods, W]."""
    shapes = sorted({np.shape(array) for array in values.values()})
    if len(shapes) != 1 or len(shapes[0]) != 1 or 0 in shapes[0]:
        raise ValueError(f"{name} of shapes {shapes} must be one array of all workloads for each method")
    found = np.array([np.asarray(array, float) for array in values.values()])
    if np.isnan(found).any() or (found < least * (1 - 1e-12)).any() or (found <= 0).any():
        limit = f"at least {least:g}" if least else "positive"
        raise ValueError(f"{name}: {found.min():g} must be {limit}; a miss is infinite")
    return found
