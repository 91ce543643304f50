"""Two identities of weak synchronization, checked in float64: it contains synchronous SGD, and steps grow with d.

With c = N, b = 100 % and no delays, every server waits for all workers and every worker for all servers: the parameters
must be those of synchronous SGD after every update. Both schedules are replayed on a noisy quadratic, and compared with
a loop of NumPy that knows no schedule. Line 13 of Algorithm 1, w - d eta Updater(g / d), makes a step of d gradients d
times that of one gradient with the same mean, whatever the momentum has gathered before. The paper prints no numbers:
the column paper has what the formulas give.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from experiments import papers
from experiments.harness import PALETTE, Claim, Count, Output, Scale, canvas, figure
from sgdlab import protocols, replay, rules
from sgdlab.schedule import Schedule
from sgdlab.tasks import Task

MOMENTUM, WEIGHT_DECAY, RATE = 0.9, 1e-4, 0.01
CURVATURE = np.geomspace(0.1, 1.0, 12)
TOLERANCE = 1e-12
"""Relative differences below this are rounding."""


@figure(
    papers.WEAK,
    "identities",
    scales={"smoke": Scale("5 s", workers=4, servers=2, iterations=5), "laptop": Scale("5 s")},
    differs="The paper states these and measures neither.",
    full_size=True,
)
def identities(*, workers: Count = 32, servers: Count = 12, iterations: Count = 100, seed: Count = 1) -> Output:
    """Replays the schedules and compares.

    Args:
      workers: N.
      servers: number of servers, at most one for each of the 12 parameters.
      iterations: number of updates.
      seed: seed of compute times and noise.
    """
    generator = np.random.default_rng(seed)
    runtimes = generator.gamma(4.0, size=(iterations, workers))
    noise = generator.standard_normal((iterations * workers, CURVATURE.size))
    waits = {"push_at_least": workers, "pull_at_least": 1.0}
    with jax.enable_x64(True):
        partial = replayed(protocols.partial(runtimes, num_servers=servers, **waits), noise)
        synchronous = replayed(protocols.synchronous(runtimes), noise)
        counts = np.arange(1, workers + 1)
        steps = np.array([step(int(d), noise[:2]) for d in counts])
    expected = by_hand(noise.reshape(iterations, workers, -1))
    apart = {
        "synchronous SGD": np.abs(partial - synchronous).max() / np.abs(synchronous).max(),
        "the loop of NumPy": np.abs(partial - expected).max() / np.abs(expected).max(),
    }
    ratios = steps @ steps[0] / (steps[0] @ steps[0])
    off = np.abs(steps - counts[:, None] * steps[0]).max() / np.abs(steps[-1]).max()
    rows = [
        {
            "quantity": f"largest difference of the parameters from those of {name}, relative",
            "ours": value,
            "paper": 0.0,
        }
        for name, value in apart.items()
    ]
    rows += [
        {"quantity": "step of d gradients / step of one", "d": d, "ours": ratio, "paper": float(d)}
        for d, ratio in zip(counts.tolist(), ratios, strict=True)
    ]
    exact = f"below {TOLERANCE:g} is rounding"
    claims = [
        Claim(
            "when c = N and b = 100 %, the algorithm is naive synchronous SGD", "section 3",
            ours="; ".join(f"{value:.2g} from {name}" for name, value in apart.items()) + f"; {exact}",
            holds=max(apart.values()) < TOLERANCE,
            identity=True,
        ),
        Claim(
            "the learning rate is linear in the number of gradients: w - d eta Updater(g / d)",
            "section 2.2 and Algorithm 1, line 13",
            ours=f"steps of 1 to {workers} gradients differ by {off:.2g} from d times that of one; {exact}",
            holds=off < TOLERANCE,
            identity=True,
        ),
    ]  # fmt: skip
    drawn, panels = canvas(1, 2, width=11, height=4.4)
    left, right = panels[0]
    updates = np.arange(1, iterations + 1)
    for parameters, label, style in ((synchronous, "synchronous SGD", "-"), (partial, f"({workers}, 100 %)", "--")):
        loss = (CURVATURE * parameters**2).sum(axis=1) / 2
        left.plot(updates, loss, style, color=PALETTE[0 if style == "-" else 1], label=label)
    left.set(xlabel="update", ylabel="loss of the quadratic", yscale="log")
    left.legend()
    right.plot(counts, counts, "-", color="black", label="d")
    right.plot(counts, ratios, "o", color=PALETTE[0], label="measured")
    right.set(xlabel="d, gradients of an update", ylabel="step / step of one gradient")
    right.legend()
    return Output(pd.DataFrame(rows), drawn, claims)


def rule() -> rules.ServerRule:
    """Return the paper's momentum SGD, whose step is linear in the number of gradients."""
    return rules.linear_scaling(learning_rate=RATE, momentum=MOMENTUM, nesterov=False, weight_decay=WEIGHT_DECAY)


def replayed(schedule: Schedule, noise: np.ndarray) -> np.ndarray:
    """float64[T, 12]: the parameters after each update of a schedule.

    Args:
      schedule: of T updates.
      noise: float64[R, 12], of each gradient.
    """
    start = {f"{index:02}": jnp.ones(1) for index in range(CURVATURE.size)}
    scales = dict(zip(start, CURVATURE, strict=True))
    drawn = dict(zip(start, jnp.asarray(noise.T)[:, :, None], strict=True))
    evaluate = lambda params, stats: {name: params[name][0] for name in params}
    found = replay.run(
        schedule,
        rule(),
        Task(lambda params, batch: ({name: scales[name] * params[name] + batch[name] for name in params}, {}), start),
        lambda gradient: {name: drawn[name][gradient] for name in drawn},
        watch=replay.Watch(every=schedule.num_workers, evaluate=evaluate),
    )
    evaluations = found.history.evaluations[1:]
    return np.array([[float(evaluation[name]) for name in start] for evaluation in evaluations])


def step(count: int, gradients: np.ndarray) -> np.ndarray:
    """float64[12]: the second update, of so many gradients, after one of a single gradient."""
    made, params = rule(), jnp.ones(CURVATURE.size)
    state = made.init(params)
    first, state = made.update(jnp.asarray(gradients[0]), state, params, num_gradients=1)
    return np.asarray(made.update(jnp.asarray(gradients[1]), state, params + first, num_gradients=count)[0])


def by_hand(noise: np.ndarray) -> np.ndarray:
    """float64[T, 12]: synchronous SGD on the quadratic, written out.

    Args:
      noise: float64[T, N, 12].
    """
    theta, velocity, after = np.ones(CURVATURE.size), 0.0, []
    for of_update in noise:
        mean = (CURVATURE * theta + of_update).mean(axis=0) + WEIGHT_DECAY * theta
        velocity = MOMENTUM * velocity + mean
        theta = theta - len(of_update) * RATE * velocity
        after.append(theta)
    return np.array(after)
