"""The terminal's lines: what they say, and that no stream can harm the run."""

import dataclasses
import io
import os
import pty
import re
import termios

import pytest
from statuses import BACK_AT, KILLED, KILLED_AT, SLOW, USUAL, run

from sgdlab.live import progress
from sgdlab.live.progress import LiveProgress
from sgdlab.live.status import ENDED, RESTARTED

STATUSES = list(run(8, seconds=25.0))
LOST = next(status for status in STATUSES if status.seconds == KILLED_AT)


class Screen:
    """A naive terminal: it obeys the five control sequences that `LiveProgress` uses, and keeps what would be seen."""

    def __init__(self, text):
        self.lines, self.row = [""], 0
        for piece in re.findall(r"\x1b\[[?\d]*[a-zA-Z]|\r|\n|[^\x1b\r\n]+", text):
            if piece == "\n":
                self.row += 1
                if self.row == len(self.lines):
                    self.lines.append("")
            elif up := re.fullmatch(r"\x1b\[(\d+)A", piece):
                self.row -= int(up[1])
                assert self.row >= 0
            elif piece == "\x1b[J":
                del self.lines[self.row + 1 :]
                self.lines[self.row] = ""
            elif piece != "\r" and not piece.startswith("\x1b[?7"):
                assert not self.lines[self.row], "a line is written over another"
                self.lines[self.row] = piece


def in_terminal(statuses, columns, rows=24):
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (rows, columns))
    with open(follower, "w", encoding="utf-8") as stream:
        shown, text = LiveProgress(stream), ""
        for status in statuses:
            shown.show(status)
            assert shown.wait(60.0)
            text += written(stream, leader)
    os.close(leader)
    return text


def written(stream, leader):
    """All that was written to a terminal, which may hand it over in parts, and later."""
    stream.write("\0")
    stream.flush()
    found = b""
    while not found.endswith(b"\0"):
        found += os.read(leader, 1 << 16)
    return found[:-1].decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [100, 24])
def test_a_terminal_keeps_events_and_one_block(columns):
    screen = Screen(in_terminal(STATUSES, columns))
    events = [f"0:{at:02.0f}  {words}" for at, words in STATUSES[-1].events]
    lines = [line[: columns - 1] for line in progress.block(STATUSES[-1])]
    assert len(events) == 2
    assert screen.lines == [*events, *lines, ""]


def test_a_low_terminal_shows_as_much_as_it_holds():
    screen = Screen(in_terminal(STATUSES[:3], 100, rows=3))
    assert screen.lines == [*progress.block(STATUSES[2])[:2], ""]


def test_a_file_gets_plain_lines_every_ten_seconds():
    stream, now = io.StringIO(), [0.0]
    shown = LiveProgress(stream, every=10.0, clock=lambda: now[0])
    for status in STATUSES:
        now[0] = status.seconds
        shown.show(status)
        assert shown.wait(60.0)
    lines = stream.getvalue().splitlines()
    assert "\x1b" not in stream.getvalue()
    # The first status, every tenth second after it, both events, and the end.
    expected = [0.5, KILLED_AT, 10.5, BACK_AT, 20.5, 25.0]
    assert [line.split()[0] for line in lines] == [f"0:{int(at):02d}" for at in expected]
    assert lines[-1].startswith("0:25  update 10, 80 of 80 gradients, 3.33 gradients/s, finished, loss ")


def test_messages_of_several_local_steps_are_called_so():
    status = dataclasses.replace(STATUSES[-1], unit="message")
    for text in (" ".join(progress.block(status)), progress.line_of(status)):
        assert "80 of 80 messages" in text
        assert "3.33 messages/s" in text
        assert "gradient" not in text


def test_the_lines_say_who_is_late_lost_and_waited_for():
    lines = {line.split()[0]: line for line in progress.block(LOST)[2:]}
    assert lines["late"].split("late")[1].strip() == f"{SLOW} (3.0 x the others)"
    assert lines["lost"].split("lost")[1].strip() == f"{KILLED} for 0.0 s (killed by SIGKILL)"
    phase = KILLED_AT % (3 * USUAL)
    assert 0 < phase < USUAL
    assert f"{SLOW} ({phase:.1f} s)" in lines["waits"]
    assert "the update wants 7 of 8" in lines["waits"]
    left = (LOST.num_gradients - LOST.gradients) / LOST.gradients_per_second
    assert progress.block(LOST)[1].endswith(f", 0:{int(left):02d} left")


def test_only_a_few_of_many_workers_are_named():
    (status,) = [status for status in run(200, 2.0) if status.seconds == 0.5]
    line = progress.line_of(status)
    assert f"waiting for 0 (0.5 s), 1 (0.5 s), 2 (0.5 s), 3 (0.5 s) and {200 - progress.NAMED} more;" in line


@pytest.mark.parametrize("values", [{"loss": None}, {"loss": float("nan")}, {"num_gradients": 0}, {"workers": ()}])
@pytest.mark.parametrize("rate", [0.0, float("nan"), float("inf")])
def test_odd_values_are_shown_too(values, rate):
    status = dataclasses.replace(LOST, gradients_per_second=rate, evaluation={}, **values)
    lines = [*progress.block(status), progress.line_of(status)]
    assert all(lines)
    (model,) = [line for line in lines if line.startswith("  model")]
    assert ("loss nan," in model) == (values.get("loss") is not None)


def test_an_error_cannot_steer_the_terminal():
    worker = dataclasses.replace(LOST.workers[KILLED], state="lost", error="\x1b[2Jgone\r\nline\x07")
    workers = (*LOST.workers[:KILLED], worker, *LOST.workers[KILLED + 1 :])
    lines = progress.block(dataclasses.replace(LOST, workers=workers, events=((1.0, "\x1b]0;title"),)))
    assert all(line.isprintable() for line in lines)
    assert "[2Jgone  line" in "".join(lines)


def test_who_is_late_has_two_thresholds_and_an_end():
    slow = [
        dataclasses.replace(worker, state="waiting", against_fleet=fleet, against_itself=itself)
        for worker, (fleet, itself) in zip(
            LOST.workers, [(1.4, 1.9), (1.6, 1.0), (1.0, 2.1), (None, None)], strict=False
        )
    ]
    status = dataclasses.replace(LOST, workers=tuple(slow))
    assert [worker.worker for worker in progress.late(status)] == [2, 1]
    assert progress.late(dataclasses.replace(status, finished=True)) == []
    slow[2] = dataclasses.replace(slow[2], state="lost")
    assert [worker.worker for worker in progress.late(dataclasses.replace(LOST, workers=tuple(slow)))] == [1]


def test_what_is_said_stays_above_the_block(monkeypatch, capsys):
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 100))
    with open(follower, "w", encoding="utf-8") as stream:
        shown = LiveProgress(stream)
        shown.show(STATUSES[0])
        shown.say("to the standard output, which is a file here")
        assert shown.wait(60.0)
        monkeypatch.setattr("sys.stdout", stream)
        shown.say("first")
        shown.show(STATUSES[1])
        shown.say("second")
        assert shown.wait(60.0)
        text = written(stream, leader)
    os.close(leader)
    assert Screen(text).lines == ["first", "second", *progress.block(STATUSES[1]), ""]
    assert capsys.readouterr().out == "to the standard output, which is a file here\n"


def test_lines_of_one_file_come_when_nothing_else_is_said(monkeypatch, tmp_path):
    now = [0.0]
    with (
        (tmp_path / "both").open("w", encoding="utf-8") as out,
        (tmp_path / "apart").open("w", encoding="utf-8") as err,
    ):
        monkeypatch.setattr("sys.stdout", out)
        for stream in (out, err):
            shown = LiveProgress(stream, every=10.0, clock=lambda: now[0])
            for now[0] in (0.0, 6.0, 12.0, 18.0, 24.0, 29.0):
                if now[0] < 18.0:
                    shown.say(f"evaluation at {now[0]:.0f}")
                shown.show(dataclasses.replace(STATUSES[0], seconds=now[0]))
                assert shown.wait(60.0)
    both = (tmp_path / "both").read_text().splitlines()
    assert [line.split(",")[0] for line in both[:4]] == [
        "evaluation at 0", "evaluation at 6", "evaluation at 12", f"0:24  update {STATUSES[0].updates}",
    ]  # fmt: skip
    apart = (tmp_path / "apart").read_text().splitlines()
    assert [line.split()[0] for line in apart] == ["0:00", "0:12", "0:24"]


def test_texts_of_an_evaluation_are_shown_as_they_are():
    status = dataclasses.replace(LOST, evaluation={"test accuracy": "93.3 %", "mine": 0.12345})
    assert "test accuracy 93.3 %, mine 0.123," in progress.line_of(status)


def test_a_broken_pipe_and_a_closed_stream_are_left_alone():
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="ascii") as pipe:
        shown = LiveProgress(pipe)
        for _ in range(2):
            shown.show(LOST)
            assert shown.wait(60.0)
        with pytest.raises(BrokenPipeError):
            pipe.close()
    closed = io.StringIO()
    closed.close()
    shown = LiveProgress(closed)
    shown.show(LOST)
    assert shown.wait(60.0)
    assert shown._broken


def test_a_pipe_that_is_not_read_holds_nobody_up():
    reader, writer = os.pipe()
    events = tuple((float(number), "x" * 4000) for number in range(50))
    with open(writer, "w", encoding="ascii") as pipe:
        shown = LiveProgress(pipe, every=0.0)
        for number in range(100):
            shown.show(dataclasses.replace(LOST, updates=number, events=events))  # it holds 64 KiB, or so
        assert not shown.wait(0.01)
        seen = b""
        while b"update 99," not in seen:
            seen += os.read(reader, 1 << 16)
        assert shown.wait(60.0)
    os.close(reader)
    assert seen.count(b"x" * 4000) == 50  # what went wrong is told once
    assert seen.count(b"gradients/s") <= 2  # and of what nobody saw in time, only the newest state


def test_letters_that_a_stream_cannot_write_are_replaced():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    with LiveProgress(stream) as shown:
        shown.show(dataclasses.replace(LOST, evaluation={"Güte": 1.0}))
    assert b"G?te 1" in raw.getvalue()


@pytest.mark.parametrize("words", [RESTARTED, ENDED])
def test_what_another_process_has_told_is_not_told_again(words):
    events = ((1.0, "worker 1 is lost: killed"), (2.0, words), (3.0, "worker 0 has joined"))
    stream = io.StringIO()
    shown = LiveProgress(stream, every=0.0)
    for known in (events[:2], events, (*events, (4.0, "worker 1 has joined"))):
        shown.show(dataclasses.replace(STATUSES[0], events=known))
        assert shown.wait(60.0)
    told = [line for line in stream.getvalue().splitlines() if "worker" in line or words in line]
    assert [line.split("  ", 1)[1] for line in told] == [words, "worker 0 has joined", "worker 1 has joined"]
