"""`run_many`: several runs of one method that differ in their seeds, executed as one compiled program."""

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.custom_batching import sequential_vmap

from sgdlab import arguments
from sgdlab.replay.feed import Feed
from sgdlab.replay.functions import Parts, check_batches
from sgdlab.replay.history import History, Result
from sgdlab.replay.lowering import lower
from sgdlab.replay.program import Program
from sgdlab.replay.run import LANES, check_rule, check_task
from sgdlab.replay.server_engine import ServerEngine, advance, start
from sgdlab.replay.server_program import ServerProgram
from sgdlab.replay.server_step import Carry, Mode
from sgdlab.replay.watch import Evaluation, Watch, as_pytree
from sgdlab.rules.server_rule import ServerRule, server_rule
from sgdlab.schedule import Schedule
from sgdlab.tasks.task import Task, described
from sgdlab.types import Tree

Rule = ServerRule | optax.GradientTransformation
BatchFn = Callable[[jax.Array], Tree]


def run_many(
    schedules: Sequence[Schedule | ServerProgram],
    rules: Rule | Sequence[Rule],
    tasks: Task | Sequence[Task],
    batch_fns: BatchFn | Sequence[BatchFn],
    *,
    lanes: str = "vmap",
    watch: Watch | None = None,
    report: Callable[[int, History], None] | None = None,
) -> list[Result]:
    """Execute several runs of one method, which differ in their seeds, as one program: gradient g of all, then g + 1.

    Each result is that of `run` with the same arguments, up to rounding: the runs share the loop of event mode, in
    which every operation is one of all runs (`jax.vmap`). This is meant for accelerators that a single run leaves idle;
    on a CPU it takes about as long as one run after the other. The runs take the memory of so many runs, but arrays
    that are the same object in all of them, such as the images behind the batch functions, are there once. One compiled
    program serves all values of seeds and hyperparameters.

    Schedules of servers only, on one device; there is no wave mode, no mesh, and there are no checkpoints. Where runs
    complete updates of several gradients at different gradients, or several blocks use gradients in different orders,
    every gradient costs an update and a copy of all versions in each run; otherwise only what it costs in `run`.

    Args:
      schedules: S schedules of servers with as many gradients, or their programs (`lower`). All make pauses after the
        same numbers of gradients, have as many blocks, and use their gradients either all at once or not.
      rules: the rule of all runs, or one of each, of the same functions with hyperparameters of their own.
      tasks: the task of all runs, or one of each, of the same functions with parameters of its own.
      batch_fns: `(g) -> batch` of all runs, or one of each: `jax.tree_util.Partial`s of one function with data of their
        own, such as the order of the examples.
      lanes: how the gradients of the runs are computed: "vmap", all in one operation after the other, or "map", one
        gradient after the other, each with its own operations, which takes the activations of one. Updates are made at
        once in any case.
      watch: what to evaluate and record; `evaluate` is called for one run after the other, not traced.
      report: `(s, history) -> None`, called at each evaluation of the s-th run, in the place of `watch.report`.

    Returns:
      S `Result`s.

    Raises:
      ValueError: if an argument is of the wrong kind, or if runs differ in what must be the same. Nothing is compiled
        before.

    Example:
      >>> import jax.numpy as jnp, numpy as np
      >>> from sgdlab import protocols, rules
      >>> runtimes = np.array([[2.0, 3.0], [2.0, 3.0]])
      >>> schedules = [protocols.asynchronous(seconds, num_gradients=3) for seconds in (runtimes, runtimes[:, ::-1])]
      >>> grad_fn = lambda params, batch: (params - batch, {"loss": 0.5 * (params - batch) ** 2})
      >>> rule = rules.asgd(learning_rate=0.5)
      >>> tasks = [Task(grad_fn, params=params) for params in (jnp.zeros([]), jnp.ones([]))]
      >>> results = run_many(schedules, rule, tasks, lambda g: 1.0)
      >>> [float(result.params) for result in results], [result.history.worker.tolist() for result in results]
      ([1.25, 1.0], [[0, 1, 0], [1, 0, 1]])
    """
    watch = watch or Watch()
    arguments.one_of("lanes", lanes, LANES)
    if watch.report is not None:
        raise ValueError("watch.report must be left out: report is called as report(s, history) for each run")
    programs = _programs(schedules, watch)
    tasks = _of_each("tasks", tasks, programs, single=Task)
    for number, task in enumerate(tasks):
        check_task(f"tasks[{number}]", task)
    for name in ("params", "stats", "local"):
        _check_alike("tasks", [getattr(task, name) for task in tasks], f".{name}")
    rules = _of_each("rules", rules, programs, single=(ServerRule, optax.GradientTransformation))
    batch_fns = _of_each("batch_fns", batch_fns, programs, single=(Callable, Feed))
    parts = _parts(programs, rules, tasks, batch_fns, watch=watch, lanes=lanes)
    options = {"waves": False, "lanes": lanes, "mesh": None, "layout": None, "stateful": tasks[0].local is not None}
    engines = [
        ServerEngine(program, task.params, functions, watch, **options)
        for program, task, functions in zip(programs, tasks, parts, strict=True)
    ]
    return _Runs(engines, tasks, watch, report).finish()


class _Runs:
    """Several runs under way, at the same gradient.

    Args:
      engines: the engine of each run, all of one mode and capacity.
      tasks: of each run, where it begins.
      watch: what to evaluate.
      report: called at each evaluation.
    """

    def __init__(
        self,
        engines: list[ServerEngine],
        tasks: list[Task],
        watch: Watch,
        report: Callable[[int, History], None] | None,
    ):
        self._engines, self._watch, self._report = engines, watch, report
        self._evaluations: list[list[Evaluation]] = [[] for _ in engines]
        capacity, self._mode = engines[0].program.capacity, engines[0].mode
        sizes = {"rows": capacity.rows, "slots": capacity.slots, "kept": capacity.kept, "workers": capacity.workers}
        parts = [engine.parts for engine in engines]
        begun = _Joined.of([(task.params, task.stats, task.local, own) for task, own in zip(tasks, parts, strict=True)])
        self._carry = _start(begun, runs=len(engines), mode=self._mode, **sizes)
        # What all runs do at the same gradients, such as to complete an update, is decided once and not by masks.
        same = lambda first, column: first if np.array_equal(first, column) else column
        rows = [jax.tree.map(same, engines[0].rows, engine.rows) for engine in engines]
        self._program = _Joined.of(list(zip(rows, parts, strict=True)))

    def finish(self) -> list[Result]:
        """Executes all gradients, and returns the results."""
        begin = 0
        self._evaluate(begin)
        for pause in self._engines[0].program.pauses.tolist():
            self._carry = _advance(self._carry, self._program, np.int32(begin), np.int32(pause), mode=self._mode)
            begin = pause
            self._evaluate(begin)
        return [
            Result(**engine.outcome(self._run(number)), history=self._history(number))
            for number, engine in enumerate(self._engines)
        ]

    def _evaluate(self, gradients: int) -> None:
        if self._watch.evaluate is None:
            return
        for number, engine in enumerate(self._engines):
            updates, seconds = engine.program.made(gradients)
            values = jax.device_get(engine.evaluated(self._run(number, whole=False), gradients))
            counts = {"gradients": gradients, "updates": updates, "seconds": seconds}
            self._evaluations[number].append(counts | {name: float(value) for name, value in values.items()})
            if self._report is not None:
                self._report(number, self._history(number).first(gradients))

    def _run(self, number: int, *, whole: bool = True) -> Carry:
        """Return what is seen of one run: no versions and, unless asked for as a whole, nothing of each worker."""
        servers = (
            server._replace(slots=None, message=None, state=server.state if whole else None)
            for server in self._carry.servers
        )
        local = self._carry.local if whole else None
        return _part(self._carry._replace(servers=tuple(servers), kept=(), local=local, records=None), number)

    def _history(self, number: int) -> History:
        engine = self._engines[number]
        recorded = engine.records(_part(Carry((), (), None, None, None, self._carry.records), number))
        return History(**engine.program.record(), **recorded, evaluations=list(self._evaluations[number]))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Joined:
    """The trees of several runs: arrays that differ have a first axis of runs, the others are there once.

    Attributes:
      own: for each leaf an array [S, ...], or None.
      shared: for each leaf None, or the array of all runs.
      structure: of one run's tree.
    """

    own: list[Any]
    shared: list[Any]
    structure: jax.tree_util.PyTreeDef = dataclasses.field(metadata={"static": True})

    @classmethod
    def of(cls, trees: list[Tree]) -> "_Joined":
        """Joins trees of one structure. A leaf is shared if it is the same object, or the same number, in all."""
        leaves = list(zip(*(jax.tree.leaves(tree) for tree in trees), strict=True))
        shared = [all(leaf is of_all[0] or _equal_numbers(leaf, of_all[0]) for leaf in of_all) for of_all in leaves]
        return cls(
            own=[None if once else jnp.stack(of_all) for once, of_all in zip(shared, leaves, strict=True)],
            shared=[of_all[0] if once else None for once, of_all in zip(shared, leaves, strict=True)],
            structure=jax.tree.structure(trees[0]),
        )

    def tree(self, own: list[Any]) -> Tree:
        """The tree of one run, given what it does not share."""
        leaves = [mine if once is None else once for mine, once in zip(own, self.shared, strict=True)]
        return jax.tree.unflatten(self.structure, leaves)


def _equal_numbers(one: Any, other: Any) -> bool:
    """Return True if both are Python's numbers, and equal."""
    return isinstance(one, float | int) and type(one) is type(other) and one == other


@functools.partial(jax.jit, static_argnames=("runs", "rows", "slots", "kept", "workers", "mode"))
def _start(begun: _Joined, *, runs: int, mode: Mode, **sizes: int) -> Carry:
    """The carry of all runs before the first gradient."""
    return jax.vmap(lambda own: start(*begun.tree(own), mode=mode, **sizes), axis_size=runs)(begun.own)


@functools.partial(jax.jit, static_argnames=("mode",), donate_argnames=("carry",))
def _advance(carry: Carry, program: _Joined, begin: jax.Array, end: jax.Array, *, mode: Mode) -> Carry:
    """Executes gradients `begin` to `end` of all runs."""

    def one(carry: Carry, own: list[Any]) -> Carry:
        rows, parts = program.tree(own)
        return advance(carry, rows, begin, end, parts, mode=mode)

    return jax.vmap(one)(carry, program.own)


@jax.jit
def _part(carry: Carry, number: jax.Array) -> Carry:
    return jax.tree.map(lambda leaf: leaf[number], carry)


def _in_turn(grad_fn: Callable[..., Tree], *arguments: Tree) -> Tree:
    """A gradient; those of several runs are computed one after the other."""
    return sequential_vmap(lambda function, *own: function(*own))(grad_fn, *arguments)


def _parts(
    programs: list[ServerProgram],
    rules: list[Rule],
    tasks: list[Task],
    batch_fns: Sequence[Any],
    *,
    watch: Watch,
    lanes: str,
) -> list[Parts]:
    """The functions of each run, which differ in their data alone."""
    for program, rule, batch_fn in zip(programs, rules, batch_fns, strict=True):
        if isinstance(batch_fn, Feed):
            raise ValueError("batch_fns must be functions of g: a Feed makes the batches of a run by itself, see run")
        check_batches(batch_fn)
        check_rule(program, rule)
    # One object is one rule, whose functions are the same.
    found = {id(rule): rule if isinstance(rule, ServerRule) else server_rule(rule) for rule in rules}
    rules = [found[id(rule)] for rule in rules]
    _check_alike("rules", rules)
    batch_fns = [as_pytree(batch_fn) for batch_fn in batch_fns]
    _check_alike("batch_fns", batch_fns)
    grad_fns, folds = ([as_pytree(getattr(task, name)) for task in tasks] for name in ("grad_fn", "fold"))
    _check_alike("tasks", grad_fns, ".grad_fn")
    _check_alike("tasks", folds, ".fold")
    if lanes == "map":
        grad_fns = [jax.tree_util.Partial(_in_turn, grad_fn) for grad_fn in grad_fns]
    given = {"average_decay": watch.average_decay, "penalty": watch.norms}
    return [
        Parts.of(rule, grad_fn=grad_fn, batch_fn=batch_fn, fold=fold, **given)
        for rule, grad_fn, batch_fn, fold in zip(rules, grad_fns, batch_fns, folds, strict=True)
    ]


def _programs(schedules: Sequence[Schedule | ServerProgram], watch: Watch) -> list[ServerProgram]:
    """The programs of all runs, with room for the largest of each size."""
    if not isinstance(schedules, list | tuple) or not schedules:
        raise ValueError(f"schedules must be a list with a schedule for each run; it is {described(schedules)}")
    programs: list[Any] = [
        schedule if isinstance(schedule, Program) else lower(schedule, every=watch.every) for schedule in schedules
    ]
    for number, program in enumerate(programs):
        if not isinstance(program, ServerProgram):
            raise ValueError(f"schedules[{number}] must be of servers; peers are executed one run at a time, see run")
        if watch.every not in (None, program.every):
            raise ValueError(
                f"every={watch.every} differs from the every={program.every} that schedules[{number}] was lowered with"
            )
    for name, of in _SAME.items():
        first = of(programs[0])
        for number, program in enumerate(programs):
            if not np.array_equal(of(program), first):
                found, wanted = _short(of(program)), _short(first)
                raise ValueError(f"schedules[{number}] must have {name} of schedules[0]: {found} must be {wanted}")
    capacity = functools.reduce(operator.or_, (program.capacity for program in programs))
    return [dataclasses.replace(program, capacity=capacity) for program in programs]


_SAME: dict[str, Callable[[ServerProgram], Any]] = {
    "the number of used gradients": operator.attrgetter("num_rows"),
    "the number of blocks": operator.attrgetter("num_blocks"),
    "the kind of updates (of one gradient: True, of several: False)": operator.attrgetter("single"),
    "the order of uses (as gradients are computed: True, another: False)": operator.attrgetter("aligned"),
    "the pauses, in gradients,": operator.attrgetter("pauses"),
}
"""In what the programs of all runs are the same."""


def _short(value: Any) -> str:
    return np.array2string(value, threshold=8) if isinstance(value, np.ndarray) else str(value)


def _of_each(name: str, values: Any, programs: list[ServerProgram], *, single: Any = ()) -> list[Any]:
    """A value of each run, where one can stand for all if it is of one of the types `single`."""
    if isinstance(values, single):
        return [values] * len(programs)
    if isinstance(values, list | tuple) and len(values) == len(programs):
        return list(values)
    one = "be one for all runs, or " if single else ""
    found = f"a {type(values).__name__} of {len(values)}" if isinstance(values, list | tuple) else described(values)
    raise ValueError(f"{name} must {one}be a list of {len(programs)}, one for each run; it is {found}")


def _check_alike(name: str, trees: list[Tree], field: str = "") -> None:
    """Check that trees have one structure, which contains functions and static settings, and leaves of one type."""
    first, *others = ([(path, jax.typeof(leaf)) for path, leaf in jax.tree.leaves_with_path(tree)] for tree in trees)
    structure = jax.tree.structure(trees[0])
    for number, (tree, leaves) in enumerate(zip(trees[1:], others, strict=True), start=1):
        if jax.tree.structure(tree) != structure:
            raise ValueError(
                f"{name}[{number}]{field} must be like {name}[0]{field}, of the same functions, static settings and "
                f"tree; it is {jax.tree.structure(tree)}, which must be {structure}"
            )
        for (path, found), (_, wanted) in zip(leaves, first, strict=True):
            if (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
                types = (f"{kind.dtype}{list(kind.shape)}" for kind in (found, wanted))
                raise ValueError(
                    f"{name}[{number}]{field}{jax.tree_util.keystr(path)} is {', which must be '.join(types)}"
                )
