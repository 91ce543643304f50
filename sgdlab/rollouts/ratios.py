r"""Ratio rules: what the trainer makes of tokens that another version of the policy has sampled.

:math:`\pi_\theta` is the policy that is trained, :math:`\pi_b` the behaviour: the version that sampled the token, and
:math:`\pi_p` the proximal policy: the one at the start of the trainer step. A rule returns the surrogate of each token,
whose gradient is ascended. With fresh tokens and one optimizer step a batch, all of them are the policy gradient.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from sgdlab.bounds import Positive, Share
from sgdlab.rollouts.family import RATIO_RULES


class SampledTokens(NamedTuple):
    """Holds what is known of the tokens of a minibatch, in arrays of one shape."""

    now: jax.Array  # log pi_theta, the only one that is differentiated
    prox: jax.Array  # log pi_p
    behaviour: jax.Array  # log pi_b
    advantage: jax.Array  # A, that of the token's rollout
    lag: jax.Array  # steps between the version that sampled the token and this one
    weight: jax.Array  # how much the token counts; 0: not at all


RatioRule = Callable[[SampledTokens], jax.Array]


def _clipped(log_ratio: jax.Array, advantage: jax.Array, clip: float) -> jax.Array:
    """Return PPO's surrogate, min(r A, clip(r, 1 - clip, 1 + clip) A)."""
    ratio = jnp.exp(log_ratio)
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def _truncated(log_ratio: jax.Array, cap: float) -> jax.Array:
    """Return min(r, cap), a constant."""
    return stop_gradient(jnp.minimum(jnp.exp(log_ratio), cap))


@RATIO_RULES.register(title="no correction", source="Williams 1992")
def none() -> RatioRule:
    r"""Takes stale tokens for fresh ones: :math:`A \log \pi_\theta`."""
    return lambda tokens: tokens.advantage * tokens.now


@RATIO_RULES.register(title="PPO clip on the behaviour", source="Schulman et al. 2017")
def ppo(*, clip: Share = 0.2) -> RatioRule:
    r"""Clips the ratio to the behaviour: :math:`\min(r A, \mathrm{clip}(r, 1 \pm \epsilon) A), r = \pi_\theta / \pi_b`.

    Args:
      clip: epsilon.
    """
    return lambda tokens: _clipped(tokens.now - tokens.behaviour, tokens.advantage, clip)


@RATIO_RULES.register(title="decoupled PPO", source="Hilton et al. 2022; AReaL (arXiv 2505.24298)")
def decoupled(*, clip: Share = 0.2, cap: Positive = 2.0) -> RatioRule:
    r"""Weighs by the ratio of proximal policy and behaviour, and clips that to the proximal policy.

    .. math:: \min(\pi_p / \pi_b, C) \min(r A, \mathrm{clip}(r, 1 \pm \epsilon) A), \qquad r = \pi_\theta / \pi_p

    With one optimizer step a batch, r is 1 and nothing is clipped.

    Args:
      clip: epsilon.
      cap: C. AReaL has the choice between this and leaving out tokens above it.
    """

    def surrogate(tokens: SampledTokens) -> jax.Array:
        clipped = _clipped(tokens.now - tokens.prox, tokens.advantage, clip)
        return _truncated(tokens.prox - tokens.behaviour, cap) * clipped

    return surrogate


@RATIO_RULES.register(title="A-3PO", source="Li et al. 2025 (arXiv 2512.06547), as AReaL documents it")
def a3po(*, clip: Share = 0.2, cap: Positive = 2.0) -> RatioRule:
    r"""Decouples as `decoupled` does, with a proximal policy that is interpolated and not computed.

    .. math:: \log \pi_p = \log \pi_b + \alpha (\log \pi_\theta - \log \pi_b), \qquad \alpha = \max(0, 1 - 1 / d)

    with d the token's staleness in versions; of a fresh token it is the behaviour.

    Args:
      clip: epsilon.
      cap: C.
    """

    def surrogate(tokens: SampledTokens) -> jax.Array:
        share = 1 - 1 / jnp.maximum(tokens.lag, 1)
        prox = tokens.behaviour + share * (stop_gradient(tokens.now) - tokens.behaviour)
        return decoupled(clip=clip, cap=cap)(tokens._replace(prox=prox))

    return surrogate


@RATIO_RULES.register(title="truncated importance sampling", source="Espeholt et al. 2018; Yao et al. 2025")
def truncated_is(*, cap: Positive = 2.0) -> RatioRule:
    r"""Weighs by the ratio to the behaviour, up to a cap: :math:`\min(\pi_\theta / \pi_b, C) A \log \pi_\theta`.

    The weight is a constant: it is not differentiated.

    Args:
      cap: C.
    """
    return lambda tokens: _truncated(tokens.now - tokens.behaviour, cap) * tokens.advantage * tokens.now


@RATIO_RULES.register(title="M2PO", source="Zheng et al. 2025, as AReaL documents it")
def m2po(*, threshold: Positive = 0.04) -> RatioRule:
    r"""Leaves out the tokens with the largest :math:`(\log r)^2` until its mean over the rest is below a threshold.

    .. math:: M r A, \qquad r = \pi_\theta / \pi_b, \qquad M \in \{0, 1\}

    The token with the smallest one stays in any case.

    Args:
      threshold: of the mean over the tokens of a minibatch.
    """

    def surrogate(tokens: SampledTokens) -> jax.Array:
        log_ratio = tokens.now - tokens.behaviour
        kept = second_moment_mask(stop_gradient(log_ratio) ** 2, tokens.weight, threshold)
        return kept * jnp.exp(log_ratio) * tokens.advantage

    return surrogate


def second_moment_mask(moments: jax.Array, weight: jax.Array, threshold: float) -> jax.Array:
    """Return which tokens stay where the largest moments go until the weighted mean of the others is below a threshold.

    Example:
      >>> second_moment_mask(jnp.array([0.5, 0.01, 0.0, 0.09]), jnp.ones(4), 0.04).tolist()
      [False, True, True, True]
    """
    order = jnp.argsort(jnp.where(weight > 0, moments, jnp.inf), axis=None)
    sums = jnp.cumsum(jnp.stack([moments, jnp.ones_like(moments)]).reshape(2, -1)[:, order] * weight.ravel()[order], 1)
    kept = (sums[0] < threshold * sums[1]).at[0].set(True)  # the mean only rises
    return jnp.zeros(moments.size, bool).at[order].set(kept).reshape(moments.shape)
