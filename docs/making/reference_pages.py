"""The API reference: a page for each package, with what it exports."""

import functools
import importlib
import inspect

from sgdlab.protocols.family import PROTOCOLS

PACKAGES = {
    "schedule": "The schedule: who computed which gradient on which version, and when it entered which update",
    "peer_schedule": "The schedule of nodes without a server",
    "registry": "Parts declare themselves",
    "cluster": "How long workers and messages take",
    "protocols": "Whom to wait for, from compute times",
    "policies": "Whom to wait for, event by event",
    "rollouts": "Staleness in reinforcement learning of language models",
    "rules": "What the server does with a gradient",
    "transports": "Costs of messages, and of the server's work",
    "failures": "Failures of workers",
    "compressions": "What workers send",
    "predictors": "How many workers to wait for, predicted",
    "deep_markov": "The learned predictor",
    "replay": "Executes a schedule",
    "theory": "Certificates of schedules, and times that no method can beat",
    "graphs": "Who talks to whom where there is no server",
    "networks": "Flax networks",
    "data": "Data sets and batches",
    "tasks": "A network as pure functions",
    "traces": "Recorded compute times",
    "hosts": "Many processes as one",
}
"""Module of sgdlab -> what it is."""

PARTS = ("policies", "networks", "predictors", "compressions")
"""Packages whose classes have the methods of an interface, which is described once."""

INTERFACES = (
    "sgdlab.protocols.policy.Policy",
    "sgdlab.protocols.policy.Base",
    "sgdlab.predictors.predictor.Predictor",
    "sgdlab.compressions.compressor.Compressor",
    "sgdlab.compressions.compressor.VectorCompressor",
)
BRIEF = "\n    options:\n      members: false"


def path(package: str) -> str:
    """Return the page of a package."""
    return f"reference/{package}.md"


def page(package: str) -> str:
    """Everything that a module exports, or, of a module of its own, what it defines."""
    lines = [f"# sgdlab.{package}", f"{PACKAGES[package]}."]
    lines += [f"::: {name}" + BRIEF * (package in PARTS and name not in INTERFACES) for name in exported(package)]
    return "\n\n".join(lines) + "\n"


def index() -> str:
    """Return the packages, each with a sentence."""
    listed = [
        f"* [`sgdlab.{package}`]({package}.md): {what[0].lower() + what[1:]}" for package, what in PACKAGES.items()
    ]
    return "\n".join([
        "# API reference",
        "",
        "What each package exports, from the docstrings; their examples are tests. `import sgdlab` loads a package at "
        "its first use.",
        "",
        *listed,
        "",
    ])  # fmt: skip


def exported(package: str) -> list[str]:
    """Return where the functions and classes are defined that a module exports, in the order of their names.

    Example:
      >>> exported("schedule")
      ['sgdlab.schedule.Schedule']
    """
    module = importlib.import_module(f"sgdlab.{package}")
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
    ]
    found = [inspect.unwrap(getattr(module, name)) for name in sorted(names) if not name.startswith("_")]
    home = module.__name__
    if package == "policies":  # another name for what is in `protocols`, whose page has the makers
        made = [part.facts.policy for part in PROTOCOLS.values()]
        found, home = [value for value in found if value not in made], "sgdlab.protocols"
    of_module = [
        value
        for value in found
        if (inspect.isfunction(value) or inspect.isclass(value))
        and f"{value.__module__}.".startswith(f"{home}.")
        and "<" not in value.__qualname__
    ]
    return list(dict.fromkeys(f"{value.__module__}.{value.__qualname__}" for value in of_module))


@functools.cache
def everything() -> frozenset[str]:
    """Return all that has an entry in the reference."""
    return frozenset(name for package in PACKAGES for name in exported(package))
