"""NumPy's own files: an array of steps x workers."""

import pathlib

import numpy as np

from sgdlab.traces import wide
from sgdlab.traces.cells import Cells
from sgdlab.traces.columns import ColumnLayout
from sgdlab.traces.family import TRACES
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace, CheckedRows
from sgdlab.traces.recording import Recording


@TRACES.register(
    "npy",
    title="NumPy array",
    source="https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html",
    endings=(".npy",),
)
def npy(*, path: pathlib.Path, options: Options) -> Recording:
    """Reads an array [steps, workers] of numbers, whose rows messages number from 0; nothing is unpickled.

    Raises:
      BadTrace: where it cannot be used.
    """
    if options.columns:
        raise BadTrace(f"--columns={','.join(options.columns)} cannot be found: an array's columns have no names")
    try:
        with path.open("rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except ValueError as error:
        raise BadTrace(f"must be an array of numbers, as numpy.save writes it: {error}") from error
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiu":
        raise BadTrace(f"an array of shape {array.shape} must be numbers of shape [steps, workers]")
    names = tuple(str(index) for index in range(array.shape[1]))
    cells = Cells(CheckedRows(range(len(array))), numbers=dict(zip(names, array.astype(np.float64).T, strict=True)))
    return wide.build(cells, ColumnLayout("wide", workers=names, unit=options.unit or "s"), skip=options.skip_bad_rows)
