"""Numbers in pages that are written by hand: `[[= name ]]` stands for one that is computed when the site is built."""

import pathlib

import jinja2

from docs.making import decision, measured, method_pages, simulated, tables
from sgdlab.cluster.family import CLUSTERS
from sgdlab.data.family import DATASETS
from sgdlab.networks.family import NETWORKS
from sgdlab.predictors.family import PREDICTORS
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.rules.family import RULES
from sgdlab.runs.methods import REPRESENTATIVE, methods
from sgdlab.traces.family import TRACES

OWN = pathlib.Path(__file__).parents[1] / "own"

_ENVIRONMENT = jinja2.Environment(
    variable_start_string="[[=",
    variable_end_string="]]",
    block_start_string="[[%",
    block_end_string="%]]",
    comment_start_string="[[#",
    comment_end_string="#]]",
    undefined=jinja2.StrictUndefined,
    autoescape=False,
)


def page(markdown: str) -> str:
    """Return a page with its numbers.

    Raises:
      jinja2.UndefinedError: where it names something that is not known.

    Example:
      >>> page("[[= 1 + 1 ]] methods, not {{ 3 }}")
      '2 methods, not {{ 3 }}'
    """
    return _ENVIRONMENT.from_string(markdown, globals=_known()).render()


def file(name: str) -> str:
    """Return a file of `docs/own` as a block of code: the one that tests run."""
    return f"```python\n{(OWN / name).read_text(encoding='utf-8')}```"


def _known() -> dict[str, object]:
    registries = {
        "clusters": CLUSTERS,
        "datasets": DATASETS,
        "networks": NETWORKS,
        "policies": [part for part in PROTOCOLS.values() if part.facts.policy is not None],
        "predictors": PREDICTORS,
        "protocols": PROTOCOLS,
        "rules": RULES,
        "traces": TRACES,
    }
    return {
        **registries,
        "methods": methods(),
        "representative": REPRESENTATIVE,
        "decision": decision,
        "file": file,
        "measured": measured,
        "method_pages": method_pages,
        "simulated": simulated,
        "tables": tables,
    }
