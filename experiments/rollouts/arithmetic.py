"""Sums of two digits, for a small recurrent policy: a task whose questions share no fixed features."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from sgdlab import rollouts

BASE, WIDTH, CLASSES = 5, 16, 5


class Adder(nnx.Module):
    """Reads two digits, and writes their sum, the carry first."""

    def __init__(self, rngs: nnx.Rngs):
        self.digits = nnx.Embed(BASE + 1, WIDTH, rngs=rngs)  # the last one is before an answer
        self.cell = nnx.GRUCell(WIDTH, WIDTH, rngs=rngs)
        self.head = nnx.Linear(WIDTH, BASE, rngs=rngs)

    def read(self, digit: jax.Array, state: jax.Array) -> jax.Array:
        """Return the state after a digit."""
        return self.cell(state, self.digits(digit))[0]


def addition(seed: int = 0) -> rollouts.AnswerTask:
    """Return the task: every pair of digits in base 5, the pairs with the largest sums for the longest prompts.

    The answer to a question, number 5 a + b, is the two digits of a + b.
    """
    shape, params, rest = nnx.split(Adder(nnx.Rngs(seed)), nnx.Param, ...)
    model = lambda params: nnx.merge(shape, params, rest)

    def begin(params: nnx.State, question: jax.Array) -> jax.Array:
        state = jnp.zeros(WIDTH, jax.tree.leaves(params)[0].dtype)
        for digit in (question // BASE, question % BASE):
            state = model(params).read(digit, state)
        return state

    def step(params: nnx.State, state: jax.Array, place: int, last: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = model(params).read(last, state)
        return state, model(params).head(state)

    sums = np.add.outer(np.arange(BASE), np.arange(BASE)).ravel()
    classes = np.empty(sums.size, np.int64)
    classes[np.argsort(sums, kind="stable")] = np.arange(sums.size) * CLASSES // sums.size
    return rollouts.AnswerTask(params, begin, step, np.stack([sums // BASE, sums % BASE], axis=1), classes, BASE)
