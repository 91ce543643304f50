"""The three sentences a report opens with, from the numbers of the records."""

import made_up
import numpy as np
import pytest

from sgdlab.results import answer, ranking, summary


def sentences(*runs):
    return answer.sentences(summary.groups(runs))


def single(method="nag_asgd", **entries):
    return made_up.run(method, 1, serial=True, summary={"test_accuracy": 0.96, "seconds_to_target": 900.0} | entries)


def ended(accuracy, seconds=50.0, method="gap_aware", **entries):
    summary = {"test_accuracy": accuracy, "seconds_to_target": seconds, "dropped": 0} | entries
    return made_up.run(method, 32, summary=summary)


class TestAccuracy:
    @pytest.mark.parametrize(("accuracy", "keeps"), [(0.96, True), (0.99, True), (0.9501, True), (0.9499, False)])
    def test_it_is_kept_to_within_the_tolerance(self, accuracy, keeps):
        *_, group = groups = summary.groups([single(), ended(accuracy)])
        assert answer.keeps_up(group, summary.single_workers(groups)) is keeps
        assert keeps is (100 * accuracy >= 96 - answer.TOLERANCE)

    def test_it_is_compared_with_the_methods_own_baseline(self):
        runs = [single(test_accuracy=0.9), single("adam", test_accuracy=0.99)]
        runs += [ended(0.95), ended(0.95, method="adam_gap_aware")]
        groups = summary.groups(runs)
        alone = summary.single_workers(groups)
        kept = {group.method for group in summary.compared(groups) if answer.keeps_up(group, alone)}
        assert kept == {"gap_aware"}
        text = answer.sentences(groups)["Accuracy"]
        for words in ("32 workers", "1 of 2", "Gap-Aware (95.0 %)", "90.0 %", "Adam 99.0 %"):
            assert words in text

    def test_a_method_that_diverged_does_not_keep_it(self):
        groups = summary.groups([single(), ended(0.96, diverged=True)])
        assert not answer.keeps_up(groups[-1], summary.single_workers(groups))

    def test_only_the_most_workers_count(self):
        text = sentences(single(), made_up.run("dana", 8, summary={"test_accuracy": 0.97}), ended(0.96))["Accuracy"]
        assert "DANA" not in text
        assert "Gap-Aware (96.0 %)" in text

    def test_the_best_is_named_where_none_keeps_it(self):
        text = sentences(single(), ended(0.8), ended(0.9, method="dana"))["Accuracy"]
        assert "DANA (90.0 %)" in text
        assert "Gap-Aware" not in text

    def test_single_workers_may_be_missing_or_lost(self):
        for runs in ([ended(0.8)], [single(diverged=True), ended(0.8)]):
            assert "Gap-Aware (80.0 %)" in sentences(*runs)["Accuracy"]

    def test_more_than_a_few_are_counted(self):
        methods = [method for method in made_up.METHODS if made_up.METHODS[method][2] == "nag_asgd"]
        text = sentences(single(), *(ended(0.96, method=method) for method in methods))["Accuracy"]
        assert text.count("(96.0 %)") == 1 + 4
        assert f"{len(methods) - 4} more" in text

    def test_one_method_alone_is_no_ranking(self):
        text = sentences(single(), ended(0.8, method="dana"))["Accuracy"]
        assert text.count("DANA") == text.count("80.0 %") == text.count("96.0 %") == 1
        assert sentences(ended(0.8, method="dana"))["Accuracy"].count("DANA") == 1


class TestSpeed:
    def test_the_fastest_are_named_with_their_seconds(self):
        text = sentences(single(), ended(0.96, 50.0), ended(0.96, 40.0, "dana"))["Speed"]
        assert text.index("DANA") < text.index("40 s") < text.index("Gap-Aware (50 s)") < text.index("900 s")
        assert "95 %" in text

    def test_two_that_follow_the_fastest_are_named(self):
        fast = [ended(0.96, seconds, method) for seconds, method in ((1.0, "dana"), (2.0, "asgd"), (3.0, "gap_aware"))]
        text = sentences(single(), *fast, ended(0.96, 4.0, "staleness_aware"))["Speed"]
        assert text.index("DANA") < text.index("ASGD (2 s)") < text.index("Gap-Aware (3 s)")
        assert "Staleness-Aware" not in text

    @pytest.mark.parametrize("target", [0.9, 0.985])
    def test_the_target_is_that_of_the_records(self, target):
        for seconds in (50.0, None):
            run = made_up.run("dana", 32, summary={"seconds_to_target": seconds}, target=target)
            assert f"{100 * target:g} %" in sentences(run)["Speed"]
            assert "95 %" not in sentences(run)["Speed"]

    @pytest.mark.parametrize("seconds", [50.0, None])
    def test_the_number_of_workers_is_said(self, seconds):
        for runs in ([ended(0.96, seconds)], [ended(0.96, seconds), ended(0.96, seconds, "dana")]):
            assert "32 workers" in sentences(single(), *runs)["Speed"]

    def test_the_single_worker_is_named_where_there_are_several(self):
        runs = [single(), single("adam", seconds_to_target=700.0), ended(0.96, 90.0)]
        runs.append(ended(0.96, 40.0, "adam_gap_aware", epochs_to_target=3.0))
        found = sentences(*runs)
        assert found["Speed"].index("with Adam") < found["Speed"].index("700 s")
        assert "900 s" not in found["Speed"]
        assert found["Cost"].count("with Adam") == 2
        assert "with Adam" not in " ".join(sentences(*runs[1:2], runs[3]).values())

    def test_only_those_that_always_reach_the_target_are_fast(self):
        runs = [ended(0.96, 90.0), ended(0.96, 10.0, "dana", diverged=True), ended(0.96, None, "adam")]
        groups = summary.groups([single(), *runs])
        assert [group.method for group in answer.fastest(summary.compared(groups))] == ["gap_aware"]

    def test_synchronous_sgd_stands_beside_the_fastest(self):
        fast = [ended(0.96, seconds, method) for seconds, method in ((1.0, "dana"), (2.0, "asgd"), (3.0, "gap_aware"))]
        assert "Synchronous SGD takes 70 s" in sentences(single(), *fast, ended(0.9, 70.0, "synchronous"))["Speed"]
        never = sentences(single(), *fast, ended(0.9, None, "synchronous"))["Speed"]
        assert "Synchronous SGD" in never
        assert "70 s" not in never

    def test_nobody_reaches_the_target(self):
        text = sentences(single(seconds_to_target=None), ended(0.8, None))["Speed"]
        assert "95 %" in text
        assert " s " not in text


class TestCost:
    def test_it_is_that_of_the_fastest(self):
        dear = {"epochs_to_target": 9.0, "dropped": 220, "gradients": 880}
        runs = [single(epochs_to_target=4.0), ended(0.953, 40.0, "dana", **dear), ended(0.96)]
        text = sentences(*runs)["Cost"]
        for words in ("DANA", "9.0 epochs", "4.0", "0.7 points below", f"{100 * 220 / (220 + 880):.0f} %"):
            assert words in text

    @pytest.mark.parametrize("end", [0.94, 0.955, 0.965, 0.99])
    def test_accuracies_above_and_below_the_single_workers_are_told_apart(self, end):
        text = sentences(single(), ended(end))["Cost"]
        side, other = ("above", "below") if end > 0.96 else ("below", "above")
        assert f"{abs(100 * end - 96):.1f} points {side}" in text
        assert other not in text

    def test_equal_accuracies_are_neither_above_nor_below(self):
        text = sentences(single(), ended(0.96))["Cost"]
        assert "above" not in text
        assert "below" not in text

    def test_the_runs_that_diverged_are_named_once(self):
        lost = [made_up.run("dana", n, summary={"diverged": True}) for n in (8, 32)]
        found = sentences(single(), ended(0.96), *lost)
        assert "DANA (8 and 32 workers)" in found["Cost"]
        assert "iverged" not in found["Accuracy"] + found["Speed"]
        assert " ".join(sentences(single(), ended(0.96)).values()).count("iverged") == 1

    def test_many_that_diverged_are_counted(self):
        methods = list(made_up.METHODS)
        runs = [ended(0.96, method=method, diverged=index < 7) for index, method in enumerate(methods)]
        assert f"7 of {len(methods)} methods" in sentences(single(), *runs)["Cost"]


class TestTies:
    """Times of ten seeds, with noise of a tenth: what differs by less is not told apart."""

    def runs(self, seeds=10, **factors):
        noise = np.random.default_rng(0).normal(0, 0.1, (len(factors), seeds))
        return [
            made_up.run(method, 32, seed, summary={
                "seconds_to_target": float(100 * factor * np.exp(noise[row, seed])), "seconds": 400.0, "dropped": 0,
                "test_accuracy": 1 - 0.01 * factor, "test_examples": 360,
            })
            for row, (method, factor) in enumerate(factors.items())
            for seed in range(seeds)
        ]  # fmt: skip

    def test_a_tie_is_called_a_tie(self):
        text = sentences(*self.runs(dana=1.0, gap_aware=1.0, asgd=3.0))["Speed"]
        assert "2 methods tie for the fastest to 95 % test accuracy (10 seeds cannot tell them apart)" in text
        assert "ASGD" not in text
        assert "both methods tie" in sentences(*self.runs(dana=1.0, gap_aware=1.0))["Speed"]

    def test_one_that_is_faster_is_the_fastest(self):
        text = sentences(*self.runs(dana=1.0, gap_aware=3.0))["Speed"]
        assert text.startswith("At 32 workers DANA is the fastest to 95 % test accuracy, in ")

    def test_with_two_seeds_nothing_is_told_apart(self):
        found = sentences(*self.runs(seeds=2, dana=1.0, gap_aware=3.0))
        for text in (found["Speed"], found["Accuracy"]):
            assert "with 2 seeds no difference is decided" in text
            assert "fastest" not in text

    def test_accuracies_that_one_test_example_separates_are_not_told_apart(self):
        """Each method has the same accuracy with all seeds: 99 %, 98.8 % (less than an example below), 97 %."""
        text = sentences(*self.runs(dana=1.0, gap_aware=1.2, asgd=3.0))["Accuracy"]
        assert "; DANA and Gap-Aware are statistically indistinguishable from the highest" in text
        assert "; DANA has the highest" in sentences(*self.runs(dana=1.0, gap_aware=1.5, asgd=3.0))["Accuracy"]

    def test_a_miss_is_twice_the_longest_run(self):
        runs = self.runs(dana=1.0, gap_aware=1.0)
        runs[0][-1]["seconds_to_target"] = None
        runs[11][-1]["diverged"] = True
        ranked = ranking.by_time(summary.groups(runs))
        by_method = {group.method: values for group, values in zip(ranked.groups, ranked.values, strict=True)}
        assert by_method["dana"][0] == by_method["gap_aware"][1] == np.log(800.0)
        assert np.exp(by_method["dana"][1:]).max() < 200
        assert ranking.by_metric(summary.groups(runs)).groups[0].method == "dana"

    def test_other_seeds_are_left_out(self):
        runs = [*self.runs(dana=1.0, gap_aware=1.0), ended(0.96, 1.0, "asgd")]
        ranked = ranking.by_time(summary.groups(runs))
        assert [group.method for group in ranked.left_out] == ["asgd"]
        assert ranked.seeds == tuple(range(10))

    def test_numbers_of_workers_are_not_mixed(self):
        with pytest.raises(ValueError, match=r"num_workers=\[4, 8\]"):
            ranking.by_time(summary.groups([made_up.run("dana", 4), made_up.run("dana", 8)]))
