"""`RolloutSchedule`: by hand, its checks, its file, and the ordinary schedule that it is."""

import dataclasses

import numpy as np
import pytest
from test_rollout_runs import MACHINES, VARIANTS, made

import sgdlab
from sgdlab import rollouts
from sgdlab.rollouts import schedule

WORK = rollouts.lognormal(prompts=300, group=4, seed=1)
HAND_WORK = rollouts.Workload(np.array([[[64, 128], [192, 64], [64, 64], [320, 64]]]))
HAND = rollouts.simulate(
    HAND_WORK,
    rollouts.System(1, 4, 64.0, batch=1, train=1.0, transfer=0.5),
    rollouts.unbounded,
    num_steps=3,
)
"""Groups of 1 and 2 s, 3 and 1 s, 1 and 1 s, 5 and 1 s, in four slots."""


def test_a_run_by_hand():
    # Groups 0 and 1 begin at 0 s; 1 s: group 2 takes the two free slots; 2 s: groups 0 and 2 are ready, in this order.
    assert HAND.group.tolist()[:8] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert HAND.started.tolist()[:8] == [0, 0, 0, 0, 1, 1, 2, 2]
    assert HAND.ready.tolist()[:3] == [2, 3, 2]
    assert HAND.step.tolist()[:4] == [0, 2, 1, -1]
    # Steps of 1 s and a transfer of 0.5 s, for which the trainer waits.
    assert HAND.began.tolist() == [2, 3.5, 5]
    assert HAND.applied.tolist() == [3.5, 5, 6.5]
    assert HAND.staleness().tolist() == [0, 0, 2, 2, 1, 1]
    assert HAND.in_system().tolist() == [4, 2, 0]
    figures = HAND.figures()
    tokens = np.array([64, 128, 192, 64, 64, 64])
    assert figures["staleness"] == 1
    assert figures["token_staleness"] == (tokens * [0, 0, 2, 2, 1, 1]).sum() / tokens.sum()
    assert figures["token_staleness_in_flight"] == figures["token_staleness"]  # all were over before version 1 came
    assert figures["trainer_busy"] == 3 / 6.5
    assert figures["goodput"] == tokens.sum() / 6.5
    assert figures["slots_busy"] == 1
    assert sum(HAND.ledger().values()) == 4 * 6.5 * 64
    # The first rollout of group 3: 1.5 s on version 0, 1.5 s on version 1, 1.5 s on version 2.
    rows = HAND.span_rollout == 6
    assert HAND.span_version[rows].tolist() == [0, 1, 2]
    assert HAND.span_tokens[rows].tolist() == [96, 96, 96]
    assert "3 steps of 2 rollouts in 6.5 s, mean staleness 1 by rollout, largest 2, 0.0 % of the" in str(HAND)


def test_an_aborted_group_by_hand():
    # Group 3 begins at 2 s on version 0 and would end at 7 s; version 2 comes at 5 s.
    run = made("window", HAND_WORK, rollouts.System(1, 4, 64.0, batch=1, train=1.0, transfer=0.5), 3, stale="abort")
    fates = [schedule.FATES[fate] for fate in run.fate[:5]]
    assert fates == ["trained", "stale", "trained", "aborted", "stale"]
    rows = run.group == 3
    assert run.started[rows].tolist() == [2, 2]
    assert run.finished[rows].tolist() == [5, 3]
    assert run.tokens[rows].tolist() == [192, 64]
    assert run.span_tokens[run.span_rollout == np.flatnonzero(rows)[0]].tolist() == [96, 96]
    assert np.isnan(run.ready[3])
    # So is group 5, which begins at 3 s, of 3 s and 1 s.
    assert run.ledger()["aborted"] == 192 + 64 + 128 + 64
    assert run.figures()["aborted"] == 448 / run.tokens.sum()
    ordinary = run.schedule()
    row = np.flatnonzero((ordinary.started == 2) & (ordinary.sent[:, 0] == 5))
    assert ordinary.arrived[row, 0] == 5
    assert ordinary.dropped()[row].all()


def test_rollouts_that_are_withheld_by_hand():
    # One slot; the first rollout of group 1 begins at 2 s on version 0, the second at 4 s on version 1.
    work = rollouts.Workload(np.array([[[64, 64], [128, 64], [64, 64]]]))
    system = rollouts.System(1, 1, 64.0, batch=1, train=0.0, train_token=1 / 128, transfer=0.5)
    run = made("window", work, system, 2, lag=0, stale="withhold")
    assert run.withheld.tolist() == [False, False, True, False, False]
    assert run.step.tolist() == [0, 1, -1]
    assert run.applied.tolist() == [3.5, 6.0]  # a step of 128 tokens takes 1 s, and one of 64 half of it
    assert run.staleness().tolist() == [0, 0, 0]
    assert (run.ledger()["trained"], run.ledger()["withheld"]) == (192, 128)
    figures = run.figures()
    assert figures["goodput"] == 192 / 6
    assert figures["wasted"] == figures["withheld"] == 128 / 384
    assert run.schedule().dropped().sum() == 1
    discard = made("window", work, system, 2, lag=0)
    assert schedule.FATES[discard.fate[1]] == "stale"


def test_figures_after_a_warmup():
    figures = HAND.figures(warmup=1)
    assert figures["seconds_per_step"] == 1.5
    assert figures["staleness"] == 1.5
    assert figures["goodput"] == 384 / 3
    assert figures["token_staleness"] == (256 * 2 + 128 * 1) / 384
    assert figures["trainer_busy"] == 2 / 3
    with pytest.raises(ValueError, match="warmup=3 must be a whole number from 0 to 2"):
        HAND.figures(warmup=3)


def test_a_file_holds_it(tmp_path):
    HAND.save(tmp_path / "run.npz")
    again = rollouts.RolloutSchedule.load(tmp_path / "run.npz")
    for field in dataclasses.fields(HAND):
        np.testing.assert_array_equal(getattr(again, field.name), getattr(HAND, field.name))
    (tmp_path / "other.npz").write_text("nothing")
    with pytest.raises(ValueError, match=r"is not a schedule of rollouts written by RolloutSchedule\.save"):
        rollouts.RolloutSchedule.load(tmp_path / "other.npz")


@pytest.mark.parametrize(("hold", "refresh"), MACHINES)
@pytest.mark.parametrize(("name", "given"), VARIANTS, ids=[f"{name} {given}" for name, given in VARIANTS])
def test_it_is_an_ordinary_schedule(name, given, hold, refresh):
    system = rollouts.System(2, 12, batch=4, hold=hold, refresh=refresh)
    run = made(name, WORK, system, 30, **given)
    ordinary = run.schedule()
    assert ordinary.num_workers == 24
    assert ordinary.staleness().mean() == run.staleness().mean()
    assert ordinary.used().sum() == run.trained().sum()
    assert (ordinary.wasted_share().sum() > 0) == (sum(run.wasted().values()) > 0)
    certificate = sgdlab.theory.certificate(ordinary)
    assert certificate.largest_staleness == run.staleness().max()
    assert certificate.updates == 30
    order = np.lexsort((ordinary.started, ordinary.worker))  # no slot has two rollouts at a time
    worker, started, sent = (column[order] for column in (ordinary.worker, ordinary.started, ordinary.sent[:, 0]))
    assert (started[1:] >= sent[:-1])[worker[1:] == worker[:-1]].all()
    engines = lambda started, engine: sorted(zip(started.tolist(), engine.tolist(), strict=True))
    assert engines(ordinary.started, ordinary.worker // 12) == engines(run.started, run.engine)
    arrived = ordinary.arrived[ordinary.used()[:, 0], 0]
    np.testing.assert_array_equal(np.sort(arrived), np.sort(run.ready[run.group][run.trained()]))
    still = np.isnan(run.finished) & (run.started < run.applied[-1])  # what runs when the run ends is over with it
    row = np.isin(ordinary.started, run.started[still]) & (ordinary.sent[:, 0] == run.applied[-1])
    assert row.sum() >= still.sum()


def changed(name, row, value):
    array = getattr(HAND, name).copy()
    array[row] = value
    return {name: array}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("group", 0, 9), r"group=9 in row 0 must be 0 to \d+"),
        (changed("engine", 1, 1), "engine=1 in row 1 must be 0 to 0"),
        (changed("read", 0, 7), "read=7 in row 0 must be 0 to 3, a version"),
        (changed("read", 0, 1), "started=0.0 in row 0 must be finite, and no earlier than the version"),
        (changed("tokens", 0, 65), "tokens=65 in row 0 must be the sum of its spans"),
        ({"tokens": HAND.tokens + 0.5}, "tokens of dtype float64 must hold whole numbers"),
        (changed("finished", 0, 0.0), "finished=0.0 in row 0 must be later than started"),
        (changed("span_tokens", 0, 0), "span_tokens=0 in row 0 must be at least 1"),
        (changed("span_rollout", 0, -1), "span_rollout=-1 in row 0 must be 0 to"),
        (changed("fate", 0, 9), "fate=9 in row 0 must be 0 to 6"),
        (changed("fate", 0, 1), "step=0 in row 0 must be 0 to 2 where the group was trained on, else -1"),
        (changed("step", 0, 2), "step=1 in row 1 must be of as many groups as step 0, 0"),
        (changed("step", 1, 0), "ready=3.0 in row 1 must be no later than its step began"),
        (changed("ready", 0, 1.0), "ready=1.0 in row 0 must be when the last rollout of the group was over"),
        (changed("ended", 0, 1.0), "ended=1.0 in row 0 must be no earlier than what comes before it"),
        (changed("withheld", 6, True), "withheld=True in row 6 must be False where the group was not trained on"),
        (changed("began", 0, np.nan), "began=nan in row 0 must be finite"),
        (changed("ended", 1, np.nan), "ended=nan in row 1 must be no earlier than what comes before it"),
        (changed("span_version", 0, -1), "span_version=-1 in row 0 must be no older than the version that was read"),
        ({"applied": HAND.applied[:2]}, r"applied has shape \(2,\); began of shape \(3,\) calls for it"),
    ],
)
def test_contradictions_are_refused(change, message):
    fields = {field.name: getattr(HAND, field.name) for field in dataclasses.fields(HAND)}
    with pytest.raises(ValueError, match=message):
        rollouts.RolloutSchedule(**fields | change)
    assert not HAND.tokens.flags.writeable
