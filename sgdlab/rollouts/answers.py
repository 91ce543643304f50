"""Tasks with one right answer to a question, in a few symbols, and a toy whose expected rewards are exact."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab.types import Tree


@dataclasses.dataclass(frozen=True, eq=False)
class AnswerTask:
    """Asks questions with one right answer each; the reward is 1 where all of its symbols are right, else 0.

    Q questions of K classes, T symbols of A kinds; each symbol stands for an equal part of a rollout's tokens.

    Attributes:
      params: parameters of the policy at the beginning.
      begin: `(params, question) -> state`, the state of the policy when it has read a question.
      step: `(params, state, place, last) -> (state, logits [A])` for the symbol at a place, from 0, after the last one,
        which is A at place 0.
      answers: int[Q, T], the right answers.
      classes: int[Q], the class of each question; prompts of class K - 1 are the longest.
      symbols: A.
    """

    params: Tree
    begin: Callable[..., Any]
    step: Callable[..., tuple[Any, jax.Array]]
    answers: np.ndarray
    classes: np.ndarray
    symbols: int

    def questions(self, classes: np.ndarray, prompts: np.ndarray) -> np.ndarray:
        """Return the question of each prompt, one of its class; prompts of a class take turns."""
        found = np.empty(prompts.size, np.int64)
        for one in range(self.classes.max() + 1):
            own, rows = np.flatnonzero(self.classes == one), classes == one
            found[rows] = own[prompts[rows] % own.size]
        return found

    def answered(self, params_at: Callable, question: jax.Array, symbol_at: Callable) -> tuple[jax.Array, jax.Array]:
        """Return the symbols of an answer and their log probabilities, [T] each.

        Args:
          params_at: `(place) -> params` of the version that makes the symbol there.
          question: its number.
          symbol_at: `(place, log probabilities [A]) -> symbol`.
        """
        state, last, made = self.begin(params_at(0), question), jnp.asarray(self.symbols), []
        for place in range(self.answers.shape[1]):
            state, logits = self.step(params_at(place), state, place, last)
            log_probs = jax.nn.log_softmax(logits)
            last = symbol_at(place, log_probs)
            made.append((last, log_probs[last]))
        symbols, log_probs = zip(*made, strict=True)
        return jnp.stack(symbols), jnp.stack(log_probs)

    def log_probs(self, params: Tree, question: jax.Array, answer: jax.Array) -> jax.Array:
        """Return the log probabilities of the symbols of an answer, [T]."""
        return self.answered(lambda place: params, question, lambda place, _: answer[place])[1]

    def rewards(self, params: Tree) -> jax.Array:
        """Return the expected reward of each class, [K], exactly."""
        answers = jnp.asarray(self.answers)
        right = jax.vmap(self.log_probs, (None, 0, 0))(params, jnp.arange(len(answers)), answers).sum(axis=1)
        return jax.ops.segment_sum(jnp.exp(right), self.classes, self.classes.max() + 1) / np.bincount(self.classes)

    def all_answers(self) -> np.ndarray:
        """int[A^T, T], every answer that there is."""
        return np.array(list(itertools.product(range(self.symbols), repeat=self.answers.shape[1])))


def toy(*, classes: int = 8, length: int = 2, features: int = 6, symbols: int = 4, seed: int = 0) -> AnswerTask:
    """Return a task with a question for each class, and a linear softmax policy whose classes share parameters.

    The logits of the symbol at place t of class k are x_k W_t, with features x_k drawn from N(0, 1 / F), and W = 0 at
    the beginning.

    Example:
      >>> task = toy()
      >>> task.params.shape, task.rewards(task.params).tolist() == [1 / 16] * 8
      ((2, 6, 4), True)
    """
    random = np.random.default_rng(seed)
    known = random.normal(size=(classes, features)) / np.sqrt(features)
    return AnswerTask(
        params=np.zeros((length, features, symbols)),
        begin=lambda params, question: jnp.asarray(known)[question],
        step=lambda params, state, place, last: (state, state @ params[place]),
        answers=random.integers(symbols, size=(classes, length)),
        classes=np.arange(classes),
        symbols=symbols,
    )
