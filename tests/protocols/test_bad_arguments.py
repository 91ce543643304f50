"""Impossible arguments of every protocol are refused by name and value, and the message says what would be right."""

import functools
import math
import re

import numpy as np
import pytest

from sgdlab import protocols

RUNTIMES = np.ones((4, 3))  # T = 4, N = 3
SERVERS = 2
LAYERWISE = protocols.layerwise
TIMEOUT = functools.partial(protocols.timeout, at_least=2, seconds=1.0)
PARTIAL = functools.partial(protocols.partial, num_servers=SERVERS)

NOT_REAL = (math.nan, math.inf, -math.inf, "1", None, True)


def not_whole(least: int) -> tuple:
    return (least - 1, -3, least + 0.5, float(least), math.nan, "1", None, True)


def not_shares(total: int) -> tuple:
    return (0, -1, total + 1, float(total + 1), 0.0, -0.5, 1.01, total - 0.5, math.nan, math.inf, "1", None, True)


def wholes(protocol, name: str, least: int) -> list:
    return [(protocol, name, value, f"must be a whole number of at least {least}") for value in not_whole(least)]


def reals(protocol, name: str, bounds: str, outside: tuple) -> list:
    return [(protocol, name, value, f"must be a finite number {bounds}") for value in (*NOT_REAL, *outside)]


def shares(protocol, name: str, total: int, what: str) -> list:
    right = f"must be a whole number from 1 to {total}, the number of {what}, or a share above 0.0 and at most 1.0"
    return [(protocol, name, value, right) for value in not_shares(total)]


@pytest.mark.parametrize(
    ("protocol", "name", "value", "right"),
    [
        *wholes(protocols.softsync, "gradients_per_update", 1),
        *wholes(protocols.rennala, "gradients_per_update", 1),
        *[case for case in wholes(protocols.ringmaster, "max_delay", 1) if case[2] is not None],  # None: N
        *wholes(protocols.bounded_staleness, "bound", 0),
        *wholes(LAYERWISE, "num_blocks", 1),
        *reals(LAYERWISE, "backward_share", "above 0 and at most 1", (0, 0.0, -0.5, 1.01)),
        *[(LAYERWISE, "reads", value, "must be one of start, forward") for value in ("end", "", None)],
        *[(LAYERWISE, "pushes", value, "must be one of end, backward") for value in ("start", "Backward", 1)],
        *shares(TIMEOUT, "at_least", 3, "workers"),
        *reals(TIMEOUT, "seconds", "at least 0", (-1, -1e-9)),
        *wholes(PARTIAL, "num_servers", 1),
        *wholes(PARTIAL, "seed", 0),
        *shares(PARTIAL, "push_at_least", 3, "workers"),
        *shares(PARTIAL, "pull_at_least", SERVERS, "servers"),
        *reals(PARTIAL, "push_timeout", "at least 0", (-1, -1e-9)),
        *reals(PARTIAL, "pull_timeout", "at least 0", (-1, -1e-9)),
    ],
)
def test_argument_is_named_with_its_value(protocol, name, value, right):
    with pytest.raises(ValueError, match=f"^{re.escape(f'{name}={value!r} {right}')}"):
        protocol(RUNTIMES, **{name: value})


@pytest.mark.parametrize("name", ["pull_delays", "push_delays"])
class TestDelays:
    @pytest.mark.parametrize("shape", [(4, 3), (4, 3, 1), (3, 3, 2), (4, 2, 2), (1,), (4, 3, 2, 1)])
    def test_shape(self, name, shape):
        message = f"{name} of shape {shape} must have shape [T, N, S] = (4, 3, 2), that of runtimes and num_servers, or"
        with pytest.raises(ValueError, match=re.escape(message)):
            PARTIAL(RUNTIMES, **{name: np.zeros(shape)})

    @pytest.mark.parametrize("value", [-1.0, -1e-9, math.nan, math.inf])
    def test_bad_value_is_named_by_its_place(self, name, value):
        delays = np.zeros((4, 3, SERVERS))
        delays[2, 0, 1] = delays[3, 0, 0] = value
        with pytest.raises(ValueError, match=re.escape(f"{name}[2, 0, 1]={value} must be finite and at least 0")):
            PARTIAL(RUNTIMES, **{name: delays})

    @pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
    def test_bad_number(self, name, value):
        with pytest.raises(ValueError, match=f"^{name}={value} must be finite and at least 0"):
            PARTIAL(RUNTIMES, **{name: value})
