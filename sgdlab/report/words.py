"""Numbers, lists and names as sentences and tables write them."""

from collections.abc import Sequence

MOST_NAMED = 6
"""Names in a list; the rest of a longer list is counted."""


def listed(words: Sequence[str], most: int | None = None) -> str:
    """A list as a sentence writes it; of a long list, the first entries and the number of the others.

    At `most` so many entries are shown, by default all; of none, nothing is said. "And 1 more" would be as long as
    the entry itself.

    Example:
      >>> listed(["a", "b", "c"]), listed(list("abcdefgh"), 6), listed(list("abcdefg"), 6)
      ('a, b and c', 'a, b, c, d, e, f and 2 more', 'a, b, c, d, e, f and g')
    """
    if most is not None and len(words) > most + 1:
        words = [*words[:most], f"{len(words) - most} more"]
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} and {words[-1]}"


def some(words: Sequence[str]) -> str:
    """A list as `listed` writes it, with at most `MOST_NAMED` entries."""
    return listed(words, MOST_NAMED)


def counted(number: int, noun: str) -> str:
    """A number and its noun, in the plural unless the number is 1.

    Example:
      >>> counted(1, "worker"), counted(2, "worker")
      ('1 worker', '2 workers')
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def ordinal(number: int) -> str:
    """A number as in "every 3rd".

    Example:
      >>> [ordinal(number) for number in (2, 3, 11, 21, 100)]
      ['2nd', '3rd', '11th', '21st', '100th']
    """
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 < number % 100 < 14 else endings.get(number % 10, 'th')}"


def interval(value: float, low: float, high: float) -> str:
    """A ratio and its interval, with enough digits for the two ends to differ.

    Example:
      >>> interval(1.6804, 1.6776, 1.6831), interval(1.5, 1.2, 1.9)
      ('1.680 (1.678-1.683)', '1.50 (1.20-1.90)')
    """
    digits = 2 if high - low >= 0.1 else 3
    return f"{value:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def node_named(name: str) -> str:
    """A node as a sentence names it: the noun is added to a name that does not begin with it.

    Example:
      >>> node_named("node-02"), node_named("a7")
      ('node-02', 'node a7')
    """
    return name if name.lower().startswith("node") else f"node {name}"


def sentence(text: str) -> str:
    """A sentence with the capital and the full stop that it may lack.

    Example:
      >>> sentence("worker 5 is slow"), sentence("Is it a checkpoint?")
      ('Worker 5 is slow.', 'Is it a checkpoint?')
    """
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


def rounded(value: float, low: float, high: float) -> str:
    """A ratio and its interval with two decimals, as a headline writes them; without an interval that is narrower.

    Example:
      >>> rounded(1.1724, 1.1523, 1.1931), rounded(1.6804, 1.6776, 1.6831)
      ('1.17 (1.15-1.19)', '1.68')
    """
    ends = f"{low:.2f}", f"{high:.2f}"
    return f"{value:.2f} ({'-'.join(ends)})" if ends[0] != ends[1] else f"{value:.2f}"


def figure(value: float, digits: int = 4) -> str:
    """A number with a given number of significant digits, but never rounded before the decimal point.

    Example:
      >>> figure(0.0881312), figure(32.0), figure(2175.0), figure(1449.9, 3)
      ('0.08813', '32.00', '2175', '1450')
    """
    return f"{value:.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:#.{digits}g}"


def number(value: float) -> str:
    """A number of any size, in few characters and without a power of ten where it is large.

    Example:
      >>> number(3.14159), number(31.4159), number(999.9), number(31415.9)
      ('3.14', '31.4', '1,000', '31,416')
    """
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share as "12.3 %"."""
    return f"{100 * share:.1f} %"
