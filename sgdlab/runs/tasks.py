"""The task of an experiment: its network as pure functions, what workers compute on which batches, its evaluation."""

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from sgdlab import data, replay, tasks
from sgdlab.data import stream
from sgdlab.data.shares import Shares
from sgdlab.errors import UsageError, said_of
from sgdlab.registry import NETWORKS
from sgdlab.replay.program import power_of_two
from sgdlab.rules.fragments import fragments_of
from sgdlab.runs.experiment import Experiment
from sgdlab.runs.local_steps import pseudo_gradient, span_fn, spans, state_of_worker
from sgdlab.runs.parts import check_outputs, check_task, outputs_of
from sgdlab.runs.plan import Plan
from sgdlab.types import Tree


def outlined(experiment: Experiment) -> Tree:
    """Return the shapes and dtypes of a run's parameters, of which none is made."""
    used = experiment.network
    given = experiment.data.network_arguments(used)
    made = nnx.eval_shape(lambda: NETWORKS.make(used.name, used.entries, **given, rngs=nnx.Rngs(params=0)))
    return nnx.as_pure(nnx.state(made, nnx.Param))


def task_of(experiment: Experiment) -> tasks.NetworkTask:
    """Return the network with its initial parameters, which depend on the seed alone.

    Raises:
      UsageError: where the network is one for data of another kind, or cannot be replayed.
    """
    used, size = experiment.network, experiment.data.batch_size
    dataset: Any = experiment.data.dataset
    given, seed = experiment.data.network_arguments(used), experiment.seeds.of("parameters")
    network: Any = _Maker(used.name, json.dumps(used.entries, sort_keys=True), tuple(sorted(given.items())))
    task = experiment.task
    if used.part.is_foreign or task.part.is_foreign:
        made = network(nnx.Rngs(params=seed))
        if used.part.is_foreign:  # somebody's own network may do what cannot be compiled
            network = made
        if not isinstance(dataset, data.Text):
            outputs = outputs_of(used.part, made, dataset, batch_size=size)
            if task.part.is_foreign:
                check_task(task, outputs, dataset, batch_size=size)
            else:
                check_outputs(used.part, outputs, dataset, task.facts.targets, batch_size=size)
    with said_of(f"--config.network.kind={used.name}: "):
        own = {"outcomes": experiment.outcomes, "batch_size": size, "seed": seed}
        return tasks.make_task(task.name, network, task.entries, **own)


@dataclasses.dataclass(frozen=True)
class _Maker:
    """Makes a network; two that make the same are equal, and share the compiled program that does it."""

    kind: str
    entries: str
    given: tuple[tuple[str, Any], ...]

    def __call__(self, rngs: nnx.Rngs) -> nnx.Module:
        entries = {name: tuple(v) if isinstance(v, list) else v for name, v in json.loads(self.entries).items()}
        return NETWORKS.make(self.kind, entries, **dict(self.given), rngs=rngs)


def batches_of(plan: Plan, size: int) -> Callable[[jax.Array], data.Batch] | replay.Feed:
    """Return the batch of every gradient.

    Batch k goes to the k-th gradient that is used, whatever was dropped before it, so that all methods see the same
    ones. Of a text, every worker reads its own part. Where workers have examples of their own, batch k of a worker goes
    to its own k-th gradient that is used. Of a recorded run, a gradient's ticket names its batch. Where gradients are
    of several local steps, each step has a batch, and batches are numbered through in the order of their gradients.

    There is room for `size` gradients. Where examples are read from files, it is a `Feed`, not a function.
    """
    experiment, dataset = plan.experiment, plan.experiment.data.dataset
    size *= int(experiment.steps.max())
    seed, shares = experiment.seeds.of("augmentation"), experiment.data.shares
    # int[K], the worker of each batch that is used; with one step, of each gradient of the program.
    workers = np.repeat(plan.program.worker[: plan.program.num_rows], plan.steps_of_rows)
    if plan.recorded is not None:
        _check_in_memory(experiment)
        tickets = _padded(_batch_tickets(plan, plan.recorded.tickets).astype(np.int32), size)
        places = tickets % _by_ticket(experiment)
        if shares is None:
            order = experiment.data.order(_by_ticket(experiment))[places]
        else:
            order = _own_order(experiment, shares, workers, places, size)
        return jax.tree_util.Partial(_of_recorded, _Examples.of(experiment), jnp.asarray(order), jnp.asarray(tickets))
    if isinstance(dataset, data.Text):
        with said_of("--config."):
            return data.text_batch_fn(
                dataset.train,
                _padded(workers.astype(int), size),
                num_workers=plan.schedule.num_workers,
                batch_size=experiment.data.batch_size,
                seed=seed,
            )
    if shares is None:
        order = experiment.data.order(size)
    else:
        order = _own_order(experiment, shares, workers, data.ranks(workers), size)
    levels, computing = experiment.task.facts.targets == "levels", experiment.computing
    if isinstance(dataset.train, data.Images) and not computing.stream:
        return data.batch_fn(dataset.train, order, preprocess=dataset.preprocess, levels=levels, seed=seed)
    finish = data.Finish(dataset.preprocess, dataset.train.white, levels)
    read = functools.partial(stream.batches, dataset.train, order, seed, workers=computing.readers)
    longest = int(np.diff(plan.program.waves).max())  # gradients of a wave
    return replay.Feed(
        read, jax.tree_util.Partial(data.finished, finish, data.key_of(seed)), size=max(computing.chunk, longest)
    )


def batches_by_ticket(experiment: Experiment, worker: int = 0) -> Callable[[jax.Array], data.Batch]:
    """Return the batch of a ticket, a gradient of a run on processes: it depends on the seed and the ticket alone.

    The examples of all batches are drawn beforehand, in a table with a row for each of the run's gradients, their
    number rounded up to a power of two. Where so many gradients are thrown away that tickets go past its end, they
    begin with its first row again; augmentation and dropout depend on the ticket itself.

    Where workers have examples of their own, the batch depends on the worker too: ticket t has the t-th batch of its
    worker. The worker computes few of all tickets, and nobody knows before which; so its batches are not whole epochs
    of its examples, as in a simulation, but parts of different ones.

    Raises:
      UsageError: where the examples are not in memory, or are a text.
    """
    _check_in_memory(experiment)
    size, shares = _by_ticket(experiment), experiment.data.shares
    if shares is None:
        order = experiment.data.order(size)
    else:
        order = experiment.data.own_order(shares, np.full(size, worker), np.arange(size))
    return jax.tree_util.Partial(_of_ticket, _Examples.of(experiment), jnp.asarray(order))


def _check_in_memory(experiment: Experiment) -> None:
    kind, dataset, streamed = experiment.data.kind, experiment.data.dataset, experiment.computing.stream
    if isinstance(dataset, data.Text):
        raise UsageError(
            f"--config.data.kind={kind} is a text, of which each worker reads its own part in order; a run on "
            "processes needs examples that any worker can take"
        )
    if streamed or not isinstance(dataset.train, data.Images):
        flag = "--config.stream=True" if streamed else f"--config.data.kind={kind}"
        raise UsageError(f"{flag} reads examples from files; a run on processes needs data that are in memory")


def _by_ticket(experiment: Experiment) -> int:
    """Return the rows of the table of batches by ticket; of several local steps, of each step."""
    return power_of_two(experiment.num_gradients) * experiment.local.steps


def _batch_tickets(plan: Plan, tickets: np.ndarray) -> np.ndarray:
    """Return int[K], of a run that was recorded: step k of ticket t has the batch t H + k."""
    steps, of_rows = plan.steps_of_rows, tickets[plan.program.gradient[: plan.program.num_rows]]
    first, _ = spans(steps, steps.size)
    within = np.arange(int(steps.sum())) - np.repeat(first, steps)
    return np.repeat(of_rows * plan.experiment.local.steps, steps) + within


def _padded(values: np.ndarray, size: int) -> np.ndarray:
    return np.pad(values, (0, size - values.size))


def _own_order(experiment: Experiment, shares: Shares, worker: np.ndarray, number: np.ndarray, size: int) -> np.ndarray:
    """Return int32[size, B], the examples of batch `number` of each worker; those past the end move nothing."""
    found = np.zeros((size, experiment.data.batch_size), np.int32)
    found[: worker.size] = experiment.data.own_order(shares, worker, number[: worker.size])
    return found


class _Examples(NamedTuple):
    """Examples in memory, and what makes a batch of them; the key is of what is random."""

    finish: data.Finish
    pixels: jax.Array
    labels: jax.Array
    key: jax.Array | None

    @classmethod
    def of(cls, experiment: Experiment) -> "_Examples":
        dataset: Any = experiment.data.dataset
        finish = data.Finish(dataset.preprocess, dataset.train.white, experiment.task.facts.targets == "levels")
        key = data.key_of(experiment.seeds.of("augmentation"))
        return cls(finish, jnp.asarray(dataset.train.pixels), jnp.asarray(dataset.train.labels), key)

    def batch(self, chosen: jax.Array, number: jax.Array) -> data.Batch:
        return data.finished(self.finish, self.key, (self.pixels[chosen], self.labels[chosen]), number)


def _of_ticket(examples: _Examples, order: jax.Array, ticket: jax.Array) -> data.Batch:
    return examples.batch(order[ticket % order.shape[0]], ticket)


def _of_recorded(examples: _Examples, order: jax.Array, tickets: jax.Array, g: jax.Array) -> data.Batch:
    return examples.batch(order[g], tickets[g])


def evaluation_of(
    experiment: Experiment, task: tasks.NetworkTask, split: str, most: int | None
) -> Callable[[Tree, Tree], dict[str, Any]]:
    """Return the metrics of a split, un-augmented, as a function of parameters and statistics that can be traced.

    It is of at most so many examples (segments of a text), a fixed sample; None: of all.
    """
    dataset, size = experiment.data.dataset, experiment.reporting.evaluation_batch
    examples = getattr(dataset, split)
    if isinstance(dataset, data.Text):
        tokens = examples.tokens if most is None else examples.tokens[: most * examples.segment + 1]
        streams = experiment.data.batch_size  # the memory that the network has is of so many texts
        return tasks.evaluation(task, tasks.text_batches(np.asarray(tokens), examples.segment, streams=streams))
    pixels, labels = _sample(examples, most)
    prepare = data.Finish(dataset.preprocess, examples.white, experiment.task.facts.targets == "levels", train=False)
    return tasks.evaluation(task, tasks.padded_batches(pixels, labels, most=size), prepare)


def _sample(examples: Any, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the pixels and labels of a split, or of a sample of it that is always the same."""
    chosen = np.arange(len(examples))
    if most is not None and most < chosen.size:
        chosen = np.sort(np.random.default_rng(0).permutation(chosen)[:most])
    if isinstance(examples, data.Images):
        return examples.pixels[chosen], examples.labels[chosen]
    with stream.batches(examples, chosen[:, None], None, range(chosen.size)) as found:
        return np.concatenate([pixels for pixels, _ in found]), examples.labels[chosen]


def workers_of(plan: Plan, task: tasks.NetworkTask, size: int) -> tuple[tasks.NetworkTask, Any]:
    """Return the task as the workers of a replay do it, with their local steps, and batches for `size` gradients.

    Raises:
      UsageError: where local steps do not go with the data or the network.
    """
    experiment, local, program = plan.experiment, plan.experiment.local, plan.program
    grad_fn, batches = gradient_of(experiment, task), batches_of(plan, size)
    if not local.active:
        return dataclasses.replace(task, grad_fn=grad_fn), batches
    if isinstance(batches, replay.Feed):
        raise UsageError(
            f"--config.local.steps={local.steps} needs data that are in memory: those of "
            f"--config.data.kind={experiment.data.kind} are read from files, a batch for each gradient"
        )
    with said_of("--config.local."):
        fragments_of(task.params, local.fragments)  # which refuses what cannot be divided
    anew = place = factors = None
    if plan.recorded is not None and local.keep_state:
        anew = plan.recorded.anew[program.gradient[: program.num_rows]]
    if plan.inner is not None:
        place, factors = plan.inner.place(program.read[: program.num_rows, 0]), plan.inner.factors
    of_rows = span_fn(*spans(plan.steps_of_rows, size), anew, place)
    steps = pseudo_gradient(local, grad_fn, batches, factors)
    return dataclasses.replace(task, grad_fn=steps, local=state_of_worker(local, task.params, task.local)), of_rows


def gradient_of(experiment: Experiment, task: tasks.NetworkTask) -> Callable[..., tuple[Tree, ...]]:
    """Return the gradient function of a worker: of the whole batch, perhaps in micro-batches, and perhaps clipped.

    Raises:
      UsageError: for micro-batches of a network whose workers remember what they have read.
    """
    finish, parts = finish_of(experiment), experiment.data.micro_batches
    if task.local is None:
        return replay.in_micro_batches(task.grad_fn, parts, finish)
    if parts > 1:
        raise UsageError(
            f"--config.micro_batches={parts} must be 1 for --config.network.kind={experiment.network.name}, whose "
            "workers remember the texts of a whole batch"
        )
    return task.grad_fn if finish is None else jax.tree_util.Partial(_finished, task.grad_fn, finish)


def finish_of(experiment: Experiment) -> Callable[[Tree], Tree] | None:
    """Return what a worker does with its own gradient, whole, before it sends any of it: clips it. None: nothing."""
    max_norm = experiment.optimizer.clip_norm
    return None if max_norm is None else jax.tree_util.Partial(_clipped, max_norm)


def _clipped(max_norm: float, grads: Tree) -> Tree:
    clip = optax.clip_by_global_norm(max_norm)
    return clip.update(grads, clip.init(grads))[0]


def _finished(grad_fn: Any, finish: Any, *arguments: Tree) -> tuple[Tree, ...]:
    grads, *others = grad_fn(*arguments)
    return (finish(grads), *others)
