"""Workloads of reinforcement learning of language models: how many tokens each rollout of each prompt has.

A workload is data, and the same for every staleness policy, as compute times are for every protocol.
"""

import dataclasses
import math
from typing import Annotated

import numpy as np

from sgdlab import arrays
from sgdlab.bounds import Bounds, Count, NotNegative, Positive, Whole
from sgdlab.rollouts.family import ROLLOUT_LENGTHS

_Portion = Annotated[float, Bounds(ge=0, le=1)]


@dataclasses.dataclass(frozen=True, eq=False)
class Workload:
    """Holds the lengths of rollouts.

    Attributes:
      tokens: int64[A, P, G], tokens of rollout g of attempt a at prompt p. A prompt that is requeued, or comes again in
        the next pass over all prompts, takes its next attempt; after the last one the first again.

    Raises:
      ValueError: from the constructor, where lengths are no whole numbers of at least 1, or none are given.

    Example:
      >>> Workload(np.array([[[100, 300], [200, 200]]])).tailness()
      1.25
    """

    tokens: np.ndarray

    def __post_init__(self) -> None:
        tokens = arrays.frozen_copy("tokens", self.tokens, np.int64)
        object.__setattr__(self, "tokens", tokens)
        if tokens.ndim != 3 or not tokens.size:
            raise ValueError(f"tokens of shape {tokens.shape} must have shape [A, P, G], and none of these be 0")
        arrays.refuse(tokens < 1, "tokens", tokens, "at least 1")

    @property
    def attempts(self) -> int:
        """A, number of attempts at each prompt that are known."""
        return self.tokens.shape[0]

    @property
    def prompts(self) -> int:
        """P, number of prompts."""
        return self.tokens.shape[1]

    @property
    def group(self) -> int:
        """G, rollouts of a group."""
        return self.tokens.shape[2]

    def mean(self) -> float:
        """Return the mean length of the first attempts, in tokens."""
        return float(self.tokens[0].mean())

    def longest(self) -> float:
        """Return the mean length of the longest rollout of a group, in tokens."""
        return float(self.tokens[0].max(axis=1).mean())

    def tailness(self) -> float:
        r"""Return how much longer the longest rollout of a group is than a rollout.

        .. math:: M = E \max(L_1, \dots, L_G) / E L
        """
        return self.longest() / self.mean()

    def classes(self, number: int = 10) -> np.ndarray:
        """int64[P]: the class of each prompt, from 0 (the shortest), by the geometric mean of all its rollouts.

        Prompts that are equal are distributed at random, always in the same way, since they may begin in order.
        """
        own = np.log(self.tokens).mean(axis=(0, 2))
        rank = np.empty(self.prompts, np.int64)
        rank[np.lexsort((np.random.default_rng(0).permutation(self.prompts), own))] = np.arange(self.prompts)
        return rank * number // self.prompts


@ROLLOUT_LENGTHS.register(title="log-normal lengths, of which a share of the variance is the prompt's own")
def lognormal(
    *,
    prompts: Count,
    group: Count = 8,
    attempts: Count = 4,
    seed: Whole = 0,
    mean: Positive = 1000.0,
    sigma: NotNegative = 1.0,
    share: _Portion = 0.5,
    cap: Count | None = None,
    loop: _Portion = 0.0,
) -> Workload:
    r"""Draws log-normal lengths, rounded up.

    .. math:: \log L_{apg} = \log m - \sigma^2 / 2 + \sigma (\sqrt{s}\, x_p + \sqrt{1 - s}\, y_{apg}), \qquad
        x, y \sim N(0, 1)

    Args:
      prompts: P.
      group: G.
      attempts: A.
      seed: of the draws; more prompts do not change those that are there.
      mean: m, tokens, before cap and loops.
      sigma: standard deviation of the logarithm.
      share: s, from 0 (all prompts are alike) to 1 (length is the prompt's): the share of the variance of log length
        that is the prompt's own.
      cap: tokens at which a rollout is cut. None: never.
      loop: share of the rollouts that repeat themselves until the cap.

    Example:
      >>> lognormal(prompts=3, group=2, attempts=1, sigma=0.0).tokens.tolist()
      [[[1000, 1000], [1000, 1000], [1000, 1000]]]
    """
    if loop and cap is None:
        raise ValueError(f"loop={loop} must be 0 without a cap: a loop runs until the cap")
    own, other, loops = (np.random.default_rng([seed, stream]) for stream in range(3))
    shape = (prompts, attempts, group)  # so that more prompts come last
    common, single = own.standard_normal((prompts, 1, 1)), other.standard_normal(shape)
    normal = math.sqrt(share) * common + math.sqrt(1 - share) * single
    tokens = np.ceil(mean * np.exp(sigma * normal - sigma**2 / 2))
    if cap is not None:
        tokens = np.where(loops.random(shape) < loop, cap, np.minimum(tokens, cap))
    return Workload(np.maximum(tokens, 1).astype(np.int64).swapaxes(0, 1))
