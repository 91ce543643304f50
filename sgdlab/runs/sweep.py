"""A sweep: runs of one base configuration over what varies, each kept by its own settings and never done twice."""

import ast
import dataclasses
import functools
import itertools
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from ml_collections import ConfigDict

from sgdlab import arguments
from sgdlab.results.records import Records
from sgdlab.runs import digests
from sgdlab.runs import session as sessions
from sgdlab.runs.configuration import flat, value_of
from sgdlab.runs.executor import finish
from sgdlab.runs.store import key_of
from sgdlab.runs.work import Point, Settings, Work, called_with, identity, name_of, parts_of_code, train

_SET_OTHERWISE = {
    "method": "methods",
    "protocol.kind": "methods",
    "rule.kind": "methods",
    "cluster.num_workers": "num_workers",
    "cluster.first_workers": "num_workers",
    "seed": "seeds",
}
"""Entries that a comparison sets by what it calls otherwise."""

_COMMAS = re.compile(r",(?![^(\[]*[)\]])")
"""Between values, and not inside of one."""


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Runs of a base configuration over what varies.

    A run is kept under a hash of its own whole settings, of the parts that it uses: order, place and other runs do not
    matter. It is done anew where code has changed since: that of the parts of a configuration; that of any other work
    in its own folder, and of what it `goes_by`.

    Attributes:
      base: a configuration such as `configs.digits` makes, for `work(config)`; or a mapping, for `work(**settings)`.
      over: setting -> values, whose product is done; or a list of mappings, one for each run.
      work: a function of a module, from a run's settings to its result: a mapping of numbers, texts and lists; or all
        its records, the last of which is that mapping. By default, a configuration is trained. Where it names them, it
        is given `report`, which appends a record as soon as it is there; `folder`, a directory of its own that outlives
        an interruption, for checkpoints and models; `alike`, the `Alike` of its group.
      together: settings; runs that agree in them are done one after the other by one process, since they share
        something. Where a configuration is trained, runs that share a compiled program are done next to each other.
      files: settings that name files or directories. Their content counts, and not their place; of the parts of a
        configuration this is known.
      label: from a run's settings to what the name of its file begins with, for a person. None: nothing.

    Raises:
      ValueError: where a setting is not one of the base, or of the function's.

    Example:
      >>> import tempfile
      >>> import numpy as np
      >>> def thrown(*, dice: int, sides: int, seed: int) -> dict[str, int]:
      ...     return {"total": int(np.random.default_rng(seed).integers(1, sides + 1, size=dice).sum())}
      >>> sweep = Sweep({"sides": 6}, {"dice": [1, 2], "seed": range(3)}, work=thrown)
      >>> len(sweep.runs), str(sweep.runs[0])
      (6, 'dice=1, seed 0')
      >>> with sessions.within(sessions.Session(pathlib.Path(tempfile.mkdtemp()), jobs=1)):
      ...     table = sweep.table()  # doctest: +ELLIPSIS
      6 runs to do
      [1/6] dice=1, seed 0: done in ...
      >>> table.groupby("dice").total.mean().tolist()
      [5.0, 8.333333333333334]
    """

    base: Settings | Mapping[str, Any]
    over: Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    work: Work = train
    together: Sequence[str] = ()
    files: Sequence[str] = ()
    label: Callable[[Any], str] | None = None

    @functools.cached_property
    def runs(self) -> list[Point]:
        """The runs, in the order of `over`."""
        if isinstance(self.over, Mapping):
            names = list(self.over)
            points = [dict(zip(names, values, strict=True)) for values in itertools.product(*self.over.values())]
        else:
            points = [dict(point) for point in self.over]
        return [self._run(point) for point in points]

    def records(self) -> list[tuple[dict[str, Any], Records]]:
        """Return what is varied and the records of each run; runs that are not there yet are done.

        Raises:
          UsageError: where settings are impossible.
          RunFailed: where a run raises an error.
          Unfinished: where this command does a share of the runs, or none, and others are missing.
        """
        session = sessions.current()
        found = finish([self], session)
        session.used.update(found)
        for run in self.runs:
            session.code.update(parts_of_code(self.work, run.settings))
        return [(run.varied, found[run.key]) for run in self.runs]

    def table(self) -> pd.DataFrame:
        """Return a row a run: what varies, then its result. Raises as `records` does."""
        return self._rows(lambda records: records[-1:])

    def evaluations(self) -> pd.DataFrame:
        """Return a row an evaluation: what varies, then its record. Raises as `records` does."""
        return self._rows(lambda records: [record for record in records if record["kind"] == "evaluation"])

    def _rows(self, shown: Callable[[Records], Records]) -> pd.DataFrame:
        rows = ((varied, record) for varied, records in self.records() for record in shown(records))
        return pd.DataFrame([_plain(varied) | _entries(record, varied) for varied, record in rows])

    def folders(self) -> list[pathlib.Path]:
        """Return the directory of each run, with what it wrote there. Raises as `records` does."""
        self.records()
        store = sessions.current().store
        return [store.folder(run.name) for run in self.runs]

    def _run(self, point: Mapping[str, Any]) -> Point:
        if isinstance(self.base, ConfigDict):
            settings = self.base.copy_and_resolve_references()
            known = sorted(name for name, _ in flat(settings))
            for name, value in point.items():
                if name not in known:
                    raise ValueError(f"over: {name!r} must be an entry of the base{_meant(name, known)}")
                settings.update_from_flattened_dict({name: value})
            whole = identity(settings)
        else:
            settings = called_with(self.work, {**self.base, **point})
            whole = dict(settings)
        for name in self.files:
            whole = _with(whole, name.split("."), digests.of_content)
        label = self.label(settings) if self.label else ""
        return Point(key_of({"work": name_of(self.work), "settings": whole}), dict(point), settings, label)


def prepare(*sweeps: Sweep) -> None:
    """Do the missing runs of several sweeps in one pool, of one kind or of several; the sweeps find them afterwards.

    So no core waits for the last run of one sweep before the next begins, and a scheduler's array (`--shard`) does all
    of them. The sweeps must not depend on each other's results.

    Args:
      *sweeps: what a figure asks for next. Raises as `Sweep.records` does.

    Example:
      >>> import tempfile
      >>> def highest(*, dice: int, sides: int) -> dict[str, int]:
      ...     return {"total": dice * sides}
      >>> one, two = (Sweep({"dice": dice}, {"sides": [6, 8]}, work=highest) for dice in (1, 2))
      >>> with sessions.within(sessions.Session(pathlib.Path(tempfile.mkdtemp()), jobs=1)):
      ...     prepare(one, two)  # doctest: +ELLIPSIS
      ...     table = two.table()
      4 runs to do
      [1/4] ...
      2 runs found finished in ...
    """
    finish(sweeps, sessions.current())


def _with(entries: Mapping[str, Any], name: Sequence[str], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the entries with one of them changed, if it is set."""
    first, *rest = name
    value = entries.get(first)
    if not value:
        return dict(entries)
    return {**entries, first: _with(value, rest, change) if rest else change(value)}


def _entries(record: Mapping[str, Any], varied: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in ("kind", "files", *varied)}


def _plain(varied: Mapping[str, Any]) -> dict[str, Any]:
    """Return what varies, as values that a table can be grouped by."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in varied.items()}


def read_over(texts: Sequence[str], config: ConfigDict) -> dict[str, list[Any]]:
    """Return the entries and values that flags name.

    Args:
      texts: such as "optimizer.learning_rate=0.01,0.05"; values of several numbers are in brackets.
      config: whose entries they are.

    Raises:
      ValueError: as `check_over` does.

    Example:
      >>> from configs import digits
      >>> texts = ["optimizer.learning_rate=0.01,0.05", "network.conv.channels=(8,16),(32,64)"]
      >>> read_over(texts, digits.get_config())
      {'optimizer.learning_rate': [0.01, 0.05], 'network.conv.channels': [(8, 16), (32, 64)]}
    """
    over: dict[str, Any] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise ValueError(f"sweep={text} must be an entry and its values, as in optimizer.learning_rate=0.01,0.05")
        if name in over:
            raise ValueError(f"sweep={text} must be joined with sweep={name}={','.join(map(str, over[name]))}")
        _check_name(name, config)
        over[name] = [_value(name, value.strip(), config) for value in _COMMAS.split(values)]
    return check_over(over, config)


def check_over(over: Mapping[str, Sequence[Any]], config: ConfigDict) -> dict[str, list[Any]]:
    """Return the entries that a comparison varies besides methods, workers and seeds, and their values, each once.

    Raises:
      ValueError: where there is no such entry, a value is not one of it, or a comparison sets the entry otherwise.
    """
    checked = {}
    for name, values in over.items():
        _check_name(name, config)
        if isinstance(values, str) or not list(values):
            raise ValueError(f"sweep={name}={values!r} must be several values")
        copy = config.copy_and_resolve_references()
        for value in values:
            try:
                copy.update_from_flattened_dict({name: value})
            except TypeError as error:
                kind = _type(name, config).__name__
                raise ValueError(f"sweep={name}={value!r} must be of type {kind}, as the entry is") from error
        checked[name] = [value for place, value in enumerate(values) if value not in list(values)[:place]]
    return checked


def _check_name(name: str, config: ConfigDict) -> None:
    if name in _SET_OTHERWISE:
        raise ValueError(f"sweep={name} must be left out: a comparison sets it by {_SET_OTHERWISE[name]}")
    known = [entry for entry, _ in flat(config)]
    if name not in known:
        raise ValueError(f"sweep={name} must be an entry of the configuration{_meant(name, known)}")


def _meant(name: str, known: Sequence[str]) -> str:
    near = " or ".join(arguments.nearest(name, known))
    return near and f"; did you mean {near}?"


def _type(name: str, config: ConfigDict) -> type:
    group, _, last = name.rpartition(".")
    return (value_of(config, group) if group else config).get_type(last)


def _value(name: str, text: str, config: ConfigDict) -> Any:
    """Return the value that a text stands for; `check_over` says where it is none of the entry."""
    if _type(name, config) is str:
        return text
    words: dict[str, Any] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
