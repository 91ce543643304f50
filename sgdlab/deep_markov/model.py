"""The deep Markov model of a cluster's compute times: its networks, its guide, and both for NumPyro (`WindowModel`).

Source: Teng and Wood 2018, section 3.1.3.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from flax import nnx
from numpyro.distributions import constraints

from sgdlab import arguments

MeanAndStd = tuple[jax.Array, jax.Array]

_CENTER = 0.5
"""The typical normalised compute time, which is subtracted from the inputs of layers that read all workers. Otherwise a
step of Adam, which moves all weights equally far, moves their sums over all workers so far that all rectified units of
a layer become negative, and stay so."""

_LEAST_STD = 1e-3
"""Least standard deviation of normalised compute times and states: densities stay finite for constant compute times."""


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The widths of the deep Markov model.

    Attributes:
      lag: l, number of steps in a window.
      state: width of the state z.
      gate: hidden width of the gated transition.
      emission: hidden width of the linear mean.
      scale: hidden width of the emission's standard deviation.
      recurrent: width of the guide's two recurrent networks.
      literal: whether to use the guide as printed, which at step t reads x up to t - 1 and from t + 1 on, but not x_t:
        at the last step, from which everything is predicted, it does not know the newest compute times. By default it
        reads x_t.

    Raises:
      ValueError: if a width is less than 1.
    """

    lag: int = 20
    state: int = 16
    gate: int = 32
    emission: int = 32
    scale: int = 32
    recurrent: int = 64
    literal: bool = False

    def __post_init__(self) -> None:
        for name in ("lag", "state", "gate", "emission", "scale", "recurrent"):
            object.__setattr__(self, name, arguments.whole(name, getattr(self, name)))  # a plain number, for JSON


def _std(values: jax.Array) -> jax.Array:
    return jax.nn.softplus(values) + _LEAST_STD


class Transition(nnx.Module):
    r"""The gated transition.

    .. math:: G = (1 - g) \cdot A z + g \cdot h, \quad H = softplus(B\, relu(G)), \quad
        g = \sigma(MLP(z)), \quad h = MLP(z)
    """

    def __init__(self, widths: Architecture, *, rngs: nnx.Rngs):
        # The two perceptrons have the same input: their hidden layers are computed as one.
        self.hidden = nnx.Linear(widths.state, 2 * widths.gate, rngs=rngs)
        self.proposed = nnx.Linear(widths.gate, widths.state, rngs=rngs)
        # At first the gate is nearly closed: a cluster rarely changes.
        self.gate = nnx.Linear(widths.gate, widths.state, bias_init=nnx.initializers.constant(-2.0), rngs=rngs)
        self.linear = nnx.Linear(widths.state, widths.state, kernel_init=_identity, rngs=rngs)
        self.std = nnx.Linear(widths.state, widths.state, bias_init=nnx.initializers.constant(-1.0), rngs=rngs)

    def __call__(self, z: jax.Array) -> MeanAndStd:
        """Return mean and standard deviation of the next state, float[..., Z] each, from float[..., Z]."""
        for_gate, for_proposed = jnp.split(jax.nn.relu(self.hidden(z)), 2, axis=-1)
        gate = jax.nn.sigmoid(self.gate(for_gate))
        mean = (1 - gate) * self.linear(z) + gate * self.proposed(for_proposed)
        return mean, _std(self.std(jax.nn.relu(mean)))


class Emission(nnx.Module):
    r"""Normalised compute times given a state: a linear mean, and a standard deviation that is a function of the mean.

    .. math:: I = A_2 A_1 z, \qquad J = softplus(MLP(I))
    """

    def __init__(self, num_workers: int, widths: Architecture, *, rngs: nnx.Rngs):
        half, fifth = nnx.initializers.constant(_CENTER), nnx.initializers.constant(-1.5)
        self.inner = nnx.Linear(widths.state, widths.emission, rngs=rngs)
        self.mean = nnx.Linear(widths.emission, num_workers, bias_init=half, rngs=rngs)
        self.hidden = nnx.Linear(num_workers, widths.scale, rngs=rngs)
        self.std = nnx.Linear(widths.scale, num_workers, bias_init=fifth, rngs=rngs)

    def __call__(self, z: jax.Array) -> MeanAndStd:
        """Return mean and standard deviation of normalised compute times, float[..., N] each, from float[..., Z]."""
        # With one batch axis: for two of them XLA takes four times as long for the weights' gradients on a CPU.
        rows = z.reshape(-1, z.shape[-1])
        mean = self.mean(self.inner(rows))
        std = _std(self.std(jax.nn.relu(self.hidden(mean - _CENTER))))
        return mean.reshape(*z.shape[:-1], -1), std.reshape(*z.shape[:-1], -1)


class Guide(nnx.Module):
    r"""The amortised posterior of a state, given the previous state and summaries of earlier and later compute times.

    .. math:: h = \tfrac{1}{3} (\tanh(W z_{t-1}) + h_{left} + h_{right}), \quad \mu = K h, \quad
        \sigma = softplus(L \mu)
    """

    def __init__(self, num_workers: int, widths: Architecture, *, rngs: nnx.Rngs):
        width = widths.recurrent
        self.literal = widths.literal
        self.inputs = nnx.Linear(num_workers, 2 * width, rngs=rngs)  # of both recurrent networks
        self.recurrent = nnx.Param(jnp.stack([nnx.initializers.orthogonal(0.9)(rngs.params(), (width, width))] * 2))
        self.previous = nnx.Linear(widths.state, width, rngs=rngs)
        self.mean = nnx.Linear(width, widths.state, rngs=rngs)
        self.std = nnx.Linear(widths.state, widths.state, bias_init=nnx.initializers.constant(-1.0), rngs=rngs)

    def summaries(self, windows: jax.Array, foresight: jax.Array | float = 1.0) -> jax.Array:
        """Run both recurrent networks over a window.

        Args:
          windows: float[..., L, N], normalised.
          foresight: float[...], 1 if the right network reads later steps, 0 if it reads each step alone.

        Returns:
          float[..., L, R]: at step t, the sum of the state of the left network after x up to t and of the right network
          after x from the last step back to t; if literal, up to t - 1, and back to t + 1.
        """
        left, right = jnp.split(self.inputs(windows - _CENTER), 2, axis=-1)
        # One scan for both networks: the right one reads the window backwards.
        steps = jnp.moveaxis(jnp.stack([left, jnp.flip(right, axis=-2)]), -2, 0)

        foresight = jnp.broadcast_to(foresight, windows.shape[:-2]).astype(windows.dtype)
        remembered = jnp.stack([jnp.ones_like(foresight), foresight])[..., None]

        def read(memory: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array]:
            memory = remembered * memory
            memory = jax.nn.relu(step + jnp.einsum("d...r,drs->d...s", memory, self.recurrent[...]))
            return memory, memory

        nothing = jnp.zeros_like(steps[0])
        _, memories = jax.lax.scan(read, nothing, steps)
        if self.literal:  # shifted by one, so that the step itself is not read
            memories = remembered * jnp.concatenate([nothing[None], memories[:-1]])
        return jnp.moveaxis(memories[:, 0] + jnp.flip(memories[:, 1], axis=0), 0, -2)

    def __call__(self, z: jax.Array, summary: jax.Array) -> MeanAndStd:
        """Return mean and standard deviation of the state, from the one before, float[..., Z], and a float[..., R]."""
        mean = self.mean((jnp.tanh(self.previous(z)) + summary) / 3)
        return mean, _std(self.std(mean))


class DeepMarkovModel(nnx.Module):
    """All networks of the model and of its guide.

    Args:
      num_workers: N.
      widths: widths of the networks.
      rngs: random streams of the initial parameters; uses `params`.

    Example:
      >>> networks = DeepMarkovModel(3, Architecture(lag=4), rngs=nnx.Rngs(0))
      >>> networks.guide.summaries(jnp.ones((2, 4, 3))).shape
      (2, 4, 64)
    """

    def __init__(self, num_workers: int, widths: Architecture, *, rngs: nnx.Rngs):
        self.transition = Transition(widths, rngs=rngs)
        self.emission = Emission(num_workers, widths, rngs=rngs)
        self.guide = Guide(num_workers, widths, rngs=rngs)
        self.before = nnx.Param(jnp.zeros(widths.state))  # z before the window, in the model
        self.guide_before = nnx.Param(jnp.zeros(widths.state))  # and in the guide


class StateSequence(dist.Distribution):
    r"""Distribution of the states of a window, each normal given the previous one.

    .. math:: p(z_{1:L}) = \prod_t \mathcal N(z_t;\, \mu(z_{t-1}, s_t),\, \sigma(z_{t-1}, s_t)^2)

    Sampling is sequential; the density of a whole sequence is computed at once.

    Args:
      conditional: (z of the previous step, inputs of the step) -> mean and standard deviation.
      before: float[Z], the state before the window.
      known: float[..., L, R], inputs of each step.
    """

    support = constraints.real_matrix

    def __init__(self, conditional: Callable[..., MeanAndStd], before: jax.Array, known: jax.Array):
        self._conditional, self._before, self._known = conditional, before, known
        super().__init__(known.shape[:-2], (known.shape[-2], before.shape[-1]))

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw states, float[..., L, Z], one step after the other."""
        shape = (*sample_shape, *self.batch_shape, *self.event_shape)
        noise = jnp.moveaxis(jax.random.normal(key, shape, self._before.dtype), -2, 0)

        def step(z: jax.Array, given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            mean, std = self._conditional(z, given[0])
            z = mean + std * given[1]
            return z, z

        first = jnp.broadcast_to(self._before, noise.shape[1:])
        _, states = jax.lax.scan(step, first, (jnp.moveaxis(self._known, -2, 0), noise))
        return jnp.moveaxis(states, 0, -2)

    def log_prob(self, value: jax.Array) -> jax.Array:
        """Return the log density of states, float[..., L, Z]: float[...]."""
        first = jnp.broadcast_to(self._before, (*value.shape[:-2], 1, value.shape[-1]))
        mean, std = self._conditional(jnp.concatenate([first, value[..., :-1, :]], axis=-2), self._known)
        return dist.Normal(mean, std).log_prob(value).sum(axis=(-2, -1))


class WindowModel:
    """Model and guide of windows of compute times, as functions for NumPyro.

    Args:
      num_workers: N.
      widths: widths of the networks.
      seed: seed of the initial parameters, or a key.

    Example:
      >>> model = WindowModel(3, Architecture(lag=4, state=2), seed=0)
      >>> trace = numpyro.handlers.trace(numpyro.handlers.seed(model.model, 0)).get_trace(jnp.ones((5, 4, 3)))
      >>> trace["z"]["value"].shape, trace["x"]["fn"].batch_shape, trace["x"]["fn"].event_shape
      ((5, 4, 2), (5,), (4, 3))
    """

    def __init__(self, num_workers: int, widths: Architecture, *, seed: int | jax.Array):
        networks = DeepMarkovModel(num_workers, widths, rngs=nnx.Rngs(seed))
        self._graph, state = nnx.split(networks)
        self.initial = nnx.to_pure_dict(state)
        self._state = state

    def networks(self, parameters: dict) -> DeepMarkovModel:
        """Return the networks with given parameters."""
        state = jax.tree.map(lambda leaf: leaf, self._state)
        nnx.replace_by_pure_dict(state, parameters)
        return nnx.merge(self._graph, state)

    def model(
        self, windows: jax.Array, state_weight: float | jax.Array = 1.0, foresight: float | jax.Array = 1.0
    ) -> None:
        """p(x, z) of a batch of windows, float[B, L, N], normalised; `state_weight` anneals the states' terms."""
        del foresight
        networks = self.networks(numpyro.param("parameters", self.initial))
        with numpyro.plate("windows", windows.shape[0]):
            known = jnp.zeros((*windows.shape[:-1], 0), windows.dtype)  # the model has no inputs but the previous state
            states = StateSequence(lambda z, _: networks.transition(z), networks.before[...], known)
            with numpyro.handlers.scale(scale=state_weight):
                z = numpyro.sample("z", states)
            numpyro.sample("x", dist.Normal(*networks.emission(z)).to_event(2), obs=windows)

    def guide(
        self, windows: jax.Array, state_weight: float | jax.Array = 1.0, foresight: float | jax.Array = 1.0
    ) -> None:
        """q(z | x) of a batch of windows, float[B, L, N]; `foresight`, float[B], is that of `Guide.summaries`."""
        networks = self.networks(numpyro.param("parameters", self.initial))
        with numpyro.plate("windows", windows.shape[0]), numpyro.handlers.scale(scale=state_weight):
            summaries = networks.guide.summaries(windows, foresight)
            numpyro.sample("z", StateSequence(networks.guide, networks.guide_before[...], summaries))


def _identity(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> jax.Array:
    del key
    return jnp.eye(shape[0], dtype=dtype)
