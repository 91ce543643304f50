"""Damages files as those of a server that was killed can be."""

import pathlib

from sgdlab.live.lines import path_in


def cut_off_log(folder: pathlib.Path) -> None:
    """Of the last line of the log, the end is missing."""
    path = path_in(folder)
    data = path.read_bytes()
    path.write_bytes(data[:-9])


def spoil_checkpoint(folder: pathlib.Path) -> None:
    """The newest checkpoint has other bytes in its middle."""
    path = max(folder.glob("checkpoint-*.npz"), key=lambda path: int(path.stem.split("-")[1]))
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(64)
    path.write_bytes(data)


def lose_checkpoints(folder: pathlib.Path) -> None:
    """All checkpoints are gone."""
    for path in folder.glob("checkpoint-*.npz"):
        path.unlink()
