"""Checkpoints of a live run: the server's state at an update, and the versions that were still being read."""

import hashlib
import io
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np

from sgdlab import files
from sgdlab.replay.steps import plain

Tree = Any

_KEPT = 2
_DIGEST = "digest"


class Checkpoint(NamedTuple):
    """The server's state when an update had been made and all its workers had begun again.

    Attributes:
      update: number of updates made.
      lines: number of lines of the log up to then.
      chain: checksum of these lines; a checkpoint belongs to one log only.
      steps: what `Steps.snapshot` returned.
      versions: version -> leaves of the parameters, of versions that gradients in flight are computed on.
    """

    update: int
    lines: int
    chain: int
    steps: dict[str, np.ndarray]
    versions: dict[int, list[np.ndarray]]


class Damaged(ValueError):
    """A checkpoint that cannot be read."""


def path_of(folder: pathlib.Path, update: int) -> pathlib.Path:
    """The file of a checkpoint."""
    return folder / f"checkpoint-{update}.npz"


def updates_of(folder: pathlib.Path) -> list[int]:
    """The updates of the checkpoints in a folder, rising."""
    return sorted(int(path.stem.removeprefix("checkpoint-")) for path in paths_in(folder))


def paths_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files of the checkpoints in a folder."""
    paths = folder.glob("checkpoint-*.npz")
    return [path for path in paths if path.stem.removeprefix("checkpoint-").isdigit()]


def save(folder: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint, whole or not at all, and removes those before the last one.

    Raises:
      OSError: if it cannot be written.
    """
    arrays: dict[str, Any] = {"numbers": np.array([checkpoint.update, checkpoint.lines, checkpoint.chain], np.int64)}
    arrays |= {f"steps {name}": array for name, array in checkpoint.steps.items()}
    for version, leaves in checkpoint.versions.items():
        arrays |= {f"version {version} {index}": plain(leaf) for index, leaf in enumerate(leaves)}
    arrays[_DIGEST] = np.frombuffer(digest(arrays), np.uint8)
    with files.replacing(path_of(folder, checkpoint.update)) as file:
        np.savez(file, **arrays)
    for update in updates_of(folder):
        if update > checkpoint.update:
            path_of(folder, update).unlink(missing_ok=True)  # of a log that was cut off
    for update in updates_of(folder)[:-_KEPT]:
        path_of(folder, update).unlink(missing_ok=True)


def load(folder: pathlib.Path, update: int) -> Checkpoint:
    """Reads and checks a checkpoint; nothing is unpickled.

    Raises:
      Damaged: if it is not whole.
    """
    path = path_of(folder, update)
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        found = arrays.pop(_DIGEST).tobytes()
        numbers = arrays.pop("numbers")
    except Exception as error:  # a damaged archive can raise nearly anything
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise Damaged(f"{path} cannot be read: {why}") from error
    if found != digest({"numbers": numbers, **arrays}):
        raise Damaged(f"{path} cannot be read: its contents have another digest than was written")
    steps: dict[str, Any] = {}
    versions: dict[int, Any] = {}
    for name, array in arrays.items():
        kind, _, rest = name.partition(" ")
        if kind == "steps":
            steps[rest] = array
        else:
            versions.setdefault(int(rest.split()[0]), []).append(array)
    update, lines, chain = (int(number) for number in numbers)
    return Checkpoint(update, lines, chain, steps, versions)


def digest(arrays: dict[str, np.ndarray]) -> bytes:
    """SHA-256 of arrays, their names, dtypes and shapes.

    Example:
      >>> digest({"a": np.zeros(2)}) == digest({"a": np.zeros((2, 1))})
      False
    """
    hashed = hashlib.sha256()
    for name, array in arrays.items():
        hashed.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        # pyrefly: ignore[bad-argument-type]  # an array is a buffer
        hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return hashed.digest()


def like(leaves: list[np.ndarray], tree: Tree) -> Tree:
    """Arrays of a checkpoint as a pytree like `tree`, with its dtypes.

    Example:
      >>> import jax.numpy as jnp
      >>> tree = {"a": jnp.array([1.5], jnp.bfloat16)}
      >>> like([plain(tree["a"])], tree)
      {'a': array([1.5], dtype=bfloat16)}
    """
    expected, structure = jax.tree.flatten(tree)
    typed = [
        leaf if leaf.dtype == as_.dtype else leaf.view(as_.dtype) for leaf, as_ in zip(leaves, expected, strict=True)
    ]
    return jax.tree.unflatten(structure, typed)


def remove_unfinished(folder: pathlib.Path) -> None:
    """Removes what a process that was killed while it wrote has left."""
    for path in folder.glob(".checkpoint-*"):
        if files.is_unfinished(path):
            path.unlink(missing_ok=True)
