"""`TrainedModel`: the parameters of a trained deep Markov model with their description, saved in a directory."""

import dataclasses
import json
import os
import pathlib
import shutil
from typing import Any

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp

from sgdlab import arguments, files
from sgdlab.deep_markov.model import Architecture, WindowModel

_DESCRIPTION = "model.json"
_PARAMETERS = "parameters"


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedModel:
    """A trained deep Markov model.

    Attributes:
      widths: widths of the networks.
      num_workers: N, number of workers of the cluster that it was trained on.
      divisor: seconds, by which compute times are divided: twice the mean of the first training window.
      parameters: parameters of the networks, nested dictionaries of arrays.
      history: one mapping for each evaluation of the validation windows during the training.
    """

    widths: Architecture
    num_workers: int
    divisor: float
    parameters: dict[str, Any]
    history: tuple[dict[str, float], ...] = ()

    def check(self, runtimes: np.ndarray, name: str = "runtimes") -> np.ndarray:
        """Return compute times as float64[T, N], if they have this model's number of workers.

        Args:
          runtimes: [T, N], seconds.
          name: what an error message calls them.

        Raises:
          ValueError: if they are of another number of workers.
        """
        array = np.asarray(runtimes, np.float64)
        if array.ndim != 2 or array.shape[1] != self.num_workers:
            raise ValueError(
                f"{name} of shape {array.shape} must have {self.num_workers} columns: the model was trained on "
                f"{self.num_workers} workers"
            )
        return array

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a directory with a description in JSON and the parameters as an Orbax checkpoint.

        It is written under a temporary name and renamed, so that it is complete or absent. A model in this directory,
        or the rest of an interrupted `save`, is replaced.

        Args:
          path: the directory, made if it does not exist.

        Raises:
          ValueError: if it holds a file that is no part of a model.
        """
        path = pathlib.Path(path).absolute()
        for name in sorted(_names(path)):
            if not name.lstrip(".").startswith((_DESCRIPTION, _PARAMETERS)):
                raise ValueError(f"path={str(path)!r} must be a directory of the model's own; it holds {name}")
        beside, before = (path.with_name(f".{path.name}.{kind}") for kind in ("new", "old"))
        for left in (beside, before):
            shutil.rmtree(left, ignore_errors=True)
        beside.mkdir(parents=True)
        ocp.save(beside / _PARAMETERS, jax.tree.map(np.asarray, self.parameters))
        description = {
            "widths": dataclasses.asdict(self.widths),
            "num_workers": self.num_workers,
            "divisor": self.divisor,
            "history": self.history,
        }
        files.write_text(beside / _DESCRIPTION, json.dumps(description, indent=2) + "\n")
        if path.is_dir():
            path.rename(before)
        beside.rename(path)
        files.sync_folder(path.parent)
        shutil.rmtree(before, ignore_errors=True)

    @staticmethod
    def exists(path: str | os.PathLike[str]) -> bool:
        """Return if a directory holds a complete model.

        Example:
          >>> TrainedModel.exists("nowhere")
          False
        """
        return _names(pathlib.Path(path)) >= {_DESCRIPTION, _PARAMETERS}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TrainedModel":
        """Read a model that `save` has written; raises a `ValueError` if the directory holds none."""
        path = pathlib.Path(path).absolute()
        try:
            description = json.loads((path / _DESCRIPTION).read_text(encoding="utf-8"))
            widths = Architecture(**description["widths"])
            num_workers = arguments.whole("num_workers", description["num_workers"])
            divisor = arguments.real("divisor", description["divisor"], above=0)
            history = tuple(description["history"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"path={str(path)!r} must be a directory written by TrainedModel.save: {error}") from error
        shapes = jax.eval_shape(lambda: WindowModel(num_workers, widths, seed=0).initial)
        # As NumPy arrays, which are read independently of the devices that the checkpoint was written with.
        expected = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        try:
            parameters = ocp.load(path / _PARAMETERS, expected)
            if [leaf.shape for leaf in jax.tree.leaves(parameters)] != [leaf.shape for leaf in jax.tree.leaves(shapes)]:
                raise ValueError("their shapes differ")
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"path={str(path)!r} holds parameters that are not this model's: {error}") from error
        return cls(widths, num_workers, divisor, jax.tree.map(np.asarray, parameters), history)


def _names(path: pathlib.Path) -> set[str]:
    return {entry.name for entry in path.iterdir()} if path.is_dir() else set()
