"""Seeds put together, and tables and facts made from records alone."""

import csv
import io
import math

import made_up
import numpy as np
import pytest

from sgdlab.report import table as report_table
from sgdlab.results import facts, summary, table
from sgdlab.results.summary import Group, Spread, spread
from sgdlab.runs.store import Store


def cells(*runs):
    made = table.table(summary.groups(runs))
    return dict(zip(made.columns, made.rows[0], strict=True))


class TestGroups:
    def test_seeds_are_put_together_in_the_methods_order(self):
        runs = made_up.comparison(["gap_aware", "synchronous"], counts=(8, 4), seeds=3)
        found = summary.groups(reversed(runs))
        assert [(group.method, group.num_workers) for group in found] == [
            ("nag_asgd", 1), ("adam", 1), ("synchronous", 4), ("gap_aware", 4), ("synchronous", 8), ("gap_aware", 8)
        ]  # fmt: skip
        assert [group.serial for group in found] == [True, True, False, False, False, False]
        for group in found:
            assert [records[0]["seed"] for records in group.runs] == [0, 1, 2]

    def test_runs_of_other_configurations_are_no_seeds_of_each_other(self):
        runs = [made_up.run(seed=seed) for seed in range(2)]
        runs[1][0]["config"]["epochs"] = 10.0
        assert [len(group.runs) for group in summary.groups(runs)] == [1, 1]

    def test_the_same_seed_twice_is_refused(self):
        with pytest.raises(ValueError, match=r"\[0, 0\]"):
            summary.groups([made_up.run(), made_up.run()])

    def test_records_that_do_not_say_what_was_run_are_refused(self):
        with pytest.raises(ValueError, match="families, rank"):
            summary.groups([[{"kind": "summary", "method": "dana", "title": "DANA", "protocol": "p", "rule": "r"}]])
        with pytest.raises(ValueError, match="at least one run"):
            Group.of([])

    def test_single_workers_alone_are_no_comparison(self):
        groups = summary.groups([made_up.run("nag_asgd", 1, serial=True)])
        with pytest.raises(ValueError, match="groups must"):
            summary.compared(groups)

    def test_a_table_is_made_from_the_files_alone(self, tmp_path):
        directory = Store.of(tmp_path)
        runs = made_up.comparison(["dana", "pull_gossip"], counts=(4, 32))
        for number, records in enumerate(runs):
            directory.write(f"run{number}", records)
        assert table.table(summary.groups(summary.read(tmp_path))).rows == table.table(summary.groups(runs)).rows


class TestSpread:
    def test_it_is_the_mean_and_sample_deviation(self):
        assert spread([1.0, 2.0, 3.0]) == Spread(2.0, 1.0)
        assert spread([4.0]) == Spread(4.0, 0.0)

    @pytest.mark.parametrize("missing", [None, math.nan, math.inf])
    def test_what_some_seed_lacks_has_none(self, missing):
        assert spread([1.0, missing]) is None
        assert spread([]) is None

    def test_curves_are_means_without_the_evaluations_that_lack_the_entry(self):
        runs = [
            made_up.run(seed=seed, curve=[(0, {"gap": None}), (1, {"gap": 2.0 + seed}), (2, {"gap": 4.0 + seed})])
            for seed in range(2)
        ]
        (group,) = summary.groups(runs)
        assert group.curve("epoch", "gap") == ([1.0, 2.0], [2.5, 4.5])


FAST = {"dana": 1.0, "gap_aware": 9.0}


class TestTable:
    def test_lost_runs_are_in_no_mean_but_in_the_median_and_their_share(self):
        ends = (0.1, 0.2, 0.628)
        lost = [made_up.run(seed=s, summary={"test_accuracy": a, "diverged": a < 0.5}) for s, a in enumerate(ends)]
        assert cells(*lost)["test %"] == "median 20.0"
        assert cells(*lost)["diverged"] == "2 of 3 (9-99 %)"
        assert cells(*lost[:2])["diverged"] == f"2 of 2 ({100 * 0.025**0.5:.0f}-100 %)"
        assert "diverged" not in cells(lost[2])

    def test_a_lost_run_without_a_number_is_the_worst(self):
        ends = (None, 0.9, 0.8)
        runs = [made_up.run(seed=s, summary={"test_accuracy": a, "diverged": a is None}) for s, a in enumerate(ends)]
        (group,) = summary.groups(runs)
        assert (group.test, group.median("test_accuracy")) == (None, 0.8)
        assert group.spread("seconds") == Spread(0.5, 0.0)  # which the schedule decides
        (lost,) = summary.groups(runs[:1])
        assert lost.median("test_accuracy") is None
        assert lost.median("goodput") is None  # of a single worker, which sends nothing, records have none
        assert cells(runs[0])["test %"] == "-"

    def test_the_fastest_are_a_set_with_ratios(self):
        """Times of 10 seeds: two methods alike but for noise, one three times slower, one with other seeds."""
        noise = np.random.default_rng(0).normal(0, 0.1, (3, 10))
        times = {"dana": np.exp(noise[0]), "gap_aware": np.exp(noise[1]), "asgd": 3 * np.exp(noise[2])}
        runs = [
            made_up.run(method, seed=seed, summary={"seconds_to_target": value, "seconds": 5.0})
            for method, values in times.items()
            for seed, value in enumerate(values.tolist())
        ]
        runs.append(made_up.run("synchronous", seed=20, summary={"seconds_to_target": 0.1}))
        groups = summary.groups(runs)
        found = {row[0]: row[list(table.table(groups).columns).index(table.SLOWER)] for row in table.table(groups).rows}
        assert [found[name].endswith(" *") for name in ("DANA", "Gap-Aware", "ASGD")] == [True, True, False]
        assert found["Synchronous SGD"] == "-"
        assert any("Synchronous SGD" in note and "seeds are others" in note for note in table.notes(groups))
        assert any("DANA and Gap-Aware (stat" in n or "Gap-Aware and DANA (stat" in n for n in table.notes(groups))
        rows = {row["method"]: row for row in csv.DictReader(io.StringIO(table.comma_separated(groups)))}
        best = min(("dana", "gap_aware"), key=lambda name: np.log(times[name]).mean())
        ratio = np.exp(np.log(times["asgd"]).mean() - np.log(times[best]).mean())
        assert float(rows["asgd"]["slower"]) == pytest.approx(ratio, rel=1e-12)
        assert 1 < float(rows["asgd"]["slower_low"]) < ratio < float(rows["asgd"]["slower_high"])
        assert [rows[name]["first"] for name in ("dana", "gap_aware", "asgd", "synchronous")] == ["1", "1", "0", ""]

    def test_two_seeds_decide_nothing(self):
        runs = [made_up.run(m, seed=s, summary={"seconds_to_target": t}) for s in range(2) for m, t in FAST.items()]
        groups = summary.groups(runs)
        assert "With 2 seeds no difference is decided." in table.notes(groups)
        at = list(table.table(groups).columns).index(table.SLOWER)
        assert [row[at] for row in table.table(groups).rows] == ["9.00", "1.00"]
        assert {row["first"] for row in csv.DictReader(io.StringIO(table.comma_separated(groups)))} == {""}

    def test_the_target_is_a_mean_only_where_all_reach_it(self):
        late, soon = ({"seconds_to_target": None, "epochs_to_target": None}, {"seconds_to_target": 7.0})
        some = cells(made_up.run(summary=late), made_up.run(seed=1, summary=soon))
        assert cells(made_up.run(summary=late))["seconds to 95 %"] == "never"
        assert (some["seconds to 95 %"], some["epochs to 95 %"]) == ("reached by 1 of 2", "-")
        assert cells(made_up.run(summary=soon))["seconds to 95 %"] == "7"

    def test_what_is_missing_is_a_dash(self):
        """As of Adam, whose step has a unit of its own; a single worker's speed is that of one."""
        none = {"summed_rate": None, "effective_rate": None}
        shown = cells(made_up.run(summary=none))
        assert (shown["summed rate"], shown["effective rate"], shown["x sync. SGD"]) == ("-", "-", "0.50")
        some = {"summed_rate": 1710.0, "effective_rate": 0.12345}
        shown = cells(made_up.run("nag_asgd", 1, serial=True, summary=some), made_up.run())
        assert (shown["summed rate"], shown["effective rate"], shown["x sync. SGD"]) == ("1,710", "0.123", "-")

    def test_runs_of_earlier_versions_lack_the_newest_entries(self):
        run = made_up.run()
        for name in ("summed_rate", "effective_rate", "effective_workers"):
            del run[-1][name]
        assert cells(run)["summed rate"] == cells(run)["effective workers"] == "-"

    def test_one_run_has_no_deviation(self):
        groups = summary.groups(made_up.comparison(["gap_aware", "pull_gossip"], counts=(4,), seeds=1))
        for written in (table.text(groups), table.table(groups).markdown()):
            assert "±" not in written
            assert "standard deviation" not in written
        groups = summary.groups([*made_up.comparison(["gap_aware"], counts=(4,)), made_up.run("dana", 4)])
        assert ["±" in row[2] for row in table.table(groups).rows] == [len(group.runs) > 1 for group in groups]

    def test_rows_are_sorted_by_means(self):
        groups = summary.groups(made_up.comparison(["gap_aware", "nag_asgd", "pull_gossip"], counts=(4, 32)))
        index = {heading: index for index, heading in enumerate(table.table(groups).columns)}
        for group, row in zip(groups, table.table(groups).rows, strict=True):
            middle = group.median("test_accuracy") if group.num_diverged else group.test.mean
            assert row[index["test %"]].value == pytest.approx(100 * middle)
            assert row[index["diverged"]].value == group.num_diverged / 2
            assert not hasattr(row[index["method"]], "value")
            gap = group.spread("gap")
            assert getattr(row[index["gap"]], "value", None) == (gap.mean if gap else group.median("gap"))

    @pytest.mark.parametrize("title", ["Mine", "An own rule with a title that is longer than that of any other"])
    def test_the_terminals_is_not_too_wide_and_has_every_row(self, title):
        runs = made_up.comparison(counts=(4, 1024))
        huge = {"seconds_to_target": 1e6, "epochs_to_target": 1234.5, "speedup": 123.4, "summed_rate": 1710.0}
        runs += [made_up.run("mine", title=title, seed=s, summary={**huge, "diverged": s > 0}) for s in range(2)]
        groups = summary.groups(runs)
        lines = table.text(groups).splitlines()
        assert max(map(len, lines)) <= report_table.WIDTH
        for group in groups:
            assert any(line.startswith(group.title.split()[0].split("-")[0]) for line in lines)

    def test_every_column_is_defined_below_every_table(self):
        groups = summary.groups(made_up.comparison(["gap_aware", "nag_asgd"]))
        assert set(table.table(groups).columns) == {"method", "workers", *table.table(groups).meanings}
        terminal, markdown = table.text(groups).splitlines(), table.table(groups).markdown().splitlines()
        for heading, meaning in table.table(groups).meanings.items():
            (below,) = [line for line in terminal if line.startswith(f"{heading}  ")] or [None]
            assert (below is None) == (heading in ("train %", "seconds", table.SLOWER, "effective rate", "gap"))
            assert below is None or meaning.startswith(below.removeprefix(heading).strip())
            assert f"* **{heading}**: {meaning}" in markdown

    @pytest.mark.parametrize("seconds", [(100.0, 101.0), (100.0, 300.0)])
    def test_single_workers_of_unequal_seconds_are_explained(self, seconds):
        runs = [made_up.run("nag_asgd", 1, s, serial=True, summary={"seconds": t}) for s, t in enumerate(seconds)]
        groups = summary.groups([*runs, made_up.run(), made_up.run(seed=1)])
        spread = groups[0].spread("seconds")
        share = f"{100 * spread.std / spread.mean:.0f} %"
        assert any(share in note for note in table.notes(groups)) == (seconds[1] > 200)

    def test_csv_holds_every_number(self):
        runs = [made_up.run(seed=0, summary={"gap": 1.0}), made_up.run(seed=1, summary={"gap": 3.0})]
        runs.append(made_up.run(num_workers=8, summary={"gap": None, "diverged": True}))
        first, second = csv.DictReader(io.StringIO(table.comma_separated(summary.groups(runs))))
        assert (float(first["gap_mean"]), float(first["gap_std"])) == (2.0, pytest.approx(math.sqrt(2)))
        assert (first["seeds"], first["diverged"], first["serial"]) == ("2", "0", "0")
        assert (second["gap_mean"], second["num_workers"], second["diverged"]) == ("", "8", "1")

    def test_the_cluster_and_the_gap_are_below(self):
        law = "recorded compute times of trace.parquet (750 steps x 4 workers, extended by bootstrap)"
        shown = table.table(summary.groups([made_up.run(about={"cluster": law})]))
        text = shown.markdown()
        assert law in text
        assert shown.columns["gap"] in text
        assert "bootstrap" in table.text(summary.groups([made_up.run(about={"cluster": law})]))


class TestFacts:
    def test_messages_of_local_steps_and_own_data_are_said_below_every_table(self):
        own = {"data": "digits, 32 a gradient; 3 of 10 labels a worker; Dirichlet labels, alpha 0.1"}
        plain, local = made_up.run("dana", 8), made_up.run("local_sgd", 8, summary={"steps": 8 * 880}, about=own)
        groups = summary.groups([plain, local])
        assert facts.titles_of_messages(groups) == ["local_sgd"]
        for text in (" ".join(table.text(groups).split()), table.table(groups).markdown()):
            assert "Workers' own data: Dirichlet labels, alpha 0.1." in text
            assert "under local_sgd: speed-up counts the steps of used messages per second." in text
            assert "880 used gradients or messages a run" in text
        usual = table.table(summary.groups([plain])).markdown()
        assert "own data" not in usual
        assert "message" not in usual

    def groups(self, abouts, counts=(4,)):
        return summary.groups(
            [made_up.run(method, count, about=about) for method, about in abouts.items() for count in counts]
        )

    def test_what_all_have_alike_is_said_once(self):
        groups = self.groups({"dana": {"data": "digits"}, "asgd": {"data": "digits"}})
        assert facts.about(groups) == {"data": "digits"}
        assert facts.shared(groups, "data") == "digits"

    def test_what_differs_is_said_of_those_that_have_it(self):
        groups = self.groups({"dana": {"rate": "0.1; cosine"}, "adam": {"rate": "0.2; cosine"}, "asgd": {}})
        assert facts.about(groups) == {"rate": "DANA: 0.1; cosine; Adam: 0.2; cosine"}
        assert facts.shared(groups, "rate") is None

    def test_clauses_that_all_share_stand_first(self):
        groups = self.groups({"dana": {"rate": "0.1; cosine"}, "adam": {"rate": "0.2; cosine"}})
        assert facts.about(groups) == {"rate": "cosine; DANA: 0.1; Adam: 0.2"}

    def test_many_with_one_text_are_not_listed(self):
        many = ("asgd", "nag_asgd", "gap_aware", "staleness_aware")
        groups = self.groups({method: {"rate": "0.1"} for method in many} | {"adam": {"rate": "0.2"}})
        assert facts.about(groups) == {"rate": "Adam: 0.2; all others: 0.1"}
        groups = self.groups({method: {"momentum": "0.9"} for method in many} | {"adam": {}})
        assert facts.about(groups) == {"momentum": "all but Adam: 0.9"}

    def test_what_is_of_every_method_its_own_is_given_by_method(self):
        groups = self.groups({method: {"protocol": f"one; {method}", "rule": method} for method in made_up.METHODS})
        shared = facts.about(groups)
        assert list(shared) == ["protocol"]
        assert shared["protocol"].startswith("one; ")
        titles = {group.method: group.title for group in groups}
        assert facts.by_method(groups) == {titles[m]: {"protocol": m, "rule": m} for m in made_up.METHODS}

    def test_parts_without_entries_are_left_out(self):
        groups = self.groups({"dana": {"rule": "as it is"}, "asgd": {"rule": "b 1"}, "adam": {"protocol": "as it is"}})
        assert facts.about(groups) == {"rule": "ASGD: b 1"}

    def test_what_depends_on_the_number_of_workers_is_said_so(self):
        runs = [made_up.run(m, n, about={"rate": f"{n / 10}"}) for m in ("dana", "asgd") for n in (4, 8)]
        assert facts.about(summary.groups(runs)) == {"rate": "at 4 workers: 0.4; at 8 workers: 0.8"}

    def test_single_workers_have_no_part_in_it(self):
        runs = [made_up.run("nag_asgd", 1, serial=True, about={"cluster": "first of a"}), made_up.run(about={})]
        assert facts.about(summary.groups(runs)) == {}

    def test_the_configuration_is_what_all_runs_have(self):
        runs = [made_up.run("dana", 4), made_up.run("dana", 8, 1), made_up.run("nag_asgd", 1, serial=True)]
        runs[0][0]["config"]["rule"] = {"momentum": 0.9}
        assert facts.config(summary.groups(runs)) == {"epochs": 20.0, "cluster": {"kind": "gamma"}}

    def test_numbers_are_counted_from_the_records(self):
        groups = summary.groups([made_up.run(), made_up.run(seed=1), made_up.run("dana", summary={"gradients": 896})])
        assert facts.seeds(groups) == "1 to 2 seeds"
        assert facts.gradients(groups) == "880 to 896 used gradients"
        assert facts.target(groups) == "95 %"
        assert len(facts.made(groups)) == 1
