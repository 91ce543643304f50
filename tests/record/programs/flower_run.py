"""A run of three simulated Flower clients by a policy, and the same in simulation: python flower_run.py POLICY LOG."""

import sys
import time

import flower_app
import numpy as np
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

NUM_WORKERS, NUM_UPDATES = 3, 8
name, log = sys.argv[1:]
policy = flower_app.POLICIES[name]
client, server = ClientApp(), ServerApp()


@client.train()
def train(message, context):
    time.sleep(0.1 + 0.3 * context.node_config["partition-id"])
    (params,) = message.content["params"].to_numpy_ndarrays()
    return Message(RecordDict({"params": ArrayRecord([0.1 * params])}), reply_to=message)


@server.main()
def main(grid, context):
    def apply(params, taken):
        print("staleness", *(staleness for _, staleness in taken), flush=True)
        return [params[0] - np.mean([gradient[0] for gradient, _ in taken], axis=0)]

    made = policy(num_workers=NUM_WORKERS)
    given = {"num_workers": NUM_WORKERS, "num_updates": NUM_UPDATES, "log": log}
    print("params", *flower_app.serve(grid, made, [np.ones(2)], apply, **given)[0], flush=True)


run_simulation(server, client, NUM_WORKERS, backend_config={"client_resources": {"num_cpus": 0.5}})
rows, schedule = flower_app.replay(log, policy, NUM_WORKERS)
ours = sorted(zip(schedule.worker, schedule.read[:, 0], schedule.update[:, 0], strict=True))
ours = [[int(number) for number in row] for row in ours if row[2] != -2]  # less those in flight
print("recorded ", sorted([who, read, update] for who, read, _, _, update in rows))
print("simulated", ours)
print("seconds", max(row[3] for row in rows if row[4] >= 0), schedule.applied[-1, 0])
