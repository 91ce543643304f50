"""Entries of `config.optimizer` that all methods share, and a rule of one's own does not take: it trains without."""

from ml_collections import ConfigDict

from sgdlab.jobs.methods import Choice, chosen
from sgdlab.jobs.run_times import local_in
from sgdlab.results.facts import NOT_USED

ENTRIES = ("momentum", "nesterov", "weight_decay")


def of(config: ConfigDict, choice: Choice) -> dict[str, float | bool]:
    """The entries that are set, and that the rule does not name: name -> value.

    Rules of this package have what they need, as their sources have it; nobody else's rule is known so well.

    Args:
      config: of the run.
      choice: its method.
    """
    if not choice.rule.is_foreign:
        return {}
    # With local steps the decay is the workers' matter.
    shared = [name for name in ENTRIES if name not in choice.rule.given]
    shared = [name for name in shared if not (name == "weight_decay" and local_in(config).active)]
    values = {name: config.optimizer[name] for name in shared}
    return {name: value for name, value in values.items() if value is not None and (value or name != "weight_decay")}


def clauses(config: ConfigDict, choice: Choice) -> list[str]:
    """The same in words, such as "weight decay 0.0005 is not used"."""
    return [f"{name.replace('_', ' ')} {_shown(value)} {NOT_USED}" for name, value in of(config, choice).items()]


def warnings(config: ConfigDict) -> list[str]:
    """What a person is told before a run: a line for each entry."""
    choice = chosen(config)
    return [
        f"Note: {choice.rule.name} takes no {name}: {_shown(value)} {NOT_USED}; name it as an argument to get it "
        f"({choice.rule.where})"
        for name, value in of(config, choice).items()
    ]


def _shown(value: float | bool) -> str:
    return str(value) if isinstance(value, bool) else f"{value:g}"
