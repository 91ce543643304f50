"""A work directory: whether it is one of ours, and, where it holds a single run, of which configuration."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from sgdlab import files
from sgdlab.errors import UsageError
from sgdlab.jobs import digests
from sgdlab.jobs.configuration import flat
from sgdlab.jobs.store import METRICS
from sgdlab.results.records import as_stored

CONFIG = "config.json"
_OWN = (METRICS, "states", "tensorboard", "wandb", CONFIG)
"""Any of these shows that a directory is a work directory, perhaps one whose first run was killed."""


def check_ours(path: pathlib.Path) -> None:
    """Check that a directory is new, empty, or a work directory, so that no other files are written among.

    Raises:
      UsageError: where it holds other files.
    """
    if not path.is_dir() or any((path / name).exists() for name in _OWN):
        return
    if any(not files.is_unfinished(file) for file in path.rglob("*") if file.is_file()):
        raise UsageError(f"--workdir={path} holds files, and none is a run's; name a new or empty directory")


def check_same(path: pathlib.Path, there: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Check that the run of a work directory has the configuration that is asked for.

    Args:
      path: the directory.
      there: the entries of the run that is there, nested.
      asked: those that are asked for.

    Raises:
      UsageError: where they differ; it names the first entry that does.

    Example:
      >>> check_same(pathlib.Path("runs/one"), {"rule": {"momentum": 0.9}}, {"rule": {"momentum": 0.8}})
      Traceback (most recent call last):
      ...
      sgdlab.errors.UsageError: --workdir=runs/one holds a run with config.rule.momentum=0.9, not 0.8; name another directory, or run it anew by --rerun
    """  # noqa: E501 (the message is one line)
    old, new = (dict(flat(as_stored(entries))) for entries in (there, asked))
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new or old[name] != new[name]:
            has = f"with config.{name}={old[name]}" if name in old else f"without config.{name}"
            raise UsageError(
                f"--workdir={path} holds a run {has}, not {new.get(name, 'none')}; name another directory, or run it "
                "anew by --rerun"
            )


def claim(path: pathlib.Path, config: Mapping[str, Any]) -> None:
    """Make a directory that of one configuration before anything is written there.

    Args:
      path: the directory.
      config: the entries, nested.

    Raises:
      UsageError: where it is that of another configuration, or holds other files.
    """
    check_ours(path)
    if (path / CONFIG).exists():
        check_same(path, json.loads((path / CONFIG).read_text(encoding="utf-8"))["config"], config)
    else:
        write_config(path, config)


def write_config(path: pathlib.Path, config: Mapping[str, Any]) -> None:
    """Write `config.json`: the entries of the run of a work directory, and what made it.

    Args:
      path: the directory.
      config: the entries, nested.
    """
    stored = {"config": as_stored(config), "made": digests.made_with()}
    files.write_text(path / CONFIG, json.dumps(stored, indent=2) + "\n")
