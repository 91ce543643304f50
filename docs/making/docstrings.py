"""Docstrings as Markdown: their sections apart, and their formulas as MathML, which browsers draw without a script."""

import dataclasses
import inspect
import re
from typing import Any

from latex2mathml.converter import convert

SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example", "Examples", "Source")

_SECTION = re.compile(rf"^({'|'.join(SECTIONS)}):[ \n]", re.MULTILINE)
_INLINE = re.compile(r":math:`(.+?)`", re.DOTALL)
_BLOCK = re.compile(r"^( *)\.\. math::(.*(?:\n(?:\1 +.+|[ ]*(?=\n\1 {2,}\S)))*)", re.MULTILINE)
_WORD = re.compile(r"([_^])\{([A-Za-z]{3,})\}")
_SIZE = re.compile(r"\\[bB]igg?[lrm]?(?![A-Za-z])")
_UNKNOWN = {r"\arg": r"\operatorname{arg}", r"\bmod": r"\;\operatorname{mod}\;"}
"""Commands that the library does not know, in terms of those that it does."""


@dataclasses.dataclass(frozen=True)
class Docstring:
    """A docstring in its parts, each as Markdown.

    Attributes:
      summary: the first sentence.
      body: what follows it, up to the first section.
      sections: name of a section -> its text, with the indentation taken away; formulas are Markdown, the rest is as it
        stands.
    """

    summary: str
    body: str
    sections: dict[str, str]


def parsed(described: Any) -> Docstring:
    """Return the docstring of a function or class.

    Example:
      >>> def halve(x):
      ...     '''Halves a number.
      ...
      ...     .. math:: y = x / 2
      ...
      ...     Args:
      ...       x: a number.
      ...     '''
      >>> parsed(halve).summary, parsed(halve).sections
      ('Halves a number.', {'Args': 'x: a number.'})
    """
    text = inspect.getdoc(described) or ""
    found = list(_SECTION.finditer(text))
    head = text[: found[0].start()] if found else text
    summary, _, body = head.strip().partition("\n\n")
    ends = [*(match.start() for match in found[1:]), len(text)][: len(found)]
    sections = {
        match.group(1): inspect.cleandoc("\n" + text[match.end() : end]).strip()
        for match, end in zip(found, ends, strict=True)
    }
    return Docstring(markdown(" ".join(summary.split())), markdown(body.strip()), sections)


def markdown(text: str) -> str:
    """Text of a docstring with its formulas as MathML.

    Example:
      >>> markdown("With :math:`x_{read}`.").count("<math")
      1
    """
    text = _BLOCK.sub(lambda match: f"\n\n{match.group(1)}{formula(match.group(2), 'block')}\n\n", text)
    return _INLINE.sub(lambda match: formula(match.group(1), "inline"), text)


def formula(latex: str, display: str) -> str:
    """Return a formula in LaTeX as MathML.

    Args:
      latex: without dollars.
      display: "block" for a line of its own, else "inline".

    Raises:
      ValueError: where it holds a command that is not known.
    """
    latex = " ".join(latex.split())
    latex = _SIZE.sub("", latex)
    for command, other in _UNKNOWN.items():
        latex = re.sub(re.escape(command) + r"(?![A-Za-z])", lambda _, other=other: other, latex)
    latex = _WORD.sub(r"\1{\\text{\2}}", latex)  # a word, and not a product of letters
    made = convert(latex, display=display)
    if unknown := re.search(r"<m[io][^>]*>(\\\w+)", made):
        raise ValueError(f"latex={latex!r} must be written without {unknown.group(1)}")
    return made


def code_of(example: str) -> str:
    """Return an example as a fenced block, with a prompt before each statement as in the docstring."""
    return f"```pycon\n{example}\n```"
