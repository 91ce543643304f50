"""The faults that a live run must survive."""

from experiments.benchmarks.faults import damage
from experiments.benchmarks.faults.scenario import WORKERS, Scenario, ServerScenario, Step
from sgdlab.live.fleet import NOT_FINITE

MACHINES = 3
"""Number of machines that scenarios need, at least."""
ALL = tuple(range(WORKERS))
_FEW = 20
"""Gradients that come before the first step: by then every worker has computed some."""


def of_workers(storm_seconds: float) -> list[Scenario]:
    """Return what befalls workers and messages."""
    once = lambda act, *workers: (Step(act, workers, after=_FEW),)
    return [
        Scenario(
            "killed mid-gradient",
            "asynchronous",
            once("kill_computing", 1),
            expects={"lost": 1},
            expects_words=("worker 1 is lost: ",),  # and what is known: a signal, or what Ray says
        ),
        Scenario("killed between sending and being heard", "ringmaster", once("kill_unheard", 1)),
        Scenario("two killed at once", "bounded staleness", once("kill_process", 1, 2), expects={"lost": 1}),
        Scenario("all but the minimum killed", "timeout", once("kill_process", *ALL[1:]), expects={"lost": 1}),
        Scenario("all killed", "synchronous", once("kill_process", *ALL), expects={"lost": 1}),
        Scenario(
            "stopped for 2 s, then continued",
            "backup workers",
            (*once("stop", 2), Step("go_on", (2,), seconds=2.0)),
        ),
        Scenario(
            "stopped for longer than the patience, then continued",
            "bounded staleness",
            (*once("stop", 2), Step("go_on", (2,), seconds=7.0)),
            expects={"lost": 1},
            expects_words=("worker 2 is lost: silent for ", "worker 2 is back after "),
        ),
        Scenario(
            "stopped for good",
            "timeout, interrupting",
            (*once("stop", 2), Step("go_on", (2,), seconds=25.0)),
            expects={"lost": 1},
            expects_words=("and killed",),
        ),
        Scenario(
            "10 times slower, then normal",
            "cutoff",
            (Step("slow", (3,), after=2 * _FEW), Step("fast", (3,), after=2 * _FEW)),
        ),
        Scenario("a gradient raises", "softsync", once("fail", 0), expects={"failed": 1}, expects_words=_RAISED),
        Scenario("a gradient is NaN", "rennala", once("nan", 0), expects={"refused": 1}, expects_words=_NAN),
        Scenario(
            "grows until it gets no more memory",
            "asynchronous",
            once("refuse_memory", 3),
            expects={"failed": 1},
            expects_words=("worker 3: MemoryError",),
        ),
        Scenario(
            "grows until it is killed for memory",
            "timeout",
            once("kill_growing", 3),
            expects={"lost": 1},
            expects_words=("worker 3 is lost: ",),
        ),
        Scenario(
            "joins late", "bounded staleness", once("come", 3), absent=(3,), expects_words=("worker 3 has joined",)
        ),
        Scenario(
            "leaves and comes back under its number",
            "ringmaster, interrupting",
            once("replace", 2),
            expects={"lost": 1},
            expects_words=("worker 2 has joined",),
        ),
        Scenario(
            "messages sent twice, late and out of order",
            "ringmaster, interrupting",
            (Step("disorder", after=1), *once("kill_process", 1), Step("order", after=3 * _FEW)),
        ),
        Scenario(
            "a full pipe to a stopped worker",
            "bounded staleness",
            (*once("stop", 1), Step("flood", (1,)), Step("go_on", (1,), seconds=1.0)),
            without={"ray": "its calls do not go through a pipe of ours"},
        ),
        Scenario(
            f"storm: deaths every 20 s a worker, {storm_seconds:g} s",
            "bounded staleness",
            (*once("storm", *ALL), Step("calm", ALL, seconds=storm_seconds)),
        ),
    ]


def of_servers() -> list[ServerScenario]:
    """Return what befalls the server, and its files."""
    again = ("Resumed from ",)
    return [
        ServerScenario("server killed (SIGKILL)", "timeout, interrupting", "SIGKILL", expects_words=again),
        ServerScenario("server told to end (SIGTERM)", "bounded staleness", "SIGTERM", expects_words=again),
        ServerScenario("Ctrl-C, to all its processes", "asynchronous", "SIGINT", expects_words=again),
        ServerScenario(
            "server killed, newest checkpoint damaged",
            "ringmaster",
            "SIGKILL",
            (damage.spoil_checkpoint,),
            (*again, "cannot be read", "an earlier one, or the log alone, is used instead"),
        ),
        ServerScenario("server killed, log cut off", "rennala", "SIGKILL", (damage.cut_off_log,), again),
        ServerScenario(
            "server killed, log cut off, no checkpoint",
            "bounded staleness",
            "SIGKILL",
            (damage.cut_off_log, damage.lose_checkpoints),
            (*again, "gradients since the beginning were computed again"),
        ),
    ]


def of_machines(transport: str, storm_seconds: float) -> list[Scenario]:
    """Return what befalls machines, by their numbers: the server is on the first one."""
    begun = {"after": 3 * _FEW}
    lost = {"lost": 1}
    found = [
        Scenario(
            "a node loses its power for 10 s",
            "backup workers",
            (Step("kill_node", (3,), **begun), Step("boot", (3,), seconds=10.0)),
            expects=lost,
        ),
        Scenario(
            "a partition of 20 s",
            "bounded staleness",
            (Step("cut", (2,), **begun), Step("heal", (2,), seconds=20.0)),
            expects=lost,
        ),
        Scenario(
            "a node sends at 0.2 Mbit/s for 20 s",
            "asynchronous",
            (Step("limit", (2,), **begun), Step("unlimit", (2,), seconds=20.0)),
        ),
        Scenario("the server is killed", "cutoff", (Step("kill_server", (1,), **begun),), expects=lost),
    ]
    storms = {"asynchronous": 1.0, "backup workers": 0.3, "cutoff": 0.3, "bounded staleness": 0.3}
    for policy, share in storms.items() if transport == "grpc" else ():
        seconds = share * storm_seconds
        name = f"storm over machines of {seconds:g} s, {policy}"
        found.append(Scenario(name, policy, (Step("storm", (1,), **begun), Step("calm", (1,), seconds=seconds))))
    return found


_RAISED = ("ArithmeticError: this worker was told to fail",)
_NAN = (f"worker 0: {NOT_FINITE}",)
