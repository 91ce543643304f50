"""The structure of the page: what is visible at once, what a script can sort, and what is folded."""

import html.parser

import made_up
import pytest

from sgdlab.results import report, summary, table
from sgdlab.runs import compared_report


class Page(html.parser.HTMLParser):
    """Elements in order, with their attributes, texts and how many <details> they are in."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        folded = sum(element["tag"] == "details" for element in self._open)
        element = {"tag": tag, "attrs": dict(attrs), "text": "", "folded": folded, "index": len(self.elements)}
        self.elements.append(element)
        if tag not in ("meta", "img", "input", "source", "link", "br"):
            self._open.append(element)

    def handle_endtag(self, tag):
        assert self._open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self._open:
            element["text"] += data

    def all(self, tag):
        return [element for element in self.elements if element["tag"] == tag]


@pytest.fixture(scope="module")
def groups():
    return summary.groups([*made_up.comparison(), made_up.run("mine", 32, title="<mine> & co", rank=70)])


@pytest.fixture(scope="module")
def page(groups, tmp_path_factory):
    names = ("standing", "accuracy", "loss", "staleness", "timeline")
    folder = tmp_path_factory.mktemp("plots")
    pictures = {name: folder / f"{name}.svg" for name in names}
    for name, path in pictures.items():
        path.write_text(f"<svg>{name}</svg>", encoding="utf-8")
    return Page(report.page(groups, pictures))


def plain(text):
    return text.replace("\u00a0", " ").strip()


def test_every_group_has_a_row_with_the_cells_of_the_table(page, groups):
    rows = [row for row in page.all("tr") if "data-workers" in row["attrs"]]
    assert [int(row["attrs"]["data-workers"]) for row in rows] == [group.num_workers for group in groups]
    assert ["data-serial" in row["attrs"] for row in rows] == [group.serial for group in groups]
    cells = [cell for row in table.table(groups).rows for cell in row]
    found = page.all("td")
    assert [cell["text"] for cell in found] == cells
    values = [cell["attrs"].get("data-value") for cell in found]
    assert [None if value is None else float(value) for value in values] == [
        getattr(cell, "value", None) for cell in cells
    ]


def test_every_column_has_a_heading_with_an_order_and_a_meaning(page, groups):
    headings = page.all("th")
    assert [plain(heading["text"]) for heading in headings] == list(table.table(groups).columns)
    assert {heading["attrs"]["data-first"] for heading in headings} == {"ascending", "descending"}
    assert [heading["attrs"]["title"] for heading in headings] == list(table.table(groups).columns.values())
    orders = {plain(heading["text"]): heading["attrs"]["data-first"] for heading in headings}
    assert (orders["test %"], orders["seconds to 95 %"]) == ("descending", "ascending")


def test_the_answer_the_table_and_its_definitions_are_open_and_in_that_order(page, groups):
    (tab,) = page.all("table")
    first, *_ = page.all("dd")
    picture = page.all("img")[0]
    assert first["index"] < picture["index"] < tab["index"] < page.all("details")[0]["index"]
    assert first["folded"] == picture["folded"] == tab["folded"] == 0
    terms = [plain(term["text"]) for term in page.all("dt") if not term["folded"]]
    assert terms == ["Accuracy", "Speed", "Cost", *table.table(groups).meanings]


def test_pictures_but_the_first_and_the_configuration_are_folded(page):
    assert [image["folded"] for image in page.all("img")] == [0, 1, 1, 1, 1]
    assert page.all("img")[0]["attrs"]["alt"].startswith("Who is first")
    assert [block["folded"] for block in page.all("pre")] == [1]
    assert all(image["attrs"]["alt"] for image in page.all("img"))


def test_the_controls_are_hidden_where_no_script_runs(page, groups):
    (form,) = page.all("form")
    assert "hidden" in form["attrs"]
    choices = [option["text"] for option in page.all("option")]
    assert choices == ["all", *map(str, sorted({group.num_workers for group in summary.compared(groups)}))]
    assert page.all("button") == []


def test_it_refers_to_no_other_file(page):
    for element in page.elements:
        for name in ("src", "href", "srcset"):
            assert element["attrs"].get(name, "data:").startswith("data:")


def test_titles_are_escaped_and_an_own_rule_is_in_every_part(page):
    assert page.all("mine") == []
    assert any(cell["text"] == "<mine> & co" for cell in page.all("td"))


def test_that_no_run_diverged_is_said_once():
    groups = summary.groups(made_up.comparison(["gap_aware", "asgd"], counts=(4,)))
    text = report.page(groups, {})
    assert text.lower().count("diverged") - text.count("td.diverged") - text.count('== "diverged"') == 1
    assert Page(text).all("img") == []


def test_it_says_nothing_of_methods_that_were_not_compared():
    runs = [run for run in made_up.comparison(["pull_gossip"], counts=(4,), seeds=1) if run[0]["method"] != "adam"]
    text = report.page(summary.groups(runs), {})
    for word in ("Backup", "Adam", "gamma-distributed", "eterogeneous", "<figure>"):
        assert word not in text


def test_settings_that_are_tuned_are_a_table():
    groups = summary.groups(made_up.comparison(["gap_aware"], counts=(4,), seeds=1))
    assert "uned settings" not in report.page(groups, {})
    found = compared_report._chosen(groups, {("gap_aware", 4): {"optimizer.momentum": 0.5}, ("gap_aware", 8): {}})
    page = Page(report.page(groups, {}, tuned=found))
    assert "Tuned settings of each method" in [element["text"] for element in page.all("summary")]
    assert "Gap-Aware4momentum 0.5" in [row["text"] for row in page.all("tr")]
    assert compared_report._chosen(groups, {("gap_aware", 8): {}}) is None
    assert compared_report._chosen(groups, {}) is None


@pytest.mark.parametrize(("reached", "order"), [(90.0, "time to the target"), (None, "test accuracy")])
def test_the_first_picture_says_what_its_rows_are_in_the_order_of(reached, order):
    run = made_up.run(summary={"seconds_to_target": reached})
    captions = report._titles_and_captions(summary.groups([run]))
    assert f"in order of their median {order}." in captions["standing"][1]


def test_gap_and_delay_are_given_where_a_rule_measures_the_gap():
    for method, expected in (("gap_aware", True), ("asgd", False)):
        for gap in (2.0, 40.0):
            run = made_up.run(method, summary={"gap": gap, "staleness": 31.0})
            captions = report._titles_and_captions(summary.groups([run]))
            assert (f"{gap} (delay 32.0)" in captions["staleness"][1]) is expected
