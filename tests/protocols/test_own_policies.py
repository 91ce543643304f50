"""Custom policies: slips are refused where the class registers itself, or at the instant of the answer."""

import dataclasses
import pathlib
import re
import typing

import numpy as np
import pytest

from sgdlab import policies, transports
from sgdlab.errors import UsageError
from sgdlab.protocols import policy_run
from sgdlab.registry import PROTOCOLS

PAGE = pathlib.Path(__file__).parents[2] / "docs/own/protocol.md"
RUNTIMES = np.array([[1.0, 1.5, 4.0]] * 8)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Forgets what a test registers."""
    monkeypatch.setattr(PROTOCOLS, "_parts", dict(PROTOCOLS))


def _nobody(self, now, worker, version, seconds):
    return []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"arrive": _nobody}, r"^mine must have a method `arrival\(now, worker, version, seconds\)`.*it has `arrive`"),
        (
            {"arrival": lambda self, now, worker, version: []},
            r"^mine\.arrival must take \(self, now, worker, version, s",
        ),
        ({"arrival": _nobody, "timer": lambda self: []}, r"^mine\.timer must take \(self, now\): "),
        (
            {"arrival": _nobody, "came": []},
            r"^mine\.came would be shared by all runs; write `came: list = dataclasses\.field\(default_factory=list,",
        ),
        (
            {"arrival": _nobody, "came": {1: 2}},
            r"default_factory=lambda: \{1: 2\}, init=False\)`, or, for a table that nobody changes, `CAME`$",
        ),
        ({"arrival": _nobody, "came": {0}}, r"^mine\.came would be shared by all runs"),
        ({"arrival": _nobody, "came": dataclasses.field(default_factory=list)}, r"^mine\.came is a dataclass's field"),
    ],
    ids=["misnamed", "arguments", "timer", "list", "dict", "set", "no_dataclass"],
)
def test_a_class_is_looked_at_when_it_registers_itself(body, message):
    with pytest.raises(ValueError, match=message):
        policies.register(title="Mine")(type("mine", (policies.Base,), body))
    assert "mine" not in PROTOCOLS


class Mixed:
    sizes: typing.ClassVar[dict] = {}


@pytest.mark.parametrize(
    ("body", "bases"),
    [
        ({"SIZES": {1: 2}}, ()),
        ({"sizes": {}, "__annotations__": {"sizes": typing.ClassVar}}, ()),
        ({"sizes": {}, "__annotations__": {"sizes": "typing.ClassVar[dict]"}}, ()),
        ({}, (Mixed,)),
        ({"after_loss": staticmethod(lambda now: [])}, ()),
        ({"timer": classmethod(lambda cls, now: [])}, ()),
    ],
    ids=["capitals", "bare", "text", "mixin", "static", "of_the_class"],
)
def test_what_is_meant_to_be_shared_may_be(body, bases):
    body = {"arrival": _nobody, "__doc__": "Shares a table."} | body
    policies.register(title="Mine")(type("mine", (*bases, policies.Base), body))


def test_a_class_whose_state_is_never_made_is_named():
    class Bare(policies.Base):
        def __init__(self, size: int = 2):
            self.size = size

        arrival = _nobody

    policies.register(title="Bare")(Bare)
    words = r"^--config\.protocol\.kind=Bare: policy=Bare has no state: its __init__ must call super\(\)\."
    with pytest.raises(UsageError, match=words):
        PROTOCOLS.make("Bare", {}, runtimes=RUNTIMES, num_gradients=2)


class Answers(policies.Base):
    """Answers as a function says."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def arrival(self, now, worker, version, seconds):
        return self.answer(self, now, worker)


def _forgets(self, now, worker):
    self.close()
    return [policies.Take(worker, self.version - 1)]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda self, now, worker: None,
            r"^policy=Answers: `arrival` must return a list of actions, and returned None: is",
        ),
        (lambda self, now, worker: 3, r"and returned 3$"),
        (
            lambda self, now, worker: [policies.Take(worker, 0), policies.Wake(0.5)],
            r"Wake\(at=0\.5\) at 1 s, which lies in the",
        ),
        (
            lambda self, now, worker: [policies.Take(worker, 0), policies.Wake(float("nan"))],
            r"which never comes: `at` is an",
        ),
        (lambda self, now, worker: "none", r"and returned 'none'$"),
        (_forgets, r"is at version 1 at 1 s, when 0 updates are made: what `self\.close\(\)` returns must be among"),
    ],
    ids=["none", "number", "past", "nan", "text", "close_is_lost"],
)
def test_an_answer_is_refused_with_its_instant(answer, message):
    with pytest.raises(ValueError, match=message):
        policies.simulate(lambda num_workers: Answers(answer), RUNTIMES, num_gradients=3)


class Ticks(Answers):
    """Lets all workers wait, and asks for one timer after the other."""

    def timer(self, now):
        return [policies.Wake(now + self.answer)]

    def arrival(self, now, worker, version, seconds):
        return [policies.Drop(worker), *([policies.Wake(now + self.answer)] if worker == 0 else [])]


@pytest.mark.parametrize(
    ("after", "message", "transport"),
    [
        (0.0, "does not advance the clock", None),
        (0.0, "does not advance the clock", transports.Star(latency=(0.25,) * 3)),
        (1.0, "lets all workers wait", None),
    ],
    ids=["instant", "costly", "idle"],
)
def test_timers_that_change_nothing_end(after, message, transport):
    with pytest.raises(ValueError, match=rf"^policy=Ticks answers Wake\(at=\d.*\) at .* s, which {message}: 10000"):
        policies.simulate(lambda num_workers: Ticks(after), RUNTIMES, num_gradients=3, transport=transport)


def test_timers_at_once_count_only_until_a_gradient_comes(monkeypatch):
    monkeypatch.setattr(policy_run, "IN_VAIN", 0.05)  # five timers

    def answer(self, now, worker):
        return [*_usual(self, now, worker), *[policies.Wake(now)] * 5]

    assert policies.simulate(lambda num_workers: Answers(answer), RUNTIMES, num_gradients=6).num_updates == 6


def test_a_policy_may_look_at_the_clock_while_workers_compute():
    """At more instants than are allowed in vain."""
    runtimes = np.array([[200_000.0], [1.0]])

    class Looks(Answers):
        def start(self, workers):
            return [*super().start(workers), policies.Wake(1.0)]

        def timer(self, now):
            return [policies.Wake(now + 1.0)] if now < 150_000 else []

    schedule = policies.simulate(lambda num_workers: Looks(_usual), runtimes, num_gradients=1)
    assert schedule.applied[:, 0].tolist() == [200_000.0]


def _usual(self, now, worker):
    return [policies.Take(worker, self.version), self.close(), *self.begin([worker])]


def _by_hand(self, now, worker):
    self.count = getattr(self, "count", 0) + 1
    self.busy[worker] = self.count
    return [policies.Take(worker, self.count - 1), policies.Close(self.count - 1), policies.Begin(worker, self.count)]


@pytest.mark.parametrize(
    "answer",
    [
        lambda self, now, worker: (action for action in _usual(self, now, worker)),
        lambda self, now, worker: [*_usual(self, now, worker), policies.Wake(float("inf"))],
        _by_hand,
    ],
    ids=["generator", "no_limit", "by_hand"],
)
def test_other_ways_to_say_the_same_are_the_same(answer):
    found, wanted = (
        policies.simulate(lambda num_workers, say=say: Answers(say), RUNTIMES, num_gradients=6)
        for say in (answer, _usual)
    )
    np.testing.assert_array_equal(found.applied, wanted.applied)
    np.testing.assert_array_equal(found.read, wanted.read)


def test_the_pages_time_out_closes_its_updates_in_time():
    (code,) = re.findall(r"```python\n(import dataclasses.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    exec(compile(code, "page", "exec"), {"__name__": "page"})
    schedule = PROTOCOLS.make("at_most", {"seconds": 1.0}, runtimes=RUNTIMES, num_gradients=4)
    # From the first gradient of each update, at 1 s and then a second after each update.
    np.testing.assert_allclose(schedule.applied[:, 0], [2.0, 4.0])
    assert schedule.worker[schedule.update[:, 0] == 0].tolist() == [0, 1]
