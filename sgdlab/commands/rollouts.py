"""Simulates asynchronous reinforcement learning of language models: staleness, waste, and who is starved, by policy.

    sgdlab rollouts
    sgdlab rollouts --policy=admission,window --eta=0,1,2,4 --lag=1,4 --group=8 --batch=64 --engines=24 --slots=32
    sgdlab rollouts --mean=2000 --sigma=1.2 --share=0.5 --cap=8192 --loop=0.03 --hold=both --train=9 --transfer=20
    sgdlab rollouts --log=rollouts.parquet --version=start --train=9 --gpus=64 --max_staleness=2
    sgdlab rollouts --learn --rules=none,decoupled,truncated_is --policy=admission,window --eta=4,16

Engines decode rollouts of prompts, several at a time; groups that are ready wait in a queue; a trainer takes batches of
them; a transfer brings each new version to the engines. A staleness policy says which groups may begin, which are
thrown away, and which are next. The table has closed forms beside what was simulated. Staleness is in versions: steps
of the trainer between the version on which a rollout began and the step that it enters.

A log has a row for each rollout, also for those that were thrown away or still ran when it ended: start, end (empty if
not over), tokens, version, group, step (empty if not trained on); --columns=start=t0,... names others. --version says
which version it holds, since a rollout may span several. The workload is fitted to it, what other policies and, with
--gpus, other splits of the GPUs would give is simulated, and one of them is recommended.

With --learn, a small policy is trained on what each staleness policy lets through, with each rule for stale tokens: a
toy with exact rewards, whose classes are those of the prompts by length. Rates are tuned alike, on other seeds.

Leaves rollouts.html, a self-contained page, and rollouts.json, .csv, .md, .png, .svg in the work directory.
"""

import dataclasses
import functools
import pathlib
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from sgdlab import arguments
from sgdlab.commands import launch
from sgdlab.errors import UsageError, said_of
from sgdlab.report.table import WIDTH
from sgdlab.report.words import number
from sgdlab.rollouts import RATIO_RULES, ROLLOUT_LENGTHS, STALENESS_POLICIES, LoadedSpeed, System, Workload, predict
from sgdlab.rollouts import compare as compared
from sgdlab.rollouts import log as logs
from sgdlab.rollouts import table as tables
from sgdlab.rollouts.engines import HOLDS, REFRESHES
from sgdlab.rollouts.policies import REQUEUES, STALES
from sgdlab.rollouts.simulate import simulate

DEFAULT_WORKDIR = "runs/rollouts"
_SPLIT_ETAS = (0.0, 1.0, 2.0, 3.0, 4.0, 8.0)
"""Bounds of admission that are tried with each split of the GPUs, with half of the steps."""

_RATE = 16.0
"""The learning rate around which others of the toy are tried, over three decades."""

_FLAGS: dict[str, tuple] = {
    "policy": ("list", "", f"Staleness policies, by default all: {', '.join(STALENESS_POLICIES)}."),
    "eta": ("list", "2", "Bounds of admission, budget (theta), in_order and version_fifo, in versions."),
    "lag": ("list", "1", "Largest staleness of window, in versions."),
    "stale": ("list", "discard", f"What window does with what is staler: {', '.join(STALES)}."),
    "gate": ("list", "", "Bounds of admission of window besides, in versions; without, slots are always full."),
    "capacity": ("list", "1", "Batches that the queue of queue_drop holds."),
    "requeue": ("list", "never", f"When prompts of what is thrown away are tried again: {', '.join(REQUEUES)}."),
    "rules": ("list", "none,decoupled,truncated_is", "With --learn: none, ppo, decoupled, a3po, truncated_is, m2po."),
    "columns": ("list", "", "Names of the log's columns that differ, as in start=t0,step=trained_at."),
    "mean": ("float", 1000.0, "Mean tokens of a rollout, before cap and loops."),
    "sigma": ("float", 1.0, "Standard deviation of the logarithm of the tokens."),
    "share": ("float", 0.5, "Share of that variance that is the prompt's own, 0 to 1."),
    "loop": ("float", 0.0, "Share of the rollouts that run until the cap."),
    "speed": ("float", None, "Tokens a second of a slot (default: 100, or fitted to the log)."),
    "halved_at": ("float", None, "Busy slots of an engine at which each has half of --speed."),
    "train": ("float", None, "Seconds of a trainer step (default: 5; needed beside --log)."),
    "train_token": ("float", 0.0, "Seconds more for each token in it."),
    "transfer": ("float", 1.0, "Seconds from the end of a step until the version is at the engines."),
    "max_staleness": ("float", 2.0, "Mean staleness by rollout that a recommendation may have."),
    "target": ("float", 0.5, "Mean reward to which seconds are counted, with --learn."),
    "cap": ("integer", None, "Tokens at which a rollout is cut.", 1),
    "group": ("integer", 4, "Rollouts of a prompt.", 1),
    "prompts": ("integer", 20_000, "Number of prompts; they come again where all have been taken.", 1),
    "batch": ("integer", None, "Groups of a trainer step (default: 32, or as in the log).", 1),
    "engines": ("integer", None, "Number of engines (default: 4, or as in the log).", 1),
    "slots": ("integer", None, "Rollouts that an engine decodes at a time (default: 64, or as in the log).", 1),
    "steps": ("integer", 200, "Trainer steps; the first tenth is not counted.", 2),
    "seed": ("integer", 0, "Seed of the lengths.", 0),
    "draws": ("integer", 4, "Workloads drawn from the log, for intervals.", 2),
    "gpus": ("integer", None, "GPUs of engines (one each) and trainer: tries other splits of them.", 2),
    "minibatches": ("integer", 1, "Optimizer steps in a trainer step, with --learn.", 1),
    "trials": ("integer", 8, "Learning rates that are tried for each policy and rule, with --learn.", 1),
    "runs": ("integer", 8, "Seeds of lengths and learning, with --learn; rates are tuned on half as many others.", 6),
    "hold": ("enum", "trainer", HOLDS, "Who waits for the transfer."),
    "refresh": ("enum", "in_flight", REFRESHES, "Whether engines load versions at once, or when empty."),
    "version": ("enum", None, logs.VERSIONS, "Version that the log holds: of a rollout's start, its end, or by token."),
    "lengths": ("string", "lognormal", "Law of the lengths: lognormal, or one of your own by --parts."),
    "log": ("string", None, "A log of rollouts to fit: .parquet, .csv or .jsonl."),
    "learn": ("bool", False, "Trains a small policy under each staleness policy and rule for stale tokens."),
    "json": ("bool", False, "Prints JSON instead of the table."),
}
Draw = Callable[[int], Workload]
"""From a seed to a workload."""

_OF_LEARNING = ("rules", "minibatches", "trials", "runs", "target")


def define_flags() -> None:
    """Defines the flags of this command."""
    for name, (kind, *of_flag) in _FLAGS.items():
        getattr(flags, f"DEFINE_{kind}")(name, *of_flag)


def main(argv: Sequence[str]) -> None:
    """Simulates policies, prints and writes what they give."""
    given = flags.FLAGS
    chosen, workdir = _candidates(), launch.workdir(DEFAULT_WORKDIR)
    ratios = _ratios()
    with said_of("--"):
        draw, system, said, more = _drawn() if given.log is None else _from_log()
        workloads = [draw(given.seed + number) for number in range(given.draws if more else 1)]
        steps, warmup = given.steps, given.steps // 10
        if given.learn and system.batch % given.minibatches:
            raise ValueError(f"minibatches={given.minibatches} must divide the {system.batch} groups of a batch")
        others = [] if given.gpus is None else compared.splits(system, given.gpus)
        found = [compared.tried(workloads, system, one, steps=steps, warmup=warmup) for one in chosen]
        tried = found + [
            compared.tried(workloads[:1], other, one, steps=steps // 2, warmup=warmup // 2)
            for other in others
            for one in compared.candidates(["admission"], eta=_SPLIT_ETAS)
            if other != system or one not in chosen
        ]
    best, prediction = compared.recommended(tried, given.max_staleness), predict(workloads[0], system)
    said = [tables.headline(found, best, given.max_staleness, given.gpus, more.get("log")), *said]
    spread = " Intervals are two standard deviations over workloads drawn from the log." if more else ""
    counted = f"Numbers are from step {warmup} on; shares of slots and of waste are of the whole run.{spread}"
    shown = {"Policies": tables.table(found, [f"Closed forms: {prediction}.", counted])}
    narrow = shown["Policies"].without(tables.ON_PAGE + tables.BUSY * bool(more))
    printed = [narrow.text(), *(textwrap.fill(one, WIDTH) for one in said)]
    if given.learn:
        with said_of("--"):
            learned = _learned(chosen, draw, system, ratios)
        more["learned"] = [
            {name: np.asarray(value).tolist() for name, value in cell._asdict().items()} for cell in learned
        ]
        shown["Learning"] = tables.of_learning(learned, given.target)
        printed.append(shown["Learning"].text())
    as_json = tables.as_json(tried, prediction, recommended=None if best is None else best.as_dict(), **more)
    try:
        tables.write(workdir, tried, shown, as_json, said=said)
    except OSError as error:
        raise UsageError(f"--workdir={workdir} must be a directory that can be written: {error}") from error
    if given.json:
        print(as_json, end="")
        return
    print(*printed, f"Page: {workdir / 'rollouts.html'}", sep="\n\n")


def _refuse(names: Sequence[str], without: str) -> None:
    """Refuses flags that mean nothing without another one."""
    for name in names:
        if flags.FLAGS[name].present:
            raise UsageError(f"--{name} must be left out without --{without}")


def _ratios() -> dict[str, Callable]:
    """Return the rules for stale tokens of the flags; none where nothing is to be learned."""
    given = flags.FLAGS
    if not given.learn:
        _refuse(_OF_LEARNING, "learn")
        return {}
    from sgdlab.runs import tuning  # noqa: PLC0415 (JAX takes a while to import)

    if not given.rules:
        raise UsageError(f"--rules must name some of {', '.join(RATIO_RULES)}")
    with said_of("--"):
        arguments.whole("group", given.group, least=2, why="an advantage is against the others of the group")
        arguments.whole("runs", given.runs, most=tuning.FIRST_SEED, why="there seeds of tuning begin")
        arguments.real("target", given.target, above=0, below=1)
    return {name: RATIO_RULES.check(name, f"--rules={name}").make() for name in given.rules}


def _learned(
    chosen: Sequence[compared.Candidate], draw: Draw, system: System, ratios: Mapping[str, Callable]
) -> list[tables.Cell]:
    """Return what the toy learns under each policy with each rule; every seed has a workload of its own."""
    from sgdlab.rollouts import TrainedOn, toy, tuned  # noqa: PLC0415 (JAX takes a while to import, as this alone does)
    from sgdlab.runs import space, tuning  # noqa: PLC0415 (likewise)

    given, task, cells = flags.FLAGS, toy(), []
    rates = space.rates(_RATE, given.trials)
    seeds = range(tuning.FIRST_SEED, tuning.FIRST_SEED + given.runs // 2), range(given.runs)
    workloads = {seed: draw(given.seed + seed) for some in seeds for seed in some}

    def trained(one: compared.Candidate, seed: int) -> TrainedOn:
        work = workloads[seed]
        return TrainedOn.of(simulate(work, system, one.make, num_steps=given.steps), work, task)

    of_each = [tuple([trained(one, seed) for seed in some] for some in seeds) for one in chosen]
    for name, ratio in ratios.items():
        best, learned = tuned(of_each, task, ratio, rates, seeds=seeds, minibatches=given.minibatches)
        rewards, seconds = (
            np.split(of, len(chosen)) for of in (learned.rewards[:, -1], learned.seconds_to(given.target))
        )
        cells += map(tables.Cell, [one.title for one in chosen], [name] * len(chosen), best, rewards, seconds)
    return [cell for place in range(len(chosen)) for cell in cells[place :: len(chosen)]]


def _candidates() -> list[compared.Candidate]:
    """Return the policies of the flags, with each of the values that they take."""
    given = flags.FLAGS
    for name in given.policy:
        STALENESS_POLICIES.check(name, f"--policy={name}")
    usual = {"requeue": "never", "stale": "discard"}
    values: dict[str, Any] = {name: given[name].value for name in usual if given[name].value != [usual[name]]}
    for name, kind in {"eta": float, "lag": int, "gate": float, "capacity": int}.items():
        texts: list[str] = getattr(given, name)
        try:
            values[name] = [kind(text) for text in texts]
        except ValueError:
            what = "whole numbers" if kind is int else "numbers"
            raise UsageError(f"--{name}={','.join(texts)} must be {what}, separated by commas") from None
    made = compared.candidates(given.policy or list(STALENESS_POLICIES), theta=values["eta"], **values)
    with said_of("--"):
        for one in made:
            one.make(batch=1)  # its own bounds
    return made


def _machines(**of_log: Any) -> System:
    """Return the machines of the flags; what they leave open is as in the log, or usual."""
    given = flags.FLAGS
    names = [field.name for field in dataclasses.fields(System)]
    found = {**of_log, **{name: value for name in names if (value := getattr(given, name)) is not None}}
    if given.halved_at is not None:
        with said_of("--"):
            alone = 100.0 if given.speed is None else arguments.real("speed", given.speed, above=0)
        found["speed"] = LoadedSpeed(alone, given.halved_at)
    return System(**found)


def _drawn() -> tuple[Draw, System, list[str], dict[str, Any]]:
    """Return the workload of a seed, and the machines of the flags."""
    given = flags.FLAGS
    _refuse(["version", "columns"], "log")
    part = ROLLOUT_LENGTHS.check(given.lengths, f"--lengths={given.lengths}")
    names = ["prompts", "group", *(name for name in part.defaults if name in given and name != "lengths")]
    made = {name: getattr(given, name) for name in names}
    return lambda seed: part.make(**made, seed=seed), _machines(), [], {}


def _from_log() -> tuple[Draw, System, list[str], dict[str, Any]]:
    """Return what draws workloads from the log, the machines that it shows, what it says, and that for JSON."""
    given = flags.FLAGS
    if given.version is None:
        raise UsageError(
            f"--version must be one of {', '.join(logs.VERSIONS)}: which version the log holds, that on which a "
            "rollout began, the newest when it was over (as SGLang stamps it), or a list of those of its tokens"
        )
    columns = {}
    for pair in given.columns:
        name, _, called = pair.partition("=")
        columns[arguments.one_of("columns", name, (*logs.COLUMNS, *logs.OTHERS))] = called
        if not called:
            raise UsageError(f"--columns={name} must be as in {name}=its_name")
    try:
        with said_of(f"--log={given.log}: "):
            log = logs.read_log(pathlib.Path(given.log), version=given.version, columns=columns)
    except FileNotFoundError:
        raise UsageError(f"--log={given.log} must be a file") from None
    was = log.figures()
    most = was["shortest_step"]
    bound = f"it is about {most:.3g} at most, as versions of the log follow each other"
    if given.train is None:
        why = "rollouts do not tell it apart from the trainer's waiting" + f"; with the transfer {bound}" * (most > 0)
        raise UsageError(f"--train must say how many seconds a trainer step takes: {why}")
    system = _machines(engines=int(log.engine.max()) + 1, slots=log.slots(), speed=log.speed(), batch=log.batch())
    if 0 < 2 * most < (least := system.train + system.transfer * system.trainer_waits):  # the bound is not exact
        beside = f" with --transfer={given.transfer:g}" * system.trainer_waits
        raise UsageError(f"--train={given.train:g} must be less:{beside} {bound}, not {least:g}")
    draw = functools.cache(lambda seed: log.workload(prompts=given.prompts, seed=seed))
    with said_of(f"--log={given.log}: "):
        draw(given.seed)  # the log may not do for it
    rates = system.rates()
    alone = f" ({rates[0]:.3g} alone)" if callable(system.speed) else ""
    said = (
        f"The log: {log.start.size:,} rollouts of {np.unique(log.group).size:,} groups; "
        f"{number(was['seconds_per_step'])} s a step, mean staleness {number(was['staleness'])} by rollout (largest "
        f"{was['largest_staleness']}), {number(was['token_staleness'])} by token from its rollout's start; "
        f"{number(was['goodput'])} trained tokens a second; {100 * was['not_trained']:.1f} % of the tokens were not "
        f"trained on. Fitted: {system.engines} engines of {system.slots} slots, each {rates[-1]:.3g} tokens a "
        f"second{alone}, {system.batch} groups a step."
    )
    if (log.step >= 0).all():
        said += (
            " The log is taken to have all rollouts (log those too that a step leaves out), and engines to have no "
            "more slots than it shows (else say --slots)."
        )
    return draw, system, [said], {"log": was, "fitted": dataclasses.asdict(system)}


COMMAND = launch.Command(
    main=main,
    workdir="Directory for the results; those of an earlier call are replaced.",
    usage=__doc__,
    define=define_flags,
    configured=False,
)
