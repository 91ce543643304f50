"""Counts what the devices of a mesh send each other, read from a compiled replay."""

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax

from sgdlab.replay import peer_engine, server_engine

_KINDS = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
_BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "f64": 8}
_NAMES = "|".join(_KINDS)
_OPERATION = re.compile(rf"= (\(?[^=]*?\)?) ({_NAMES})(?:-start)?\(")
_HEAD = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_CALLED = re.compile(
    r"(body|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)|branch_computations=\{([^}]*)\}"
)


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective operation of a compiled replay.

    Attributes:
      kind: such as "all-to-all".
      bytes: of the result on each device.
      depth: number of loops around it: 1 for once a wave, 2 for once a gradient.
    """

    kind: str
    bytes: int
    depth: int


def of_run(replayed: Callable[[], Any]) -> list[Collective]:
    """Return the collectives of the loop that a run compiles."""
    texts = []

    def spy(original: Any) -> Any:
        def advance(*arguments: Any, **static: Any) -> Any:
            if not texts:
                texts.append(original.lower(*arguments, **static).compile().as_text())
            return original(*arguments, **static)

        return advance

    with (
        mock.patch.object(server_engine, "advance", spy(server_engine.advance)),
        mock.patch.object(peer_engine, "advance", spy(peer_engine.advance)),
    ):
        jax.block_until_ready(jax.tree.leaves(replayed().params))
    return of_text(texts[0])


def of_text(text: str) -> list[Collective]:
    """Return the collectives of a compiled program, given as text."""
    lines_of: dict[str, list[str]] = {}
    current, entry = "", ""
    for line in text.splitlines():
        if head := _HEAD.match(line.strip()):
            current = head[1]
            entry = current if line.startswith("ENTRY") else entry
            lines_of[current] = []
        elif current:
            lines_of[current].append(re.sub(r"/\*.*?\*/", "", line))  # such as /*index=5*/ in a tuple
    found: list[Collective] = []

    def visit(name: str, depth: int) -> None:
        for line in lines_of.get(name, ()):
            if operation := _OPERATION.search(line):
                found.append(Collective(operation[2], _size(operation[1]), depth))
            for kind, called, branches in _CALLED.findall(line):
                for other in [called] if called else re.findall(r"[\w.\-]+", branches):
                    visit(other, depth + (kind == "body"))

    visit(entry, 0)
    return found


def _size(shapes: str) -> int:
    return sum(
        _BYTES[dtype] * math.prod(int(size) for size in dims.split(",") if size)
        for dtype, dims in re.findall(r"(\w+)\[([\d,]*)\]", shapes)
    )
