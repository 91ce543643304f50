"""Parts that are defined outside of this package: how they are loaded, and what is asked of them before a run."""

import contextlib
import functools
import importlib
import importlib.util
import inspect
import pathlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import user_files
from sgdlab.data import Dataset
from sgdlab.errors import UsageError, is_theirs, mistakes_of, said_of
from sgdlab.registry import FAMILIES, GRAPHS, Part
from sgdlab.results.facts import NOT_USED
from sgdlab.rules.server_rule import ServerRule, absorbed, received
from sgdlab.runs import methods
from sgdlab.runtimes import checked
from sgdlab.tasks.network import loss_of
from sgdlab.types import Tree

if TYPE_CHECKING:
    from flax import nnx


_loaded: dict[str, tuple[str, int]] = {}
"""Modules that `load` has imported: name -> file, and when its folder had last changed."""

_ROWS = 64
"""Most rows that are drawn twice, and twice as many once, of a law that has not been used before."""

_ROUNDING = 1e-5
"""Compute times that differ by this fraction are the same: a product of matrices rounds as their shapes have it."""

_asked: set[tuple[type, str, int]] = set()
"""Laws of this process that have been asked, with their seeds."""


def load(file: str) -> None:
    """Import a Python file that registers parts; files beside it can be imported by it.

    If one of them has changed since, all of the folder are imported anew.

    Raises:
      UsageError: where it is no Python file, its name is that of another module, or it raises.
    """
    path = python_file("--parts", file)
    if not path.stem.isidentifier():
        raise UsageError(f"--parts={file} must be renamed: {path.stem} is no name that Python can import")
    known = sys.modules.get(path.stem)
    other = importlib.util.find_spec(path.stem) if known is None else known.__spec__
    if other is not None and not (other.origin and pathlib.Path(other.origin).exists() and path.samefile(other.origin)):
        raise UsageError(f"--parts={file} must be renamed: there is another module {path.stem}")
    changed = max(beside.stat().st_mtime_ns for beside in path.parent.glob("*.py"))
    if known is not None and _loaded.get(path.stem, (str(path), changed)) == (str(path), changed):
        _loaded[path.stem] = str(path), changed
        return
    for name, module in list(sys.modules.items()) if known is not None else ():
        beside = getattr(module, "__file__", None)
        if beside and name != "__main__" and pathlib.Path(beside).resolve().parent == path.parent:
            del sys.modules[name]
    importlib.invalidate_caches()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    with mistakes_of(f"--parts={file}", path):
        user_files.execute(path.stem, path)
    _loaded[path.stem] = str(path), changed


def python_file(flag: str, file: str) -> pathlib.Path:
    """Return the whole path of a person's Python file; raises a `UsageError` where there is none, with why not."""
    path = pathlib.Path(file)
    if path.is_file() and path.suffix == ".py":
        return path.resolve()
    there = f"its name ends in {path.suffix}" if path.suffix else "its name has no ending"
    why = "it does not exist" if not path.exists() else "it is a directory" if path.is_dir() else there
    raise UsageError(f"{flag}={file} must be a Python file, such as mine.py: {why}")


def outside() -> dict[str, str]:
    """Return the modules outside of this package that other processes are to import: name -> file.

    They are the files that `load` was given, and those in which parts and methods are registered, scripts that run left
    out.
    """
    ours = ("sgdlab", "__main__", "__mp_main__")
    loaded = {name: file for name, (file, _) in _loaded.items() if name in sys.modules}
    return loaded | {name: file for name, file in _modules().items() if file and name.partition(".")[0] not in ours}


def can_be_imported() -> bool:
    """Return if all parts and methods stand in files, which other processes can import; those of a notebook do not."""
    return all(_modules().values())


def _modules() -> dict[str, str | None]:
    """Return the modules in which parts and methods are registered: name -> file, or None."""
    names = dict.fromkeys(part.make.__module__ for registry in (*FAMILIES, GRAPHS) for part in registry.values())
    return methods.modules() | {name: getattr(sys.modules.get(name), "__file__", None) for name in names}


def drawn(part: Part, law: Any, rows: int, workers: int, seed: int) -> np.ndarray:
    """Return what a law of a part draws, float64[rows, workers], seconds; more of both where the law draws more.

    Raises:
      UsageError: where it draws no matrix, or one of fewer rows or columns; where a custom law draws compute times
        that are not positive and finite, other ones for the same seed, or other first rows where more are asked for.
        Errors that the law itself raises pass as they are, with the flag in front of a `ValueError`.
    """
    if part.is_foreign:
        _ask(part, law, min(rows, _ROWS), workers, seed)
    with said_of(f"--config.cluster.{part.name}."):
        times = law.draw(rows, seed=seed)
    return _checked(part, times, rows, workers, seed)


def _checked(part: Part, times: Any, rows: int, workers: int, seed: int) -> np.ndarray:
    shape = np.shape(times)
    if len(shape) != 2 or shape[0] < rows or shape[1] < workers:
        found = "None: is `return` missing?" if times is None else f"an array of shape {shape}"
        raise UsageError(
            f"{_flag(part)}: `draw({rows}, seed={seed})` must return float64[rows, num_workers], an array of shape "
            f"{(rows, workers)}, and returned {found} ({part.where})"
        )
    if part.is_foreign:
        with said_of(f"{_flag(part)} ({part.where}): "):
            times = checked(times, name="draw")
    return times


def _ask(part: Part, law: Any, rows: int, workers: int, seed: int) -> None:
    key = (type(law), repr(law), seed)
    if key in _asked:
        return
    try:
        inspect.signature(law.draw).bind(rows, seed=seed)
    except (AttributeError, TypeError) as error:
        raise UsageError(f"{_flag(part)} must have a method `draw(rows, *, seed)` ({part.where}): {error}") from error
    times: list[Any] = []
    with contextlib.suppress(Exception):  # an error for the run's rows is said later, and it may have no more rows
        for count in (rows, rows, 2 * rows):
            times.append(law.draw(count, seed=seed))  # noqa: PERF401 (those before an error stay)
    if len(times) > 1:
        once, again = (_checked(part, each, rows, workers, seed)[:rows] for each in times[:2])
        if not _same(once, again):
            raise UsageError(
                f"{_flag(part)}: `draw` must return the same times for the same seed; draw all random numbers from "
                f"np.random.default_rng(seed) ({part.where})"
            )
        for more in times[2:]:
            _check_first_rows(part, once, more, workers, seed)
    _asked.add(key)


def _check_first_rows(part: Part, once: np.ndarray, more: Any, workers: int, seed: int) -> None:
    rows, shape = len(once), np.shape(more)
    if len(shape) != 2 or shape[0] < rows or shape[1] != once.shape[1]:
        more = _checked(part, more, 2 * rows, workers, seed)
    # What it says beyond these rows, or whether it ends there, is of no account until a run needs them.
    once, more = once[:, :workers], np.asarray(more)[:rows, :workers]
    if not _same(once, more):
        row = int(np.argmin(np.isclose(once, more, _ROUNDING, 0).all(axis=1)))
        raise UsageError(
            f"{_flag(part)}: `draw` must return the same first rows however many it is asked for, and row {row} of "
            f"{rows} differs from row {row} of {2 * rows}; draw all workers of a row before the next row, or a "
            f"stream for each worker ({part.where})"
        )


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=_ROUNDING, atol=0)


def _flag(part: Part) -> str:
    return f"--config.cluster.kind={part.name}"


def outputs_of(part: Part, network: "nnx.Module", dataset: Dataset, *, batch_size: int = 2) -> Any:
    """Return what a network makes of a batch of images, as shapes: it is traced, nothing computed.

    Raises:
      UsageError: where it is no network; errors of the network itself pass as they are.
    """
    from flax import nnx  # noqa: PLC0415 (which only whoever trains needs)

    if not isinstance(network, nnx.Module):
        raise UsageError(
            f"--config.network.kind={part.name} must return an nnx.Module, and returned a {type(network).__name__} "
            f"({part.where})"
        )
    graph, state = nnx.split(network)
    keyword = {"key": None} if "key" in inspect.signature(type(network).__call__).parameters else {}

    def said(state: nnx.State, images: jax.Array) -> Tree:
        merged = nnx.merge(graph, state)
        merged.set_attributes(use_running_average=True, raise_if_not_found=False)
        return merged(images, **keyword)

    return jax.eval_shape(said, state, jax.ShapeDtypeStruct((batch_size, *dataset.image_shape), jnp.float32))


def check_outputs(part: Part, outputs: Any, dataset: Dataset, targets: str = "labels", *, batch_size: int = 2) -> None:
    """Check that the outputs of a network, as shapes, are what a task of this package asks for.

    Raises:
      UsageError: where they are None, or of another shape.
    """
    shape: tuple[int, ...] = getattr(outputs, "shape", ())
    images = (batch_size, *dataset.image_shape)
    wanted, of = (batch_size, dataset.num_classes), "a logit for each class"
    if targets == "levels":
        wanted, of = (*images, dataset.levels), "a logit for each level of each pixel"
    # More logits than classes are never right, and do no harm: of 1,000 classes 10 may be at hand.
    if len(shape) != len(wanted) or shape[:-1] != wanted[:-1] or shape[-1] < wanted[-1]:
        found = getattr(outputs, "shape", "None: is `return` missing?" if outputs is None else type(outputs).__name__)
        raise UsageError(
            f"--config.network.kind={part.name} must return {of}, {wanted} for images {images}, and returned {found} "
            f"({part.where})"
        )


def check_task(task: methods.UsedPart, outputs: Any, dataset: Dataset, *, batch_size: int = 2) -> None:
    """Check that a custom task makes a loss of a network's outputs, as shapes, and of the labels: it is traced.

    Raises:
      UsageError: where it refuses an argument, returns no loss for each example, or not the metric that it names.
    """
    facts, flag, examples = task.facts, f"--config.task.kind={task.name}", cast(Any, dataset.train)
    labels = jax.ShapeDtypeStruct((batch_size, *examples.labels.shape[1:]), examples.labels.dtype)
    if facts.targets == "levels":
        labels = jax.ShapeDtypeStruct((batch_size, *dataset.image_shape), jnp.int32)
    try:
        loss, others = jax.eval_shape(functools.partial(loss_of, task.part, task.entries), outputs, labels)
        means = {name: jax.ShapeDtypeStruct((), array.dtype) for name, array in {**others, "loss": loss}.items()}
        known = {"loss", *(means if facts.finish is None else jax.eval_shape(facts.finish, means))}
    except TypeError as error:  # which shapes that do not go together are in JAX
        of = f"outputs of shape {getattr(outputs, 'shape', type(outputs).__name__)} and labels {labels.shape}"
        why = str(error).strip().splitlines()[0]
        raise UsageError(f"{flag} must take {of}: {why} ({task.part.where})") from error
    if facts.metric not in known:
        raise UsageError(
            f"{flag} must make the metric that it names, {facts.metric}; it makes {', '.join(sorted(known))} "
            f"({task.part.where})"
        )


def check_rule(part: Part, rule: ServerRule, params: Tree, *, single: bool = True) -> None:
    """Check that a custom rule makes updates like the parameters, and keeps its state's shapes: it is traced.

    Nothing is computed, and rules of this package are not asked. If every update has a single gradient, the rule is
    told its worker.

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
    """Return the state at first, the first update, and the state after it; of the kinds that a replay gives."""
    first, grads = jax.tree.map(jnp.asarray, rule.init(params)), params
    use = {"worker": jnp.int32(0), "delay": jnp.ones([]), "read_params": params, "number": jnp.int32(0)}
    state = absorbed(rule, grads, first, params, **use)
    message = received(rule, grads, state, params, **use)
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


def clauses(not_taken: Mapping[str, float | bool]) -> list[str]:
    """Return in words the entries that a custom rule does not take (`Experiment.not_taken`).

    Example:
      >>> clauses({"weight_decay": 0.0005})
      ['weight decay 0.0005 is not used']
    """
    return [f"{name.replace('_', ' ')} {_shown(value)} {NOT_USED}" for name, value in not_taken.items()]


def notes(rule: Part, not_taken: Mapping[str, float | bool]) -> list[str]:
    """Return what a person is told of these entries before a run with the rule: a line for each."""
    return [
        f"Note: {rule.name} takes no {name}: {_shown(value)} {NOT_USED}; name it as an argument to get it "
        f"({rule.where})"
        for name, value in not_taken.items()
    ]


def _shown(value: float | bool) -> str:
    return str(value) if isinstance(value, bool) else f"{value:g}"
