"""The files that a path stands for: one, those of a directory, or those of a pattern, one for each worker."""

import glob
import os
import pathlib
import re
from collections.abc import Sequence

LOOSE = (".json", ".log", ".txt")
"""Endings of files that may hold a table, or something else."""

# In the order of which is preferred: `host10_rank3` is rank 3.
_RANKS = [
    re.compile(rf"(?:{names})[-_.= ]?([0-9]+)", re.IGNORECASE)
    for names in ("rank", "worker", "process|proc|replica", "gpu|device", "host|node")
]


def files(path: str | os.PathLike[str], endings: Sequence[str]) -> list[pathlib.Path]:
    """The files that a path stands for, in order.

    Args:
      path: of a file, of a directory, or a pattern such as `logs/rank*.csv`.
      endings: those that names of files in a directory may have; a file that is named may have another.

    Example:
      >>> import tempfile
      >>> folder = pathlib.Path(tempfile.mkdtemp())
      >>> for name in ("rank0.csv", "rank1.CSV", "notes.txt"):
      ...     (folder / name).touch()
      >>> [file.name for file in files(folder, (".csv",))], [file.name for file in files(folder / "rank*", ())]
      (['rank0.csv', 'rank1.CSV'], ['rank0.csv', 'rank1.CSV'])
    """
    path = pathlib.Path(path)
    if path.is_file():
        return [path]
    if path.is_dir():
        found = [file for file in path.iterdir() if file.name.lower().endswith(tuple(endings))]
    else:
        found = [pathlib.Path(name) for name in glob.glob(str(path))]
    return sorted((file for file in found if file.is_file() and not file.name.startswith(".")), key=_in_order)


def workers(files: Sequence[pathlib.Path]) -> dict[pathlib.Path, str]:
    """The worker of each file, by its name: the number behind `rank`, `worker` and the like, else the whole name.

    Example:
      >>> list(workers([pathlib.Path("rank0.csv"), pathlib.Path("rank1.csv")]).values())
      ['0', '1']
      >>> list(workers([pathlib.Path("east.csv"), pathlib.Path("west.csv")]).values())
      ['east', 'west']
    """
    named = {file: worker_of(file) for file in files}
    if len(set(named.values())) == len(named):
        return named
    return {file: file.name.partition(".")[0] for file in files}


def names_worker(path: str | os.PathLike[str]) -> bool:
    """Whether a file is called after its worker.

    Example:
      >>> names_worker("logs/rank3.csv"), names_worker("logs/trace.csv")
      (True, False)
    """
    return number_behind_rank(path) is not None


def number_behind_rank(path: str | os.PathLike[str]) -> str | None:
    """The number behind `rank` in a file's name, or else behind `worker` and the like.

    Example:
      >>> number_behind_rank("logs/host10_rank003.csv"), number_behind_rank("dump_3")
      ('3', None)
    """
    name = pathlib.Path(path).name
    found = (pattern.search(name) for pattern in _RANKS)
    return next((str(int(match.group(1))) for match in found if match), None)


def worker_of(path: str | os.PathLike[str]) -> str:
    """The worker of a file, by its name alone.

    Example:
      >>> worker_of("logs/rank007.jsonl"), worker_of("logs/east.jsonl")
      ('7', 'east')
    """
    return number_behind_rank(path) or pathlib.Path(path).name.partition(".")[0]


def _in_order(file: pathlib.Path) -> list[str | int]:
    """Digits in names by value: rank2 before rank10."""
    return [int(part) if position % 2 else part for position, part in enumerate(re.split(r"([0-9]+)", file.name))]
