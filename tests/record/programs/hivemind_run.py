"""Three hivemind peers average in two rounds with a deadline; in the second, the third peer is late."""

import concurrent.futures
import time

import hivemind
import numpy as np
import torch
from hivemind.utils import get_dht_time
from hivemind_deadline import average
from sgdlab_record.deadlines import Deadline

LOCAL = {"start": True, "host_maddrs": ["/ip4/127.0.0.1/tcp/0"], "use_auto_relay": False, "use_relay": False}

if __name__ == "__main__":
    tables = [hivemind.DHT(**LOCAL)]
    tables += [hivemind.DHT(initial_peers=tables[0].get_visible_maddrs(), **LOCAL) for _ in range(2)]
    averagers = [
        hivemind.DecentralizedAverager(
            [torch.full((2,), 3.0**number)], table, prefix="run", start=True, target_group_size=3, min_group_size=2,
            min_matchmaking_time=2.0, request_timeout=1.0,
        )
        for number, table in enumerate(tables)
    ]  # fmt: skip
    peers = [averager.peer_id for averager in averagers]
    # The third was late in the rounds before, so that the deadline is that of the other two.
    times = np.array([[7.8, 8.0, 30.0]] * 20)
    deadlines = [Deadline.fit(times, max_false_drop=1) for _ in peers]
    print("next", *deadlines[0].next())
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for late in (0.0, 20.0):
            began = get_dht_time()

            def take_part(number, began=began, late=late):
                time.sleep(late * (number == 2))
                return average(averagers[number], deadlines[number], peers, began, timeout=15.0)

            found = list(pool.map(take_part, range(3)))
            print("group", *(sorted(peers.index(peer) for peer in each) for each in found[:2]))
            print("late one", sorted(peers.index(peer) for peer in found[2]))
            for averager in averagers[:2]:
                with averager.get_tensors() as (tensor,):
                    print("average", tensor[0].item())
    print("last", np.isinf(deadlines[0]._rows[-2:]).sum(axis=1).tolist(), *deadlines[0].next())
    for each in (*averagers, *tables):
        each.shutdown()
