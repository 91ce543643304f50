"""Tables of operations: a row for each operation of a data-parallel worker, in one of its pipeline stages."""

import warnings
from typing import Any

import numpy as np

from sgdlab import pipelines
from sgdlab.traces import phases as kinds
from sgdlab.traces.cells import Cells, are_dates, indexed, seconds_since
from sgdlab.traces.columns import OF_OPERATIONS, RANKS
from sgdlab.traces.problems import BadTrace
from sgdlab.traces.recording import Recording

_COMPUTE = "-compute"
_ACROSS_WORKERS = ("grads-", "params-")
"""Beginnings of the names of collectives between the data-parallel workers; `embedding-grads-` and
`layernorm-grads-` are between the stages and the devices of one worker."""


def build_operations(cells: Cells, *, skip: bool) -> Recording:
    r"""Build the recording of a table of operations, such as those of real language-model jobs.

    With the column `start_ts`, operations make a graph (`sgdlab.pipelines`): a worker's compute time is its longest
    path to its last backward computation, alone, and the communication of a step is what the longest path of all takes
    beyond the slowest worker: collectives and the optimiser.

    Without it, or where the order of the operations is not understood, a worker's compute time is the sum of its
    operations `*-compute` in a stage, the largest over its stages s, which is a lower bound:

    .. math:: x_{t n} = \max_s \sum_{o \text{ in stage } s} d_o

    Its phases are the sums of each of these operations in the stage that is the largest. A collective across the
    workers (`grads-*`, `params-*`) happens in all stages at once, and the step goes on when the last stage has done
    it: it is recorded of the stage where it takes longest when nobody waits, that is, where the median over the steps
    of the least over the workers is largest. All other operations are left out then.

    Arguments and errors are those of `sgdlab.traces.tables.build`.

    Source: Lin et al. 2025, "Understanding Stragglers in Large Model Training Using What-if Analysis", whose traces
    have these columns.
    """
    layout, rows = cells.layout, cells.rows
    columns, notes = layout.columns, [*layout.notes, *cells.said]
    names = cells.names[columns["optype"]]
    if not any(name.endswith(_COMPUTE) for name in names.values):
        raise BadTrace(f"column 'optype' must have operations that end in {_COMPUTE!r}")
    for name in RANKS:
        if name in columns:
            cells.number_ranks(columns[name])
    indices = [cells.wholes(columns[name]) for name in ("step", "dp_rank", "stage")]
    duration = cells.durations(columns["duration"])
    notes += rows.left_out(skip=skip)
    unseen = ""
    if columns.get("start_ts") in cells.numbers:
        try:
            return of_pipeline(pipelines.PipelineJob.of(pipelines.arranged(_rows(cells, indices))), notes)
        except pipelines.NotAPipeline as error:
            unseen = str(error)
    kinds_of = {name: names.values.index(name) for name in sorted(names.values)}
    compute = {name: code for name, code in kinds_of.items() if name.endswith(_COMPUTE)}
    collectives = [name for name in kinds_of if name.startswith(_ACROSS_WORKERS) and kinds.is_communication(name)]
    across = {name: kinds_of[name] for name in collectives}
    if others := [name for name in kinds_of if name not in compute and name not in across]:
        notes.append(f"operations that wait for other stages, or come last, were left out: {', '.join(others)}")

    kept = ~rows.bad & np.isin(names.codes, [*compute.values()])
    if not kept.any():
        raise BadTrace("must have compute times; no row can be used")
    axes = [indexed(column[kept])[0] for column in indices]
    # Operations of steps and workers that have computed nothing belong to no compute time.
    kept = ~rows.bad & np.all([np.isin(column, axis) for column, axis in zip(indices, axes, strict=True)], axis=0)
    place = [np.searchsorted(axis, column[kept]) for column, axis in zip(indices, axes, strict=True)]
    shape, seconds, codes = tuple(axis.size for axis in axes), duration[kept] / layout.per_second, names.codes[kept]

    def sums(code: int, *, absent: float) -> np.ndarray:
        """float64[T, N, S], the sum of one kind of operation; NaN where a duration is unknown."""
        rows = np.flatnonzero(codes == code)
        flat, size = np.ravel_multi_index([index[rows] for index in place], shape), int(np.prod(shape))
        total = np.bincount(flat, weights=seconds[rows], minlength=size)
        total[np.bincount(flat, minlength=size) == 0] = absent
        return total.reshape(shape)

    work = {name: sums(code, absent=0.0) for name, code in compute.items()}
    phases = _in_slowest_stage(work)
    runtimes: Any = sum(phases.values())
    if shape[2] > 1:
        unseen = unseen or "the table has no column 'start_ts'"
    idle = runtimes == 0
    for times in (runtimes, *phases.values()):
        times[idle] = np.nan
    return Recording(
        runtimes,
        axes[0],
        tuple(str(rank) for rank in axes[1]),
        phases=phases,
        communication={
            name: _of_longest_stage(sums(code, absent=np.nan)) for name, code in across.items() if code in codes
        },
        notes=tuple(notes),
        unseen=f"bubbles and messages between pipeline stages ({unseen})" if unseen else "",
    )


def _rows(cells: Cells, indices: list[np.ndarray]) -> pipelines.OperationRows:
    """The rows that can be used, as operations."""
    columns, per_second = cells.layout.columns, cells.layout.per_second
    names = cells.names[columns["optype"]]
    numbers = {name: cells.numbers[columns[name]] for name in ("duration", *OF_OPERATIONS) if name in columns}
    step, rank, stage = indices
    kept = ~cells.rows.bad & (names.codes >= 0) & np.isfinite(numbers["start_ts"]) & np.isfinite(numbers["duration"])
    if not kept.any():
        raise pipelines.NotAPipeline("no row has a start and a duration")
    of_stage = numbers.get("mc", np.full(len(kept), np.nan))  # the n-th chunk of a stage
    first, last = np.nanmin(stage[kept]), np.nanmax(stage[kept])
    first = first if first == 1 else 0  # stages may count from 1
    chunk = numbers.get("gmc", np.where(of_stage >= 0, of_stage * (last + 1 - first) + stage - first, -1))
    number = numbers.get("seq_id")
    whole = lambda column: np.nan_to_num(column[kept], nan=-1).astype(np.int64)
    start = numbers["start_ts"][kept]
    return pipelines.OperationRows(
        names.values,
        names.codes[kept].astype(np.int64),
        whole(step),
        whole(rank),
        whole(stage),
        seconds_since(start, start.min()) if are_dates(start) else start / per_second,
        numbers["duration"][kept] / per_second,
        None if number is None or np.isnan(number[kept]).any() else whole(number),
        whole(chunk),
        whole(numbers["rank"]) if "rank" in numbers else None,
    )


def of_pipeline(job: pipelines.PipelineJob, notes: list[str]) -> Recording:
    """The recording of a job whose operations are understood."""
    ops, runtimes = job.operations, job.runtimes
    by_stage = {
        name: np.stack([job.seconds[ops.of(name, stage)].sum(axis=0) for stage in ops.stages], axis=-1)
        for name in pipelines.COMPUTE
    }
    phases = _in_slowest_stage(by_stage)
    if len(ops.stages) > 1:
        phases["pipeline"] = np.maximum(runtimes - sum(phases.values()), 0.0)
    rest = np.maximum(job.steps - runtimes.max(axis=1), 0.0)
    return Recording(
        runtimes,
        ops.steps,
        tuple(map(str, ops.ranks)),
        phases=phases,
        communication={"collectives and update": np.repeat(rest[:, None], runtimes.shape[1], axis=1)},
        notes=(*notes, *job.notes),
        job=job,
    )


def _in_slowest_stage(work: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """float64[T, N] by kind, of float64[T, N, S]: what each takes in the stage that takes longest in all."""
    total: Any = sum(work.values())
    slowest = total.argmax(axis=2)[:, :, None]  # a NaN, which makes the step unknown, is the largest
    return {name: np.take_along_axis(times, slowest, axis=2)[:, :, 0] for name, times in work.items()}


def _of_longest_stage(times: np.ndarray) -> np.ndarray:
    """float64[T, N], of float64[T, N, S]: the stage whose least over the workers is longest, in the median step."""
    least = np.fmin.reduce(times, axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a stage without this collective
        median = np.nanmedian(least, axis=0)
    return times[:, :, int(np.argmax(np.nan_to_num(median, nan=-1.0)))]
