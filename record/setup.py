"""Package metadata of sgdlab-record, a distribution of its own: `pip install record/`."""

import pathlib
import re
import sys

from setuptools import find_packages, setup

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # where pip's builds do not look
import taking

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "sgdlab_record/__init__.py").read_text(encoding="utf-8")).group(1)

setup(
    name="sgdlab-record",
    version=VERSION,
    description="Records how long each phase of each training step takes, for sgdlab advise",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["sgdlab_record", "sgdlab_record.*"]),
    package_data={"sgdlab_record": ["py.typed"]},
    python_requires=">=3.9",
    extras_require={"deadlines": ["numpy>=1.24,<3"]},
    cmdclass=taking.COMMANDS,
)
