"""Sets the size of each measurement: on an accelerator, on a CPU, and in the tests."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Says what is timed.

    Attributes:
      network: its name.
      pixels: height and width of the images.
      batch: B, examples of a gradient.
      workers: numbers of workers N, ascending.
      gradients: of one run.
      seeds: numbers of runs S that are one program.
      rounds: of interleaved runs.
    """

    network: str
    pixels: int
    batch: int
    workers: tuple[int, ...]
    gradients: int
    seeds: tuple[int, ...]
    rounds: int


@dataclasses.dataclass(frozen=True)
class Scale:
    """The sizes of the checks and of the timings.

    Attributes:
      name: "accelerator", "cpu" or "toy".
      cases: names of `problems.CASES` that are checked in float64; the first one also in float32.
      channels: of the convolutions in the checks.
      workers: N of the checks.
      gradients: of a run of the checks.
      timings: network, batches, numbers of workers, seeds and rounds of the timings.
    """

    name: str
    cases: tuple[str, ...]
    channels: tuple[int, int]
    workers: int
    gradients: int
    timings: Sizes


_ALL = ("asynchronous", "dana", "backup workers", "pull gossip")

SCALES = {
    scale.name: scale
    for scale in (
        Scale("accelerator", _ALL, (16, 32), 8, 64, Sizes("ResNet-20", 32, 32, (8, 32, 128), 1024, (1, 4, 16), 9)),
        Scale("cpu", _ALL, (16, 32), 8, 64, Sizes("ResNet-8", 8, 8, (8, 32), 64, (1, 4), 5)),
        Scale("toy", _ALL[:2], (4, 4), 3, 12, Sizes("ResNet-8", 8, 2, (2, 4), 4, (1, 2), 2)),
    )
}
