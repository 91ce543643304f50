"""Panels, colours and curves, from what runs say of themselves."""

import itertools

import made_up
import numpy as np
import pytest

from sgdlab import protocols
from sgdlab.results import plots, report, summary
from sgdlab.results.panels import BASELINE, PALETTE, REFERENCE, panels, styles
from sgdlab.results.publish import publish


def groups(*methods, **changed):
    return summary.groups(made_up.comparison(methods or tuple(made_up.METHODS), **changed))


def family(*places, title="One"):
    return summary.groups(
        [made_up.run(f"method{place}", families=[title], place=place, title=f"{place}") for place in places]
    )


class TestPanels:
    def test_a_method_stands_in_every_panel_that_it_names(self):
        found = {panel.title: panel.methods for panel in panels(summary.compared(groups()))}
        for method, (_, families, _) in made_up.METHODS.items():
            assert {title for title, methods in found.items() if method in methods} == set(families)

    def test_a_panel_that_only_repeats_others_is_left_out(self):
        found = panels(summary.compared(groups("nag_asgd", "gap_aware", "dana")))
        assert [panel.methods for panel in found] == [("nag_asgd", "gap_aware"), ("nag_asgd", "dana")]
        (alone,) = panels(summary.compared(groups("nag_asgd")))
        assert alone.methods == ("nag_asgd",)

    def test_methods_from_outside_have_a_panel_too(self):
        runs = [made_up.run("mine"), made_up.run("gap_aware")]
        assert [panel.title for panel in panels(summary.groups(runs))] == ["Penalties", "Others"]


class TestStyles:
    def test_they_do_not_depend_on_what_else_is_compared(self):
        everything = styles(groups())
        for some in itertools.combinations(made_up.METHODS, 3):
            found = styles(groups(*some, counts=(4,), seeds=1))
            assert found == {method: everything[method] for method in found}

    def test_references_have_reserved_colours(self):
        found = styles(groups())
        assert {name for name, style in found.items() if style.colour == BASELINE} == {"nag_asgd", "adam"}
        assert {name for name, style in found.items() if style.colour == REFERENCE} == {"asgd"}

    def test_no_two_of_a_family_are_alike(self):
        found = styles(family(*range(len(PALETTE))))
        assert {style.colour for style in found.values()} == set(PALETTE)
        scattered = styles(family(0, len(PALETTE), 2 * len(PALETTE), 3))
        assert len({style.colour for style in scattered.values()}) == 4
        many = styles(family(*range(3 * len(PALETTE))))
        assert len(set(many.values())) == 3 * len(PALETTE)

    def test_colours_differ_for_colour_blind_readers(self):
        for one, other in itertools.combinations((*PALETTE, BASELINE, REFERENCE), 2):
            assert min(np.linalg.norm(seen(one) - seen(other)) for seen in SIGHTS) > 20


def _cielab(linear):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    cube = np.cbrt(np.clip(xyz / [0.9505, 1.0, 1.089], 0, None))
    return np.array([116 * cube[1] - 16, 500 * (cube[0] - cube[1]), 200 * (cube[1] - cube[2])])


def _sight(matrix):
    """CIELAB of a colour as an eye sees it; Machado et al. 2009, severity 1."""

    def seen(colour):
        code = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
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

    def test_accuracy_is_drawn_where_no_seed_was_lost(self):
        found = groups("dana", "gap_aware")
        figure = plots.accuracy_by_workers(found)
        axes = {axes.get_title(): self.lines(axes) for axes in figure.axes}
        penalties, dana = axes["Penalties"], axes["DANA"]
        means = [100 * g.spread("test_accuracy").mean for g in found if g.method == "gap_aware"]
        np.testing.assert_allclose(penalties["Gap-Aware"].get_ydata(), means)
        np.testing.assert_array_equal(np.isnan(dana["DANA"].get_ydata()), [False, False, True])
        (lost,) = [line for line in dana.values() if line.get_marker() == "x"]
        assert list(lost.get_xdata()) == [32]

    def test_the_line_of_the_single_worker_is_the_panels_baseline(self):
        figure = plots.accuracy_by_workers(groups("gap_aware", "adam_gap_aware"))
        dashed = {a.get_title(): [k for k in self.lines(a) if k.startswith("Single")] for a in figure.axes}
        assert dashed == {"Penalties": ["Single worker (NAG-ASGD)"], "Adam": ["Single worker (Adam)"]}

    def test_curves_are_at_the_most_workers_and_to_one_scale(self):
        found = groups("gap_aware", "adam_gap_aware", "nag_asgd")
        figure = plots.loss_by_time(found)
        (group,) = [g for g in found if g.method == "gap_aware" and g.num_workers == 32]
        first, second = figure.axes
        np.testing.assert_array_equal(
            self.lines(first)["Gap-Aware"].get_xydata().T, group.curve("seconds", "train_loss")
        )
        assert first.get_ylim() == second.get_ylim()
        assert first.get_ylim()[1] == 10

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
    names = ("accuracy", "loss", "staleness", "timeline")
    pictures = {f"plots/{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert written == {"table.md", "table.csv", "report.html"} | pictures
    text = page.read_text(encoding="utf-8")
    assert text.count("data:image/svg+xml;base64,") == 4
    assert text.count("<tr class=") == len(found)


def test_a_report_says_nothing_that_the_records_do_not():
    text = report.page(groups("pull_gossip", counts=(4,), seeds=1), {})
    for word in ("Backup", "gamma-distributed", "omentum", "eterogeneous", "diverged at", "<figure>"):
        assert word not in text
