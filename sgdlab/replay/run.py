"""`run`, which executes a schedule, and `check_rule`, whether a rule can be used with one."""

import dataclasses
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from sgdlab import arguments, hosts
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.replay.execution import Execution
from sgdlab.replay.feed import Feed
from sgdlab.replay.functions import Parts, check_batches
from sgdlab.replay.history import Result
from sgdlab.replay.lowering import lower
from sgdlab.replay.own_points import check_points
from sgdlab.replay.peer_engine import PeerEngine
from sgdlab.replay.peer_program import PeerProgram
from sgdlab.replay.program import Program
from sgdlab.replay.server_engine import ServerEngine
from sgdlab.replay.sharding import KINDS
from sgdlab.replay.watch import Watch
from sgdlab.rules.server_rule import ServerRule, absorbed, received, server_rule
from sgdlab.schedule import Schedule
from sgdlab.tasks.task import Task, described
from sgdlab.types import Tree

if TYPE_CHECKING:
    from sgdlab.checkpoints import Checkpoints

LANES = ("vmap", "map")


def run(  # noqa: PLR0913 (one function for every run)
    schedule: Schedule | PeerSchedule | Program,
    rule: ServerRule | optax.GradientTransformation,
    task: Task,
    batch_fn: Callable[[jax.Array], Tree] | Feed,
    *,
    mode: str | None = None,
    lanes: str = "vmap",
    mesh: Mesh | None = None,
    layout: str | None = None,
    step_scale: np.ndarray | None = None,
    watch: Watch | None = None,
    checkpoints: "Checkpoints | None" = None,
    stop: Callable[[], bool] | None = None,
) -> Result:
    """Execute a schedule: every gradient on the version it read, every update in order.

    Event mode is the definition: one gradient after the other. Wave mode gives the same result: it computes at once
    the gradients that read versions made before any of them, then applies them in order. Dropped gradients are not
    computed. Peers start from the same parameters, average in order, and each has its own optimiser.

    Memory: one copy of the parameters for each version that some worker holds (at most one per worker; a single one
    for synchronous schedules; for peers, one per node in addition), the state of the rule, and in wave mode, for each
    lane, the activations and two more copies (three for peers; one if the gradients of each wave read one version).
    There are at most as many lanes as workers, rounded up to a power of two.

    One compiled program serves every schedule of the same capacity and all values of the hyperparameters.

    Args:
      schedule: a schedule that a protocol returned, or its program (`lower`).
      rule: the update rule of the server, or of each peer: a rule of `sgdlab.rules`, whose hyperparameters are data of
        the compiled program, or any optax transform.
      task: the gradient function, initial parameters and, where there are any, running statistics and the state of a
        worker; `Task(grad_fn, params)`, or one of a network (`sgdlab.tasks`).
      batch_fn: `(g) -> batch` for the g-th of the R gradients that enter an update, g = 0 to R - 1; traced. The row
        of that gradient in the schedule is `lower(schedule).gradient[g]`. A `Feed` makes them on the host instead.
      mode: "event", "wave", or None, which is wave with a mesh, and on accelerators if waves have at least two
        gradients on average; event otherwise.
      lanes: how the gradients of a wave are computed: "vmap", all in one operation after the other, or "map", one
        gradient after the other, each with its own operations. "map" takes the activations of one gradient, and is
        faster where one gradient keeps the device busy: from small convolutional nets on for a CPU.
      mesh: devices, of this process or of many (`sgdlab.hosts.mesh`), over which waves are sharded, in their order.
        Over many processes all of them call this function, with the same arguments, and get the same result, of which
        `state`, `local` and `nodes` stay sharded; the first one evaluates servers and reports.
      layout: where the arrays are on a mesh. "sharded": servers, versions and what else grows with the number of
        workers are split along axes of the parameters; "replicated": they are on every device, and applying a gradient
        needs no communication. None: replicated where every wave is one update, of which the devices exchange only the
        mean, and for at most 10^6 parameters whose versions take at most 2 GiB.
      step_scale: float[R], peers only: factor of the step of each gradient. It expresses a learning rate that depends
        on the gradients of all nodes; `rule` counts each node's own steps only. None: 1.
      watch: what to evaluate and record during the run; `norms` and `average_decay` are for servers.
      checkpoints: where the whole state of the run is saved, where that is due, at its pauses, one for each evaluation,
        and whenever it asks `stop`. A run whose checkpoints are there continues from the newest, and its result is that
        of a run that was never interrupted, bit for bit; `watch.report` is called again for the evaluations that had
        been made. On another number of devices sums over lanes are added up in another order, and the result is the
        same to rounding.
      stop: `() -> bool`, whether to stop; asked about every two seconds, but not while something is compiled or
        evaluated. Where there are checkpoints, the state is saved then, at once. Over many processes all stop if it is
        true in one.

    Returns:
      A `Result`.

    Raises:
      Stopped: if `stop` was true before the end.
      ValueError: if an argument is of the wrong kind, functions do not return what is asked of them, arguments do not
        fit each other, or processes have different schedules or parameters. Nothing is compiled before. Exceptions of
        the functions themselves are not caught.

    Example:
      >>> import jax.numpy as jnp, numpy as np
      >>> from sgdlab import protocols, rules
      >>> schedule = protocols.asynchronous(np.array([[2.0, 3.0], [2.0, 3.0]]), num_gradients=3)
      >>> grad_fn = lambda params, batch: (params - batch, {"loss": 0.5 * (params - batch) ** 2})
      >>> task = Task(grad_fn, params=jnp.zeros([]))
      >>> result = run(schedule, rules.asgd(learning_rate=0.5), task, lambda g: 1.0)
      >>> float(result.params), result.history.aux["loss"]
      (1.25, array([0.5  , 0.5  , 0.125], dtype=float32))
      >>> schedule = protocols.gossip(np.ones((2, 2)), clock="rounds", seed=0)
      >>> run(schedule, rules.asgd(learning_rate=0.5), task, lambda g: g % 2).nodes
      Array([0.125, 0.625], dtype=float32)
    """
    watch = watch or Watch()
    _check_mode(mode, mesh)
    arguments.one_of("lanes", lanes, LANES)
    if layout is not None:
        arguments.one_of("layout", layout, KINDS)
    feed = batch_fn if isinstance(batch_fn, Feed) else None
    check_task("task", task)
    check_batches(feed.read if feed else batch_fn)
    stateful, rule = task.local is not None, _as_rule(rule)
    by_worker = stateful or rule.point is not None
    program: Any = (
        schedule if isinstance(schedule, Program) else lower(schedule, every=watch.every, by_worker=by_worker)
    )
    if watch.every not in (None, program.every):
        raise ValueError(
            f"every={watch.every} differs from the every={program.every} that the program was lowered with"
        )
    check_rule(program, rule)
    waves = mode == "wave" or (mode is None and _prefers_waves(program, mesh))
    if waves and by_worker and not program.by_worker:
        what = "local" if stateful else "rule"
        raise ValueError(f"{what} needs a program of waves without two gradients of one worker: lower(by_worker=True)")
    batches: Any = batch_fn
    if feed is not None:
        _check_size(feed, program, waves)
        batches = feed.example()
    parts = Parts.of(
        rule,
        grad_fn=task.grad_fn,
        batch_fn=batches,
        fold=task.fold,
        average_decay=watch.average_decay,
        penalty=watch.norms,
    )
    static = {"waves": waves, "lanes": lanes, "mesh": mesh, "layout": layout, "stateful": stateful}
    if isinstance(program, PeerProgram):
        _check_peers(watch)
        scale = _checked_scale(step_scale, program.num_rows)
        engine = PeerEngine(program, task.params, parts, watch, scale=scale, **static)
    elif step_scale is not None:
        raise ValueError("step_scale must be left out for a schedule of servers: their rule has the learning rate")
    else:
        engine = ServerEngine(program, task.params, parts, watch, **static)
    if engine.layout.many_processes:
        _check_same(program, task.params)
    begun = engine.start(task.params, task.stats, task.local)
    execution = Execution(engine, begun, watch, waves=waves, checkpoints=checkpoints, stop=stop)
    if feed is not None:
        engine.parts = engine.parts._replace(batch_fn=None)  # the example has said what batches look like
    return execution.finish(feed)


def check_task(name: str, task: Any) -> None:
    """Check that an argument is a `Task`.

    Raises:
      ValueError: if it is not; it says what it is.

    Example:
      >>> check_task("task", Task(jnp.sin, params=jnp.zeros([])))
    """
    if not isinstance(task, Task):
        raise ValueError(
            f"{name} must be a task, sgdlab.tasks.Task(grad_fn, params) or that of a network; it is {described(task)}"
        )


def check_rule(schedule: Schedule | PeerSchedule | Program, rule: ServerRule | optax.GradientTransformation) -> None:
    """Checks that a rule can be used with a schedule; `run` does so before anything is compiled.

    Args:
      schedule: a schedule, or its `lower`ed program.
      rule: a rule of `sgdlab.rules`, or any optax transform, which can be used with every schedule.

    Raises:
      ValueError: if the rule has state for fewer workers than the schedule has; if it has state per worker, but an
        update has several gradients or every peer has its own optimiser; if its workers compute at points of their own,
        which the schedule does not provide for; or if it is neither a rule nor a transform.

    Example:
      >>> import numpy as np
      >>> from sgdlab import protocols, rules
      >>> check_rule(protocols.asynchronous(np.ones((2, 3))), rules.dana(learning_rate=0.1, num_workers=2))
      Traceback (most recent call last):
      ValueError: rule keeps state for num_workers=2, but schedule has 3 workers
    """
    rule = _as_rule(rule)
    workers = rule.num_workers
    check_points(schedule, rule)
    if rule.absorb is not None and isinstance(schedule, PeerSchedule | PeerProgram):
        raise ValueError("rule absorbs the gradients of a server's workers; each node has its own optimiser, without")
    if workers is None:
        return
    if isinstance(schedule, PeerSchedule | PeerProgram):
        raise ValueError(
            f"rule keeps state for num_workers={workers} workers of a server; each node has its own optimiser, one "
            "without workers"
        )
    if workers < schedule.num_workers:
        raise ValueError(f"rule keeps state for num_workers={workers}, but schedule has {schedule.num_workers} workers")
    if not _single(schedule):
        number = jax.ShapeDtypeStruct((), jnp.float32)
        params = jax.ShapeDtypeStruct((1,), jnp.float32)

        def update(number: jax.Array, params: jax.Array) -> Tree:
            state = rule.init(params)
            use = {"worker": 0, "delay": number, "read_params": params, "number": 0}
            state = absorbed(rule, params, state, params, **use)
            message = received(rule, params, state, params, **use)
            return rule.update(message, state, params, num_gradients=number, delay=number, worker=None)

        jax.eval_shape(update, number, params)


def _check_same(program: Program, params: Tree) -> None:
    """Checks that all processes of a run have the same schedule and the same initial parameters, and waits for them.

    Raises:
      ValueError: if they do not; nothing else would notice.
    """
    digest = hashlib.sha256()
    fields = [getattr(program, field.name) for field in dataclasses.fields(program)]
    for leaf in [*(field for field in fields if isinstance(field, np.ndarray)), *jax.tree.leaves(params)]:
        digest.update(np.ascontiguousarray(leaf).tobytes())
    found = hosts.gather("the beginning of a run", digest.hexdigest())
    others = [index for index, other in enumerate(found) if other != found[0]]
    if others:
        raise ValueError(
            f"schedule and params must be the same in all processes; those of process {others[0]} on "
            f"{hosts.host_of(others[0])} differ from those of process 0: were their seeds the same?"
        )


def _single(schedule: Schedule | Program) -> bool:
    """Return True if every update has exactly one gradient."""
    if isinstance(schedule, Program):
        return schedule.single
    return int(schedule.used().sum()) == int(np.isfinite(schedule.applied).sum())


def _as_rule(rule: ServerRule | optax.GradientTransformation) -> ServerRule:
    if isinstance(rule, ServerRule):
        return rule
    if isinstance(rule, optax.GradientTransformation):
        return server_rule(rule)
    raise ValueError(
        "rule must be a rule such as sgdlab.rules.asgd(learning_rate=0.1), or an optax transform such as "
        f"optax.sgd(0.1); it is {described(rule)}"
    )


def _check_mode(mode: str | None, mesh: Mesh | None) -> None:
    if mode not in (None, "event", "wave"):
        raise ValueError(f"mode={mode!r} must be 'event', 'wave' or None")
    if mode == "event" and mesh is not None:
        raise ValueError("mode='event' computes one gradient at a time; a mesh shards waves: use mode='wave'")


def _check_peers(watch: Watch) -> None:
    if watch.norms or watch.average_decay is not None:
        raise ValueError("watch: norms and average_decay are the server's; peers have none")


def _check_size(feed: Feed, program: Program, waves: bool) -> None:
    longest = int(np.diff(program.waves).max()) if waves else 1
    if feed.size < longest:
        raise ValueError(f"batch_fn.size={feed.size} must be at least {longest}, the gradients of the longest wave")


def _checked_scale(step_scale: np.ndarray | None, rows: int) -> np.ndarray:
    scale = np.ones(rows) if step_scale is None else np.asarray(step_scale, float)
    if scale.shape != (rows,) or not np.isfinite(scale).all():
        raise ValueError(f"step_scale of shape {scale.shape} must be finite numbers, one for each of {rows} gradients")
    return scale


def _prefers_waves(program: Program, mesh: Mesh | None) -> bool:
    """Return True if wave mode is expected to be faster.

    Measured on two CPU cores, 32 workers, batches of 32: if waves are uniform, 1.1 to 1.8 times the speed of event
    mode for a perceptron, but a third of it for a convolutional net; otherwise slower than event mode for both.
    """
    return mesh is not None or (jax.default_backend() != "cpu" and program.mean_wave_length() >= 2)
