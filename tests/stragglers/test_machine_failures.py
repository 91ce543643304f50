"""Planted failures are found with their times, what looks like them is not; intervals are exact, spares are counted."""

import math

import numpy as np
import pytest
import scipy.stats
from toy_traces import noise, recording_of

from sgdlab.stragglers import failures as of_machines
from sgdlab.stragglers import recording as split
from sgdlab.stragglers.failures import Failures, Outage, find_failures

STEPS, WORKERS = 400, 6


def clock(times, *, stops=(), every=1):
    """When steps began that wait for the slowest, with stops: row -> seconds before it."""
    began = np.cumsum(np.r_[0.0, every * np.nanmax(times, axis=1)[:-1]])
    for row, seconds in dict(stops).items():
        began[row:] += seconds
    return began


def found(times, **others):
    parts = split.split(recording_of(times, prefix="w", **others))
    return find_failures(parts), parts


def test_workers_that_come_back_and_stops_of_all():
    times = noise(STEPS, WORKERS)
    times[50:90, 2] = np.nan
    times[200:230, [0, 1]] = np.nan  # a machine of two workers is one failure
    began = clock(times, stops={300: 500.0})
    failures, parts = found(times, began=began)
    assert [(each.row, each.workers) for each in failures.outages] == [(50, (2,)), (200, (0, 1)), (300, ())]
    seconds = [each.seconds for each in failures.outages]
    assert seconds == pytest.approx([began[90] - began[50], began[230] - began[200], 500.0], abs=0.1)
    assert failures.up == pytest.approx(began[-1] - began[0] - 500, abs=2)
    said = of_machines.said(failures, parts)
    assert said.startswith(f"3 failures in {failures.up / 60:.2f} minutes: worker w2 missing from step 50 on for 43.")
    assert "all stood still from step 300 on for 8.33 minutes" in said
    assert f"The mean time between failures is {failures.up / 180:.2f} minutes" in said


def test_without_a_clock_steps_take_as_long_as_usual():
    times = np.ones((STEPS, WORKERS))
    times[50:90, 2] = np.nan
    (outage,) = found(times, steps=2 * np.arange(STEPS))[0].outages
    assert outage == Outage(50, (2,), 80.0)


def test_who_is_lost_while_all_stand_still_is_one_failure():
    times = noise(STEPS, WORKERS)
    times[100:150, 3] = np.nan
    failures, _ = found(times, began=clock(times, stops={100: 200.0}))
    assert [each.workers for each in failures.outages] == [(3,)]


def clean():
    """Recordings of jobs in which nothing failed: times, and what else is recorded."""
    draw = np.random.default_rng(0)
    times = noise(STEPS, WORKERS)
    for share in (0.02, 0.3, 0.6):
        lost = np.where(draw.random(times.shape) < share, np.nan, times)
        lost[::40] = times[::40]
        yield f"{share:g} of the times are missing", lost, {}
    yield "sampled", times, {"steps": 10 * np.arange(STEPS), "began": clock(times, every=10)}
    few = times.copy()
    few[np.arange(STEPS) % 20 != 0, 4] = np.nan
    yield "a worker logs every 20th step", few, {}
    dropped = np.sort(draw.choice(4 * STEPS, STEPS, replace=False))
    yield "steps that nobody recorded", times, {"steps": dropped, "began": 1.05 * dropped}
    nobody = times.copy()
    nobody[100:150] = np.nan
    yield "rows that are empty", nobody, {}
    most = times.copy()
    most[100:150, 1:] = np.nan
    yield "all but one worker stopped recording for a while", most, {}
    windows = np.concatenate([np.arange(50) + 5000 * window for window in range(8)])
    yield "a profiler that is on at times", times, {"steps": windows, "began": 1.2 * windows}
    yield "an evaluation every 100 steps", times, {"began": clock(times, stops=dict.fromkeys((100, 200, 300), 90.0))}
    slower = times * np.where(np.arange(STEPS) < 150, 1.0, 1.5)[:, None]
    yield (
        "the same of steps that become slower",
        slower,
        {"began": clock(slower, stops=dict.fromkeys((100, 200, 300), 90.0))},
    )
    yield "a checkpoint every two minutes", times, {"began": clock(times, stops={104: 61.0, 209: 47.0, 313: 55.0})}
    yield "a compilation behind the first step", times, {"began": clock(times, stops={1: 300.0})}
    yield "a pause of a few seconds", times, {"began": clock(times, stops={77: 15.0, 200: 8.0})}
    long = times.copy()
    long[[50, 211]] += 120.0
    yield "long steps of all", long, {"began": clock(long)}
    late = times.copy()
    late[:60, 1] = late[-20:, 5] = np.nan
    yield "files that begin and end at different steps", late, {}
    behind = times.copy()
    behind[30:33, 0] = behind[90:92, 1] = np.nan
    yield "a few rows were lost", behind, {}


@pytest.mark.parametrize(("times", "others"), [pytest.param(*rest, id=name) for name, *rest in clean()])
def test_what_is_no_failure(times, others):
    failures, parts = found(times, **others)
    assert failures.outages == ()
    assert of_machines.said(failures, parts) == ""


def test_rows_of_a_live_run_are_no_steps():
    times = noise(STEPS, WORKERS)
    times[100:150, 3] = np.nan
    parts = split.split(recording_of(times), live=True)
    assert find_failures(parts) is None
    assert of_machines.said(None, parts) == ""


def failures_of(number, up=1000.0, seconds=10.0, workers=4):
    return Failures(tuple(Outage(row, (0,), seconds) for row in range(number)), up, workers, 60.0, "")


def test_intervals_of_the_time_between_failures_hold_the_truth():
    draw, draws = np.random.default_rng(0), 4000
    for mean in (0.7, 3.0, 12.0):
        numbers = draw.poisson(mean, draws)
        every = {number: failures_of(number).between for number in np.unique(numbers).tolist()}
        covered = sum(every[number].low <= 1000 / mean <= every[number].high for number in numbers.tolist())
        assert covered >= scipy.stats.binom.ppf(0.001, draws, 0.95)  # exact: never less, often more
    # The ends, by the law itself: so many failures, or more, or fewer, have a probability of 2.5 %.
    low, high = 1000 / np.array(failures_of(5).between[1:])
    assert scipy.stats.poisson.cdf(5, low) == pytest.approx(0.025)
    assert scipy.stats.poisson.sf(4, high) == pytest.approx(0.025)
    assert failures_of(5).between.value == 200.0
    assert failures_of(0).between.high == failures_of(1).between.high == math.inf


def test_intervals_of_the_repair_hold_the_truth():
    draw, draws = np.random.default_rng(1), 2000
    covered = 0
    for _ in range(draws):
        outages = tuple(Outage(row, (0,), seconds) for row, seconds in enumerate(draw.exponential(30.0, 4)))
        repair = Failures(outages, 1000.0, 4, 60.0, "").repair
        covered += repair.low <= 30 <= repair.high
    assert abs(covered / draws - 0.95) < 4 * math.sqrt(0.95 * 0.05 / draws)
    assert failures_of(0).repair is None


@pytest.mark.parametrize("seconds", [40.0, 200.0, 560.0])
def test_spares_by_the_sum_of_the_binomial_law(seconds):
    failures, share = failures_of(5, up=1000.0, seconds=seconds, workers=4), 0.99
    down = 5 * seconds / (4 * 1000)

    def all_up(spares):
        total = 4 + spares
        return sum(math.comb(total, k) * down**k * (1 - down) ** (total - k) for k in range(spares + 1))

    least = next(spares for spares in range(100) if all_up(spares) >= share)
    assert failures.spares(share).value == least
    assert failures.spares(share).low <= least <= failures.spares(share).high
    assert failures_of(0).spares(share) is None


def test_a_share_that_is_just_reached_takes_no_further_spare():
    """A worker that is down half of the time: 1/2, 3/4 and 7/8 with none, one and two spares."""
    failures = failures_of(1, up=20.0, seconds=10.0, workers=1)
    assert [failures.spares(share).value for share in (0.5, 0.75, 0.875, 0.876)] == [0.0, 1.0, 2.0, 3.0]


def test_the_interval_of_spares_is_that_of_the_unavailability():
    """A worker that is up for 100 s and down for 10 s on average, both exponential."""
    draw, draws, true = np.random.default_rng(2), 300, 10 / 110
    needed = next(s for s in range(50) if scipy.stats.binom.cdf(s, 20 + s, true) >= 0.9)
    covered = 0
    for _ in range(draws):
        up, down = draw.exponential(100.0 / 20, 6).sum(), draw.exponential(10.0, 6)
        outages = tuple(Outage(row, (0,), seconds) for row, seconds in enumerate(down))
        spares = Failures(outages, up + down.sum() / 20, 20, 60.0, "").spares(0.9)
        covered += spares.low <= needed <= spares.high
    assert covered >= scipy.stats.binom.ppf(0.001, draws, 0.95)


def test_checkpoints():
    times = noise(STEPS, WORKERS)
    times[50:90, 2] = times[200:240, 1] = np.nan
    failures, parts = found(times, began=clock(times))
    assert (failures.checkpoint_seconds, failures.known) == (60.0, "")
    assert failures.checkpoint_every == pytest.approx(np.sqrt(120.0 * np.array(failures.between)))
    assert "With 60.0 s for a checkpoint (an example" in of_machines.said(failures, parts)
    assert find_failures(parts, 7.0).checkpoint_seconds == 7.0
    written = np.where(np.arange(STEPS)[:, None] % 50 == 49, 3.0, 0.001) * np.ones((1, WORKERS))
    failures, parts = found(times + written, phases={"compute": times, "save_checkpoint": written})
    assert (failures.checkpoint_seconds, failures.known) == (3.0, "phase")
    assert "With 3.00 s for a checkpoint (as its phase says)" in of_machines.said(failures, parts)


def test_without_failures_only_who_asks_is_told():
    parts = split.split(recording_of(np.ones((STEPS, WORKERS))))
    said = of_machines.said(find_failures(parts, 20.0), parts)
    low = 400 / -math.log(0.025)  # no failure in 400 s
    assert said.startswith(f"No failure in 6.67 minutes. The mean time between failures is at least {low:.0f} s.")
    assert f"at least {math.sqrt(40 * low):.1f} s of work between two" in said
    assert "Spare" not in said
