"""Which columns of a wide table are workers: a log has others beside them."""

import fnmatch
import re
from collections import Counter
from collections.abc import Sequence

from sgdlab.traces.column_names import NAMES, words
from sgdlab.traces.problems import BadTrace

INDEX = "Unnamed: 0"
"""What pandas calls the first column of a table that it has written with its index."""

_METRICS = (
    "loss", "lr", "epoch", "accuracy", "acc", "perplexity", "ppl", "throughput", "tokens", "samples", "loss_scale",
    "learning_rate", "grad_norm", "gradient_norm", "runtime", "memory", "mem",
)  # fmt: skip
_EXTREMES = re.compile(r"__(MIN|MAX)$")


def chosen(names: Sequence[str], patterns: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The columns of workers, and a sentence that lists which were left out.

    Args:
      names: of columns that hold neither steps nor starts.
      patterns: those that a person says, such as "rank*"; empty: numbered columns where two or more are alike but for
        their numbers, else all; without metrics, minima and maxima.

    Raises:
      BadTrace: where a pattern has no column, or nothing is left.

    Example:
      >>> chosen(["rank0", "rank1", "loss"], ())
      (('rank0', 'rank1'), "columns 'loss' were not read as workers")
    """
    if patterns:
        for pattern in patterns:
            if not any(_matches(name, pattern) for name in names):
                raise BadTrace(f"--columns=workers={pattern} fits none of the columns {', '.join(names)}")
        return tuple(name for name in names if any(_matches(name, pattern) for pattern in patterns)), ""
    workers = [name for name in names if not _is_metric(name)]
    if alike(workers):
        workers = [name for name in workers if re.search("[0-9]", name)]
    if not workers:
        raise BadTrace("must have a column for each worker")
    left = [name for name in names if name not in workers and name != INDEX]
    shown = ", ".join(map(repr, left[:5])) + ", ..." * (len(left) > 5)
    return tuple(workers), f"columns {shown} were not read as workers" if left else ""


def alike(names: Sequence[str]) -> bool:
    """Whether two or more columns have one name but for their numbers."""
    stems = Counter(re.sub("[0-9]+", "#", name) for name in names if not _is_metric(name))
    return any("#" in stem and count > 1 for stem, count in stems.items())


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name.lower(), pattern.lower())


def _is_metric(name: str) -> bool:
    known = {*_METRICS, *NAMES["epoch"][0]}
    parts = words(name)
    called = {parts[-1], "_".join(parts)} if parts else set()
    return name == INDEX or bool(_EXTREMES.search(name)) or bool(called & known)
