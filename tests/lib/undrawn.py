"""Runs without their pictures, for tests that look at none: writing them takes longer than a tiny run."""

import pathlib

from sgdlab import results


def leave_undrawn(monkeypatch):
    """Figures are made as ever, and empty files stand for what would be drawn of them."""

    def save(figure, path):
        del figure
        path = pathlib.Path(path)
        path.parent.mkdir(exist_ok=True, parents=True)
        for ending in ("png", "svg"):
            path.with_suffix(f".{ending}").touch()

    monkeypatch.setattr(results.plots, "save", save)
