"""Adds the pages that are made, and fills in numbers in those that are written, when the site's builder calls."""

import pathlib
import pkgutil
import posixpath
import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.making import filled, method_pages, paper_pages, pictures, reference_pages
from experiments.harness import scoreboard
from sgdlab.runs.methods import methods

ROOT = pathlib.Path(__file__).parents[2]

_PICTURE = re.compile(r"(!\[[^\]]*\])\((?:\.\./)+(experiments/[^)]+)\)")
_UPWARDS = re.compile(r"\[([^\]]+)\]\((\.\./[^)#]*)(#[^)]*)?\)")
_NAME = re.compile(r"^ *```.*?^ *```$|\[[^\]]*\]\([^)]*\)|`([\w.]+)`", re.DOTALL | re.MULTILINE)
"""A word in code; blocks of code and links are matched first, so that nothing in them is."""
_STORED = "../experiments/results/"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists the pages that are made."""
    for entry in config.nav:
        made = {"Methods": _methods, "The papers": _papers, "Reference": _reference}.get(next(iter(entry)))
        if made is not None:
            entry[next(iter(entry))] = made()
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Makes them."""

    def add(path: str, content: str) -> None:
        files.append(File.generated(config, path, content=content))

    add("methods/index.md", method_pages.index())
    for method in methods().values():
        add(method_pages.path(method), method_pages.page(method))
        if pictures.name(method) not in files.src_uris:
            add(pictures.name(method), pictures.drawn(method))
    add("reference/index.md", reference_pages.index())
    for package in reference_pages.PACKAGES:
        add(reference_pages.path(package), reference_pages.page(package))
    for path, content in paper_pages.pages().items():
        add(path, content)
    written = (
        ROOT / "docs" / file.src_uri for file in files if file.generated_by is None and file.is_documentation_page()
    )
    for picture in {found[2] for path in written for found in _PICTURE.finditer(path.read_text(encoding="utf-8"))}:
        files.append(File.generated(config, f"shown/{posixpath.basename(picture)}", abs_src_path=str(ROOT / picture)))
    for file in paper_pages.beside():
        files.append(File.generated(config, f"papers/{file.name}", abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Page, **extra: Any) -> str:
    """Fills in numbers and adds links, so that the same page has working links on a forge and in the site.

    A link to a paper's stored page leads to its page here; any other link out of docs/ becomes the file's name. Names
    of methods and of the public API, in code, become links to their pages. Pictures of results are shown.
    """
    del extra
    folder = posixpath.dirname(page.file.src_uri)
    if page.file.generated_by is None:
        markdown = filled.page(markdown)
        above = "../" * bool(folder)
        markdown = _PICTURE.sub(lambda found: f"{found[1]}({above}shown/{posixpath.basename(found[2])})", markdown)
        markdown = _NAME.sub(lambda found: _linked(found[0], found[1] or "", above), markdown)

    def inside(link: re.Match) -> str:
        path = posixpath.normpath(posixpath.join(folder, link.group(2)))
        if (stored := path.removeprefix(_STORED)) in paper_pages.names():
            target = "index.md" if stored == scoreboard.PAGE else stored
            return f"[{link.group(1)}]({'../' * bool(folder)}papers/{target}{link.group(3) or ''})"
        return f"{link.group(1)} (`{path.removeprefix('../')}`)" if path.startswith("..") else link.group(0)

    return _UPWARDS.sub(inside, markdown)


def _linked(text: str, name: str, above: str) -> str:
    """Return a word in code with a link to its page, if it names a method or an object of the reference."""
    if name in methods():
        return f"[{text}]({above}{method_pages.path(methods()[name])})"
    if name.startswith("sgdlab."):
        try:
            value = pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            return text
        full = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
        return f"[{text}][{full}]" if full in reference_pages.everything() else text
    return text


def _methods() -> list[Any]:
    families = [
        {family: [{method.title: method_pages.path(method)} for method in members]}
        for family, members in method_pages.by_family().items()
    ]
    return ["methods/index.md", *families]


def _papers() -> list[str]:
    return list(paper_pages.pages())


def _reference() -> list[str]:
    return ["reference/index.md", *map(reference_pages.path, reference_pages.PACKAGES)]
