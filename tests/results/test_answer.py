"""The three sentences a report opens with, from the numbers of the records."""

import made_up
import pytest

from sgdlab.results import answer, summary


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
        assert answer.keeps_accuracy(group, summary.single_workers(groups)) is keeps
        assert keeps is (100 * accuracy >= 96 - answer.TOLERANCE)

    def test_it_is_compared_with_the_methods_own_baseline(self):
        runs = [single(test_accuracy=0.9), single("adam", test_accuracy=0.99)]
        runs += [ended(0.95), ended(0.95, method="adam_gap_aware")]
        groups = summary.groups(runs)
        alone = summary.single_workers(groups)
        kept = {group.method for group in summary.compared(groups) if answer.keeps_accuracy(group, alone)}
        assert kept == {"gap_aware"}
        text = answer.sentences(groups)["Accuracy"]
        for words in ("32 workers", "1 of 2", "Gap-Aware (95.0 %)", "90.0 %", "Adam 99.0 %"):
            assert words in text

    def test_a_method_that_diverged_does_not_keep_it(self):
        groups = summary.groups([single(), ended(0.96, diverged=True)])
        assert not answer.keeps_accuracy(groups[-1], summary.single_workers(groups))

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


class TestSpeed:
    def test_the_fastest_are_named_with_their_seconds(self):
        text = sentences(single(), ended(0.96, 50.0), ended(0.96, 40.0, "dana"))["Speed"]
        assert text.index("DANA") < text.index("40 s") < text.index("Gap-Aware (50 s)") < text.index("900 s")
        assert "95 %" in text

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

    def test_the_runs_that_diverged_are_named_once(self):
        lost = [made_up.run("dana", n, summary={"diverged": True}) for n in (8, 32)]
        found = sentences(single(), ended(0.96), *lost)
        assert "DANA (8 and 32 workers)" in found["Cost"]
        assert "iverged" not in found["Accuracy"] + found["Speed"]
        assert " ".join(sentences(single(), ended(0.96)).values()).count("iverged") == 1

    def test_many_that_diverged_are_counted(self):
        methods = list(made_up.METHODS)
        runs = [ended(0.96, method=method, diverged=place < 7) for place, method in enumerate(methods)]
        assert f"7 of {len(methods)} methods" in sentences(single(), *runs)["Cost"]


def test_single_workers_alone_are_no_comparison():
    with pytest.raises(ValueError, match="groups must"):
        sentences(single())
