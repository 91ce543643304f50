"""The scoreboard is what the stored results say, nobody has edited them, and results of older code are marked."""

import html
import json
import pathlib
import re
import shutil

import pandas as pd
import pytest
from sweep_works import doubled

import experiments
from experiments import papers
from experiments.harness import Claim, Output, Session, Sweep, canvas, command, figures, publishing, scoreboard
from experiments.harness.claims import FAILS, HOLDS, OPEN, verdict
from sgdlab.runs import digests, work

STORED = pathlib.Path(experiments.__path__[0]) / "results"
STORED_NAMES = sorted(file.stem for file in STORED.glob("*.json"))
NAMES = [name for name in STORED_NAMES if not figures.is_apart(name)]
"""Those of the scoreboard."""


def articles(page):
    """Of each article of the page, by its id: the titles of its marks, its sentences and its pictures."""
    found = {}
    for name, text in re.findall(r'<article[^>]* id="([^"]+)"(.*?)</article>', page, re.DOTALL):
        of = {kind: re.findall(rf'<p class="{kind}">(.*?)</p>', text, re.DOTALL) for kind in ("ours", "opinion")}
        found[name] = {kind: [html.unescape(re.sub("<.*?>", "", each)) for each in of[kind]] for kind in of}
        found[name]["marks"] = re.findall(r'<span class="mark[^>]* title="([^"]*)"', text)
        sizes = re.findall(r'<img[^>]* width="(\d+)" height="(\d+)"', text)
        assert all(int(width) > 300 and int(height) > 100 for width, height in sizes)
        found[name]["pictures"] = len(sizes)
    return found


def checks_out(result):
    """Whether a result is as it was published."""
    return result.facts["digest"] == publishing.digest(result.facts, result.table.read_text(encoding="utf-8"))


def test_every_stored_result_is_that_of_a_command():
    assert len(NAMES) >= 20
    known = figures.names()
    for name in STORED_NAMES:
        made, facts = (
            figures.find_figure(name) if name in known else None,
            json.loads((STORED / f"{name}.json").read_text()),
        )
        assert made is not None, name
        assert facts["figure"] == name
        assert facts["numbers"] == list(made.numbers)
        assert facts["scale"] in made.scales
        assert facts["picture"] == (STORED / f"{name}.png").exists()
    assert {file.stem for file in STORED.iterdir() if file.is_file() and file.name != scoreboard.PAGE} == set(
        STORED_NAMES
    )


@pytest.mark.parametrize("name", STORED_NAMES)
def test_no_stored_number_was_edited(name):
    result = scoreboard.stored_result(name)
    assert (result.table is None) == ("digest" not in result.facts)  # results of before there were digests have neither
    assert result.table is None or checks_out(result), f"{name}: make the figure anew, and store it"
    for claim in result.facts["claims"]:
        assert claim["verdict"] == verdict(claim["holds"])


def test_the_page_is_what_the_stored_results_say(tmp_path):
    """Verdicts, sentences and pictures, one by one, and the counts of all."""
    made = [figures.find_figure(name) for name in NAMES]
    by_paper = [(paper, scoreboard.rows_of(paper, tmp_path, made)) for paper in papers.PAPERS]
    found, stored = articles(scoreboard.as_html(by_paper)), {}
    for name in NAMES:
        stored[name] = json.loads((STORED / f"{name}.json").read_text())
        claims = stored[name]["claims"]
        assert found[name]["marks"] == [claim["verdict"] for claim in claims]
        assert found[name]["ours"] == [f"Here: {claim['ours']}" for claim in claims]
        assert len(found[name]["opinion"]) == sum(bool(claim["because"]) for claim in claims)
        assert found[name]["pictures"] == stored[name]["picture"]
    assert set(found) == set(NAMES)
    verdicts = [claim["verdict"] for facts in stored.values() for claim in facts["claims"]]
    counts = [verdicts.count(each) for each in (HOLDS, FAILS, OPEN)]
    words = "Of {} claims {} hold, {} fail, and {} cannot be said".format(len(verdicts), *counts)
    assert words in scoreboard.summary(by_paper)
    assert "the failure may be the paper's or our set-up's" in scoreboard.summary(by_paper)
    for paper, _ in by_paper:  # such as where one without authors is from
        assert f"## {paper.authors}: {paper.title} ({paper.source})" in scoreboard.as_markdown(by_paper)


def products(*, factor: float = 1.0) -> Output:
    """Multiplies.

    Args:
      factor: of each product.
    """
    table = Sweep({}, {"value": [1, 2]}, work=doubled).table()
    drawn, panels = canvas(width=4, height=3)
    panels[0, 0].plot([0, factor])
    claim = Claim("the sum is 6", "here", f"{table['product'].sum()}", False, because="Two numbers are few.")
    return Output(pd.DataFrame({"ours": factor * table["product"], "paper": [2.0, 5.0]}), drawn, [claim])


@pytest.fixture(name="published")
def a_published_result(declare, monkeypatch, tmp_path):
    """A figure, and its result."""
    made = declare(products, full_size=True)
    monkeypatch.setattr(scoreboard, "STORED", tmp_path / "stored")
    command.produce(made, "laptop", {}, Session(tmp_path, jobs=1))
    return made, tmp_path


def test_the_stored_page_is_that_of_the_stored_results():
    by_paper = [(paper, scoreboard.rows_of(paper, STORED, figures.figures())) for paper in papers.PAPERS]
    assert (STORED / scoreboard.PAGE).read_text() == scoreboard.as_markdown(by_paper, older=False)


def test_an_edited_number_is_found(published):
    made, path = published
    folder = path / made.name / "laptop"
    assert checks_out(scoreboard.find_result(made, path))
    for name, before, after in (
        ("claims.json", '"verdict": "fails"', '"verdict": "holds"'),
        ("claims.json", '"ours": "6"', '"ours": "7"'),
        ("table.csv", "5.0", "4.0"),
    ):
        whole = (folder / name).read_text()
        assert before in whole
        (folder / name).write_text(whole.replace(before, after))
        assert not checks_out(scoreboard.find_result(made, path))
        (folder / name).write_text(whole)
    assert checks_out(scoreboard.find_result(made, path))


def test_storing_keeps_the_table_and_the_digest(published):
    made, path = published
    scoreboard.store([(papers.GOSSIP, scoreboard.rows_of(papers.GOSSIP, path, [made]))])
    shutil.rmtree(path / made.name)
    stored = scoreboard.find_result(made, path)
    assert checks_out(stored)
    assert pd.read_csv(stored.table).difference.tolist() == [0.0, -1.0]
    assert stored.picture.exists()


def test_what_is_apart_is_stored_and_not_on_the_page(published, declare, monkeypatch):
    """Of a figure of `beyond`, by `scoreboard --store`."""
    _, path = published
    other = papers.Paper("Nobody 2030", "Products", "nowhere", {"Products": "Two"})
    made = declare(products, "beyond.products", paper=other, numbers="Products")
    command.produce(made, "laptop", {}, Session(path, jobs=1))
    monkeypatch.setattr(scoreboard, "figures", lambda apart=False: [made] * apart)
    assert command.answer(["scoreboard", f"--workdir={path}", "--store"]) == 0
    assert checks_out(scoreboard.stored_result("beyond.products"))
    assert "Nobody" not in (path / "scoreboard.md").read_text()
    # Without a work directory's result, the stored one is found.
    assert scoreboard.find_result(made, path / "nowhere").facts["claims"][0]["ours"] == "6"


def test_a_result_of_older_code_is_marked(published, monkeypatch):
    made, path = published
    row = lambda: next(row for row in scoreboard.rows_of(papers.GOSSIP, path, [made]) if row.figure)
    assert row().result.changed(made) == []
    by_paper = [(papers.GOSSIP, [row()])]
    assert "older code" not in scoreboard.as_markdown(by_paper)
    of_code = digests.of_code
    for changed, name in ((doubled, work.name_of(doubled)), (products, "figure")):
        other = lambda function, changed=changed: "other" if function is changed else of_code(function)
        monkeypatch.setattr(digests, "of_code", other)
        assert row().result.changed(made) == [name]
        words = f"Made by older code: {name} changed since."
        assert words in scoreboard.as_html([(papers.GOSSIP, [row()])])
        assert words in scoreboard.as_markdown([(papers.GOSSIP, [row()])])


@pytest.mark.parametrize("name", ["experiments.gossip.nothing.here", "sgdlab.protocols.nothing", "rule:nothing", "x:y"])
def test_code_that_is_gone_has_no_digest(name):
    assert work.digest_now(name) is None


def test_parts_are_found_by_their_names():
    assert work.digest_now("rule:gap_aware") not in (None, work.digest_now("rule:dana"))


def test_an_opinion_is_set_apart_and_the_machine_and_size_are_said(published):
    made, path = published
    by_paper = [(papers.GOSSIP, scoreboard.rows_of(papers.GOSSIP, path, [made]))]
    page, text = scoreboard.as_html(by_paper), scoreboard.as_markdown(by_paper)
    assert articles(page)[made.name]["opinion"] == ["We think: Two numbers are few."]
    assert "Two numbers" not in "".join(articles(page)[made.name]["ours"])
    result = scoreboard.find_result(made, path)
    for shown in (page, text):
        assert "laptop (the paper&#39;s size)" in shown or "laptop (the paper's size)" in shown
        assert result.facts["hardware"] in shown
        assert f"commit {result.facts['made']['commit']}" in shown


def test_what_is_apart_is_made_by_one_command(declare, tmp_path, capsys):
    declare(products, "beyond.products", paper=papers.Paper("Nobody 2030", "", "", {}))
    declare(products, "gossip.own")
    assert command.answer(["beyond", "--scale=smoke", f"--workdir={tmp_path}"]) == 0
    assert "[1/1] beyond.products" in capsys.readouterr().out
    assert not (tmp_path / "gossip.own").exists()
