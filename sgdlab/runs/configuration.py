"""Every entry of a configuration, with its default, its meaning and its bounds; the files of `configs/` change some."""

import enum
import functools
import importlib.util
import inspect
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict
from ml_collections.config_dict import FieldReference, placeholder

import sgdlab
from sgdlab import arguments
from sgdlab.errors import UsageError, mistakes_of
from sgdlab.registry import FAMILIES
from sgdlab.tasks.family import TaskFacts

VARIANTS = ("paper", "tiny")
"""Of the configurations of the papers: their own sizes, or a few seconds on data at hand."""

MODES = ("event", "wave")
LANES = ("vmap", "map")
LAYOUTS = ("sharded", "replicated")
SPACINGS = ("even", "geometric")
SPLITS = ("own", "rotating", "validation", "drawn")


class Reach(enum.Enum):
    """The reach of an entry of a configuration; those on the first level that are not named reach the gradients."""

    COST = ("memory", "stream", "chunk", "readers", "evaluation_batch", "layout")
    """They decide what a run takes, and nothing of what comes of it."""
    RECORD = (
        "average_decay", "evaluations", "lanes", "mode", "recording", "spacing", "target", "test_examples",
        "train_examples",
    )  # fmt: skip
    """They decide what is recorded of a run, or how its numbers round, and no gradient."""


def entries(kinds: Mapping[str, str], /, **changed: Mapping[str, Mapping[str, Any]]) -> ConfigDict:
    """Return all entries of a configuration; each can be set by a flag, as in --config.cluster.num_workers=16.

    `kinds` are as of `parts`, with cluster, network and data; `changed` are entries, by family and part, that
    differ from the part's defaults.

    Raises:
      ValueError: where a family, a part or an entry is not known.

    Example:
      >>> config = entries({"cluster": "gamma", "network": "mlp", "data": "digits"}, network={"mlp": {"widths": (8,)}})
      >>> config.batch_size, config.network.mlp.widths, config.rate.decay, config.optimizer.momentum
      (32, (8,), 'constant', None)
    """
    config = ConfigDict()
    config.method = "asgd"  # protocol and rule under one name; the methods are listed below
    config.seed = 0  # seed of parameters, batches, compute times, and draws of the protocol
    _add_length(config)
    config.batch_size = 32  # examples per gradient
    config.micro_batches = 1  # parts of a batch, computed in turn, whose mean is the gradient; 1: all at once
    config.replacement = False  # draw examples with replacement, instead of a permutation each epoch
    _add_evaluations(config)
    config.stream = False  # read examples from the host even if they fit the device
    config.chunk = 32  # gradients whose examples are sent to the device together, if they are streamed
    config.readers = 0  # processes that decode streamed examples; 0: threads of this one
    config.mode = placeholder(str)  # "event": gradients in turn; "wave": independent ones together; None: the faster
    config.lanes = placeholder(str)  # "vmap" or "map": computation of a wave; None: as suits the network
    config.layout = placeholder(str)  # parameters on several devices: "sharded" or "replicated"; None: by size
    config.memory = placeholder(float)  # most memory of a run, GiB; None: the memory that is free

    off = {"transport": "free", "compression": "none", "failures": "none"}
    config.update(parts({"predictor": "running_mean", **off, **kinds}, **changed))
    config.cluster.num_workers = 1  # number of workers, N
    config.cluster.first_workers = placeholder(int)  # number of workers that take part, the first ones; None: all
    config.compression.feedback = placeholder(str)  # memory of workers: "none", "error" or "ef21"; None: the kind's own

    config.heterogeneity = ConfigDict()  # of workers that have training examples of their own
    config.heterogeneity.alpha = placeholder(float)  # Dirichlet parameter of workers' labels; None: all share the data
    config.heterogeneity.seed = placeholder(int)  # seed of the division of the data; None: the run's

    config.optimizer = ConfigDict()  # what rules share; each takes what it knows
    config.optimizer.learning_rate = 0.1  # learning rate after warm-up, per gradient or per update (see rate.of)
    config.optimizer.adam_learning_rate = 0.001  # learning rate after warm-up, for rules on Adam
    config.optimizer.normalised_learning_rate = 0.05  # learning rate of normalised_momentum: length of a step
    config.optimizer.muon_learning_rate = 0.02  # learning rate of muon: spectral norm of a step
    config.optimizer.agnostic_learning_rate = 0.5  # learning rate of parameter_agnostic_muon: length of the first step
    config.optimizer.momentum = placeholder(float)  # momentum; None: the rule's own (0.9; asgd: 0)
    config.optimizer.nesterov = placeholder(bool)  # whether it is Nesterov's; None: the rule's own (yes; asgd: no)
    config.optimizer.weight_decay = 0.0  # weight decay, added to the gradient before any penalty
    config.optimizer.clip_norm = placeholder(float)  # norm at which workers clip gradients; None: no clipping

    _add_local_steps(config)

    config.rate = ConfigDict()
    config.rate.of = "gradient"  # what the rate belongs to: "gradient", or "update" (of a server, or a step of a node)
    config.rate.warmup_epochs = placeholder(float)  # epochs of linear warm-up from rate / N; None: a quarter of the run
    config.rate.decay = "constant"  # decay of the rate: constant, step, linear, hold_linear, cosine or exponential
    config.rate.unit = "epochs"  # unit of steps, period, last and length: "epochs" (of used gradients) or "updates"
    config.rate.steps = (10.0, 15.0)  # step: times at which the rate is multiplied by factor
    config.rate.period = 10.0  # exponential: time in which the rate is multiplied by factor
    config.rate.last = 10.0  # hold_linear: time in which the rate falls to final
    config.rate.length = placeholder(float)  # linear, hold_linear, cosine: length of the decay; None: the run's
    config.rate.factor = 0.1  # step and exponential: factor on the rate
    config.rate.final = 0.0  # rate at the end of the decay, as a share of the rate after warm-up
    return config


@functools.cache
def defaults() -> Mapping[str, Any]:
    """Return the defaults of the entries that say when a run ends, and what is measured during it.

    Example:
      >>> defaults()["spacing"], defaults()["budget"]
      ('even', None)
    """
    config = ConfigDict()
    _add_length(config)
    _add_evaluations(config)
    return config.to_dict()


def _add_length(config: ConfigDict) -> None:
    """Add the entries that say when a run ends: after its epochs unless a time is given."""
    config.epochs = 1.0  # length in epochs; with --config.budget, epochs of the synchronous run that sets the time
    config.budget = placeholder(float)  # length in virtual time, as a multiple of that of synchronous SGD
    config.seconds = placeholder(float)  # length in virtual seconds, in place of epochs
    config.until_target = False  # whether a run ends at the target, or once it has diverged


def _add_evaluations(config: ConfigDict) -> None:
    """Add the entries that say what is measured during a run, and on which examples."""
    config.evaluations = 25  # number of evaluations on the test set
    config.spacing = "even"  # times of evaluations: "even", or "geometric" (each later by one factor), to time a target
    config.target = placeholder(float)  # test metric whose time is reported; None: no target
    config.evaluation_batch = 1000  # examples that are evaluated together
    config.train_examples = 10_000  # most training examples for the training loss and metric at the end
    config.test_examples = placeholder(int)  # most test examples; None: all
    config.split = "own"  # test set: "own" of the data; a fold by seed ("drawn", "rotating"); "validation"
    config.average_decay = placeholder(float)  # decay of a Polyak average, per update; None: no average


def _add_local_steps(config: ConfigDict) -> None:
    """Add steps of a worker's own between two messages; None: as the method has it, or none.

    The worker's rate is constant, unless it follows `rate`, and so is the server's where it is given by
    `server_learning_rate`, which is the rule of methods with local steps: `rate` is of the workers alone then.
    """
    config.local = ConfigDict()
    config.local.steps = placeholder(int)  # local steps of a worker for each message, H; 1: a message is a gradient
    config.local.optimizer = placeholder(str)  # optimizer of the workers: "sgd" or "adamw"
    config.local.learning_rate = placeholder(float)  # learning rate of the workers; None: that of `optimizer`
    config.local.follow_rate = placeholder(bool)  # whether the workers' rate has the warm-up and decay of `rate`
    config.local.momentum = placeholder(float)  # Nesterov momentum of the workers' SGD, below 1
    config.local.weight_decay = placeholder(float)  # weight decay of workers; None: optimizer's (servers: none)
    config.local.proximal = placeholder(float)  # strength of the pull towards the parameters that the worker has read
    config.local.by_speed = placeholder(bool)  # whether slower workers make fewer steps (DyLU)
    config.local.least_steps = placeholder(int)  # least local steps of the slowest worker, with by_speed
    config.local.keep_state = placeholder(bool)  # whether a worker's optimizer keeps its state between messages
    config.local.fragments = placeholder(int)  # fragments of the parameters, one a message (Streaming DiLoCo)
    config.local.overlap = placeholder(int)  # local steps that a fragment is under way; below `steps`
    config.local.mix = placeholder(float)  # share of its own parameters that a worker keeps of a fragment, from 0 to 1
    config.local.server_learning_rate = placeholder(float)  # learning rate of the server; None: 1, or the rule's own


def parts(kinds: Mapping[str, str], /, **changed: Mapping[str, Mapping[str, Any]]) -> ConfigDict:
    """Return the entries of all registered parts, by family.

    A family whose part is not named leaves it to `method`; `changed` are entries by family and part.

    Example:
      >>> config = parts({"network": "conv"}, network={"conv": {"channels": (8, 16)}})
      >>> config.network.kind, config.network.conv.channels, config.rule.kind
      ('conv', (8, 16), None)
    """
    for family in {*kinds, *changed} - {registry.family for registry in FAMILIES}:
        raise ValueError(f"{family!r} must be one of {', '.join(registry.family for registry in FAMILIES)}")
    found = {r.family: r.entries(kinds.get(r.family), **changed.get(r.family, {})) for r in FAMILIES}
    return ConfigDict(found)


def shorten(config: ConfigDict, epochs: float) -> None:
    """Set the length of a run, and in proportion those of its warm-up and decay, where they are counted in epochs.

    Example:
      >>> config = entries({"cluster": "gamma", "network": "mlp", "data": "digits"})
      >>> config.epochs, config.rate.warmup_epochs, config.rate.steps = 160.0, 5.0, (80.0, 120.0)
      >>> shorten(config, 2.0)
      >>> config.epochs, config.rate.warmup_epochs, config.rate.steps
      (2.0, 0.0625, (1.0, 1.5))
    """
    ratio = arguments.real("epochs", epochs, above=0) / config.epochs
    config.epochs, rate = float(epochs), config.rate
    if rate.warmup_epochs is not None:
        rate.warmup_epochs *= ratio
    if rate.unit == "epochs":
        rate.steps = tuple(step * ratio for step in rate.steps)
        rate.period, rate.last = rate.period * ratio, rate.last * ratio
        if rate.length is not None:
            rate.length *= ratio


def check(config: ConfigDict, task: TaskFacts) -> None:
    """Check the bounds of the entries that belong to no part; parts check their own where they are made.

    Raises:
      ValueError: at the first entry that cannot be; it names it.
    """
    for name, least in (
        ("seed", 0), ("batch_size", 1), ("evaluations", 1), ("cluster.num_workers", 1), ("micro_batches", 1),
        ("evaluation_batch", 1), ("chunk", 1), ("readers", 0), ("train_examples", 1), ("test_examples", 1),
    ):  # fmt: skip
        if not (name.endswith("_examples") and config[name] is None):
            arguments.whole(name, value_of(config, name), least=least)
    if config.batch_size % config.micro_batches:
        raise ValueError(f"batch_size={config.batch_size} must be a multiple of micro_batches={config.micro_batches}")
    arguments.real("epochs", config.epochs, above=0)
    positive = {"above": 0, **({"most": 1} if task.metric == "accuracy" or task.percent else {})}
    for name, bounds in (
        ("target", positive if task.percent or task.of_guess else {}),
        ("memory", {"above": 0}),
        ("budget", {"above": 0}),
        ("seconds", {"above": 0}),
        ("average_decay", {"least": 0, "below": 1}),
        ("optimizer.clip_norm", {"above": 0}),
    ):
        if (value := value_of(config, name)) is not None:
            arguments.real(name, value, **bounds)
    for name, choices in (
        ("mode", MODES), ("lanes", LANES), ("layout", LAYOUTS), ("spacing", SPACINGS), ("split", SPLITS),
    ):  # fmt: skip
        if config[name] is not None:
            arguments.one_of(name, config[name], choices)
    if config.seconds is not None and config.budget is not None:
        raise ValueError(f"seconds={config.seconds:g} must be left out with budget={config.budget:g}")
    if config.until_target and config.target is None:
        raise ValueError("until_target=True must go with a target, a value of the metric on the test set")
    for name in (name for name in config.optimizer if name.endswith("learning_rate")):
        arguments.real(f"optimizer.{name}", config.optimizer[name], above=0)
    arguments.real("optimizer.weight_decay", config.optimizer.weight_decay, least=0)
    if config.cluster.first_workers is not None:
        most = config.cluster.num_workers
        arguments.whole("cluster.first_workers", config.cluster.first_workers, most=most, why="cluster.num_workers")


def check_used(given: Iterable[str], identities: Sequence[Mapping[str, Any]]) -> None:
    """Check that each entry that a person has set makes a difference to some run, by `Experiment.taken` of each.

    Raises:
      UsageError: where one belongs to a part that no run uses.

    Example:
      >>> from configs import digits
      >>> from sgdlab.runs.experiment import resolve
      >>> check_used(["data.npz.path"], [resolve(digits.get_config()).taken])
      Traceback (most recent call last):
      ...
      sgdlab.errors.UsageError: --config.data.npz.path has no effect: data.kind is digits; set --config.data.kind=npz
    """
    used = {name for entries in identities for name, _ in flat(entries)} | {*Reach.COST.value}
    kinds = {
        registry.family: list(dict.fromkeys(entries.get(registry.family, {}).get("kind") for entries in identities))
        for registry in FAMILIES
    }
    for name in given:
        family, _, rest = name.partition(".")
        part = rest.partition(".")[0]
        if name in used or name == f"{family}.kind":
            continue
        flag = f"--config.{name} has no effect"
        if name == "compression.feedback":
            raise UsageError(f"{flag}: compression.kind is none; set --config.compression.kind")
        if family in kinds and part not in kinds[family]:
            unset = {"task": "the network's own", "compression": "none"}
            now = ", ".join(str(kind) for kind in kinds[family] if kind) or unset.get(
                family, "not used by this protocol"
            )
            raise UsageError(f"{flag}: {family}.kind is {now}; set --config.{family}.kind={part}")
        if family == "optimizer":
            rates = [f"--config.{entry}" for entry in sorted(used) if is_rate(entry)]
            instead = f"; set {' or '.join(rates)}" if rates and is_rate(name) else ""
            raise UsageError(f"{flag}: no rule of these runs takes it{instead}")
        if family == "heterogeneity":
            raise UsageError(f"{flag}: all workers draw from all examples; set --config.heterogeneity.alpha")


def is_rate(name: str) -> bool:
    """Return if an entry is one of the learning rates of `optimizer`, each for another kind of rule."""
    return name.startswith("optimizer.") and name.endswith("learning_rate")


def value_of(settings: Any, name: str) -> Any:
    """Return a setting by its name; that of a group as "group.name"."""
    return functools.reduce(lambda entry, part: entry[part], name.split("."), settings)


def can_be_none(config: ConfigDict, name: str) -> bool:
    """Return if an entry has a type and may be None besides: one that is made by `placeholder`.

    Example:
      >>> config = entries({"cluster": "gamma", "network": "mlp", "data": "digits"})
      >>> [can_be_none(config, name) for name in ("target", "rule.kind", "epochs", "failures.kind", "rule", "nothing")]
      [True, True, False, False, False, False]
    """
    *groups, last = name.split(".")
    try:
        group = value_of(config, ".".join(groups)) if groups else config
        return isinstance(dict(group.items(preserve_field_references=True)).get(last), FieldReference)
    except (AttributeError, KeyError, TypeError):
        return False


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every entry with its whole name, as in `cluster.num_workers`."""
    for name, value in config.items():
        if isinstance(value, Mapping | ConfigDict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def found(config: str) -> str:
    """Return a configuration's file: as it is named or, where there is none, the one of that name in this package."""
    path, colon, variant = config.partition(":")
    if not pathlib.Path(path).exists():
        spec = importlib.util.find_spec("sgdlab.configs")
        folders = [*(spec.submodule_search_locations or ())] if spec else []
        folders.append(str(pathlib.Path(sgdlab.__file__).parents[1] / "configs"))  # of a checkout
        for folder in folders:
            packaged = pathlib.Path(folder) / pathlib.Path(path).name
            if packaged.exists():
                return f"{packaged}{colon}{variant}"
    return config


def entries_of(config: str) -> list[str]:
    """Return all entries of a configuration's file as it stands; none where it cannot be read."""
    path, colon, variant = found(config).partition(":")
    try:
        return [name for name, _ in flat(_get_config(path)(*([variant] if colon else [])))]
    except Exception:
        return []


def load(config: str) -> ConfigDict:
    """Execute a configuration's file, perhaps with a variant, as in "configs/cutoff.py:two_state".

    A mistake is one line: its own line, and what is wrong there.

    Raises:
      UsageError: where it raises, or makes no configuration, or refuses the variant, the part after the colon.
    """
    path, colon, variant = config.partition(":")
    flag = f"--config={path}"
    with mistakes_of(flag, pathlib.Path(path)):
        get_config = _get_config(path)
    if get_config is None:
        raise UsageError(f"{flag} must have a function get_config, which returns the configuration")
    if colon and not inspect.signature(get_config).parameters:
        raise UsageError(f"--config={config} must be {flag}: this configuration has no variants")
    try:
        with mistakes_of(flag, pathlib.Path(path)):
            made = get_config(*([variant] if colon else []))
    except UsageError as error:
        if colon and isinstance(error.__cause__, ValueError):  # of the variant, and no line is at fault
            raise UsageError(f"--config={config}: {error.__cause__}") from error
        raise
    if not isinstance(made, ConfigDict):
        raise UsageError(f"{flag}: get_config must return a ConfigDict, and returned a {type(made).__name__}")
    return made


def _get_config(path: str) -> Any:
    """Return the function of a configuration's file that makes the configuration; None where it has none."""
    spec: Any = importlib.util.spec_from_file_location("_configuration", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, "get_config", None)
