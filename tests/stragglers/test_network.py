"""Latency and bandwidth are found again from simulated messages, and shares of a step equal hand computations."""

import dataclasses
import json
import re

import made_findings
import numpy as np
import pytest
import scipy.stats
from toy_traces import noise, recording_of

from sgdlab import protocols
from sgdlab.errors import UsageError
from sgdlab.stragglers import network
from sgdlab.stragglers import recording as split
from sgdlab.stragglers.answer import machine_readable, sentences
from sgdlab.stragglers.failures import Failures, Outage
from sgdlab.traces import Messages
from sgdlab.transports import ServerCosts, ring, star

CLUSTERS = {
    "8 workers, 100 Gbit/s": (8, 5e-6, 12.5e9, (2e5, 1e6, 25e6, 1e8)),
    "64 workers, 50 Gbit/s": (64, 1e-5, 6.25e9, (2e5, 1e6, 25e6, 1e8)),
    "16 workers, 1 Gbit/s": (16, 2e-2, 1.25e8, (1e5, 1e6, 25e6)),
}
STEPS, DRAWS = 40, 30


def sent(workers, latency, rate, sizes, seed=0):
    """Messages of 40 steps: workers come at their own times, and a message takes 30 % longer on average."""
    draw, messages = np.random.default_rng(seed), []
    for size in sizes:
        ready = draw.gamma(25, 1 / 25, (STEPS, workers))
        takes = ring(workers, size, rate, latency) * (1 + 0.3 * draw.exponential(size=ready.shape))
        inside = ready.max(axis=1, keepdims=True) - ready + takes
        messages.append(Messages("all_reduce", size, 32, workers, inside.min(axis=1, keepdims=True)))
    return messages


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_latency_and_bandwidth_of_simulated_clusters(cluster):
    workers, latency, rate, sizes = CLUSTERS[cluster]
    links = [network.fit_link(sent(*CLUSTERS[cluster], seed=seed), seed=seed, count=120) for seed in range(DRAWS)]
    for true, found in (
        (latency, [link.latency for link in links]),
        (rate, [link.bandwidth for link in links]),
    ):
        errors = np.array([each.value for each in found]) / true - 1
        assert abs(np.mean(errors)) < 0.02
        assert np.mean(abs(errors) < 0.05) >= 0.9
        covered = sum(each.low <= true <= each.high for each in found)
        assert covered >= scipy.stats.binom.ppf(0.001, DRAWS, 0.95)
    assert links[0].apart
    assert (links[0].members, links[0].sizes) == (workers, (sizes[0], sizes[-1]))


def test_one_size_gives_bounds():
    workers, latency, rate, _ = CLUSTERS["16 workers, 1 Gbit/s"]
    link = network.fit_link(sent(workers, latency, rate, (25e6,)))
    assert not link.apart
    assert link.latency.high >= latency
    assert link.bandwidth.low <= rate
    exact = Messages("all_reduce", 25e6, 32, workers, np.full((8, 1), ring(workers, 25e6, rate, latency)))
    link = network.fit_link([exact])
    # All of it would be latency, or all of it bandwidth.
    assert ring(workers, 0.0, 1.0, link.latency.high) == pytest.approx(exact.seconds[0, 0])
    assert ring(workers, 25e6, link.bandwidth.low, 0.0) == pytest.approx(exact.seconds[0, 0])
    assert (link.latency.low, link.bandwidth.high) == (0.0, np.inf)


def test_a_reduce_scatter_and_an_all_gather_of_shards_are_halves_of_a_ring():
    workers, latency, rate = 4, 1e-3, 1e9
    half = {size: ring(workers, size, rate, latency) / 2 for size in (1e6, 1e8)}
    messages = [Messages("reduce_scatter", size, 16, workers, np.full((9, 2), time)) for size, time in half.items()]
    messages += [Messages("all_gather", size / 4, 16, workers, np.full((9, 1), time)) for size, time in half.items()]
    # What is no part of a ring, or of another group, is left out.
    messages += [Messages("broadcast", 1e6, 16, workers, np.full((9, 1), 7.0))]
    messages += [Messages("all_reduce", 1e6, 16, 2, np.full((9, 1), 7.0))]
    link = network.fit_link(messages, count=10)
    assert link.latency == pytest.approx((latency,) * 3)
    assert link.bandwidth == pytest.approx((rate,) * 3)
    assert network.fit_link(messages[4:5]) is None
    assert network.fit_link([Messages("all_reduce", 1e6, 32, 2, np.ones((7, 1)))]) is None


def test_the_least_time_is_unbiased_where_what_is_added_is_exponential():
    draws = 1 + 0.3 * np.random.default_rng(0).exponential(size=(4000, 40))
    found = np.array([network.least_time(row) for row in draws])
    assert found.mean() == pytest.approx(1, abs=5 * found.std() / np.sqrt(4000))
    assert np.quantile(draws, 0.1, axis=1).mean() > 1.02  # a quantile alone is not
    assert network.least_time(np.array([[0.5, np.nan], [0.5, 0.5]])) == pytest.approx(0.5)
    assert network.least_time(np.array([1.0, 9.0])) == 0.0
    assert np.isnan(network.least_time(np.array([np.nan])))


def with_network(latency=0.01, rate=1e9, sizes=(1e6, 1e8), own=1.0):
    """Four workers that work for a second, and average two messages of 16 bits a number."""
    times = np.full((16, 4), own)
    messages = tuple(Messages("all_reduce", b, 16, 4, np.full((16, 1), ring(4, b, rate, latency))) for b in sizes)
    inside = sum(each.seconds for each in messages) * np.ones((1, 4))
    return split.split(recording_of(times, communication={"all_reduce": inside}, messages=messages))


def test_shares_of_a_step_by_hand():
    found = network.measure(with_network())
    # Two messages: 2 x 2 x 3 latencies; of 1 and 100 MB 3/2 cross a link.
    waits, crosses = 12 * 0.01, 1.5 * 101e6 / 1e9
    assert found.share == pytest.approx(((waits + crosses) / (1 + waits + crosses),) * 3)
    assert found.local == pytest.approx(((waits + crosses) / (10 + waits + crosses),) * 3)
    few = waits + crosses / 4
    assert found.few_bits == pytest.approx((few / (1 + few),) * 3)
    assert found.gradient == 101e6
    assert found.saturated == pytest.approx(((1 + 0.101) / 0.101,) * 3)
    # Of one size, all may be bandwidth, or latency: what few bits leave lies between, the server is no slower.
    one = network.measure(with_network(sizes=(1e8,)))
    time = 6 * 0.01 + 0.15
    assert one.few_bits[1:] == pytest.approx((time / 4 / (1 + time / 4), time / (1 + time)))
    assert one.saturated[1:] == (pytest.approx((1 + time / 1.5) / (time / 1.5)), np.inf)


def test_a_server_is_saturated_by_as_many_workers_as_a_simulation_says():
    """Workers of 1 s, and messages that take the server's link 0.25 s: from 5 workers on, 4 gradients a second."""
    found = network.measure(with_network(latency=0.0, rate=4e8, sizes=(1e7, 9e7)))
    assert found.saturated.value == pytest.approx(5)
    rates = {}
    for workers in (4, 5, 6):
        link = star(num_workers=workers, gradient_bytes=1e8, server=ServerCosts(gbits=3.2))
        schedule = protocols.asynchronous(np.ones((400, workers)), num_gradients=100 * workers, transport=link)
        rates[workers] = schedule.gradients_per_second()
    assert rates[4] < 0.85 * 4
    assert rates[5] == pytest.approx(4, rel=0.02)
    assert rates[6] == pytest.approx(4, rel=0.02)


def test_the_interval_of_the_share_holds_what_was_planted():
    covered = []
    for seed in range(40):
        draw = np.random.default_rng(seed)
        times, transfer = noise(200, 3, seed), 0.5 + 0.2 * draw.random((200, 1))
        parts = split.split(recording_of(times, communication={"all_reduce": transfer * np.ones((1, 3))}))
        share = network.measure(parts, seed=seed).share
        work = noise(100_000, 3, 99).max(axis=1).mean()
        covered.append(share.low <= 0.6 / (work + 0.6) <= share.high)
    assert sum(covered) >= scipy.stats.binom.ppf(0.001, 40, 0.95)


def test_sizes_by_the_number_of_parameters():
    parts = split.split(recording_of(np.ones((16, 4)), communication={"grads": np.full((16, 4), 0.5)}))
    sized = network.with_sizes(parts, 1e8, "bf16")
    (message,) = sized.complete.messages
    assert (message.collective, message.size, message.bits, message.members) == ("all_reduce", 2e8, 16, 4)
    np.testing.assert_array_equal(message.seconds, np.full((16, 1), 0.5))
    found = network.measure(sized)
    assert found.link.bandwidth.low == pytest.approx(1.5 * 2e8 / 0.5)
    with pytest.raises(UsageError, match=re.escape("--parameters=1e+08 must be left out: the trace has the sizes")):
        network.with_sizes(sized, 1e8, "bf16")
    with pytest.raises(UsageError, match="has no times of collectives, so that it would change nothing"):
        network.with_sizes(split.split(recording_of(np.ones((16, 4)))), 1e8, "bf16")


def test_sentences():
    parts = with_network()
    said = network.said(network.measure(parts))
    assert "is 21.4 % of a step" in said
    assert "(H = 10) it would be 2.64 %; with 4 bits a number, instead of 16, 13.6 %." in said
    assert "in a ring of 4 workers with a latency of 10.0 ms and 8.00 Gbit/s on each link" in said
    assert "A server that receives 101 MB of gradients" in said
    assert "saturated by 11 workers" in said
    one = network.said(network.measure(with_network(sizes=(1e8,))))
    assert "instead of 16, between 4.99 % and 17.4 %." in one
    assert "latency of at most 35.0 ms and at least 5.71 Gbit/s on each link; sizes that are alike cannot tell" in one
    assert "saturated by at least 9 workers" in one
    without = dataclasses.replace(parts.complete, messages=())
    bare = network.said(network.measure(dataclasses.replace(parts, complete=without)))
    assert "21.4 %" in bare
    assert "Gbit/s" not in bare
    assert "bits a number" not in bare
    # Where nothing was recorded, nothing is said.
    silent = network.measure(split.split(recording_of(np.ones((16, 4)))))
    assert (silent, network.said(silent)) == (None, "")


def test_the_answer_has_both_where_they_are_known_and_neither_where_not():
    parts = made_findings.parts(made_findings.runtimes())
    bare = made_findings.findings(parts, made_findings.diagnosis(parts), made_findings.protocols(parts))
    assert not {"Communication", "Failures"} & dict(sentences.details(bare)).keys()
    known = dataclasses.replace(
        bare,
        network=network.measure(with_network(sizes=(1e8,))),
        failures=Failures((Outage(5, (0,), 30.0),), 99.0, 6, 9.0, "flag"),
    )
    said = dict(sentences.details(known))
    assert said["Communication"].startswith("The transfer of the collectives is 17.4 %")
    assert said["Failures"].startswith("1 failure in 99.0 s: worker w0 missing from step 105 on for 30.0 s.")
    plain, whole = (json.loads(machine_readable.text(each)) for each in (bare, known))
    assert (plain["network"], plain["failures"]) == (None, None)
    assert whole["network"]["share"] == pytest.approx(list(known.network.share))
    assert whole["network"]["link"]["latency"] == [None, 0.0, pytest.approx(0.035)]
    assert whole["network"]["link"]["bandwidth"] == [None, pytest.approx(1.5e8 / 0.21), None]
    assert whole["failures"]["outages"] == [{"step": 105, "workers": ["w0"], "seconds": 30.0}]
    assert whole["failures"]["between"][2] is None


@pytest.mark.parametrize(
    ("field", "value"), [("size", 0.0), ("size", np.inf), ("bits", -1.0), ("members", 1), ("members", 2.5)]
)
def test_impossible_messages(field, value):
    with pytest.raises(ValueError, match=f"^{field}="):
        dataclasses.replace(Messages("all_reduce", 1e6, 32, 2, np.ones((4, 1))), **{field: value})
    with pytest.raises(ValueError, match="messages of 3 steps must be of the T=4 steps"):
        recording_of(np.ones((4, 2)), messages=(Messages("all_reduce", 1e6, 32, 2, np.ones((3, 1))),))
