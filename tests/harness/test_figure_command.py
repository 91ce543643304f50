"""A function of keyword arguments as a command: its flags, its help, and mistakes in one line."""

import json
import shutil
from typing import Literal

import pandas as pd
import pytest
from sweep_works import doubled

from experiments import papers
from experiments.harness import Claim, Count, Output, Positive, Scale, Sweep, Whole, command, figure, figures
from experiments.harness.machine import duration
from experiments.harness.options import options
from sgdlab.errors import RunFailed


def squares(
    *,
    numbers: list[Whole] = (1, 2, 3),
    factor: Positive = 1.0,
    kind: Literal["sum", "mean"] = "sum",
    signed: bool = False,
    limit: Count | None = None,
) -> Output:
    """Squares numbers.

    Args:
      numbers: what is squared,
        one after the other.
      factor: of each square.
      kind: what is claimed.
      signed: makes them negative.
      limit: the largest that is squared.
    """
    found = [factor * number**2 * (-1 if signed else 1) for number in numbers if limit is None or number <= limit]
    table = pd.DataFrame({"number": numbers[: len(found)], "ours": found, "paper": [1.0, *[None] * (len(found) - 1)]})
    claim = Claim(f"the {kind} is 14", "here", f"{sum(found):g}", sum(found) == 14, identity=True)
    return Output(table, claims=[claim])


@pytest.fixture(name="made")
def a_figure(declare):
    """The figure under the name of a module of a paper."""
    return declare(squares, smoke=Scale("1 s", numbers=(1,)))


@pytest.fixture(name="call")
def calls(made, capsys, tmp_path):
    """Runs the command: exit code, output and errors."""

    def call(*arguments):
        capsys.readouterr()
        code = command.answer(["gossip.squares", f"--workdir={tmp_path}", *arguments])
        seen = capsys.readouterr()
        return code, seen.out, seen.err

    return call


def facts(tmp_path, scale="laptop"):
    return json.loads((tmp_path / "gossip.squares" / scale / "claims.json").read_text())


def changed(tmp_path):
    """The directory of the results with custom arguments."""
    (found,) = (tmp_path / "gossip.squares").glob("laptop-*")
    return found


def test_flags_are_the_functions_arguments(call, tmp_path):
    assert call("--numbers=1,2", "--factor=3", "--signed")[0] == 0
    other = changed(tmp_path)
    assert pd.read_csv(other / "table.csv").ours.tolist() == [-3.0, -12.0]
    assert facts(tmp_path, other.name)["changed"] == {"numbers": "1,2", "factor": "3", "signed": "True"}
    assert not (tmp_path / "gossip.squares" / "laptop").exists()  # a trial replaces no result
    shutil.rmtree(other)
    assert call("--limit=2")[0] == 0
    assert pd.read_csv(changed(tmp_path) / "table.csv").difference.tolist()[0] == 0.0


def test_a_scale_has_its_own_defaults_and_directory(call, tmp_path):
    assert call("--scale=smoke")[0] == 0
    assert facts(tmp_path, "smoke")["claims"][0]["ours"] == "1"
    assert call()[0] == 0
    assert facts(tmp_path)["claims"][0]["verdict"] == "holds"
    assert facts(tmp_path)["changed"] == {}


def test_help_says_what_the_function_does_and_takes(call):
    code, output, _ = call("--help")
    assert code == 0
    for words in ("--numbers: what is squared, one after the other. (default: 1,2,3)", "--kind: what is claimed.",
                  "  smoke   1 s", "--workdir", "--jobs", "--shard", "Jin et al. 2016, Figure 2"):  # fmt: skip
        assert words in output
    assert "(default: 1)" in call("--scale=smoke", "--help")[1]


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--numbers=1,x", "--numbers=1,x must be whole numbers of at least 0, separated by commas"),
        ("--numbers=", "--numbers= must be whole numbers"),
        ("--factor=0", "--factor=0 must be a finite number above 0"),
        ("--factor=nan", "--factor=nan must be a finite number above 0"),
        ("--kind=max", "--kind=max must be one of sum, mean"),
        ("--limit=0", "--limit=0 must be a whole number of at least 1"),
        ("--scale=paper", "--scale=paper must be one of smoke, laptop"),
        ("--shard=3/2", "--shard='3/2' must be like 2/8"),
        ("--jobs=0", "jobs"),
        ("--colour=red", "--colour is not a flag"),
        ("--config.seed=1", "is not a flag of this command"),
    ],
)
def test_a_mistake_is_one_line(call, flag, words):
    code, _, errors = call(flag)
    (line,) = errors.strip().splitlines()
    assert code == 2
    assert words in line


def test_a_figure_that_is_not_there_is_answered_by_the_nearest(made, capsys):
    assert command.answer(["gossip.square"]) == 2
    assert "did you mean gossip.squares?" in capsys.readouterr().err


def test_numbers_have_the_digits_that_their_intervals_allow(declare, tmp_path):
    def measured() -> Output:
        """Measures."""
        return Output(pd.DataFrame({"ours": [94.2113, 3.14159], "±": [0.087, float("nan")], "paper": [95.0, 3.0]}))

    declare(measured)
    assert command.answer(["gossip.measured", f"--workdir={tmp_path}"]) == 0
    rows = (tmp_path / "gossip.measured/laptop/table.md").read_text()
    assert [line.split()[1:4:2] for line in rows.splitlines() if "94." in line or "3.1" in line] == [
        ["94.21", "0.09"],
        ["3.142", "|"],
    ]


def test_python_calls_are_checked_too(made):
    assert made(numbers=(2,)).table.ours.tolist() == [4.0]
    with pytest.raises(ValueError, match="factor=-1 must be a finite number above 0"):
        made(factor=-1)
    with pytest.raises(ValueError, match="factors=1 must be one of numbers, factor"):
        made(factors=1)


def test_scales_are_checked_where_they_are_written():
    scales = {"smoke": Scale("1 s", numbers=(-1,)), "laptop": Scale("2 s")}
    with pytest.raises(ValueError, match="numbers=-1 must be"):
        figure(papers.GOSSIP, "Figure 2", scales=scales, differs="")(squares)
    with pytest.raises(ValueError, match="must hold laptop"):
        figure(papers.GOSSIP, "Figure 2", scales={"smoke": Scale("1 s")}, differs="")(squares)
    with pytest.raises(ValueError, match="'colour' must be one of numbers"):
        figure(papers.GOSSIP, "Figure 2", scales={"smoke": Scale("1 s", colour=1)}, differs="")(squares)


def test_a_figure_of_full_size_has_the_larger_scales_too(declare, tmp_path):
    scales = {"smoke": Scale("1 s", numbers=(1,)), "laptop": Scale("2 s", numbers=(1, 2))}
    whole = declare(squares, full_size=True, **scales)
    assert list(whole.scales) == ["smoke", "laptop", "gpu", "paper"]
    assert whole.values("paper") == whole.values("laptop") != whole.values("smoke")
    assert command.answer(["gossip.squares", "--scale=paper", f"--workdir={tmp_path}"]) == 0
    assert facts(tmp_path, "paper")["claims"][0]["ours"] == "5"
    with pytest.raises(ValueError, match="paper must be left out, or full_size=True"):
        figure(papers.GOSSIP, "Figure 2", scales=scales | {"paper": Scale("a day")}, differs="", full_size=True)(
            squares
        )


def test_a_table_needs_the_columns_ours_and_paper():
    with pytest.raises(ValueError, match=r"\(mine\) must hold ours and paper too"):
        Output(pd.DataFrame({"mine": [1]}))


def test_an_argument_without_a_default_is_refused():
    def lacking(*, seeds: Count) -> Output: ...

    with pytest.raises(ValueError, match="seeds must have a default"):
        options(lacking)


@pytest.mark.parametrize("error", [KeyError("one"), MemoryError(), ValueError("operands differ"), OSError("disk full")])
def test_all_goes_on_after_a_figure_that_fails(error, declare, tmp_path, capsys):
    def broken() -> Output:
        """Fails."""
        raise error

    declare(broken)
    declare(squares)
    assert command.answer(["all", "--scale=smoke", f"--workdir={tmp_path}"]) == 1
    assert "gossip.broken failed" in capsys.readouterr().err
    assert facts(tmp_path, "smoke")["claims"]


def test_all_says_where_it_is_and_sums_up(declare, tmp_path, capsys):
    def swept() -> Output:
        """Sweeps."""
        runs = Sweep({}, {"value": range(3)}, work=doubled).table()
        return Output(runs.assign(ours=runs["product"], paper=None), claims=[Claim("it is open", "here", "so", None)])

    for name in ("gossip.swept", "gossip.again"):
        declare(swept, name, laptop=Scale("3 min"))
    declare(squares)
    assert command.answer(["all", "--scale=laptop", f"--workdir={tmp_path}", "--jobs=1"]) == 0
    seen = capsys.readouterr().out
    assert "=== [1/3] gossip.swept: Sweeps (3 min; 3 left, 6 min at most)" in seen
    assert "=== [3/3] gossip.squares: " in seen
    rows = [line.split() for line in seen[seen.rindex("\nfigure") :].splitlines()[3:]]
    assert [row[0] for row in rows] == ["gossip.swept", "gossip.again", "gossip.squares", "all,"]
    counts = [row[-4:] for row in rows]  # that hold, fail, are inconclusive, are not in our regime; no identities
    assert counts == [["0", "0", "1", "0"], ["0", "0", "1", "0"], ["0", "0", "0", "0"], ["0", "0", "2", "0"]]
    stored = [json.loads(file.read_text().splitlines()[-1]) for file in tmp_path.glob("runs/*.jsonl")]
    assert len(stored) == 3
    total = sum(record["compute_seconds"] for record in stored)  # once, though two figures have them
    assert rows[-1][6:8] == [*duration(total).split()]


def test_an_error_that_is_no_argument_s_is_not_called_a_flag(made, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(Claim, "__post_init__", lambda claim: pd.DataFrame({"a": [1]}).merge(pd.DataFrame({"b": [1]})))
    assert command.answer(["gossip.squares", f"--workdir={tmp_path}"]) == 1
    assert "error: --" not in capsys.readouterr().err


def test_a_shard_of_a_figure_ends_well_and_says_what_is_left(declare, tmp_path, capsys):
    def swept() -> Output:
        """Sweeps."""
        runs = Sweep({}, {"value": range(12)}, work=doubled).table()
        return Output(runs.assign(ours=runs["product"], paper=None))

    declare(swept)
    declare(squares)
    line = ["gossip.swept", f"--workdir={tmp_path}", "--jobs=1"]
    assert command.answer([*line, "--shard=1/2"]) == 0
    assert "of 12 runs are left to other shards" in capsys.readouterr().out
    assert not (tmp_path / "gossip.swept").exists()
    assert command.answer([*line, "--shard=2/2"]) == 0
    assert (tmp_path / "gossip.swept" / "laptop" / "table.csv").exists()
    assert command.answer(["all", "--scale=laptop", f"--workdir={tmp_path}"]) == 0
    found = json.loads((tmp_path / "gossip.squares" / "laptop" / "claims.json").read_text())
    assert found["computing_seconds"] == 0  # the runs of the figure before it are not its own


def test_a_module_that_cannot_be_read_keeps_no_other(made, monkeypatch, capsys):
    def find(name):
        if name == "gossip.mine":
            raise RunFailed("error: experiments/gossip/mine.py failed")
        return made

    monkeypatch.setattr(figures, "names", lambda: ["gossip.mine", "gossip.squares"])
    monkeypatch.setattr(figures, "find_figure", find)
    assert command.answer(["list"]) == 0
    seen = capsys.readouterr()
    assert "gossip.squares" in seen.out
    assert "gossip.mine cannot be read" in seen.err
