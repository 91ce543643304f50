"""`sgdlab rollouts`: the table is that of the library; pages, JSON, logs, and mistakes in one line."""

import csv
import functools
import json
import re

import numpy as np
import optax
import pytest

from sgdlab import rollouts
from sgdlab.rollouts.bias import length_bias
from sgdlab.rollouts.log import RolloutLog

SHORT = ("--steps=20", "--prompts=500", "--batch=4", "--slots=16", "--engines=2")


@pytest.fixture(name="roll")
def roll_here(call):
    return functools.partial(call, "rollouts")


def logged(path, run, *, trained=False):
    """Writes a log of a run as CSV."""
    rows = np.flatnonzero(run.trained() if trained else run.group >= 0)
    with path.open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["t0", "end", "tokens", "version", "group", "step"])
        for row in rows:
            step = run.step[run.group[row]]
            end = "" if np.isnan(run.finished[row]) else run.finished[row]
            writer.writerow(
                [run.started[row], end, run.tokens[row], run.read[row], run.group[row], step if step >= 0 else ""]
            )


def test_all_policies_with_closed_forms(roll, tmp_path):
    code, output, errors = roll(*SHORT, "--eta=1,2", "--workdir=found")
    assert code == 0, errors
    found = json.loads((tmp_path / "found/rollouts.json").read_text())
    work = rollouts.lognormal(prompts=500, group=4, mean=1000.0, sigma=1.0, share=0.5)
    system = rollouts.System(2, 16, batch=4)
    names = [(one["policy"], one["given"]) for one in found["policies"]]
    assert ("admission", {"eta": 2.0}) in names
    assert ("budget", {"theta": 1.0}) in names
    assert len(names) == 5 + 2 * 4
    for one in found["policies"]:
        make = functools.partial(getattr(rollouts, one["policy"]), **one["given"])
        run = rollouts.simulate(work, system, make, num_steps=20)
        assert one["figures"] == run.figures(2) | length_bias(run, work, warmup=2).figures()
        assert one["ledger"] == run.ledger()
    assert found["closed_forms"] == rollouts.predict(work, system).figures()
    rows = list(csv.DictReader((tmp_path / "found/rollouts.csv").read_text().splitlines()))
    assert float(rows[0]["seconds_per_step"]) == found["policies"][0]["figures"]["seconds_per_step"]
    assert max(map(len, output.splitlines())) <= 120
    for words in ("mean staleness by trained rollout", "by the version that made each of them", "<= 2", "rho = "):
        assert words in output
    page = (tmp_path / "found/rollouts.html").read_text()
    assert "data:image/svg+xml" in page
    assert 'src="http' not in page
    assert "of these, by a full queue" in page
    assert (tmp_path / "found/rollouts.png").exists()


def test_who_is_starved_is_said_and_what_to_do(roll):
    code, output, _ = roll("--policy=window,admission", "--steps=60")
    words = " ".join(output.split())
    assert code == 0
    assert "Under `window, lag 1` " in words
    assert "Recommended: `admission, eta 2`: it trains on" in words
    code, output, _ = roll("--policy=window", "--steps=60")
    assert "No policy here has a mean staleness of at most 2 and starves nobody." in " ".join(output.split())


@pytest.mark.parametrize("words", [["never"], ["front"], ["never", "front"]])
def test_prompts_are_tried_again_in_each_way_that_is_named(roll, words):
    code, output, errors = roll(*SHORT, "--policy=window", f"--requeue={','.join(words)}", "--json")
    assert code == 0, errors
    given = [one["given"] for one in json.loads(output)["policies"]]
    assert [one.get("requeue", "never") for one in given] == words


def test_splits_of_the_gpus(roll):
    code, output, errors = roll(*SHORT, "--policy=admission", "--gpus=8", "--json", "--max_staleness=4")
    assert code == 0, errors
    found = json.loads(output)
    assert {one["engines"] for one in found["policies"]} == {1, 2, 3, 4, 5, 6, 7}
    tried = [(one["engines"], one["policy"], str(one["given"])) for one in found["policies"]]
    assert len(set(tried)) == len(tried)
    kept = [one["figures"] for one in found["policies"] if one["figures"]["longest_tenth"] >= 0.5]
    goodput = [figures["goodput"] for figures in kept if figures["staleness"] <= 4]
    assert found["recommended"]["figures"]["goodput"] >= 0.99 * max(goodput)


def test_a_log_is_fitted_and_others_are_predicted(roll, tmp_path):
    work = rollouts.lognormal(prompts=3000, group=4, cap=3000, seed=5)
    system = rollouts.System(1, 48, 80.0, batch=8, train=4.0, transfer=1.0)
    run = rollouts.simulate(work, system, rollouts.queue_drop, num_steps=120)
    logged(tmp_path / "log.csv", run)
    flags = (
        "--log=log.csv",
        "--version=start",
        "--columns=start=t0",
        "--policy=admission,window",
        "--steps=80",
        "--train=4",
    )
    code, output, errors = roll(*flags, "--json")
    assert code == 0, errors
    found = json.loads(output)
    assert found["log"]["staleness"] == pytest.approx(run.figures()["staleness"])
    fitted = found["fitted"]
    assert (fitted["engines"], fitted["slots"], fitted["batch"]) == (1, 48, 8)
    assert fitted["speed"] == pytest.approx(80)
    for one in found["policies"]:
        make = functools.partial(getattr(rollouts, one["policy"]), **one["given"])
        true = rollouts.simulate(work, system, make, num_steps=80).figures(8)
        value, low, high = one["intervals"]["goodput"]
        assert low < value < high
        assert value == pytest.approx(true["goodput"], rel=0.1)
    code, output, errors = roll(*flags, "--gpus=4")
    assert code == 0, errors
    words = " ".join(output.split())
    for said in (
        "The log: ",
        "by token from its rollout's start",
        "Intervals are two standard deviations",
        "GPUs to train",
    ):
        assert said in words


def test_a_recommendation_is_compared_with_the_job_itself(roll, tmp_path):
    """Its log is of the policy that is recommended, beside one that starves; then, of one that is many times slower."""
    work, system = rollouts.lognormal(prompts=3000, group=4, cap=3000, seed=5), rollouts.System(1, 48, 80.0, batch=8)
    flags = ("--log=log.csv", "--version=start", "--columns=start=t0", "--steps=40", "--train=5", "--draws=2")
    for policy, same in ((rollouts.admission, True), (rollouts.synchronous, False)):
        run = rollouts.simulate(work, system, policy, num_steps=50)
        logged(tmp_path / "log.csv", run, trained=not same)
        code, output, errors = roll(*flags, "--policy=window,admission")
        assert code == 0, errors
        words = " ".join(output.split())
        assert "Under `window, lag 1` " in words
        assert "times as many" not in words
        pattern = (
            r"it trains on (\S+) tokens a second \(the log has (\S+), at mean staleness (\S+?)"
            r"(: the job is as fast already)?\) and starves nobody, at mean staleness \S+ by rollout \(largest \d+\)"
        )
        value, had, stale, said = re.search(pattern, words).groups()
        value, had = (float(text.replace(",", "")) for text in (value, had))
        assert had == pytest.approx(run.figures(1)["goodput"], rel=0.1)
        assert float(stale) == pytest.approx(run.figures()["staleness"], rel=0.01)
        assert bool(said) == same
        assert (value < 1.1 * had) == same
        assert ("The log is taken to have all rollouts" in words) == (not same)


def test_a_trainer_step_that_the_log_has_no_time_for_is_refused(roll, tmp_path, monkeypatch):
    monkeypatch.setattr(RolloutLog, "workload", None)
    system = rollouts.System(batch=4, train=2.0, transfer=1.0)
    run = rollouts.simulate(rollouts.lognormal(prompts=300, group=4), system, rollouts.unbounded, num_steps=40)
    logged(tmp_path / "log.csv", run)
    flags = ("--log=log.csv", "--version=start", "--columns=start=t0")
    for given, begin, end in (
        (["--train=8", "--transfer=1.5"], "--train=8 must be less: with --transfer=1.5 it is about ", "not 9.5"),
        (["--train=8", "--hold=none"], "--train=8 must be less: it is about ", "not 8"),
    ):
        code, _, errors = roll(*flags, *given)
        assert code == 2
        (line,) = errors.strip().splitlines()
        assert line.startswith(f"error: {begin}")
        assert line.endswith(f" at most, as versions of the log follow each other, {end}")
        assert 2.8 < float(re.search(r"it is about (\S+) at most", line)[1]) < 3.2
    for train in ("4.5", "2"):  # up to twice as many are not refused, since the bound is not exact
        assert "must be less" not in roll(*flags, f"--train={train}")[2]


@pytest.mark.long("the command as users run it")
def test_what_is_learned_is_what_the_library_learns(roll, tmp_path):
    small = (*SHORT, "--policy=synchronous,admission", "--runs=6", "--trials=2", "--minibatches=2", "--target=0.1")
    code, output, errors = roll(*small, "--learn", "--rules=decoupled", "--workdir=found")
    assert code == 0, errors
    words = " ".join(output.split())
    for said in ("median until the reward is 0.1", "what is done with stale tokens", "8 classes of prompts by length"):
        assert said in words
    assert "Learning" in (tmp_path / "found/rollouts.html").read_text()
    cells = json.loads((tmp_path / "found/rollouts.json").read_text())["learned"]
    names = [(cell["policy"], cell["rule"]) for cell in cells]
    assert names == [("synchronous", "decoupled"), ("admission, eta 2", "decoupled")]
    system, task, trained = rollouts.System(2, 16, batch=4), rollouts.toy(), []
    for seed in range(6):
        work = rollouts.lognormal(prompts=500, group=4, seed=seed)
        run = rollouts.simulate(work, system, rollouts.admission, num_steps=20)
        trained.append(rollouts.TrainedOn.of(run, work, task))
    cell = cells[1]
    own = {"rules": optax.sgd(cell["rate"]), "seeds": range(6), "minibatches": 2}
    found = rollouts.replay(trained, task, rollouts.RATIO_RULES["decoupled"].make(), **own)
    np.testing.assert_allclose(cell["rewards"], found.rewards[:, -1], atol=1e-6)
    reached = [second for second in cell["seconds"] if second is not None]
    assert reached == [second for second in found.seconds_to(0.1) if np.isfinite(second)]


def test_a_log_of_trained_rollouts_is_refused_with_the_reason(roll, tmp_path):
    work, system = rollouts.lognormal(prompts=300, group=4), rollouts.System(batch=4)
    run = rollouts.simulate(work, system, rollouts.window, num_steps=20)
    logged(tmp_path / "log.csv", run, trained=True)
    code, _, errors = roll("--log=log.csv", "--version=start", "--columns=start=t0", "--train=5")
    assert code == 2
    assert "--log=log.csv: it holds trained rollouts alone, and predicts no other policy: " in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rules=none"], "--rules must be left out without --learn"),
        (["--learn", "--rules="], "--rules must name some of none, ppo"),
        (["--learn", "--rules=foo"], "--rules=foo must be one of none, ppo"),
        (["--learn", "--group=1"], "--group=1 must be a whole number of at least 2: an advantage"),
        (["--learn", "--target=2"], "--target=2.0 must be a finite number above 0 and below 1"),
        (["--learn", "--target=nan"], "--target=nan must be a finite number above 0 and below 1"),
        (["--learn", "--runs=1001"], "--runs=1001 must be a whole number from 1 to 1000: there seeds of tuning begin"),
        (["--learn", "--prompts=5", "--steps=4", "--policy=admission"], "--prompts=5 must be at least 8"),
        (["--policy=windows"], "--policy=windows must be one of synchronous, one_step_off, admission"),
        (["--lengths=normal"], "--lengths=normal must be one of lognormal"),
        (["--eta=-1"], "--eta=-1.0 must be a finite number at least 0"),
        (["--eta=two"], "--eta=two must be numbers, separated by commas"),
        (["--lag=1.5"], "--lag=1.5 must be whole numbers, separated by commas"),
        (["--speed=0", "--halved_at=32"], "--speed=0.0 must be a finite number above 0"),
        (["--requeue=top"], "--requeue='top' must be one of never, front, back"),
        (["--share=2"], "--share=2.0 must be a finite number at least 0 and at most 1"),
        (["--speed=0"], "--speed=0.0 must be a finite number above 0"),
        (["--engines=4", "--gpus=4"], "--gpus=4 must be more than the 4 engines"),
        (["--version=end"], "--version must be left out without --log"),
        (["--log=nothing.csv"], "--version must be one of start, end, tokens: which version the log holds"),
        (["--log=nothing.csv", "--version=start"], "--log=nothing.csv must be a file"),
        (
            ["--log=nothing.txt", "--version=start"],
            "--log=nothing.txt: its name must end in one of .parquet, .csv, .jsonl",
        ),
        (
            ["--log=a.csv", "--version=start", "--columns=begin=t0"],
            "--columns='begin' must be one of start, end, tokens",
        ),
        (
            ["--learn", "--rules=clip", *SHORT, "--policy=synchronous"],
            "--rules=clip must be one of none, ppo, decoupled",
        ),
        (["--learn", "--minibatches=3", *SHORT, "--policy=synchronous"], "--minibatches=3 must divide the 4 groups"),
        (["--hold=all"], "--hold=all must be one of none, trainer, engines, both"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(roll, arguments, message):
    code, _, errors = roll(*arguments)
    assert code == 2
    (line,) = errors.strip().splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_help(roll):
    code, output, _ = roll("--help")
    assert code == 0
    for words in (
        "sgdlab rollouts --log=rollouts.parquet --version=start",
        "--policy",
        "--max_staleness",
        "version_fifo",
    ):
        assert words in output
    assert max(map(len, output.splitlines())) <= 120


def test_seconds_of_a_trainer_step_are_asked_for_before_anything_is_drawn(roll, tmp_path, monkeypatch):
    monkeypatch.setattr(RolloutLog, "workload", None)
    system = rollouts.System(batch=4, train=2.0, transfer=1.0)
    run = rollouts.simulate(rollouts.lognormal(prompts=300, group=4), system, rollouts.unbounded, num_steps=20)
    logged(tmp_path / "log.csv", run)
    code, _, errors = roll("--log=log.csv", "--version=start", "--columns=start=t0")
    assert code == 2
    assert "--train must say how many seconds a trainer step takes" in errors
    # The trainer never waits: a version every 3 s, of which the first rollout on it tells.
    assert 2.8 < float(re.search(r"it is about (\S+) at most, as versions of the log follow", errors)[1]) < 3.2
