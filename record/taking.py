"""Takes the predictors into this distribution from the sgdlab beside it, when a wheel or a source archive is built.

Their equations stay in `sgdlab/predictors`, by whose code stored results count, and sgdlab's wheel needs no other
package. What is built has them as `sgdlab_record.taken`, with `sgdlab_record.special` in the place of SciPy; an
editable installation, or PYTHONPATH, has no `taken`, and reads sgdlab itself.
"""

import pathlib
import re

from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = pathlib.Path(__file__).parent
SGDLAB = ROOT.parent / "sgdlab"
TAKEN = "sgdlab_record/taken"
MODULES = (
    *("arguments", "arrays", "errors", "files", "runtimes"),
    *(
        f"predictors/{name}"
        for name in ("censoring", "dropping", "guarded", "kalman", "order_statistics", "predictor", "windowed")
    ),
)
MADE = {
    "__init__": '"""Modules of sgdlab, as they were when this was built."""\n',
    "predictors/__init__": '"""Predictors of sgdlab."""\n',
    "predictors/family": (
        '"""Stands for the registry of sgdlab: nothing is chosen by name here."""\n\n\n'
        "class PREDICTORS:\n"
        '    """Registers nothing."""\n\n'
        "    @staticmethod\n"
        "    def register(*names, **facts):\n"
        '        """Return what leaves a part as it is."""\n'
        "        return lambda part: part\n"
    ),
}
"""Modules that are written here."""

_CHANGES = (
    (r'\A("""(?:.|\n)*?"""\n)', r"\1\nfrom __future__ import annotations\n"),  # types as Python 3.9 cannot read them
    (r"^( *)from sgdlab(\.[\w.]+)? import ", r"\1from sgdlab_record.taken\2 import "),
    (r"^( *)from scipy import special", r"\1from sgdlab_record import special"),
    (r", strict=True\)", ")"),  # of `zip`, from Python 3.10 on
)


def changed(text: str) -> str:
    """Return a module of sgdlab as this distribution has it."""
    for pattern, new in _CHANGES:
        text = re.sub(pattern, new, text, flags=re.MULTILINE)
    return text


def take(folder: pathlib.Path) -> None:
    """Write the modules, from sgdlab beside this; a source archive has them already."""
    if (ROOT / TAKEN).is_dir():
        return
    if not SGDLAB.is_dir():
        raise FileNotFoundError(f"{SGDLAB} must be there, of which the predictors are taken: build in a checkout")
    texts = {name: changed((SGDLAB / f"{name}.py").read_text(encoding="utf-8")) for name in MODULES}
    for name, text in {**MADE, **texts}.items():
        path = folder / TAKEN / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


class Build(build_py):
    """Builds the modules, and takes those of sgdlab."""

    def run(self) -> None:
        """Build; an editable installation takes nothing, and so never has old code."""
        super().run()
        if not self.editable_mode:
            take(pathlib.Path(self.build_lib))


class Archive(sdist):
    """Archives the sources, those of sgdlab among them."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Fill the folder that is archived."""
        super().make_release_tree(base_dir, files)
        take(pathlib.Path(base_dir))


COMMANDS = {"build_py": Build, "sdist": Archive}
