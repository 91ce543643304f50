"""`Acts`, what can be done to workers that compute on this machine, and to their messages."""

import contextlib
import pathlib
import random
import resource
import signal
import time

import psutil

from experiments.benchmarks.faults import work
from experiments.benchmarks.faults.disordered import Disordered
from sgdlab.live.messages import Lost
from sgdlab.live.transport import Transport

STORM_MEAN = 20.0
"""Mean seconds between two deaths of one worker in a storm."""
_MEMORY = 256 << 20
"""Bytes by which a worker may grow before it is killed, as a machine without memory does."""
_MOST_MEMORY = 1 << 30
"""Bytes by which it cannot grow, whatever happens: the machine is in no danger."""
_REQUESTS = 5_000
"""More messages than a pipe to a process that does not read can hold."""


class Acts(Disordered):
    """Between a server and its workers. Each act returns whether it was done; if not, it is to be tried again.

    Attributes:
      alive: worker -> number of its process, if it has joined.
      asked: worker -> when it was asked for the gradient that it has not answered.
      dead: workers that were killed with an answer that nobody has heard.
      growing: process -> bytes at which it is killed.
      deaths: how many processes were killed.
      notes: what was seen, by name.
    """

    def __init__(self, transport: Transport, folder: pathlib.Path, *, seconds: float, absent: tuple[int, ...] = ()):
        super().__init__(transport, on=False)
        self._folder, self._seconds = folder, seconds
        self._absent, self._held_back = set(absent), set()
        self.alive: dict[int, int] = {}
        self.asked: dict[int, float] = {}
        self.dead: set[int] = set()
        self.growing: dict[int, int] = {}
        self.deaths, self.notes = 0, {}
        self._told: dict[int, float] = {}  # worker -> since when it is slow, to be killed meanwhile
        self._storm: dict[int, float] = {}  # worker -> when it dies
        self._random = random.Random(1)

    @property
    def busy(self) -> bool:
        """Return whether somebody is to be killed soon."""
        return bool(self._storm or self.growing)

    def spawn(self, worker: int) -> None:
        """As the other does, unless the worker does not come yet."""
        if worker in self._absent:
            self._held_back.add(worker)
            self._held.append((self._calls, Lost(worker, "it is not there yet")))
        else:
            self.inner.spawn(worker)

    def leave(self) -> None:
        """Workers that are left are as they were: another run may use them."""
        for process in self.alive.values():
            with contextlib.suppress(psutil.Error, OSError):
                psutil.Process(process).send_signal(signal.SIGCONT)
                _, hard = resource.prlimit(process, resource.RLIMIT_AS)
                resource.prlimit(process, resource.RLIMIT_AS, (hard, hard))
        for path in self._folder.iterdir():
            if path.suffix[1:].isdigit():
                path.unlink(missing_ok=True)

    def kill_due(self) -> None:
        """Whoever is to die by now is killed: in a storm, or for its memory."""
        now = time.monotonic()
        for worker, when in self._storm.items():
            if now >= when:
                self._send(worker, signal.SIGKILL)
                self._storm[worker] = now + self._random.expovariate(1 / STORM_MEAN)
        for process, limit in list(self.growing.items()):
            with contextlib.suppress(psutil.Error):
                grown = psutil.Process(process)
                if grown.memory_info().rss < limit:
                    continue
                grown.kill()
                self.deaths += 1
            del self.growing[process]

    def kill_process(self, worker: int) -> bool:
        """Its process is killed at once."""
        return self._send(worker, signal.SIGKILL)

    def kill_computing(self, worker: int) -> bool:
        """Its process is killed in the midst of a gradient, which is made to take long."""
        if not self._tell(worker, "slow"):
            return False
        told, begun = self._told.setdefault(worker, time.monotonic()), self.asked.get(worker, 0.0)
        # It was told before it began, and takes at least 0.7 times the mean times SLOW.
        if begun <= told or not 2 * self._seconds < time.monotonic() - begun < 0.6 * work.SLOW * self._seconds:
            return False
        return self._send(worker, signal.SIGKILL) and self.fast(worker)

    def kill_unheard(self, worker: int) -> bool:
        """Its process is killed when it has sent its gradient, and nobody has heard it."""
        if worker not in self.asked or worker not in self.alive:
            return False
        time.sleep(4 * self._seconds)
        self._send(worker, signal.SIGKILL)
        self.dead.add(worker)
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self.alive[worker])
            while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.01)
        return True

    def kill_growing(self, worker: int) -> bool:
        """It takes memory until it is killed for it."""
        if not self._grow(worker, _MOST_MEMORY):
            return False
        process = self.alive[worker]
        self.growing[process] = psutil.Process(process).memory_info().rss + _MEMORY
        return True

    def refuse_memory(self, worker: int) -> bool:
        """It takes memory until it gets no more."""
        return self._grow(worker, _MEMORY)

    def stop(self, worker: int) -> bool:
        """Its process is stopped."""
        return self._send(worker, signal.SIGSTOP)

    def go_on(self, worker: int) -> bool:
        """Its process, if it still has the same one, runs on."""
        self._send(worker, signal.SIGCONT)
        return True

    def slow(self, worker: int) -> bool:
        """Its gradients take 10 times as long."""
        return self._tell(worker, "slow")

    def fast(self, worker: int) -> bool:
        """Its gradients take as long as they did, and so do those of all others."""
        for path in self._folder.glob("slow.*"):
            path.unlink(missing_ok=True)
        return True

    def fail(self, worker: int) -> bool:
        """Its next gradient raises."""
        return self._tell(worker, "raise")

    def nan(self, worker: int) -> bool:
        """Its next gradient is not a number."""
        return self._tell(worker, "nan")

    def come(self, worker: int) -> bool:
        """Return a worker that was absent comes, when it is next started."""
        self._absent.discard(worker)
        return worker in self._held_back

    def replace(self, worker: int) -> bool:
        """It leaves without a word, and comes back as another process under the same number."""
        if worker not in self.alive:
            return False
        self.inner.kill(worker)
        self.inner.spawn(worker)
        return True

    def flood(self, worker: int) -> bool:
        """It is sent more than its pipe holds: requests to give up what it has answered long ago."""
        begin = time.monotonic()
        for _ in range(_REQUESTS):
            self.inner.interrupt(worker, 0)
        self.notes["seconds to fill the pipe"] = round(time.monotonic() - begin, 3)
        return True

    def disorder(self) -> bool:
        """From now on messages come twice, late and out of order."""
        self.on = True
        return True

    def order(self) -> bool:
        """No more of it."""
        self.on = False
        return True

    def storm(self, worker: int) -> bool:
        """From now on it is killed again and again."""
        self._storm[worker] = time.monotonic() + self._random.expovariate(1 / STORM_MEAN)
        return True

    def calm(self, worker: int) -> bool:
        """No more of it."""
        self._storm.pop(worker, None)
        return True

    def _send(self, worker: int, number: signal.Signals) -> bool:
        if worker not in self.alive:
            return False
        with contextlib.suppress(psutil.Error):
            psutil.Process(self.alive[worker]).send_signal(number)
        self.deaths += number == signal.SIGKILL
        return True

    def _tell(self, worker: int, what: str) -> bool:
        if worker not in self.alive:
            return False
        work.tell(self._folder, what, self.alive[worker])
        return True

    def _grow(self, worker: int, most: int) -> bool:
        """It is told to grow; its address space, and no other process's, has an end."""
        if worker not in self.alive:
            return False
        process = self.alive[worker]
        limit = psutil.Process(process).memory_info().vms + most
        _, hard = resource.prlimit(process, resource.RLIMIT_AS)
        resource.prlimit(process, resource.RLIMIT_AS, (limit, hard))
        return self._tell(worker, "grow")
