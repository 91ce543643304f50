"""Replay of a `RolloutSchedule`: a policy is trained on answers that the versions of the schedule have sampled.

Every step has as many rollouts, so that a run is one scan over steps. A ring holds the versions that are still read;
each symbol is sampled by the version that made its part of the rollout's tokens, and the gradient is taken at the
newest parameters. Random numbers belong to prompt, attempt and rollout, and are the same under all staleness policies.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sgdlab import arguments
from sgdlab.rollouts.answers import AnswerTask
from sgdlab.rollouts.ratios import RatioRule, SampledTokens
from sgdlab.rollouts.schedule import RolloutSchedule
from sgdlab.rollouts.workload import Workload
from sgdlab.rules.asgd import asgd
from sgdlab.rules.server_rule import ServerRule, as_transform, server_rule
from sgdlab.types import Tree

_EPSILON = 1e-4
"""Added to the standard deviation of a group's rewards."""


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedOn:
    """Says what a run trains on: the B rollouts of the groups of each of U steps, of T symbols.

    Attributes:
      question: int64[U, B].
      draw: int64[U, B, 3], prompt, attempt, and number in its group: what random numbers are drawn by.
      version: int64[U, B, T], the version that sampled each symbol.
      kept: bool[U, B], False where a rollout is withheld: its reward counts for its group, and it is not trained on.
      group: G, rollouts of a group, which are side by side.
      applied: float64[U], seconds when the version that each step makes was at the engines.
    """

    question: np.ndarray
    draw: np.ndarray
    version: np.ndarray
    kept: np.ndarray
    group: int
    applied: np.ndarray

    @classmethod
    def of(cls, schedule: RolloutSchedule, workload: Workload, task: AnswerTask) -> "TrainedOn":
        """Return what a run trains on; the classes of the task are those of the workload's prompts by length."""
        step, length = schedule.step[schedule.group], task.answers.shape[1]
        rows = np.argsort(step, kind="stable")[(step < 0).sum() :]  # groups stay as they began
        group, begin = schedule.group[rows], np.cumsum(schedule.tokens) - schedule.tokens
        middle = begin[rows, None] + (np.arange(length) + 0.5) / length * schedule.tokens[rows, None]
        span = np.searchsorted(np.cumsum(schedule.span_tokens), middle, side="right")
        count = int(task.classes.max()) + 1
        if workload.prompts < count:
            raise ValueError(f"prompts={workload.prompts} must be at least {count}, the classes of the task")
        classes = workload.classes(count)[schedule.prompt]
        number = rows - np.searchsorted(schedule.group, group)
        shape = (schedule.num_steps, -1)
        return cls(
            task.questions(classes, schedule.prompt)[group].reshape(shape),
            np.stack([schedule.prompt[group], schedule.attempt[group], number], axis=1).reshape(*shape, 3),
            schedule.span_version[span].reshape(*shape, length),
            ~schedule.withheld[rows].reshape(shape),
            workload.group,
            schedule.applied,
        )

    def lag(self) -> np.ndarray:
        """int64[U, B, T]: steps between the version that sampled a symbol and the one of its step."""
        return np.arange(len(self.version))[:, None, None] - self.version


@dataclasses.dataclass(frozen=True, eq=False)
class Learned:
    """Holds what was learned in S runs.

    Attributes:
      rewards: float[S, U + 1, K], the expected reward of each class on version 0, 1, ....
      seconds: float64[S, U + 1], when each version was there.
      params: the parameters in the end; leaves have a first axis of runs.
    """

    rewards: np.ndarray
    seconds: np.ndarray
    params: Tree

    def seconds_to(self, target: float) -> np.ndarray:
        """Return the seconds until the mean reward of the classes reaches a target, float64[S]; infinite: never."""
        reached = self.rewards.mean(axis=2) >= target
        return np.where(reached.any(axis=1), self.seconds[np.arange(len(reached)), reached.argmax(axis=1)], np.inf)


def replay(
    runs: TrainedOn | Sequence[TrainedOn],
    task: AnswerTask,
    ratio: RatioRule,
    rules: ServerRule | optax.GradientTransformation | Sequence[ServerRule],
    *,
    seeds: Sequence[int],
    minibatches: int = 1,
    exact: bool = False,
    normalise: bool = True,
) -> Learned:
    r"""Train a policy as schedules say, several runs at once.

    A rollout's advantage is its reward less the mean of its group, over the standard deviation of the group's rewards;
    rewards of rollouts that are withheld count, and their tokens do not enter the gradient.

    Args:
      runs: what is trained on, of all runs or of each, with as many steps of as many rollouts.
      task: what is asked.
      ratio: a registered ratio rule as it is made, such as `rollouts.RATIO_RULES["decoupled"].make()`, or one's own.
      rules: what steps: a server rule or an optax transform of all runs, or a server rule of each, of the same function
        with hyperparameters of their own. `delay` is one more than the mean staleness of the minibatch's tokens,
        `read_params` the version of that staleness; rules with entries for each worker are refused.
      seeds: of the S runs.
      minibatches: optimizer steps in a trainer step, each on as many groups; the proximal policy is that before them.
      exact: whether each rollout is replaced by all answers, weighted by their probabilities under the behaviour, and
        its group by their expectation: what staleness does without sampling noise. Takes A^T times as long.
      normalise: whether advantages are divided by the standard deviation.

    Raises:
      ValueError: where runs differ in their shapes, a batch has no equal minibatches, or a rule needs workers.

    Example:
      >>> import functools
      >>> from sgdlab import rollouts, rules
      >>> work, task = rollouts.lognormal(prompts=500, group=4), rollouts.toy()
      >>> run = rollouts.simulate(work, rollouts.System(batch=8), rollouts.admission, num_steps=60)
      >>> trained = rollouts.TrainedOn.of(run, work, task)
      >>> found = rollouts.replay(trained, task, rollouts.RATIO_RULES["none"].make(), optax.sgd(4.0), seeds=[0, 1])
      >>> found.rewards.shape, bool(found.rewards[:, -1].mean() > 0.5)
      ((2, 61, 8), True)
    """
    count = len(seeds)
    of_each = [runs] * count if isinstance(runs, TrainedOn) else list(runs)
    stepping = [_as_rule(rules)] * count if hasattr(rules, "update") else list(map(_as_rule, rules))
    for name, given in (("runs", of_each), ("rules", stepping)):
        if len(given) != count:
            raise ValueError(f"{name} must be one, or one for each of the {count} seeds, not {len(given)}")
    if len(shapes := {(*run.question.shape, run.group) for run in of_each}) != 1:
        raise ValueError(f"runs must have as many steps of as many rollouts in groups, not {sorted(shapes)}")
    _, size, group = shapes.pop()
    if (size // group) % arguments.whole("minibatches", minibatches):
        raise ValueError(f"minibatches={minibatches} must divide the {size // group} groups of a batch")
    kept = list({id(run): run for run in of_each}.values())  # those of several seeds are there once
    largest = max(int(run.lag().max()) for run in kept)
    rewards, params = _replayed(
        jax.tree.map(lambda *leaves: jnp.stack(list(map(jnp.asarray, leaves))), *stepping),
        jax.vmap(jax.random.key)(jnp.asarray(seeds)),
        jnp.asarray([[run is one for one in kept].index(True) for run in of_each]),
        tuple(jnp.stack([getattr(run, name) for run in kept]) for name in ("question", "draw", "version", "kept")),
        of=_Settings(task, ratio, minibatches, group, exact, normalise, ring=1 << largest.bit_length()),
    )
    seconds = np.stack([np.append(0.0, run.applied) for run in of_each])
    return Learned(np.asarray(rewards), seconds, params)


def tuned(
    cells: Sequence[tuple[Sequence[TrainedOn], Sequence[TrainedOn]]],
    task: AnswerTask,
    ratio: RatioRule,
    rates: Sequence[float],
    *,
    seeds: tuple[Sequence[int], Sequence[int]],
    make: Callable[..., ServerRule] = asgd,
    **how: Any,
) -> tuple[list[float], Learned]:
    """Return the learning rate that is best for each cell on some seeds, and what is learned with it on others.

    The best one has the highest reward on average over the steps of a run, classes and seeds.

    Args:
      cells: of each, such as a staleness policy, what is trained on with each of these seeds, and of those.
      task: as of `replay`.
      ratio: as of `replay`.
      rates: to choose from.
      seeds: those on which is chosen, and those that are reported, one after the other for each cell.
      make: `(learning_rate=...) -> rule`.
      **how: other arguments of `replay`.
    """

    def learned(lanes: list[tuple[TrainedOn, float]], seeds: Sequence[int]) -> Learned:
        runs, stepping = zip(*((run, make(learning_rate=rate)) for run, rate in lanes), strict=True)
        return replay(runs, task, ratio, list(stepping), seeds=[*seeds] * (len(lanes) // len(seeds)), **how)

    tried = learned([(run, rate) for tuning, _ in cells for rate in rates for run in tuning], seeds[0])
    reward = np.nan_to_num(tried.rewards.mean(axis=(1, 2))).reshape(len(cells), len(rates), -1).mean(axis=2)
    chosen = [rates[best] for best in reward.argmax(axis=1)]
    return chosen, learned(
        [(run, rate) for (_, reported), rate in zip(cells, chosen, strict=True) for run in reported], seeds[1]
    )


def _as_rule(rule: ServerRule | optax.GradientTransformation) -> ServerRule:
    made = rule if isinstance(rule, ServerRule) else server_rule(rule)
    if made.num_workers is not None:
        raise ValueError("rules must have no entries for single workers: a batch has none")
    return made


class _Settings(NamedTuple):
    """Holds what a program is compiled for."""

    task: AnswerTask
    ratio: RatioRule
    minibatches: int
    group: int
    exact: bool
    normalise: bool
    ring: int  # versions that are kept, a power of two


@functools.partial(jax.jit, static_argnames=("of",))
def _replayed(
    rules: ServerRule, keys: jax.Array, which: jax.Array, rows: tuple[jax.Array, ...], *, of: _Settings
) -> tuple[jax.Array, Tree]:
    """Return the rewards [S, U + 1, K] and the last parameters of runs, given whose rows of `TrainedOn` each has."""
    return jax.vmap(functools.partial(_run, of), (0, 0, 0, None))(rules, keys, which, rows)


def _run(
    of: _Settings, rule: ServerRule, key: jax.Array, which: jax.Array, rows: tuple[jax.Array, ...]
) -> tuple[jax.Array, Tree]:
    task, transform = of.task, as_transform(rule)

    def in_minibatches(leaf: jax.Array) -> jax.Array:
        """Return the parts of a batch, with an axis in front: group i is in part i modulo their number."""
        groups = leaf.reshape(-1, of.minibatches, of.group, *leaf.shape[1:]).swapaxes(0, 1)
        return groups.reshape(of.minibatches, -1, *leaf.shape[1:])

    def train(carry: tuple[Tree, Tree, Tree], update: jax.Array) -> tuple[tuple[Tree, Tree, Tree], jax.Array]:
        params, state, kept = carry
        sampled = [of_all[which, update] for of_all in rows]
        kept = jax.tree.map(lambda ring, leaf: ring.at[update % of.ring].set(leaf), kept, params)
        at = lambda version: jax.tree.map(lambda ring: ring[version % of.ring], kept)
        parts = jax.tree.map(in_minibatches, _sampled(of, key, at, params, update, *sampled))

        def optimise(carry: tuple[Tree, Tree], part: tuple[jax.Array, jax.Array, SampledTokens]):
            params, state = carry
            grads = jax.grad(_loss)(params, of, *part)
            lag = jnp.average(part[2].lag, weights=part[2].weight)
            read = at(update - jnp.round(lag).astype(update.dtype))
            updates, state = transform.update(grads, state, params, worker=0, delay=1 + lag, read_params=read)
            return (optax.apply_updates(params, updates), state), None

        (params, state), _ = jax.lax.scan(optimise, (params, state), parts)
        return (params, state, kept), task.rewards(params)

    begin = jax.tree.map(jnp.asarray, task.params)
    kept = jax.tree.map(lambda leaf: jnp.zeros((of.ring, *leaf.shape), leaf.dtype), begin)
    updates = jnp.arange(rows[0].shape[1])
    (params, _, _), rewards = jax.lax.scan(train, (begin, transform.init(begin), kept), updates)
    return jnp.concatenate([task.rewards(begin)[None], rewards]), params


def _sampled(
    of: _Settings, key: jax.Array, at: Callable, params: Tree, update: jax.Array, *rows: jax.Array
) -> tuple[jax.Array, jax.Array, SampledTokens]:
    """Return questions [B], answers [B, M, T] and tokens of a batch: M is 1, or the number of all answers."""
    task, (question, _, version, kept) = of.task, rows

    def answered(question: jax.Array, draw: jax.Array, version: jax.Array) -> tuple[jax.Array, jax.Array]:
        params_at = lambda place: at(version[place])
        if of.exact:
            every = jnp.asarray(task.all_answers())
            known = lambda answer: task.answered(params_at, question, lambda place, _: answer[place])
            return jax.vmap(known)(every)
        own = functools.reduce(jax.random.fold_in, draw, key)
        drawn = lambda place, log_probs: jax.random.categorical(jax.random.fold_in(own, place), log_probs)
        return jax.tree.map(lambda leaf: leaf[None], task.answered(params_at, question, drawn))

    answer, behaviour = jax.vmap(answered)(*rows[:3])
    weight = jnp.exp(behaviour.sum(axis=2)) if of.exact else jnp.ones_like(behaviour[..., 0])
    reward = (answer == jnp.asarray(task.answers)[question][:, None]).all(axis=2)
    # The rewards that a mean is taken of: of all answers to a question, or of a group.
    pooled, weights = (leaf.reshape(-1, leaf.shape[1] if of.exact else of.group) for leaf in (reward, weight))
    mean = jnp.average(pooled, axis=1, weights=weights, keepdims=True)
    advantage = pooled - mean
    if of.normalise:
        deviation = jnp.sqrt(jnp.average(advantage**2, axis=1, weights=weights, keepdims=True))
        advantage /= deviation + _EPSILON
    prox = _log_probs(of, params, question, answer)
    whole = lambda leaf: jnp.broadcast_to(leaf, behaviour.shape)
    lag = whole((update - version)[:, None].astype(behaviour.dtype))
    advantage, weight = whole(advantage.reshape(weight.shape)[..., None]), whole((weight * kept[:, None])[..., None])
    return question, answer, SampledTokens(behaviour, prox, behaviour, advantage, lag, weight)


def _log_probs(of: _Settings, params: Tree, question: jax.Array, answer: jax.Array) -> jax.Array:
    """Return the log probabilities of the symbols of answers [B, M, T]."""
    of_one = jax.vmap(of.task.log_probs, (None, None, 0))
    return jax.vmap(of_one, (None, 0, 0))(params, question, answer)


def _loss(params: Tree, of: _Settings, question: jax.Array, answer: jax.Array, tokens: SampledTokens) -> jax.Array:
    """Return the negative surrogate, added up over the symbols of an answer, on average over rollouts that are kept."""
    surrogate = of.ratio(tokens._replace(now=_log_probs(of, params, question, answer)))
    return -(tokens.weight * surrogate).sum() / tokens.weight[..., 0].sum()
