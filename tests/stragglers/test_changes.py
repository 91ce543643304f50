"""Changes between two traces: planted ones are found, and what cannot be told apart is called unchanged."""

import json

import numpy as np
import pytest
from scipy import stats

from sgdlab.commands import advise
from sgdlab.stragglers import changes
from sgdlab.stragglers.changes import LEVEL, find_changes
from sgdlab.stragglers.comparison import halves
from sgdlab.traces import Recording

STEPS, WORKERS = 200, 8


def drawn(seed, law="gamma"):
    random = np.random.default_rng(seed)
    times = random.gamma(100.0, 0.01, (STEPS, WORKERS))
    if law == "one slow":
        times[:, 1] *= 1.4
    if law == "unequal":
        times *= np.linspace(0.9, 1.1, WORKERS)
    if law == "steps vary":
        times *= np.exp(0.08 * random.normal(size=(STEPS, 1)))
    if law == "lognormal":
        times = random.lognormal(sigma=0.5, size=times.shape)
    if law == "pauses":
        times[random.integers(20) :: 20] *= 3.0
    if law == "tails":
        times *= np.where(random.random(times.shape) < 0.01, 4.0, 1.0)
    return times


def compared(before, after, workers="abcdefgh", others=None):
    pair = [
        Recording(each, np.arange(len(each)), tuple(names))
        for each, names in ((before, workers), (after, others or workers))
    ]
    return find_changes(*pair, ("before.csv", "after.csv"))


def changes_of(found):
    return {row.what: row for row in found.rows}


def verdicts(found):
    return {row.what: row.verdict for row in found.changed}


def test_workers_seconds_and_causes_that_changed_are_named_and_no_others():
    before, after = drawn(0), drawn(1)
    before[:, 5] *= 1.5
    after[:, 2] *= 1.3
    found = compared(before, after)
    assert verdicts(found) == {
        "seconds per step": "faster",
        "straggler cost": "smaller",
        "f": "faster",
        "c": "slower",
        "slow: f": "went",
        "slow: c": "came",
    }
    rows = {row.what: row for row in found.rows}
    assert rows["seconds per step"].change == pytest.approx(after.max(axis=1).mean() / before.max(axis=1).mean(), 0.01)
    for name, factor in (("f", 1 / 1.5), ("c", 1.3), ("a", 1.0)):
        assert rows[name].low < factor < rows[name].high
    healthy = [np.median(np.delete(each, [2, 5], axis=1), axis=1).mean() for each in (before, after)]
    assert rows["seconds of the median worker"].change == pytest.approx(healthy[1] / healthy[0], rel=0.001)
    mended = np.median(np.delete(before, 5, axis=1), axis=1)
    cost = (before.max(axis=1) - np.maximum(np.delete(before, 5, axis=1).max(axis=1), mended)).mean()
    assert rows["slow: f"].before == pytest.approx(cost / before.max(axis=1).mean(), rel=0.01)
    assert found.sentence() == (
        "Changed: seconds per step faster and straggler cost smaller; worker c slower and worker f faster; "
        "slow: f went and slow: c came."
    )


def test_a_slower_cluster_is_no_change_of_its_workers_and_pauses_come():
    after = 1.2 * np.concatenate([drawn(3) for _ in range(5)])
    after[::10] *= 2.0
    found = verdicts(compared(drawn(2), after))
    assert found == {"seconds per step": "slower", "seconds of the median worker": "slower", "pauses": "came"}


def test_a_slower_cluster_costs_what_its_steps_take_longer():
    after = drawn(3)
    after[100:] *= 1.5
    (row,) = [row for row in compared(drawn(2), after).rows if row.what == "all slower"]
    longest = after.max(axis=1)
    assert row.after == pytest.approx(longest[100:].sum() * (1 - 1 / 1.5) / longest.sum(), rel=0.02)
    assert row.before == 0.0


def test_a_drift_costs_what_it_is_on_average_and_not_at_its_end():
    drift = np.exp(np.linspace(0.0, 0.5, STEPS))
    after = drawn(3) * drift[:, None]
    (row,) = [row for row in compared(drawn(2), after).rows if row.what == "drift"]
    longest = after.max(axis=1)
    assert row.after == pytest.approx(1 - (longest / drift).sum() / longest.sum(), rel=0.1)
    assert row.before == 0.0


def test_what_both_have_is_worse_or_better():
    before, after = drawn(4, "one slow"), drawn(5, "one slow")
    after[:, 1] *= 1.3
    assert verdicts(compared(before, after))["slow: b"] == "worse"
    assert verdicts(compared(after, before))["slow: b"] == "better"


def test_workers_of_one_trace_alone_are_told_and_the_others_compared_by_name():
    before, after = drawn(6), drawn(7)[:, ::-1]
    before[:, 0] *= 1.5
    found = compared(before, after, "abcdefgh", "xbcdefgh")
    assert found.only == (["a"], ["x"])
    assert [row.what for row in found.rows if row.kind == "worker"] == list("bcdefgh")
    assert found.table().notes == ["In before.csv alone: worker a.", "In after.csv alone: worker x."]
    assert verdicts(found)["slow: a"] == "went"


@pytest.mark.parametrize("since", [60, 73, 150])
def test_a_fault_that_began_in_the_first_trace_and_was_mended_is_told(since):
    before, after = drawn(0), drawn(1)
    before[since:, 3] *= 1.5
    found = compared(before, after)
    assert {"seconds per step": "faster", "d": "faster", "slow: d": "went"}.items() <= verdicts(found).items()
    ratio = changes_of(found)["seconds per step"]
    assert ratio.low < ratio.change < ratio.high < 1  # the course of the fault is no noise
    assert ratio.change == pytest.approx(after.max(axis=1).mean() / before.max(axis=1).mean(), rel=0.03)
    # One that goes on in the second trace from its beginning has become worse; in the middle of both, nothing changed.
    after[:, 3] *= 1.5
    assert verdicts(compared(before, after))["slow: d"] == "worse"


@pytest.mark.long("400 traces, each diagnosed")
@pytest.mark.parametrize("law", ["gamma", "one slow", "unequal", "steps vary", "lognormal", "pauses", "tails"])
@pytest.mark.representatives("tails")
def test_of_pairs_of_one_law_at_most_a_twentieth_claims_a_change(law):
    claims = [bool(compared(drawn([one, 0], law), drawn([one, 1], law)).changed) for one in range(200)]
    assert sum(claims) <= 10


def test_intervals_are_welchs_where_blocks_are_independent():
    random = np.random.default_rng(0)
    before, after = random.normal(1.0, 0.1, (7, 1)), random.normal(2.0, 0.3, (9, 1))
    welch = stats.ttest_ind(after[:, 0], before[:, 0], equal_var=False)
    expected = welch.confidence_interval(1 - LEVEL)
    difference, margin = halves.find_differences(before, after, LEVEL, lambda correlations: 0.0)
    assert (*(difference - margin), *(difference + margin)) == pytest.approx(tuple(expected), rel=1e-9)
    _, wider = halves.find_differences(before, after, LEVEL, lambda correlations: 0.6)  # a quarter as many blocks
    quantiles = [stats.t.isf(LEVEL / 2, welch.df / fewer) for fewer in (1, 4)]
    assert wider[0] / margin[0] == pytest.approx(2 * quantiles[1] / quantiles[0])


def test_what_is_linear_in_a_clear_course_is_no_noise():
    random = np.random.default_rng(1)
    course = (np.arange(10) >= 4).astype(float)[:, None]
    noise, after = random.normal(0.0, 0.1, (10, 1)), random.normal(2.0, 0.1, (9, 1))
    none = lambda correlations: 0.0
    before = noise + 3.0 * course
    difference, margin = halves.find_differences(before, after, LEVEL, none, (course, None))
    slopes = np.polynomial.polynomial.polyfit(course[:, 0], before[:, 0], 1)
    rest = before[:, 0] - np.polynomial.polynomial.polyval(course[:, 0], slopes)
    parts = (rest**2).sum() / 8 / 10, after.var(ddof=1) / 9  # eight degrees of freedom are left
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / 8 + parts[1] ** 2 / 8)
    assert difference == pytest.approx(after.mean() - before.mean())
    assert margin == pytest.approx(stats.t.isf(LEVEL / 2, degrees) * np.sqrt(sum(parts)))
    # Noise it is where the course leaves more of it, or has as many columns as nearly explain all.
    swings, many = noise + 0.3 * course, random.normal(size=(10, 8))
    for values, known in ((swings, course), (before, many)):
        plain = halves.find_differences(values, after, LEVEL, none)[1]
        assert halves.find_differences(values, after, LEVEL, none, (known, None))[1] == plain


def test_the_course_of_few_causes_of_workers_is_known():
    times = drawn(0)
    for worker, since in ((1, 30), (3, 100), (6, 160)):
        times[since:, worker] *= 1.2 + 0.2 * worker
    side = changes._Side(Recording(times, np.arange(STEPS), tuple("abcdefgh")))
    assert len(side.found) >= 3
    assert side.course().shape == (10, 2)
    swing = drawn(1)
    swing[100:] *= 1.5  # of the whole cluster
    side = changes._Side(Recording(swing, np.arange(STEPS), tuple("abcdefgh")))
    assert side.found
    assert side.course().shape == (10, 0)


def answer(*argv):
    return advise.COMMAND.answer(["advise", *argv])


@pytest.fixture(name="pair")
def two_files(tmp_path):
    before, after = drawn(8), drawn(9)
    after[:, 5] *= 1.5
    for name, times in (("before", before), ("after", after)):
        np.savetxt(tmp_path / f"{name}.csv", times, delimiter=",", header="a,b,c,d,e,f,g,h", comments="")
    return str(tmp_path / "before.csv"), str(tmp_path / "after.csv")


def test_the_command_prints_a_table_and_writes_page_and_json(pair, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(changes, "SHOWN", 3)
    before, after = pair
    assert answer(f"--compare={before}", after, f"--workdir={tmp_path / 'out'}") == 0
    printed = capsys.readouterr().out
    assert "worker f slower" in printed
    assert "5 more workers stand in changes.json." in printed
    found = json.loads((tmp_path / "out" / "changes.json").read_text())
    assert found["names"] == ["before.csv", "after.csv"]
    assert {row["what"]: row["verdict"] for row in found["rows"]}["f"] == "slower"
    page = (tmp_path / "out" / "changes.html").read_text()
    assert "From before.csv to after.csv" in page
    assert page.count("<td>slower</td>") >= 2


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "must be followed by a second trace: --compare=BEFORE AFTER"),
        (["AFTER", "third.csv"], "'third.csv' must be left out"),
        (["AFTER", "--what_if"], "--what_if must be left out beside --compare="),
        (["AFTER", "--metrics=0"], "--metrics must be left out beside --compare="),
        (["--follow=x"], "--compare must be left out beside --follow=x"),
        (["nothing.csv"], "--compare=nothing.csv must be a file"),
    ],
)
def test_mistakes_are_one_line(pair, more, words, capsys, tmp_path):
    more = [pair[1] if word == "AFTER" else word for word in more]
    assert answer(f"--compare={pair[0]}", *more, f"--workdir={tmp_path}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
