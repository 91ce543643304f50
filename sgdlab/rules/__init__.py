"""Update rules of the parameter server: SGD, Adam, RMSProp and staleness corrections, also as optax transforms.

Where a hyperparameter is not finite or out of its range, every rule raises a `ValueError` that names it.
"""

from sgdlab.rules.accumulators import in_float32
from sgdlab.rules.ace import ace, aced
from sgdlab.rules.ada_delay import ada_delay, scale_by_ada_delay
from sgdlab.rules.adam import adam, adam_gap_aware, adam_staleness_aware
from sgdlab.rules.asgd import asgd, nag_asgd
from sgdlab.rules.ca2fl import ca2fl
from sgdlab.rules.compressed import compressed
from sgdlab.rules.dana import dana, dana_delay_compensated, dana_gap_aware, dana_staleness_aware
from sgdlab.rules.dc_s3gd import dc_s3gd
from sgdlab.rules.delay_adaptive import delay_adaptive, scale_by_excess_delay
from sgdlab.rules.delay_compensated import delay_compensated
from sgdlab.rules.delayed_nesterov import delayed_nesterov
from sgdlab.rules.expected_count import expected_count, scale_by_share
from sgdlab.rules.exponential_penalty import exponential_penalty, scale_by_exponential_delay
from sgdlab.rules.fadas import fadas
from sgdlab.rules.family import RULES
from sgdlab.rules.fedasync import fedasync
from sgdlab.rules.fedbuff import fedbuff, scale_by_staleness_weight
from sgdlab.rules.gap import Gap, GapState
from sgdlab.rules.gap_aware import gap_aware
from sgdlab.rules.hyperparameters import tabulated
from sgdlab.rules.inject_hyperparams import inject_hyperparams
from sgdlab.rules.linear_minimization import muon, normalised_momentum, parameter_agnostic_muon
from sgdlab.rules.linear_scaling import linear_scaling, scale_by_num_gradients
from sgdlab.rules.malenia import malenia
from sgdlab.rules.rescaled import rescaled
from sgdlab.rules.ringleader import ringleader
from sgdlab.rules.rmsprop import rmsprop
from sgdlab.rules.scale_by_gap import scale_by_gap
from sgdlab.rules.server_rule import ServerRule, as_transform, server_rule
from sgdlab.rules.staleness_aware import scale_by_delay, staleness_aware, staleness_aware_gradient
from sgdlab.rules.streaming_nesterov import streaming_nesterov
from sgdlab.rules.token_weighted import token_weighted
from sgdlab.rules.vecna import vecna

__all__ = [
    "RULES",
    "Gap",
    "GapState",
    "ServerRule",
    "ace",
    "aced",
    "ada_delay",
    "adam",
    "adam_gap_aware",
    "adam_staleness_aware",
    "as_transform",
    "asgd",
    "ca2fl",
    "compressed",
    "dana",
    "dana_delay_compensated",
    "dana_gap_aware",
    "dana_staleness_aware",
    "dc_s3gd",
    "delay_adaptive",
    "delay_compensated",
    "delayed_nesterov",
    "expected_count",
    "exponential_penalty",
    "fadas",
    "fedasync",
    "fedbuff",
    "gap_aware",
    "in_float32",
    "inject_hyperparams",
    "linear_scaling",
    "malenia",
    "muon",
    "nag_asgd",
    "normalised_momentum",
    "parameter_agnostic_muon",
    "rescaled",
    "ringleader",
    "rmsprop",
    "scale_by_ada_delay",
    "scale_by_delay",
    "scale_by_excess_delay",
    "scale_by_exponential_delay",
    "scale_by_gap",
    "scale_by_num_gradients",
    "scale_by_share",
    "scale_by_staleness_weight",
    "server_rule",
    "staleness_aware",
    "staleness_aware_gradient",
    "streaming_nesterov",
    "tabulated",
    "token_weighted",
    "vecna",
]
