"""Runs with the real server of a live run, without a process, and their records, repeated by the same programs: 0.0.

One loop of `replay.run`, which XLA may round otherwise, computes the same to 1e-12.
"""

import collections
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lib.rehearsal import Fault, Rehearsal, dyadic
from rehearsing import QUICK, after

from sgdlab import policies, replay, rules
from sgdlab.errors import Stopped
from sgdlab.live.gradients import Gradients
from sgdlab.live.log import Log
from sgdlab.live.messages import Came
from sgdlab.live.repeat import as_computed, repeat
from sgdlab.live.server import serve
from sgdlab.live.work import Work
from sgdlab.registry import RULES
from sgdlab.tasks import Task

FAULTS = (Fault("kill", 1, 10.3, 0.1), Fault("nan", 0, 6.0), Fault("twice", 2, 3.0, 0.5), Fault("deaf", 2, 0.0, 20.0))
AVERAGE = 0.9


def params():
    return {"w": jnp.linspace(-1.0, 1.0, 12).reshape(4, 3), "b": jnp.zeros(3)}


@jax.tree_util.Partial
def batch_fn(ticket):
    return jnp.sin(ticket.astype(jnp.float32) * jnp.arange(1.0, 5.0) + jnp.arange(6.0)[:, None])


def grad_fn(params, inputs):
    def loss(params):
        return jnp.mean(jnp.square(jnp.tanh(inputs @ params["w"] + params["b"]) - inputs[:, :3]))

    value, grads = jax.value_and_grad(loss)(params)
    return grads, {"loss": value, "mean": inputs.mean()}


def fold(stats, aux):
    return 0.9 * stats + 0.1 * aux["mean"]


@jax.tree_util.Partial
def clipped(grads):
    return jax.tree.map(lambda leaf: jnp.clip(leaf, -0.05, 0.05), grads)


class Reusing(Rehearsal):
    """Its messages lie in memory that is used again when their worker begins another, as those of processes do."""

    def __init__(self, *told, **given):
        super().__init__(*told, **given)
        self._sent = collections.defaultdict(list)

    def begin(self, worker, *told, **given):
        for message in self._sent.pop(worker, []):
            jax.tree.map(lambda leaf: leaf.fill(np.nan), (message.grads, message.aux))
        super().begin(worker, *told, **given)

    def next(self, timeout):
        messages = super().next(timeout)
        for place, message in enumerate(messages):
            if isinstance(message, Came):
                grads, aux = jax.tree.map(np.array, message[2:4])
                messages[place] = message._replace(grads=grads, aux=aux)
                self._sent[message.worker].append(messages[place])
        return messages


CASES = {
    "timeout, NAG": (
        lambda num_workers: policies.timeout(num_workers=num_workers, at_least=2, seconds=0.75, interrupt=True),
        rules.nag_asgd(learning_rate=0.1, momentum=0.9, weight_decay=1e-3),
    ),
    "softsync, Adam of optax, clipped sums of parts": (
        functools.partial(policies.softsync, gradients_per_update=2),
        optax.adam(0.003),
    ),
    "assigned workers, Muon": (
        functools.partial(policies.assignment, seed=2),
        rules.muon(learning_rate=0.02, weight_decay=1e-3),
    ),
    "ringleader, momentum": (
        policies.ringleader,
        rules.ringleader(learning_rate=0.05, momentum=0.5, weight_decay=1e-3, num_workers=3),
    ),
    "limited trials, Vecna": (
        functools.partial(policies.vecna, trials=2, seconds=2.5),
        rules.vecna(learning_rate=0.1, num_workers=3, weight_decay=1e-3),
    ),
    "asynchronous, DANA": (policies.asynchronous, rules.dana_gap_aware(learning_rate=0.05, num_workers=3)),
}


def made(name):
    """A policy and a rule: one of `CASES`, or a rule of the registry with a policy that it can be used with."""
    if name in CASES:
        return CASES[name]
    rule = RULES.make(name, {}, learning_rate=0.02, num_workers=3)
    return {"malenia": policies.malenia, "vecna": policies.vecna}.get(name, policies.asynchronous), rule


@pytest.mark.representatives(*CASES)
@pytest.mark.parametrize("case", [*CASES, *(name for name in RULES if name != "dc_s3gd")])  # of which no run is live
def test_a_record_replays_to_the_bit(case, tmp_path):
    make, rule = made(case)
    parts, finish = (3, clipped) if "parts" in case else (1, None)
    gradients = Gradients(Work(params(), grad_fn, batch_fn, micro_batches=parts, finish=finish))
    gradients.compile()
    runtimes = dyadic(np.random.default_rng(4), (30, 3))
    single = make(num_workers=3).single
    started = functools.partial(
        replay.Steps, rule, params(), single=single, stats=jnp.ones([]), fold=fold, average_decay=AVERAGE
    )

    def steps_and_run(stop):
        steps = started()
        steps.compile(gradients.aux)
        log = Log(tmp_path, {}, compute_of=lambda worker: gradients.compute, say=lambda line: None)
        transport = Reusing(runtimes, gradients.compute, faults=FAULTS)
        given = {"num_workers": 3, "num_gradients": 60, "settings": QUICK, "log": log, "stop": stop}
        return steps, serve(make(num_workers=3), steps, transport, **given)

    with pytest.raises(Stopped):
        steps_and_run(after(90))
    steps, recording = steps_and_run(lambda: False)
    assert recording.ledger()["applied"] >= 60
    assert recording.ledger()["lost"] + recording.ledger()["refused"] > 0
    tickets, watch = recording.used_tickets(), replay.Watch(average_decay=AVERAGE)
    by_row = as_computed(recording, replay.lower(recording.schedule), lambda worker: gradients.compute)
    again = repeat(recording.schedule, started(), by_row, aux=gradients.aux, watch=watch)
    in_a_loop = replay.run(
        recording.schedule,
        rule,
        Task(replay.in_micro_batches(grad_fn, parts, finish), params(), stats=jnp.ones([]), fold=fold),
        jax.tree_util.Partial(lambda tickets, row: batch_fn(tickets[row]), jnp.asarray(tickets, jnp.int32)),
        mode="event",
        watch=watch,
    )
    for name in ("params", "state", "stats", "average", "average_stats"):
        live, exact, close = (jax.tree.leaves(getattr(found, name)) for found in (steps, again, in_a_loop))
        assert live
        for one, same, other in zip(live, exact, close, strict=True):
            np.testing.assert_array_equal(one, same, err_msg=name)
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12, err_msg=name)
