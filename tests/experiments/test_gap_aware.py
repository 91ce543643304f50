"""Barkai et al. 2020 without training: times, speed-ups, penalties and bounds, against second implementations."""

import itertools
import math

import jax
import numpy as np
import pandas as pd
import pytest
from lib import naive
from scipy import integrate, special, stats

from experiments.gap_aware import ergodic, figure3, figure12, penalties, run_times, theorem1
from experiments.harness import interval
from experiments.harness.claims import FAILS, HOLDS, INCONCLUSIVE, OUTSIDE
from sgdlab import protocols, rules
from sgdlab.cluster import Gamma

ENVIRONMENTS = pytest.mark.parametrize(("between", "within"), [(0.0, 0.1), (0.1, 0.1), (0.6, 0.1), (0.5, 0.4)])
CLUSTERS = pytest.mark.parametrize("heterogeneous", [False, True])


def product_density(time, between, within):
    """Density of a product of two gamma variables of mean 1, by the modified Bessel function."""
    a, b = 1 / between**2, 1 / within**2
    reach = 2 * math.sqrt(a * b * time)
    power = (a + b) / 2
    logarithm = power * math.log(a * b) + (power - 1) * math.log(time) - special.gammaln(a) - special.gammaln(b)
    return 2 * math.exp(logarithm + math.log(special.kve(a - b, reach)) - reach)


class TestRunTimes:
    """The closed forms, and the speeds of simulated clusters."""

    @pytest.mark.parametrize(("between", "within"), [(0.5, 0.4), (0.3, 0.6), (0.6, 0.3)])
    def test_density_is_that_of_a_product(self, between, within):
        times = np.array([0.1, 0.5, 1.0, 1.25, 3.0])
        expected = [product_density(time, between, within) for time in times]
        np.testing.assert_allclose(run_times.density(times, between=between, within=within), expected, rtol=1e-9)

    def test_density_around_one_mean_is_gamma(self):
        times = np.linspace(0.5, 2, 7)
        expected = stats.gamma(100, scale=1 / 100).pdf(times)
        np.testing.assert_allclose(run_times.density(times, between=0.0, within=0.1), expected, rtol=1e-12)

    @ENVIRONMENTS
    def test_survival_is_the_integral_of_the_density(self, between, within):
        grid = np.linspace(1.25, 15, 4001)
        area = integrate.simpson(run_times.density(grid, between=between, within=within), x=grid)
        assert run_times.survival(np.array(1.25), between=between, within=within) == pytest.approx(area, rel=1e-5)

    @pytest.mark.parametrize(("between", "within"), [(0.6, 0.1), (0.5, 0.4)])
    def test_machines_and_tasks_enter_alike(self, between, within):
        times = np.array([0.3, 1.0, 2.5])
        one = run_times.survival(times, between=between, within=within)
        np.testing.assert_allclose(one, run_times.survival(times, between=within, within=between), rtol=1e-9)

    def test_slowest_of_exponential_times_is_a_harmonic_number(self):
        counts = np.array([1, 2, 10, 100])
        harmonic = [sum(1 / i for i in range(1, count + 1)) for count in counts]
        found = run_times.expected_maximum(counts, between=0.0, within=1.0)
        np.testing.assert_allclose(found, harmonic, rtol=1e-4)

    @ENVIRONMENTS
    def test_slowest_of_two_is_an_integral(self, between, within):
        def integrand(time):
            below = 1 - run_times.survival(np.array(time), between=between, within=within)
            return 2 * time * below * run_times.density(np.array(time), between=between, within=within)

        expected, _ = integrate.quad(integrand, 1e-6, 20, points=[0.8, 1, 1.2], limit=200)
        found = run_times.expected_maximum(np.array(2), between=between, within=within)
        assert found == pytest.approx(expected, rel=1e-4)

    def test_a_single_iteration_takes_the_mean(self):
        assert run_times.expected_maximum(np.array(1), between=0.6, within=0.1) == pytest.approx(1, rel=1e-6)

    @pytest.mark.parametrize("variation", [0.1, 0.6])
    def test_expected_rate_is_an_integral(self, variation):
        law = stats.gamma(1 / variation**2, scale=variation**2)
        assert run_times.expected_rate(variation) == pytest.approx(law.expect(lambda p: 1 / p, lb=1e-9), rel=1e-6)

    def test_expected_rate_names_what_makes_it_infinite(self):
        with pytest.raises(ValueError, match=r"variation=1\.5 must be"):
            run_times.expected_rate(1.5)

    @CLUSTERS
    @pytest.mark.parametrize("num_workers", [1, 3, 20])
    def test_speeds_are_those_of_the_protocols(self, heterogeneous, num_workers):
        law = Gamma(num_workers, mean=1.0, heterogeneous=heterogeneous)
        runtimes = law.draw(3000, seed=4)
        for rate, protocol in (
            (run_times.asynchronous_rate, protocols.asynchronous),
            (run_times.synchronous_rate, protocols.synchronous),
        ):
            schedule = protocol(runtimes, num_gradients=600 // num_workers * num_workers)
            found = rate(law, num_gradients=600 // num_workers * num_workers, seed=4)
            assert found == pytest.approx(schedule.gradients_per_second(), rel=1e-12)

    @CLUSTERS
    def test_asynchronous_count_misses_no_fast_worker(self, heterogeneous):
        law = Gamma(50, mean=1.0, heterogeneous=heterogeneous)
        arrivals = np.sort(law.draw(4000, seed=1).cumsum(axis=0), axis=None)
        assert run_times.asynchronous_rate(law, num_gradients=500, seed=1) == 500 / arrivals[499]


class TestFigures:
    """Figures 3 and 12."""

    def test_figure3_simulates_its_closed_forms(self):
        output = figure3.figure3(runs=300, machines=500)
        pairs = output.table.pivot(index="environment", columns="computed", values="ours")
        half = output.table[output.table.computed == "simulated"].set_index("environment")["±"][pairs.index]
        assert ((pairs["in closed form"] - pairs["simulated"]).abs() < 2.5 * half).all()
        (claim,) = output.claims
        assert claim.identity
        assert claim.verdict == "holds"

    def test_figure12_at_a_small_size(self, session):
        output = figure12.figure12(num_workers=[2, 8], gradients=4000, runs=8)
        assert session.used
        homogeneous = output.table[output.table.environment == "homogeneous"]
        np.testing.assert_allclose(homogeneous.ours, homogeneous["in closed form"], rtol=0.01)
        assert [claim.verdict for claim in output.claims[:2]] == [OUTSIDE, OUTSIDE]

    @pytest.mark.parametrize(
        ("ratio", "most", "expected"),
        [
            ({"homogeneous": 1.2, "heterogeneous": 6.5}, 1000, [HOLDS, HOLDS, HOLDS, HOLDS]),
            ({"homogeneous": 1.35, "heterogeneous": 5.5}, 1000, [FAILS, FAILS, HOLDS, HOLDS]),
            ({"homogeneous": 1.35, "heterogeneous": 5.5}, 100, [OUTSIDE, OUTSIDE, HOLDS, HOLDS]),
        ],
    )
    def test_figure12_judges_the_paper_by_its_runs(self, ratio, most, expected):
        rows = [
            {
                "environment": name,
                "num_workers": workers,
                "ASGD speed-up": (workers * noise).tolist(),
                "SSGD speed-up": (workers * noise / of_workers).tolist(),
                "ASGD over SSGD": (of_workers * noise).tolist(),
            }
            for name in ratio
            for workers, of_workers in ((4, 1.0), (most, ratio[name]))
            for noise in [np.array([0.999, 1.0, 1.001])]
        ]
        claims = figure12.claims(pd.DataFrame(rows), 4, most)
        assert [claim.verdict for claim in claims] == expected
        assert [claim.on_paper.holds for claim in claims[:2]] == [None, None]

    def test_figure12_says_where_its_numbers_are_reached(self):
        """The ratio is the expected maximum of N gamma variables: of a coefficient of variation of 0.1, and of less."""

        def ratio(workers, within=0.1):
            law = stats.gamma(1 / within**2, scale=within**2)
            return integrate.quad(lambda t: 1 - law.cdf(t) ** workers, 0, 3, points=[1, 1.2, 1.4])[0]

        homogeneous = figure12._workers_with("homogeneous")
        assert ratio(homogeneous) <= 1.21 < ratio(homogeneous + 1)
        assert ratio(1000, figure12._spread()) == pytest.approx(1.21, abs=1e-3)


class TestPenalties:
    """Identities of the rules."""

    GRADIENTS = np.random.default_rng(3).standard_normal((12, 5))

    def test_gap_is_that_of_the_second_implementation(self):
        server = naive.GapAware({"w": np.zeros(5)}, eta=0.2, gamma=0.5)
        versions = [server.theta["w"]]
        for grads in self.GRADIENTS:
            server.apply(*server.receive({"w": grads}, server.theta, 1), delay=1, worker=0)
            versions.append(server.theta["w"])
        for delay in (1, 3, 12):
            expected = server.gap.of(server.theta, {"w": versions[-delay]})["w"]
            np.testing.assert_allclose(penalties.gap(np.stack(versions), delay, 0.2), expected, rtol=1e-12)

    @pytest.mark.parametrize("name", penalties.RULES)
    def test_weights_are_differences_of_the_second_implementation(self, name):
        kinds = {"SA": naive.StalenessAware, "SA-Gradient": naive.StalenessAwareGradient, "GA": naive.GapAware}

        def updates(stale):
            server = kinds[name]({"w": np.zeros(5)}, eta=0.2, gamma=0.5)
            versions = [server.theta]
            for grads, delay in [(g, 1) for g in self.GRADIENTS] + [(stale, 4), (np.zeros(5), 1)]:
                server.apply(*server.receive({"w": grads}, versions[-delay], delay), delay=delay, worker=0)
                versions.append(server.theta)
            return np.diff([version["w"] for version in versions[-3:]], axis=0)

        rule = penalties.RULES[name](learning_rate=0.2, momentum=0.5, nesterov=False)
        state, versions = penalties.fresh(rule, self.GRADIENTS)
        found = penalties.weights(rule, state, versions[-1], versions[-4], jax.numpy.asarray(4))
        expected = updates(np.zeros(5)) - updates(np.ones(5))  # the updates are linear in the gradient
        np.testing.assert_allclose(found, expected, rtol=1e-9)

    @pytest.mark.parametrize("updates", [1, 2, 7])
    def test_returning_gradients_lead_back(self, updates):
        rule = rules.staleness_aware(learning_rate=0.1, momentum=0.9, nesterov=False)
        _, versions = penalties.fresh(rule, penalties.returning(self.GRADIENTS, updates, 0.9))
        np.testing.assert_allclose(versions[-1], versions[-1 - updates], atol=1e-13)
        assert np.abs(versions[-1] - versions[-2 - updates]).min() > 1e-3

    def test_all_identities_hold(self):
        output = penalties.penalties(delays=[2, 5], parameters=20)
        # Only that penalties which vary do not affect Adam's update does not hold, and is no identity.
        assert [claim.verdict for claim in output.claims] == [*[HOLDS] * 5, FAILS, HOLDS]
        assert [claim.identity for claim in output.claims] == [*[True] * 5, False, True]
        stale = output.table[output.table.quantity == penalties.NEXT].set_index(["rule", "delay"]).ours
        assert stale["SA", 5] == pytest.approx(1)
        assert stale["SA-Gradient", 5] == pytest.approx(1 / 5)
        assert 1 / 5 < stale["GA", 5] < stale["GA", 2] < 1

    def test_an_error_is_seen(self):
        output = penalties.penalties(delays=[2], parameters=5)
        of_adam = output.table.rule.str.startswith("Adam")
        rows, adam = output.table[~of_adam].copy(), output.table[of_adam & output.table.paper.notna()]
        rows.loc[(rows.rule == "GA") & (rows.quantity == penalties.NEXT), "largest error"] = 1e-3
        changes = {2: interval([1e-11, 2e-11, 3e-11])}
        expected = [HOLDS, FAILS, HOLDS, HOLDS, HOLDS, HOLDS, HOLDS]
        assert [claim.verdict for claim in penalties.claims(rows, adam, changes)] == expected

    def test_penalties_that_vary_change_the_updates_of_a_loop(self):
        """Adam by its formulas, one parameter after the other."""

        def updates(gradients):
            first = second = 0.0
            for number, gradient in enumerate(gradients, 1):
                first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
                yield -first / (1 - 0.9**number) / math.sqrt(second / (1 - 0.999**number))

        penalty = np.random.default_rng(0).integers(1, 4, self.GRADIENTS.shape)
        changes = []
        for column, divisors in zip(self.GRADIENTS.T, penalty.T, strict=True):
            adam, penalized = (np.array(list(updates(each))) for each in (column, column / divisors))
            changes.append(np.linalg.norm(penalized - adam) / np.linalg.norm(adam))
        with jax.enable_x64(True):
            found = penalties.varied(self.GRADIENTS, [3])
        assert found[3].mean == pytest.approx(np.mean(changes), rel=1e-9)

    def test_needs_a_stale_gradient(self):
        with pytest.raises(ValueError, match=r"delays=\[1\] must hold"):
            penalties.penalties(delays=[1])


class TestBounds:
    """Theorem 1 and Corollary 1."""

    PROBLEM = ergodic.Problem(smoothness=0.7, excess=3.0, variance=2.0, batch_size=3, max_delay=2)
    STEPS = np.random.default_rng(0).uniform(0.01, 0.1, (7, 2))

    @pytest.mark.parametrize("name", ergodic.OBJECTIVES)
    def test_gradient_is_that_of_the_value(self, name):
        objective = ergodic.OBJECTIVES[name]
        points = np.random.default_rng(0).uniform(-3, 3, (20, len(objective.curvatures)))
        gradients = jax.vmap(jax.grad(lambda theta: _value(objective, theta)))(points)
        np.testing.assert_allclose(objective.gradient(points), gradients, rtol=1e-9)

    @pytest.mark.parametrize("name", ergodic.OBJECTIVES)
    def test_smoothness_is_the_largest_curvature(self, name):
        objective = ergodic.OBJECTIVES[name]
        line = np.linspace(-4, 4, 100_001)
        every = line[:, None] * np.ones(len(objective.curvatures))
        curvature = np.gradient(objective.gradient(every), line, axis=0)
        assert np.abs(curvature).max() == pytest.approx(objective.smoothness, rel=1e-3)
        least = objective.curvatures[0] - objective.height * objective.frequency**2
        assert curvature.min() == pytest.approx(least, rel=1e-3)
        assert (least < 0) == (name == "non-convex")
        assert objective.value(every).argmin() == np.abs(line).argmin()

    def test_minima_of_the_non_convex_objective(self):
        line = np.linspace(-6, 6, 100_002)
        slope = ergodic.OBJECTIVES["non-convex"].gradient(line[:, None] * np.ones(10))[:, 0]
        minima = np.sum((slope[:-1] < 0) & (slope[1:] > 0))
        assert minima ** len(ergodic.OBJECTIVES["non-convex"].curvatures) == 59_049

    def test_staleness_is_that_of_a_queue_of_workers(self):
        runtimes = Gamma(5).draw(200, seed=2)
        queue = [(runtimes[0, worker], worker, 0, 0) for worker in range(5)]  # arrival, worker, its gradients, read
        expected = []
        for update in range(400):
            arrived, worker, made, read = min(queue)
            queue.remove((arrived, worker, made, read))
            expected.append(update - read)
            queue.append((arrived + runtimes[made + 1, worker], worker, made + 1, update + 1))
        np.testing.assert_array_equal(ergodic.staleness(5, 400, seed=2), expected)

    def test_conditions_are_their_double_sums(self):
        p, w = self.PROBLEM, self.STEPS
        scale = p.batch_size * p.smoothness
        needed, printed = np.zeros_like(w), np.zeros_like(w)
        for k in range(len(w)):
            after = [w[k + t] for t in range(1, p.max_delay + 1) if k + t < len(w)]
            needed[k] = scale * w[k] + 2 * scale**2 * p.max_delay * w[k] * sum(after)
            printed[k] = scale * w[k] + 2 * scale**2 * p.max_delay * sum(step**2 for step in after)
        found = p.conditions(w)
        np.testing.assert_allclose(found[0], needed, rtol=1e-12)
        np.testing.assert_allclose(found[1], printed, rtol=1e-12)

    def test_largest_rate_meets_the_condition_exactly(self):
        steps = np.full((20, 1), self.PROBLEM.largest_rate())
        for side in self.PROBLEM.conditions(steps):
            assert side.max() == pytest.approx(1, rel=1e-12)

    def test_largest_rate_meets_the_condition_for_any_gaps(self):
        gaps = np.random.default_rng(1).uniform(1, 5, (200, 10))
        for side in self.PROBLEM.conditions(self.PROBLEM.largest_rate() / gaps):
            assert side.max() <= 1

    def test_theorem_bound_is_its_double_sum(self):
        p, w = self.PROBLEM, self.STEPS
        for updates in range(1, len(w) + 1):
            total = 2 * p.excess / p.batch_size
            for k in range(updates):
                before = sum(w[j] ** 2 for j in range(max(k - p.max_delay, 0), k))
                total = total + p.variance * (
                    p.smoothness * w[k] ** 2 + 2 * p.batch_size * p.smoothness**2 * w[k] * before
                )
            expected = total / w[:updates].sum(axis=0)
            np.testing.assert_allclose(p.theorem_bound(w)[updates - 1], expected, rtol=1e-12)

    def test_corollary_follows_from_the_theorem(self):
        # (9) in (8), where K meets (10): appendix B shows that the corollary's bound is the larger.
        updates = math.ceil(self.PROBLEM.least_updates())
        step = self.PROBLEM.corollary_step(updates)
        steps = np.full((updates, 1), step)
        assert self.PROBLEM.theorem_bound(steps)[-1, 0] <= self.PROBLEM.corollary_bound(updates)
        assert step <= 1 / (2 * self.PROBLEM.batch_size * self.PROBLEM.smoothness * (self.PROBLEM.max_delay + 1))
        p = self.PROBLEM
        expected = 2 * p.excess / (p.batch_size * updates * step) + 2 * p.smoothness * p.variance * step
        assert p.corollary_bound(updates) == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("gap_aware", [False, True])
    def test_runs_are_those_of_a_loop(self, gap_aware):
        objective, delays = ergodic.OBJECTIVES["non-convex"], np.array([0, 1, 2, 0, 2, 2, 1, 2])
        found, steps = ergodic.train(objective, delays, self.PROBLEM, 0.05, runs=3, seed=7, gap_aware=gap_aware)
        generator = np.random.default_rng(7)
        noise = generator.standard_normal((len(delays), 3, 10)) * math.sqrt(3 * 2.0 / 10)
        for run in range(3):
            versions, norms = [np.full(10, ergodic.START)], []
            for k, delay in enumerate(delays):
                theta, read = versions[-1], versions[-1 - delay]
                total = 3 * objective.gradient(read) + noise[k, run]
                norms.append(np.linalg.norm(total))
                coefficient = 0.05 * np.mean(norms)
                step = 0.05 / (np.linalg.norm(theta - read) / coefficient + 1) if gap_aware else 0.05
                assert found[k, run] == pytest.approx(np.sum(objective.gradient(theta) ** 2), rel=1e-12)
                assert steps[k, run] == pytest.approx(step, rel=1e-12)
                versions.append(theta - step * total)

    def test_ergodic_mean_is_weighted(self):
        squared = np.random.default_rng(5).uniform(size=(7, 2))
        expected = [np.average(squared[:k, 0], weights=self.STEPS[:k, 0]) for k in range(1, 8)]
        np.testing.assert_allclose(ergodic.ergodic_mean(squared, self.STEPS)[:, 0], expected, rtol=1e-12)

    @pytest.mark.parametrize(
        ("bound", "objective"), list(itertools.product([theorem1.THEOREM, theorem1.COROLLARY], ergodic.OBJECTIVES))
    )
    def test_cases_meet_their_conditions(self, bound, objective):
        found = theorem1.compared(
            bound=bound, objective=objective, num_workers=3, batch_size=2, multiple=2, noise=1.0, runs=4, seed=0
        )
        assert found["updates"] >= 2 * 4 * 2 * (found["max_delay"] + 1) ** 2  # (10), where sigma^2 = L (f - f*)
        assert found["condition"] <= 1
        assert max(found["ergodic"]) < min(found["limit"])
        assert found["smallest"] <= np.mean(found["ergodic"])

    def test_bounds_hold_in_small_runs(self, session):
        output = theorem1.theorem1(workers=[2], batch_sizes=[1], multiples=[1, 4], runs=4)
        assert [claim.verdict for claim in output.claims] == [HOLDS, HOLDS, HOLDS, OUTSIDE]
        assert [claim.identity for claim in output.claims] == [False, False, True, False]
        assert len(session.used) == len(output.table) == 2 * (1 + 2)

    @pytest.mark.parametrize(("limit", "expected"), [(0.5, HOLDS), (0.2, INCONCLUSIVE), (0.1, FAILS)])
    @pytest.mark.parametrize(("examples", "rate"), [([10, 20, 40], FAILS), ([10, 40], OUTSIDE)])
    def test_claims_compare_the_mean_with_the_bound(self, limit, expected, examples, rate):
        about = {"objective": "quadratic", "num_workers": 2, "condition": 0.5}
        rows = [
            about | {"bound": bound, "examples": count, "ergodic": [0.1, 0.2, 0.3], "limit": [limit] * 3}
            for bound, count in itertools.product([theorem1.THEOREM, theorem1.COROLLARY], examples)
        ]
        means = [0.199, 0.2, 0.201] if expected == FAILS else [0.1, 0.2, 0.3]
        for index, row in enumerate(rows):  # a little noise, since what is equal but for rounding decides nothing
            row["ergodic"] = [mean * (1 + 1e-4 * index * side) for mean, side in zip(means, (1, -1, 0.5), strict=True)]
        claims = theorem1.claims(pd.DataFrame(rows))
        # The runs do not improve with K.
        assert [claim.verdict for claim in claims] == [expected, expected, HOLDS, rate]

    def test_claims_see_a_condition_that_is_not_met(self):
        about = {"objective": "quadratic", "num_workers": 2, "condition": 1.5}
        rows = [
            about | {"bound": bound, "examples": examples, "ergodic": values, "limit": [1.0] * 3}
            for bound in (theorem1.THEOREM, theorem1.COROLLARY)
            for examples, least in ((10, 0.2), (20, 0.14), (40, 0.1))
            for values in [[least, least + 1e-4, least + 2e-4]]
        ]
        assert [claim.verdict for claim in theorem1.claims(pd.DataFrame(rows))] == [OUTSIDE, HOLDS, FAILS, HOLDS]


def _value(objective, theta):
    waves = objective.height * (1 - jax.numpy.cos(objective.frequency * theta))
    return (np.array(objective.curvatures) * theta**2 / 2 + waves).sum()
