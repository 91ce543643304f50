"""The documentation tells of every format that is read."""

import pathlib
import re

from sgdlab import traces  # noqa: F401 (its modules register the formats)
from sgdlab.registry import TRACES

TEXT = (pathlib.Path(__file__).parents[2] / "docs/traces.md").read_text(encoding="utf-8")


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
