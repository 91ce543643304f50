"""The rules in plain NumPy, `tests/rules/naive.py`, are at hand here too."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1] / "rules"))
