"""A live run, of real processes, whose record is replayed on the accelerator."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from experiments.benchmarks.accelerator.bench import Bench
from experiments.benchmarks.accelerator.checks import check
from experiments.benchmarks.accelerator.problems import Outcome, Problem, by_ticket, computing, live_work
from experiments.benchmarks.accelerator.record import Cell, Row, Section
from sgdlab import policies, replay
from sgdlab.live.gradients import Gradients
from sgdlab.live.processes import Processes
from sgdlab.live.recording import LiveRecording
from sgdlab.live.repeat import repeat
from sgdlab.live.server import serve
from sgdlab.live.work import WorkSource

WORKERS, SECONDS, DTYPE = 2, 0.02, "float32"
_WORK = "experiments.benchmarks.accelerator.problems:live_work"


def section() -> Section:
    """Return the section of this module."""
    return Section(
        "live",
        "A live record replayed",
        "Two workers, each a process, and a server; then the record of what happened is replayed: by one compiled "
        "loop, and by the programs of the live run, which on the same kind of device must give the very bits.",
        60,
        _cells,
    )


class _Lived(NamedTuple):
    """A live run: its record, and how it ended."""

    recording: LiveRecording
    outcome: Outcome


def _cells(bench: Bench) -> list[Cell]:
    accelerator, cpu = bench.device, bench.other

    def lived(on: jax.Device) -> _Lived:
        return bench.once(("live", on), lambda: _lived(bench, on))

    def replayed(mode: str) -> Iterable[Row]:
        recording, outcome = lived(cpu)
        with computing(DTYPE, accelerator):
            problem, program = _problem(bench), replay.lower(recording.schedule)
            found = problem.run(program, by_ticket(problem, recording.used_tickets()), mode=mode)
        name = f"recorded on {bench.name_of(cpu)}, replayed in {mode} mode on {bench.name_of(accelerator)}"
        yield check(name, found, outcome, problem, DTYPE, mode=mode)

    def repeated(recorded: jax.Device, on: jax.Device) -> Iterable[Row]:
        recording, outcome = lived(recorded)
        with computing(DTYPE, on):
            found, problem = _repeated(bench, recording), _problem(bench)
        name = f"recorded on {bench.name_of(recorded)}, repeated by its own programs on {bench.name_of(on)}"
        exact = recorded.platform == on.platform == "cpu"
        if not exact:  # of a GPU this is measured, not promised: see docs/live.md
            row = check(name, found, outcome, problem, DTYPE)
            same = row.value == 0 and recorded == on
            yield Row(row.name, row.value, "", row.goal, row.met, "every bit the same" * same, row.facts)
            return
        apart = found.apart(outcome, problem.task.params)
        yield Row(name, apart, "", "0", apart == 0, facts={"dtype": DTYPE})

    cells = [
        Cell("replayed in event mode", lambda: replayed("event")),
        Cell("replayed in wave mode", lambda: replayed("wave")),
        Cell("repeated on the CPU", lambda: repeated(cpu, cpu)),
    ]
    if accelerator.platform != "cpu":
        cells.append(Cell("repeated on the accelerator", lambda: repeated(cpu, accelerator)))
    if accelerator.platform in ("gpu", "cuda"):
        cells.append(Cell("workers on the accelerator", lambda: repeated(accelerator, accelerator)))
    return cells


def _lived(bench: Bench, on: jax.Device) -> _Lived:
    """Makes a live run whose server and workers compute on one kind of device; its record has been a file."""
    own = None if on.platform == "cpu" else 1 / WORKERS  # workers share a GPU
    with computing(DTYPE, on):
        problem, steps, gradients = _problem(bench), _steps(bench), Gradients(_work(bench))
        steps.compile(gradients.aux)
        with Processes(
            WorkSource(_WORK, _argument(bench)),
            problem.task.params,
            gradients.aux,
            num_workers=WORKERS,
            env={"JAX_ENABLE_X64": "0", "JAX_DEFAULT_MATMUL_PRECISION": "highest"},
            gpus_per_worker=own,
        ) as workers:
            policy = policies.asynchronous(num_workers=WORKERS)
            recording = serve(policy, steps, workers, num_workers=WORKERS, num_gradients=bench.scale.gradients)
        with tempfile.TemporaryDirectory(prefix="sgdlab-accelerator-") as folder:
            recording.save(Path(folder) / "recording.npz")
            recording = LiveRecording.load(Path(folder) / "recording.npz")
        return _Lived(recording, Outcome.of(steps.params, steps.stats))


def _repeated(bench: Bench, recording: LiveRecording) -> Outcome:
    gradients, tickets = Gradients(_work(bench)), recording.used_tickets()

    def compute(row: int, params: Any) -> tuple[Any, Any]:
        return gradients.compute(int(tickets[row]), params, lambda: False)

    found = repeat(recording.schedule, _steps(bench), compute, aux=gradients.aux)
    return Outcome.of(found.params, found.stats)


def _steps(bench: Bench) -> replay.Steps:
    problem = _problem(bench)
    return replay.Steps(
        problem.rule, problem.task.params, single=True, stats=problem.task.stats, fold=problem.task.fold
    )


def _problem(bench: Bench) -> Problem:
    return Problem.of("asynchronous", DTYPE, bench.scale)


def _work(bench: Bench) -> Any:
    return live_work(_argument(bench))


def _argument(bench: Bench) -> dict[str, Any]:
    return {"scale": bench.scale.name, "seconds": SECONDS}
