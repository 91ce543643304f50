"""The compiled loop changes the versions that workers hold in their place: no step copies all of them.

A copy of all versions takes N times as long as that of one, which is 2 % of a gradient; nothing else would notice.
"""

import jax
import pytest
from lib.tiny import config

from sgdlab.replay import peer_engine, server_engine
from sgdlab.runs.plan import make_plan
from sgdlab.runs.train import train


class Compiled(Exception):
    """The text of the loop, and the shapes of its buffers."""


@pytest.fixture
def loop_of(monkeypatch):
    def loop(engine, method):
        real = engine.advance

        def compiled(carry, *arguments, mode):
            lowered = real.lower(carry, *arguments, mode=mode)
            buffers = carry.slots if engine is peer_engine else (carry.kept, [server.slots for server in carry.servers])
            raise Compiled(lowered.compile().as_text(), {leaf.shape for leaf in jax.tree.leaves(buffers)})

        monkeypatch.setattr(engine, "advance", compiled)
        with pytest.raises(Compiled) as found:
            train(make_plan(config(method=method)))
        return found.value.args

    return loop


@pytest.mark.parametrize(
    ("engine", "method"),
    [
        (server_engine, "gap_aware"),
        (server_engine, "dana"),  # whose table of velocities has the shapes of the versions
        (server_engine, "layerwise"),
        (peer_engine, "ad_psgd"),
        (peer_engine, "elastic_averaging"),
    ],
)
def test_no_step_copies_all_versions(loop_of, engine, method):
    text, buffers = loop_of(engine, method)
    shapes = [f"f32[{','.join(map(str, shape))}]" for shape in buffers if len(shape) > 2]
    assert shapes
    assert all(shape in text for shape in shapes)
    copies = [line.strip() for line in text.splitlines() if " copy(" in line and any(shape in line for shape in shapes)]
    assert copies == []
