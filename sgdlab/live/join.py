"""`join`, the worker's side of a live run whose workers connect: tickets and parameters come, gradients go.

What it imports is NumPy and gRPC; JAX only where parameters are of other things than dictionaries and lists.
"""

import collections
import json
import os
import queue
import random
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np

from sgdlab import __version__
from sgdlab.live import frames
from sgdlab.live.frames import FORMAT, Frames, header
from sgdlab.live.settings import Token, channel, check_address, grpc_or_error, token_of
from sgdlab.live.shared_arrays import Field, Fields, TreeForm, aligned

Tree = Any
_PAUSES = (0.25, 15.0)
"""Seconds before the first attempt to come back, and at most: each takes twice as long as the one before."""
_AHEAD = 4
"""Messages that wait to be sent."""
_LOOK_SECONDS = 1.0
_FINAL = ("UNAUTHENTICATED", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "UNIMPLEMENTED", "PERMISSION_DENIED")
"""Answers that are the same however often one asks."""


def join(
    address: str,
    token: Token = None,
    *,
    certificate: str | os.PathLike[str] | None = None,
    insecure: bool = False,
    params_like: Tree = None,
    wait_seconds: float = 600.0,
) -> "JoinedWorker":
    """Join a live run of `sgdlab.live.LiveServer`, from any process that can reach it.

        with sgdlab.live.join("10.0.0.1:8476", pathlib.Path("token"), certificate="server.pem") as worker:
            for ticket, params in worker:
                loss, grads = value_and_grad(params, batch_of(ticket))
                worker.send(grads, loss)

    The loop ends when the run has ended. If the server is lost, the loop waits until it is there again, and goes on as
    a new worker. If more workers come than the run has places, they wait for one. An error in the block lets the server
    know, and leaves the run.

    Args:
      address: of the server, "HOST:PORT".
      token: of the server; a `pathlib.Path` is a file that holds it, None the environment variable SGDLAB_TOKEN.
      certificate: a PEM file of the server's certificate, or of that by which it is signed; None: no TLS.
      insecure: whether the token may go beyond this machine without TLS.
      params_like: a pytree like the parameters, where these are not of dictionaries and lists alone.
      wait_seconds: how long to look for a server that is not there.

    Raises:
      ValueError: if an argument is impossible, or `params_like` is not like the server's parameters.
      ConnectionError: if the server refuses this worker (it says why), or is not there for `wait_seconds`; the former
        is a `ConnectionRefusedError`.
    """
    check_address(address, certificate=certificate, insecure=insecure)
    grpc_or_error()
    return JoinedWorker(address, token_of(token), certificate, params_like, wait_seconds)


class JoinedWorker:
    """A worker of a run, in this process: an iterator over what it is asked for. `join` makes it.

    Attributes:
      number: of the worker, 0, 1, ...; another one after the server was lost.
      num_workers: the largest number of workers that take part.
    """

    number, num_workers = -1, -1

    def __init__(self, address: str, token: str, certificate: Any, params_like: Tree, wait_seconds: float):
        self.address, self._token, self._certificate = address, token, certificate
        self._like, self._wait_seconds = params_like, wait_seconds
        self._line: Any = None
        self._asked: Any = None  # what the caller has in hand
        self._began = 0.0

    def __enter__(self) -> Self:
        self._connect()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._line.leave("" if error is None else f"{type(error).__name__}: {error}")

    def __iter__(self) -> Iterator[tuple[int, Tree]]:
        return self

    def __next__(self) -> tuple[int, Tree]:
        """Return the next ticket, and the parameters to compute it on; these are valid until the next call.

        A ticket that was not answered is given up.
        """
        if self._line is None:
            raise ValueError("a worker must be entered first: with sgdlab.live.join(...) as worker")
        self._give_up()
        found = self._next()
        if found is None:
            raise StopIteration
        self._asked, self._began = found, time.perf_counter()
        return found.ticket, self._line.tree(found.memory)

    def _next(self) -> Any:
        """Return what is asked for next, if it is still wanted; None if the run has ended."""
        while True:
            found = self._line.next()
            if found is None:
                if self._line.ended:
                    return None
                self._line.close()
                if self._line.refused:
                    raise ConnectionRefusedError(f"{self.address} {self._line.refused}")
                self._connect()
            elif self._line.is_void(found):
                self._line.answer(found, "gave_up", 0.0)
            else:
                return found

    @property
    def interrupted(self) -> bool:
        """Return True if the gradient that is being computed is no longer wanted: it may be given up, or sent."""
        return self._asked is not None and (self._line.lost or self._line.is_void(self._asked))

    def send(self, grads: Tree, loss: Any = float("nan")) -> None:
        """Send the gradient of the last ticket, arrays like the parameters, and its loss; they may be changed then.

        Where the ticket is no longer wanted, or the server is lost, nothing is sent.

        Raises:
          ValueError: if they are not like the parameters, or there is no ticket to answer.
        """
        if np.shape(loss):
            raise ValueError(f"loss of shape {np.shape(loss)} must be a number")
        self.send_with(grads, {"loss": np.float32(loss)})

    def send_with(self, grads: Tree, aux: Tree) -> None:
        """Send the gradient of the last ticket, with what the server wants beside it in the place of a loss."""
        if self._asked is None or self._line.lost or self._line.is_void(self._asked):
            self._line.answer(self._taken(), "gave_up", time.perf_counter() - self._began)
        else:
            body = self._line.packed(grads, aux)  # before the ticket is taken, which can be answered otherwise
            self._line.answer(self._taken(), "came", time.perf_counter() - self._began, body=body)

    def fail(self, error: Any) -> None:
        """Say that the gradient of the last ticket cannot be computed, and why: the server goes on with another."""
        self._line.answer(self._taken(), "failed", time.perf_counter() - self._began, error=str(error))

    def _taken(self) -> Any:
        if self._asked is None:
            raise ValueError("there must be a ticket to answer: each one, once")
        asked, self._asked = self._asked, None
        return asked

    def _give_up(self) -> None:
        if self._asked is not None:
            self._line.answer(self._taken(), "gave_up", time.perf_counter() - self._began)

    def _connect(self) -> None:
        end, pause = time.monotonic() + self._wait_seconds, _PAUSES[0]
        while True:
            line = _Line(self.address, self._token, self._certificate)
            try:
                welcome = line.welcome()
                break
            except _Refused as refused:
                line.close()
                if refused.final or time.monotonic() >= end:
                    kind = ConnectionRefusedError if refused.final else ConnectionError
                    raise kind(f"{self.address} {refused}") from None
            # Not all at once, where many have lost the same server.
            time.sleep(min(pause * random.uniform(0.5, 1.0), max(end - time.monotonic(), 0.0)))
            pause = min(2 * pause, _PAUSES[1])
        self._line = line
        if welcome is not None:
            self.number, self.num_workers = welcome["worker"], welcome["workers"]
            try:
                self._prepare(line, welcome)
            except Exception as error:
                line.leave(f"{error}")
                raise
            line.ready()

    def _prepare(self, line: "_Line", welcome: dict[str, Any]) -> None:
        """Make what is needed to answer a server that has said this."""
        if "work" in welcome:
            raise ConnectionRefusedError(
                f"{self.address} trains a configuration of its own: its workers are started by `sgdlab live --join`"
            )
        line.learn(welcome["trees"], self._like)


class _Refused(Exception):
    def __init__(self, why: str, *, final: bool):
        super().__init__(why)
        self.final = final


class _Question:
    """Holds a ticket, and where the parameters to compute it on lie."""

    def __init__(self, said: dict[str, Any], memory: np.ndarray | None):
        self.said, self.run, self.ticket, self.memory = said, said["run"], said["ticket"], memory


class _Line:
    """One connection to the server, from its welcome to its end; a thread of its own hears what comes."""

    def __init__(self, address: str, token: str, certificate: Any):
        self.lost, self.ended, self.refused = False, False, ""
        self._void = (0, -1)  # (run, ticket): the last that was interrupted; both only grow
        self._news = threading.Condition()
        self._begun: collections.deque[_Question] = collections.deque()
        self._hand: _Question | None = None
        self._newest: Any = None  # memory of the version that has come last
        self._memories: list[np.ndarray] = []
        self._out: queue.Queue[bytes | None] = queue.Queue(_AHEAD)
        frames.keep_memory()
        self._channel = channel(address, certificate, [*frames.OPTIONS, ("grpc.enable_retries", 0)])
        call = self._channel.stream_stream(f"/{frames.SERVICE}/{frames.METHOD}")
        self._call = call(self._messages(), metadata=((frames.TOKEN, token),))
        self._frames = Frames(self._call)

    def welcome(self) -> dict[str, Any] | None:
        """Return what the server says of this worker and of the parameters; None if the run has ended."""
        self._say("hello", format=FORMAT, process=os.getpid(), host=socket.gethostname(), sgdlab=__version__)
        try:
            said = self._frames.header()
            if said["kind"] == "ended":
                self.ended = self.lost = True
                return None
            if said["kind"] != "welcome" or said.get("format") != FORMAT:
                theirs = said.get("format")
                raise _Refused(f"speaks format {theirs} of messages, and this worker format {FORMAT}", final=True)
            body = json.loads(self._frames.body(np.empty(said["size"], np.uint8)).tobytes())
            self._params, self._answer = Fields(body["params"]), Fields(body["answer"])
        except EOFError:
            raise _Refused("has ended the connection", final=False) from None
        except (ValueError, KeyError, TypeError) as error:
            raise _Refused(f"is no server of sgdlab: {error}", final=True) from error
        except grpc_or_error().RpcError as error:
            final = error.code().name in _FINAL
            how = "has refused this worker" if final else "cannot be reached"
            raise _Refused(f"{how}: {error.details()}", final=final) from None
        threading.Thread(target=self._listen, name="sgdlab-join", daemon=True).start()
        return {**said, **body}

    def learn(self, trees: dict[str, Any], like: Tree) -> None:
        """Learn the form of all trees; ValueError if the parameters are not those that the worker knows."""
        self._trees = {
            "params": TreeForm(trees["params"], like, "params_like"),
            "aux": TreeForm(trees["aux"], None, "aux"),
        }
        own = like if trees["sent"] is None else None
        self._trees["sent"] = TreeForm(trees["sent"], own, "params_like")
        if like is not None:
            self._trees["params"].check(self._params, like)

    def ready(self) -> None:
        """Say that this worker can compute."""
        self._say("ready")

    def next(self) -> _Question | None:
        """Return what is asked for next, once there is something; None if the connection has ended."""
        with self._news:
            self._hand = None
            while not (self._begun or self.lost):
                self._news.wait()
            if self.lost:
                return None
            self._hand = self._begun.popleft()
            return self._hand

    def is_void(self, asked: _Question) -> bool:
        """Return True if nobody wants its gradient any more."""
        return self._void >= (asked.run, asked.ticket)

    def void(self) -> tuple[int, int]:
        """Return (run, ticket) of the last that nobody wants; all before it are void too, and all if it is lost."""
        return (sys.maxsize, 0) if self.lost else self._void

    def tree(self, memory: np.ndarray) -> Tree:
        """Return the parameters that lie there."""
        return self._trees["params"].made(self._params.views(memory))

    def packed(self, grads: Tree, aux: Tree) -> Iterator[bytes]:
        """Return a gradient's bytes, and those of what comes with it, in messages."""
        found = [*self._trees["aux"].arrays(aux, "aux"), *self._trees["sent"].arrays(grads, "grads")]
        arrays = found
        if len(found) == len(self._answer.fields):  # a gradient may be of another precision
            arrays = [_as_real(array, field) for array, field in zip(found, self._answer.fields, strict=True)]
        self._answer.check_arrays(arrays)
        return frames.chunks(self._answer, arrays)

    def answer(
        self, asked: _Question, kind: str, seconds: float, *, error: str = "", body: Iterable[bytes] = ()
    ) -> None:
        """Say what has come of a ticket."""
        self._say(kind, run=asked.run, ticket=asked.ticket, seconds=seconds, error=error[: frames.HEADER // 16])
        for message in body:
            self._put(message)

    def leave(self, error: str) -> None:
        """Say that this worker leaves, and why, if there is somebody to hear it."""
        if not self.lost:
            self._say("left", error=error[: frames.HEADER // 16])
            self._put(None)
            with self._news:
                self._news.wait_for(lambda: self.lost, timeout=2.0)
        self.close()

    def close(self) -> None:
        """End the connection."""
        self.lost = True
        self._call.cancel()
        self._channel.close()

    def _say(self, kind: str, **values: Any) -> None:
        if not self.lost:
            self._put(header(kind, **values))

    def _put(self, message: bytes | None) -> None:
        """Wait until a message can be sent: few of them take memory that is used again, many would take new memory."""
        while not self.lost:
            try:
                self._out.put(message, timeout=_LOOK_SECONDS)
                return
            except queue.Full:
                pass

    def _messages(self) -> Iterator[bytes]:
        """Yield what is to be sent, in a thread of gRPC, until nothing more can be."""
        while not self.lost:
            try:
                message = self._out.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            if message is None:
                return
            yield message

    def _listen(self) -> None:
        try:
            while True:
                said = self._frames.header()
                if said["kind"] == "ended":
                    self.ended = True
                    break
                if said["kind"] == "interrupt":
                    self._void = max(self._void, (said["run"], said["ticket"]))
                    continue
                if said.get("size"):
                    self._newest = self._frames.body(self._free())
                with self._news:
                    self._begun.append(_Question(said, None if said.get("void") else self._newest))
                    if said.get("void"):
                        self._void = max(self._void, (said["run"], said["ticket"]))
                    self._news.notify_all()
        except EOFError:
            pass
        except grpc_or_error().RpcError as error:
            if error.code().name in _FINAL:
                self.refused = f"has refused this worker: {error.details()}"
        except Exception as error:  # of what a server has said that is none
            self.refused = f"is no server of sgdlab: {type(error).__name__}: {error}"
        with self._news:
            self.lost = True
            self._news.notify_all()
        if not self.ended:
            self._call.cancel()

    def _free(self) -> np.ndarray:
        """Return memory for a version in which nobody reads, or will."""
        with self._news:
            wanted = [asked for asked in self._begun if not self.is_void(asked)]
            used = [asked.memory for asked in wanted] + ([self._hand.memory] if self._hand else [])
            for memory in self._memories:
                if not any(memory is one for one in used):
                    return memory
        self._memories.append(aligned(self._params.size))
        return self._memories[-1]


def _as_real(array: Any, field: Field) -> np.ndarray:
    """Return an array in the precision of its field; a `ValueError` that names its place where it is none."""
    try:
        found = np.asarray(array)
        if found.dtype.kind == "c":
            raise ValueError("it is complex")
        return found.astype(field.dtype, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{field.path} must be an array of real numbers: {error}") from error
