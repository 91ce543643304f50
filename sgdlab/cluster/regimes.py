"""Workers on nodes that fall into slow regimes, with contention, drift and shared noise."""

import dataclasses
import math
from typing import Any

import numpy as np

from sgdlab import arguments
from sgdlab.cluster.family import CLUSTERS

_DRAWN_ONCE = 2
"""Count of random numbers that a run draws first: the offsets of the periods of contention and drift."""


@dataclasses.dataclass(frozen=True)
class Contention:
    """Some nodes are slow at regular intervals, as if another job wrote its checkpoints.

    Attributes:
      period: number of steps from one contention to the next; 0 for no contention.
      steps: number of contended steps in a period.
      factor: factor on compute times in contended steps.
      nodes: number of contended nodes, counted from the last.
    """

    period: int = 0
    steps: int = 0
    factor: float = 1.0
    nodes: int = 1

    def __post_init__(self) -> None:
        arguments.whole("contention.period", self.period, least=0)
        arguments.whole("contention.steps", self.steps, least=0, most=self.period)
        arguments.real("contention.factor", self.factor, above=0)
        arguments.whole("contention.nodes", self.nodes, least=0)


@dataclasses.dataclass(frozen=True)
class Drift:
    """Some workers become gradually slower until they are restarted.

    Attributes:
      period: number of steps from one restart to the next; 0 for no drift.
      factor: factor on compute times at the end of a period; it rises linearly from 1.
      workers: number of drifting workers, the first worker of each of so many nodes.
    """

    period: int = 0
    factor: float = 1.0
    workers: int = 1

    def __post_init__(self) -> None:
        arguments.whole("drift.period", self.period, least=0)
        arguments.real("drift.factor", self.factor, above=0)
        arguments.whole("drift.workers", self.workers, least=0)


@dataclasses.dataclass(frozen=True)
class RegimeRun:
    """Compute times, and the hidden state that they were drawn from.

    Attributes:
      runtimes: float64[T, N], seconds.
      states: int32[T, num_nodes]; 0 is the ordinary regime, 1 to W the steps of its warning, W + 1 the slow one.
      offsets: steps of the periods of contention and of drift at which the run begins.
    """

    runtimes: np.ndarray
    states: np.ndarray
    offsets: tuple[int, int]


@CLUSTERS.register("regimes", title="workers on nodes with two regimes", source="after Teng and Wood 2018, section 4.1")
@dataclasses.dataclass(frozen=True)
class RegimeCluster:
    r"""A cluster of nodes with two regimes, an ordinary and a slow one.

    .. math:: x_{ti} = \max(x_{min},\; m\, \ell_{ti}\, (1 + \sigma \varepsilon_{ti})), \qquad
        \varepsilon_{ti} = \sqrt{\rho}\, a_{t,node(i)} + \sqrt{1 - \rho}\, b_{ti}

    :math:`\ell` is the product of the node's regime (1, or `slow_factor`), contention and drift; a is the noise that a
    node's workers share, an AR(1) process of unit variance, b is white. m and :math:`\sigma` follow from `mean` and
    `std`, which are those of all compute times together over a long run (before clipping at the minimum), as one would
    measure them on the cluster. The defaults of `num_nodes`, `mean` and `std` are those of Teng and Wood's first
    cluster (section 4.1), which has 158 workers; they do not describe the transitions between regimes.

    Attributes:
      num_workers: N, number of workers; worker i is on node i num_nodes // N, so that nodes have nearly equally many.
      num_nodes: number of nodes that the workers are on.
      mean: mean of all compute times, seconds.
      std: standard deviation of all compute times, seconds.
      slow_factor: factor on the compute times of a slow node.
      slow_share: share of time that a node is slow.
      slow_steps: mean length of a slow regime, in steps; lengths are geometric.
      warning_steps: W, number of steps before a slow regime in which compute times rise as a warning.
      warning_rise: share of the rise to `slow_factor` that the last warning step has reached.
      slow_until: step at which the first node leaves the slow regime that it begins in; 0: it begins like the others.
      node_share: rho, share of the noise's variance that a node's workers have in common.
      node_memory: AR(1) coefficient of the nodes' noise.
      contention: some nodes are slow at regular intervals.
      drift: some workers become slower little by little.
      minimum: shortest compute time, seconds, at which compute times are clipped.

    Raises:
      ValueError: where a number is out of its range, or `std` is less than that of the regimes alone.

    Source: after the clusters of Teng and Wood 2018, section 4.1.

    Example:
      >>> law = RegimeCluster(num_workers=158)
      >>> law.draw(100, seed=0).shape, law.run(100, seed=0).states.shape
      ((100, 158), (100, 4))
    """

    num_workers: int
    num_nodes: int = 4
    mean: float = 1.057
    std: float = 0.393
    slow_factor: float = 2.0
    slow_share: float = 0.1
    slow_steps: float = 40.0
    warning_steps: int = 0
    warning_rise: float = 0.2
    slow_until: int = 0
    node_share: float = 0.1
    node_memory: float = 0.5
    contention: Contention = Contention()
    drift: Drift = Drift()
    minimum: float = 0.05

    def __post_init__(self) -> None:
        for name, kind in (("contention", Contention), ("drift", Drift)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name}={getattr(self, name)!r} must be a {kind.__name__}")
        arguments.whole("num_workers", self.num_workers)
        arguments.whole("num_nodes", self.num_nodes, most=self.num_workers, why="every node has a worker")
        for name in ("mean", "std", "minimum", "slow_factor"):
            arguments.real(name, getattr(self, name), above=0)
        arguments.real("slow_steps", self.slow_steps, least=1)
        arguments.real("slow_share", self.slow_share, least=0, most=1)
        arguments.whole("warning_steps", self.warning_steps, least=0)
        arguments.whole("slow_until", self.slow_until, least=0)
        arguments.whole("contention.nodes", self.contention.nodes, least=0, most=max(self.num_nodes, 1))
        arguments.whole("drift.workers", self.drift.workers, least=0, most=self.num_nodes, why="one a node")
        for name in ("warning_rise", "node_share"):
            arguments.real(name, getattr(self, name), least=0, most=1)
        arguments.real("node_memory", self.node_memory, least=0, below=1)
        if self.slow_share > 0 and self._ordinary_steps() < 1:
            most = self.slow_steps / (self.slow_steps + self.warning_steps + 1)
            raise ValueError(
                f"slow_share={self.slow_share} must be at most {most:.4g} with slow_steps={self.slow_steps} and "
                f"warning_steps={self.warning_steps}: a node is in the ordinary regime for a step at least"
            )
        if self._noise_variance() < 0:
            first, second = self._moments()
            least = self.mean * math.sqrt(second / first**2 - 1)
            raise ValueError(
                f"std={self.std} must be at least {least:.4g}, which regimes, contention and drift alone bring about"
            )

    @property
    def node(self) -> np.ndarray:
        """int[N], the node of each worker."""
        return np.arange(self.num_workers) * self.num_nodes // self.num_workers

    @property
    def ordinary_mean(self) -> float:
        """m, seconds: mean compute time of a worker in the ordinary regime without contention and drift."""
        return self.mean / self._moments()[0]

    @property
    def noise(self) -> float:
        """sigma, relative to the mean compute time of the step."""
        return math.sqrt(self._noise_variance())

    def draw(self, rows: int, *, seed: int) -> np.ndarray:
        """float64[rows, N], seconds: the compute times of `run`; more rows do not change the earlier ones."""
        return self.run(arguments.whole("rows", rows), seed=seed).runtimes

    def run(self, num_steps: int, *, seed: int) -> RegimeRun:
        """A run of the cluster with its hidden states; more steps do not change the earlier ones.

        Args:
          num_steps: T, number of steps.
          seed: of the random numbers.

        Raises:
          ValueError: where a number is out of its range.
        """
        import scipy.special  # noqa: PLC0415 (it takes long to import, and few clusters have regimes)

        arguments.whole("num_steps", num_steps)
        generator = np.random.default_rng(arguments.whole("seed", seed, least=0))
        once = generator.random(_DRAWN_ONCE)
        first = generator.standard_normal(2 * self.num_nodes)  # initial states of each node's chain and noise
        # All numbers of a step are drawn together, so that more steps do not change the earlier ones.
        numbers = generator.standard_normal((num_steps, 2 * self.num_nodes + self.num_workers))
        uniform = scipy.special.ndtr(numbers[:, : self.num_nodes])
        states = np.empty((num_steps, self.num_nodes), np.int32)
        shared = np.empty((num_steps, self.num_nodes))
        state = self._stationary(scipy.special.ndtr(first[: self.num_nodes]))
        noise = first[self.num_nodes :]
        fresh = math.sqrt(1 - self.node_memory**2)
        for step in range(num_steps):
            state = self._next(state, uniform[step])
            if step < self.slow_until:
                state[0] = self.warning_steps + 1
            elif step == self.slow_until > 0:
                state[0] = 0
            noise = self.node_memory * noise + fresh * numbers[step, self.num_nodes : 2 * self.num_nodes]
            states[step], shared[step] = state, noise
        offsets = (int(once[0] * max(self.contention.period, 1)), int(once[1] * max(self.drift.period, 1)))
        level = self._levels(states, np.arange(num_steps), offsets)
        runtimes = self._runtimes(level, shared, numbers[:, 2 * self.num_nodes :])
        return RegimeRun(runtimes, states, offsets)

    def draw_next(self, run: RegimeRun, step: int, *, num_samples: int, generator: np.random.Generator) -> np.ndarray:
        """Draws the compute times of a step, given the law and the hidden state of the step before.

        Args:
          run: a run of this cluster.
          step: index of the step, from 1 to T.
          num_samples: K, number of draws.
          generator: of the random numbers.

        Returns:
          float64[K, N], seconds: independent draws; the nodes' noise is drawn from its stationary law.
        """
        arguments.whole("step", step, most=len(run.states))
        arguments.whole("num_samples", num_samples)
        nodes, workers = self.num_nodes, self.num_workers
        states = self._next(
            np.broadcast_to(run.states[step - 1], (num_samples, nodes)), generator.random((num_samples, nodes))
        )
        if step <= self.slow_until:
            states[:, 0] = self.warning_steps + 1 if step < self.slow_until else 0
        level = self._levels(states, np.full(num_samples, step), run.offsets)
        shared = generator.standard_normal((num_samples, nodes))
        return self._runtimes(level, shared, generator.standard_normal((num_samples, workers)))

    def __str__(self) -> str:
        extras = " and contention" * bool(self.contention.period) + " and drift" * bool(self.drift.period)
        return (
            f"workers on {self.num_nodes} nodes that are slow together {100 * self.slow_share:.3g} % of the time, by a "
            f"factor of {self.slow_factor:g}, for {self.slow_steps:g} steps on average{extras}, "
            f"mean {self.mean:.4g} s, standard deviation {self.std:.4g} s"
        )

    def _runtimes(self, level: np.ndarray, shared: np.ndarray, own: np.ndarray) -> np.ndarray:
        noise = math.sqrt(self.node_share) * shared[:, self.node] + math.sqrt(1 - self.node_share) * own
        return np.maximum(self.minimum, self.ordinary_mean * level * (1 + self.noise * noise))

    def _next(self, state: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """One transition of every node's chain: ordinary -> warnings -> slow -> ordinary."""
        slow = self.warning_steps + 1
        falls = uniform < (1 / self._ordinary_steps() if self.slow_share > 0 else 0.0)
        stays = uniform >= 1 / self.slow_steps
        return np.where(state == 0, falls.astype(int), np.where(state < slow, state + 1, np.where(stays, slow, 0)))

    def _stationary(self, uniform: np.ndarray) -> np.ndarray:
        warned = self.slow_share / self.slow_steps
        slow_from = self.warning_steps * warned
        state = np.where(uniform < slow_from + self.slow_share, self.warning_steps + 1, 0)
        warning = uniform < slow_from
        return np.where(warning, 1 + (uniform / max(warned, 1e-300)).astype(int) if warning.any() else 0, state)

    def _ordinary_steps(self) -> float:
        """Mean number of steps that a node stays in the ordinary regime."""
        return self.slow_steps * (1 / self.slow_share - 1) - self.warning_steps

    def _rises(self) -> np.ndarray:
        """float64[W + 2], factor on compute times in each state."""
        warnings = self.warning_rise * np.arange(1, self.warning_steps + 1) / max(self.warning_steps, 1)
        return 1 + (self.slow_factor - 1) * np.concatenate([[0.0], warnings, [1.0]])

    def _levels(self, states: np.ndarray, steps: np.ndarray, offsets: tuple[int, int]) -> np.ndarray:
        """float64[rows, N]: the product of regime, contention and drift."""
        level = self._rises()[states][:, self.node]
        if self.contention.period:
            contended = (steps + offsets[0]) % self.contention.period < self.contention.steps
            level *= np.where(contended[:, None] & self._contended(), self.contention.factor, 1.0)
        if self.drift.period:
            phase = (steps + offsets[1]) % self.drift.period / self.drift.period
            level *= np.where(self._drifting(), 1 + (self.drift.factor - 1) * phase[:, None], 1.0)
        return level

    def _contended(self) -> np.ndarray:
        return self.node >= self.num_nodes - self.contention.nodes

    def _drifting(self) -> np.ndarray:
        leaders = np.searchsorted(self.node, np.arange(min(self.drift.workers, self.num_nodes)))
        return np.isin(np.arange(self.num_workers), leaders)

    def _moments(self) -> tuple[float, float]:
        """Mean and mean square of the level, over workers and a long run."""
        warned = self.slow_share / self.slow_steps
        shares = np.concatenate([[0.0], np.full(self.warning_steps, warned), [self.slow_share]])
        shares[0] = 1 - shares.sum()
        moments = []
        for power in (1, 2):
            level = np.full(self.num_workers, shares @ self._rises() ** power)
            if self.contention.period:
                busy = self.contention.steps / self.contention.period
                level *= np.where(self._contended(), 1 + busy * (self.contention.factor**power - 1), 1.0)
            if self.drift.period:
                phase = np.arange(self.drift.period) / self.drift.period
                level *= np.where(self._drifting(), ((1 + (self.drift.factor - 1) * phase) ** power).mean(), 1.0)
            moments.append(float(level.mean()))
        return moments[0], moments[1]

    def _noise_variance(self) -> float:
        first, second = self._moments()
        variance = ((self.std / self.mean) ** 2 * first**2 - (second - first**2)) / second
        return 0.0 if abs(variance) < 1e-12 else variance


def regimes(
    *, num_workers: int, num_nodes: int, num_steps: int, mean: float, std: float, seed: int, **law: Any
) -> np.ndarray:
    """Draws `num_steps` rows from `RegimeCluster`, which describes the other numbers: float64[T, N], seconds.

    Example:
      >>> regimes(num_workers=158, num_nodes=4, num_steps=200, mean=1.057, std=0.393, slow_factor=2.0, seed=0).shape
      (200, 158)
    """
    known = {field.name for field in dataclasses.fields(RegimeCluster)}
    for name, value in law.items():
        if name not in known:
            raise ValueError(f"{name}={value!r} must be one of {', '.join(sorted(known))}")
    cluster = RegimeCluster(num_workers=num_workers, num_nodes=num_nodes, mean=mean, std=std, **law)
    return cluster.draw(arguments.whole("num_steps", num_steps), seed=seed)
