"""The deep Markov model and its guide a second time, from the formulas: NumPy, one window and one step at a time.

Parameters are the nested dictionaries of `WindowModel.initial`. States and times may have leading axes, of samples.
"""

import numpy as np
from scipy.stats import norm

from sgdlab.deep_markov import Architecture
from sgdlab.deep_markov.model import WindowModel

WORKERS, LAG = 3, 4
WIDTHS = {"lag": LAG, "state": 2, "gate": 3, "emission": 4, "scale": 5, "recurrent": 6}

LEAST_STD = 1e-3
CENTER = 0.5  # networks read compute times less this


def small(*, literal=False) -> Architecture:
    """No two widths are the same: a mistaken axis cannot pass."""
    return Architecture(**WIDTHS, literal=literal)


def parameters_of(model: WindowModel, *, seed=0) -> dict:
    """Parameters of the model's shapes in float64, no bias and no first state of which is zero."""
    generator = np.random.default_rng(seed)

    def drawn(tree):
        if isinstance(tree, dict):
            return {name: drawn(part) for name, part in tree.items()}
        return 0.5 * generator.normal(size=tree.shape)

    return drawn(model.initial)


def windows(count, *, seed=0) -> np.ndarray:
    """Normalised compute times, float64[count, LAG, WORKERS]."""
    return np.random.default_rng(seed).uniform(0.3, 0.9, (count, LAG, WORKERS))


def relu(x):
    return np.maximum(x, 0)


def softplus(x):
    return np.logaddexp(0, x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def dense(layer, x):
    return x @ layer["kernel"] + layer["bias"]


def split(layer, x):
    """Two layers of the same input, stored as one."""
    values = dense(layer, x)
    half = values.shape[-1] // 2
    return values[..., :half], values[..., half:]


def transition(parameters, z):
    part = parameters["transition"]
    for_gate, for_proposed = split(part["hidden"], z)
    g = sigmoid(dense(part["gate"], relu(for_gate)))
    h = dense(part["proposed"], relu(for_proposed))
    mean = (1 - g) * dense(part["linear"], z) + g * h
    return mean, softplus(dense(part["std"], relu(mean))) + LEAST_STD


def emission(parameters, z):
    part = parameters["emission"]
    mean = dense(part["mean"], dense(part["inner"], z))
    return mean, softplus(dense(part["std"], relu(dense(part["hidden"], mean - CENTER)))) + LEAST_STD


def memories(parameters, window, *, literal, foresight=1.0):
    """Return what the left and the right network know at each step of one window, two lists of float64[R]."""
    part = parameters["guide"]
    steps = len(window)
    recurrent_left, recurrent_right = part["recurrent"]
    left, right = [], [None] * steps
    memory = np.zeros(len(recurrent_left))
    for t in range(steps):
        before = memory
        memory = relu(split(part["inputs"], window[t] - CENTER)[0] + memory @ recurrent_left)
        left.append(before if literal else memory)
    memory = np.zeros(len(recurrent_right))
    for t in reversed(range(steps)):
        after = memory
        memory = relu(split(part["inputs"], window[t] - CENTER)[1] + foresight * memory @ recurrent_right)
        right[t] = foresight * after if literal else memory
    return left, right


def guide(parameters, z, left, right):
    part = parameters["guide"]
    mean = dense(part["mean"], (np.tanh(dense(part["previous"], z)) + left + right) / 3)
    return mean, softplus(dense(part["std"], mean)) + LEAST_STD


def log_densities(parameters, window, z, *, literal, foresight=1.0):
    """log p(x | z), log p(z) and log q(z | x) of one window, float64[L, N], and its states, float64[L, Z]."""
    left, right = memories(parameters, window, literal=literal, foresight=foresight)
    log_x = log_p = log_q = 0.0
    z_model, z_guide = parameters["before"], parameters["guide_before"]
    for t in range(len(window)):
        log_x += norm.logpdf(window[t], *emission(parameters, z[t])).sum()
        log_p += norm.logpdf(z[t], *transition(parameters, z_model)).sum()
        log_q += norm.logpdf(z[t], *guide(parameters, z_guide, left[t], right[t])).sum()
        z_model = z_guide = z[t]
    return log_x, log_p, log_q


def elbo(parameters, batch, z, *, literal, state_weight=1.0, foresight=None):
    """Of windows, float64[B, L, N], on one draw of their states, float64[B, L, Z]."""
    foresight = np.ones(len(batch)) if foresight is None else foresight
    total = 0.0
    for window, states, memory in zip(batch, z, foresight, strict=True):
        log_x, log_p, log_q = log_densities(parameters, window, states, literal=literal, foresight=memory)
        total += log_x + state_weight * (log_p - log_q)
    return total


def forecast(parameters, window, for_state, for_next, for_runtimes, *, literal=False):
    """Of a normalised window: standard normal numbers -> K draws of the next compute times, and their moments.

    Args:
      parameters: of the model.
      window: float64[L, N].
      for_state: float64[L, K, Z].
      for_next: float64[K, Z].
      for_runtimes: float64[K, N].
      literal: the guide as it is printed.

    Returns:
      Compute times, means and standard deviations, float64[K, N] each.
    """
    left, right = memories(parameters, window, literal=literal)
    rows = []
    for k in range(len(for_next)):
        z = parameters["guide_before"]
        for t in range(len(window)):
            mean, std = guide(parameters, z, left[t], right[t])
            z = mean + std * for_state[t, k]
        mean, std = transition(parameters, z)
        mean, std = emission(parameters, mean + std * for_next[k])
        rows.append((mean + std * for_runtimes[k], mean, std))
    return tuple(np.array(column) for column in zip(*rows, strict=True))
