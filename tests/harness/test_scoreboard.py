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
from experiments.harness import (
    Claim,
    Evidence,
    Output,
    Premise,
    Session,
    Sweep,
    Threshold,
    above,
    board,
    canvas,
    claims,
    command,
    figures,
    publishing,
    scoreboard,
    throughout,
)
from experiments.harness.claims import FAILS, HOLDS, IN_PART, INCONCLUSIVE, OUTSIDE
from experiments.harness.machine import duration
from sgdlab.runs import digests, work

STORED = pathlib.Path(experiments.__path__[0]) / "results"
STORED_NAMES = sorted(file.stem for file in STORED.glob("*.json"))
PAGES = {scoreboard.PAGE, *(f"{paper.slug}.md" for paper in (*papers.PAPERS, scoreboard.OTHERS))}


def articles(page):
    """Of each article of the page, by its id: the titles of its marks, its sentences and its pictures."""
    found = {}
    for name, text in re.findall(r'<article[^>]* id="([^"]+)"(.*?)</article>', page, re.DOTALL):
        of = {kind: re.findall(rf'<p class="{kind}">(.*?)</p>', text, re.DOTALL) for kind in ("ours", "remarks")}
        found[name] = {kind: [html.unescape(re.sub("<.*?>", "", each)) for each in of[kind]] for kind in of}
        found[name]["marks"] = re.findall(r'<span class="mark[^>]* title="([^"]*)"', text)
        sizes = re.findall(r'<img[^>]* width="(\d+)" height="(\d+)"', text)
        assert all(int(width) > 300 and int(height) > 100 for width, height in sizes)
        found[name]["pictures"] = len(sizes)
    return found


def checks_out(result):
    """Return whether a result is as it was published."""
    return result.facts["digest"] == publishing.digest(result.facts, result.table.read_text(encoding="utf-8"))


def test_every_stored_result_is_that_of_a_command():
    assert len(STORED_NAMES) >= 20
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
    files = {file.name for file in STORED.iterdir() if file.is_file()} - PAGES - {board.COSTS}
    assert {name.rpartition(".")[0] for name in files} == set(STORED_NAMES)


@pytest.mark.parametrize("name", STORED_NAMES)
def test_no_stored_number_was_edited(name):
    result = board.stored_result(name)
    assert (result.table is None) == ("digest" not in result.facts)  # results of before there were digests have neither
    assert result.table is None or checks_out(result), f"{name}: make the figure anew, and store it"
    for claim in result.facts["claims"]:
        if "evidence" in claim:  # else it was made before evidence was kept
            assert claim["verdict"] == claims.of_facts(claim).verdict


@pytest.fixture(name="whole", scope="module")
def the_stored_results():
    """The board of the repository's results."""
    return board.assemble(figures.figures(apart=True), STORED)


@pytest.mark.full
def test_the_pages_are_what_the_stored_results_say(whole):
    """Verdicts, sentences and pictures, one by one, and the counts of all."""
    found, stored = articles(scoreboard.as_html(whole)), {}
    judged = {row.name: row.judged for row in whole.rows if row.first}
    for name in STORED_NAMES:
        stored[name] = json.loads((STORED / f"{name}.json").read_text())
        its = stored[name]["claims"]
        words = ["identity" if each.claim.identity else each.verdict for each in judged[name]]
        assert found[name]["marks"] == words
        assert found[name]["ours"] == [f"Here: {claim['ours']}" for claim in its]
        assert len(found[name]["remarks"]) >= sum(bool(claim["because"]) for claim in its)
        assert found[name]["pictures"] == stored[name]["picture"]
    assert set(found) == set(STORED_NAMES)
    made = scoreboard.as_markdown(whole, stored=True)
    assert made.keys() == PAGES
    for paper in papers.PAPERS:  # such as where one without authors is from
        assert f"# {paper.authors}: {paper.title} ({paper.source})" in made[f"{paper.slug}.md"]
    for name, text in made.items():
        assert (STORED / name).read_text() == text
        for other in re.findall(r"\]\(([^)#]+)", text):
            assert (STORED / other).exists() or other in PAGES


def test_of_many_verdicts_few_are_wrong():
    """Benjamini and Hochberg's procedure, by its definition."""
    values = [0.001, 0.004, 0.012, 0.021, 0.024, 0.4, 0.5]
    stated = [Claim(f"claim {p}", "here", "1", Evidence(p, 1 - p)) for p in values]
    others = [
        Claim("2 = 2", "here", "2", True, identity=True),
        Claim("far", "here", "2", Evidence(1e-9, 1), premises=[Premise("more", "less", False)]),
    ]
    facts = {"scale": "laptop", "claims": [claim.facts() for claim in (*stated, *others)]}
    judged = board.judge({"a": board.Result(facts)})["a"]
    ranked = [min(1, 2 * p) * len(values) / (rank + 1) for rank, p in enumerate(values)]
    stands = [min(ranked[rank:]) <= board.WRONG for rank in range(len(values))]
    assert 0 < sum(stands) < 5  # alone, five would be decided
    assert [each.verdict == HOLDS for each in judged[:7]] == stands
    assert [each.verdict for each in judged[7:]] == [HOLDS, OUTSIDE]
    number = sum(stands)
    assert board.counted(judged) == {HOLDS: number, IN_PART: 0, FAILS: 0, INCONCLUSIVE: 7 - number, OUTSIDE: 1}
    assert board.identities(judged) == (1, 1)


def test_claims_of_one_cause_count_once():
    """Those that fail, or are outside: what holds is no failure, whatever cause it might have had."""
    far = [Premise("messages that cost", "free ones", met=False)]
    of = {"holds": above([1.0, 1.1, 0.9]), "where": "here", "ours": "1"}
    against = of | {"holds": above([-1.0, -1.1, -0.9])}
    made = [
        *(Claim(says, **of, premises=far, cause="messages") for says in ("one", "two")),
        Claim("three", **of, premises=far),
        *(Claim(says, **against, cause="messages") for says in ("four", "five")),
        *(Claim(says, **of, cause="messages") for says in ("six", "seven")),
    ]
    judged = board.judge({"a": board.Result({"claims": [claim.facts() for claim in made]})})["a"]
    assert board.counted(judged) == {HOLDS: 2, IN_PART: 0, FAILS: 1, INCONCLUSIVE: 0, OUTSIDE: 2}


def test_what_holds_in_part_is_decided_among_all():
    """Twenty that are sure of both sides are, and count among what may be wrong; one that is just so is not."""

    def in_part(p):
        return throughout([Evidence(p, 1.0), Evidence(1.0, p)])

    sure = [Claim(f"sure {number}", "here", "1", in_part(1e-6)) for number in range(20)]
    just_so, opens = Claim("just so", "here", "1", in_part(0.012)), Claim("open", "here", "1", Evidence(0.4, 0.6))
    stated = [*sure, just_so, *[opens] * 60]
    result = board.Result({"scale": "laptop", "claims": [claim.facts() for claim in stated]})
    judged = board.judge({"a": result})["a"]
    assert just_so.verdict == IN_PART
    assert [each.verdict for each in judged] == [IN_PART] * 20 + [INCONCLUSIVE] * 61
    assert "By itself it holds in part; among so many claims" in scoreboard.said_of(judged[20], result)
    row = board.Row("1", "it", None, None, True, tuple(judged))
    said = scoreboard.summary(board.Board(((papers.PAPERS[0], (row,)),)))
    assert "20 hold in part, 61 are inconclusive. Of the verdicts that decide, about 1 may be wrong." in said


def test_what_was_not_measured_does_not_weigh_on_others():
    measured = [Claim(f"claim {p}", "here", "1", Evidence(p, 1 - p)) for p in (0.001, 0.004, 0.02)]
    unknown = [Claim(f"not run {number}", "here", "1", None) for number in range(30)]
    results = {"a": board.Result({"claims": [claim.facts() for claim in measured]})}
    results["b"] = board.Result({"claims": [claim.facts() for claim in unknown]})
    results["c"] = board.Result({"scale": "smoke", "claims": [claim.facts() for claim in measured * 10]})
    assert [each.verdict for each in board.judge(results)["a"]] == [HOLDS] * 3


def test_what_an_inconclusive_claim_lacks_is_said():
    seen = Threshold(1.0, "a round number", "2026-11-20", seen=True)
    claim = Claim("it is large", "here", "1.5", above([0.2, 2.0, 1.1, 2.7, 1.5], seen), because="It is small.")
    result = board.Result({"claims": [claim.facts()], "computing_seconds": 3600.0})
    (judged,) = board.judge({"a": result})["a"]
    times = claim.holds.needed(level=0.025)
    assert judged.times == times > 1
    said = scoreboard.said_of(judged, result)
    hours = (times - 1) * 3600
    assert f"{times:.0f} times the runs ({duration(hours)} of a core) would decide it with a chance of 80 %." in said
    assert "† 1, set on 2026-11-20: a round number. It is small." in said
    assert scoreboard.word(judged) == "inconclusive †"


def products(*, factor: float = 1.0) -> Output:
    """Multiplies.

    Args:
      factor: of each product.
    """
    table = Sweep({}, {"value": [1, 2]}, work=doubled).table()
    drawn, panels = canvas(width=4, height=3)
    panels[0, 0].plot([0, factor])
    total = table["product"].sum()
    claim = Claim("the sum is 7", "here", f"{total}", above([total - 0.1, total, total + 0.1], 6.9), because="It is 6.")
    return Output(pd.DataFrame({"ours": factor * table["product"], "paper": [2.0, 5.0]}), drawn, [claim])


@pytest.fixture(name="published")
def a_published_result(declare, stored, tmp_path):
    """A figure, and its result."""
    del stored  # whose place is another now
    made = declare(products, full_size=True)
    command.produce(made, "laptop", {}, Session(tmp_path, jobs=1))
    return made, tmp_path


def test_an_edited_number_is_found(published):
    made, path = published
    folder = path / made.name / "laptop"
    assert checks_out(board.find_result(made, path))
    for name, before, after in (
        ("claims.json", '"verdict": "fails"', '"verdict": "holds"'),
        ("claims.json", '"ours": "6"', '"ours": "7"'),
        ("table.csv", "5.0", "4.0"),
    ):
        whole = (folder / name).read_text()
        assert before in whole
        (folder / name).write_text(whole.replace(before, after))
        assert not checks_out(board.find_result(made, path))
        (folder / name).write_text(whole)
    assert checks_out(board.find_result(made, path))


def test_storing_keeps_the_table_and_the_digest(published):
    made, path = published
    board.store(board.assemble([made], path))
    shutil.rmtree(path / made.name)
    stored = board.find_result(made, path)
    assert checks_out(stored)
    assert pd.read_csv(stored.table).difference.tolist() == [0.0, -1.0]
    assert stored.picture.exists()


def test_a_stored_result_stands_before_one_of_a_smaller_scale(published):
    made, path = published
    board.store(board.assemble([made], path))
    command.produce(made, "smoke", {}, Session(path / "other", jobs=1))
    assert board.find_result(made, path / "other").facts["scale"] == "laptop"
    shutil.rmtree(path / "stored")
    assert board.find_result(made, path / "other").facts["scale"] == "smoke"


def test_what_is_apart_has_a_page_of_its_own(published, declare, monkeypatch):
    """Of a figure of `beyond`, by `scoreboard --store`."""
    _, path = published
    other = papers.Paper("Nobody 2030", "Products", "nowhere", {"Products": "Two"})
    made = declare(products, "beyond.products", paper=other, numbers="Products")
    command.produce(made, "laptop", {}, Session(path, jobs=1))
    monkeypatch.setattr(scoreboard, "figures", lambda apart: [made])
    assert command.answer(["scoreboard", f"--workdir={path}", "--store"]) == 0
    assert checks_out(board.stored_result("beyond.products"))
    for pages in (path, path / "stored"):
        assert "## Nobody 2030: Products (nowhere)" in (pages / f"{scoreboard.OTHERS.slug}.md").read_text()
    costs = board.read_costs()
    assert costs.keys() == {("beyond.products", "laptop")}
    # Without a work directory's result, the stored one is found.
    assert board.find_result(made, path / "nowhere").facts["claims"][0]["ours"] == "6"


def test_results_of_code_in_no_commit_are_not_stored(published, monkeypatch, capsys):
    made, path = published
    of_code = digests.made_with()
    monkeypatch.setattr(digests, "made_with", lambda: of_code | {"commit": "0123abc+"})
    command.produce(made, "laptop", {}, Session(path, jobs=1))
    monkeypatch.setattr(scoreboard, "figures", lambda apart: [made])
    assert command.answer(["scoreboard", f"--workdir={path}", "--store"]) == 2
    assert f"--store: {made.name} were made by code that is in no commit" in capsys.readouterr().err
    assert board.stored_result(made.name) is None


THEIRS = {
    "figure": "their.speedup",
    "paper": "Doe et al. 2027",
    "paper_title": "Waiting for nobody",
    "source": "arXiv:2701.00000",
    "claims": [
        {"says": "it is fast", "where": "Table 3", "ours": "2.3 times", "evidence": {"p_for": 1e-4, "p_against": 1.0}}
    ],
}


def their_claim(**changed):
    """The file with another claim."""
    return {"claims": [THEIRS["claims"][0] | changed]}


def test_claims_of_others_are_shown(stored, declare, tmp_path, monkeypatch):
    declare(products)
    monkeypatch.setattr(scoreboard, "figures", lambda apart: [])
    folder = tmp_path / "theirs"
    (folder / "deep").mkdir(parents=True)
    (folder / "speedup.json").write_text(json.dumps(THEIRS))
    other = THEIRS | {"figure": "their.other", "title": "Other", "arguments": {"seeds": 5}, "when": "2026-11-20"}
    (folder / "deep" / "claims.json").write_text(json.dumps(other | {"made": {"version": "1"}, "numbers": ["Table 3"]}))
    (folder / "gossip.json").write_text(json.dumps(THEIRS | {"figure": "their.third", "paper": papers.GOSSIP.authors}))
    assert command.answer(["scoreboard", f"--workdir={tmp_path}", f"--claims={folder}"]) == 0
    text = (tmp_path / f"{scoreboard.OTHERS.slug}.md").read_text()
    assert "## Doe et al. 2027: Waiting for nobody (arXiv:2701.00000)" in text
    assert text.count("it is fast (Table 3)") == 2
    assert "it is fast (Table 3)" in (tmp_path / f"{papers.GOSSIP.slug}.md").read_text()  # with those of its paper
    assert "3 hold" in (tmp_path / "scoreboard.md").read_text()
    assert "python -m experiments their" not in text + (tmp_path / "scoreboard.html").read_text()
    assert not stored.exists()


@pytest.mark.parametrize("folders", [("a", "b"), ("b", "a")])
def test_of_a_figure_with_several_scales_the_largest_is_read(folders, tmp_path):
    for folder, scale in zip(folders, ("smoke", "laptop"), strict=True):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "claims.json").write_text(json.dumps(THEIRS | {"scale": scale}))
    (result,) = board.read_folder(tmp_path).values()
    assert result.facts["scale"] == "laptop"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"paper": 3}, "paper: 3 is not of type 'string'"),
        ({"figure": "../../evil"}, "figure: '../../evil' does not match"),
        ({"figure": "gossip.products"}, "figure: 'gossip.products' is a name of sgdlab's own"),
        ({"numbers": "Table 3"}, "numbers: 'Table 3' is not of type 'array'"),
        ({"when": "last week"}, "when: 'last week' does not match"),
        ({"computing_seconds": "3 h"}, "computing_seconds: '3 h' is not of type 'number'"),
        ({"claims": [{"says": "x", "where": "y", "ours": "z"}]}, "claims[0]: 'evidence' is a required property"),
        (THEIRS["claims"][0], "'says', 'where' were unexpected"),
        (their_claim(becuase="so"), "claims[0]: Additional properties are not allowed ('becuase' was unexpected)"),
        (their_claim(on_paper="yes"), "claims[0].on_paper: 'yes' is not of type 'boolean', 'null'"),
        (their_claim(premises=[{"says": "a", "ours": "b", "met": "false"}]), "premises[0].met: 'false' is not of type"),
        (their_claim(evidence={"p_for": 2.0, "p_against": 1.0}), "evidence.p_for: 2.0 is greater than the maximum"),
        (their_claim(evidence={"p_for": True, "p_against": 1.0}), "evidence.p_for: True is not of type 'number'"),
        (their_claim(evidence={"p_for": 0.001, "p_against": 0.001}), "must add up to 1 at least: they are one-sided"),
        (their_claim(evidence={"p_for": 0.0, "p_against": 1.0, "exact": True}), "must all be measured"),
    ],
)
def test_a_file_of_others_that_is_wrong_is_named(change, words, stored, tmp_path, capsys, monkeypatch, declare):
    del stored
    made = declare(products)
    monkeypatch.setattr(scoreboard, "figures", lambda apart: [made])
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "one.json").write_text(json.dumps(THEIRS | change))
    assert command.answer(["scoreboard", f"--workdir={tmp_path}", f"--claims={tmp_path / 'theirs'}"]) == 2
    said = capsys.readouterr().err
    assert "one.json is no file of claims" in said
    assert words in said


def test_the_documented_file_is_one(tmp_path):
    """Reads the examples of docs/claims.md."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "claims.md").read_text()
    (tmp_path / "one.json").write_text(re.search(r"```json\n(.*?)```", page, re.DOTALL).group(1))
    (result,) = board.read_folder(tmp_path).values()
    assert [claim.verdict for claim in result.claims] == [HOLDS]
    names = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(code, names)
    assert names["claim"].verdict == HOLDS
    assert names["p_for"] == pytest.approx(above(names["values"], 2).p_for)


def test_a_result_of_older_code_is_marked(published, monkeypatch):
    made, path = published
    shown = board.assemble([made], path)
    row = next(row for row in shown.rows if row.figure)
    assert row.result.changed(made) == []
    text = lambda: "".join(scoreboard.as_markdown(board.assemble([made], path)).values())
    assert "older code" not in text()
    of_code = digests.of_code
    for changed, name in ((doubled, work.name_of(doubled)), (products, "figure")):
        other = lambda function, changed=changed: "other" if function is changed else of_code(function)
        monkeypatch.setattr(digests, "of_code", other)
        assert row.result.changed(made) == [name]
        words = f"Made by older code: {name} changed since."
        assert words in scoreboard.as_html(board.assemble([made], path))
        assert words in text()


@pytest.mark.parametrize("name", ["experiments.gossip.nothing.here", "sgdlab.protocols.nothing", "rule:nothing", "x:y"])
def test_code_that_is_gone_has_no_digest(name):
    assert work.digest_now(name) is None


def test_parts_are_found_by_their_names():
    assert work.digest_now("rule:gap_aware") not in (None, work.digest_now("rule:dana"))


def test_an_opinion_is_set_apart_and_the_machine_and_size_are_said(published):
    made, path = published
    shown = board.assemble([made], path)
    page, text = scoreboard.as_html(shown), scoreboard.as_markdown(shown)[f"{papers.GOSSIP.slug}.md"]
    assert articles(page)[made.name]["remarks"] == ["It is 6."]
    assert "It is" not in "".join(articles(page)[made.name]["ours"])
    result = board.find_result(made, path)
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
