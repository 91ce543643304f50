"""Compressed messages on processes: packets come, workers remember what was used, and a record replays to the bit."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lib import tiny
from lib.rehearsal import crashed_and_resumed, logged, workers_of

from sgdlab import compressions, policies, replay, rules, runs
from sgdlab.errors import Stopped
from sgdlab.live.gradients import Computer, Gradients
from sgdlab.live.packing import Packer
from sgdlab.live.repeat import as_computed, repeat
from sgdlab.live.work import Work
from sgdlab.rules.feedback import Channel
from sgdlab.runs import recorded
from sgdlab.tasks import Task

WORKERS, SEED = 3, 5
TARGETS = np.random.default_rng(1).normal(size=(240, 5, 3))
AUX = {"loss": np.zeros([])}
INTERRUPTING = functools.partial(policies.timeout, at_least=2, seconds=0.75, interrupt=True)
CASES = {
    "random, no memory": (Channel(compressions.RandomK(share=0.3)), policies.asynchronous),
    "the error, interrupted": (Channel(compressions.TopK(share=0.2), "error"), INTERRUPTING),
    "estimates": (Channel(compressions.FourBit(), "ef21"), policies.asynchronous),
    "random estimates": (Channel(compressions.Qsgd(levels=3), "ef21"), policies.asynchronous),
    "matrices": (Channel(compressions.PowerSgd(rank=1), "error"), policies.synchronous),
}


def params():
    return {"w": jnp.linspace(-1.0, 1.0, 15).reshape(5, 3), "b": jnp.zeros(3)}


@jax.tree_util.Partial
def grad_fn(params, batch):
    grads = {"w": params["w"] - batch, "b": params["b"] - batch.sum(axis=0)}
    return grads, {"loss": jnp.sum(jnp.square(grads["w"]))}


@jax.tree_util.Partial
def batch_fn(number):
    return jnp.asarray(TARGETS)[number % len(TARGETS)]


def rule_of(channel, *, unpacked):
    given = {"num_workers": WORKERS, "feedback": channel.feedback, "seed": SEED, "unpacked": unpacked}
    return rules.compressed(rules.nag_asgd(learning_rate=0.05, momentum=0.5), channel.compressor, **given)


def gradients_of(channel, worker=0):
    return Gradients(Work(params(), grad_fn, batch_fn, channel=channel, seed=SEED), worker=worker)


def compute_of(channel, worker):
    return gradients_of(channel, worker).compute


def steps_of(channel, single):
    packer = Packer(channel, SEED, params())
    return replay.Steps(rule_of(channel, unpacked=True), params(), single=single, packer=packer)


def rehearsed(case, folder, **given):
    channel, make = CASES[case]
    policy = make(num_workers=WORKERS)
    like = {"params": gradients_of(channel).sent if channel.remembers(params()) else None, "aux": AUX}
    steps = steps_of(channel, policy.single)
    return logged(policy, steps, functools.partial(compute_of, channel), folder, like=like, **given)


def replayed(case, recording):
    """By the programs of the live run, and in one loop that compresses whole gradients."""
    channel, _ = CASES[case]
    program = replay.lower(recording.schedule)
    rows = program.gradient[: program.num_rows]
    tickets = recording.ticket[rows]
    program.number[:], program.anew[:] = tickets, recording.begins_anew()[rows] >= 0
    batches = jnp.asarray(tickets.astype(np.int32))
    in_a_loop = replay.run(
        program, rule_of(channel, unpacked=False), Task(grad_fn, params()), lambda g: batch_fn(batches[g]), mode="event"
    )
    compute = as_computed(recording, program, functools.partial(compute_of, channel))
    return repeat(program, steps_of(channel, program.single), compute, aux=AUX), in_a_loop


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", CASES)
def test_a_record_replays_to_the_bit(case, tmp_path):
    """Workers are lost, refused and interrupted, and the server is started again: what is used alone is remembered."""
    recording, steps, said = crashed_and_resumed(functools.partial(rehearsed, case, tmp_path))
    how = "computed" if case == "random, no memory" else "read"
    assert re.search(rf"; [1-9]\d* gradients since checkpoint \d+ were {how} again", said)
    assert recording.ledger()["lost"] > 0
    assert recording.ledger()["refused"] > 0
    used = recording.schedule.used()[:, 0]
    assert (recording.begins_anew()[used] >= 0).sum() > WORKERS
    assert "interrupted" not in case or recording.ledger()["interrupted"] > 0
    exact, close = replayed(case, recording)
    jax.tree.map(np.testing.assert_array_equal, (steps.params, steps.state), (exact.params, exact.state))
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12),
        (steps.params, steps.state.inner, steps.state.message),
        (close.params, close.state.inner, close.state.message),
    )
    if CASES[case][0].feedback == "ef21":
        estimates = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12)
        jax.tree.map(estimates, steps.state.memory.kept, close.state.memory.kept)


def test_worker_and_server_have_the_same_estimate():
    """To the bit: both add what one program has unpacked."""
    channel = Channel(compressions.FourBit(), "ef21")
    steps, worker = steps_of(channel, single=True), Packer(channel, SEED, params())
    after = -1
    for ticket in range(20):
        grads, aux = grad_fn(steps.params, batch_fn(ticket))
        packet = worker.pack(ticket, grads, after=after)
        steps.receive(packet, aux, read=steps.sent(), worker=1, delay=1.0, number=ticket, anew=after < 0)
        steps.close()
        after = ticket
    estimates = jax.tree.map(lambda leaf: leaf[1], steps.state.memory.kept)
    jax.tree.map(np.testing.assert_array_equal, worker._kept[after].kept, estimates)


def test_a_worker_goes_on_after_its_last_message_that_was_used():
    channel = Channel(compressions.TopK(share=0.2), "error")
    packer, grads = Packer(channel, 0, params()), grad_fn(params(), batch_fn(0))[0]
    values = lambda packet: np.asarray(packet["values"])
    first = values(packer.pack(0, grads))
    second = values(packer.pack(7, grads, after=0))
    packer.pack(5, grads, after=0)  # is not used, and leaves no trace
    assert np.array_equal(values(packer.pack(7, grads, after=0)), second)
    assert not np.array_equal(second, first)
    assert np.array_equal(values(packer.pack(9, grads)), first)
    with pytest.raises(ValueError, match=r"after=5 must be a message of this process that was used"):
        packer.pack(8, grads, after=5)


def test_few_bytes_are_in_the_memory_that_is_shared():
    """Of a worker: packets lie there, not gradients."""
    config = tiny.config(method="asgd", network__mlp__widths=(64,), compression__kind="sign")
    job = runs.live.make_job(config)
    plain = runs.live.make_job(tiny.config(method="asgd", network__mlp__widths=(64,)))
    size = sum(leaf.size for leaf in jax.tree.leaves(job.task.params))
    layouts = []
    for each in (job, plain):
        aux = each.gradients.aux
        layout = [[f"['params']{path}", what] for path, what in described(each.gradients.sent)]
        layout += [[f"['aux']{path}", what] for path, what in described(aux)]
        layouts.append(Computer(each.source._asdict(), layout, 0).sent.size)
    assert layouts[0] < size / 8 + 300
    assert layouts[1] > 4 * size


def described(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path), f"{np.dtype(leaf.dtype).name}{list(leaf.shape)}") for path, leaf in leaves]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "changes",
    [
        {"method": "asgd", "compression__kind": "top_k", "compression__top_k__share": 0.1},
        {"method": "gap_aware", "compression__kind": "qsgd"},
        {"method": "diloco", "local__steps": 2, "compression__kind": "sign", "compression__feedback": "ef21"},
        {"method": "streaming_diloco", "local__steps": 2, "compression__kind": "four_bit"},
    ],
)
def test_a_run_of_a_configuration_replays_to_the_bit(changes, tmp_path):
    """Some workers fail, and the server is started again; outer differences are compressed too."""
    config = tiny.config(**changes, average_decay=None)
    job = runs.live.make_job(config)
    keeps = changes["method"] != "gap_aware"
    assert (job.sent_like is not None) == keeps
    asked = iter([False] * 12)
    with pytest.raises(Stopped):
        runs.live_run.execute(job, workers_of(job), folder=tmp_path, stop=lambda: next(asked, True))
    job = runs.live.make_job(config)
    run, recording = runs.live_run.execute(job, workers_of(job), folder=tmp_path)
    plan = recorded.plan_of(config, recording)
    again = runs.train.train(recorded.repeated(plan, recording))
    ours, theirs = (runs.train.leaves(result.params) for result in (run.result, again.result))
    assert recorded.largest_difference(ours, theirs) == 0.0
    assert run.records[-1]["gradients"] >= job.plan.num_gradients
    assert "bytes each" in run.records[0]["about"]["messages"]
    close = runs.train.train(plan)
    assert np.isfinite(close.records[-1]["test_loss"])
