"""Compute times with a long tail: nearly all gradients take about equally long, a few very much longer."""

import dataclasses

import numpy as np

from sgdlab import arguments
from sgdlab.cluster.family import CLUSTERS


@CLUSTERS.register("long_tailed", title="long-tailed compute times", source="Chen et al. 2016, section 3.1")
@dataclasses.dataclass(frozen=True)
class LongTailed:
    r"""Independent compute times with a log-normal body and a Pareto tail.

    .. math:: t = m e^{\sigma z} \;\text{with probability}\; 1 - p, \qquad
        P(t > x) = (x_0 / x)^{\alpha},\; x \ge x_0 \;\text{with probability}\; p

    The defaults are like the cluster that Chen et al. 2016 describe in section 3.1 and Figures 3 and 4: 100 workers
    whose k-th gradient arrives after 1.4 to 1.8 s for most k, and single ones after minutes; 85 % of the 98th and 25 %
    of the last arrive within 2 s (theirs: 80 and 30 %, which no independent compute times can have both).

    Attributes:
      num_workers: N, number of workers.
      median: m, median compute time of the body, seconds.
      spread: sigma, standard deviation of the logarithm of compute times in the body.
      tail_share: p, share of gradients in the Pareto tail.
      tail_start: x_0, shortest compute time in the tail, seconds.
      tail_index: alpha, exponent of the tail; the mean compute time is finite if it is above 1.

    Source: Chen et al. 2016, section 3.1.

    Example:
      >>> LongTailed(num_workers=3).draw(2, seed=0).shape
      (2, 3)
    """

    num_workers: int
    median: float = 1.55
    spread: float = 0.03
    tail_share: float = 0.0135
    tail_start: float = 2.0
    tail_index: float = 1.6

    def __post_init__(self) -> None:
        arguments.whole("num_workers", self.num_workers)
        for name in ("median", "tail_start", "tail_index"):
            arguments.real(name, getattr(self, name), above=0)
        arguments.real("spread", self.spread, least=0)
        arguments.real("tail_share", self.tail_share, least=0, most=1)

    def draw(self, rows: int, *, seed: int) -> np.ndarray:
        """float64[rows, N], seconds; more rows do not change the earlier ones."""
        import scipy.special  # noqa: PLC0415 (it takes long to import, and few clusters have a long tail)

        arguments.whole("rows", rows)
        generator = np.random.default_rng(arguments.whole("seed", seed, least=0))
        # All numbers of a row are drawn together, so that more rows do not change the earlier ones.
        numbers = generator.random((rows, 3, self.num_workers))
        body = self.median * np.exp(self.spread * scipy.special.ndtri(numbers[:, 0]))
        tail = self.tail_start * (1 - numbers[:, 1]) ** (-1 / self.tail_index)
        return np.where(numbers[:, 2] < self.tail_share, tail, body)

    def __str__(self) -> str:
        return (
            f"long-tailed compute times (Chen et al. 2016, section 3.1), median {self.median:g} s, "
            f"{self.tail_share:.3g} of gradients in a Pareto tail of index {self.tail_index:g} from "
            f"{self.tail_start:g} s"
        )


def long_tailed(
    *,
    num_workers: int,
    num_gradients: int,
    median: float = LongTailed.median,
    spread: float = LongTailed.spread,
    tail_share: float = LongTailed.tail_share,
    tail_start: float = LongTailed.tail_start,
    tail_index: float = LongTailed.tail_index,
    seed: int,
) -> np.ndarray:
    """Draws `num_gradients` rows from `LongTailed`, which describes the other numbers: float64[T, N], seconds.

    Example:
      >>> long_tailed(num_workers=3, num_gradients=2, seed=0).shape
      (2, 3)
    """
    law = LongTailed(num_workers, median, spread, tail_share, tail_start, tail_index)
    return law.draw(arguments.whole("num_gradients", num_gradients), seed=seed)
