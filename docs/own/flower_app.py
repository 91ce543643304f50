"""A Flower ServerApp whose loop is a policy of sgdlab (FedBuff, SSP, a cutoff, your own), and its log in simulation."""

import functools
import heapq
import json
import math
import pathlib
import time

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from sgdlab import policies, predictors
from sgdlab.schedule import DROPPED

POLICIES = {
    "fedbuff": functools.partial(policies.softsync, gradients_per_update=2),
    "ssp": functools.partial(policies.bounded_staleness, bound=1),
    "cutoff": functools.partial(policies.cutoff, predictor=predictors.RunningMean(window=2), window=2),
}


def serve(grid, policy, params, apply, *, num_workers, num_updates, log):
    """Train until so many updates are made, and return the parameters, a list of arrays.

    `apply` makes new parameters of those, and of a list of pairs, a reply's arrays and their staleness. The log is
    JSON lines, [worker, version, began, ended (infinite: given up), update]; to call in a `ServerApp`.
    """
    while len(nodes := sorted(grid.get_node_ids())[:num_workers]) < num_workers:
        time.sleep(0.1)
    flying, timers, rows, taken, version, start = {}, [], [], [], 0, time.monotonic()

    def perform(actions, now, reply=None, row=None):
        nonlocal params, taken, version
        for action in actions:
            match action:
                case policies.Begin(worker, read):  # the newest version: these policies hold no older one
                    content = RecordDict({"params": ArrayRecord(params), "config": ConfigRecord({"version": read})})
                    message = Message(content, nodes[worker], MessageType.TRAIN, group_id=str(read))
                    flying[next(iter(grid.push_messages([message])))] = [worker, read, now]
                case policies.Take(_, update):
                    taken.append((reply.content["params"].to_numpy_ndarrays(), update - row[1]))
                    rows.append([*row, now, update])
                case policies.Drop():
                    rows.append([*row, now, DROPPED])
                case policies.Interrupt(worker):  # its reply is ignored; the node ends it before what it is sent next
                    late = next(sent for sent, each in flying.items() if each[0] == worker)
                    rows.append([*flying.pop(late), math.inf, DROPPED])
                case policies.Close():
                    params, taken, version = apply(params, taken), [], version + 1
                    if version == num_updates:
                        return
                case policies.Wake(at):
                    heapq.heappush(timers, at)

    perform(policy.start(range(num_workers)), 0.0)
    while version < num_updates:
        time.sleep(0.01)
        for reply in grid.pull_messages(list(flying)):
            if version < num_updates and (row := flying.pop(reply.metadata.reply_to_message_id, None)):
                now = time.monotonic() - start
                perform(policy.arrived(now, row[0], row[1], now - row[2]), now, reply, row)
        while version < num_updates and timers and timers[0] <= (now := time.monotonic() - start):
            heapq.heappop(timers)
            perform(policy.timer(now), now)
    pathlib.Path(log).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return params


def replay(log, make_policy, num_workers):
    """Return the log's rows, and the schedule that the policy makes of the seconds in it, in simulation."""
    rows = [json.loads(line) for line in pathlib.Path(log).read_text(encoding="utf-8").splitlines()]
    times = [[end - begin for who, _, begin, end, _ in rows if who == worker] for worker in range(num_workers)]
    runtimes = np.full((1 + max(map(len, times)), num_workers), 1e6)
    for worker, seconds in enumerate(times):
        runtimes[: len(seconds), worker] = np.minimum(seconds, 1e6)  # what never came takes for ever
    return rows, policies.simulate(make_policy, runtimes, num_updates=1 + max(row[4] for row in rows))
