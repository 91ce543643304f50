"""Files of recorded compute times: `read(path)` recognises the format, the columns and the units.

Each format is a part of the registry `TRACES`, in a module of its own; `docs/traces.md` describes them.
"""

from sgdlab.traces.family import TRACES
from sgdlab.traces.messages import Messages
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace
from sgdlab.traces.read import read
from sgdlab.traces.recording import Recording

__all__ = [
    "TRACES",
    "BadTrace",
    "Messages",
    "Options",
    "Recording",
    "read",
]
