"""The site is built without a warning, loads nothing from elsewhere, and says what the parts and the results say."""

import doctest
import html
import importlib
import os
import pathlib
import re
import subprocess
import sys
import types

import pytest

from docs.making import decision, measured, method_pages, paper_pages, pictures, reference_pages, simulated
from experiments.harness import board
from experiments.harness.figures import figures, is_apart
from sgdlab.registry import RULES
from sgdlab.runs.methods import methods

ROOT = pathlib.Path(__file__).parents[2]
MODULES = sorted(f"docs.making.{path.stem}" for path in (ROOT / "docs/making").glob("[a-z]*.py"))
LOADED = re.compile(
    r"<(?:script|link|img|iframe|source|use)\b[^>]*?\b(?:src|href|srcset)=[\"']?((?:https?:)?//[^\"'\s>]+)",
    re.IGNORECASE,
)
IN_STYLE = re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')\s]+)")


@pytest.fixture(name="site", scope="module")
def built_once(tmp_path_factory):
    """The site, by the command of `make docs`."""
    path = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return types.SimpleNamespace(
        path=path, pages={page.relative_to(path).as_posix(): page.read_text("utf-8") for page in path.rglob("*.html")}
    )


@pytest.mark.full
def test_nothing_is_loaded_from_elsewhere(site):
    found = {name: LOADED.findall(page) + IN_STYLE.findall(page) for name, page in site.pages.items()}
    assert not {name: loads for name, loads in found.items() if loads}
    for style in site.path.rglob("*.css"):
        assert not IN_STYLE.findall(style.read_text("utf-8")), style


@pytest.mark.full
def test_every_link_leads_somewhere(site):
    anchors = {name: set(re.findall(r'\bid="([^"]+)"', page)) for name, page in site.pages.items()}
    broken = []
    for name, page in site.pages.items():
        if name == "404.html":  # whose links begin at the root, since it stands for any page
            continue
        for link in set(re.findall(r'\b(?:href|src)="([^"]*)"', page)):
            path, _, anchor = html.unescape(link).partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            target = f"{target}/index.html" if (site.path / target).is_dir() else target
            if not (site.path / target).exists() or (anchor and anchor not in anchors.get(target, {anchor})):
                broken.append((name, link))
    assert not broken


@pytest.mark.full
def test_every_method_has_a_page_that_is_its_own(site):
    for name, method in methods().items():
        page = html.unescape(site.pages[f"methods/{name}.html"])
        assert method.title in page
        assert method.source in page
        assert f"--config.method={name}" in page
        assert "<math" in page, name
        assert (site.path / pictures.name(method)).read_text("utf-8").startswith("<?xml")
        assert f'href="{name}.html"' in site.pages["methods/index.html"]


@pytest.mark.full
def test_names_and_stored_pages_are_links_here(site):
    """Written pages have no links to pages that are made, which a forge does not have."""
    for page, link in (
        ("choose", 'href="methods/rennala.html"'),
        ("choose", 'href="papers/jin_et_al_2016.html"'),
        ("compare", 'href="methods/osgp.html"'),
        ("own/trace", 'href="../reference/traces.html#sgdlab.traces.recording.Recording"'),
    ):
        assert link in site.pages[f"{page}.html"], link


@pytest.mark.full
def test_formulas_are_drawn_by_the_browser_alone(site):
    assert "<math" in site.pages["methods/gap_aware.html"]
    assert "<math" in site.pages["reference/rules.html"]
    for name, page in site.pages.items():
        assert not re.search(r":math:|\.\. math::|<m[io][^>]*>\\", page), name


@pytest.mark.full
def test_what_is_said_of_a_method_is_the_stored_number(site):
    row = measured.of("gap_aware")[32]
    page = site.pages["methods/gap_aware.html"]
    assert f"{row.accuracy[0]:.1f} ± {row.accuracy[1]:.1f}" in page
    assert f"{row.seconds_to_target:,.0f}" in page
    assert measured.made()["commit"] in page


@pytest.mark.full
def test_pages_of_papers_are_the_stored_ones(site):
    others = [made for made in figures(apart=True) if is_apart(made.name)]
    page = " ".join(html.unescape(re.sub(r"<[^>]+>", "", site.pages["papers/other_papers.html"])).split())
    assert len(others) >= 8
    for made in others:
        assert f"python -m experiments {made.name}" in page
        result = board.stored_result(made.name)
        for claim in result.claims if result else ():
            assert " ".join(claim.ours.split()).rstrip(".") in page, made.name
        if result is not None and result.picture is not None:
            assert (site.path / "papers" / result.picture.name).exists()
    assert 'href="papers/other_papers.html"' in site.pages["index.html"]
    assert 'href="other_papers.html"' in site.pages["papers/index.html"]
    assert "other_papers.html#beyond-ringleader" in site.pages["methods/ringleader.html"]


def test_a_table_is_linked_from_the_methods_of_its_paper_alone():
    assert paper_pages.others_of_source("Maranjyan et al. 2025") == []  # another paper than 2025b
    for source in ("Maranjyan et al. 2025b", "Stich 2019; Maranjyan et al. 2025b, Alg. 1"):
        links = [path for _, path in paper_pages.others_of_source(source)]
        assert links == ["papers/other_papers.md#beyond-mindflayer"]


@pytest.mark.full
def test_numbers_in_written_pages_are_filled_in(site):
    for name, page in site.pages.items():
        assert "[[=" not in page, name
    speedup = decision.speedup("asgd", "equal workers")
    assert f"{speedup} times the gradients per second of synchronous SGD" in " ".join(site.pages["choose.html"].split())


def test_a_method_that_registers_itself_has_a_page(monkeypatch):
    monkeypatch.setattr(RULES, "_parts", dict(RULES))
    monkeypatch.setattr(simulated, "CLUSTERS", {})
    monkeypatch.setattr(reference_pages, "everything", frozenset)

    @RULES.register(title="Halved", source="Nobody 2030, Alg. 7")
    def halved(*, learning_rate, share: float = 0.5):
        r"""Halves every gradient.

        .. math:: \theta \leftarrow \theta - \eta g / 2

        Args:
          share: what is left of a gradient.
        """

    page = method_pages.page(methods()["halved"])
    assert page.startswith("# Halved\n")
    assert "**Halves every gradient.**" in page
    assert "<math" in page
    assert "| `share` | `0.5` | what is left of a gradient. |" in page
    assert "not measured yet" in page
    assert "Nobody 2030, Alg. 7" in method_pages.index()


def test_methods_that_weigh_all_workers_alike_say_so(monkeypatch):
    monkeypatch.setattr(simulated, "CLUSTERS", {"equal workers": {"kind": "gamma"}})
    monkeypatch.setattr(reference_pages, "everything", frozenset)
    assert "all workers weigh alike under Ringleader ASGD" in method_pages.page(methods()["ringleader"])
    assert "weigh alike" not in method_pages.page(methods()["asgd"])
    assert "(methods/ringleader.md)" in decision.balanced()
    assert "(methods/asgd.md)" not in decision.balanced()


def test_slower_workers_are_said_to_make_fewer_local_steps():
    page = method_pages.page(methods()["async_diloco"])
    assert "A bar is a message of up to 8 local steps (fewer on slower workers)" in page
    assert "messages/s" in pictures.drawn(methods()["async_diloco"])
    assert "gradients/s" in pictures.drawn(methods()["asgd"])


def test_a_picture_is_the_same_each_time():
    method = methods()["backup_workers"]
    assert pictures.drawn(method) == pictures.drawn(method)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_the_makers_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
