"""The line "no loss" of pictures of time: what it stands for, and that theory says the same."""

import numpy as np
import pandas as pd
import pytest

from experiments.backup_workers import figures5_6
from experiments.cutoff import figure4
from experiments.gossip import comparison
from experiments.harness import canvas, least
from sgdlab import theory


def test_it_is_the_time_of_workers_who_never_wait():
    seconds, gradients = np.array([1.0, 2.0, 4.0]), [0.0, 7.0, 21.0]
    found = least.seconds(gradients, (1 / seconds).sum())
    np.testing.assert_allclose(found, [theory.without_waiting(seconds, each) for each in gradients], rtol=1e-15)


def test_of_equal_workers_the_gradients_of_synchrony_give_the_least_time():
    """Synchronous SGD needs N a + b gradients; no number of the workers is better than all."""
    problem, count = theory.Problem(variance=30.0, accuracy=0.5), 12
    needed = count * problem.exact_steps + problem.noise_steps
    floor = theory.homogeneous([3.0] * count, problem)
    assert least.seconds(needed, count / 3.0) == pytest.approx(floor.seconds, rel=1e-12)
    assert floor.workers == count


def test_the_line_is_drawn_with_its_name():
    drawn, ((axes,),) = canvas()
    least.line(axes, [0, 1], [2, 1], of="8 machines", index=1)
    least.line(axes, [0, 1], [2, 1], of="_")
    assert [line.get_label() for line in axes.lines] == ["no loss, 8 machines", "_"]
    assert len(drawn.axes) == 1


def test_of_100_machines_it_is_the_time_with_gradients_that_take_their_mean():
    counts, seconds = np.array([50, 100]), np.array([[2.0, 5.0], [2.0, 5.0]])
    updates = {"r = 1": {50: np.array([40.0, 40.0]), 100: np.array([20.0, 20.0])}}
    table, picture, _ = figures5_6.compared(counts, seconds, updates)
    found = figures5_6.with_floors(table, picture, 1.5).set_index("quantity").ours
    # The shortest time is 80 s, with N = 50; with 100 and no waiting, 20 updates take 1.5 s each.
    assert found["no loss, over the shortest time"] == pytest.approx(20 * 1.5 / 80)
    assert picture.axes[1].get_ylim()[0] < 20 * 1.5 / 80


def test_of_cutoffs_figure_it_is_full_synchronys_gradients():
    points = [(0, 0.0, 2.0), (100, 50.0, 1.0)]
    records = [{"kind": "run"}]
    records += [{"kind": "evaluation", "gradients": g, "seconds": s, "test_loss": loss} for g, s, loss in points]
    records.append({"kind": "summary", "capacity": 4.0})
    found = figure4.least_seconds(records, 0.75)
    assert found[f"{figure4.TO}2"] == 12.5  # a loss of 1.5 after 50 gradients, 4 a second
    assert np.isnan(found[f"{figure4.TO}1.2"])


def test_of_nodes_it_is_all_reduces_gradients():
    rows = [
        {"p": 4, "method": "all_reduce", "tau": 1, "seed": seed, "seconds": s, "gradients": 8 * s, "epoch": s}
        | {"test_loss": 2.0 - s / 10, "test_accuracy": 0.5, "train_loss": 1.0, "consensus": 0.0}
        for seed in (0, 1)
        for s in (0.0, 1.0, 2.0)
    ]
    paces = comparison.paces(pd.DataFrame({"p": [4, 4], "capacity": [16.0, 16.0]}))
    drawn = comparison.draw(pd.DataFrame(rows), [4], "digits", pace=paces)
    by_label = {line.get_label(): line for line in drawn.axes[0].lines}
    np.testing.assert_allclose(by_label["no loss"].get_xdata(), [0.0, 0.5, 1.0])  # 0, 8 and 16 gradients, 16 a second
    assert "no loss" not in [line.get_label() for line in drawn.axes[1].lines]
