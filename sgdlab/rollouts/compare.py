"""Staleness policies side by side on one workload and machines, with intervals over workloads drawn from a log."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sgdlab.rollouts.bias import length_bias
from sgdlab.rollouts.engines import System
from sgdlab.rollouts.family import STALENESS_POLICIES
from sgdlab.rollouts.policies import StalenessPolicy
from sgdlab.rollouts.predict import largest_rate, predict
from sgdlab.rollouts.schedule import RolloutSchedule
from sgdlab.rollouts.simulate import simulate
from sgdlab.rollouts.workload import Workload
from sgdlab.theory.participation import UNDER_USED


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A staleness policy with its arguments.

    Attributes:
      name: of the registered policy.
      given: its arguments but for the batch.
    """

    name: str
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def make(self) -> Callable[..., StalenessPolicy]:
        """Return the policy, `(batch=...) -> StalenessPolicy`."""
        return functools.partial(STALENESS_POLICIES[self.name].make, **self.given)

    @property
    def title(self) -> str:
        """Return its name and arguments, as in "admission, eta 2"."""
        words = [
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in self.given.items()
        ]
        return ", ".join([self.name, *words])


def candidates(names: Sequence[str], **values: Sequence[Any]) -> list[Candidate]:
    """Return policies with each of the values that they take; those that take none of them once.

    Example:
      >>> [one.title for one in candidates(["unbounded", "admission"], eta=[1.0, 2.0], lag=[1])]
      ['unbounded', 'admission, eta 1', 'admission, eta 2']
    """
    found = []
    for name in names:
        own = {key: values[key] for key in STALENESS_POLICIES[name].defaults if values.get(key)}
        found += [Candidate(name, dict(zip(own, chosen, strict=True))) for chosen in itertools.product(*own.values())]
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Tried:
    """A policy as it was simulated.

    Attributes:
      candidate: the policy.
      system: the machines.
      figures: those of the schedule and of the length bias, means over the workloads.
      spread: their standard deviations over the workloads; empty of one.
      tenths: float64[10], shares of the prompts by length over equal ones.
      closed: "=" or "<=", or "" where nothing is known, and the mean staleness by the closed form.
      schedule: the run on the first workload.
    """

    candidate: Candidate
    system: System
    figures: Mapping[str, float]
    spread: Mapping[str, float]
    tenths: np.ndarray
    closed: tuple[str, float]
    schedule: RolloutSchedule

    def interval(self, name: str) -> tuple[float, float, float]:
        """Return a figure with the ends of an interval of two standard deviations to each side."""
        value, wide = self.figures[name], 2 * self.spread.get(name, 0.0)
        return value, value - wide, value + wide

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON holds of it."""
        return {
            "policy": self.candidate.name,
            "given": dict(self.candidate.given),
            "engines": self.system.engines,
            "figures": dict(self.figures),
            "intervals": {name: list(self.interval(name)) for name in self.spread},
            "share_by_tenth": self.tenths.tolist(),
            "largest_rate": largest_rate(self.figures["largest_staleness"]),
            "closed_form": dict(zip(("relation", "staleness"), self.closed, strict=True)),
            "ledger": self.schedule.ledger(),
        }


def tried(workloads: Sequence[Workload], system: System, candidate: Candidate, *, steps: int, warmup: int) -> Tried:
    """Simulate a policy on workloads; numbers are from the version before step `warmup` on."""
    runs = [simulate(workload, system, candidate.make, num_steps=steps) for workload in workloads]
    biases = [length_bias(run, work, warmup=warmup) for run, work in zip(runs, workloads, strict=True)]
    found = [run.figures(warmup) | bias.figures() for run, bias in zip(runs, biases, strict=True)]
    columns = {name: np.array([figures[name] for figures in found], float) for name in found[0]}
    return Tried(
        candidate,
        system,
        {name: float(column.mean()) for name, column in columns.items()},
        {name: float(column.std(ddof=1)) for name, column in columns.items()} if len(runs) > 1 else {},
        10 * np.mean([bias.shares for bias in biases], axis=0),
        predict(workloads[0], system).staleness(candidate.make(batch=system.batch)),
        runs[0],
    )


def splits(system: System, gpus: int) -> list[System]:
    """Return machines with other numbers of engines, of one GPU each; the seconds of a step are inverse to the rest.

    Args:
      system: the machines as they are, whose trainer has the GPUs that are no engines.
      gpus: of engines and trainer together.

    Raises:
      ValueError: where the engines leave none to the trainer.
    """
    trainer = gpus - system.engines
    if trainer < 1:
        raise ValueError(f"gpus={gpus} must be more than the {system.engines} engines, which have one each")
    counts = sorted({system.engines, *(max(round(gpus * part / 8), 1) for part in range(1, 8))})
    return [
        dataclasses.replace(
            system,
            engines=count,
            train=system.train * trainer / (gpus - count),
            train_token=system.train_token * trainer / (gpus - count),
        )
        for count in counts
        if count < gpus
    ]


def recommended(found: Sequence[Tried], max_staleness: float, tolerance: float = 0.01) -> Tried | None:
    """Return the one with the most trained tokens a second, or a fresher one that has nearly as many.

    Policies that starve the longest tenth of the prompts are left out.

    Args:
      found: policies and machines.
      max_staleness: bound of the mean staleness by rollout.
      tolerance: share of the trained tokens a second that is given up for fresher ones, and of the bound by which the
        mean may be above it: one that is bounded over a whole run can be so after the run's beginning.
    """
    allowed = [
        one
        for one in found
        if one.figures["staleness"] <= (1 + tolerance) * max_staleness and one.figures["longest_tenth"] >= UNDER_USED
    ]
    most = max((one.figures["goodput"] for one in allowed), default=0.0)
    nearly = (one for one in allowed if one.figures["goodput"] >= (1 - tolerance) * most)
    return min(nearly, key=lambda one: one.figures["staleness"], default=None)
