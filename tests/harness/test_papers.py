"""Every table and figure of the papers at the scale smoke, in one process, and the scoreboard of what they found."""

import json
import pathlib
import re
import shutil

import pandas as pd
import pytest
from PIL import Image

import experiments
from experiments import papers
from experiments.harness import board, claims, command, figures, publishing
from experiments.harness.claims import HOLDS, INCONCLUSIVE, VERDICTS

FOLDER = pathlib.Path(experiments.__path__[0])
SOURCES = {name: (FOLDER / f"{name.replace('.', '/')}.py").read_text() for name in figures.names()}
NAMES = [name for name, source in SOURCES.items() if "figure(\n    papers." in source]
ONE_A_PAPER = ("backup_workers.figures5_6", "gap_aware.theorem1", "weak_sync.table1", "cutoff.figure3", "gossip.bounds")


@pytest.fixture(name="made", scope="module")
def everything(tmp_path_factory):
    """The directory with everything, and what the command printed and returned."""
    path = tmp_path_factory.mktemp("papers")
    code = command.answer(["all", "--scale=smoke", f"--workdir={path}", "--jobs=1"])
    assert code == 0
    return path


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_a_figure_writes_its_table_claims_and_picture(made, name):
    check_what_is_written(made, name)


@pytest.mark.parametrize("name", ONE_A_PAPER)
@pytest.mark.long("a whole figure")
def test_one_figure_of_each_paper(name, tmp_path):
    assert command.answer([name, "--scale=smoke", f"--workdir={tmp_path}", "--jobs=1"]) == 0
    check_what_is_written(tmp_path, name)


def check_what_is_written(path, name):
    folder, figure = path / name / "smoke", figures.find_figure(name)
    table = pd.read_csv(folder / "table.csv")
    assert ("difference" in table) == (not figure.stand_in)  # none is taken across data sets
    ours, paper = (pd.to_numeric(table[column], errors="coerce") for column in ("ours", "paper"))
    if not figure.stand_in:
        pd.testing.assert_series_equal(table.difference, ours - paper, check_names=False, rtol=1e-9)
    assert ours.notna().any()
    facts = json.loads((folder / "claims.json").read_text())
    assert facts["numbers"] == list(figure.numbers)
    assert facts["scale"] == "smoke"
    assert facts["changed"] == {}
    for claim in facts["claims"]:
        assert claim["says"]
        assert claim["where"]
        assert claim["ours"]
        assert claim["verdict"] in VERDICTS
        assert claims.of_facts(claim).facts() == claim
    if facts["picture"]:
        with Image.open(folder / "picture.png") as picture:
            assert picture.width > 500
            assert len(set(picture.convert("L").resize((64, 64)).tobytes())) > 5  # it is not blank
        assert "<svg" in (folder / "picture.svg").read_text()[:1000]
    text = (folder / "table.md").read_text()
    assert text.count("Scale smoke, on ") == 1
    assert figure.differs in text


def test_every_row_of_a_paper_has_one_command_with_all_scales():
    for paper in papers.PAPERS:
        ours = [made for made in figures.figures() if made.paper == paper]
        numbers = [number for made in ours for number in made.numbers]
        assert len(numbers) == len(set(numbers))
        assert set(paper.rows) <= set(numbers)
        for made in ours:
            if set(made.numbers) & set(paper.rows):
                assert set(figures.SCALES) - set(made.scales) <= {"decide"}
    assert sum(len(paper.rows) for paper in papers.PAPERS) == 40


@pytest.mark.full
def test_the_same_command_does_nothing_twice(made, capsys):
    before = {file: file.stat().st_mtime_ns for file in made.glob("runs/*.jsonl")}
    assert len(before) > 20
    trained = ["backup_workers.figure2", f"--workdir={made}", "--scale=smoke", "--jobs=1"]
    assert command.answer(trained) == 0
    assert "to do" not in capsys.readouterr().out
    assert {file: file.stat().st_mtime_ns for file in made.glob("runs/*.jsonl")} == before


@pytest.mark.full
def test_the_scoreboard_shows_every_row_claim_and_picture(made, stored, tmp_path):
    shutil.rmtree(stored, ignore_errors=True)
    for name in NAMES:  # as of a checkout whose code is in a commit
        path = made / name / "smoke" / "claims.json"
        facts = json.loads(path.read_text())
        path.write_text(json.dumps(facts | {"made": facts["made"] | {"commit": "0123abc"}}))
    assert command.answer(["scoreboard", f"--workdir={made}", "--store"]) == 0
    page = (made / "scoreboard.html").read_text()
    text = "".join((made / name).read_text() for name in ("scoreboard.md", *(f"{p.slug}.md" for p in papers.PAPERS)))
    facts = [json.loads((made / name / "smoke" / "claims.json").read_text()) for name in NAMES]
    claims = [claim for found in facts for claim in found["claims"]]
    tags = {tag: len(re.findall(rf"<{tag}\b", page)) for tag in ("article", "tr", "img")}
    assert tags["article"] == len(NAMES)
    shown = board.assemble(figures.figures(apart=True), made)
    assert tags["tr"] == len(shown.rows) + len(shown.papers)  # each with a head
    assert len(shown.rows) >= 40 + sum(figures.is_apart(name) for name in figures.names())
    assert tags["img"] == sum(found["picture"] for found in facts)
    assert not re.search(r'\b(src|href)="(?!data:|#)', page)
    assert page.count('<p class="ours">') == len(claims)
    assert f"Of {len(claims)} claims, " in text
    assert f" included, {len(claims)} are inconclusive. Of the" in text  # smoke decides nothing
    assert len(re.findall(r"no command yet", text)) == 40 - sum(
        number in figures.find_figure(name).paper.rows for name in NAMES for number in figures.find_figure(name).numbers
    )
    for picture in re.findall(r"\]\((pictures/.+?)\)", text):
        assert (made / picture).is_file()
    # What was stored makes the same page where nothing has been run.
    elsewhere = tmp_path / "elsewhere"
    assert command.answer(["scoreboard", f"--workdir={elsewhere}"]) == 0
    assert (elsewhere / "scoreboard.html").read_text() == page


@pytest.mark.full
@pytest.mark.usefixtures("stored")
def test_verdicts_are_counted(made, tmp_path):
    found = []
    for name in NAMES:
        facts = json.loads((made / name / "smoke" / "claims.json").read_text()) | {"scale": "laptop", "picture": False}
        found += [claim for claim in facts["claims"] if not claim["identity"]]
        (tmp_path / name / "laptop").mkdir(parents=True)
        (tmp_path / name / "laptop" / "claims.json").write_text(json.dumps(facts))
    assert command.answer(["scoreboard", f"--workdir={tmp_path}"]) == 0
    shown = board.assemble([figures.find_figure(name) for name in NAMES], tmp_path)
    counts = board.counted(each for row in shown.rows for each in row.judged)
    alone = {verdict: sum(claim["verdict"] == verdict for claim in found) for verdict in VERDICTS}
    assert 0 < counts[HOLDS] <= alone[HOLDS]  # among so many, some are not decided
    assert counts[INCONCLUSIVE] >= alone[INCONCLUSIVE]
    assert f" included, {counts[HOLDS]} hold" in (tmp_path / "scoreboard.md").read_text()
    page = (tmp_path / "scoreboard.html").read_text()
    assert page.count('aria-label="holds" title="holds"') == counts[HOLDS]


@pytest.mark.full
def test_a_larger_scale_is_shown_before_a_smaller_one(made, stored):
    stored.mkdir()
    figure = figures.find_figure("gap_aware.figure3")
    assert board.find_result(figure, made).facts["scale"] == "smoke"
    facts = json.loads((made / "gap_aware.figure3" / "smoke" / "claims.json").read_text()) | {"scale": "laptop"}
    (stored / "gap_aware.figure3.json").write_text(json.dumps(facts))
    assert board.find_result(figure, made).facts["scale"] == "laptop"
    newer = publishing.folder(made, figure.name, "paper")
    newer.mkdir(parents=True)
    (newer / "claims.json").write_text(json.dumps(facts | {"scale": "paper"}))
    assert board.find_result(figure, made).facts["scale"] == "paper"
