"""Bytes of compressed and of local methods, and lost messages: what is measured by hand, and what is judged."""

import numpy as np
import pandas as pd
import pytest

from experiments.beyond import bytes as of_bytes
from experiments.beyond import dropped_messages
from sgdlab import protocols
from sgdlab.runs.plan import make_plan
from tests.lib.unlike import unlike

POINTS = {title: of_bytes._point(title, 1.0, 10, 0) for title in of_bytes.METHODS}


def test_bytes_of_messages_by_hand():
    """9,930 parameters of 4 bytes; a hundredth of them, rounded up, are 100, at places of 14 bits."""
    base = of_bytes.configured(1.0, "conv")
    sizes = {title: of_bytes.message_bytes(base, point) for title, point in POINTS.items()}
    assert sizes["uncompressed"] == sizes["DiLoCo"] == 4 * 9930
    assert sizes["4 bits"] == sizes["DiLoCo, 4 bits"] == 9930 / 2 + 4
    assert sizes["signs, error feedback"] == 9930 / 8 + 4
    assert sizes["top 1 %, error feedback"] == sizes["top 1 %, EF21"] == 100 * (4 + 14 / 8)
    assert base.transport.star.server.gbits == pytest.approx(8e-9 * 4 * 9930 / 2)


def test_what_is_not_sent_is_received():
    base = of_bytes.configured(1.0, "conv")
    base.update_from_flattened_dict({name: value for name, value in POINTS["4 bits"].items() if value is not None})
    plan = make_plan(base)
    runs = pd.DataFrame(
        [
            {"title": "4 bits", "updates": plan.schedule.num_updates, "worker_bytes": plan.schedule.worker_bytes()}
            | {"epochs": 2.0, "epochs_to_target": 0.5, "test_accuracy": 0.97}
        ]
    )
    (found,) = of_bytes.with_bytes(runs, {"4 bits": 4969.0}).to_dict("records")
    assert found["sent"] == pytest.approx(1e-6 * 4969 * plan.schedule.num_updates)
    assert found["received"] == pytest.approx(1e-6 * 4 * 9930 * plan.schedule.num_updates)
    assert (found["sent_to_target"], found["accuracy"]) == (pytest.approx(found["sent"] / 4), pytest.approx(97.0))


def test_rows_have_the_names_of_their_methods():
    points = pd.DataFrame([of_bytes._point(title, 3.0, 10, 0) for title in of_bytes.METHODS])
    found = of_bytes.named(points)
    assert found.title.tolist() == list(of_bytes.METHODS)
    assert set(found.factor) == {3.0}


def test_the_best_rate_has_the_highest_mean_accuracy():
    accuracies = {0.3: (0.9, 0.9), 1.0: (0.97, 0.95), 3.0: (0.97, 0.96), 10.0: (0.99, None), 30.0: (0.96, 0.97)}
    tried = pd.DataFrame(
        [{"factor": factor, "test_accuracy": each} for factor, of in accuracies.items() for each in of]
    )
    assert of_bytes._best(tried) == 3.0


def made_up(**accuracies):
    rows = [
        {"title": title, "seed": seed, "test_examples": 360, "accuracy": accuracies.get(title.split(",")[0], 97.5)}
        | {
            "sent_to_target": 1.0 if title == "uncompressed" else 0.1,
            "seconds_to_target": 200.0 - 50 * (title != "uncompressed"),
        }
        for title in of_bytes.METHODS
        for seed in range(4)
    ]
    runs = pd.DataFrame(rows)
    numbers = ["accuracy", "sent_to_target", "seconds_to_target"]
    runs[numbers] = unlike(runs[numbers])
    return runs


def test_claims_of_bytes():
    runs = made_up(DiLoCo=90.0)
    marks = [claim.holds.holds for claim in of_bytes.claims(runs, 10)]
    assert marks == [True] * 5 + [False, False] + [True, True] + [None]
    slow = runs.assign(seconds_to_target=runs.seconds_to_target.where(runs.title != "4 bits", 300.0 + runs.seed))
    assert [claim.holds.holds for claim in of_bytes.claims(slow, 10)][8] is False
    never = runs.assign(sent_to_target=runs.sent_to_target.where(runs.title != "4 bits"))
    assert [claim.holds.holds for claim in of_bytes.claims(never, 10)][7] is None
    worse = runs.assign(accuracy=runs.accuracy.where(runs.title != "top 1 %, EF21", 95.0 + 0.1 * runs.seed))
    found = of_bytes.claims(worse, 10)
    assert (found[3].holds.holds, found[-1].holds.holds) == (False, True)


def test_a_loss_changes_no_time_and_leaves_every_round_a_message():
    whole = protocols.synchronous(np.random.default_rng(0).gamma(4.0, size=(500, 4)))
    lossy = dropped_messages.losing(whole, 0.5, seed=1)
    for name in ("worker", "read", "started", "arrived", "applied"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(lossy, name))
    used = lossy.update[:, 0] >= 0
    np.testing.assert_array_equal(lossy.update[used], whole.update[used])
    came = np.bincount(lossy.update[used, 0], minlength=500)
    assert came.min() == 1
    # Of 4 messages half come on average, and one in the sixteenth of all rounds that would have none.
    assert came.mean() == pytest.approx(4 / 2 + 1 / 16, abs=0.15)
    again, other = (dropped_messages.losing(whole, 0.5, seed=seed) for seed in (1, 2))
    np.testing.assert_array_equal(again.update, lossy.update)
    assert (other.update != lossy.update).any()


def test_more_losses_are_those_of_fewer_and_others():
    whole = protocols.synchronous(np.ones((50, 4)))
    few, many = (dropped_messages.losing(whole, share, seed=1).dropped()[:, 0] for share in (0.2, 0.6))
    assert few.sum() < many.sum()
    assert many[few].all()


@pytest.mark.parametrize("kind", list(dropped_messages.DATA))
def test_a_lossy_run_has_as_many_rounds(kind):
    config = dropped_messages.configured(data=kind, steps=5, rounds=6, rate=0.003, seed=0)
    whole, lossy = make_plan(config), dropped_messages.with_losses(config, 0.5, seed=0)
    assert whole.schedule.num_updates == lossy.schedule.num_updates == len(lossy.rates) == 6
    assert whole.schedule.used().sum() == 48
    assert lossy.num_gradients == lossy.schedule.used().sum() == 48 - lossy.schedule.dropped().sum()
    np.testing.assert_array_equal(lossy.rates, whole.rates)
    assert (lossy.inner, whole.inner) == (None, None)


def test_claims_of_losses():
    lost = {("all", 0.0): 97.0, ("all", 0.5): 96.8, ("own", 0.0): 95.0, ("own", 0.5): 90.0}
    rows = [
        {"data": kind, "share": share, "seed": seed, "accuracy": accuracy + 0.01 * seed, "test_examples": 360}
        for (kind, share), accuracy in lost.items()
        for seed in range(4)
    ]
    found = dropped_messages.claims(pd.DataFrame(rows))
    assert [claim.holds.holds for claim in found] == [True, False]


def test_a_share_of_all_messages_is_refused():
    with pytest.raises(ValueError, match=r"shares=0\.5,1 must be below 1"):
        dropped_messages.dropped_messages(shares=[0.5, 1.0])
