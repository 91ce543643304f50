"""A configuration's task: its network as pure functions, the batches of its gradients, and what it is evaluated on."""

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

from sgdlab import data, replay, tasks
from sgdlab.data import stream
from sgdlab.data.shares import Shares
from sgdlab.errors import UsageError, said_of
from sgdlab.jobs import own_data
from sgdlab.jobs.datasets import AnyDataset, network_arguments, num_gradients
from sgdlab.jobs.own_parts import check_network
from sgdlab.jobs.plan import Plan
from sgdlab.jobs.run_times import local_in
from sgdlab.jobs.seeds import seed_of
from sgdlab.registry import NETWORKS
from sgdlab.replay.program import power_of_two
from sgdlab.tasks.kinds import kind_of

Tree = Any


def task_of(config: ConfigDict, dataset: Any) -> tasks.Task:
    """The configuration's network with its initial parameters, which depend on the seed alone.

    Raises:
      UsageError: where the network is one for data of another kind, or cannot be replayed.
    """
    kind = config.network.kind
    part, given = NETWORKS[kind], network_arguments(config, dataset)
    seed = seed_of(config, "parameters")
    network: Any = _Maker(
        kind, json.dumps(config.network[kind].to_dict(), sort_keys=True), tuple(sorted(given.items()))
    )
    if part.is_foreign:  # somebody's own network may do what cannot be compiled
        network = network(nnx.Rngs(params=seed))
        if not isinstance(dataset, data.Text):
            check_network(part, network, dataset, batch_size=config.batch_size)
    with said_of(f"--config.network.kind={kind}: "):
        match tasks.kinds.kind_of(part).name:
            case "language":
                size = config.batch_size
                return tasks.language(network, vocabulary=dataset.vocabulary, batch_size=size, seed=seed)
            case "density":
                return tasks.density(network, levels=dataset.levels, seed=seed)
            case _:
                return tasks.classification(network, num_classes=dataset.num_classes, seed=seed)


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
    """The batch of every gradient.

    Batch k goes to the k-th gradient that is used, whatever was dropped before it, so that all methods see the same
    ones. Of a text, every worker reads its own part. Where workers have examples of their own, batch k of a worker goes
    to its own k-th gradient that is used. Of a recorded run, a gradient's ticket names its batch. Where gradients are
    of several local steps, each step has a batch, and batches are numbered through in the order of their gradients.

    Args:
      plan: what is to be done.
      size: gradients to make room for.

    Returns:
      What `replay.run` takes as `batch_fn`: a function, or a `Feed` where examples are read from files.
    """
    config, dataset = plan.config, plan.dataset
    size *= int(plan.steps.max())
    seed = seed_of(config, "augmentation")
    shares = own_data.shares_of(config, dataset)
    if plan.tickets is not None:
        tickets = np.zeros(size, np.int32)
        tickets[: plan.batch_workers.size] = plan.batch_tickets
        if shares is not None:
            _check_in_memory(config, dataset)
            own = _own_order(plan, shares, tickets % _by_ticket(config, dataset), size)
            return jax.tree_util.Partial(
                _of_recorded, *_arrays(config, dataset), jnp.asarray(own), jnp.asarray(tickets)
            )
        return jax.tree_util.Partial(_of_row, batches_by_ticket(config, dataset), jnp.asarray(tickets))
    if isinstance(dataset, data.Text):
        worker = np.zeros(size, int)
        worker[: plan.batch_workers.size] = plan.batch_workers
        with said_of("--config."):
            return data.text_batch_fn(
                dataset.train,
                worker,
                num_workers=plan.schedule.num_workers,
                batch_size=config.batch_size,
                seed=seed,
            )
    if shares is None:
        order = _order(config, dataset, size)
    else:
        order = _own_order(plan, shares, data.ranks(plan.batch_workers), size)
    levels = plan.kind.name == "density"
    if isinstance(dataset.train, data.Images) and not config.stream:
        return data.batch_fn(dataset.train, order, preprocess=dataset.preprocess, levels=levels, seed=seed)
    finish = data.Finish(dataset.preprocess, dataset.train.white, levels)
    read = functools.partial(stream.batches, dataset.train, order, seed, workers=config.readers)
    return replay.Feed(
        read, jax.tree_util.Partial(data.finished, finish, data.key_of(seed)), size=max(config.chunk, _longest(plan))
    )


def batches_by_ticket(config: ConfigDict, dataset: AnyDataset, worker: int = 0) -> Callable[[jax.Array], data.Batch]:
    """The batch of a ticket, a gradient of a run on processes: it depends on the seed and the ticket alone.

    The examples of all batches are drawn beforehand, in a table with a row for each of the run's gradients, their
    number rounded up to a power of two. Where so many gradients are thrown away that tickets go past its end, they
    begin with its first row again; augmentation and dropout depend on the ticket itself.

    Where workers have examples of their own, the batch depends on the worker too: ticket t has the t-th batch of its
    worker. The worker computes few of all tickets, and nobody knows before which; so its batches are not whole epochs
    of its examples, as in a simulation, but parts of different ones.

    Args:
      config: of the run.
      dataset: what it trains on, images that are in memory.
      worker: who computes; without effect where all workers draw from all examples.

    Returns:
      `(ticket) -> Batch`, to be traced.

    Raises:
      UsageError: where the examples are not in memory, or are a text.
    """
    _check_in_memory(config, dataset)
    size, shares = _by_ticket(config, dataset), own_data.shares_of(config, dataset)
    if shares is None:
        order = _order(config, dataset, size)
    else:
        order = own_data.examples(config, dataset, shares, np.full(size, worker), np.arange(size))
    return jax.tree_util.Partial(_of_ticket, *_arrays(config, dataset), jnp.asarray(order))


def _check_in_memory(config: ConfigDict, dataset: AnyDataset) -> None:
    if isinstance(dataset, data.Text):
        raise UsageError(
            f"--config.data.kind={config.data.kind} is a text, of which each worker reads its own part in order; a run "
            "on processes needs examples that any worker can take"
        )
    if config.stream or not isinstance(dataset.train, data.Images):
        flag = "--config.stream=True" if config.stream else f"--config.data.kind={config.data.kind}"
        raise UsageError(f"{flag} reads examples from files; a run on processes needs data that are in memory")


def _by_ticket(config: ConfigDict, dataset: AnyDataset) -> int:
    """Rows of the table of batches by ticket; of several local steps, of each step."""
    return power_of_two(num_gradients(config, dataset)) * local_in(config).steps


def _order(config: ConfigDict, dataset: AnyDataset, size: int) -> np.ndarray:
    """int32[size, B], the examples of every batch, where all workers draw from all of them."""
    return data.order(
        len(dataset.train),
        batch_size=config.batch_size,
        num_batches=size,
        seed=seed_of(config, "batches"),
        replacement=config.replacement,
    )


def _own_order(plan: Plan, shares: Shares, number: np.ndarray, size: int) -> np.ndarray:
    """int32[size, B], the examples of every batch: batch `number` of its worker, who has examples of its own."""
    worker = plan.batch_workers
    found = np.zeros((size, plan.config.batch_size), np.int32)  # those past the end move nothing
    found[: worker.size] = own_data.examples(plan.config, plan.dataset, shares, worker, number[: worker.size])
    return found


def _arrays(config: ConfigDict, dataset: Any) -> tuple[data.Finish, jax.Array, jax.Array, jax.Array | None]:
    """What makes a batch of examples: how it is finished, pixels, labels, and the key of what is random."""
    levels = kind_of(NETWORKS[config.network.kind]).name == "density"
    finish = data.Finish(dataset.preprocess, dataset.train.white, levels)
    key = data.key_of(seed_of(config, "augmentation"))
    return finish, jnp.asarray(dataset.train.pixels), jnp.asarray(dataset.train.labels), key


def _of_ticket(
    finish: data.Finish,
    pixels: jax.Array,
    labels: jax.Array,
    key: jax.Array | None,
    order: jax.Array,
    ticket: jax.Array,
) -> data.Batch:
    chosen = order[ticket % order.shape[0]]
    return data.finished(finish, key, (pixels[chosen], labels[chosen]), ticket)


def _of_recorded(
    finish: data.Finish,
    pixels: jax.Array,
    labels: jax.Array,
    key: jax.Array | None,
    order: jax.Array,
    tickets: jax.Array,
    g: jax.Array,
) -> data.Batch:
    chosen = order[g]
    return data.finished(finish, key, (pixels[chosen], labels[chosen]), tickets[g])


def _of_row(batches: Callable[[jax.Array], data.Batch], tickets: jax.Array, g: jax.Array) -> data.Batch:
    return batches(tickets[g])


def evaluation_of(plan: Plan, task: tasks.Task, split: str, most: int | None) -> Callable[[Tree, Tree], dict[str, Any]]:
    """The metrics of a split, un-augmented, as a function of parameters and statistics that can be traced.

    Args:
      plan: what is to be done.
      task: its task.
      split: "train" or "test".
      most: examples (segments of a text) to evaluate on, a fixed sample; None: all.
    """
    dataset, size = plan.dataset, plan.config.evaluation_batch
    examples = getattr(dataset, split)
    if isinstance(dataset, data.Text):
        tokens = examples.tokens if most is None else examples.tokens[: most * examples.segment + 1]
        streams = plan.config.batch_size  # the memory that the network has is of so many texts
        return tasks.evaluation(task, tasks.text_batches(np.asarray(tokens), examples.segment, streams=streams))
    pixels, labels = _sample(examples, most)
    prepare = data.Finish(dataset.preprocess, examples.white, plan.kind.name == "density", train=False)
    return tasks.evaluation(task, tasks.padded_batches(pixels, labels, most=size), prepare)


def _sample(examples: Any, most: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The pixels and labels of a split, or of a sample of it that is always the same."""
    chosen = np.arange(len(examples))
    if most is not None and most < chosen.size:
        chosen = np.sort(np.random.default_rng(0).permutation(chosen)[:most])
    if isinstance(examples, data.Images):
        return examples.pixels[chosen], examples.labels[chosen]
    with stream.batches(examples, chosen[:, None], None, range(chosen.size)) as found:
        return np.concatenate([pixels for pixels, _ in found]), examples.labels[chosen]


def _longest(plan: Plan) -> int:
    """Gradients of the longest wave."""
    return int(np.diff(plan.program.waves).max())
