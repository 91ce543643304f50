"""Numbers in pages that are written by hand: `[[= name ]]` stands for one that is computed when the site is built."""

import jinja2

from docs.making import decision, recorded, rewards, simulated

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


_GLOBALS = {"decision": decision, "recorded": recorded, "rewards": rewards, "simulated": simulated}


def page(markdown: str) -> str:
    """Return a page with its numbers.

    Raises:
      jinja2.UndefinedError: where it names something that is not known.

    Example:
      >>> page("[[= 1 + 1 ]] methods, not {{ 3 }}")
      '2 methods, not {{ 3 }}'
    """
    return _ENVIRONMENT.from_string(markdown, globals=_GLOBALS).render()
