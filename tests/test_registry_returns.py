"""Parts that return nothing, and files that are not there: said of the flag."""

import functools
import pathlib

import pytest

from sgdlab.errors import UsageError
from sgdlab.registry import Registry


@pytest.fixture(name="shapes")
def registry():
    return Registry("shape", given={"seed": ""})


def test_a_part_that_returns_nothing_is_named(shapes):
    @shapes.register("box", title="A box")
    def make_box(*, side: float = 1.0):
        side**3

    with pytest.raises(UsageError) as error:
        shapes.make("box", {})
    assert str(error.value) == (
        "--config.shape.kind=box returned None: is `return` missing? (test_registry_returns.py, make_box)"
    )


@pytest.mark.parametrize("path", ["", "none.csv"])
def test_a_file_that_is_not_there_is_named(shapes, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    @shapes.register(title="A table", files=("path",))
    def table(*, path: str = "", other: str = ""):
        with open(other or path) as file:
            return file.read()

    with pytest.raises(UsageError, match=f"^--config.shape.table.path={path} must be a file that is there$"):
        shapes.make("table", {"path": path})
    (tmp_path / "there.csv").write_text("1")
    with pytest.raises(FileNotFoundError):  # of another file: their line is what they need
        shapes.make("table", {"path": "there.csv", "other": "gone"})
    assert shapes.make("table", {"path": "there.csv"}) == "1"


def test_files_are_there_by_themselves_by_a_pattern_or_in_a_folder(shapes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    @shapes.register(title="Tables", files=("paths", "index"))
    def tables(*, paths: tuple[str, ...] = (), index: str | None = None):
        return [pathlib.Path(path).read_text() for path in (*paths, *([index] if index else []))] + [open("gone")]

    (tmp_path / "there.csv").write_text("1")
    with pytest.raises(UsageError, match=r"^--config\.shape\.tables\.paths=none\.csv must be a file that is there$"):
        shapes.make("tables", {"paths": ("there.csv", "none.csv")})
    with pytest.raises(FileNotFoundError, match="gone"):  # no file of the configuration
        shapes.make("tables", {"paths": ("there.csv",)})
    with pytest.raises(FileNotFoundError, match="the"):
        shapes.make("tables", {"index": "the*.csv"})  # it finds a file, and what does not take it is theirs to mend


def test_a_partial_is_where_its_function_is(shapes):
    def box(*, side: float = 1.0, lid: bool = False):
        return None if lid else side

    for _ in range(2):  # a cell may be run again
        shapes.register("box", title="A box")(functools.partial(box, lid=True))
    assert shapes["box"].where == "test_registry_returns.py, box"
    assert shapes.entries("box").box.to_dict() == {"side": 1.0, "lid": True}
    with pytest.raises(UsageError, match=r"returned None.*\(test_registry_returns.py, box\)"):
        shapes.make("box", {"side": 1.0})
