"""Wave mode over event mode: what is gained by computing independent gradients at once. Worth a GPU."""

import statistics
from collections.abc import Iterator

import jax

import sgdlab
from experiments.benchmarks import setup
from experiments.benchmarks.timing import Figure, interleaved, ratio


def figures() -> Iterator[Figure]:
    """MLP and conv net, 32 and 128 workers, homogeneous and heterogeneous."""
    accelerator = jax.default_backend() != "cpu"
    rule = sgdlab.rules.asgd(learning_rate=setup.LEARNING_RATE, momentum=setup.MOMENTUM)
    for kind in ("mlp", "conv"):
        for workers in (32, 128):
            for heterogeneous in (False, True):
                gradients = 2000 if accelerator else 300
                program = sgdlab.replay.lower(setup.schedule(workers, gradients, heterogeneous=heterogeneous))
                seconds = interleaved(
                    {mode: setup.replayed(kind, 32, program, rule, mode=mode) for mode in ("event", "wave")}
                )
                gain = ratio(seconds["event"], seconds["wave"])
                asked = accelerator and not heterogeneous
                speeds = ", ".join(f"{m} {gradients / statistics.median(s):,.0f}/s" for m, s in seconds.items())
                yield Figure(
                    f"wave over event, {kind}, N={workers}, {'hetero' if heterogeneous else 'homo'}geneous",
                    gain,
                    "x",
                    ">= 4" if asked else "",
                    gain >= 4 if asked else None,
                    f"mean wave {program.mean_wave_length():.1f}; {speeds}",
                )
