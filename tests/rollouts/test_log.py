"""A log of rollouts: read in three forms, what it says, and what it predicts of other policies."""

import functools
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from test_rollout_runs import halves

from sgdlab import rollouts
from sgdlab.rollouts.bias import length_bias
from sgdlab.rollouts.log import read_log

OTHERS = {
    "synchronous": {}, "admission": {"eta": 2.0}, "in_order": {"eta": 2.0}, "window": {"lag": 1}, "queue_drop": {},
}  # fmt: skip


def simulated(name, work, system, steps):
    return rollouts.simulate(work, system, functools.partial(getattr(rollouts, name), **OTHERS[name]), num_steps=steps)


def table(run, version="start", kept=slice(None)):
    step = run.step[run.group]
    columns = {
        "start": run.started, "end": run.finished, "tokens": run.tokens, "version": run.read, "group": run.group,
        "step": np.where(step < 0, np.nan, step), "engine": run.engine,
    }  # fmt: skip
    if version == "end":
        over = ~np.isnan(run.finished)
        columns["version"] = np.where(over, np.searchsorted(run.applied, run.finished, side="right"), np.nan)
    if version == "tokens":
        made = np.repeat(run.span_version, run.span_tokens)
        cells = np.split(made, np.cumsum(run.tokens)[:-1])
        columns["version"] = [list(map(int, cell)) or [int(read)] for cell, read in zip(cells, run.read, strict=True)]
    found = {}
    for name, column in columns.items():
        values = column if isinstance(column, list) else np.asarray(column)[kept].tolist()
        found[name] = pa.array([None if value != value else value for value in values])  # noqa: PLR0124 (NaN)
    return pa.table(found)


@pytest.fixture(scope="module", name="run")
def simulated_run():
    work = rollouts.lognormal(prompts=1000, group=4, cap=3000, seed=1)
    return simulated("window", work, rollouts.System(3, 16, batch=8, transfer=0.5), 60)


@pytest.mark.parametrize("version", ["start", "end", "tokens"])
def test_a_log_says_what_was(run, tmp_path, version):
    path = tmp_path / "log.parquet"
    pyarrow.parquet.write_table(table(run, version), path)
    log = read_log(path, version=version)
    np.testing.assert_array_equal(log.over, ~np.isnan(run.finished))
    # The version that was the newest at the end tells little of those that began just as one came.
    assert (log.read == run.read).mean() >= {"start": 1.0, "end": 0.9, "tokens": 0.998}[version]
    found, true = log.figures(), run.figures()
    for name in ("staleness", "token_staleness", "mean_tokens"):
        assert found[name] == pytest.approx(true[name], rel={"start": 1e-12, "end": 0.1, "tokens": 1e-3}[version])
    if version == "tokens":
        assert found["token_staleness_in_flight"] == pytest.approx(true["token_staleness_in_flight"])
    assert found["seconds_per_step"] == pytest.approx(true["seconds_per_step"], rel=0.05)
    assert found["goodput"] == pytest.approx(true["goodput"], rel=0.1)
    ledger = run.ledger()
    assert found["not_trained"] == pytest.approx(1 - ledger["trained"] / sum(ledger.values()))
    assert (log.batch(), log.slots()) == (8, 16)
    assert log.speed() == pytest.approx(100)


def test_goodput_of_a_log_by_hand(tmp_path):
    """Versions come at 2, 4 and 6 s; trained between the first and the last are the 20 and 40 tokens of two steps."""
    columns = {
        "start": [0.0, 2.0, 4.0, 6.0, 6.0], "end": [1.0, 3.0, 5.0, 7.0, None], "tokens": [10, 20, 40, 80, 5],
        "version": [0, 1, 2, 3, 3], "group": [0, 1, 2, 3, 4], "step": [0, 1, 2, 3, None],
    }  # fmt: skip
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    found = read_log(tmp_path / "log.parquet", version="start").figures()
    assert (found["seconds_per_step"], found["goodput"]) == (2.0, (20 + 40) / 4)


def test_the_shortest_step_of_a_log_by_hand(tmp_path):
    """Versions come every 10 s, and every second one is seen 10 s late: at 20, 20, 40, 40, ... 240 s."""
    starts = np.arange(0.0, 241.0, 20.0)
    columns = {
        "start": starts, "end": starts + 1, "tokens": np.ones(13), "version": np.arange(0, 25, 2),
        "group": np.arange(13), "step": np.arange(0, 25, 2),
    }  # fmt: skip
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    assert read_log(tmp_path / "log.parquet", version="start").figures()["shortest_step"] == 10.0
    pyarrow.parquet.write_table(pa.table(columns).slice(0, 1), tmp_path / "log.parquet")
    assert np.isnan(read_log(tmp_path / "log.parquet", version="start").figures()["shortest_step"])


def test_csv_and_json_lines_are_the_same_log(run, tmp_path):
    whole = table(run)
    renamed = whole.rename_columns(["t0" if name == "start" else name for name in whole.column_names])
    pyarrow.csv.write_csv(renamed, tmp_path / "log.csv")
    whole.to_pandas().to_json(tmp_path / "log.jsonl", orient="records", lines=True)
    pyarrow.parquet.write_table(whole, tmp_path / "log.parquet")
    first = read_log(tmp_path / "log.parquet", version="start")
    for log in (
        read_log(tmp_path / "log.csv", version="start", columns={"start": "t0"}),
        read_log(tmp_path / "log.jsonl", version="start"),
    ):
        for name in ("start", "end", "tokens", "read", "group", "step", "engine"):
            np.testing.assert_allclose(getattr(log, name), getattr(first, name), rtol=1e-9)


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_types_of_columns_are_those_of_all_rows(ending, tmp_path):
    """Seconds are whole for longer than a reader looks at first, and the first rollouts were not trained on."""
    names, lines = ("start", "end", "tokens", "version", "group", "step"), []
    for row in range(60_000):
        start = row if row < 50_000 else row + 0.5
        lines.append((start, row + 2, 1, 0, row, "" if row < 50_000 else 0))
    shown = {
        ".csv": [",".join(names), *(",".join(map(str, line)) for line in lines)],
        ".jsonl": [json.dumps({k: v for k, v in zip(names, line, strict=True) if v != ""}) for line in lines],
    }
    path = tmp_path / f"log{ending}"
    path.write_text("\n".join(shown[ending]) + "\n")
    assert read_log(path, version="start").start[-1] == 59_999.5


def test_a_speed_that_falls_with_load_is_fitted(tmp_path):
    work = rollouts.lognormal(prompts=4000, group=4, cap=4000, seed=1)
    true = rollouts.LoadedSpeed(200.0, 20.0)
    for name, speed in (("synchronous", true), ("synchronous", 64.0), ("window", 64.0)):
        run = simulated(name, work, rollouts.System(3, 16, speed, batch=12), 40)
        pyarrow.parquet.write_table(table(run), tmp_path / "log.parquet")
        fitted = read_log(tmp_path / "log.parquet", version="start").speed()
        if speed is true:
            assert [fitted(busy) for busy in (1, 16)] == pytest.approx([true(busy) for busy in (1, 16)], rel=0.1)
        else:
            assert fitted == pytest.approx(speed)
    assert halves(1) == 64.0


def test_a_rollout_that_took_no_time_changes_no_speed(tmp_path):
    work = rollouts.lognormal(prompts=4000, group=4, cap=4000, seed=1)
    run = simulated("synchronous", work, rollouts.System(3, 16, rollouts.LoadedSpeed(200.0, 20.0), batch=12), 40)
    columns = table(run).to_pydict()
    before = speed_of(columns, tmp_path)
    columns["end"][0] = columns["start"][0]
    after = speed_of(columns, tmp_path)
    assert [after(busy) for busy in (1, 16)] == pytest.approx([before(busy) for busy in (1, 16)], rel=0.01)


def speed_of(columns, tmp_path):
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    return read_log(tmp_path / "log.parquet", version="start").speed()


def test_what_still_ran_is_drawn_longer_than_it_had_become(tmp_path):
    # At the end of a short run of long rollouts, half of the groups are not over, and these are the long ones.
    work = rollouts.lognormal(prompts=30_000, group=4, sigma=0.8, share=0.4, seed=3)
    run = rollouts.simulate(work, rollouts.System(8, 256, batch=16, train=0.5), rollouts.unbounded, num_steps=25)
    pyarrow.parquet.write_table(table(run), tmp_path / "log.parquet")
    log = read_log(tmp_path / "log.parquet", version="start")
    begun = work.tokens[0, run.prompt].mean()
    over = log.tokens[log.over].mean()
    means = [log.workload(seed=seed).mean() for seed in range(3)]
    assert log.over.mean() < 0.8
    assert over < 0.9 * begun
    assert np.mean(means) == pytest.approx(begun, rel=0.05)
    fitted = log.workload(prompts=30_000)
    for pair in (slice(0, 2), slice(1, 3)):  # attempts at one prompt, the first of them of the log
        between = [np.cov(*np.log(one.tokens[pair].mean(axis=2)))[0, 1] for one in (work, fitted)]
        assert between[1] == pytest.approx(between[0], rel=0.15)


def errors(logged, seed, steps, path):
    """Largest errors of predictions from a log: seconds a step (relative), shares, waste."""
    work = rollouts.lognormal(prompts=60_000, group=4, cap=4096, seed=100 + seed)
    system = rollouts.System(4, 64, 100.0, batch=32, train=5.0, transfer=1.0)
    pyarrow.parquet.write_table(table(simulated(logged, work, system, steps)), path)
    log = read_log(path, version="start")
    fitted = log.workload(seed=seed)
    known = rollouts.System(4, log.slots(), log.speed(), batch=log.batch(), train=5.0, transfer=1.0)
    worst = np.zeros(3)
    for name in OTHERS:
        runs = simulated(name, work, system, steps), simulated(name, fitted, known, steps)
        true, found = (run.figures(steps // 10) for run in runs)
        shares = [length_bias(run, of, warmup=steps // 10).shares for run, of in zip(runs, (work, fitted), strict=True)]
        error = [abs(found["seconds_per_step"] / true["seconds_per_step"] - 1), np.abs(shares[0] - shares[1]).max()]
        worst = np.maximum(worst, [*error, abs(found["wasted"] - true["wasted"])])
    return worst


@pytest.mark.parametrize("logged", ["admission", "window"])
def test_a_log_of_all_groups_predicts_other_policies(logged, tmp_path):
    assert (errors(logged, 0, 150, tmp_path / "log.parquet") < [0.04, 0.04, 0.04]).all()


@pytest.mark.full
@pytest.mark.parametrize("logged", ["admission", "window"])
def test_it_does_in_nine_of_ten_draws(logged, tmp_path):
    draws = [(errors(logged, seed, 300, tmp_path / "log.parquet") < 0.03).all() for seed in range(10)]
    assert sum(draws) >= 9


def test_trained_rollouts_alone_predict_nothing(run, tmp_path):
    pyarrow.parquet.write_table(table(run, kept=run.trained()), tmp_path / "log.parquet")
    log = read_log(tmp_path / "log.parquet", version="start")
    assert log.figures()["staleness"] == pytest.approx(run.figures()["staleness"])
    with pytest.raises(ValueError, match="it holds trained rollouts alone, and predicts no other policy: those that"):
        log.workload()


@pytest.mark.parametrize(("engines", "slots"), [(3, 8), (2, 64)])
def test_a_synchronous_log_of_trained_rollouts_has_all_there_are(engines, slots, tmp_path):
    """With fewer slots than rollouts of a step, and with more."""
    work = rollouts.lognormal(prompts=500, group=4, cap=3000, seed=4)
    run = simulated("synchronous", work, rollouts.System(engines, slots, batch=8), 60)
    pyarrow.parquet.write_table(table(run, kept=run.trained()), tmp_path / "log.parquet")
    drawn = read_log(tmp_path / "log.parquet", version="start").workload(prompts=5000).tokens[0]
    begun = {tuple(group) for group in work.tokens[0, : 8 * 60].tolist()}
    assert {tuple(group) for group in drawn.tolist()} == begun
    assert drawn.mean() == pytest.approx(work.tokens[0, : 8 * 60].mean(), rel=0.03)


def changed(columns, row, **cells):
    return {name: [*cell[:row], cells.get(name, cell[row]), *cell[row + 1 :]] for name, cell in columns.items()}


def test_trained_rollouts_that_may_not_be_all_are_refused(tmp_path):
    """Fresh ones of a job that throws away what is stale; then a synchronous log with one thing wrong at a time."""
    work = rollouts.lognormal(prompts=500, group=4, cap=3000, seed=4)
    logs = []
    for given in ({"lag": 0}, {"lag": 0, "stale": "abort"}, {"lag": 0, "gate": 1.0}):
        run = rollouts.simulate(
            work, rollouts.System(3, 16, batch=8), functools.partial(rollouts.window, **given), num_steps=30
        )
        assert run.staleness().max() == 0
        assert run.tokens[run.trained()].mean() < 0.7 * work.mean()
        logs.append(table(run, kept=run.trained()).to_pydict())
    run = simulated("synchronous", work, rollouts.System(3, 8, batch=8), 20)
    whole = table(run, kept=run.trained()).to_pydict()
    kept = lambda keep: {
        name: [cell for cell, ok in zip(column, keep, strict=True) if ok] for name, column in whole.items()
    }
    last = len(whole["step"]) - 1
    logs += [
        kept([step != 7 for step in whole["step"]]),
        kept([group != 9 for group in whole["group"]]),
        kept([row % 32 != 11 for row in range(last + 1)]),  # one of each step
        changed(whole, last, version=18),
        changed(whole, last, end=None),
        whole | {"group": [group % 8 for group in whole["group"]]},
    ]
    for columns in logs:
        pyarrow.parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
        with pytest.raises(ValueError, match="it holds trained rollouts alone"):
            read_log(tmp_path / "log.parquet", version="start").workload()
    pyarrow.parquet.write_table(pa.table(whole), tmp_path / "log.parquet")
    read_log(tmp_path / "log.parquet", version="start").workload()


GOOD = {
    "start": [0.0, 0.0, 5.0], "end": [4.0, 5.0, None], "tokens": [400, 500, 20], "version": [0, 0, 1],
    "group": [0, 1, 2], "step": [0, 1, None],
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": None}, r"it must have a column 'version' \(version\); it has start, end"),
        ({"end": [4.0, -1.0, None]}, r"^row 2: end=-1\.0 must be no earlier than its start$"),
        ({"tokens": [400, None, 20]}, "^row 2: tokens=None must be at least 0, and known where the rollout is over$"),
        ({"tokens": [400, 500, -5]}, "^row 3: tokens=-5 must be at least 0"),
        ({"start": [0.0, None, 5.0]}, "^row 2: start=None must be a number of seconds$"),
        ({"step": [None, None, None]}, "it must have rows with a 'step': nothing was trained on"),
        ({"step": ["a", "b", "c"]}, "its column 'step' must hold numbers, not 'a'"),
        ({"version": [0, None, 1]}, "its column 'version' must hold a version in every row"),
        ({"version": [0, 2, 1]}, "'step' must be no smaller than the version on which a rollout began"),
        ({}, "it has 3 groups, and at least 10 are needed"),
    ],
)
def test_what_is_no_log_is_refused(change, message, tmp_path):
    columns = {name: values for name, values in (GOOD | change).items() if values is not None}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "log.parquet")
    with pytest.raises(ValueError, match=message):
        read_log(tmp_path / "log.parquet", version="start").workload()


def test_a_row_of_csv_is_the_line_of_the_file(tmp_path):
    (tmp_path / "log.csv").write_text("start,end,tokens,version,group,step\n0,4,400,0,0,0\n0,5,-5,0,1,1\n")
    with pytest.raises(ValueError, match=r"^row 3: tokens=-5 must be at least 0"):
        read_log(tmp_path / "log.csv", version="start")
