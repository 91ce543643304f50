"""`Timed`, a residual network with random images, whose gradients are counted by the second."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.benchmarks import setup
from experiments.benchmarks.accelerator.sizes import Sizes
from sgdlab import data, networks, replay, rules, tasks

Tree = Any
EXAMPLES = 1024


@dataclasses.dataclass(frozen=True)
class Timed:
    """Holds a network and random images of ten classes.

    Attributes:
      name: of the network and its dtype.
      task: its pure functions.
      images: float32[EXAMPLES, H, W, 3].
      labels: int32[EXAMPLES].
      order: int32[batches, B], the examples of each batch.
    """

    name: str
    task: tasks.NetworkTask
    images: jax.Array
    labels: jax.Array
    order: np.ndarray

    @classmethod
    def of(cls, sizes: Sizes, dtype: str) -> "Timed":
        """Return the network of these sizes, which computes in a dtype; its parameters are float32."""
        generator, depth = np.random.default_rng(0), int(sizes.network.removeprefix("ResNet-"))

        def network(rngs: nnx.Rngs) -> nnx.Module:
            return networks.CifarResNet(depth, dtype=jnp.dtype(dtype), rngs=rngs)

        return cls(
            f"{sizes.network} {dtype}",
            tasks.classification(network),
            jnp.asarray(generator.random((EXAMPLES, sizes.pixels, sizes.pixels, 3), np.float32)),
            jnp.asarray(generator.integers(0, 10, EXAMPLES, dtype=np.int32)),
            generator.permutation(EXAMPLES).astype(np.int32).reshape(-1, sizes.batch),
        )

    def batch_fn(self, seed: int = 0) -> Callable[[jax.Array], data.Batch]:
        """Return the batch of each gradient, in an order of its own for each seed; all share the device's images."""
        order = np.random.default_rng(seed).permutation(self.order)
        return jax.tree_util.Partial(setup.batch, self.images, self.labels, jnp.asarray(order))

    def replayed(self, program: replay.Program, rule: rules.ServerRule, mode: str | None) -> Callable[[], Tree]:
        """Return a function that replays a program."""
        batch_fn = self.batch_fn()
        return lambda: replay.run(program, rule, self.task, batch_fn, mode=mode).params

    def together(self, programs: list[replay.Program], rule: rules.ServerRule, lanes: str) -> Callable[[], list[Tree]]:
        """Return a function that replays several programs as one."""
        given = (programs, rule, self.task, [self.batch_fn(seed) for seed in range(len(programs))])
        return lambda: [found.params for found in replay.run_many(*given, lanes=lanes)]
