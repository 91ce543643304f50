"""Parts declare themselves: what a part takes by keyword, with its defaults, is its configuration.

A protocol, rule, cluster, predictor, network, data set or task is a function (or a class) that registers itself where
it is defined. A run gives some of its arguments (compute times, the number of workers, a seed: each registry says
which); all others are entries of the configuration, `config.<family>.<part>.<entry>`, and flags of the command line.
The part checks its arguments itself: its `ValueError` is what a person reads, with the flag's name in front.
"""

import dataclasses
import difflib
import glob
import importlib
import inspect
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sgdlab import arguments
from sgdlab.bounds import bounded
from sgdlab.entries import as_arguments, called_of, check_default, described, entries_of, function_of
from sgdlab.errors import UsageError, with_place
from sgdlab.runtimes import NotEnoughRuntimes

if TYPE_CHECKING:
    from ml_collections import ConfigDict

_NAMED = re.compile(r"([A-Za-z_][\w.]*)(\[.*?\])?=")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts of the parts of any family; families add fields of their own, with defaults.

    Attributes:
      files: entries that name files or directories, whose content is part of what a run computes.
    """

    files: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """A registered function, and what is known of it.

    Attributes:
      name: what `config.<family>.kind` calls it.
      make: the function or class.
      title: the field's name for it.
      source: where it is described.
      facts: what else is known of it, of the registry's own type.
      defaults: its entries and their defaults; a dataclass is a group of entries.
      given: the arguments that a run gives it.
    """

    name: str
    make: Callable[..., Any]
    title: str
    source: str
    facts: Any
    defaults: Mapping[str, Any]
    given: frozenset[str]

    @property
    def is_foreign(self) -> bool:
        """True of a part that is defined outside of this package."""
        return self.make.__module__.partition(".")[0] != "sgdlab"

    @property
    def where(self) -> str:
        """The place of its definition, for messages: the name of the file, and that of the function."""
        module, name = _named(self.make)
        file = getattr(sys.modules.get(module), "__file__", None) or module
        return f"{pathlib.PurePath(file).name}, {name.rpartition('.')[2]}"

    def entries(self, **changed: Any) -> "ConfigDict":
        """Return its entries as a configuration: the defaults, but for what is given."""
        return entries_of(self.make, self.defaults, changed, self.name)

    def help(self) -> dict[str, str]:
        """Return what docstrings say of each argument, in one line; entries of a group as `group.entry`."""
        return described(self.make, self.defaults)


class Registry(Mapping[str, Part]):
    """The parts of one family by name.

    Args:
      family: what configurations call it.
      given: arguments that a run gives, and the entry of the configuration that each follows from ("" for none).
      flags: the same of arguments that only messages name.
      facts: the dataclass of what else is known of each part.
      listed: what lists all parts, for the message of `check`.
      modules: names of the modules in which parts register themselves, in the order in which tables, legends and
        `--help` list them; they are imported at the first look-up. Parts that are registered elsewhere come after.

    Example:
      >>> shapes = Registry("shape", given={"seed": "seed"})
      >>> @shapes.register(title="A box")
      ... def box(*, side: float = 1.0, lid: bool = False, seed: int) -> float:
      ...     if side <= 0:
      ...         raise ValueError(f"side={side} must be above 0")
      ...     return side**3
      >>> shapes.entries("box", box={"side": 2.0}).box.to_dict()
      {'lid': False, 'side': 2.0}
      >>> shapes.make("box", {"side": 2.0}, seed=0, weight="given to parts that name it")
      8.0
      >>> shapes.make("box", {"side": -1.0}, seed=0)
      Traceback (most recent call last):
      ...
      sgdlab.errors.UsageError: --config.shape.box.side=-1.0 must be above 0
    """

    def __init__(
        self,
        family: str,
        *,
        given: Mapping[str, str],
        flags: Mapping[str, str] | None = None,
        facts: type[Facts] = Facts,
        listed: str = "sgdlab train --help=all",
        modules: Sequence[str] = (),
    ):
        self.family = family
        self._modules = tuple(modules)
        self._imported = not modules
        self._listed = listed
        self._given = dict(given)
        self._flags = self._given | dict(flags or {})
        self._facts = facts
        self._parts: dict[str, Part] = {}

    def __getitem__(self, name: str) -> Part:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, Part]:
        """Return the parts in order, with those of all modules."""
        if not self._imported:
            self._imported = True  # modules that look parts up while they are imported get those that are there
            try:
                for module in self._modules:
                    importlib.import_module(module)
            except BaseException:
                self._imported = False
                raise
            last = len(self._modules)
            order = {module: number for number, module in enumerate(self._modules)}
            homes = {name: function_of(part.make).__module__ for name, part in self._parts.items()}
            self._parts = dict(sorted(self._parts.items(), key=lambda item: order.get(homes[item[0]], last)))
        return self._parts

    def register(self, name: str | None = None, *, title: str, source: str = "", **facts: Any) -> Callable:
        """Decorates a function or class: it becomes a part, and stays what it is.

        A function checks the bounds that its annotations declare (`sgdlab.bounds`), whoever calls it.

        Args:
          name: what configurations call it; by default its own name.
          title: the field's name for it.
          source: where it is described.
          **facts: what else is known of it.

        Raises:
          ValueError: where the name is taken by another function, or the title by another name; or an argument is
            neither given by runs nor has a default that a configuration can hold.
        """

        def decorate(make: Callable) -> Callable:
            make = bounded(make)
            called = name or make.__name__
            there = self._parts if function_of(make).__module__ in self._modules else self._all()
            known = there.get(called)
            # The same cell of a notebook, or the same module, may be run again.
            if known and _named(known.make) != _named(make):
                raise ValueError(f"name={called!r} must be another: {known.make.__module__} has that {self.family}")
            for other in there.values():  # tables and pictures tell parts by their titles
                if other.title == title and other.name != called:
                    raise ValueError(
                        f"title={title!r} of {called} must be another: the {self.family} {other.name} has it"
                    )
            parameters = list(inspect.signature(called_of(make)).parameters.values())[isinstance(make, type) :]
            plain = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
            defaults = {}
            for parameter in plain:
                if parameter.name not in self._given:
                    where, missing = f"{called}({parameter.name}=...)", parameter.default is parameter.empty
                    check_default(where, parameter.default, self._givers(parameter.name) if missing else "")
                    defaults[parameter.name] = parameter.default
            given = frozenset(p.name for p in plain if p.name in self._given)
            self._parts[called] = Part(called, make, title, source, self._typed(called, facts), defaults, given)
            return make

        return decorate

    def _typed(self, name: str, facts: Mapping[str, Any]) -> Facts:
        """Return facts as the registry's own type."""
        known = [field.name for field in dataclasses.fields(self._facts)]
        for fact in facts:
            if fact not in known:
                raise ValueError(f"{name}: the fact {fact!r} must be one of {', '.join(known)}")
        return self._facts(**facts)

    def forget(self, name: str) -> None:
        """Removes a part, such as one of a notebook that has another name now."""
        self.check(name)
        del self._parts[name]

    def entries(self, kind: str | None = None, /, **changed: Mapping[str, Any]) -> "ConfigDict":
        """The family's entries of a configuration: `kind`, and a group for each part.

        Args:
          kind: the part that runs use; None leaves it open.
          **changed: for a part, entries that differ from its defaults.

        Raises:
          ValueError: where a part or an entry is not known.
        """
        from ml_collections import ConfigDict, config_dict  # noqa: PLC0415 (an optax loop needs no configuration)

        for name in (*changed, *([kind] if kind else ())):
            self.check(name)
        config = ConfigDict({"kind": kind or config_dict.placeholder(str)})
        for name, part in self._all().items():
            config[name] = part.entries(**changed.get(name, {}))
        return config

    def check(self, name: str, given: str | None = None) -> Part:
        """Return the part of that name; `given` is how a person has given it, by default as an entry.

        Raises:
          UsageError: where there is none.
        """
        if name not in self._all():
            raise UsageError(f"{given or f'--config.{self.family}.kind={name}'} {self.right(name)}")
        return self._parts[name]

    def right(self, name: str) -> str:
        """Returns how a message on a name of no part goes on."""
        return arguments.must_be_one_of(name, self._all(), self._listed)

    def make(self, name: str, entries: Mapping[str, Any], /, **given: Any) -> Any:
        """Calls a part with its entries, and with those of the given arguments that it names.

        Raises:
          UsageError: where the part refuses an argument, and the message names the flag; where it returns nothing.
          NotEnoughRuntimes: as the part raised it.
        """
        return self.call(self.check(name), entries, given)

    def call(self, part: Part, entries: Mapping[str, Any], given: Mapping[str, Any], *, by: str | None = None) -> Any:
        """Calls a part as `make` does, or another function of it.

        Args:
          part: of this registry.
          entries: as for `make`.
          given: what the run knows; a function is given what it names.
          by: the fact that is called instead of the part.
        """
        function = part.make if by is None else getattr(part.facts, by)
        names = part.given if by is None else inspect.signature(called_of(function)).parameters
        known = {key: value for key, value in given.items() if key in names}
        flag = f"--config.{self.family}.{part.name}"
        try:
            made = function(**as_arguments(part.defaults, entries), **known)
            if made is None:
                raise UsageError(
                    f"--config.{self.family}.kind={part.name} returned None: is `return` missing? ({part.where})"
                )
            return made
        except (UsageError, NotEnoughRuntimes):
            raise
        except FileNotFoundError as error:
            for entry in part.facts.files:
                value = entries.get(entry, part.defaults[entry])
                for path in value if isinstance(value, tuple | list) else () if value is None else (value,):
                    if _is_missing(path, error.filename):
                        raise UsageError(f"{flag}.{entry}={path} must be a file that is there") from error
            raise
        except ValueError as error:
            # What is no argument's fault may be a mistake in somebody's code, whose line is what they need.
            by_flag = self._flag_of(part, str(error)) or f"--config.{self.family}.kind={part.name}: {with_place(error)}"
            raise UsageError(by_flag) from error

    def _givers(self, name: str) -> str:
        """Return how a message goes on about an argument that runs do not give."""
        meant = difflib.get_close_matches(name, self._given, n=1, cutoff=0.5)
        hint = f" (did you mean {meant[0]}?)" if meant else ""
        return f"; runs give {', '.join(self._given)}{hint}" if self._given else ""

    def _flag_of(self, part: Part, message: str) -> str | None:
        """A message that begins with an argument, with the flag in its place; None where it begins with none."""
        named = _NAMED.match(message)
        argument = named.group(1) if named else ""
        if argument.split(".")[0] in part.defaults:
            return f"--config.{self.family}.{part.name}.{message}"
        if self._flags.get(argument):
            return f"--config.{self._flags[argument]}{message.removeprefix(argument)}"
        return None


def _is_missing(path: str, missed: Any) -> bool:
    """Return True if a path, or a pattern, finds no file, and that is what an error missed (None: it does not say)."""
    place = pathlib.Path(path).expanduser()
    if path and (place.exists() or glob.glob(str(place))):
        return False
    if missed is None or str(missed) == path:
        return True
    absolute = pathlib.Path(os.fsdecode(missed)).absolute()
    return bool(path) and (absolute == place.absolute() or place.absolute() in absolute.parents)


def _named(make: Callable) -> tuple[str, str]:
    """Return the module of a function, and its name there."""
    function = function_of(make)
    return function.__module__, getattr(function, "__qualname__", type(function).__qualname__)


_HOMES = {
    "CLUSTERS": "sgdlab.cluster.family",
    "COMPRESSIONS": "sgdlab.compressions.family",
    "DATASETS": "sgdlab.data.family",
    "FAILURES": "sgdlab.failures.family",
    "FAMILIES": "sgdlab.families",
    "GRAPHS": "sgdlab.graphs.family",
    "NETWORKS": "sgdlab.networks.family",
    "PREDICTORS": "sgdlab.predictors.family",
    "PROTOCOLS": "sgdlab.protocols.family",
    "RATIO_RULES": "sgdlab.rollouts.family",
    "ROLLOUT_LENGTHS": "sgdlab.rollouts.family",
    "RULES": "sgdlab.rules.family",
    "STALENESS_POLICIES": "sgdlab.rollouts.family",
    "TASKS": "sgdlab.tasks.family",
    "TRACES": "sgdlab.traces.family",
    "TRANSPORTS": "sgdlab.transports.family",
}
"""Modules in which the registries stand; they can be imported from here too."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
