"""`sgdlab advise --follow`: what is printed and kept while a trace grows, and how it ends."""

import json
import types

import pytest
from planted_traces import noise

from sgdlab.commands import advise, follow
from sgdlab.errors import UsageError
from sgdlab.stragglers.follow.alarms import AlarmFile
from sgdlab.stragglers.follow.follower import Follower
from sgdlab.traces.options import Options

HEADER = "worker,step,duration\n"


def text_of(runtimes, first=0):
    rows = [f"{w},{first + t},{seconds:.6f}" for t, row in enumerate(runtimes) for w, seconds in enumerate(row)]
    return "\n".join([*rows, ""])


def slow(steps=400, since=200, seed=0):
    runtimes = noise(steps, 8, seed)
    runtimes[since:, 5] *= 1.6
    return runtimes


class Time:
    """A clock, and a sleep that lets a writer write."""

    def __init__(self, writes=()):
        self.now, self.writes = 0.0, list(writes)

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += max(seconds, 0.01)
        if self.writes:
            self.writes.pop(0)()


def followed(path, tmp_path, *writes, until_idle=5.0, as_json=False, shown=None):
    time = Time(writes)
    follower = Follower(path, Options(), clock=time.clock)
    with AlarmFile(tmp_path / "alarms.jsonl", str(path), clock=time.clock) as file:
        ended = follow.follow(
            follower,
            file,
            follow._Terminal(as_json=as_json),
            show=None if shown is None else lambda finished: shown.append(follower.state(finished=finished)),
            until_idle=until_idle,
            clock=time.clock,
            sleep=time.sleep,
        )
    return follower, ended


def kept(tmp_path):
    return [json.loads(line) for line in (tmp_path / "alarms.jsonl").read_text().splitlines()]


def appending(path, text):
    def write():
        with path.open("a") as file:
            file.write(text)

    return write


def test_a_trace_that_grows_is_read_as_it_grows(tmp_path, capsys):
    path, text = tmp_path / "trace.csv", HEADER + text_of(slow())
    path.write_text("")
    shown = []
    pieces = [text[begin : begin + 7001] for begin in range(0, len(text), 7001)]
    follower, ended = followed(path, tmp_path, *(appending(path, piece) for piece in pieces), shown=shown)
    assert ended
    assert follower.monitor.steps == 400
    assert [(line["event"], line["kind"], line["workers"]) for line in kept(tmp_path)] == [
        ("raised", "slow worker", ["5"])
    ]
    assert abs(kept(tmp_path)[0]["since"] - 200) <= 3
    assert kept(tmp_path)[0]["time"] < 0.5 * len(pieces)  # before the trace was whole
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert [shown[0]["steps"], shown[-1]["steps"]] == [0, 400]
    assert [state["finished"] for state in shown] == [False] * (len(shown) - 1) + [True]


def test_alarms_are_lines_of_json_on_request(tmp_path, capsys):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + text_of(slow()))
    followed(path, tmp_path, until_idle=0.0, as_json=True)
    (line,) = capsys.readouterr().out.splitlines()
    record = json.loads(line)
    assert {name: kept(tmp_path)[0][name] for name in record} == record


def test_a_restart_reads_again_and_writes_no_alarm_twice(tmp_path, capsys):
    path, runtimes = tmp_path / "trace.csv", slow(800)
    runtimes[600:, 5] /= 1.6
    path.write_text(HEADER + text_of(runtimes[:400]))
    followed(path, tmp_path, until_idle=0.0)
    before = (tmp_path / "alarms.jsonl").read_bytes()
    followed(path, tmp_path, until_idle=0.0)
    assert (tmp_path / "alarms.jsonl").read_bytes() == before
    appending(path, text_of(runtimes[400:], first=400))()
    followed(path, tmp_path, until_idle=0.0)
    assert (tmp_path / "alarms.jsonl").read_bytes().startswith(before)
    assert [line["event"] for line in kept(tmp_path)] == ["raised", "cleared"]
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_trace_that_is_replaced_is_another_run(tmp_path, capsys):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + text_of(slow()))

    def replace():
        (tmp_path / "new").write_text(HEADER + text_of(slow(seed=1)))
        (tmp_path / "new").replace(path)

    follower, _ = followed(path, tmp_path, replace)
    assert follower.restarts == 1
    assert follower.monitor.steps == 400
    assert "read from its beginning" in capsys.readouterr().err
    assert len({line["run"] for line in kept(tmp_path)}) == 2
    assert [line["workers"] for line in kept(tmp_path)] == [["5"], ["5"]]


def test_control_c_ends_it_with_what_was_read(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + text_of(slow()))

    def interrupt():
        raise KeyboardInterrupt

    follower, ended = followed(path, tmp_path, interrupt, until_idle=None)
    assert not ended
    assert follower.monitor.steps > 300
    assert follow.summary(follower).count("Still: ") == 1


def test_without_steps_it_waits(tmp_path):
    path = tmp_path / "trace.csv"
    follower, _ = followed(path, tmp_path, lambda: path.write_text(HEADER), until_idle=2.0)
    assert follower.monitor.steps == 0
    assert follow.summary(follower) == "No step was read."
    assert follower.state()["steps"] == 0


@pytest.fixture
def given(monkeypatch, tmp_path):
    names = ("follow", "until_idle", "alarms", "serve", "metrics", "otlp", "webhook")
    values = types.SimpleNamespace(once=True, json=False, **dict.fromkeys(names))
    monkeypatch.setattr(follow.flags, "FLAGS", values)
    return values


@pytest.mark.parametrize(("since", "code"), [(200, follow.EXIT_SLOW), (400, 0)])
def test_the_exit_code_says_whether_something_is_slow_at_the_end(given, tmp_path, since, code, capsys):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + text_of(slow(since=since)))
    assert follow.run(str(path), Options(), tmp_path / "work") == code
    assert (tmp_path / "work" / "alarms.jsonl").exists()
    assert ("Nothing is slow." in capsys.readouterr().err) == (code == 0)


@pytest.mark.parametrize("steps", [149, 150])
def test_of_too_few_steps_nobody_says_that_nothing_is_slow(given, tmp_path, steps, capsys):
    given.once = True
    (tmp_path / "trace.csv").write_text(HEADER + text_of(slow(steps, since=steps)[:, :4]))
    assert follow.run(str(tmp_path / "trace.csv"), Options(), tmp_path) == 0
    words = "Nothing is slow." if steps == 150 else "Too few steps to say that nothing is slow: 149 of 150."
    assert words in capsys.readouterr().err.splitlines()


def test_it_says_that_it_waits_for_a_trace_that_is_not_there(given, tmp_path, capsys):
    given.once, given.until_idle = False, 0.01
    assert follow.run(str(tmp_path / "trace.csv"), Options(), tmp_path / "work") == 0
    assert f"waiting for {tmp_path / 'trace.csv'} to appear" in capsys.readouterr().err.splitlines()
    (tmp_path / "trace.csv").write_text(HEADER + text_of(slow()))
    follow.run(str(tmp_path / "trace.csv"), Options(), tmp_path / "work")
    assert "waiting" not in capsys.readouterr().err


def test_what_is_over_at_the_end_does_not_count(given, tmp_path):
    path, runtimes = tmp_path / "trace.csv", slow(800)
    runtimes[400:, 5] /= 1.6
    path.write_text(HEADER + text_of(runtimes))
    assert follow.run(str(path), Options(), tmp_path / "work") == 0


def test_what_cannot_be_followed_is_an_error_in_one_line(given, tmp_path):
    path = tmp_path / "trace.csv"
    with pytest.raises(UsageError, match=r"^--follow=.*trace\.csv must be a file or a directory"):
        follow.run(str(path), Options(), tmp_path / "work")
    path.write_text("rank,loss,duration\n1,2,3\n")
    with pytest.raises(UsageError, match=r"^--follow=.*trace\.csv: column '.*' must come with step"):
        follow.run(str(path), Options(), tmp_path / "work")
    given.alarms = str(path)
    with pytest.raises(UsageError, match=r"^--alarms='.*trace\.csv' has something else"):
        follow.run(str(path), Options(), tmp_path / "work")


def answer(*argv):
    return advise.COMMAND.answer(["advise", *argv])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--follow=a.csv", "b.csv"], "'b.csv' must be left out beside --follow=a.csv"),
        (["--follow=a.csv", "--what_if"], "--what_if must be left out beside --follow=a.csv"),
        (["--follow=a.csv", "--trace_format=csv"], "--trace_format must be left out beside --follow=a.csv"),
        (["--follow=a.csv", "--serve", "8123"], "--serve 8123 must be one word: --serve=8123"),
        (["a.csv", "--once"], "--once must come with --follow=TRACE"),
        (["a.csv", "--json"], "--json must come with --follow=TRACE"),
        (["a.csv", "--alarms=x"], "--alarms must come with --follow=TRACE"),
        (["a.csv", "--until_idle=3"], "--until_idle must come with --follow=TRACE"),
        (["a.csv", "--serve"], "--serve must come with --follow=TRACE"),
    ],
)
def test_flags_that_change_nothing_are_refused(argv, words, capsys, tmp_path):
    assert answer(*argv, f"--workdir={tmp_path}") == 2
    error = capsys.readouterr().err.strip()
    assert words in error
    assert "\n" not in error
