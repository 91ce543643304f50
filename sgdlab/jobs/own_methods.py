"""`register_method`: a protocol and a rule that stand, with entries of one's own, under a name of one's own."""

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from sgdlab import policies, protocols, rules  # noqa: F401 (the parts register themselves)
from sgdlab.jobs.local_steps import Local
from sgdlab.jobs.method import OTHERS, OWN, Method, of_parts
from sgdlab.jobs.presets import PRESETS
from sgdlab.registry import PROTOCOLS, RULES, Registry

_modules: dict[str, dict[str, Any]] = {}
"""The globals of the module that registered each."""


def register_method(
    name: str,
    *,
    protocol: str,
    rule: str,
    title: str,
    source: str = "",
    families: tuple[str, ...] = OTHERS,
    entries: Mapping[str, Any] | None = None,
    rule_entries: Mapping[str, Any] | None = None,
    local: Mapping[str, Any] | None = None,
) -> Method:
    """Makes a method of a protocol and a rule: a name for `--methods`, and a row of its own in tables and pictures.

    A protocol that names its usual rule when it is registered, and a rule, are methods already, under their own names.

    Args:
      name: what configurations and `--methods` call it.
      protocol: one of `sgdlab.registry.PROTOCOLS`.
      rule: one of `sgdlab.registry.RULES`.
      title: what tables and pictures call it.
      source: where it is described.
      families: titles of the panels of pictures in which it is drawn.
      entries: of the protocol, where they differ from its defaults: what the name means.
      rule_entries: of the rule, likewise.
      local: of `config.local`, such as `{"steps": 8}`, what it means where the configuration leaves them open.

    Returns:
      The `Method`.

    Raises:
      ValueError: where the name is taken, or a protocol, a rule or an entry is not known.

    Example:
      >>> from sgdlab.jobs.methods import methods
      >>> _ = register_method("tight", protocol="bounded_staleness", rule="asgd", title="Tight", entries={"bound": 1})
      >>> methods()["tight"].entries
      {'bound': 1}
      >>> register_method("looser", protocol="bounded_staleness", rule="asgd", title="Looser", entries={"bond": 9})
      Traceback (most recent call last):
      ...
      ValueError: entries name 'bond', which protocol bounded_staleness does not have; did you mean 'bound'?
      >>> forget_method("tight")
    """
    if not name.isidentifier():
        raise ValueError(f"name={name!r} must be a name such as 'tight_bound', of letters, digits and underscores")
    frame: Any = inspect.currentframe()
    caller = frame.f_back.f_globals
    known = _modules.get(name)
    # The same cell of a notebook, or the same module, may be run again.
    same = known is not None and known["__name__"] == caller["__name__"]
    again = same and (known is not caller or known["__name__"] == "__main__")
    if not again and (name in OWN or name in of_parts() or any(name == preset.name for preset in PRESETS)):
        raise ValueError(f"name={name!r} must be another: there is a method of that name")
    entries, rule_entries, local = entries or {}, rule_entries or {}, local or {}
    for family, part, registry, own, named in (
        ("protocol", protocol, PROTOCOLS, entries, "entries"),
        ("rule", rule, RULES, rule_entries, "rule_entries"),
    ):
        if part not in registry:
            raise ValueError(f"{family}={part!r} {registry.right(part)}")
        _check_names(named, own, registry[part].defaults, f"{family} {part}")
        _check_kinds(named, own, registry, part)
    _check_names("local", local, Local.__dataclass_fields__, "config.local")
    made = Method(name, protocol, rule, title, source, tuple(families), entries, local, rule_entries)
    OWN[name], _modules[name] = made, caller
    return made


def forget_method(name: str) -> None:
    """Removes a method that `register_method` made.

    Raises:
      ValueError: where there is none.
    """
    if name not in OWN:
        raise ValueError(f"name={name!r} must be one of {', '.join(OWN) or 'none: no method is registered'}")
    del OWN[name], _modules[name]


def files() -> dict[str, str]:
    """The modules that registered methods: name -> file, scripts that run left out."""
    found = {module["__name__"]: module.get("__file__") for module in _modules.values()}
    return {name: file for name, file in found.items() if file and name not in ("__main__", "__mp_main__")}


def stand_in_files() -> bool:
    """Whether all methods were registered in files, which other processes can import; those of a notebook are not."""
    return all(module.get("__file__") for module in _modules.values())


def _check_names(argument: str, given: Iterable[str], known: Iterable[str], of: str) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            cure = _meant(name, known) or f"; it has {', '.join(known) or 'none'}"
            raise ValueError(f"{argument} name {name!r}, which {of} does not have{cure}")


def _check_kinds(argument: str, given: Mapping[str, Any], registry: Registry, part: str) -> None:
    config = registry[part].entries()
    for name, value in given.items():
        try:
            config[name] = value
        except TypeError as error:
            raise ValueError(f"{argument}={{{name!r}: {value!r}}} must be of another kind: {error}") from error


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
