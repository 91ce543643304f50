"""Runs of peers on a clock that is not real: as simulated, replayed to the bit, and with faults that lose nothing."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rehearsing import QUICK, dyadic

from sgdlab import policies, replay, rules
from sgdlab.errors import HostLost, RunFailed, Stopped
from sgdlab.live.gradients import Gradients
from sgdlab.live.peer_recording import PeerRecording
from sgdlab.live.peer_server import serve_peers
from sgdlab.live.peer_steps import PeerSteps
from sgdlab.live.rehearsal import Fault, Rehearsal
from sgdlab.live.repeat import repeat
from sgdlab.live.settings import LiveSettings
from sgdlab.live.work import Work
from sgdlab.policies import Source

NODES = 3
POLICIES = {
    "pull": policies.gossip,
    "pull in rounds": functools.partial(policies.gossip, clock="rounds", period=2),
    "pull, own gradients": functools.partial(policies.gossip, fresh=False),
    "push": functools.partial(policies.gossip, kind="push", seed=1),
    "push in rounds": functools.partial(policies.gossip, kind="push", clock="rounds"),
    "elastic": policies.elastic_averaging,
    "elastic in rounds": functools.partial(policies.elastic_averaging, clock="rounds", beta=0.1),
    "pairs": functools.partial(policies.ad_psgd, graph="complete"),
    "push-sum": functools.partial(policies.sgp, graph="directed", seed=1),
    "push-sum, overlapped": functools.partial(policies.sgp, graph="directed", overlap=True, seed=1),
}
RUNTIMES = dyadic(np.random.default_rng(0), (40, NODES))


def params():
    generator = np.random.default_rng(1)
    return {"w": jnp.array(generator.normal(size=(4, 3))), "b": jnp.zeros(3)}


def loss(params, batch):
    inputs, targets = batch
    logits = jnp.tanh(inputs @ params["w"] + params["b"])
    value = jnp.mean(jnp.square(logits - targets)) + 0.01 * jnp.sum(jnp.square(params["w"]))
    return value, {"loss": value, "mean": jnp.mean(inputs)}


grad_fn = jax.grad(loss, has_aux=True)


def batch_fn(ticket):
    key = jax.random.fold_in(jax.random.key(3), ticket)
    inputs = jax.random.normal(key, (8, 4))
    return inputs, jnp.sin(3.0 * inputs[:, :3])


def rule():
    return rules.asgd(learning_rate=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)


@functools.cache
def gradients(x64):
    del x64  # programs are compiled anew
    return Gradients(Work(params(), grad_fn, batch_fn))


def compute(ticket, values):
    found = gradients(jax.config.jax_enable_x64).compute(ticket, values, lambda: False)
    return jax.tree.map(np.asarray, found)


def fold(stats, aux):
    return {"mean": 0.9 * stats["mean"] + 0.1 * aux["mean"]}


def rehearse(make, *, num_gradients=30, runtimes=RUNTIMES, faults=(), settings=QUICK, **given):
    """A run: (recording, steps, transport, policy)."""
    policy = make(num_workers=NODES, num_gradients=num_gradients)
    steps = of_nodes()
    transport = Rehearsal(runtimes, compute, faults=faults)
    recording = serve_peers(
        policy, steps, transport, num_workers=NODES, num_gradients=num_gradients, settings=settings, **given
    )
    return recording, steps, transport, policy


def batch_of(tickets, row):
    return batch_fn(tickets[row])


def of_nodes():
    return PeerSteps(rule(), params(), num_nodes=NODES, stats={"mean": jnp.zeros([])}, fold=fold)


def replayed(recording, **given):
    """By the programs of the live run."""
    found = lambda row, values: compute(int(recording.ticket[row]), values)
    aux = gradients(jax.config.jax_enable_x64).aux
    return repeat(recording.schedule, of_nodes(), found, aux=aux, **given)


def in_a_loop(recording):
    # As data of one length: programs are shared.
    tickets = np.zeros(64, np.int32)
    tickets[: recording.ticket.size] = recording.used_tickets()
    batches = jax.tree_util.Partial(batch_of, jnp.array(tickets))
    stats = {"mean": jnp.zeros([])}
    return replay.run(recording.schedule, rule(), grad_fn, params(), batches, mode="event", stats=stats, fold=fold)


def assert_same_bits(left, right):
    jax.tree.map(lambda one, other: np.testing.assert_array_equal(one, other, strict=True), left, right)


@pytest.mark.representatives("pull", "pairs")
@pytest.mark.parametrize(
    ("name", "x64"),
    [("pull", False), *((name, True) for name in POLICIES if name != "pull in rounds")],  # below, with a stand-in
)
def test_replays_to_the_bit(name, x64):
    jax.config.update("jax_enable_x64", x64)
    recording, steps, *_ = rehearse(POLICIES[name])
    result = replayed(recording)
    assert_same_bits(steps.nodes, result.nodes)
    assert_same_bits(steps.params, result.params)
    assert_same_bits(steps.state, result.state)
    assert_same_bits(steps.stats, result.stats)
    if recording.schedule.has_center:
        assert_same_bits(steps.center, result.center)
    np.testing.assert_array_equal(recording.loss, result.history.aux["loss"])
    if x64:
        close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
        found = in_a_loop(recording)
        for part in ("nodes", "params", "state", "stats", "center"):
            jax.tree.map(close, getattr(found, part), getattr(result, part))


@pytest.mark.parametrize("name", POLICIES)
def test_happens_as_simulated(name):
    recording, _, transport, policy = rehearse(POLICIES[name])
    # No two arrivals of this table come at once, so that the record can be that of the simulation.
    expected = policies.simulate_peers(POLICIES[name], RUNTIMES, num_gradients=30)
    for field in ("node", "event", "source", "source_version", "weight"):
        np.testing.assert_array_equal(getattr(recording.schedule, field), getattr(expected, field))
    np.testing.assert_allclose(recording.schedule.finished, expected.finished, rtol=1e-12)
    averages_first = getattr(policy, "fresh", True) or isinstance(policy, policies.Gossip)
    tickets = recording.ticket if averages_first else np.sort(recording.ticket)  # else it is there when it averages
    np.testing.assert_array_equal(tickets, np.arange(expected.num_gradients))
    np.testing.assert_allclose(
        recording.seconds, (recording.schedule.finished - recording.schedule.started)[expected.takes_gradient()]
    )
    assert recording.schedule.fresh == expected.fresh
    assert policy.finished
    assert not transport._trees  # nothing that was published is left


FAULTS = {
    "killed while it computes": [Fault("kill", 1, 5.3)],
    "killed twice, and another": [Fault("kill", 1, 5.3), Fault("kill", 0, 9.1, 0.5), Fault("kill", 1, 17.3)],
    "all killed": [Fault("kill", worker, 6.0 + worker / 8) for worker in range(NODES)],
    "stopped, and back": [Fault("stop", 2, 4.0, 25.0)],
    "raises": [Fault("raise", 0, 3.0)],
    "not finite": [Fault("nan", 0, 3.0), Fault("nan", 2, 9.0)],
    "says it twice": [Fault("twice", 1, 2.0, 0.25), Fault("twice", 0, 4.0, 7.0)],
    "replaced": [Fault("replace", 1, 5.3, 1.0)],
    "gives up": [Fault("give_up", 2, 5.0)],
}


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *(("pull", fault) for fault in FAULTS),
        ("push", "killed twice, and another"),
        ("elastic in rounds", "all killed"),
        ("push-sum", "replaced"),
        ("push-sum, overlapped", "killed twice, and another"),
        ("pairs", "all killed"),
    ],
)
def test_faults_lose_and_double_nothing(name, fault):
    recording, steps, transport, policy = rehearse(POLICIES[name], faults=FAULTS[fault])
    assert policy.finished
    ledger = recording.ledger()
    assert ledger["applied"] == recording.schedule.num_gradients == 30
    assert ledger["begun"] == 30 + ledger["lost"]
    assert (ledger["lost"] > 0) == (fault != "says it twice")
    assert sorted([*recording.ticket, *recording.lost]) == list(range(ledger["begun"]))
    assert_same_bits(steps.nodes, replayed(recording).nodes)
    assert not transport._trees


def test_a_node_whose_worker_is_gone_for_good_has_a_stand_in_at_the_end():
    settings = LiveSettings(respawns=0, respawn_seconds=0.1, wait_seconds=60.0, join_seconds=1.0)
    recording, steps, transport, _ = rehearse(POLICIES["pull"], faults=[Fault("kill", 1, 5.3)], settings=settings)
    begins = [call for call in transport.told if call[0] == "begin"]
    assert len(recording.lost) == 1
    # Ticket 30 and last is that of the gradient that worker 1 owed; another computed it.
    assert begins[-1][1:] == (0, 30)
    assert recording.schedule.node[recording.ticket == 30].tolist() == [1]
    assert_same_bits(steps.nodes, replayed(recording).nodes)


def test_steps_are_scaled_as_in_replay():
    scale = np.linspace(1.0, 0.1, 30)
    recording, steps, *_ = rehearse(POLICIES["pull"], step_scale=scale, faults=FAULTS["killed while it computes"])
    assert_same_bits(steps.nodes, replayed(recording, step_scale=scale).nodes)
    assert not np.array_equal(steps.nodes["w"], replayed(recording).nodes["w"])


def test_in_rounds_a_stand_in_makes_up_all_that_is_missing():
    settings = LiveSettings(respawns=0, respawn_seconds=0.1, wait_seconds=60.0, join_seconds=1.0)
    recording, steps, *_ = rehearse(
        POLICIES["pull in rounds"], faults=[Fault("kill", 1, 5.3)], settings=settings, num_gradients=18
    )
    assert np.bincount(recording.schedule.node).tolist() == [6, 6, 6]
    assert_same_bits(steps.nodes, replayed(recording).nodes)


def test_too_few_workers_end_the_run():
    settings = LiveSettings(respawns=0, wait_seconds=5.0, min_workers=2, join_seconds=1.0)
    faults = [Fault("kill", 1, 5.3), Fault("kill", 2, 6.3)]
    with pytest.raises(HostLost, match=r"1 of 3 workers are there, and min_workers=2 are needed: worker 1: killed"):
        rehearse(POLICIES["pull"], faults=faults, settings=settings)


def test_diverging_gradients_end_the_run():
    broken = lambda ticket, values: (jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan), values), {"loss": np.nan})
    policy = policies.gossip(num_workers=NODES, num_gradients=30)
    steps = PeerSteps(rule(), params(), num_nodes=NODES)
    with pytest.raises(RunFailed, match="of all workers were not finite"):
        serve_peers(policy, steps, Rehearsal(RUNTIMES, broken), num_workers=NODES, num_gradients=30, settings=QUICK)


def test_shows_and_stops():
    seen, told = [], []

    def on_update(updated):
        told.append((updated.number, updated.taken[0].ticket))
        return {"accuracy": 0.5} if updated.number == 3 else None

    rehearse(POLICIES["push"], watch=seen.append, on_update=on_update)
    assert [number for number, _ in told] == list(range(1, 31))
    last = seen[-1]
    assert (last.finished, last.updates, last.gradients, last.evaluation) == (True, 30, 30, {"accuracy": 0.5})
    assert last.ledger == {"begun": 30, "applied": 30, "dropped": 0, "lost": 0, "in flight": 0}
    assert any(status.waiting_for for status in seen)
    with pytest.raises(Stopped):
        rehearse(POLICIES["push"], stop=lambda: len(told) > 40, on_update=on_update)


def test_recording_is_saved_whole(tmp_path):
    recording, *_ = rehearse(POLICIES["elastic"], faults=FAULTS["raises"], config={"epochs": 0.5})
    recording.save(tmp_path / "peers.npz")
    again = PeerRecording.load(tmp_path / "peers.npz")
    for name in ("ticket", "seconds", "loss", "lost"):
        np.testing.assert_array_equal(getattr(again, name), getattr(recording, name))
    np.testing.assert_array_equal(again.schedule.weight, recording.schedule.weight)
    assert (again.config, again.versions) == ({"epochs": 0.5}, recording.versions)
    np.savez(tmp_path / "other.npz", ticket=np.zeros(3))
    with pytest.raises(ValueError, match="a recording of peers"):
        PeerRecording.load(tmp_path / "other.npz")


class TestSteps:
    def test_are_optax_by_hand(self):
        """Two nodes, momentum, one pull and one move of a center, with NumPy."""
        steps = PeerSteps(optax.sgd(0.5, momentum=0.5), jnp.array([1.0, 3.0]), num_nodes=2)
        steps.mix(0, 1, [Source(0, 0, 1.0)])
        steps.step(0, 2, np.array([2.0, 0.0]), {})
        np.testing.assert_allclose(steps.at(0, 2), [0.0, 3.0])
        steps.mix(0, 3, [Source(0, 2, 0.5), Source(1, 0, 0.5)])
        steps.mix(2, 1, [Source(2, 0, 0.5), Source(0, 2, 0.25), Source(1, 0, 0.25)])
        np.testing.assert_allclose(steps.at(0, 3), [0.5, 3.0])
        np.testing.assert_allclose(steps.center, [0.75, 3.0])
        steps.step(0, 4, np.array([0.0, 2.0]), {})  # velocity: 0.5 [2, 0] + [0, 2]
        np.testing.assert_allclose(steps.nodes, [[0.0, 2.0], [1.0, 3.0]])
        np.testing.assert_allclose(steps.params, [0.5, 2.5])
        steps.keep([(0, 2)])
        assert sorted(steps._values) == [(0, 2), (0, 4), (1, 0), (2, 2)]

    def test_compile_all_ahead(self, compilations):
        steps = PeerSteps(rule(), params(), num_nodes=NODES)
        steps.compile({"loss": np.float64(0.0), "mean": np.float64(0.0)})
        before = len(compilations)
        grads = jax.tree.map(lambda leaf: np.ones(leaf.shape), params())
        for node in range(NODES):
            steps.mix(node, 1, [Source(other, 0, 1 / 3) for other in range(NODES)])
            steps.step(node, 2, grads, {"loss": np.float64(0.0), "mean": np.float64(0.0)})
        assert len(compilations) == before

    def test_refuse_a_rule_of_a_server(self):
        with pytest.raises(ValueError, match=r"^rule keeps state for num_workers=4 workers of a server"):
            PeerSteps(rules.dana(learning_rate=0.1, num_workers=4), params(), num_nodes=4)


def test_what_does_not_fit_is_refused():
    steps = PeerSteps(rule(), params(), num_nodes=2)
    given = {"num_workers": NODES, "num_gradients": 9}
    with pytest.raises(ValueError, match=r"^steps.num_nodes=2 must be 3"):
        serve_peers(policies.gossip(**given), steps, Rehearsal(RUNTIMES, compute), **given)
    steps = PeerSteps(rule(), params(), num_nodes=3)
    with pytest.raises(ValueError, match=r"^policy.num_gradients=None must be a number"):
        serve_peers(policies.gossip(num_workers=3), steps, Rehearsal(RUNTIMES, compute), **given)
