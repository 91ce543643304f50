"""torchft with the time-outs of an answer: a replica that is late by less than `join` is waited for, another not."""

import sys
import threading
import time
from datetime import timedelta

from torch.distributed import TCPStore
from torchft import Manager, ProcessGroupGloo
from torchft._torchft import LighthouseClient, LighthouseServer
from torchft_timeouts import timeouts

manager_given, lighthouse_given = timeouts(sys.argv[1])
print("given", manager_given["timeout"].total_seconds(), manager_given["quorum_timeout"].total_seconds(),
      lighthouse_given["join_timeout_ms"])  # fmt: skip

join = lighthouse_given["join_timeout_ms"] / 1000
for share in (0.3, 3.0):
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, **lighthouse_given)
    clients = {name: LighthouseClient(lighthouse.address(), timedelta(seconds=10)) for name in "abc"}
    stop, found = threading.Event(), {}

    def alive(clients=clients, stop=stop):  # all three are there all the time, as managers say
        while not stop.wait(0.1):
            for name, client in clients.items():
                client.heartbeat(name)

    def ask(name, after, clients=clients, found=found, share=share):
        time.sleep(after)
        given = {"timeout": manager_given["quorum_timeout"], "address": name, "store_address": name, "step": 1,
                 "world_size": 1, "shrink_only": False}  # fmt: skip
        try:
            found[name] = sorted(member.replica_id for member in clients[name].quorum(name, **given).participants)
        except TimeoutError:  # the others have gone on without it
            found[name] = []

    heart = threading.Thread(target=alive)
    heart.start()
    time.sleep(1.0)  # the lighthouse knows of all
    asking = [threading.Thread(target=ask, args=(name, share * join * (name == "c"))) for name in "abc"]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    stop.set()
    heart.join()
    print("quorum of the first", *found["a"])
    lighthouse.shutdown()

lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, **lighthouse_given)
store = TCPStore(host_name="127.0.0.1", port=0, is_master=True, wait_for_workers=False)
manager = Manager(
    pg=ProcessGroupGloo(), load_state_dict=lambda state: None, state_dict=dict, min_replica_size=1, rank=0,
    world_size=1, store_addr="127.0.0.1", store_port=store.port, lighthouse_addr=lighthouse.address(),
    hostname="127.0.0.1", use_async_quorum=False, **manager_given,
)  # fmt: skip
manager.start_quorum()
print("participants", manager.num_participants())
manager.shutdown()
lighthouse.shutdown()
