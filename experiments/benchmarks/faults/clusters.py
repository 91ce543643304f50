"""A live run over several machines, and what befalls these: what is observed, and what must hold of it."""

import pathlib
import time

from experiments.benchmarks.faults import runs, servers, work
from experiments.benchmarks.faults.namespaces import Machines
from experiments.benchmarks.faults.nodes import Nodes
from experiments.benchmarks.faults.runs import Outcome
from experiments.benchmarks.faults.scenario import Scenario

WORKERS = 6
_PAUSE = 0.1


def observed(
    scenario: Scenario, folder: pathlib.Path, *, machines: int, transport: str, seconds: float, gradients: int = 60
) -> Outcome:
    """Executes a run, does what the scenario says to the machines, and asks the server to end.

    So many gradients come after the last step, when every worker is back.
    """
    work.store_data(folder)
    outcome = Outcome(scenario.name, scenario.policy, False)
    given = {"kind": transport, "policy": scenario.policy, "seconds": seconds, "workers": WORKERS}
    try:
        with Machines(machines, folder) as made:
            nodes = Nodes(made, folder, **given)
            outcome = outcome._replace(recovery=_executed(scenario, nodes, gradients))
            nodes.end()
        outcome = servers.judged(outcome._replace(notes=dict(nodes.done)), folder, nodes.before, WORKERS)
        counts = servers.examined_in(folder / "log", scenario.policy, WORKERS).ledger()
    except Exception as error:  # whatever it is, the scenario was not survived, and the others are to run
        return outcome._replace(wrong=f"{type(error).__name__}: {error}")
    missing = [f"{number} {fate}" for fate, number in scenario.expects.items() if counts[fate] < number]
    return outcome._replace(wrong=outcome.wrong or f"the record lacks {', '.join(missing)}" * bool(missing)).judged()


def _executed(scenario: Scenario, nodes: Nodes, gradients: int) -> float:
    """Do what the scenario says, and return the seconds from its end until every worker is back."""
    steps, since, before, recovery = list(scenario.steps), time.monotonic(), 0, None
    lasts = time.monotonic() + runs.PATIENCE + sum(step.seconds for step in steps)
    mark = [0] * WORKERS
    while recovery is None or sum(nodes.came()) < before + gradients:
        nodes.tend()
        came, now = nodes.came(), time.monotonic()
        # The first gradient of each that comes after the last step may have been begun before it.
        back = [new >= old + 2 for new, old in zip(came, mark, strict=True)]
        if steps and sum(came) >= before + steps[0].after and now >= since + steps[0].seconds:
            step = steps.pop(0)
            for number in step.workers:
                nodes.do(step.act, number)
            since, mark = time.monotonic(), nodes.came()
            before = sum(mark)
        elif not steps and recovery is None and all(back):
            recovery, before = now - since, sum(came)
        elif now > lasts:
            gone = [worker for worker, there in enumerate(back) if not there]
            raise RuntimeError(f"{len(steps)} steps are left, and workers {gone} are not back")
        time.sleep(_PAUSE)
    return recovery
