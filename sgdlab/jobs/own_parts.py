"""What is asked of a network and a rule of one's own before a run begins, so that the message names the part."""

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from sgdlab.data import Dataset
from sgdlab.errors import UsageError, is_theirs
from sgdlab.registry import Part
from sgdlab.rules.server_rule import ServerRule, absorbed
from sgdlab.tasks.kinds import kind_of

Tree = Any


def check_network(part: Part, network: nnx.Module, dataset: Dataset, *, batch_size: int = 2) -> None:
    """Whether what a network says of a batch has the shape that its task asks for: it is traced, nothing computed.

    Args:
      part: the network's.
      network: as it was made for the data set.
      dataset: whose images it is given.
      batch_size: B.

    Raises:
      UsageError: where it is None, or of another shape; errors of the network itself pass as they are.
    """
    flag = f"--config.network.kind={part.name}"
    images = jax.ShapeDtypeStruct((batch_size, *dataset.image_shape), jnp.float32)
    if not isinstance(network, nnx.Module):
        raise UsageError(f"{flag} must return an nnx.Module, and returned a {type(network).__name__} ({part.where})")
    task = kind_of(part).name
    if task == "language":  # its network is given a text, and says how likely it is
        return
    graph, state = nnx.split(network)
    keyword = {"key": None} if "key" in inspect.signature(type(network).__call__).parameters else {}

    def said(state: nnx.State, images: jax.Array) -> Tree:
        merged = nnx.merge(graph, state)
        merged.set_attributes(use_running_average=True, raise_if_not_found=False)
        return merged(images, **keyword)

    logits = jax.eval_shape(said, state, images)
    if task == "density":
        wanted, of = (batch_size, *dataset.image_shape, dataset.levels), "a logit for each level of each pixel"
    else:
        wanted, of = (batch_size, dataset.num_classes), "a logit for each class"
    shape: tuple[int, ...] = getattr(logits, "shape", ())
    # More logits than classes are never right, and do no harm: of 1,000 classes 10 may be at hand.
    if len(shape) != len(wanted) or shape[:-1] != wanted[:-1] or shape[-1] < wanted[-1]:
        found = getattr(logits, "shape", "None: is `return` missing?" if logits is None else type(logits).__name__)
        raise UsageError(
            f"{flag} must return {of}, {wanted} for images {images.shape}, and returned {found} ({part.where})"
        )


def check_rule(part: Part, rule: ServerRule, params: Tree, *, single: bool = True) -> None:
    """Whether a rule of one's own makes updates like the parameters, and keeps its state's shapes: it is traced.

    Nothing is computed, and rules of this package are not asked.

    Args:
      part: the rule's.
      rule: as it was made for the run.
      params: of the network.
      single: whether every update of the run has one gradient, whose worker the rule is told.

    Raises:
      UsageError: where it returns something else than `(updates, state)`, or these are of other shapes; errors that
        the rule itself raises pass as they are.
    """
    if not part.is_foreign:
        return
    flag = f"--config.rule.kind={part.name}"
    try:
        before, updates, after = jax.eval_shape(functools.partial(_once, single=single), rule, params)
    except (TypeError, ValueError) as error:
        if is_theirs(error):
            raise
        why = str(error).strip().splitlines()[0]
        raise UsageError(
            f"{flag}: its `update` must return (updates, state), both of the shapes that it was given ({part.where}): "
            f"{why}"
        ) from error
    # Updates are added to the parameters: a scalar, say, goes with all shapes.
    _check_like(f"{flag} returned updates", params, updates, part, spread=True)
    _check_like(f"{flag} returned a state", before, after, part)


def _once(rule: ServerRule, params: Tree, *, single: bool) -> tuple[Tree, Tree, Tree]:
    """The state at first, the first update, and the state after it; of the kinds that a replay gives."""
    first, grads = jax.tree.map(jnp.asarray, rule.init(params)), params
    use = {"worker": jnp.int32(0), "delay": jnp.ones([]), "read_params": params}
    state = absorbed(rule, grads, first, params, **use)
    message = rule.receive(grads, state, params, **use)
    given = {"num_gradients": jnp.int32(1), "delay": jnp.ones([]), "worker": jnp.int32(0) if single else None}
    return first, *rule.update(message, state, params, **given)


def _check_like(what: str, wanted: Tree, found: Tree, part: Part, *, spread: bool = False) -> None:
    named: list[dict[str, Any]] = [
        {jax.tree_util.keystr(path, simple=True, separator="/"): leaf.shape for path, leaf in leaves}
        for leaves in map(jax.tree_util.tree_leaves_with_path, (wanted, found))
    ]
    for name in dict.fromkeys((*named[0], *named[1])):
        expected, shape = (names.get(name) for names in named)
        if expected == shape or (spread and None not in (expected, shape) and _fits(shape, expected)):
            continue
        raise UsageError(
            f"{what} of shape {shape} for {name or 'the parameters'}, which must be of shape {expected} ({part.where})"
        )


def _fits(shape: Any, expected: Any) -> bool:
    try:
        return np.broadcast_shapes(shape, expected) == expected
    except ValueError:
        return False
