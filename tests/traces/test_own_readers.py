"""Custom readers: directories, messages with the file's name, and recordings that check themselves."""

import numpy as np
import pytest

from sgdlab.registry import TRACES
from sgdlab.traces import Recording, read
from sgdlab.traces.options import Options

NAN = np.nan


@pytest.fixture(name="reader")
def registered(monkeypatch):
    """A reader of lines `step worker seconds`."""
    monkeypatch.setattr(TRACES, "_parts", dict(TRACES))

    @TRACES.register("lines", title="lines", endings=(".lines",))
    def lines(*, path):
        found = [line.split() for line in path.read_text().splitlines()]
        if not found:
            raise ValueError("must have lines")
        if found[0] == ["none"]:
            return None
        steps, names = (sorted({row[k] for row in found}) for k in (0, 1))
        times = np.full((len(steps), len(names)), NAN)
        for step, name, seconds in found:
            times[steps.index(step), names.index(name)] = float(seconds)
        return Recording(times, np.array(steps, int), tuple(names))


def test_files_of_a_directory_or_a_pattern_are_joined(reader, tmp_path):
    (tmp_path / "a.lines").write_text("1 x 0.5\n2 x 0.25\n")
    (tmp_path / "b.lines").write_text("2 y 2\n3 y 3\n3 x 4\n")
    (tmp_path / "notes.md").write_text("other")
    for path in (tmp_path, tmp_path / "*.lines"):
        found = read(path)
        assert found.workers == ("x", "y")
        assert found.steps.tolist() == [1, 2, 3]
        np.testing.assert_array_equal(found.runtimes, [[0.5, NAN], [0.25, 2], [4, 3]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must have lines"),
        ("none", "its reader returned None, and no Recording: is `return` missing"),
        ("1 x 0\n", r"runtimes\[0, 0\]=0 must be above 0 and finite"),
        ("1 x nan\n", "must have compute times; all are missing"),
    ],
)
def test_the_name_of_the_file_stands_in_front(reader, text, words, tmp_path):
    (tmp_path / "a.lines").write_text(text)
    with pytest.raises(ValueError, match=rf"--trace=.*a\.lines: {words}"):
        read(tmp_path / "a.lines", name="--trace")
    (tmp_path / "b.lines").write_text("1 y 2\n")
    if "all are missing" not in words:
        with pytest.raises(ValueError, match=rf"^path='[^']*': a\.lines: {words}"):
            read(tmp_path)


def test_a_run_time_in_two_files_is_refused(reader, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.lines").write_text("1 x 2\n")
    with pytest.raises(ValueError, match=r"b\.lines and a\.lines both have a time of worker x in step 1"):
        read(tmp_path)


def test_a_mistake_in_the_reader_is_said_with_its_line(reader, tmp_path):
    (tmp_path / "a.lines").write_text("1 x many\n")
    with pytest.raises(ValueError, match=r": could not convert .* \(test_own_readers\.py, line \d+\)$"):
        read(tmp_path / "a.lines")


def test_a_directory_without_its_files_is_said(reader, tmp_path):
    (tmp_path / "notes.md").write_text("other")
    with pytest.raises(
        ValueError, match=r"holds no file that ends in \.lines; .* whole=True \(test_own_readers\.py, li"
    ):
        read(tmp_path, Options(format="lines"))


@pytest.mark.parametrize(
    ("recognises", "whole"), [(lambda path: path.is_dir(), True), (lambda path: "1" in path.read_text(), False)]
)
def test_a_directory_that_a_reader_recognises_is_its_own_to_read(recognises, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(TRACES, "_parts", dict(TRACES))
    given = []

    @TRACES.register("folders", title="folders", endings=(".one",), recognises=recognises)
    def folders(*, path):
        given.append(path)
        return Recording([[1.0, 2.0]], [len(given)], (0, 1))

    for name in "ab":
        (tmp_path / f"{name}.one").write_text("1")
    assert read(tmp_path).workers == ("0", "1")
    assert given == ([tmp_path] if whole else [tmp_path / "a.one", tmp_path / "b.one"])


def test_a_recording_of_lists_is_one_of_arrays():
    found = Recording([[1, None], [2.0, 3.0]], [4, 5], np.array([0, 1]), phases={"load": [[0.5, -1e-9], [1, NAN]]})
    np.testing.assert_array_equal(found.runtimes, [[1, NAN], [2, 3]])
    assert found.workers == ("0", "1")
    assert found.missing == 1
    assert found.select(rows=[1]).phases["load"].shape == (1, 2)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"phases": {"load": np.full((2, 3), -1.0)}}, r"load\[0, 0\]=-1 must be at least 0 and finite"),
        ({"runtimes": [[1, 2, 3], [1]]}, "runtimes must be numbers"),
        ({"runtimes": np.ones((3, 2))}, r"runtimes of shape \(3, 2\) must be of shape \(2, 3\)"),
        ({"phases": {"load": np.ones((2, 2))}}, r"load of shape \(2, 2\) must be"),
        ({"workers": (0, "1", None)}, "workers must be texts, each another, .* not None among them"),
        ({"workers": (0, "0", 1)}, "workers must be texts, each another"),
        ({"workers": ("a", "b", "a")}, "workers must be texts, each another"),
        ({"nodes": ("n",)}, "must be those of 3 workers"),
        ({"steps": np.array([4, 4])}, "steps must rise, and 4 comes after 4"),
        ({"runtimes": np.array([[1, 2, NAN], [1, -2, 3]])}, r"runtimes\[1, 1\]=-2 .* worker b in step 5 \(1 such"),
        ({"runtimes": np.full((2, 3), np.inf)}, r"runtimes\[0, 0\]=inf must be .*\(6 such in all\)"),
    ],
)
def test_a_recording_checks_itself(changed, words):
    whole = {"runtimes": np.ones((2, 3)), "steps": np.array([4, 5]), "workers": ("a", "b", "c")}
    Recording(**whole)
    with pytest.raises(ValueError, match=words):
        Recording(**whole | changed)
