"""The registry of rules, which say what the server does with a gradient."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from sgdlab.knobs import Knob
from sgdlab.registry import Facts, Registry


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuleFacts(Facts):
    """Facts that methods, tables and runs ask of a rule.

    Attributes:
      families: groups in tables and pictures; None: the group of others.
      method: whether the rule alone names a method, with asynchronous workers.
      baseline: the method that tables compare it with.
      own_schedule: whether its steps shrink by themselves, so that warm-up and decay are not put on top.
      rate: the entry of `config.optimizer` that is its learning rate; None: the one that most rules share.
      local: entries of `config.local` that its method sets.
      protocols: the only protocols whose schedules it can use; None: any.
      scales_by_num_gradients: whether its step grows with the number of gradients of an update.
      momentum_sgd: whether a gradient moves the parameters by eta / (1 - momentum) times itself in all, but for factors
        such as that for its staleness; asked of rules that take `momentum` and have no `rate`.
      counts_as: how many gradients of plain SGD an update of it counts as, `(schedule) -> float`.
      balances_workers: whether it weighs workers equally, however many gradients each sends.
      measures_gap: whether it measures the gap, which its record shows.
      moves_fragments: whether it takes messages of fragments of the parameters.
      tunes: the entry that is tuned, besides the learning rate and the momentum, with its range.
    """

    families: tuple[str, ...] | None = None
    method: bool = True
    baseline: str = "nag_asgd"
    own_schedule: bool = False
    rate: str | None = None
    local: Mapping[str, Any] | None = None
    protocols: tuple[str, ...] | None = None
    scales_by_num_gradients: bool = False
    momentum_sgd: bool = True
    counts_as: Callable[[Any], float] | None = None
    balances_workers: bool = False
    measures_gap: bool = False
    moves_fragments: bool = False
    tunes: Knob | None = None


RULES = Registry(
    "rule",
    facts=RuleFacts,
    given={
        "learning_rate": "optimizer.learning_rate",
        "max_learning_rate": "",
        "expected_gradients": "",
        "num_workers": "cluster.num_workers",
        "workers": "",
        "momentum": "optimizer.momentum",
        "nesterov": "optimizer.nesterov",
        "weight_decay": "optimizer.weight_decay",
        "fragments": "local.fragments",
        "steps": "local.steps",
    },
    modules=(
        "sgdlab.rules.asgd",
        "sgdlab.rules.linear_scaling",
        "sgdlab.rules.expected_count",
        "sgdlab.rules.vecna",
        "sgdlab.rules.staleness_aware",
        "sgdlab.rules.gap_aware",
        "sgdlab.rules.exponential_penalty",
        "sgdlab.rules.delay_adaptive",
        "sgdlab.rules.ada_delay",
        "sgdlab.rules.delay_compensated",
        "sgdlab.rules.dc_s3gd",
        "sgdlab.rules.dana",
        "sgdlab.rules.adam",
        "sgdlab.rules.rmsprop",
        "sgdlab.rules.linear_minimization",
        "sgdlab.rules.ringleader",
        "sgdlab.rules.malenia",
        "sgdlab.rules.ace",
        "sgdlab.rules.rescaled",
        "sgdlab.rules.ca2fl",
        "sgdlab.rules.fedbuff",
        "sgdlab.rules.fedasync",
        "sgdlab.rules.delayed_nesterov",
        "sgdlab.rules.streaming_nesterov",
        "sgdlab.rules.fadas",
        "sgdlab.rules.token_weighted",
    ),
)
"""Server optimizers: `(*, learning_rate, **own) -> ServerRule`."""
