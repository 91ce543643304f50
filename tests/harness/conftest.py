"""Share between tests of the harness: figures of a user's own, which alone are known."""

import pytest

from experiments import papers
from experiments.harness import Scale, board, figure, figures
from sgdlab.runs import digests


@pytest.fixture(name="declare")
def figures_of_ones_own(monkeypatch):
    """Declares a function as the figure of a module, by default of a paper's folder; one under each name."""
    known = {}
    monkeypatch.setattr(figures, "_FIGURES", {})
    monkeypatch.setattr(figures, "names", lambda: list(known))
    monkeypatch.setattr(figures, "find_figure", known.get)

    def declare(make, name=None, *, paper=papers.GOSSIP, numbers="Figure 2", full_size=False, **scales):
        monkeypatch.setattr(make, "__module__", f"experiments.{name or f'gossip.{make.__name__}'}")
        scales = {"smoke": Scale("1 s"), "laptop": Scale("2 s")} | scales
        made = figure(paper, numbers, scales=scales, differs="They do not.", full_size=full_size)(make)
        known[made.name] = made
        return made

    return declare


@pytest.fixture(name="stored")
def a_place_of_stored_results(monkeypatch, tmp_path):
    """An empty one; and a checkout whose code is all in a commit."""
    of_code = digests.made_with
    monkeypatch.setattr(digests, "made_with", lambda: of_code() | {"commit": "0123abc"})
    monkeypatch.setattr(board, "STORED", tmp_path / "stored")
    return tmp_path / "stored"
