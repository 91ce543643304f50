"""CPU time of whole runs that share a compiled program, for each used gradient, and what it goes into.

    taskset -c 0 python -m experiments.benchmarks runs

On one core, as each process of a sweep has one; `configs/digits.py` with 32 workers. CPU time and not that of the
clock, so that other work on the machine counts little.
"""

import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

from configs import digits
from experiments.benchmarks import setup
from experiments.benchmarks.compilation import compilations
from experiments.benchmarks.timing import Figure, at_most, interleaved
from sgdlab import replay
from sgdlab.runs import tasks
from sgdlab.runs.plan import Plan, make_plan
from sgdlab.runs.train import train

METHODS = ("asgd", "gap_aware", "synchronous", "dana", "d_psgd", "a2cid2")
GOAL = 0.15
TRIALS = 24


def figures() -> Iterator[Figure]:
    """Yield CPU milliseconds a used gradient of second runs, by method, and the compilations of a third."""
    for method in METHODS:
        plan = _plan(method, seed=0)
        with compilations() as first:
            train(plan, capacity=plan.program.capacity)
        with compilations() as second:  # more gradients in flight than before would need more room
            changed = _plan(method, seed=1, rate=0.02)
            train(changed, capacity=plan.program.capacity | changed.program.capacity)
        functions = {"run": lambda plan=plan: train(_plan(plan.experiment.method.name, seed=0)), **_pieces(plan)}
        seconds = interleaved(functions, clock=time.process_time)
        gradients = plan.program.num_rows
        each = {name: 1000 * statistics.median(found) / gradients for name, found in seconds.items()}
        of = {
            "serial SGD": each["serial"],
            "more for replay": each["loop"] - each["serial"],
            "norms and averages": each["recorded"] - each["loop"],
            "evaluations": each["evaluated"] - each["recorded"],
            "all else": each["run"] - each["evaluated"],
        }
        detail = ", ".join(f"{name} {value:.3f}" for name, value in of.items())
        compiling = 1000 * sum(first) / gradients
        detail += f"; compiling {compiling:.2f} of one run, {compiling / TRIALS:.3f} of {TRIALS}"
        yield at_most(f"a gradient of {method}, conv net, B=8, N=32", each["run"], "ms", GOAL, detail)
        yield Figure(f"new compilations, {method}: another seed and rate", len(second), "", "0", not second)


def _plan(method: str, *, seed: int, rate: float | None = None) -> Plan:
    config = digits.get_config()
    config.method, config.seed, config.cluster.num_workers = method, seed, 32
    if rate is not None:
        config.optimizer.learning_rate = rate
    return make_plan(config)


def _pieces(plan: Plan) -> dict[str, Callable[[], object]]:
    """Return parts of a run, each with what the one before it does."""
    program, experiment, served = plan.program, plan.experiment, plan.schedule.has_server
    rows = program.capacity.rows
    task, batches = tasks.workers_of(plan, tasks.task_of(experiment), rows)
    rates = np.pad(plan.rates, (0, max(rows - plan.rates.size, 0)), mode="edge")
    rule = plan.rule(rates if served else 1.0, program.capacity.workers)
    scale = None if served else plan.rates[: program.num_rows]
    recorded = {"norms": served, "average_decay": experiment.reporting.average_decay if served else None}
    on_test = tasks.evaluation_of(experiment, task, "test", None)

    def replayed(**watch: object) -> Callable[[], object]:
        watch = replay.Watch(**watch)
        return lambda: replay.run(program, rule, task, batches, step_scale=scale, watch=watch).params

    return {
        "serial": setup.serial(task, batches, program.num_rows),
        "loop": replayed(),
        "recorded": replayed(**recorded),
        "evaluated": replayed(**recorded, evaluate=on_test, nodes_at_end=True),
    }
