"""Checks of arguments, whose ValueErrors name the argument, its value, and what would be right."""

import difflib
import math
import numbers
from collections.abc import Collection, Sequence
from typing import Any

FEW = 10
"""So many names a message lists; of more, the nearest."""

_OTHER_WORDS = {
    "batch": "batch_size",
    "data": "data.kind",
    "dataset": "data.kind",
    "lr": "optimizer.learning_rate",
    "model": "network.kind",
    "network": "network.kind",
    "num_workers": "cluster.num_workers",
    "workers": "cluster.num_workers",
}
"""Maps names that other libraries use to the entry."""


def whole(name: str, value: Any, *, least: int | None = 1, most: int | None = None, why: str = "") -> int:
    """Return a whole number from `least` to `most`; None: any.

    Raises:
      ValueError: where it is not; the message ends with `why`.

    Example:
      >>> whole("num_workers", 3)
      3
    """
    number = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not number or (least is not None and value < least) or (most is not None and value > most):
        ends = f" of at least {least}" if most is None else f" of at most {most}"
        bounds = ends if least is None or most is None else f" from {least} to {most}"
        raise ValueError(f"{name}={value!r} must be a whole number{bounds}{why and ': ' + why}")
    return int(value)


def real(
    name: str,
    value: Any,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
) -> float:
    """Returns a finite number from `least`, or above `above`, to `most`, or below `below`.

    Raises:
      ValueError: where it is not.

    Example:
      >>> real("seconds", 0.5, least=0)
      0.5
    """
    number = isinstance(value, numbers.Real) and not isinstance(value, bool) and _is_finite(value)
    if not number or not (least <= value <= most and above < value < below):
        bounds = {"at least": least, "above": above, "at most": most, "below": below}
        words = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound))
        raise ValueError(f"{name}={value!r} must be a finite number{words and ' ' + words}")
    return float(value)


def _is_finite(value: numbers.Real) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def share(name: str, value: Any, total: int, what: str) -> int:
    """The count that a whole number, or a share of `total` (a float above 0, at most 1; rounded up), stands for.

    1.0 is all of them; floats from 2.0 on are counts, since configurations hold both as floats.

    Raises:
      ValueError: where it is neither.

    Example:
      >>> share("pull_at_least", 0.9, 32, "servers"), share("push_at_least", 28, 32, "workers")
      (29, 28)
    """
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        if isinstance(value, numbers.Integral) or value > 1:
            if 1 <= value <= total and value == int(value):
                return int(value)
        elif value > 0:
            return max(math.ceil(round(float(value) * total, 9)), 1)
    raise ValueError(
        f"{name}={value!r} must be a whole number from 1 to {total}, the number of {what}, or a share above 0.0 and at "
        "most 1.0"
    )


def must_be_one_of(name: str, known: Collection[str], listed: str) -> str:
    """Returns how a message on a name that is not known goes on: with all names or, of many, with the nearest three.

    Example:
      >>> must_be_one_of("bal", ("box", "ball"), "shapes --help")
      'must be one of box, ball'
      >>> must_be_one_of("bal", ("box", "ball", *"abcdefghijk"), "shapes --help")
      "must be one of 13 names; did you mean 'ball'? `shapes --help` lists all"
    """
    if len(known) <= FEW:
        return f"must be one of {', '.join(known)}"
    near = ", ".join(map(repr, difflib.get_close_matches(name, known, n=3)))
    return f"must be one of {len(known)} names; {f'did you mean {near}? ' * bool(near)}`{listed}` lists all"


def one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    """Returns a value that is one of `known`.

    Raises:
      ValueError: where it is not.

    Example:
      >>> one_of("kind", "pull", ("pull", "push"))
      'pull'
    """
    if value not in known:
        raise ValueError(f"{name}={value!r} must be one of {', '.join(known)}")
    return value


def nearest(name: str, entries: Sequence[str]) -> list[str]:
    """Return the entries that a name may have been meant for: those that end alike, else the most similar one.

    Example:
      >>> nearest("learning_rate", ["epochs", "optimizer.learning_rate"])
      ['optimizer.learning_rate']
      >>> nearest("clutser.num_workers", ["cluster.num_workers", "cluster.kind"])
      ['cluster.num_workers']
    """
    last = name.rpartition(".")[2]
    if _OTHER_WORDS.get(last) in entries:
        return [_OTHER_WORDS[last]]
    if f"optimizer.{name}" in entries:  # rather than the same of local steps, which few runs have
        return [f"optimizer.{name}"]
    alike = [entry for entry in entries if entry.rpartition(".")[2] == last]
    whole = difflib.get_close_matches(name, entries, n=1, cutoff=0.75)
    endings = {entry.rpartition(".")[2]: entry for entry in reversed(entries)}
    close = [endings[ending] for ending in difflib.get_close_matches(last, endings, n=1, cutoff=0.85)]
    return whole or alike[:3] or close
