"""Self-contained HTML pages: one style, and pictures embedded, so that a page refers to no other file."""

import base64
import io
import pathlib
from typing import Any

import jinja2
from PIL import Image


def render(package: str, template: str, **values: Any) -> str:
    """Renders a template that extends `base.html`, the head and style of all pages, as HTML.

    A name that the template needs and does not get is an error.
    """
    loaders = [jinja2.PackageLoader(package, ""), jinja2.PackageLoader("sgdlab.report", "")]
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, loader=jinja2.ChoiceLoader(loaders)
    )
    return environment.get_template(template).render(**values)


def embedded(path: pathlib.Path) -> str:
    """A picture as the source of an `img`: SVG as it is, PNG with a palette of 128 colours, which keeps pages small."""
    kind, content = ("svg+xml", path.read_bytes()) if path.suffix == ".svg" else ("png", small_png(path))
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def small_png(path: pathlib.Path) -> bytes:
    """A PNG with a palette of 128 colours: plots look the same, and take a third of the space.

    One that has a palette already stays as it is.
    """
    written = io.BytesIO()
    with Image.open(path) as image:
        if image.mode == "P":
            return path.read_bytes()
        image.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(written, "png", optimize=True)
    return written.getvalue()
