"""Custom predictors: answers that are none are refused, and the message names the predictor."""

import numpy as np
import pytest

from sgdlab import policies, predictors, protocols
from sgdlab.predictors import Prediction
from sgdlab.registry import PROTOCOLS

RUNTIMES = np.array([[1.0, 1.1, 9.0]] * 6)


class Own:
    """Expects what it saw last, but for what a test changes."""

    title = "own"

    def start(self, window, *, seed):
        return window[-1]

    def predict(self, state, *, rate=None):
        return Prediction.of(np.sort(state), np.zeros(len(state)), rate)

    def observe(self, state, runtimes, cut_at):
        return np.where(np.isnan(runtimes), np.maximum(cut_at, 0.9 * state), runtimes)


def _says(answer):
    return {"predict": lambda self, state, *, rate=None: answer}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"start": None, "begin": Own.start}, r" must have a method `start\(window, \*, seed\)`; it has `begin`"),
        (
            {"observe": lambda self, state, times: state},
            r"its `observe` must be `observe\(state, runtimes, cut_at\)`: too",
        ),
        (_says(None), r"`predict` must return a Prediction, and returned None: is `r"),
        (_says(3), r"`predict` must return a Prediction, and returned 3$"),
        (_says(Prediction(1, np.ones(2), np.ones(2))), r"whose mean is float64\[3\], .* returned mean of shape \(2,\)"),
        (
            _says(Prediction(2, np.array([1.0, 3.0, 2.0]), np.zeros(3))),
            r"which rise \(np\.sort\), and mean\[2\]=2 is below mean\[1\]=3",
        ),
        (
            {"predict": lambda self, state, *, rate=None: Prediction.of(state * np.nan, state, rate)},
            r"expected\[0\]=nan must",
        ),
        (
            {"observe": lambda self, state, times, cut_at: None},
            r"`observe` must return the next state, and returned None: is",
        ),
    ],
    ids=["misnamed", "arguments", "none", "number", "length", "falling", "nan", "no_state"],
)
def test_an_answer_that_is_none_is_refused(changed, message):
    body = {name: value for name, value in (vars(Own) | changed).items() if value is not None}
    own = type("own_one", (), body)()
    with pytest.raises(ValueError, match=f"^predictor own_one.*{message}"):
        protocols.cutoff(RUNTIMES, predictor=lambda runtimes: own, window=2)
    make = lambda num_workers: policies.cutoff(num_workers=num_workers, predictor=own, window=2)
    with pytest.raises(ValueError, match=r"predictor own_one"):
        policies.simulate(make, RUNTIMES, num_updates=5)


def test_a_predictor_may_keep_nothing_and_predict_no_times():
    nothing = {"start": lambda self, window, *, seed: None, "observe": lambda self, state, times, cut_at: None}
    always_two = _says(Prediction(2, np.full(3, np.nan), np.full(3, np.nan)))
    stateless = type("stateless", (Own,), nothing | always_two)()
    only_two = _says(Prediction(2, np.nan, np.nan))
    for predictor in (predictors.Static(2), stateless, type("scalars", (Own,), nothing | only_two)()):
        assert protocols.cutoff(RUNTIMES, predictor=predictor, window=2).num_updates == 6
    assert protocols.cutoff(RUNTIMES, predictor=Own(), window=2).num_updates == 6


def test_a_mistake_in_its_code_is_said_with_its_line():
    mistaken = {"predict": lambda self, state, *, rate=None: np.ones(3) + np.ones(2)}
    own = type("own", (Own,), mistaken)()
    said = r"predictor own: operands could not be broadcast .* \(test_own_predictors\.py, line \d+\)$"
    with pytest.raises(ValueError, match=f"^{said}"):
        protocols.cutoff(RUNTIMES, predictor=own, window=2)
    with pytest.raises(ValueError, match=rf"^--config\.protocol\.kind=cutoff: {said}"):
        PROTOCOLS.make("cutoff", {"window": 2}, runtimes=RUNTIMES, predictor=lambda _: own)
