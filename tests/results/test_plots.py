"""Panels, colours and curves, from what runs say of themselves."""

import itertools

import made_up
import numpy as np
import pytest

from sgdlab import protocols
from sgdlab.results import answer, plots, summary
from sgdlab.results.panels import BASELINE, ONE_PANEL, PALETTE, panels, style, styles
from sgdlab.results.publish import publish
from sgdlab.runs.methods import methods


def groups(*methods, **changed):
    return summary.groups(made_up.comparison(methods or tuple(made_up.METHODS), **changed))


class TestPanels:
    def test_a_method_stands_in_every_panel_that_it_names(self):
        found = {panel.title: panel.methods for panel in panels(summary.compared(groups()))}
        for method, (_, families, _) in made_up.METHODS.items():
            assert {title for title, methods in found.items() if method in methods} == set(families)

    def test_up_to_six_methods_share_one_panel(self):
        names = list(made_up.METHODS)
        for count in (1, ONE_PANEL):
            (panel,) = panels(summary.compared(groups(*names[-count:])))
            assert panel == ("", tuple(names[-count:]))
        assert len(panels(summary.compared(groups(*names[-ONE_PANEL - 1 :])))) > 1

    def test_a_panel_that_only_repeats_others_is_left_out(self):
        names = [name for name in made_up.METHODS if name not in ("ringmaster", "delay_compensated")]
        found = {panel.title: panel.methods for panel in panels(summary.compared(groups(*names)))}
        # All of its methods stand elsewhere too, but for ASGD, which has it as its own.
        assert found["Limits on staleness"] == ("asgd", "nag_asgd")
        assert "Staleness corrections (plain SGD)" not in found

    def test_methods_without_a_family_stand_beside_those_that_several_have(self):
        runs = made_up.comparison(counts=(4,), seeds=1)
        runs += [made_up.run("mine"), made_up.run("another", rank=50)]
        found = panels(summary.compared(summary.groups(runs)))
        assert found[-1] == ("Others", ("asgd", "nag_asgd", "mine", "another"))


class TestStyles:
    def test_they_do_not_depend_on_what_else_is_compared(self):
        everything = styles(groups())
        for some in itertools.combinations(made_up.METHODS, 3):
            found = styles(groups(*some, counts=(4,), seeds=1))
            assert found == {method: everything[method] for method in found}

    def test_no_two_methods_of_the_library_look_alike(self):
        known = [style(rank, baseline=name == method.baseline) for rank, (name, method) in enumerate(methods().items())]
        assert len(set(known)) == len(known)
        assert all(a.colour != b.colour and a.marker != b.marker for a, b in itertools.pairwise(map(style, range(104))))

    def test_the_first_colours_are_the_farthest_apart(self):
        def least(colours):
            return min(np.linalg.norm(s(a) - s(b)) for a, b in itertools.combinations(colours, 2) for s in SIGHTS)

        assert least(PALETTE[:4]) > 35 > 1.4 * max(least((*PALETTE[:4], colour)) for colour in PALETTE[4:6])

    def test_baselines_have_a_reserved_colour(self):
        found = styles(groups())
        assert {name for name, style in found.items() if style.colour == BASELINE} == {"nag_asgd", "adam"}
        assert BASELINE not in PALETTE

    def test_colours_differ_for_colour_blind_readers(self):
        for one, other in itertools.combinations((*PALETTE, BASELINE), 2):
            assert min(np.linalg.norm(seen(one) - seen(other)) for seen in SIGHTS) > 20


def _cielab(linear):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    cube = np.cbrt(np.clip(xyz / [0.9505, 1.0, 1.089], 0, None))
    return np.array([116 * cube[1] - 16, 500 * (cube[0] - cube[1]), 200 * (cube[1] - cube[2])])


def _sight(matrix):
    """CIELAB of a colour as an eye sees it; Machado et al. 2009, severity 1."""

    def seen(colour):
        code = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255
        linear = np.where(code <= 0.04045, code / 12.92, ((code + 0.055) / 1.055) ** 2.4)
        return _cielab(np.clip(matrix @ linear, 0, 1))

    return seen


PROTANOPIA = np.array(
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
)
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
SIGHTS = [_sight(matrix) for matrix in (np.eye(3), PROTANOPIA, DEUTERANOPIA)]


class TestPictures:
    def lines(self, axes):
        return {line.get_label(): line for line in axes.lines}

    @pytest.mark.parametrize(
        ("ending", "equal"),
        [
            ({}, "an equal number of used gradients"),
            ({"budget": 1.5}, "equal virtual time"),
            ({"seconds": 9.0}, "equal virtual time"),
        ],
    )
    def test_the_title_says_what_is_equal(self, ending, equal):
        runs = made_up.comparison(("dana",))
        for records in runs:
            if not records[0]["serial"]:  # which does its epochs
                records[0]["config"] |= {"budget": None, "seconds": None} | ending
        figure = plots.metric_by_workers(summary.groups(runs))
        assert figure.get_suptitle().splitlines()[0] == f"Test accuracy at {equal}"

    def test_accuracy_is_drawn_where_no_seed_was_lost(self):
        found = groups("dana", "gap_aware")
        (axes,) = plots.metric_by_workers(found).axes
        lines = self.lines(axes)
        means = [100 * g.spread("test_accuracy").mean for g in found if g.method == "gap_aware"]
        np.testing.assert_allclose(lines["Gap-Aware"].get_ydata(), means)
        np.testing.assert_array_equal(np.isnan(lines["DANA"].get_ydata()), [False, False, True])
        (lost,) = [line for line in axes.lines if line.get_marker() == "x"]
        assert list(lost.get_xdata()) == lines["DANA"].get_xdata()[2:]

    @pytest.mark.parametrize(("seeds", "bands"), [(5, 0), (6, 1)])
    def test_few_seeds_are_points_and_many_are_a_band(self, seeds, bands):
        found = groups("gap_aware", counts=(4, 8), seeds=seeds)
        (axes,) = plots.metric_by_workers(found).axes
        drawn = [type(artist).__name__ for artist in axes.collections]
        assert drawn == ["FillBetweenPolyCollection" if bands else "PathCollection"]
        if not bands:
            ends = [100 * end["test_accuracy"] for group in found if not group.serial for end in group.summaries]
            np.testing.assert_allclose(sorted(axes.collections[0].get_offsets()[:, 1]), sorted(ends))
            low, high = axes.get_ylim()
            assert low < min(ends) <= max(ends) < high

    def test_all_panels_have_one_scale(self):
        figure = plots.metric_by_workers(groups())
        assert len(figure.axes) == len(panels(summary.compared(groups())))
        assert len({axes.get_ylim() for axes in figure.axes}) == 1
        assert len({tuple(axes.get_yticks()) for axes in figure.axes}) == 1

    def test_the_line_of_the_single_worker_is_the_panels_baseline(self):
        figure = plots.metric_by_workers(groups())
        dashed = {a.get_title(): [k for k in self.lines(a) if k.startswith("Single")] for a in figure.axes}
        assert dashed["Penalties"] == ["Single worker (NAG-ASGD)"]
        assert dashed["Adam"] == ["Single worker (Adam)"]

    def test_curves_are_at_the_most_workers_and_to_one_scale(self):
        found = groups()
        figure = plots.loss_by_time(found)
        (group,) = [g for g in found if g.method == "gap_aware" and g.num_workers == 32]
        axes = {axes.get_title(): axes for axes in figure.axes}
        np.testing.assert_array_equal(
            self.lines(axes["Penalties"])["Gap-Aware"].get_xydata().T, group.curve("seconds", "train_loss")
        )
        assert len({axes.get_ylim() for axes in figure.axes}) == 1
        assert figure.axes[0].get_ylim()[1] == 10

    def test_a_noisy_loss_is_drawn_as_means_of_neighbours(self):
        curve = [(epoch, {"train_loss": 1.0 + epoch % 2}) for epoch in range(240)]
        figure = plots.loss_by_time(summary.groups([made_up.run(curve=curve)]))
        (line,) = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 2]
        np.testing.assert_allclose(line.get_ydata(), 1.5)
        assert len(line.get_ydata()) == 60

    def test_methods_without_a_gap_have_no_panel_of_it(self):
        figure = plots.staleness_and_gap(groups("gap_aware", "pull_gossip"))
        (axes,) = figure.axes
        delay, gap = axes.lines
        assert np.unique(delay.get_ydata()) == [32.0]
        assert gap.get_ydata()[0] == pytest.approx(1 + (0.1 + 0.05 * 7) * 31)
        assert plots.staleness_and_gap(groups("pull_gossip")) is None

    def test_one_run_is_drawn_without_the_averages_that_it_lacks(self):
        records = made_up.run(curve=[(0, {"train_loss": None}), (1, {})])
        figure = plots.training(records)
        assert [len(axes.lines) for axes in figure.axes] == [2, 1]


def test_a_comparison_is_published_from_records_alone(tmp_path):
    found = groups("gap_aware", "backup_workers", counts=(4,), seeds=1)
    schedule = protocols.asynchronous(np.ones((3, 4)))
    page = publish(tmp_path, found, {"Asynchronous": schedule})
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    names = ("standing", "loss", "staleness", "timeline")
    pictures = {f"plots/{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert written == {"table.md", "table.csv", "report.html"} | pictures
    assert page.read_text(encoding="utf-8").count("data:image/svg+xml;base64,") == len(names)


def test_of_runs_that_end_at_the_target_only_the_time_is_shown(tmp_path):
    """Their metric in the end is the target's."""
    runs = made_up.comparison(("gap_aware", "backup_workers", "adam"), (4, 8), 3)
    for records in runs:
        records[0]["config"] = records[0]["config"] | {"until_target": True}
    found = summary.groups(runs)
    page = publish(tmp_path, found, {}).read_text(encoding="utf-8")
    pictures = {path.stem for path in (tmp_path / "plots").iterdir()}
    assert pictures == {"standing", "loss", "staleness", "target"}
    assert list(answer.sentences(found)) == ["Speed", "Cost"]
    first = page.index("<figure>")
    assert "Who is first, 8 workers" in page[first : page.index("</figure>", first)]
    assert page.count("data:image/svg+xml;base64,") == len(pictures)
