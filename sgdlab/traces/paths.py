"""The files that a path stands for: one, those of a directory, or those of a pattern, one for each worker."""

import glob
import json
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

LOOSE = (".json", ".log", ".txt")
"""Endings of files that may hold a table, or something else."""

# In the order of which is preferred: `host10_rank3` is rank 3.
_RANKS = [
    re.compile(rf"(?:{names})[-_.= ]?([0-9]+)", re.IGNORECASE)
    for names in ("rank", "worker", "process|proc|replica", "gpu|device", "host|node")
]


def files(path: str | os.PathLike[str], endings: Sequence[str]) -> list[pathlib.Path]:
    """List the files of a path, a directory, or a pattern such as `logs/rank*.csv`, in order.

    Files in a directory must have one of the endings; a file that is named may have another.

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
    found = [file for file in found if file.is_file() and not file.name.startswith(".")]
    return sorted(found, key=lambda file: in_order(file.name))


def workers(files: Sequence[pathlib.Path]) -> dict[pathlib.Path, str]:
    """Name the worker of each file: by the number behind `rank`, `worker` and the like, else by the whole name.

    Example:
      >>> list(workers([pathlib.Path("rank0.csv"), pathlib.Path("rank1.csv")]).values())
      ['0', '1']
      >>> list(workers([pathlib.Path("east.csv"), pathlib.Path("west.csv")]).values())
      ['east', 'west']
      >>> list(workers([pathlib.Path("train.0.csv"), pathlib.Path("train.1.csv")]).values())
      ['train.0', 'train.1']
    """
    of_series = len(set(map(series, files)))
    whole = {file: file.name.partition(".")[0] for file in files}
    if len(set(whole.values())) < of_series:  # such as train.0.csv and train.1.csv
        whole = {file: re.sub(r"\.[a-z]+(\.gz)?$", "", series(file), flags=re.IGNORECASE) for file in files}
    named = {file: number_behind_rank(file) or name for file, name in whole.items()}
    return named if len(set(named.values())) == of_series else whole


def series(file: pathlib.Path) -> str:
    """Return the name of the series of a file, such as of rank0.0001.jsonl, which comes behind rank0.0000.jsonl.

    Example:
      >>> [series(pathlib.Path(f"logs/{name}")) for name in ("rank0.0001.jsonl", "0.0001.jsonl.gz", "log.rank0.jsonl")]
      ['rank0.jsonl', '0.jsonl.gz', 'log.rank0.jsonl']
    """
    return re.sub(r"\.[0-9]{4,}(?=\.jsonl(\.gz)?$)", "", file.name)


def number_behind_rank(path: str | os.PathLike[str]) -> str | None:
    """Return the number behind `rank` in a file's name, or else behind `worker` and the like.

    Example:
      >>> number_behind_rank("logs/host10_rank003.csv"), number_behind_rank("dump_3")
      ('3', None)
    """
    name = pathlib.Path(path).name
    found = (pattern.search(name) for pattern in _RANKS)
    return next((str(int(match.group(1))) for match in found if match), None)


def in_order(name: str) -> list[tuple[int, str, str]]:
    """Return what names are sorted by: digits in them by their value.

    Example:
      >>> sorted(["rank10", "rank9", "rank"], key=in_order)
      ['rank', 'rank9', 'rank10']
    """
    parts = re.split(r"([0-9]+)", name)  # every second one is digits
    return [(len(part.lstrip("0")), part.lstrip("0"), part) if i % 2 else (0, part, "") for i, part in enumerate(parts)]


def object_of(line: str | bytes) -> dict[str, Any] | None:
    """Return the object of JSON that a line is; None where it is none."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
