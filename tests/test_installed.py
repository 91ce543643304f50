"""The wheel has the commands and their configurations, and they work in an environment without the checkout."""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]
SOURCES = ("sgdlab", "configs", "setup.py", "pyproject.toml", "README.md", "LICENSE")
TINY = (
    "--config.epochs=1.0",
    "--config.evaluations=2",
    "--config.network.kind=mlp",
    "--config.network.mlp.widths=(8,)",
)


class Installation:
    """A fresh environment with the wheel, and an empty directory to run its commands in.

    Libraries are those of this environment, by a .pth file: the .pth files of that folder, and with them an editable
    installation of the checkout, have no effect there.
    """

    def __init__(self, directory, wheel):
        self.directory, self.wheel = directory / "work", wheel
        self.directory.mkdir()
        venv.create(directory / "environment", with_pip=False)
        self.binaries = directory / "environment/bin"
        self.packages = pathlib.Path(
            self.run("python", "-c", "import site; print(site.getsitepackages()[0])").stdout[:-1]
        )
        (self.packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip("--python", self.binaries / "python", "install", "--no-deps", wheel)

    def run(self, program, *arguments, check=True):
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        flags = [flag for flag in environment.get("XLA_FLAGS", "").split() if "device_count" not in flag]
        environment["XLA_FLAGS"] = " ".join(flags)  # how its programs are compiled here; it has one device
        line = [self.binaries / program, *arguments]
        answer = subprocess.run(
            line, cwd=self.directory, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert answer.returncode == 0 or not check, answer.stderr
        return answer


def pip(*arguments):
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip


@pytest.fixture(scope="module", name="installed")
def build_and_install(tmp_path_factory):
    """Builds from a copy, so that the checkout's `build` is neither used nor written; nothing is downloaded."""
    directory = tmp_path_factory.mktemp("installed")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, directory / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, directory / "source" / name)
    pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", directory, directory / "source")
    (wheel,) = directory.glob("sgdlab-*.whl")
    return Installation(directory, wheel)


@pytest.mark.full
def test_the_wheel_holds_every_module_template_and_configuration_and_says_that_it_is_typed(installed):
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = set(wheel.namelist())
    files = [path for path in (ROOT / "sgdlab").rglob("*") if path.suffix in (".py", ".html", ".npz", ".typed")]
    wanted = {str(path.relative_to(ROOT)) for path in files}
    wanted |= {f"sgdlab/configs/{path.name}" for path in (ROOT / "configs").glob("*.*")}
    assert {name for name in names if ".dist-info/" not in name} == wanted


def test_the_package_is_that_of_the_wheel(installed):
    script = "import sgdlab, sgdlab.configs.digits; print(sgdlab.__file__, sgdlab.configs.digits.__file__)"
    places = installed.run("python", "-c", script).stdout.split()
    assert [pathlib.Path(place) for place in places] == [
        installed.packages / "sgdlab/__init__.py",
        installed.packages / "sgdlab/configs/digits.py",
    ]


def test_help_lists_the_commands_and_imports_no_library(installed):
    answer = installed.run("sgdlab", "--help")
    assert answer.stdout == installed.run("sgdlab").stdout
    for command in ("advise", "certificate", "compare", "data", "live", "replay", "train", "timeline"):
        assert f"\n  {command} " in answer.stdout
    script = "import sys; sys.argv[1:] = ['--help']; from sgdlab.commands import console; console.main()"
    slow = installed.run("python", "-c", f"{script}; print([m for m in ('jax', 'numpy', 'absl') if m in sys.modules])")
    assert slow.stdout == f"{answer.stdout}[]\n"


def test_help_of_a_command_lists_its_flags(installed):
    answer = installed.run("sgdlab", "train", "--help")
    assert "--workdir" in answer.stdout
    assert "--config.method" in answer.stdout


def test_the_version_is_that_of_the_package(installed):
    (version,) = [part for part in installed.wheel.name.split("-") if part[0].isdigit()]
    assert installed.run("sgdlab", "--version").stdout == f"{version}\n"


@pytest.mark.parametrize(("word", "meant"), [("compair", "sgdlab compare"), ("--trace=x.csv", "advise, certificate")])
def test_a_wrong_command_is_one_line(installed, word, meant):
    answer = installed.run("sgdlab", word, check=False)
    assert answer.returncode == 2
    (line,) = answer.stderr.splitlines()
    assert repr(word) in line
    assert meant in line


@pytest.mark.full
def test_advise_reads_a_trace(installed):
    rows = "".join(f"{worker},{step},{1 + (3 * worker + step) % 5}.5\n" for step in range(24) for worker in range(3))
    (installed.directory / "small.csv").write_text(f"worker,step,duration\n{rows}")
    installed.run("sgdlab", "advise", "--trace=small.csv", "--steps=20")
    assert "</html>" in (installed.directory / "runs/advise/small/advice.html").read_text()


@pytest.mark.full
def test_compare_runs_in_spawned_processes_with_the_installed_configuration(installed):
    installed.run(
        "sgdlab", "compare", *TINY, "--methods=asgd,synchronous", "--num_workers=2", "--seeds=1", "--processes=2",
        "--workdir=compared",
    )  # fmt: skip
    assert len(list((installed.directory / "compared/metrics").glob("*.jsonl"))) == 3  # the baseline among them
    assert (installed.directory / "compared/report.html").is_file()


def metadata_of(installed):
    """The lines of a wheel's metadata, and its requirements."""
    with zipfile.ZipFile(installed.wheel) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
        lines = wheel.read(name).decode().splitlines()
    return lines, [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]


@pytest.mark.full
@pytest.mark.long("every file of the package is read")
def test_what_the_package_imports_it_requires_and_the_other_way_round(installed):
    """Less optional requirements, each in one file, which says what to install."""
    optional = {
        ("pandas", "runs/sweep.py"),
        ("sklearn", "data/photographs.py"),
        ("grain", "data/stream.py"),
        ("grpc", "live/settings.py"),
        ("opentelemetry", "stragglers/follow/otlp.py"),
        ("prometheus_client", "stragglers/follow/metrics.py"),
        ("ray", "live/ray_cluster.py"),
        ("tensorboardX", "results/writers.py"),
        ("wandb", "results/writers.py"),
    }
    called = {"PIL": "pillow", "absl": "absl-py", "orbax": "orbax-checkpoint"}
    imported = set()
    for path in (ROOT / "sgdlab").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = []
        for node in ast.walk(tree):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            place = str(path.relative_to(ROOT / "sgdlab"))
            imported |= {(name.partition(".")[0], place) for name in names if name}
    ours = {"sgdlab", "configs", "experiments", *sys.stdlib_module_names}
    imported = {(name, place) for name, place in imported if name not in ours}
    assert imported >= optional
    found = {called.get(name, name).replace("_", "-") for name, place in imported - optional}
    required = {
        re.split("[<>=]", one)[0].replace("_", "-") for one in metadata_of(installed)[1] if "extra ==" not in one
    }
    assert found - required == set()
    assert required - found == {"array-record", "importlib-resources"}  # what tensorflow-datasets imports


def test_the_readme_of_the_package_has_no_link_that_leads_nowhere(installed):
    """Nor a picture: without an address of the repository, links into it become their words."""
    text = "\n".join(metadata_of(installed)[0])
    assert "simulator and laboratory of distributed SGD with stragglers" in text
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert links
    assert all(link.startswith("https://") for link in links)


def test_the_requirements_of_extras_are_bounded(installed):
    lines, required = metadata_of(installed)
    assert required
    assert all("<" in line.partition(";")[0] and ">=" in line.partition(";")[0] for line in required)
    extras = {line.removeprefix("Provides-Extra: ") for line in lines if line.startswith("Provides-Extra: ")}
    devices, tools = {"cuda13", "gpu", "tpu"}, {"docs", "grafana", "lint", "test"}
    others = {"experiments", "grpc", "metrics", "otlp", "pandas", "photographs", "ray", "stream"}
    others |= {"tensorboard", "wandb"}
    assert extras == devices | tools | others
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert built == ["setuptools>=77"]  # [test] has the same, as the wheel is built without isolation here
    assert any(line.startswith("setuptools") and "77" in line and "test" in line for line in required)
