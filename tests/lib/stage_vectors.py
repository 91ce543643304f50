"""Stages of training steps as planted jobs have them: own seconds, and what clocks see where all wait in backward."""

MEANS = {"update": 0.01, "data": 0.02, "forward": 0.03, "backward": 0.06}
"""Seconds of a step's stages; the update comes behind the wait in the step before."""


def planted(rng, *, steps=120, workers=4, jitter=0.05, slow=(), stalls=0.0):
    """Own seconds of each stage, and what clocks see of each: all leave the backward pass together, after 2 ms.

    slow: worker, stage, factor and first step of each. stalls: share of the steps in which data take 0.1 s more.
    """
    own = {name: mean * rng.gamma(1 / jitter**2, jitter**2, (steps, workers)) for name, mean in MEANS.items()}
    own["data"] += 0.1 * (rng.random((steps, workers)) < stalls)
    for worker, stage, factor, since in slow:
        own[stage][since:, worker] *= factor
    seen = {name: own[name].copy() for name in ("data", "forward", "backward", "update")}
    for step in range(steps):
        begun = own["data"][step] + own["forward"][step] + (own["update"][step - 1] if step else 0.0)
        seen["backward"][step] = (begun + own["backward"][step]).max() + 0.002 - begun
    return own, seen
