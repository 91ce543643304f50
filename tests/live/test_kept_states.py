"""Workers that make steps of their own, some of which keep a state: a record replays to the bit, whatever befalls."""

import errno
import functools
import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lib.rehearsal import crashed_and_resumed, logged
from rehearsing import after

from sgdlab import policies, replay, rules
from sgdlab.errors import RunFailed, Stopped
from sgdlab.live.checkpoint import KeptMessages
from sgdlab.live.gradients import Gradients
from sgdlab.live.lines import LogError
from sgdlab.live.log import Log
from sgdlab.live.recording import LiveRecording
from sgdlab.live.repeat import as_computed, repeat
from sgdlab.live.resume import examined
from sgdlab.live.transport import ANEW
from sgdlab.live.work import LocalSteps, Work
from sgdlab.replay.streaming import Stream
from sgdlab.runs.local_steps import span_fn
from sgdlab.runs.rates import InnerRate
from sgdlab.tasks import Task

WORKERS, STEPS, PARTS = 3, 3, 2
TABLE = np.random.default_rng(1).normal(size=(240, 4, 3)).astype(np.float64)
ADAMW = jax.tree_util.Partial(optax.adamw, learning_rate=0.05, weight_decay=0.1)


def params():
    return {"w": jnp.linspace(-1.0, 1.0, 6, dtype=jnp.float64).reshape(3, 2), "b": jnp.zeros(2, jnp.float64)}


@jax.tree_util.Partial
def grad_fn(params, batch):
    def loss(params):
        return jnp.mean(jnp.square(jnp.tanh(batch @ params["w"] + params["b"]) - batch[:, :2]))

    value, grads = jax.value_and_grad(loss)(params)
    return grads, {"loss": value}


@jax.tree_util.Partial
def batch_fn(number):
    return jnp.asarray(TABLE)[number % len(TABLE)]


AUX = {"loss": np.zeros([])}
LIKE = {"params": np.zeros(3), "aux": AUX}

KEPT = LocalSteps(ADAMW, lambda worker: STEPS, STEPS, keep_state=True)
STREAMED = KEPT._replace(stream=Stream(fragments=2, overlap=1, mix=0.25))
INNER = InnerRate(np.geomspace(1.0, 0.1, 16), steps_per_update=0.7)
NESTEROV = jax.tree_util.Partial(lambda rate: optax.sgd(rate, momentum=0.9, nesterov=True), 0.05)
CASES = {
    "nothing kept, uneven": (
        LocalSteps(NESTEROV, (4, 1, 3).__getitem__, 4, proximal=0.1, inner=INNER),
        policies.asynchronous,
        rules.delayed_nesterov(learning_rate=0.7, num_workers=WORKERS),
        functools.partial(replay.in_local_steps, proximal=0.1, factors=INNER.factors),
        lambda optimizer, params: None,
    ),
    "kept, interrupted": (
        KEPT,
        functools.partial(policies.timeout, at_least=2, seconds=0.75, interrupt=True),
        rules.nag_asgd(learning_rate=0.7, momentum=0.9),
        functools.partial(replay.in_local_steps, keep_state=True),
        replay.state_of_worker,
    ),
    "streamed": (
        STREAMED,
        policies.synchronous,
        rules.streaming_nesterov(learning_rate=0.7, momentum=0.9, fragments=2),
        functools.partial(replay.in_fragments, fragments=2, overlap=1, mix=0.25),
        replay.state_of_fragments,
    ),
}


def compute_of(local, worker):
    return Gradients(Work(params(), grad_fn, batch_fn, micro_batches=PARTS, local=local), worker=worker).compute


def rehearsed(case, folder, **given):
    local, make, rule, _, _ = CASES[case]
    policy = make(num_workers=WORKERS)
    steps = replay.Steps(rule, params(), single=policy.single)
    return logged(
        policy, steps, functools.partial(compute_of, local), folder, like={"params": params(), "aux": AUX}, **given
    )


def replayed(case, recording):
    """By the programs of the live run, and in one loop."""
    local, _, rule, walk, state = CASES[case]
    program = replay.lower(recording.schedule, by_worker=True)
    rows = program.gradient[: program.num_rows]
    tickets, read = recording.ticket[rows], recording.schedule.read[rows, 0]
    steps = np.array([local.steps(worker) for worker in program.worker], np.int32)
    anew = recording.begins_anew(streams=case == "streamed")[rows] if local.keeps else None
    place = None if local.inner is None else local.inner.place(read)
    in_a_loop = replay.run(
        program,
        rule,
        Task(
            walk(replay.in_micro_batches(grad_fn, PARTS), local.optimizer, batch_fn),
            params(),
            local=state(local.optimizer, params()),
        ),
        span_fn((tickets * local.stride).astype(np.int32), steps, anew, place),
        mode="event",
    )
    compute = as_computed(recording, program, functools.partial(compute_of, local))
    steps = replay.Steps(rule, params(), single=program.single)
    return repeat(program, steps, compute, aux=AUX), in_a_loop


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", CASES)
def test_a_record_replays_to_the_bit(case, tmp_path):
    recording, steps, said = crashed_and_resumed(functools.partial(rehearsed, case, tmp_path))
    assert len(list(tmp_path.glob("messages-*"))) <= 3
    assert re.search(r"; [1-9]\d* gradients since checkpoint \d+ were read again", said)
    assert recording.life.max() >= 1  # that of the second server is another
    used = recording.schedule.used()[:, 0]
    assert (recording.begins_anew()[used] == ANEW).sum() > 40
    assert recording.ledger()["lost"] > 0
    assert recording.ledger()["refused"] > 0
    assert "interrupted" not in case or recording.ledger()["interrupted"] > 0
    exact, close = replayed(case, recording)
    jax.tree.map(np.testing.assert_array_equal, (steps.params, steps.state), (exact.params, exact.state))
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12),
        (steps.params, steps.state),
        (close.params, close.state),
    )
    seen = examined(tmp_path, lambda config: CASES[case][1](num_workers=WORKERS))
    assert np.array_equal(seen.life, recording.life)
    path = tmp_path / "recording.npz"
    recording.save(path)
    assert np.array_equal(LiveRecording.load(path).life, recording.life)
    with np.load(path) as stored:
        before = {name: stored[name] for name in stored.files if name != "life"}
    np.savez(path, **before)  # as from before there was such a field
    assert not LiveRecording.load(path).life.any()


def test_a_worker_goes_on_after_its_last_message_that_was_used():
    compute = compute_of(KEPT, 0)
    of = lambda found: np.asarray(found[0]["w"])
    alone = of(compute_of(KEPT, 0)(7, params()))
    first = of(compute(0, params()))
    second = of(compute(7, params(), after=0))
    compute(5, params(), after=0)  # is not used, and leaves no trace
    assert np.array_equal(of(compute(7, params(), after=0)), second)
    assert not np.array_equal(second, alone)
    assert not np.array_equal(second, first)
    assert np.array_equal(of(compute(7, params())), alone)
    with pytest.raises(ValueError, match=r"after=5 must be a message of this process that was used"):
        compute(8, params(), after=5)


def test_a_streaming_worker_that_has_missed_an_update_begins_anew():
    compute = compute_of(STREAMED, 0)
    of = lambda found: np.asarray(found[0]["w"])
    compute(0, params(), version=0)
    goes_on, missed = (of(compute(3, params(), after=0, version=version)) for version in (1, 3))
    anew = of(compute_of(STREAMED, 0)(3, params(), version=3))
    assert np.array_equal(missed, anew)
    assert not np.array_equal(missed, goes_on)


@jax.jit
def begun_anew(walks, span, moved):
    """The message of a worker that keeps nothing, those of workers that begin anew, and the number of the next."""
    plain, kept, streamed = walks
    found, _, after = streamed(params(), span, moved)
    own = {name: moved[name] for name in ("optimizer", "memory")}
    return [plain(params(), span)[0], kept(params(), span, own)[0], found], after["messages"]


def test_who_begins_anew_each_time_keeps_nothing():
    walks = (
        replay.in_local_steps(grad_fn, ADAMW, batch_fn),
        replay.in_local_steps(grad_fn, ADAMW, batch_fn, keep_state=True),
        replay.in_fragments(grad_fn, ADAMW, batch_fn, fragments=1, overlap=1, mix=0.5),
    )
    moved = jax.tree.map(lambda leaf: leaf + 1, replay.state_of_fragments(ADAMW, params()))
    span = replay.Span(np.int32(6), np.int32(STEPS), anew=np.int32(4))
    (plain, *others), messages = begun_anew(walks, span, moved)
    assert messages == 5
    for found in others:
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), found, plain)


def test_messages_that_checkpoints_have_made_needless_are_removed(tmp_path):
    with KeptMessages(tmp_path, LIKE) as messages:
        for ticket in range(4):
            messages.write(ticket, np.full(3, float(ticket)), {"loss": np.array(0.5)})
            messages.checkpoint(10 * ticket).close()
        messages.write(4, np.full(3, 4.0), {"loss": np.array(0.25)})
        size = messages.size
        messages.forget(20)
    path = tmp_path / "messages-30.bin"
    with path.open("ab") as file:
        file.write(b"half a message")
    with KeptMessages(tmp_path, LIKE) as messages:
        assert (messages.read(4)[0].tolist(), float(messages.read(4)[1]["loss"])) == ([4.0] * 3, 0.25)
        assert messages.read(3)[0].tolist() == [3.0] * 3
        with pytest.raises(ValueError, match="ticket=0 must be of a message that was kept"):
            messages.read(0)
    assert path.stat().st_size == size
    path.write_bytes(path.read_bytes()[:-9] + b"damaged!!")
    with KeptMessages(tmp_path, LIKE) as messages, pytest.raises(ValueError, match="ticket=4 is damaged"):
        messages.read(4)


def test_a_log_whose_messages_are_gone_says_so(tmp_path):
    with pytest.raises(Stopped):
        rehearsed("kept, interrupted", tmp_path, stop=after(40), faults=())
    for path in tmp_path.glob("checkpoint-*"):
        path.unlink()
    for path in tmp_path.glob("messages-*"):
        path.unlink()
    with pytest.raises(LogError, match=r"ticket=\d must be of a message that was kept"):
        rehearsed("kept, interrupted", tmp_path)


class Slow:
    """A file that takes few bytes at once, and none when it is full."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, part):
        written = self.file.write(bytes(part[: min(5, self.room)]))
        self.room -= written
        return written

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_message_that_is_written_in_parts_is_whole(tmp_path):
    """As the operating system does with more than 2 GiB; a disk is full only when it takes nothing."""
    with KeptMessages(tmp_path, LIKE) as messages:
        messages.file = Slow(messages.file, 1000)
        for ticket in range(2):
            messages.write(ticket, np.arange(3.0) + ticket, {"loss": np.array(0.5)})
        messages.file.room = 21
        with pytest.raises(OSError, match="No space left"):
            messages.write(2, np.zeros(3), {"loss": np.zeros([])})
    with KeptMessages(tmp_path, LIKE) as messages:
        assert messages.size == 0
        assert messages.read(1)[0].tolist() == [1.0, 2.0, 3.0]
        with pytest.raises(ValueError, match="ticket=2 must be of a message that was kept"):
            messages.read(2)


def test_messages_are_on_the_disk_before_a_log_that_ends_or_a_checkpoint(tmp_path, monkeypatch):
    """The file that a checkpoint ends is not written any more, but must not be lost either."""
    synced, real = [], os.fsync

    def fsync(file):
        descriptor = file if isinstance(file, int) else file.fileno()
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    log = Log(tmp_path, {}, sent_like=LIKE)
    synced.clear()
    log.keep(0, np.ones(3), {"loss": np.ones([])})
    log.checkpoint(7, {"params": np.ones(3)}, {})
    log.keep(1, np.ones(3), {"loss": np.ones([])})
    log._saved()
    assert synced[:2] == ["messages-0.bin", "log.jsonl"]
    log.close()
    assert synced[-2:] == ["messages-7.bin", "log.jsonl"]


def test_messages_that_cannot_be_written_or_read_end_the_run_in_one_line(tmp_path, monkeypatch):
    def fails(self, path):
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(KeptMessages, "_opened", fails)
        with pytest.raises(LogError, match=r"log=.* cannot be written: input/output error"):
            Log(tmp_path, {}, sent_like=LIKE)
    log = Log(tmp_path, {}, sent_like=LIKE)
    log.keep(0, np.ones(3), {"loss": np.ones([])})
    with monkeypatch.context() as broken:
        broken.setattr(KeptMessages, "_opened", fails)
        with pytest.raises(RunFailed, match=r"log=.* cannot be written: input/output error; the same command"):
            log.checkpoint(7, {"params": np.ones(3)}, {})
    log.close()
    with KeptMessages(tmp_path, LIKE) as messages:
        (tmp_path / "messages-0.bin").unlink()
        with pytest.raises(ValueError, match=r"ticket=0 cannot be read in .*messages-0.bin: No such file"):
            messages.read(0)
