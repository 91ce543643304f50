"""`Nodes`, what runs on several machines, and what can be done to them: a server, and workers that join it, or of Ray.

What has ended is started again after a second, as SLURM, Kubernetes or systemd do it, on machines that have power.
"""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

from experiments.benchmarks.faults import joined, server, servers
from experiments.benchmarks.faults.namespaces import Machines
from sgdlab.live.recording import LiveRecording
from sgdlab.live.settings import VARIABLE

STRIKES = 4.0
"""Mean seconds between two strikes of a storm."""
_BAG = ("kill",) * 6 + ("freeze",) * 3 + ("cut",) * 2 + ("kill_server",)
"""Strikes of a storm, in any order; then as many again."""
_FREEZES, _PARTS = (1.0, 12.0), (2.0, 15.0)
"""Seconds, at least and at most."""
_MBITS, _SLOWER = 0.2, 0.7
"""Rate of a machine that sends slowly, and the share of others' gradients that its workers then do not reach."""
_PORTS = {"grpc": 8476, "ray": 6379}
_PAUSE = 1.0
_ROOT = pathlib.Path(__file__).parents[3]
_RAY = ("--disable-usage-stats", "--block", "--num-cpus=2", "--object-store-memory=100000000")


@dataclasses.dataclass(eq=False)
class _Kept:
    """Holds a process that is started again when it has ended."""

    node: str
    command: list[str]
    child: subprocess.Popen
    ended: float | None = None  # when that was seen


class Nodes:
    """Acts are the methods that take the name of a machine.

    Args:
      machines: on the first of them is the server, and workers are on all.
      folder: of the run.
      kind: one of `transports.MACHINES`.
      policy: a name in `runs.POLICIES`.
      seconds: mean time of a gradient.
      workers: how many there are.

    Attributes:
      before: what the log said each time the server had been killed.
      done: how often each strike of a storm was made.
    """

    def __init__(
        self, machines: Machines, folder: pathlib.Path, *, kind: str, policy: str, seconds: float, workers: int
    ):
        self._machines, self._folder, self._policy, self._workers = machines, folder, policy, workers
        self.before: list[LiveRecording] = []
        self.done: Counter[str] = Counter()
        self._down: set[str] = set()
        self._before_limit: list[int] = []
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._random, self._bag, self._strike_at = random.Random(1), [], math.inf
        address, token = f"{machines.address('node1')}:{_PORTS[kind]}", secrets.token_hex(32)
        self._env = {
            **servers.rounding(), "PYTHONPATH": str(_ROOT), "JAX_PLATFORMS": "cpu", VARIABLE: token,
            "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token,
        }  # fmt: skip
        given = {"policy": policy, "workers": workers, "seconds": seconds, "transport": kind, "address": address}
        (folder / server.RUN).write_text(json.dumps(given), encoding="utf-8")
        (folder / "workers").mkdir()
        if kind == "grpc":
            certify(folder, machines.address("node1"))
            own = ["-m", joined.__name__, address, str(folder / "server.pem")]
            places = [machines.names[worker % len(machines.names)] for worker in range(workers)]
            self._others = [self._begun(name, [sys.executable, *own]) for name in places]
        else:
            self._others = []
            for name in machines.names:  # the first one is the head of all
                self._others.append(self._begun(name, _ray(machines, name, address)))
                machines.wait_for(self._others[-1].child, "Ray runtime started")
        self._server = self._begun("node1", [sys.executable, "-m", server.__name__, str(folder)])

    def came(self) -> list[int]:
        """Return how many gradients of each worker have come."""
        with contextlib.suppress(OSError):
            return json.loads((self._folder / server.SEEN).read_text(encoding="utf-8"))
        return [0] * self._workers

    def tend(self) -> None:
        """Start what has ended, and do what is due."""
        now = time.monotonic()
        for due in [each for each in self._later if each[0] <= now]:
            self._later.remove(due)
            due[1]()
        if now >= self._strike_at:
            self._strike_at = now + self._random.expovariate(1 / STRIKES)
            self._bag = self._bag or self._random.sample(_BAG, len(_BAG))
            self._strike(self._bag.pop())
        for kept in (self._server, *self._others):
            if kept.node in self._down or kept.child.poll() is None:
                continue
            kept.ended = kept.ended or now
            if kept is self._server and kept.child.returncode != -signal.SIGKILL:
                raise RuntimeError(f"the server has ended: {self._last(kept)}")
            if now >= kept.ended + _PAUSE:
                kept.child, kept.ended = self._machines.start(kept.node, kept.command, **self._env), None

    def end(self) -> None:
        """Ask the server to end, and see that it does."""
        self._server.child.terminate()
        code = self._server.child.wait(60.0)
        if code != server.STOPPED:
            raise RuntimeError(f"the server has ended with exit code {code}: {self._last(self._server)}")

    def do(self, act: str, number: int) -> None:
        """Do a step of a scenario to a machine, 1, 2, ...: an act of this class, or else one of `Machines`."""
        name = self._machines.names[number - 1]
        getattr(self if hasattr(self, act) else self._machines, act)(name)

    def kill_node(self, name: str) -> None:
        """Its power fails: nobody hears a last word of it."""
        self._machines.cut(name)
        self._machines.kill(name)
        self._down.add(name)

    def boot(self, name: str) -> None:
        """It has power again."""
        self._machines.heal(name)
        self._down.discard(name)

    def limit(self, name: str) -> None:
        """It sends slowly from now on."""
        self._before_limit = self.came()
        self._machines.limit(name, _MBITS)

    def unlimit(self, name: str) -> None:
        """It sends fast again; RuntimeError if others were not faster meanwhile, or its workers stood still."""
        came = [new - old for new, old in zip(self.came(), self._before_limit, strict=True)]
        if not 0 < min(came) < _SLOWER * max(came):
            raise RuntimeError(f"where a machine sends slowly, workers have sent {came} gradients")
        self._machines.unlimit(name)

    def kill_server(self, name: str = "") -> None:
        """The server's process is killed; what it has written is remembered."""
        if self._server.child.poll() is None:
            self._server.child.kill()
            self._server.child.wait()
            with contextlib.suppress(ValueError):  # a run that has not begun
                self.before.append(servers.examined_in(self._folder / "log", self._policy, self._workers))

    def storm(self, name: str = "") -> None:
        """From now on something happens to something, again and again."""
        self._strike_at = time.monotonic()

    def calm(self, name: str = "") -> None:
        """No more of it, and all is mended."""
        self._strike_at = math.inf
        for _, mend in self._later:
            mend()
        self._later.clear()

    def _strike(self, what: str) -> None:
        """Do one thing of a storm, to anything, and say when it is over."""
        self.done[what] += 1
        child, name = self._random.choice(self._others).child, self._random.choice(self._machines.names)
        if what == "kill":
            child.kill()
        elif what == "kill_server":
            self.kill_server()
        elif what == "freeze":
            child.send_signal(signal.SIGSTOP)
            self._after(_FREEZES, lambda: child.send_signal(signal.SIGCONT))
        else:
            self._machines.cut(name)
            self._after(_PARTS, lambda: self._machines.heal(name))

    def _after(self, seconds: tuple[float, float], mend: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + self._random.uniform(*seconds), mend))

    def _begun(self, node: str, command: list[str]) -> _Kept:
        return _Kept(node, command, self._machines.start(node, command, **self._env))

    def _last(self, kept: _Kept) -> str:
        return " | ".join(self._machines.log(kept.child).strip().splitlines()[-3:])


def certify(folder: pathlib.Path, address: str) -> None:
    """Leave a certificate of a server and its key in a folder: server.pem, server.key."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=sgdlab", "-addext", f"subjectAltName=IP:{address}",
         "-out", folder / "server.pem", "-keyout", folder / "server.key"],
        check=True, capture_output=True,
    )  # fmt: skip


def _ray(machines: Machines, name: str, address: str) -> list[str]:
    """Return the command that makes a machine a node of a cluster, the first one its head."""
    own = f"--node-ip-address={machines.address(name)}"
    head = ["--head", f"--port={_PORTS['ray']}", "--include-dashboard=false", f"--temp-dir={machines.folder / 'ray'}"]
    which = head if name == machines.names[0] else [f"--address={address}"]
    return [os.path.join(os.path.dirname(sys.executable), "ray"), "start", own, *which, *_RAY]
