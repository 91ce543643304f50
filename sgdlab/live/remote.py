"""`Remote`, the transport over workers that connect by gRPC: processes that SLURM, Kubernetes or a person starts.

The server starts no process: `spawn` frees a place, and who joins takes the lowest one. A stream that breaks is a lost
worker. gRPC's threads read and write; the server's thread, which calls the methods, waits in `next` alone.
"""

import collections
import concurrent.futures
import contextlib
import hmac
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from sgdlab.live import frames
from sgdlab.live.frames import FORMAT, FrameError, Frames, header, whole, words
from sgdlab.live.messages import Lost, Message, usable
from sgdlab.live.settings import Endpoint, grpc_or_error, token_of
from sgdlab.live.shared_arrays import MemoryLayout, aligned, numbered
from sgdlab.live.transport import WorkerLink, Workers
from sgdlab.types import Tree

HELLO_SECONDS = 10.0
"""Seconds in which one who has connected must say what it is."""
READY_SECONDS = 600.0
"""Seconds in which one who has a place must be ready: to load its data, and to compile."""
SPARE = 16
"""Connections beside those of the workers: of who is refused, or waits for a place."""
PATIENCE = 2.0
"""Seconds that workers have to hear that the run has ended, before their streams are cut."""
_LOOK_SECONDS = 1.0
_WORDS, _REASONS = 2000, 100
MOST_UNREAD = 20_000
"""Messages that wait for a worker that does not read, at most: more than it can have been asked for in good order."""


class WorkerStream(WorkerLink):
    """One worker's stream, from its beginning to its end.

    Threads of gRPC change the last three, the server's thread all else.
    """

    def __init__(self, worker: int, context: Any, size: int):
        super().__init__()
        self.worker, self.context = worker, context
        self.out: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()  # headers; an empty one ends it
        self._versions: dict[tuple[int, int], SentVersion] = {}  # (run, ticket) -> what it is computed on, not yet sent
        self.memory = aligned(size)
        self.asked: collections.deque[tuple[int, int]] = collections.deque()  # (run, ticket), unanswered
        self.gone, self.error, self.refused = False, "its connection has ended", False

    def is_gone(self) -> bool:
        """Return True if it has ended, and nobody was told."""
        return self.gone

    def kill(self) -> None:
        """Cut it without a message; the worker's process, which others have started, may come back."""
        self.context.cancel()

    def _ask(self, asked: dict[str, int], handle: "SentVersion") -> None:
        number = asked["run"], asked["ticket"]
        self.asked.append(number)
        self._versions[number] = handle
        self.out.put({"kind": "begin", **asked})
        if self.out.qsize() > MOST_UNREAD:
            self.error = f"it has not read what it was sent: {MOST_UNREAD:,} messages wait for it"
            self.context.cancel()

    def _give_up(self, asked: dict[str, int]) -> None:
        for number in list(self._versions):  # of one that is stopped, none is kept that nobody wants
            if number <= (asked["run"], asked["ticket"]):
                self._versions.pop(number, None)
        self.out.put({"kind": "interrupt", **asked})

    def sent(self) -> Iterator[bytes]:
        """Yield all that the worker is told, until it is left; a version once, whoever else has it."""
        there: Any = None
        while told := self.out.get():
            if told["kind"] != "begin":
                yield header(**told)
            elif (version := self._versions.pop((told["run"], told["ticket"]), None)) is None:
                yield header(**told, size=0, void=True)  # nobody wants it any more
            else:
                yield header(**told, size=0 if version is there else version.size)
                if version is not there:
                    yield from version.sent()
                there = version

    def answered(self, said: dict[str, Any]) -> None:
        """Check that an answer is that of the earliest question, and take that off."""
        if not self.asked:
            raise FrameError(f"{said['kind']}: it was asked for nothing")
        if (said.get("run"), said.get("ticket")) != self.asked.popleft():
            raise FrameError(f"{said['kind']}: ticket={str(said.get('ticket'))[:20]} is not what it was asked for")
        seconds = said.get("seconds", 0.0)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
            raise FrameError(f"{said['kind']}: seconds={str(seconds)[:20]} must be a number, and not below 0")


class SentVersion:
    """Parameters as they are sent: arrays that do not change, cut into messages by who sends them."""

    def __init__(self, layout: MemoryLayout, tree: Tree):
        fixed = lambda leaf: leaf.copy() if leaf.flags.writeable else leaf
        self._layout, self._arrays = layout, [fixed(np.asarray(leaf)) for leaf in jax.tree.leaves(tree)]
        self.size = layout.size
        layout.check_arrays(self._arrays)

    def sent(self) -> Iterator[bytes]:
        """Yield its messages."""
        return frames.chunks(self._layout, self._arrays)


class Remote(Workers):
    """Workers that connect: a `sgdlab.live.transport.Transport`. Other arguments are as of `Workers`.

    Args:
      endpoint: where to listen, and whom to let in.
      work: what workers are told of what they compute, as JSON can hold it; None: they know.
      say: called with a line where one who connects is refused, at most once a second.

    Attributes:
      address: where it listens, "HOST:PORT".

    Raises:
      ValueError: if gRPC is missing, there is no token, or nobody can listen there.
    """

    STARTS, FIRST = False, None

    def __init__(
        self,
        params_like: Tree,
        aux_like: Tree,
        *,
        num_workers: int,
        endpoint: Endpoint,
        sent_like: Tree = None,
        gpus_per_worker: float | None = None,
        work: dict[str, Any] | None = None,
        say: Callable[[str], None] = print,
    ):
        own: dict[str, Any] = {"num_workers": num_workers, "gpus_per_worker": gpus_per_worker}
        super().__init__(None, params_like, aux_like, sent_like=sent_like, **own)
        self._grpc, self._token, self.say = grpc_or_error(), token_of(endpoint.token).encode(), say
        layout = {"params": self._params.described(), "answer": self._answer.described()}
        trees = {"params": params_like, "sent": params_like if sent_like is None else sent_like, "aux": aux_like}
        layout |= {"trees": {name: numbered(tree) for name, tree in trees.items()}}
        self._welcome = json.dumps(layout if work is None else {**layout, "work": work}).encode()
        self._news = threading.Condition()  # for all that threads of gRPC change
        self._free: set[int] = set()
        self._inbox: collections.deque[tuple[WorkerStream, dict[str, Any]]] = collections.deque()
        self._refused: collections.Counter[str] = collections.Counter()
        self._said_at, self._closed, self._ended = -1.0, False, False
        most = num_workers + SPARE
        frames.keep_memory()
        self._server = self._grpc.server(
            concurrent.futures.ThreadPoolExecutor(most, "grpc"),
            interceptors=[self],
            maximum_concurrent_rpcs=most,
            options=[
                *frames.OPTIONS,
                ("grpc.so_reuseport", 0),  # a port that another server has is an error
                ("grpc.max_allowed_incoming_connections", most),
                ("grpc.max_concurrent_streams", 2),
                ("grpc.server_handshake_timeout_ms", int(1e3 * HELLO_SECONDS)),
                ("grpc.max_connection_idle_ms", int(1e3 * HELLO_SECONDS)),
            ],
        )
        handler = self._grpc.stream_stream_rpc_method_handler(self._stream)
        service = self._grpc.method_handlers_generic_handler(frames.SERVICE, {frames.METHOD: handler})
        self._server.add_generic_rpc_handlers((service,))
        self.address = endpoint.listen(self._server)
        self._server.start()

    def publish(self, tree: Tree) -> SentVersion:
        """Keep a version of the parameters, from which it is sent; arrays of JAX are not copied."""
        return SentVersion(self._params, tree)

    def end(self) -> None:
        """Tell workers that the run has ended: they do not come back."""
        with self._news:
            self._ended, self._closed = True, True
            for stream in self._workers.values():
                stream.out.put({"kind": "ended"})
                stream.out.put({})
            self._news.notify_all()
        time.sleep(_LOOK_SECONDS)  # those that come back just now hear of it too
        self._server.stop(PATIENCE).wait()

    def close(self) -> None:
        """Cut all streams, and listen no longer."""
        with self._news:
            self._closed = True
            self._news.notify_all()
            for worker in list(self._workers):
                self._forget(worker)
        self._server.stop(None).wait()

    def _begin_process(self, worker: int) -> None:
        """Free a place for who joins next."""
        with self._news:
            self._free.add(worker)
            self._news.notify_all()

    def _forget(self, worker: int) -> WorkerStream | None:
        """Let a worker's stream end, and its place be nobody's."""
        with self._news:
            self._free.discard(worker)
            stream = self._workers.pop(worker, None)
        if stream is not None:
            stream.out.put({})
        return stream

    def _receive(self, seconds: float | None) -> list[tuple[int, Message]]:
        with self._news:
            if not self._inbox:
                self._news.wait(seconds)
            heard = list(self._inbox)
            self._inbox.clear()
            self._say_refused()
        return [each for stream, said in heard for each in self._heard(stream, said)]

    def intercept_service(self, continuation: Callable[..., Any], details: Any) -> Any:
        """Refuse a call without the right token, before a byte of it is read; gRPC's thread calls this."""
        given = dict(details.invocation_metadata).get(frames.TOKEN)
        if isinstance(given, str) and hmac.compare_digest(given.encode(), self._token):
            return continuation(details)
        why = "there is no token" if given is None else "the token is not the server's"
        refuse = lambda requests, context: self._refuse(context, "UNAUTHENTICATED", why)
        return self._grpc.stream_stream_rpc_method_handler(refuse)

    def _refuse(self, context: Any, code: str, why: str) -> None:
        """End a call, and remember to say so."""
        self._count(context, why)
        context.abort(getattr(self._grpc.StatusCode, code), why)

    def _count(self, context: Any, why: str) -> None:
        """Remember to say why one who has connected does not take part."""
        with self._news:
            if len(self._refused) < _REASONS:
                self._refused[f"{_host(context.peer())}: {why}"] += 1

    def _say_refused(self) -> None:
        if self._refused and time.monotonic() - self._said_at >= 1.0:
            (why, _), number = self._refused.most_common(1)[0], self._refused.total()
            more = "" if number == 1 else f" ({number} refused in the last seconds)"
            self.say(f"Refused a worker that has connected from {why}{more}")
            self._said_at = time.monotonic()
            self._refused.clear()

    def _stream(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Serve one who connects: a generator, in a thread of gRPC."""
        reader = Frames(messages)
        hello = self._hello(reader, context)
        stream = self._placed(context)
        if stream is None:
            if self._ended:
                yield header("ended")
            return
        try:
            numbers = {"format": FORMAT, "worker": stream.worker, "workers": self._num_workers}
            yield header("welcome", **numbers, size=len(self._welcome))
            yield from frames.cut(self._welcome)
            threading.Thread(target=self._listen, args=(stream, reader, hello), daemon=True).start()
            yield from stream.sent()
            if stream.refused:
                context.abort(self._grpc.StatusCode.INVALID_ARGUMENT, stream.error)
        finally:
            self._leave(stream)

    def _placed(self, context: Any) -> WorkerStream | None:
        """Return the stream of who has got a place, once one is free; None if it has gone, or the run has ended."""
        with self._news:
            while not (self._free or self._closed):
                self._news.wait(_LOOK_SECONDS)
                if not context.is_active():
                    return None
            if self._closed:
                return None
            worker = min(self._free)
            self._free.remove(worker)
            stream = self._workers[worker] = WorkerStream(worker, context, self._answer.size)
            return stream

    def _hello(self, reader: Frames, context: Any) -> dict[str, Any]:
        """Return who connects; it is refused if it says something else, or another version, or nothing in time."""
        with _within(HELLO_SECONDS, context):
            try:
                said = reader.header()
                if said["kind"] != "hello":
                    raise FrameError("the first message must be a hello")
                theirs = whole(said, "format")
                process, host = whole(said, "process"), words(said, "host", 255)
            except (FrameError, EOFError) as error:
                self._refuse(context, "INVALID_ARGUMENT", str(error) or "it has said nothing")
        if theirs != FORMAT:
            version = words(said, "sgdlab", 20)
            why = f"the server speaks format {FORMAT} of messages, the worker ({version}) format {theirs}"
            self._refuse(context, "FAILED_PRECONDITION", f"{why}: install the same version of sgdlab for both")
        return {"kind": "joined", "process": process, "host": host}

    def _listen(self, stream: WorkerStream, reader: Frames, hello: dict[str, Any]) -> None:
        """Hear what a worker says until it ends, in a thread of its own."""
        try:
            with _within(READY_SECONDS, stream.context):
                said = reader.header()
            if said["kind"] == "left":  # it cannot compute what is wanted
                self._count(stream.context, f"it has left: {words(said, 'error', _WORDS)}")
                raise EOFError
            if said["kind"] != "ready":
                raise FrameError(f"{said['kind']}: it must be ready first")
            self._hear(stream, hello)
            while True:
                said = reader.header()
                if said["kind"] == "left":
                    stream.error = f"it has left: {words(said, 'error', _WORDS)}".removesuffix(": ")
                    break
                stream.answered(said)
                if said["kind"] == "came":
                    tree = self._answer.tree(reader.body(stream.memory))
                    said["finite"] = usable(tree["params"], tree["aux"])  # here, so that the server need not
                elif said["kind"] not in ("gave_up", "failed"):
                    raise FrameError(f"{said['kind']} is no answer")
                said["error"] = words(said, "error", _WORDS)
                self._hear(stream, {"seconds": 0.0, **said})
        except FrameError as error:
            stream.error, stream.refused = f"it was refused: {error}", True
        except Exception:  # of gRPC's: the stream is cut, or has ended
            pass
        self._leave(stream)
        cut = threading.Timer(PATIENCE if stream.refused else 0.0, stream.context.cancel)  # it may not read why
        cut.daemon = True
        cut.start()

    def _hear(self, stream: WorkerStream, said: dict[str, Any]) -> None:
        with self._news:
            self._inbox.append((stream, said))
            self._news.notify_all()

    def _leave(self, stream: WorkerStream) -> None:
        """Let the server's thread know that a stream has ended, once; a place whose worker was never ready is free."""
        with self._news:
            if stream.gone:
                return
            stream.gone = True
            stream.out.put({})
            ready = any(one is stream for one, _ in self._inbox) or stream.joined is not None
            if self._workers.get(stream.worker) is not stream:
                return
            if ready:
                self._inbox.append((stream, {"kind": "lost"}))
            elif not self._ended:
                del self._workers[stream.worker]
                self._free.add(stream.worker)
            self._news.notify_all()

    def _heard(self, stream: WorkerStream, said: dict[str, Any]) -> list[tuple[int, Message]]:
        """Return the message of what a worker has said, with the number of its question."""
        if self._workers.get(stream.worker) is not stream:
            return []  # it was killed meanwhile
        if said["kind"] == "lost":
            self._forget(stream.worker)
            return [(stream.question, Lost(stream.worker, stream.error))]
        if said["kind"] != "joined" and said["run"] != stream.run:
            return []
        message = self._message(stream.worker, stream, said, lambda: stream.memory)
        return [(said.get("ticket", stream.question), message)]


@contextlib.contextmanager
def _within(seconds: float, context: Any) -> Iterator[None]:
    """Cut a stream if a block takes longer."""
    timer = threading.Timer(seconds, context.cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _host(peer: str) -> str:
    """Return the address of who has connected, without its port, which is another each time.

    Example:
      >>> _host("ipv4:10.0.0.3:51234"), _host("ipv6:%5B::1%5D:51234")
      ('10.0.0.3', '[::1]')
    """
    return peer.partition(":")[2].rpartition(":")[0].replace("%5B", "[").replace("%5D", "]")
