"""Flags that say which trace is read and how: the trace alone, exactly one of them, mistakes in one line."""

import pytest

from sgdlab.commands import launch, shared_flags
from sgdlab.traces import Options


@pytest.fixture
def answer(capsys):
    """(arguments) -> the path and the options, or what is said of a mistake."""

    def answered(*arguments):
        seen = []
        code = launch.Command(
            main=lambda argv: seen.append((shared_flags.trace_path(argv), shared_flags.trace_options())),
            usage="Reads a trace.",
            configured=False,
            positional=True,
            define=shared_flags.define_trace,
        ).answer(["sgdlab advise", *arguments])
        said = capsys.readouterr().err
        assert (code == 2) == (not seen)
        return seen[0] if seen else said

    return answered


@pytest.mark.parametrize(
    ("arguments", "path", "options"),
    [
        (["--trace=a.csv"], "a.csv", {}),
        (["a.csv"], "a.csv", {}),
        (["logs/rank*.csv", "--unit=ms"], "logs/rank*.csv", {"unit": "ms"}),
        (["a.csv", "--columns=rank,iteration,time_ms"], "a.csv", {"columns": ("rank", "iteration", "time_ms")}),
        (["a.csv", "--columns", "worker=rank,duration=time"], "a.csv", {"columns": ("worker=rank", "duration=time")}),
        (["a.csv", "--skip_bad_rows", "--workers_per_node=4"], "a.csv", {"skip_bad_rows": True, "workers_per_node": 4}),
        (["--trace_format=csv", "a.log"], "a.log", {"format": "csv"}),
        (["--recording=runs/live/recording.npz"], None, {}),
    ],
)
def test_one_trace_and_how_it_is_read(answer, arguments, path, options):
    assert answer(*arguments) == (path, Options(**options))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--trace must name a file of recorded times"),
        (["a.csv", "b.csv"], "b.csv"),
        (["--trace=a.csv", "b.csv"], "b.csv must be left out beside --trace=a.csv"),
        (["--trace=a.csv", "--recording=b.npz"], "--recording=b.npz must be left out beside --trace=a.csv"),
        (["--recording=b.npz", "a.csv"], "a.csv must be left out beside --recording=b.npz"),
        (["a.csv", "--unit=minutes"], "--unit=minutes must be one of s, ms, us, ns"),
        (["a.csv", "--workers_per_node=0"], "workers_per_node"),
        (["a.csv", "--colums=a,b,c"], "--colums is not a flag; did you mean --columns=a,b,c?"),
    ],
)
def test_mistakes_are_one_line(answer, arguments, words):
    said = answer(*arguments)
    assert words in said
    assert said.count("\n") == 1
