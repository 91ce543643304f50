"""`@figure` makes a function of keyword arguments a command that reproduces a table or figure of a paper."""

import dataclasses
import importlib
import inspect
import pathlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure as Picture

import experiments
from experiments.harness.claims import Claim
from experiments.harness.options import Option, options
from experiments.harness.pictures import STYLE
from experiments.papers import Paper
from sgdlab.errors import RunFailed, failures_of

SCALES = ("smoke", "laptop", "decide", "gpu", "paper")
"""From seconds to days. Laptop is what the signature's defaults are; at decide, a figure's claims can be decided."""

_LARGER = ("gpu", "paper")
_PAPERS = ("backup_workers", "gap_aware", "weak_sync", "cutoff", "gossip")
_APART = ("beyond", "rollouts")
"""Folders whose figures are listed, and made one by one, but belong neither to `all` nor to the scoreboard."""
_NOT_OF_PAPERS = ("benchmarks", "colab", "harness", "pictures", "results")


def folders() -> list[str]:
    """The folders of `experiments/` whose modules may hold figures, one each: those of the papers, then others."""
    found = [path for root in experiments.__path__ for path in sorted(pathlib.Path(root).iterdir()) if path.is_dir()]
    others = [path.name for path in found if path.name not in (*_PAPERS, *_NOT_OF_PAPERS) and path.name.isidentifier()]
    return [*_PAPERS, *(name for name in others if not name.startswith("_"))]


class Scale:
    """A size at which a figure can be made.

    Args:
      takes: how long that takes, in words, such as "4 min".
      after: the figure whose runs it shares, which are not counted in.
      **values: the arguments that differ from the function's defaults.

    Example:
      >>> Scale("5 s", seeds=1).values
      {'seeds': 1}
    """

    def __init__(self, takes: str, *, after: str | None = None, **values: Any):
        self.takes = takes if after is None else f"{takes} after {after}"
        self.after, self.values = after, values


@dataclasses.dataclass(frozen=True)
class Output:
    """Holds what a figure's function returns.

    Attributes:
      table: in long form: what a row is about, then its numbers in the columns `ours` and `paper`.
      picture: drawn in the style of `experiments.harness.pictures`.
      claims: sentences of the paper with verdicts.
      notes: sentences below the table.
    """

    table: pd.DataFrame
    picture: Picture | None = None
    claims: Sequence[Claim] = ()
    notes: Sequence[str] = ()

    def __post_init__(self):
        lacking = [name for name in ("ours", "paper") if name not in self.table.columns]
        if lacking:
            columns = ", ".join(map(str, self.table.columns))
            raise ValueError(f"Output: the table's columns ({columns}) must hold {' and '.join(lacking)} too")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A command that reproduces a table or a figure.

    Attributes:
      name: folder and module, such as "gossip.bounds".
      make: the function.
      paper: the paper.
      numbers: the rows of the paper that it reproduces, or what else of it.
      scales: name -> size.
      differs: why numbers differ from the paper's, in one or two sentences.
      text: the module's docstring.
      full_size: laptop is the paper's own size.
      stand_in: what the runs train on in place of what, such as "digits in place of CIFAR-10"; "" where nothing is
        replaced. Ours and the paper's numbers are then of different data, and no difference is taken.
    """

    name: str
    make: Callable[..., Output]
    paper: Paper
    numbers: tuple[str, ...]
    scales: Mapping[str, Scale]
    differs: str
    text: str
    full_size: bool = False
    stand_in: str = ""

    @property
    def title(self) -> str:
        """Return the first line of the module's docstring, less the source in parentheses at its end."""
        return re.sub(r"(\s\([^()]*\))?\.$", "", self.text.strip().partition("\n")[0])

    @property
    def options(self) -> dict[str, Option]:
        """Return the function's arguments."""
        return options(self.make)

    def values(self, scale: str) -> dict[str, Any]:
        """Return the arguments at a scale."""
        return {name: option.default for name, option in self.options.items()} | self.scales[scale].values

    def __call__(self, **values: Any) -> Output:
        """Return the figure for arguments that are given in Python; runs are kept in the current session.

        Raises:
          ValueError: where an argument is impossible; it names it.
        """
        found = self.options
        for name, value in values.items():
            if name not in found:
                raise ValueError(f"{name}={value!r} must be one of {', '.join(found)}")
        with mpl.rc_context(STYLE):
            return self.make(**{name: found[name].check(value) for name, value in values.items()})


_FIGURES: dict[str, Figure] = {}


def figure(
    paper: Paper,
    numbers: str | tuple[str, ...],
    *,
    scales: Mapping[str, Scale],
    differs: str,
    full_size: bool = False,
    stand_in: str = "",
) -> Callable[[Callable[..., Output]], Figure]:
    """Makes a function a command, `python -m experiments FOLDER.MODULE`.

    Its flags are its keyword arguments, whose types say what they may be (`Count`, `Positive`, `list[Share]`) and whose
    meaning its docstring says; each `Scale` gives some of them other defaults.

    A closed form, or a simulation of as many workers and updates as the paper has, takes a laptop no longer than a GPU:
    with `full_size=True`, the scales gpu and paper are the scale laptop by another name, and share its runs.

    Args:
      paper: one of `experiments.papers`.
      numbers: rows of the paper, or else a name for what the paper claims but shows nowhere.
      scales: name in `SCALES` -> size; among them "smoke", which takes seconds, and "laptop", the signature's defaults;
        "decide" where more runs, or longer ones, decide claims that laptop leaves open.
      differs: why the numbers differ from the paper's.
      full_size: laptop is the paper's own size, so that gpu and paper are not among the scales that are given.
      stand_in: what the runs train on in place of what, such as "digits in place of CIFAR-10".

    Raises:
      ValueError: where a scale is not known, has an argument that the function does not take, or is one too many.
    """

    def register(make: Callable[..., Output]) -> Figure:
        if make.__module__ == "__main__":  # python -m experiments.gossip.bounds: the module is imported by its own name
            command = importlib.import_module("experiments.harness.command")
            sys.exit(command.main([sys.modules["__main__"].__spec__.name.partition(".")[2], *sys.argv[1:]]))
        name = ".".join(make.__module__.split(".")[-2:])
        module = inspect.getmodule(make)
        text = (module and module.__doc__) or make.__doc__ or ""
        rows = (numbers,) if isinstance(numbers, str) else tuple(numbers)
        given = dict(scales)
        if full_size:
            if own := [scale for scale in _LARGER if scale in given]:
                raise ValueError(
                    f"scales: {', '.join(own)} must be left out, or full_size=True: laptop stands for them"
                )
            given |= dict.fromkeys(_LARGER, given["laptop"]) if "laptop" in given else {}
        made = Figure(name, make, paper, rows, given, differs, text, full_size, stand_in)
        known = made.options
        for scale, size in made.scales.items():
            if scale not in SCALES:
                raise ValueError(f"scales: {scale!r} must be one of {', '.join(SCALES)}")
            for argument, value in size.values.items():
                if argument not in known:
                    raise ValueError(f"scales: {scale}: {argument!r} must be one of {', '.join(known)}")
                known[argument].check(value)
        for scale in ("smoke", "laptop"):
            if scale not in made.scales:
                raise ValueError(f"scales: {', '.join(made.scales)} must hold {scale}")
        _FIGURES[name] = made
        return made

    return register


def names() -> list[str]:
    """Return the modules of the papers' folders, of which some hold figures: nothing is imported."""
    return [
        f"{folder}.{module.name}"
        for folder in folders()
        for module in pkgutil.iter_modules([f"{path}/{folder}" for path in experiments.__path__])
    ]


def is_apart(name: str) -> bool:
    """Return whether a figure belongs to neither `all` nor the scoreboard.

    Example:
      >>> is_apart("beyond.ringleader"), is_apart("gossip.bounds")
      (True, False)
    """
    return name.partition(".")[0] in _APART


def find_figure(name: str) -> Figure | None:
    """Return the figure of a module, which is imported; None where it holds none.

    Example:
      >>> find_figure("gap_aware.figure3").numbers
      ('Figure 3',)
    """
    with failures_of(f"experiments/{name.replace('.', '/')}.py"):
        importlib.import_module(f"experiments.{name}")
    return _FIGURES.get(name)


def figures(broken: Callable[[str, RunFailed], None] | None = None, *, apart: bool = False) -> list[Figure]:
    """Return all figures, in the order of the papers' folders and rows.

    Args:
      broken: called with a module that cannot be imported, which must not keep the others; by default, it is printed.
      apart: also those of `beyond`, which check single claims of many papers.
    """
    found, order = [], folders()
    for name in names():
        if is_apart(name) and not apart:
            continue
        try:
            found.append(find_figure(name))
        except RunFailed as error:
            (broken or _print)(name, error)

    def place(made: Figure) -> tuple[int, int]:
        rows = list(made.paper.rows)
        return order.index(made.name.partition(".")[0]), min(
            (rows.index(number) for number in made.numbers if number in rows), default=len(rows)
        )

    return sorted((made for made in found if made is not None), key=place)


def by_number(paper: Paper, found: Iterable[Figure]) -> dict[str, Figure | None]:
    """Return the rows of a paper, then what is checked besides -> the figure that makes it; None: there is none."""
    made = {number: each for each in found if each.paper == paper for number in each.numbers}
    return dict.fromkeys(paper.rows) | made


def _print(name: str, error: RunFailed) -> None:
    """Says in one line what is wrong with a module."""
    print(f"experiments.{name} cannot be read: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
