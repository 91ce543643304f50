"""Speed of wave mode, which computes independent gradients together, relative to event mode; most useful on a GPU."""

from collections.abc import Iterator

import jax

import sgdlab
from experiments.benchmarks import setup
from experiments.benchmarks.compilation import compilations
from experiments.benchmarks.timing import Figure, at_least, at_most, interleaved, ratio, speeds

RULE = sgdlab.rules.asgd(learning_rate=setup.LEARNING_RATE, momentum=setup.MOMENTUM)


def figures() -> Iterator[Figure]:
    """Unused lanes of waves, then MLP and conv net with 32 and 128 workers: homogeneous, heterogeneous, synchronous."""
    yield from _lanes()
    accelerator = jax.default_backend() != "cpu"
    gradients = 2000 if accelerator else 300
    for kind in ("mlp", "conv"):
        for workers in (32, 128):
            schedules = {
                "homogeneous": setup.schedule(workers, gradients),
                "heterogeneous": setup.schedule(workers, gradients, heterogeneous=True),
                "synchronous": sgdlab.protocols.synchronous(
                    sgdlab.cluster.gamma(num_workers=workers, num_gradients=-(-gradients // workers), seed=0)
                ),
            }
            for name, schedule in schedules.items():
                program = sgdlab.replay.lower(schedule)
                seconds = interleaved(
                    {mode: setup.replayed(kind, 32, program, RULE, mode=mode) for mode in ("event", "wave")}
                )
                gain = ratio(seconds["event"], seconds["wave"])
                goal = 4 if accelerator and name == "homogeneous" else None
                detail = f"mean wave {program.mean_wave_length():.1f} in {program.capacity.width} lanes; "
                detail += speeds(seconds, program.num_rows)
                yield at_least(f"wave over event, {kind}, N={workers}, {name}", gain, "x", goal, detail)


def _lanes() -> Iterator[Figure]:
    """Computed gradients per needed gradient on heterogeneous clusters, and the seconds of compilation."""
    parts = setup.network("conv")
    for workers in (8, 32, 128):
        schedule = setup.schedule(workers, 20 * workers, heterogeneous=True)
        compiled = {}
        programs = {"chosen": sgdlab.replay.lower(schedule), "all": sgdlab.replay.lower(schedule, width=workers)}
        for name, program in programs.items():
            with compilations() as seconds:
                sgdlab.replay.run(program, RULE, parts, setup.batches(32), mode="wave")
            compiled[name] = sum(seconds)
        wasted = programs["chosen"].lanes_per_gradient()
        yield at_most(
            f"lanes per gradient, heterogeneous, N={workers}, {programs['chosen'].capacity.width} lanes",
            wasted,
            "x",
            1.5,
            f"compiled in {compiled['chosen']:.1f} s; with a lane for every worker "
            f"{programs['all'].lanes_per_gradient():.2f}, {compiled['all']:.1f} s",
        )
