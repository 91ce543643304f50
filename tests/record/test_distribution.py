"""sgdlab-record as it is installed: one small package without dependencies, which runs on Python 3.9."""

import ast
import inspect
import pathlib
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile

import numpy as np
import pytest
from test_deadlines import SPEEDS, drawn

from sgdlab import traces

ROOT = pathlib.Path(__file__).parents[2]
SOURCES = sorted((ROOT / "record/sgdlab_record").glob("*.py"))
OWN = ("__init__", "recorder", "profiling", "deadlines", "special", "wrapped")
CALLBACKS = [path for path in SOURCES if path.stem not in OWN]
RECORD = """
import sys, sgdlab_record
with sgdlab_record.Recorder(sys.argv[1], 0) as recorder:
    for batch in recorder.each("data", range(9)):
        with recorder.phase("backward", waits=True):
            recorder.cut()
        recorder.step()
print(recorder.errors)
"""


@pytest.fixture(name="wheel", scope="module")
def of_the_sources(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    for folder in ("record", "sgdlab"):  # of which it takes the predictors
        shutil.copytree(
            ROOT / folder, directory / folder, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        )
    command = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        directory,
        directory / "record",
    ]
    subprocess.run([sys.executable, "-m", "pip", *command], check=True, capture_output=True)
    return next(directory.glob("*.whl"))


def test_the_wheel_is_small_and_needs_nothing(wheel):
    assert wheel.stat().st_size < 100_000
    with zipfile.ZipFile(wheel) as files:
        (metadata,) = (name for name in files.namelist() if name.endswith("METADATA"))
        text = files.read(metadata).decode()
        modules = [name for name in files.namelist() if "dist-info" not in name]
    needs = [line for line in text.splitlines() if line.startswith("Requires-Dist")]
    assert [need for need in needs if "extra ==" not in need] == []
    assert "Requires-Python: >=3.9" in text
    own = [name for name in modules if "/taken/" not in name]
    assert sorted(own) == sorted([*(f"sgdlab_record/{path.name}" for path in SOURCES), "sgdlab_record/py.typed"])


@pytest.mark.representatives("this")
@pytest.mark.parametrize("version", ["this", "3.9"])
def test_it_is_the_only_package_of_an_environment_and_records_there(wheel, tmp_path, version):
    python = sys.executable
    if version != "this":
        there = [*pathlib.Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), shutil.which(f"python{version}")]
        python = next((str(path) for path in there if path), None)
        if python is None or subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode:
            pytest.skip(f"there is no Python {version} here; its syntax is checked all the same")
        subprocess.run([python, "-m", "venv", "--without-pip", tmp_path / "environment"], check=True)
    else:
        venv.create(tmp_path / "environment", with_pip=False)
    python = tmp_path / "environment/bin/python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    subprocess.run([*pip, "install", "--quiet", "--no-index", wheel], check=True, capture_output=True)
    listed = subprocess.run([*pip, "list", "--format=freeze"], check=True, capture_output=True, text=True).stdout
    assert [line.partition("==")[0] for line in listed.split()] == ["sgdlab-record"]
    answer = subprocess.run(
        [python, "-I", "-c", RECORD, tmp_path / "trace"], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert (answer.stdout, answer.stderr) == ("0\n", "")
    recording = traces.read(tmp_path / "trace")
    assert recording.steps.tolist() == list(range(9))
    assert [*recording.phases] == ["data", "backward"]


@pytest.mark.parametrize("path", [*SOURCES, ROOT / "record/setup.py"], ids=lambda path: path.stem)
def test_its_syntax_is_that_of_python_39(path):
    ast.parse(path.read_text(), feature_version=(3, 9))


def test_callbacks_are_short_and_all_are_in_the_table():
    assert {path.stem: lines for path in CALLBACKS if (lines := len(path.read_text().splitlines())) > 40} == {}
    for text in (ROOT / "record/README.md", ROOT / "docs/traces.md"):
        assert [path.stem for path in CALLBACKS if f"`{path.stem}`" not in text.read_text()] == []


def test_the_benchmark_prints_what_a_phase_costs():
    answer = subprocess.run(
        [sys.executable, ROOT / "record/benchmark.py"], check=True, capture_output=True, text=True
    ).stdout
    microseconds, _, rest = answer.partition(" us of a processor")
    share = rest.partition("\n")[2].partition(" %")[0]
    assert "0 errors" in rest
    assert float(microseconds) < 20  # processor's time, of which a busy machine needs hardly more
    assert float(share) < 0.2


BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


def build(kind, folder, where):
    line = [sys.executable, "-c", BUILD, kind, str(where)]
    subprocess.run(line, cwd=folder, check=True, capture_output=True, text=True, timeout=120)


# Run with the wheel's files, without sgdlab and SciPy, and here with both.
PROGRAM = """
import json, math, sys
{block}
import numpy as np
from sgdlab_record.deadlines import Deadline, PREDICTORS

{drawn}

times, found = drawn(80), []
for name in PREDICTORS:
    for price, share in ((0.0, 1), (1.5, 1), (0.0, 0.2)):
        deadline = Deadline.fit(times[:40], predictor=name, rejoin_seconds=price, max_false_drop=share)
        for row in times[40:]:
            closes = np.sort(row)[deadline.next().how_many - 1]
            found.append(deadline.next(np.where(row <= closes, row, np.nan), cut_at=closes))
        found.append(deadline.false_drop())
print(json.dumps(found))
"""


def test_the_wheel_alone_says_the_same_as_sgdlab(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path)
    program = f"SPEEDS = np.array({SPEEDS.tolist()})\n{inspect.getsource(drawn)}"
    block = "sys.modules.update(dict.fromkeys(['sgdlab', 'scipy']))  # whoever imports them fails"
    answers = []
    for place, first in ((str(tmp_path), block), (f"{ROOT}:{ROOT / 'record'}", "")):
        line = [sys.executable, "-W", "error", "-c", PROGRAM.format(block=first, drawn=program)]
        answers.append(subprocess.run(line, env={"PYTHONPATH": place}, check=True, capture_output=True, text=True))
    ours, theirs = (np.array(ast.literal_eval(a.stdout.replace("Infinity", "1e9999"))) for a in answers)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert np.isfinite(ours).mean() > 0.7


def test_the_wheel_has_what_it_takes_and_needs_numpy_for_deadlines_alone(wheel):
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        texts = {name: files.read(name).decode() for name in names if name.endswith((".py", "METADATA"))}
    metadata = next(text for name, text in texts.items() if name.endswith("METADATA"))
    assert [line for line in metadata.splitlines() if line.startswith("Requires-Dist")] == [
        'Requires-Dist: numpy<3,>=1.24; extra == "deadlines"'
    ]
    assert wheel.stat().st_size < 100_000
    assert "sgdlab_record/taken/predictors/kalman.py" in names
    assert not any(name.startswith(("sgdlab/", "taking")) for name in names)
    for name, text in texts.items():
        if not name.endswith(".py"):
            continue
        tree = ast.parse(text, feature_version=(3, 9))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
        if name != "sgdlab_record/deadlines.py":  # which falls back to sgdlab in a checkout
            assert not {word for word in imported if word.split(".")[0] in ("sgdlab", "scipy")}


@pytest.mark.full
def test_a_source_archive_makes_the_same_wheel(wheel, tmp_path):
    build("build_sdist", wheel.parent / "record", tmp_path)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        # Before Python 3.11.4 nothing is filtered.
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    build("build_wheel", next(path for path in tmp_path.iterdir() if path.is_dir()), tmp_path)
    one, other = (zipfile.ZipFile(each) for each in (wheel, next(tmp_path.glob("*.whl"))))
    assert sorted(one.namelist()) == sorted(other.namelist())
    assert all(one.read(name) == other.read(name) for name in one.namelist() if name.endswith(".py"))
