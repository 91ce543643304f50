"""No module imports itself by way of others, and `import sgdlab` loads what an optax transform needs and no more.

That packages import one way is a contract of import-linter, in pyproject.toml, which `make lint` checks.
"""

import ast
import graphlib
import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).parents[1] / "sgdlab"
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def imported(path):
    """Modules of the package that a file imports when it is itself imported."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                longer = f"{node.module}.{name.name}"
                found.add(longer if longer in MODULES else node.module)
    return {name for name in found if name in MODULES}


GRAPH = {name: imported(path) - {name} for name, path in MODULES.items()}


def test_no_module_imports_itself_by_way_of_others():
    # A package imports its own modules, which may name siblings but not the package.
    graphlib.TopologicalSorter(GRAPH).prepare()


@pytest.mark.parametrize(
    ("statement", "left_out"),
    [
        ("import sgdlab", ("numpyro", "pyarrow", "orbax", "scipy", "tensorflow_datasets")),
        ("import sgdlab; sgdlab.rules, sgdlab.replay", ("numpyro", "pyarrow", "orbax", "tensorflow_datasets")),
        (
            "import sgdlab.data, sgdlab.networks, sgdlab.predictors",
            ("tensorflow_datasets", "sklearn", "PIL", "flax", "matplotlib", "scipy", "jax"),
        ),
        (
            "import sgdlab; sgdlab.protocols, sgdlab.cluster, sgdlab.theory",
            ("numpyro", "pyarrow", "orbax", "flax", "jax"),
        ),
        ("import sgdlab; sgdlab.predictors.Static", ("numpyro", "pyarrow", "orbax", "flax", "jax")),
    ],
)
def test_heavy_libraries_are_loaded_where_they_are_used(statement, left_out):
    script = f"import sys; {statement}; print([name for name in {left_out!r} if name in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True, cwd=PACKAGE.parent
    )
    assert answer.stdout == "[]\n"


def test_names_are_found_at_their_first_use():
    import sgdlab  # noqa: PLC0415

    assert sgdlab.Schedule.__name__ == "Schedule"
    assert sgdlab.DROPPED == -1
    assert "cluster" in dir(sgdlab)
    assert sgdlab.jobs.register_method is sgdlab.runs.register_method  # by its older name
    with pytest.raises(AttributeError, match="clsuter"):
        sgdlab.clsuter  # noqa: B018
