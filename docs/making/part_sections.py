"""Sections of a page on each part of a method: its arguments, and its reference."""

import importlib
import inspect
import types
from collections.abc import Mapping
from typing import Any

from docs.making import docstrings, reference_pages, tables
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.registry import Part, Registry

_OF_ALL = {"runtimes", "num_workers", "num_gradients", "gradients_per_epoch", "rngs", "transport", "outages"}
"""Arguments that need no mention."""


def arguments(registry: Registry, part: Part, meant: Mapping[str, Any] = types.MappingProxyType({})) -> list[str]:
    """Return what a part takes, from the run and by flags, with defaults and meanings.

    Args:
      registry: of the part.
      part: a protocol or a rule.
      meant: entries that the method's name sets.
    """
    meanings, flag = part.help(), f"config.{registry.family}.{part.name}"
    rows = []
    for entry, value in tables.flattened(part.entries()).items():
        shown = f"`{meant[entry]}` (by the method's name)" if entry in meant else f"`{value!r}`"
        rows.append([f"`{entry}`", shown, docstrings.markdown(meanings.get(entry, ""))])
    given = sorted(part.given - _OF_ALL)
    from_run = ", ".join(f"`{name}`" for name in given)
    kind = "protocol" if registry is PROTOCOLS else "rule"
    head = f"The {kind} `{part.name}`" + (f" takes {from_run} from the run" if from_run else "")
    if not rows:
        return [
            f"{head}{',' if from_run else ''} and has no entries of its own." if from_run else f"{head} has no entries."
        ]
    head += f"{', and' if from_run else ' has'} these entries, each a flag `--{flag}.<entry>`:"
    return [head, tables.table(["entry", "default", "meaning"], rows)]


def reference(part: Part) -> list[str]:
    """Return what a part returns and raises, and its example, with a link to the API reference."""
    known, at = described(part), identifier(part)
    lines = ["### " + (f"[`{at}`][{at}]" if at in reference_pages.everything() else f"`{at}`")]
    lines += [
        f"**{name}:** {docstrings.markdown(' '.join(known.sections[name].split()))}"
        for name in ("Returns", "Raises")
        if name in known.sections
    ]
    return [*lines, docstrings.code_of(known.sections["Example"])] if "Example" in known.sections else lines


def described(part: Part) -> docstrings.Docstring:
    """Return what a part says of itself."""
    return docstrings.parsed(_public(part))


def identifier(part: Part) -> str:
    """Return where a part's function is defined, such as "sgdlab.rules.gap_aware.gap_aware"."""
    plain = inspect.unwrap(_public(part))
    return f"{plain.__module__}.{plain.__qualname__}"


def _public(part: Part) -> Any:
    """Return the part's function; where that is private, what its package exports under the part's name."""
    if not part.make.__name__.startswith("_"):
        return part.make
    package = importlib.import_module(part.make.__module__.rpartition(".")[0])
    return getattr(package, part.name, part.make)
