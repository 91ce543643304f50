"""Parts declare themselves: entries from the signature, calls with what a run gives, refusals with the flag's name."""

import dataclasses
import functools
import pathlib
import re
from typing import Literal

import numpy as np
import pytest
from ml_collections import ConfigDict

from sgdlab.errors import UsageError
from sgdlab.registry import Facts, Registry
from sgdlab.runtimes import NotEnoughRuntimes


@dataclasses.dataclass(frozen=True)
class Delay:
    """A group of entries."""

    seconds: float = 0.0
    share: float = 0.5

    def __post_init__(self):
        if self.share > 1:
            raise ValueError(f"share={self.share} must be at most 1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShapeFacts(Facts):
    corners: int = 0


@pytest.fixture(name="shapes")
def shapes_registry():
    shapes = Registry("shape", facts=ShapeFacts, given={"seed": "seed", "size": ""})

    @shapes.register(title="A box", source="Euclid", corners=8)
    def box(
        size, *, side: float = 1, lid: bool = False, limit: int | None = None, sides: tuple[int, ...] = (1, 2),
        delay: Delay = Delay(), lining: Literal["silk", "felt"] | None = None, seed: int = 0,
    ):  # fmt: skip
        """A box.

        Args:
          size: how large it is.
          side: of each
            side, metres.
          lid: whether it has one.

        Returns:
          What it was given.
        """
        if side < 0:
            raise ValueError(f"side={side} must not be negative")
        if seed < 0:
            raise ValueError(f"seed={seed} must not be negative")
        if size < 0:
            raise ValueError("a box has a size")
        return size, side, lid, limit, sides, delay, seed

    shapes.register("ball", title="A ball")(Delay)
    return shapes


def test_entries_are_the_signature_and_what_is_changed(shapes):
    config = shapes.entries("box", box={"side": 2.0, "delay": {"seconds": 3.0}})
    assert config.kind == "box"
    assert config.box.to_dict() == {
        "side": 2.0, "lid": False, "limit": None, "sides": (1, 2), "delay": {"seconds": 3.0, "share": 0.5},
        "lining": None,
    }  # fmt: skip
    assert config.ball.to_dict() == {"seconds": 0.0, "share": 0.5}
    assert shapes.entries().kind is None


def test_entries_hold_their_types_so_that_flags_can_set_them(shapes):
    config = shapes.entries("box")
    config.box.side, config.box.limit, config.box.sides, config.kind = 0.5, 7, (3,), "ball"  # side: a float, though 1
    assert config.box.side == 0.5
    assert config.box.get_type("lining") is str  # by its words
    with pytest.raises(TypeError):
        config.box.limit = "many"


@pytest.mark.parametrize(
    ("kind", "changed", "words"),
    [
        ("cone", {}, "--config.shape.kind=cone must be one of box, ball"),
        ("box", {"cone": {}}, "--config.shape.kind=cone must be one of box, ball"),
        ("box", {"box": {"sied": 1}}, r"box.sied=1 must be one of side, lid"),
        ("box", {"box": {"delay": {"minutes": 1}}}, r"box.delay.minutes=1 must be one of seconds, share"),
    ],
)
def test_unknown_parts_and_entries_are_refused(shapes, kind, changed, words):
    with pytest.raises(ValueError, match=words):
        shapes.entries(kind, **changed)


def test_a_part_is_called_with_its_entries_and_what_it_names_of_what_is_given(shapes):
    entries = shapes.entries("box", box={"delay": {"seconds": 3.0}}).box
    made = shapes.make("box", entries, size=4, seed=5, other="ignored")
    assert made == (4, 1.0, False, None, (1, 2), Delay(3.0, 0.5), 5)
    assert shapes.make("ball", {"share": 0.25}, size=4) == Delay(share=0.25)


@pytest.mark.parametrize(
    ("entries", "given", "words"),
    [
        ({"side": -1.0}, {"size": 1}, "--config.shape.box.side=-1.0 must not be negative"),
        ({}, {"size": 1, "seed": -2}, "--config.seed=-2 must not be negative"),
        ({}, {"size": -1}, "--config.shape.kind=box: a box has a size"),
        ({"delay": ConfigDict({"share": 2.0})}, {"size": 1}, "--config.shape.box.delay.share=2.0 must be at most 1"),
    ],
)
def test_what_a_part_refuses_is_said_of_the_flag(shapes, entries, given, words):
    with pytest.raises(UsageError) as error:
        shapes.make("box", entries, **given)
    assert re.sub(r" \(test_registry\.py, line \d+\)$", "", str(error.value)) == words


def test_other_errors_pass_as_they_are(shapes):
    @shapes.register(title="Short")
    def short(size):
        raise NotEnoughRuntimes("more", size)

    with pytest.raises(NotEnoughRuntimes) as error:
        shapes.make("short", {}, size=9)
    assert error.value.rows == 9


def test_facts_and_help_come_from_the_registration_and_the_docstring(shapes):
    box = shapes["box"]
    assert (box.title, box.source, box.facts.corners) == ("A box", "Euclid", 8)
    assert box.help() == {
        "size": "how large it is.", "side": "of each side, metres.", "lid": "whether it has one."
    }  # fmt: skip
    assert box.given == {"size", "seed"}


def test_a_misspelt_fact_is_refused(shapes):
    with pytest.raises(ValueError, match=r"^cube: the fact 'cornres' must be one of files, corners$"):
        shapes.register("cube", title="A cube", cornres=8)(lambda: None)
    assert "cube" not in shapes


def test_a_name_is_taken_once_but_a_cell_may_be_run_again(shapes):
    with pytest.raises(ValueError, match="name='box' must be another"):
        shapes.register("box", title="Another")(lambda: None)

    # Rows and lines of two parts of one title could not be told apart.
    with pytest.raises(ValueError, match="title='A box' of crate must be another: the shape box has it"):
        shapes.register("crate", title="A box")(lambda: None)
    assert "crate" not in shapes

    def cell():
        @shapes.register(title="Again")
        def again(*, turns: int = 1):
            return turns

    cell()
    cell()
    assert shapes.make("again", {"turns": 2}) == 2


def test_what_no_configuration_can_hold_must_be_given_by_runs(shapes):
    with pytest.raises(ValueError, match=r"needy\(weight=\.\.\.\) must be given by runs, or have a default"):

        @shapes.register(title="Needy")
        def needy(*, weight: float):
            return weight

    with pytest.raises(ValueError, match=r"listing\(items=\.\.\.\)"):

        @shapes.register(title="Listing")
        def listing(*, items: list = []):  # noqa: B006
            return items


@pytest.fixture(name="bare")
def registry_without_parts():
    return Registry("shape", given={"seed": ""})


def test_a_mistake_in_the_code_of_somebody_is_said_with_its_line(bare):
    @bare.register(title="A sum")
    def summed(*, count: int = 3):
        return np.ones(count) + np.stack([np.ones(2), np.ones(max(count, 2))])[0]

    where = r"\(test_registry\.py, line \d+\)$"
    with pytest.raises(UsageError, match=rf"^--config\.shape\.kind=summed: .*same shape {where}"):  # by NumPy's Python
        bare.make("summed", {})
    with pytest.raises(UsageError, match=rf"could not be broadcast.* {where}"):  # by an operator
        bare.make("summed", {"count": 0})
    assert bare.make("summed", {"count": 2}).shape == (2,)


def test_a_part_that_returns_nothing_is_named(bare):
    @bare.register("box", title="A box")
    def make_box(*, side: float = 1.0):
        side**3

    with pytest.raises(UsageError) as error:
        bare.make("box", {})
    assert str(error.value) == (
        "--config.shape.kind=box returned None: is `return` missing? (test_registry.py, make_box)"
    )


@pytest.mark.parametrize("path", ["", "none.csv"])
def test_a_file_that_is_not_there_is_named(bare, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    @bare.register(title="A table", files=("path",))
    def table(*, path: str = "", other: str = ""):
        with open(other or path) as file:
            return file.read()

    with pytest.raises(UsageError, match=f"^--config.shape.table.path={path} must be a file that is there$"):
        bare.make("table", {"path": path})
    (tmp_path / "there.csv").write_text("1")
    with pytest.raises(FileNotFoundError):  # of another file: their line is what they need
        bare.make("table", {"path": "there.csv", "other": "gone"})
    assert bare.make("table", {"path": "there.csv"}) == "1"


def test_files_are_there_by_themselves_by_a_pattern_or_in_a_folder(bare, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    @bare.register(title="Tables", files=("paths", "index"))
    def tables(*, paths: tuple[str, ...] = (), index: str | None = None):
        return [pathlib.Path(path).read_text() for path in (*paths, *([index] if index else []))] + [open("gone")]

    (tmp_path / "there.csv").write_text("1")
    with pytest.raises(UsageError, match=r"^--config\.shape\.tables\.paths=none\.csv must be a file that is there$"):
        bare.make("tables", {"paths": ("there.csv", "none.csv")})
    with pytest.raises(FileNotFoundError, match="gone"):  # no file of the configuration
        bare.make("tables", {"paths": ("there.csv",)})
    with pytest.raises(FileNotFoundError, match="the"):
        bare.make("tables", {"index": "the*.csv"})  # it finds a file, and what does not take it is theirs to mend


def test_a_partial_is_where_its_function_is(bare):
    def box(*, side: float = 1.0, lid: bool = False):
        return None if lid else side

    for _ in range(2):  # a cell may be run again
        bare.register("box", title="A box")(functools.partial(box, lid=True))
    assert bare["box"].where == "test_registry.py, box"
    assert bare.entries("box").box.to_dict() == {"side": 1.0, "lid": True}
    with pytest.raises(UsageError, match=r"returned None.*\(test_registry.py, box\)"):
        bare.make("box", {"side": 1.0})
