"""The documentation of traces: its step in two halves, its table of formats, its links; its loop is in tests/record."""

import functools
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab.registry import TRACES

ROOT = pathlib.Path(__file__).parents[2]
TEXT = (ROOT / "docs/traces.md").read_text(encoding="utf-8")


def test_a_jax_step_cut_in_two_has_its_collective_in_the_second_half():
    code = re.search(r"^```python\n(spread = .*?)^```", TEXT, re.DOTALL | re.MULTILINE).group(1)
    devices = jax.device_count()
    namespace = {
        "jax": jax,
        "partial": functools.partial,
        "mesh": jax.make_mesh((devices,), ("data",)),
        "loss": lambda weights, batch: jnp.mean((batch["x"] @ weights - batch["y"]) ** 2),
    }
    exec(code, namespace)
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(4 * devices, 3)), draw.normal(size=4 * devices)
    batch = jax.device_put({"x": x, "y": y}, jax.sharding.NamedSharding(namespace["mesh"], jax.P("data")))
    local = namespace["local_gradient"](jnp.ones(3), batch)
    each = [2 / 4 * x[i : i + 4].T @ (x[i : i + 4].sum(axis=1) - y[i : i + 4]) for i in range(0, 4 * devices, 4)]
    np.testing.assert_allclose(local, each, rtol=1e-4)
    np.testing.assert_allclose(namespace["all_reduce"](local), np.mean(each, axis=0), rtol=1e-4)
    if devices > 1:
        halves = namespace["local_gradient"].lower(jnp.ones(3), batch), namespace["all_reduce"].lower(local)
        assert ["all-reduce" in half.compile().as_text() for half in halves] == [False, True]


def test_the_table_has_every_format():
    table = TEXT.partition("| format (`--trace_format`)")[2].partition("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    assert {name for cell in first for name in re.findall(r"`(\w+)`", cell)} == set(TRACES)


def test_every_link_leads_to_a_heading():
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lower()).strip().replace(" ", "-")
        for line in re.findall(r"^#+ (.*)", TEXT, re.M)
    }
    links = re.findall(r"\]\(#([^)]*)\)", TEXT)
    assert links
    assert set(links) <= headings
