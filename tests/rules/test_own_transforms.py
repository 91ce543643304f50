"""Transforms of a custom rule: a name that nobody would ever give is refused, in chains and wrappers too."""

import functools

import jax
import optax
import pytest

from sgdlab import rules
from sgdlab.rules import extra_arguments

MAKE = optax.GradientTransformationExtraArgs


def _init(params):
    return optax.EmptyState()


def _right(updates, state, params=None, *, delay, **extra_args):
    return jax.tree.map(lambda u: u / delay, updates), state


def _misspelt(updates, state, params=None, *, dellay=1, **extra_args):
    return updates, state


def _without_default(updates, state, params=None, *, staleness, **extra_args):
    return updates, state


def _of_gradients(updates, state, params=None, *, read_params=None, **extra_args):
    return updates, state


def _alone(updates, state, params=None, *, delay=1):
    return updates, state


def _plain(updates, state, params=None):
    return updates, state


def _constants(updates, state, params=None, rate=0.1, *, eps=1e-8, decay=0.9, max_delay=16):
    return updates, state


def _value(updates, state, params=None, staleness=0, *, value=None, **extra_args):
    return updates, state


WRAPPERS = {
    "alone": lambda tx: tx,
    "chain": lambda tx: optax.chain(optax.trace(0.9), optax.chain(tx, optax.scale(-1.0))),
    "masked": lambda tx: optax.masked(tx, True),
    "named_chain": lambda tx: optax.named_chain(("theirs", tx)),
    "multi_transform": lambda tx: optax.multi_transform({"all": tx}, "all"),
    "partial": lambda tx: type(tx)(tx.init, functools.partial(tx.update)),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize(
    ("make", "update", "message"),
    [
        (
            MAKE,
            _misspelt,
            r"^dellay=\.\.\. is given to no transform: .* \(did you mean delay\?\): test_own_tr.*_misspelt",
        ),
        (
            MAKE,
            _without_default,
            r"^staleness=\.\.\. is given to no transform: it must be one of worker, delay, num_grad",
        ),
        (MAKE, _of_gradients, r"^read_params=\.\.\. is given to no transform"),
        (MAKE, _alone, r"^\*\*extra_args must be there .* given worker and num_gradients too: test_own_transforms\.py"),
        (optax.GradientTransformation, _misspelt, r"^dellay=\.\.\. is never given"),
        (
            optax.GradientTransformation,
            _alone,
            r"^delay=\.\.\. is never given to an optax\.GradientTransformation; make",
        ),
    ],
)
def test_what_would_never_be_given_is_refused(make, update, message, wrap):
    with pytest.raises(ValueError, match=message):
        rules.server_rule(wrap(make(_init, update)))


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize(
    ("make", "update"),
    [
        (MAKE, _right),
        (MAKE, _value),
        (optax.GradientTransformation, _plain),
        (optax.GradientTransformation, _constants),
    ],
)
def test_what_is_given_passes(make, update, wrap):
    rules.server_rule(wrap(make(_init, update)))


def test_single_gradients_are_told_of_other_things():
    rules.server_rule(optax.sgd(0.1), receive=MAKE(_init, _of_gradients))
    with pytest.raises(
        ValueError, match=r"^num_gradients=\.\.\. is given to no transform: .* worker, delay, read_params"
    ):
        rules.server_rule(optax.sgd(0.1), receive=MAKE(_init, lambda u, s, p=None, *, num_gradients=1, **extra: (u, s)))


def test_what_somebody_binds_is_not_asked_for():
    bound = functools.partial(_misspelt, dellay=3)
    rules.server_rule(MAKE(_init, bound))


def test_optax_and_this_package_are_not_asked():
    extra_arguments.check(optax.chain(optax.polyak_sgd(), rules.scale_by_delay()), ())
