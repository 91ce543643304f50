"""Environments of the packages of others, one for each that is tested with; they are kept."""

import os
import pathlib
import subprocess
import tempfile
import venv

import pytest

NEEDS = {
    "flower": [
        ("flwr[simulation]==1.42.0", "jaxtyping>=0.3.11,<0.4", "ml_collections>=1,<2", "numpy>=2,<3", "scipy<2"),
    ],
    "hivemind": [("hivemind==1.1.12", "numpy<3")],
    "torchft": [("torchft==0.2.0",)],
    "trainers": [
        (
            *("torch==2.13.0", "transformers>=5,<6", "accelerate>=1.14,<2", "lightning>=2.6,<3", "numpy>=2,<3"),
            "ray[train]>=2.60,<3",
        ),
        ("--no-deps", "nvidia-resiliency-ext==0.4.1"),  # whose GPU parts are not used
    ],
}
"""Name -> what pip is told, one call after the other."""


def python_of(name):
    """Return the interpreter of an environment, which is made where it is not there yet."""
    folder = pathlib.Path(os.environ.get("SGDLAB_ENVIRONMENTS", f"{tempfile.gettempdir()}/sgdlab-environments")) / name
    python, made = folder / "bin/python", folder / "made"
    if not made.exists():
        venv.create(folder, with_pip=True, clear=True)
        for packages in NEEDS[name]:
            line = [python, "-m", "pip", "install", "--quiet", *packages]
            answer = subprocess.run(line, capture_output=True, text=True, timeout=1800, check=False)
            if answer.returncode:
                last = (answer.stderr.strip().splitlines() or ["pip said nothing"])[-1]
                pytest.skip(f"{' '.join(packages)} cannot be installed here: {last}")
        made.touch()
    return python
