"""A deep Markov model that has been trained: its parameters, what run-times are divided by, and whose they are."""

import dataclasses
import json
import os
import pathlib
from typing import Any

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp

from sgdlab import arguments, files
from sgdlab.cutoff.model import Architecture, WindowModel

_DESCRIPTION = "model.json"
_PARAMETERS = "parameters"


@dataclasses.dataclass(frozen=True, eq=False)
class TrainedModel:
    """What training leaves.

    Attributes:
      widths: of the networks.
      num_workers: N, the cluster that it was trained on.
      divisor: seconds; twice the mean of the first window that it was trained on. Run-times are divided by it.
      parameters: of the networks, nested dictionaries of arrays.
      history: of the training: one mapping for each look at the validation windows.
    """

    widths: Architecture
    num_workers: int
    divisor: float
    parameters: dict[str, Any]
    history: tuple[dict[str, float], ...] = ()

    def check(self, runtimes: np.ndarray, name: str = "runtimes") -> np.ndarray:
        """Run-times of this model's cluster, float64[T, N].

        Raises:
          ValueError: where they are of another number of workers.
        """
        array = np.asarray(runtimes, np.float64)
        if array.ndim != 2 or array.shape[1] != self.num_workers:
            raise ValueError(
                f"{name} of shape {array.shape} must have {self.num_workers} columns: the model was trained on "
                f"{self.num_workers} workers"
            )
        return array

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a directory: a description to read, and the parameters as an Orbax checkpoint.

        The description comes last: a directory without it is not a model.
        """
        path = pathlib.Path(path).absolute()
        (path / _DESCRIPTION).unlink(missing_ok=True)
        path.mkdir(parents=True, exist_ok=True)
        ocp.save(path / _PARAMETERS, jax.tree.map(np.asarray, self.parameters), overwrite=True)
        description = {
            "widths": dataclasses.asdict(self.widths),
            "num_workers": self.num_workers,
            "divisor": self.divisor,
            "history": self.history,
        }
        files.write_text(path / _DESCRIPTION, json.dumps(description, indent=2) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TrainedModel":
        """Reads what `save` wrote.

        Raises:
          ValueError: where the directory holds no such model.
        """
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
        # As NumPy arrays: a checkpoint is then read wherever it was written, whatever devices there are.
        expected = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        try:
            parameters = ocp.load(path / _PARAMETERS, expected)
            if [leaf.shape for leaf in jax.tree.leaves(parameters)] != [leaf.shape for leaf in jax.tree.leaves(shapes)]:
                raise ValueError("their shapes are others")
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"path={str(path)!r} holds parameters that are not this model's: {error}") from error
        return cls(widths, num_workers, divisor, jax.tree.map(np.asarray, parameters), history)
