"""Effective learning rates: how far a run's gradients move the parameters, comparable between methods."""

import inspect

import numpy as np

from sgdlab.entries import called_of
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.runs.experiment import Experiment
from sgdlab.runs.plan import Plan, expected_gradients
from sgdlab.schedule import Schedule


def figures(plan: Plan) -> dict[str, float | None]:
    r"""Return the effective learning rate of a gradient, and its sum over the run.

    .. math:: \eta_{eff} = \frac{\max_k \eta_k}{1 - \gamma} \cdot \frac{\sum_k w_k}{B}, \qquad
        S = \sum_k \frac{w_k \eta_k}{1 - \gamma}

    over all updates k of the server's parameters, or steps of nodes: :math:`\eta_k` is the learning rate, gamma the
    momentum, B the gradients that are used, in whole batches, and :math:`w_k` what the mean gradient of the update is
    multiplied by besides: 1; 1 / N for a step of one of N nodes, which moves their mean by that part of itself; the
    number of gradients for rules that scale by it, over their expected number for rules that divide by that. Factors
    for staleness, others that a rule finds as it goes, and what gossip loses of a step that is not averaged by both
    nodes, come on top of it.

    Returns:
      `effective_rate` and `summed_rate`. None where the rule is not momentum SGD (`RuleFacts.momentum_sgd`), and where
      workers make local steps, which have rates of their own.

    Source: eta / (1 - gamma) is the effective learning rate of Shallue et al. 2019 (arXiv 1811.03600).
    """
    gamma, pieces = momentum(plan.experiment), plan.experiment.cluster.pieces
    if gamma is None or plan.experiment.local.active:
        return {"effective_rate": None, "summed_rate": None}
    schedule = plan.schedule
    moved, used = _of_server(plan, schedule) if schedule.has_server else _of_nodes(schedule)
    rates = plan.rates[np.minimum(np.arange(moved.size), plan.rates.size - 1)]  # the last holds from then on
    return {
        "effective_rate": float(plan.rates.max() / (1 - gamma) * moved.sum() / used * pieces),
        "summed_rate": float(rates @ moved / (1 - gamma)),
    }


def momentum(experiment: Experiment) -> float | None:
    """Return gamma of the rule that a run has, by default the rule's own; None where it is not momentum SGD."""
    part = experiment.rule.part
    if "momentum" not in part.given or part.facts.rate is not None or not part.facts.momentum_sgd:
        return None
    if experiment.optimizer.momentum is not None:
        return experiment.optimizer.momentum
    return default_momentum(experiment)


def default_momentum(experiment: Experiment) -> float | None:
    """Return the momentum that the rule has where the configuration sets none; None where it takes none."""
    part = experiment.rule.part
    if "momentum" not in part.given:
        return None
    default = inspect.signature(called_of(part.make)).parameters["momentum"].default
    return None if default is inspect.Parameter.empty else default


def _of_server(plan: Plan, schedule: Schedule) -> tuple[np.ndarray, float]:
    """Return w, float64[U], and the used gradients, both as the mean over blocks."""
    updates, used, made = schedule.num_updates, schedule.used(), np.isfinite(schedule.applied)
    columns = range(schedule.num_blocks)
    gradients = np.stack([np.bincount(schedule.update[used[:, b], b], minlength=updates) for b in columns], axis=1)
    weights = made.astype(float)
    if plan.experiment.rule.facts.scales_by_num_gradients:
        weights *= gradients
    elif "expected_gradients" in plan.experiment.rule.part.given:
        expected = expected_gradients(plan.experiment, schedule.num_workers)
        weights *= gradients / (schedule.gradients_per_update() if expected is None else expected)
    return weights.mean(axis=1), used.sum() / schedule.num_blocks


def _of_nodes(schedule: PeerSchedule) -> tuple[np.ndarray, float]:
    """Return w, float64[G], and the number of gradients G."""
    taken = schedule.takes_gradient()
    scale = np.ones(taken.size) if schedule.scale is None else schedule.scale
    return scale[taken] / schedule.num_nodes, schedule.num_gradients
