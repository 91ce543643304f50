"""Averaging of hivemind whose deadline follows the arrivals of earlier rounds, instead of a fixed matchmaking time."""

import math

from hivemind.averaging.partition import AllreduceException
from hivemind.utils import get_dht_time


def average(averager, deadline, peers, began, *, timeout):
    """Average with those that are ready by the deadline, learn from it, and return their seconds, by peer; or nothing.

    Args:
      averager: a `DecentralizedAverager`, whose `min_group_size` is the quorum: hivemind takes it once, at the start.
      deadline: `sgdlab_record.deadlines.Deadline` that has seen the rounds before.
      peers: the peers' identities, in the order of the deadline's workers.
      began: when the round began, on the clock of the DHT.
      timeout: seconds after which the round is given up, as before; longer than the deadline.
    """
    wait = min(deadline.next().seconds, timeout)
    ready = get_dht_time() - began
    try:
        found = averager.step(gather=ready, scheduled_time=began + wait, timeout=timeout, allow_retries=False)
    except AllreduceException:  # it was late, and learns nothing of this round; it joins the others in the next one
        return {}
    arrivals = [found.get(peer, math.nan) for peer in peers]
    deadline.next(arrivals, cut_at=max(wait, *found.values()))
    return found
