"""What is kept of a run: one record to say what it was, one for each look, and a summary; plain numbers."""

import math
from typing import Any

import numpy as np

from sgdlab.methods import METHODS
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.plan import Plan
from sgdlab.replay import History, PeerResult, Result
from sgdlab.waiting import AnySchedule


def records(
    plan: Plan, result: Result | PeerResult, final: dict[str, float], compute_seconds: float
) -> list[dict[str, Any]]:
    """Turns a run into the records of its metrics file.

    Args:
      plan: what was to be done.
      result: what came of it.
      final: loss and accuracy on the training set, at the end.
      compute_seconds: what it took on this machine, evaluations included.

    Returns:
      `{"kind": "run"}`, then one `{"kind": "evaluation"}` for each look, then `{"kind": "summary"}`. Between two
      looks, `train_loss`, `staleness` and `gap` are means over the gradients.
    """
    config, history = plan.config, result.history
    if isinstance(result, PeerResult):
        gaps = staleness = np.empty(0)
    else:
        gaps, staleness = gap(history, plan.rates), history.delay - 1
    looks, before = [], 0
    for evaluation in history.evaluations:
        now = evaluation["gradients"]
        looks.append(
            {
                "kind": "evaluation",
                "gradients": now,
                "updates": evaluation["updates"],
                "epoch": now / plan.batches_per_epoch,
                "seconds": evaluation["seconds"],
                "test_loss": evaluation["loss"],
                "test_accuracy": evaluation["accuracy"],
                "average_accuracy": evaluation.get("average_accuracy"),
                "node_accuracy": evaluation.get("node_mean_accuracy"),
                "worst_accuracy": evaluation.get("node_lowest_accuracy"),
                "center_accuracy": evaluation.get("center_accuracy"),
                "consensus": evaluation.get("consensus"),
                "train_loss": _mean(history.aux["loss"][before:now]),
                "staleness": _mean(staleness[before:now]),
                "gap": _mean(gaps[before:now]),
            }
        )
        before = now
    run = {
        "kind": "run",
        "method": config.method,
        "title": METHODS[config.method].title,
        "num_workers": config.cluster.num_workers,
        "seed": config.seed,
    }
    summary = {**run, "kind": "summary", **_summary(plan, looks, final, gaps), "compute_seconds": compute_seconds}
    return [{**run, "config": config.to_dict()}, *looks, summary]


def _summary(plan: Plan, looks: list[dict[str, Any]], final: dict[str, float], gaps: np.ndarray) -> dict[str, Any]:
    schedule, config, last = plan.schedule, plan.config, looks[-1]
    reached = next((look for look in looks if look["test_accuracy"] >= config.target_accuracy), None)
    return {
        "diverged": diverged(looks),
        "test_accuracy": last["test_accuracy"],
        "train_accuracy": final["accuracy"],
        "average_accuracy": last["average_accuracy"],
        **{name: last[name] for name in ("node_accuracy", "worst_accuracy", "center_accuracy", "consensus")},
        "test_loss": last["test_loss"],
        "train_loss": final["loss"],
        "gradients": last["gradients"],
        "updates": last["updates"],
        "epochs": last["epoch"],
        "seconds": last["seconds"],
        "speedup": plan.speedup,
        "seconds_to_target": reached["seconds"] if reached else None,
        "epochs_to_target": reached["epoch"] if reached else None,
        "gap": _mean(gaps),
        "idle_share": float(schedule.idle_share().mean()),
        **_of_a_server(schedule),
    }


def _of_a_server(schedule: AnySchedule) -> dict[str, Any]:
    """What peers do not know: they use every gradient at once."""
    if isinstance(schedule, PeerSchedule):
        return {"dropped": 0, "staleness": None, "wasted_share": 0.0}
    return {
        "dropped": int(schedule.dropped().all(axis=1).sum()),
        "staleness": float(schedule.staleness().mean()),
        "wasted_share": float(schedule.wasted_share().mean()),
    }


def diverged(looks: list[dict[str, Any]], num_classes: int = 10) -> bool:
    """Whether a run was lost: its loss is not finite, or it ended no better than guessing after it had blown up.

    A loss of log(classes) alone does not say so, since a run that has just begun has it too: the loss must once have
    been clearly lower than in the end, or twice as high as at first.
    """
    # Nothing has been trained on at the first look, so it has no training loss.
    losses = [look["test_loss"] for look in looks] + [look["train_loss"] for look in looks[1:]]
    if not all(math.isfinite(loss) for loss in losses):
        return True
    first, last = looks[0]["test_loss"], looks[-1]["test_loss"]
    return last >= 0.99 * math.log(num_classes) and (min(losses) < 0.95 * last or max(losses) > 2 * first)


def gap(history: History, rates: np.ndarray) -> np.ndarray:
    r"""The global gap of every gradient, measured alike for every method (Barkai et al. 2020, Definition 1).

    .. math:: G = \frac{\|\theta_k - \theta_{read}\|}{C} + 1, \qquad
        C = \eta_{max} \sqrt{\operatorname{mean}_{j < k} (\|\theta_{j+1} - \theta_j\| / \eta_j)^2}

    Args:
      history: with distances and steps (`Watch.norms`). Of several blocks, each counts from its own updates, and the
        squares of distances and of steps add up over those that used the gradient.
      rates: float64[U], the learning rate of each update.

    Returns:
      float64[R]; 1 before the first update.
    """
    columns = history.update.shape[1] if history.update.ndim > 1 else 1
    used, update = (array.reshape(-1, columns) for array in (history.update >= 0, history.update))
    distance, step = (array.reshape(-1, columns).astype(float) for array in (history.distance, history.step))
    far, reach = np.zeros(len(update)), np.zeros(len(update))
    with np.errstate(all="ignore"):  # a diverged run has infinite steps; a rate can have decayed to 0
        for block in range(columns):
            rows = np.flatnonzero(used[:, block])
            rows = rows[np.argsort(update[rows, block], kind="stable")]
            entered = update[rows, block]
            ends = np.flatnonzero(np.diff(entered, append=-1))
            rate = rates[np.minimum(entered[ends], rates.size - 1)]
            squares = np.where(rate > 0, (step[rows[ends], block] / rate) ** 2, 0.0)
            mean = np.cumsum(squares) / np.maximum(np.cumsum(rate > 0), 1)
            reach[rows] += np.concatenate([[0.0], mean])[entered]
            far[rows] += distance[rows, block] ** 2
        gaps = np.sqrt(far) / (rates.max() * np.sqrt(reach)) + 1
    return np.where(np.where(used, update, 0).max(axis=1) == 0, 1.0, gaps)


def _mean(values: np.ndarray) -> float:
    """The mean; NaN entries of a column each are of blocks that did not use the gradient."""
    if values.ndim > 1:
        values = values[~np.isnan(values)]
    return float(np.mean(values, dtype=float)) if values.size else math.nan
