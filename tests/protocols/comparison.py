"""Share between the tests of protocols: compute times in which ties abound, and a comparison of every field."""

import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from sgdlab import Schedule

FIELDS = {
    "worker": np.int32,
    "read": np.int32,
    "update": np.int32,
    "started": np.float64,
    "arrived": np.float64,
    "applied": np.float64,
}
SHAPES = st.tuples(st.integers(1, 8), st.integers(1, 6))
WHOLE = st.integers(1, 3).map(float)  # ties everywhere, late arrivals at the very instant of an update among them
FEW = st.sampled_from([1.0, 2.0, 7.0])
ANY = st.one_of(WHOLE, st.floats(0.01, 9.0))
check = settings(derandomize=True, deadline=None, max_examples=200, database=None)


def arrays(shape, elements) -> st.SearchStrategy[np.ndarray]:
    # `fill=nothing()`: every number is drawn, none stands for the rest.
    return hnp.arrays(np.float64, shape, elements=elements, fill=st.nothing())


RUNTIMES = SHAPES.flatmap(
    lambda shape: st.sampled_from([WHOLE, FEW, ANY]).flatmap(lambda elements: arrays(shape, elements))
)


# Late in a run the clock cannot tell these apart: 1e9 s have passed, and its next float64 is 1.2e-7 s away.
BLURRED = SHAPES.flatmap(
    lambda shape: st.builds(
        lambda first, rest: np.concatenate([first, rest]),
        arrays((1, shape[1]), st.just(1e9)),
        arrays(shape, st.sampled_from([1.0, 1.0 + 1e-8, 1.0 + 2e-8, 1.0 + 1e-7])),
    )
)


def without_ties(*, most_rows: int = 8, most_workers: int = 6) -> st.SearchStrategy[np.ndarray]:
    """Compute times of the full 53 bits, no two sums of which are ever equal."""
    sizes = st.tuples(st.integers(1, most_rows), st.integers(1, most_workers))
    return st.builds(
        lambda shape, seed: np.random.default_rng(seed).uniform(0.5, 3.0, shape), sizes, st.integers(0, 10**6)
    )


def assert_schedule_is(schedule: Schedule, expected: dict[str, list], num_workers: int) -> None:
    assert schedule.num_workers == num_workers
    for name, dtype in FIELDS.items():
        array = getattr(schedule, name)
        assert array.dtype == dtype, name
        np.testing.assert_array_equal(array, np.array(expected[name], dtype), err_msg=name, strict=True)


def assert_equal(left: Schedule, right: Schedule) -> None:
    assert_schedule_is(left, {name: getattr(right, name) for name in FIELDS}, right.num_workers)


def assert_rows_are_run_times(schedule: Schedule, runtimes: np.ndarray) -> None:
    """A worker's rows, in the order it began them, last as long as its compute times, and never overlap."""
    for worker in range(schedule.num_workers):
        rows = np.flatnonzero(schedule.worker == worker)
        rows = rows[np.argsort(schedule.started[rows])]
        started, arrived = schedule.started[rows], schedule.arrived[rows, 0]
        np.testing.assert_array_equal(arrived, started + runtimes[: rows.size, worker])
        assert (started[1:] >= arrived[:-1]).all()
