"""Share between the tests of the two modes: rules, schedules, and a run of either with all its results."""

import functools

import numpy as np
from lib.replay_cases import any_blocks, assert_close, batches, examples, layers, network, opposite, partly, seeded

from sgdlab import rules
from sgdlab.replay import Capacity, Result, Watch, lower, run

WORKERS = 5
RULES = {
    "asgd": lambda: rules.asgd(learning_rate=0.01, momentum=0.9),
    "nag": lambda: rules.nag_asgd(learning_rate=0.01, weight_decay=1e-3),
    "staleness_aware": lambda: rules.staleness_aware(learning_rate=0.02),
    "dana": lambda: rules.dana(learning_rate=0.005, num_workers=WORKERS),
    "adam": lambda: rules.adam(learning_rate=0.002),
    "gap_aware": lambda: rules.gap_aware(learning_rate=0.02),
}
# One compilation for all schedules of several gradients an update.
WIDTH = 4
CAPACITY = Capacity(rows=256, slots=8, width=WIDTH)
BLOCK_CAPACITY = Capacity(rows=128, slots=32, width=WIDTH, kept=16)
SEVERAL_BLOCKS = {
    "anything": lambda: any_blocks(seeded(0), 60, WORKERS, 3),
    "opposite": lambda: opposite(60, 3),
    "partial": lambda: partly(15, push_at_least=3, pull_timeout=0.5),
    "layers, end": lambda: layers(60, "forward", "end"),
    "layers, backward": lambda: layers(60, "forward", "backward"),
}


def replayed(name: str, rule: str, schedule, **options) -> Result:
    net = network(name)
    watch = Watch(every=50, evaluate=functools.partial(net.evaluate, batch=examples(1)), average_decay=0.95, norms=True)
    capacity = CAPACITY if schedule.num_blocks == 1 else BLOCK_CAPACITY
    program = lower(schedule, every=watch.every, capacity=capacity, width=WIDTH)
    assert schedule.num_blocks == 1 or (program.capacity.rows, program.capacity.slots) == (
        capacity.rows,
        capacity.slots,
    )
    assert program.mean_wave_length() > 1.5  # else there is nothing to compare
    return run(
        program,
        RULES[rule](),
        net,
        batches(),
        watch=watch,
        **options,
    )


def assert_same(left: Result, right: Result, tolerance: float, *, evaluations: int = 3) -> None:
    everything = lambda result: {
        "params": result.params,
        "state": result.state,
        "stats": result.stats,
        "average": result.average,
        "average_stats": result.average_stats,
        "aux": result.history.aux,
        **{name: np.nan_to_num(getattr(result.history, name)) for name in ("distance", "step", "norm")},
        "evaluations": {
            f"{index}": {name: np.float64(value) for name, value in values.items()}
            for index, values in enumerate(result.history.evaluations)
        },
    }
    left, right = everything(left), everything(right)
    assert len(left["evaluations"]) >= evaluations
    assert {"loss", "accuracy", "average_loss"} <= left["evaluations"]["1"].keys()
    assert left["step"].max() > 0
    # The sum of squares of a gradient is taken in the order in which XLA holds it, which is no part of the run.
    assert_close(left.pop("norm"), right.pop("norm"), max(tolerance, 1e-15))
    assert_close(left, right, tolerance)
