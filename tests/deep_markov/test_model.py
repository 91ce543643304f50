"""NumPyro's model and guide are the formulas, written a second time in NumPy: the ELBO, the networks, the sites."""

import functools

import jax
import jax.numpy as jnp
import naive_model as naive
import numpy as np
import pytest
from naive_model import LAG, WIDTHS, WORKERS
from numpyro import handlers
from numpyro.infer import Trace_ELBO

from sgdlab.deep_markov import Architecture
from sgdlab.deep_markov.model import StateSequence, WindowModel

BATCH = 3
BOTH = pytest.mark.parametrize("literal", [False, True], ids=["default", "literal"])


@functools.cache
def case(literal):
    """A model with random parameters in float64."""
    model = WindowModel(WORKERS, naive.small(literal=literal), seed=0)
    return model, naive.parameters_of(model)


@functools.cache
def elbo_and_traces(literal):
    """Parameters, key and arguments -> NumPyro's ELBO, and what it found at the sites of guide and model."""
    model = case(literal)[0]

    @jax.jit
    def evaluate(parameters, key, *arguments):
        elbo = -Trace_ELBO().loss(key, {"parameters": parameters}, model.model, model.guide, *arguments)
        for_guide = handlers.seed(model.guide, jax.random.split(key)[1])  # as Trace_ELBO does
        guide = handlers.trace(handlers.substitute(for_guide, {"parameters": parameters})).get_trace(*arguments)
        z = guide["z"]["value"]
        given = handlers.substitute(model.model, {"parameters": parameters, "z": z})
        sites = handlers.trace(given).get_trace(*arguments)
        of_x = sites["x"]["fn"].log_prob(sites["x"]["value"])
        return elbo, z, {"x": of_x, "p": sites["z"]["fn"].log_prob(z), "q": guide["z"]["fn"].log_prob(z)}

    return evaluate


@BOTH
class TestDensities:
    @pytest.mark.covering
    @pytest.mark.parametrize("state_weight", [1.0, 0.0, 0.3])
    @pytest.mark.parametrize("foresight", [(1.0, 1.0, 1.0), (0.0, 1.0, 0.0)])
    def test_the_elbo_is_the_hand_written_one(self, literal, state_weight, foresight):
        parameters, batch = case(literal)[1], naive.windows(BATCH)
        key = jax.random.key(7)
        elbo, z, _ = elbo_and_traces(literal)(parameters, key, batch, state_weight, np.array(foresight))
        expected = naive.elbo(
            parameters, batch, np.asarray(z), literal=literal, state_weight=state_weight, foresight=foresight
        )
        assert elbo.dtype == np.float64
        np.testing.assert_allclose(elbo, expected, rtol=1e-12)

    def test_every_window_has_the_density_that_it_has_alone(self, literal):
        parameters, batch = case(literal)[1], naive.windows(BATCH)
        _, z, found = elbo_and_traces(literal)(parameters, jax.random.key(1), batch, 1.0, np.ones(BATCH))
        alone = [naive.log_densities(parameters, batch[b], np.asarray(z[b]), literal=literal) for b in range(BATCH)]
        for name, expected in zip("xpq", zip(*alone, strict=True), strict=True):
            assert found[name].shape == (BATCH,)
            np.testing.assert_allclose(found[name], expected, rtol=1e-12, err_msg=name)

    def test_draws_depend_on_their_own_window_alone(self, literal):
        parameters, batch = case(literal)[1], naive.windows(BATCH)
        other = batch.copy()
        other[1] *= 1.5
        drawn = [
            elbo_and_traces(literal)(parameters, jax.random.key(1), x, 1.0, np.ones(BATCH))[1] for x in (batch, other)
        ]
        np.testing.assert_array_equal((drawn[0] != drawn[1]).any(axis=(1, 2)), [False, True, False])


@pytest.mark.parametrize("function", ["model", "guide"])
def test_one_plate_of_windows_and_one_site_of_parameters(function):
    model, parameters = case(False)
    sites = {}

    def trace(batch):
        given = handlers.substitute(getattr(model, function), {"parameters": parameters})
        sites.update(handlers.trace(handlers.seed(given, 0)).get_trace(batch))

    jax.eval_shape(trace, naive.windows(BATCH))
    kinds = {kind: {name for name, site in sites.items() if site["type"] == kind} for kind in ("param", "plate")}
    assert kinds == {"param": {"parameters"}, "plate": {"windows"}}
    assert {name: site["is_observed"] for name, site in sites.items() if name in ("z", "x")} == (
        {"z": False} if function == "guide" else {"z": False, "x": True}
    )
    for name in {"z", "x"} & sites.keys():
        plates = [(frame.name, frame.dim, frame.size) for frame in sites[name]["cond_indep_stack"]]
        assert plates == [("windows", -1, BATCH)]


@functools.cache
def moments_of(literal):
    """A window and the foresight -> q's mean and deviation at every step, where the state before is the same."""
    model, parameters = case(literal)

    @jax.jit
    def moments(window, foresight):
        guide = model.networks(parameters).guide
        return guide(jnp.full((len(window), WIDTHS["state"]), 0.3), guide.summaries(window, foresight))

    return moments


class TestGuide:
    """At step t, given the same state before it."""

    def moments(self, literal, window, foresight=1.0):
        """Of every step, float64[2, L, Z]."""
        return np.stack(moments_of(literal)(window, foresight))

    def changes(self, literal, step, foresight=1.0):
        """bool[L], at which steps the posterior knows of another x at `step`."""
        window = naive.windows(1)[0]
        other = window.copy()
        other[step] *= 1.5
        before, after = (self.moments(literal, rows, foresight) for rows in (window, other))
        return (before != after).any(axis=(0, 2))

    @pytest.mark.parametrize("step", range(LAG))
    def test_sees_all_steps_or_as_printed_all_but_its_own_or_without_foresight_none_that_comes_after(self, step):
        np.testing.assert_array_equal(self.changes(False, step), np.ones(LAG, bool))
        np.testing.assert_array_equal(self.changes(True, step), np.arange(LAG) != step)
        np.testing.assert_array_equal(self.changes(False, step, foresight=0.0), np.arange(LAG) >= step)

    @pytest.mark.parametrize("step", [0, 2])
    def test_without_foresight_each_step_is_as_the_last_of_a_window(self, step):
        window = naive.windows(1)[0]
        blind = self.moments(False, window, foresight=0.0)[:, step]
        last = self.moments(False, window[: step + 1])[:, -1]
        np.testing.assert_allclose(blind, last, rtol=1e-12)


class TestStateSequence:
    DECAY, STD, BEFORE = 0.8, 0.5, np.array([2.0, -1.0])

    def test_draws_have_the_moments_of_an_autoregression(self):
        """z_t = decay z_{t-1} + known_t + std noise."""
        steps, draws = 5, 20_000
        known = np.random.default_rng(1).normal(size=(steps, 2))
        conditional = lambda z, known: (self.DECAY * z + known, jnp.full_like(known, self.STD))
        sequence = StateSequence(conditional, jnp.asarray(self.BEFORE), jnp.asarray(known))
        z = np.asarray(sequence.sample(jax.random.key(0), (draws,)))
        mean, variance, before = np.empty((steps, 2)), np.empty(steps), self.BEFORE
        for t in range(steps):
            mean[t] = before = self.DECAY * before + known[t]
            variance[t] = self.STD**2 * sum(self.DECAY ** (2 * lag) for lag in range(t + 1))
        assert z.shape == (draws, steps, 2)
        error = np.sqrt(variance / draws)[:, None]
        assert (abs(z.mean(axis=0) - mean) < 5 * error).all()
        assert (abs(z.var(axis=0) / variance[:, None] - 1) < 5 * np.sqrt(2 / draws)).all()
        # Neighbours in time are correlated as they should be; the two numbers of a state are not.
        deviation = z - mean
        covariance = (deviation[:, 1:] * deviation[:, :-1]).mean(axis=0)
        np.testing.assert_allclose(covariance, self.DECAY * np.stack([variance[:-1]] * 2, axis=1), atol=0.02)
        np.testing.assert_allclose((deviation[..., 0] * deviation[..., 1]).mean(axis=0), 0, atol=0.02)


class TestArchitecture:
    @pytest.mark.parametrize("name", ["lag", "state", "gate", "emission", "scale", "recurrent"])
    @pytest.mark.parametrize("value", [0, -1, 1.5, "4", None, True])
    def test_widths_that_are_none_are_refused_by_name(self, name, value):
        with pytest.raises(ValueError, match=f"^{name}={value!r} must be a whole number of at least 1"):
            Architecture(**{name: value})

    @pytest.mark.parametrize("name", ["lag", "state", "gate", "emission", "scale", "recurrent"])
    def test_a_width_of_one_is_a_model(self, name):
        widths = Architecture(**(WIDTHS | {name: 1}))
        model = jax.eval_shape(lambda: WindowModel(WORKERS, widths, seed=0).initial)
        assert jax.tree.leaves(model)


def test_initial_parameters_depend_on_the_seed():
    first, same, other = (WindowModel(WORKERS, naive.small(), seed=seed).initial for seed in (0, 0, 1))
    kernels = [tree["transition"]["hidden"]["kernel"] for tree in (first, same, other)]
    np.testing.assert_array_equal(kernels[0], kernels[1])
    assert (kernels[0] != kernels[2]).all()
