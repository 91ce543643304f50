"""The rules work in an optax loop where nothing is installed but JAX, optax, NumPy and what these require."""

import importlib.metadata
import pathlib
import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

ROOT = pathlib.Path(__file__).parents[2]
LOOP = """
import jax, jax.numpy as jnp, optax
from sgdlab import rules

rule = rules.dana(learning_rate=0.1, momentum=0.5, num_workers=2)
transforms = [
    rules.as_transform(rules.gap_aware(learning_rate=0.1, momentum=0.5)),
    rules.as_transform(rules.staleness_aware(learning_rate=0.1)),
    rules.as_transform(rule),
    optax.chain(rules.scale_by_gap(optax.trace(0.5), max_learning_rate=0.1), optax.scale(-0.1)),
    optax.chain(rules.scale_by_delay(), optax.scale(-0.1)),
]
for transform in transforms:
    params = jnp.ones(2)
    state = transform.init(params)
    for number in range(60):
        read = rule.send(params, state) if transform is transforms[2] else params
        updates, state = transform.update(read, state, params, delay=2, worker=number % 2, read_params=read)
        params = optax.apply_updates(params, updates)
    assert float(jnp.abs(params).max()) < 0.2, params
"""


def required(names):
    """Distributions of these names, and what they require, less extras."""
    found, waiting = {}, list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name not in found:
            found[name] = importlib.metadata.distribution(name)
            needed = map(Requirement, found[name].requires or ())
            waiting += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module", name="alone")
def link_what_an_optax_loop_has(tmp_path_factory):
    """A directory of packages with links to those of this environment; the checkout's configurations are not there."""
    directory = tmp_path_factory.mktemp("packages")
    (directory / "sgdlab").symlink_to(ROOT / "sgdlab")
    for one in required(["jax", "optax", "numpy"]).values():
        for name in {file.parts[0] for file in one.files} - {"..", "__pycache__"}:
            (directory / name).symlink_to(one.locate_file(name))
    return directory


@pytest.mark.parametrize("program", ["loop", "page"])
def test_an_optax_loop_needs_nothing_else(alone, program):
    page = (ROOT / "docs" / "optax.md").read_text(encoding="utf-8")
    code = (
        LOOP if program == "loop" else "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE))
    )
    assert "rules.dana(" in code
    # Without `site`, whose packages are not there.
    script = f"import sys; sys.path.append({str(alone)!r})\n{code}"
    answer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert answer.returncode == 0, answer.stderr


def test_what_is_linked_lacks_the_other_requirements_of_sgdlab(alone):
    others = ("lazy_loader", "annotated_types", "ml_collections", "jaxtyping", "yaml", "etils", "flax", "pandas")
    assert not [name for name in others if (alone / name).exists()]
    assert (alone / "jax").exists()
