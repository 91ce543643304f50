"""Charts of tuning: profiles, the expected best of a few trials and shares that reach the target, by brute force."""

import itertools
import math

import numpy as np
import pytest

from sgdlab.results import panels, plots, profiles, simultaneous, tuned

INF = math.inf


class TestExpectedBest:
    @pytest.mark.parametrize("values", [[3.0, 1.0, 2.0, 2.0, 7.5, 0.25, 4.0], [1.0], [5.0, 5.0]])
    def test_it_is_the_mean_over_all_subsets(self, values):
        counts = range(1, len(values) + 1)
        subsets = [np.mean([min(subset) for subset in itertools.combinations(values, k)]) for k in counts]
        np.testing.assert_allclose(tuned.expected_best(np.array(values), counts), subsets, rtol=1e-13)

    def test_it_is_finite_once_not_all_may_miss(self):
        found = tuned.expected_best(np.array([INF, 2.0, INF, 4.0]), [1, 2, 3, 4])
        assert found.tolist() == [INF, INF, 2.5, 2.0]
        assert tuned.expected_best(np.array([INF]), [1]).tolist() == [INF]

    @pytest.mark.parametrize(("values", "k"), [([], 1), ([math.nan], 1), ([1.0], 2), ([1.0], 0)])
    def test_the_impossible_is_refused(self, values, k):
        with pytest.raises(ValueError, match=r"values=|trials="):
            tuned.expected_best(np.array(values), [k])


TRIALS = {"dana": np.array([4.0, 1.0, INF, 2.0, 3.0]), "asgd": np.array([2.0, 2.0, 2.0, 2.0, 2.0])}
TITLES = {"dana": "DANA", "asgd": "ASGD"}


def of(times, **others):
    return tuned.Trials(times, {name: TITLES.get(name, name) for name in times}, looks(times), **others)


def looks(names):
    return {name: panels.style(place) for place, name in enumerate(names)}


class TestCharts:
    def test_the_table_of_budgets(self):
        table = of(TRIALS, miss=10.0).budget_table()
        assert list(table.columns) == ["method", "best of 1", "best of 4"]
        assert table.rows == [["DANA", "4", "1.2"], ["ASGD", "2", "2"]]  # 4 subsets of 5 have the best: (4 + 2) / 5
        assert of(TRIALS).budget_table().rows[0] == ["DANA", "-", "1.2"]

    def test_lines_of_budgets_are_the_expected_best(self):
        (axes,) = of(TRIALS).budget_figure().axes
        lines = {line.get_label(): line for line in axes.lines}
        best = tuned.expected_best(TRIALS["dana"], range(1, 6))
        np.testing.assert_array_equal(lines["DANA"].get_ydata(), [np.nan, *best[1:]])
        assert lines["DANA"].get_xdata().tolist() == [1, 2, 3, 4, 5]

    def test_shares_that_reach_have_intervals(self):
        assert of(TRIALS).sensitivity_table().rows == [
            ["ASGD", "5 of 5", "48-100"],
            ["DANA", "4 of 5", "28-99"],
        ]
        (axes,) = of(TRIALS).sensitivity_figure().axes
        assert [label.get_text() for label in axes.get_yticklabels()] == ["ASGD", "DANA"]
        low, high = simultaneous.share(4, 5)
        ends = [line.get_xdata().tolist() for line in axes.lines if len(line.get_xdata()) == 2]
        np.testing.assert_allclose(ends[1], [100 * low, 100 * high])

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("count", [1, 3, 64])
    def test_many_methods_are_drawn(self, count, tmp_path):
        generator = np.random.default_rng(0)
        trials = {
            f"m{i}": np.where(generator.random(24) < 0.3, INF, generator.lognormal(0, 1, 24)) for i in range(count)
        }
        figures = [of(trials).budget_figure(), of(trials).sensitivity_figure()]
        figures.append(profiles.figure(profiles.ratios(trials), {name: name for name in trials}, looks(trials)))
        for index, figure in enumerate(figures):
            plots.save(figure, tmp_path / str(index))
        named = figures[0].axes[0].get_legend().get_texts()
        assert len(named) == min(count, profiles.NAMED)
        assert len(figures[1].axes[0].get_yticklabels()) == count


class TestProfiles:
    def test_they_count_the_workloads_within_a_factor(self):
        generator = np.random.default_rng(0)
        times = {name: np.where(generator.random(30) < 0.2, INF, generator.lognormal(0, 1, 30)) for name in "abc"}
        found, factors = profiles.ratios(times), [1.0, 1.3, 2.0, 1e9]
        ours = profiles.shares(found, factors)
        for name in times:
            for factor, share in zip(factors, ours[name], strict=True):
                within = 0
                for workload in range(30):
                    best = min(times[other][workload] for other in times)
                    within += times[name][workload] <= factor * best and math.isfinite(times[name][workload])
                assert share == within / 30
        at_one = sum(ours[name][0] for name in times)
        nobody = sum(all(math.isinf(times[name][w]) for name in times) for w in range(30)) / 30
        assert at_one == pytest.approx(1 - nobody)

    @pytest.mark.parametrize("bad", [{"a": [0.5]}, {"a": [math.nan]}, {"a": [1.0], "b": [1.0, 2.0]}, {"a": []}, {}])
    def test_the_impossible_is_refused(self, bad):
        with pytest.raises(ValueError, match="ratios"):
            profiles.shares({name: np.array(values) for name, values in bad.items()}, [1.0])

    def test_times_are_positive(self):
        with pytest.raises(ValueError, match="times: 0 must be positive"):
            profiles.ratios({"a": np.array([0.0])})
