"""The small networks and batches of the replay tests, `tests/replay/replay_cases.py`, are at hand here too."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1] / "replay"))
