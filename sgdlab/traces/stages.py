"""Stages of a step that contain the wait for other workers: their wait is told from the work beside it."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from sgdlab.traces.phases import WAIT, is_communication, words
from sgdlab.traces.recording import Recording

_EXPLAINED, _FEWEST = 0.8, 20
"""Least share of the differences between workers that a stage makes up for if the wait is in it, and fewest steps."""

_USUAL = (
    {"data", "load", "loader", "loading", "dataloader", "input", "inputs", "fetch", "batch"},
    {"forward", "fwd"},
    {"loss"},
    {"backward", "bwd"},
    {"update", "optimizer", "optimiser", "optim", "opt", "step"},
)
"""Words of the names of stages, in the order in which they come in a step."""


def without_waits(recording: Recording, order: Sequence[str]) -> Recording:
    r"""Return a recording in which the waits inside of stages are communication, and what is beside them is own work.

    Who comes last waits for nobody. Of the seconds :math:`d_{t n}` of a stage that contains the wait, the least of step
    t is work that all do alike (the transfer with it), and the rest is waiting:

    .. math:: d_{t n} = \min_m d_{t m} + w_{t n}

    The wait is in a stage whose name ends in " + wait"; or, of a trace without communication, in one that makes up for
    the differences of all others.

    Args:
      recording: as it was read.
      order: names of the stages in the order in which they come in a step.
    """
    stages = list(dict.fromkeys(name.removesuffix(WAIT) for name in order))
    place = lambda name: [*stages, name].index(name)
    named = [name for name in recording.communication if name.endswith(WAIT)]
    phases = {name: recording.phases[name] for name in sorted(recording.phases, key=place)}
    others, notes = dict(recording.communication), recording.notes
    if not others and (found := find_wait(phases, recording.steps)):
        named, others[found + WAIT] = [found + WAIT], phases.pop(found)
        notes += (
            f"{found!r} contains the wait for the others: it is shorter, the longer a worker's other stages take",
        )
    if not named:
        return dataclasses.replace(recording, phases=phases)
    own = np.sum([*phases.values()], axis=0) if phases else recording.runtimes
    phases = phases or {"compute": own}
    for name in named:
        least = np.fmin.reduce(others[name], axis=1)[:, None]
        stage, others[name] = name.removesuffix(WAIT), others[name] - least
        least = np.where(np.isnan(own), np.nan, np.nan_to_num(least))
        phases[stage], own = phases.get(stage, np.zeros(1)) + least, own + least
    phases = {name: phases[name] for name in sorted(phases, key=place)}
    return dataclasses.replace(recording, runtimes=own, phases=phases, communication=others, notes=notes)


def in_usual_order(names: Sequence[str]) -> list[str]:
    """Return the names of stages in the order in which they come in a step: as they are, unless a sort has put them so.

    Names that stand in alphabetical order say nothing of it. If each of them is usual, such as "forward", they are put
    in the usual order; communication comes before the update.

    Example:
      >>> in_usual_order(["backward", "data", "forward", "optimizer_step"])
      ['data', 'forward', 'backward', 'optimizer_step']
      >>> in_usual_order(["forward", "backward", "data"])
      ['forward', 'backward', 'data']
    """
    places = [_place(name) for name in names]
    known = [place for place in places if place is not None]
    if list(names) != sorted(names) or len(known) < len(places):
        return list(names)
    return [name for _, name in sorted(zip(known, names, strict=True))]


def _place(name: str) -> float | None:
    """Return where in a step a stage of that name usually is; None where the name does not tell."""
    own = set(words(name.removesuffix(WAIT)))
    place = next((place for place, usual in enumerate(_USUAL) if own & usual), None)
    if place is None and is_communication(name):
        return len(_USUAL) - 1.5
    return place


def find_wait(stages: Mapping[str, np.ndarray], steps: np.ndarray) -> str | None:
    """Return the stage that contains the wait for others, in vectors of stages without one that is communication.

    Whoever is late in other stages waits less: from the end of one wait to that of the next, all workers take equally
    long. So the whole differs less between workers than all stages but that one do.

    Args:
      stages: name -> float64[T, N], seconds, in the order in which they come in a step.
      steps: int64[T].

    Example:
      >>> data = np.random.default_rng(0).gamma(2.0, size=(50, 3))
      >>> stages = {"data": data, "backward": 9.0 - data, "step": np.ones((50, 3))}
      >>> find_wait(stages, np.arange(50))
      'backward'
    """
    explained = {}
    for name in stages if len(stages) > 1 else ():
        cut = behind(stages, name, steps)
        whole = np.sum([*cut.values()], axis=0)
        others = whole - cut[name]
        known = ~np.isnan(whole).any(axis=1)
        if known.sum() >= _FEWEST and (spread := others[known].var(axis=1).mean()) > 0:
            explained[name] = 1.0 - whole[known].var(axis=1).mean() / spread
    best = max(explained, key=explained.__getitem__, default=None)
    return best if best is not None and explained[best] >= _EXPLAINED else None


def behind(stages: Mapping[str, np.ndarray], wait: str, steps: np.ndarray) -> dict[str, np.ndarray]:
    """Return the stages from the end of the wait of one step to that of the next, float64[T', N], in their order.

    Example:
      >>> stages = {name: np.array([[1.0], [2.0], [3.0]]) for name in ("data", "backward", "step")}
      >>> {name: times[:, 0].tolist() for name, times in behind(stages, "backward", np.array([0, 1, 3])).items()}
      {'step': [1.0], 'data': [2.0], 'backward': [2.0]}
    """
    rows, names = np.flatnonzero(np.diff(steps) == 1), list(stages)
    last = names.index(wait)
    return {
        **{name: stages[name][rows] for name in names[last + 1 :]},
        **{name: stages[name][rows + 1] for name in names[: last + 1]},
    }
