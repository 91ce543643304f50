"""Update rules of the parameter server: SGD, Adam, RMSProp and staleness corrections, also as optax transforms."""

# In the order in which tables, legends and command lines list the rules: each registers itself where it is defined.
# isort: off
from sgdlab.rules.asgd import asgd, nag_asgd
from sgdlab.rules.linear_scaling import linear_scaling, scale_by_num_gradients
from sgdlab.rules.staleness_aware import scale_by_delay, staleness_aware, staleness_aware_gradient
from sgdlab.rules.gap_aware import gap_aware
from sgdlab.rules.exponential_penalty import exponential_penalty, scale_by_exponential_delay
from sgdlab.rules.delay_adaptive import delay_adaptive, scale_by_excess_delay
from sgdlab.rules.delay_compensated import delay_compensated
from sgdlab.rules.dana import dana, dana_gap_aware, dana_staleness_aware
from sgdlab.rules.adam import adam, adam_gap_aware, adam_staleness_aware
from sgdlab.rules.rmsprop import rmsprop
# isort: on

from sgdlab.rules.accumulators import in_float32
from sgdlab.rules.gap import Gap, GapState
from sgdlab.rules.inject_hyperparams import inject_hyperparams
from sgdlab.rules.server_rule import ServerRule, as_transform, server_rule
from sgdlab.rules.tabulated import tabulated

__all__ = [
    "Gap",
    "GapState",
    "ServerRule",
    "adam",
    "adam_gap_aware",
    "adam_staleness_aware",
    "as_transform",
    "asgd",
    "dana",
    "dana_gap_aware",
    "dana_staleness_aware",
    "delay_adaptive",
    "delay_compensated",
    "exponential_penalty",
    "gap_aware",
    "in_float32",
    "inject_hyperparams",
    "linear_scaling",
    "nag_asgd",
    "rmsprop",
    "scale_by_delay",
    "scale_by_excess_delay",
    "scale_by_exponential_delay",
    "scale_by_num_gradients",
    "server_rule",
    "staleness_aware",
    "staleness_aware_gradient",
    "tabulated",
]
