"""`Ray`, the transport over actors of Ray: on a cluster of several machines, or, as a rehearsal of it, on this one.

On one machine `sgdlab.live.processes` does the same faster, with nothing to install and without a port. On a cluster
every node needs the same versions of Python, Ray, JAX and sgdlab, and a disk with the modules of `WorkSource` on it; a
recording is replayed to the bit where the kinds of processor agree too. Only the server's clock is used.

    ray start --head --node-ip-address=10.0.0.1          # once, in a private network, with RAY_AUTH_MODE=token
    ray start --address=10.0.0.1:6379                    # on every other machine
"""

import math
import re
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from sgdlab.live import environment
from sgdlab.live.messages import Lost, Message
from sgdlab.live.ray_cluster import Cluster
from sgdlab.live.shared_arrays import own
from sgdlab.live.transport import ANEW, WorkerLink, Workers
from sgdlab.live.worker import Actor
from sgdlab.types import Tree

_UNREACHED = ("ActorUnavailableError", "NodeDiedError", "OwnerDiedError")
_NODE_GONE = re.compile("node has died|marked dead")
_LONGEST = 200
"""Letters of what else Ray says."""
INLINE = 100 * 1024
"""Bytes. Parameters that are smaller are sent with each call; larger ones once a version, to each node's memory."""
_LOOK = 1.0
"""Seconds between two looks at whether the cluster has lost its head."""
_AVOIDED = 60.0
"""Seconds in which a node is avoided that has lost a worker which could not be reached, or was silent."""
_AHEAD = 2
"""Gradients that an actor is asked for at once: each keeps its parameters in memory, also of one that is stopped."""


class _Worker(WorkerLink):
    """One actor of a worker, from its start to its end."""

    def __init__(self, actor: Any, end: Callable[["_Worker"], None], node: str = ""):
        super().__init__()
        self.actor, self._end = actor, end
        self.node = node  # where it was placed; '': where Ray likes
        self.unlogged = ""  # why what it prints is not in the file for that
        self.asked = 0  # gradients that it has not answered
        # Those that it is asked for next, and their parameters.
        self.waiting: deque[tuple[dict[str, int], Any]] = deque()

    def kill(self) -> None:
        """End it at once."""
        self._end(self)

    def _ask(self, asked: dict[str, int], handle: Any) -> None:
        self.waiting.append((asked, handle))

    def _give_up(self, asked: dict[str, int]) -> None:
        given_up = lambda one: (one["run"], one["ticket"]) <= (asked["run"], asked["ticket"])
        self.waiting = deque((each, None if given_up(each) else params) for each, params in self.waiting)
        self.actor.interrupt.remote(asked["run"], asked["ticket"])


class _Call:
    """Holds what an actor was asked, and has not answered: a gradient, or else, to start or to exist."""

    def __init__(self, worker: int, of: _Worker, asked: dict[str, int] | None = None):
        self.worker, self.of, self.asked = worker, of, asked


class Ray(Workers):
    """Workers that are actors of Ray: a `sgdlab.live.transport.Transport`.

    Other arguments are as of `Workers`; where a worker's machine does not have the folder of `logs`, or may not write
    there, and where it is None, what it prints is left to Ray.

    Args:
      address: "local" starts a cluster on this machine that nobody else can reach; "auto" joins the one that runs on
        this machine; or its address.
      insecure: join a cluster that asks for no token, too.
      say: called with a line about a node: what its workers print cannot be written, or it has no worker.

    Raises:
      ValueError: if the source cannot be found by another process, `gpus_per_worker` is impossible, Ray is missing,
        there is no such cluster, or it asks for no token.
      HostLost: from `next`, once the head of the cluster has not answered for 10 seconds.
    """

    FIRST = None

    def __init__(
        self,
        *given: Any,
        address: str = "local",
        insecure: bool = False,
        say: Callable[[str], None] = print,
        **named: Any,
    ):
        super().__init__(*given, **named)
        self._logs, self._say = self._logs and self._logs.absolute(), say
        self._named: set[str] = set()  # lines about nodes that have been said
        self._failed: dict[str, float] = {}  # node -> when a worker of it could not be reached, or was silent
        self._calls: dict[Any, _Call] = {}  # in the order of their questions
        self._memory = np.empty(self._params.size, np.uint8)
        num_workers, gpus_per_worker = self._num_workers, self._gpus_per_worker
        # Each worker has one gradient under way and reads one version; the server keeps some more for a while.
        memory = (64 << 20) + 4 * (num_workers + 2) * (self._params.size + self._answer.size)
        self._cluster = Cluster(address, memory=memory, insecure=insecure)
        self._ray = self._cluster.ray
        where = {"cores": self._cluster.cores, "local": self._cluster.local}
        self._remote = self._ray.remote(
            num_cpus=0,
            num_gpus=gpus_per_worker or 0,
            max_restarts=0,  # a death is seen ten times sooner, and a successor is the server's decision
            max_task_retries=0,  # no ticket is computed twice
            concurrency_groups={"control": 1, "watch": 1},
            scheduling_strategy="SPREAD",  # what has GPUs is then on many machines; for others see `_placed`
            runtime_env={"env_vars": environment.for_actors(num_workers, gpus_per_worker, self._env, **where)},
        )(_grouped(self._ray))

    def publish(self, tree: Tree) -> Any:
        """Copy a version of the parameters to where workers read it, and return that; it is there while it is held."""
        self._params.write(self._params.views(self._memory), tree)
        return self._memory.copy() if self._params.size < INLINE else self._ray.put(self._memory)

    def begin(self, worker: int, ticket: int, handle: Any, *, after: int = ANEW, version: int = 0) -> None:
        """Send a worker its next gradient, unless it has enough to do."""
        super().begin(worker, ticket, handle, after=after, version=version)
        if worker in self._workers:
            self._ask(worker, self._workers[worker])

    def kill(self, worker: int) -> None:
        """End a worker's process without a message, and avoid its node for a while."""
        if worker in self._workers:
            self._failed[self._workers[worker].node] = time.monotonic()
        super().kill(worker)

    def close(self) -> None:
        """End all workers, and the cluster if it was started here."""
        for worker in list(self._workers):
            self.kill(worker)
        self._cluster.close()

    def _begin_process(self, worker: int) -> None:
        if self._logs is not None:
            self._logs.mkdir(parents=True, exist_ok=True)
        new = self._workers[worker] = self._placed(worker)
        start = new.actor.start.remote(self._start(), self._log(worker))
        self._calls |= {start: _Call(worker, new), new.actor.exist.remote(): _Call(worker, new)}

    def _forget(self, worker: int) -> _Worker | None:
        gone = self._workers.pop(worker, None)
        self._calls = {reference: call for reference, call in self._calls.items() if call.of is not gone}
        return gone

    def _receive(self, seconds: float | None) -> list[tuple[int, Message]]:
        self._cluster.head.check()
        # The earlier question's answer comes first.
        return [(0, message) for message in self._answers(_LOOK if seconds is None else min(seconds, _LOOK))]

    def _placed(self, worker: int) -> _Worker:
        """Start an actor on the node that has the fewest workers, of those that have not failed just now.

        Ray places by chance what needs no GPU, often all on one node; if the node is gone, it takes another one.
        """
        nodes = [] if self._gpus_per_worker else self._cluster.places()
        if not nodes:
            return _Worker(self._remote.remote(worker), self._end)
        has, late = Counter(other.node for other in self._workers.values()), time.monotonic() - _AVOIDED
        node = min(nodes, key=lambda node: (self._failed.get(node, -math.inf) > late, has[node]))
        actor = self._remote.options(scheduling_strategy=self._cluster.at(node)).remote(worker)
        return _Worker(actor, self._end, node)

    def _ask(self, worker: int, of: _Worker) -> None:
        while of.waiting and of.asked < _AHEAD:
            asked, params = of.waiting.popleft()
            of.asked += 1
            self._calls[of.actor.compute.remote(asked, params)] = _Call(worker, of, asked)

    def _answers(self, timeout: float) -> list[Message]:
        """Return what has come of the calls, after at most `timeout` seconds, or as soon as there is something."""
        if not self._calls:
            time.sleep(timeout)
            return []
        ready, _ = self._ray.wait(list(self._calls), num_returns=1, timeout=timeout)
        if ready:  # and whoever else has come: `wait` prefers the front of the list
            ready, _ = self._ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0)
        there = set(ready)
        found = []
        for reference, call in [pair for pair in self._calls.items() if pair[0] in there]:
            if self._calls.pop(reference, None) is not None:  # else its worker was lost by an earlier one
                found += self._heard(reference, call)
        return found

    def _heard(self, reference: Any, call: _Call) -> list[Message]:
        message = self._answered(reference, call)
        if self._workers.get(call.worker) is not call.of:
            return []
        if isinstance(message, Lost):
            self._forget(call.worker)
            self._end(call.of)
            return [message]
        if call.asked is None:
            return [message]
        call.of.asked -= 1
        self._ask(call.worker, call.of)
        return [message] if call.asked["run"] == call.of.run else []

    def _answered(self, reference: Any, call: _Call) -> Message:
        try:
            said, computed = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:  # of Ray's own: what a gradient raises is an answer
            why = _first_line(error.cause)
            if call.asked is None:
                return Lost(call.worker, why)
            said = {**call.asked, "kind": "failed", "error": why}
        except self._ray.exceptions.RayError as error:
            if type(error).__name__ in _UNREACHED or _NODE_GONE.search(str(error)):
                self._failed[call.of.node] = time.monotonic()
            return Lost(call.worker, self._why(error, call))
        if said["kind"] == "broken":
            return Lost(call.worker, f"it could not start: {said['error']}")
        message = self._message(call.worker, call.of, said, lambda: own(computed))
        if said["kind"] == "joined":
            call.of.unlogged = str(said["unlogged"])
            self._cluster.note()
            self._name_nodes(call.of)
        return message

    def _name_nodes(self, of: _Worker) -> None:
        """Say of which nodes the work directory cannot be written, and, when all workers are there, which have none."""
        lines = []
        if of.unlogged:
            lines = [f"{of.joined.host}: {of.unlogged}; what its workers print is in Ray's own logs"]
        hosts = [worker.joined.host for worker in self._workers.values() if worker.joined is not None]
        if len(hosts) == self._num_workers:
            lines += [f"{node}: no worker" for node in sorted(self._cluster.nodes().difference(hosts))]
        for line in lines:
            if line not in self._named:
                self._named.add(line)
                self._say(line)

    def _why(self, error: Exception, call: _Call) -> str:
        joined, log = call.of.joined, self._log(call.worker)
        before = "" if joined else " before its first gradient"
        on = "" if joined is None or self._cluster.local else f" on {joined.host}"
        see = "" if log is None or call.of.unlogged else f"; see {log}{on}"
        return f"{_words(error)}{before}{see}"

    def _end(self, worker: _Worker) -> None:
        if self._cluster.head.lost:
            return  # nobody carries it out
        self._ray.kill(worker.actor, no_restart=True)
        if worker.joined is not None:
            self._cluster.kill(worker.joined.process)


def _grouped(ray: Any) -> type[Actor]:
    """Return `Actor` with threads of their own for the methods that must answer while it computes."""

    class GroupedActor(Actor):
        interrupt = ray.method(concurrency_group="control")(Actor.interrupt)
        exist = ray.method(concurrency_group="watch")(Actor.exist)

    return GroupedActor


def _words(error: Exception) -> str:
    """Return what Ray knows of a worker that is lost, in a few words: of one that cannot be reached it knows no end."""
    text = str(error)
    detail = re.search(r"exit detail: (.+?)(?: Some common causes|$)", text, re.MULTILINE)
    if detail and "unexpectedly" in detail[1]:
        return "its process has ended without a message (killed?)"
    if detail:
        return f"its process has ended ({detail[1].rstrip('.')})"
    if _NODE_GONE.search(text):
        return "its node counts as lost"
    if type(error).__name__ in _UNREACHED:
        return "it cannot be reached: its process, its node or the network between has failed"
    return f"it is lost ({_first_line(error)[:_LONGEST]})"


def _first_line(error: object) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
