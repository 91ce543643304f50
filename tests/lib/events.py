"""A driver of policies in a few lines: it does what the actions say, and refuses what cannot be done."""

from sgdlab.policies import Begin, Close, Drop, Interrupt, Policy, Take, Wake


class Driver:
    """Tells a policy what happens, second by second.

    Attributes:
      busy: worker -> the version that it computes on.
      updates: for each update, its workers, in the order in which their gradients came.
      dropped: (worker, version) of gradients that came in vain.
      interrupted: (worker, version) of those given up.
      wakes: instants that timers were asked for.
    """

    def __init__(self, policy: Policy, workers):
        self.policy, self.now = policy, 0.0
        self.busy, self.updates, self.open, self.dropped, self.interrupted, self.wakes = {}, [], [], [], [], []
        self.alive, self.kept = set(workers), set()
        self.perform(policy.start(list(workers)))

    def come(self, worker, now=None, seconds=None):
        self.now = self.now + 1.0 if now is None else now
        self.came = (worker, self.busy.pop(worker))
        seconds = self.now if seconds is None else seconds
        return self.perform(self.policy.arrived(self.now, worker, self.came[1], seconds), came=True)

    def lose(self, worker):
        self.busy.pop(worker, None)
        self.alive.discard(worker)
        return self.perform(self.policy.lost(self.now, worker))

    def join(self, worker):
        self.alive.add(worker)
        return self.perform(self.policy.joined(self.now, worker))

    def ring(self, now):
        self.now = now
        return self.perform(self.policy.timer(now))

    def perform(self, actions, came=False):
        for action in actions:
            match action:
                case Take(worker, update):
                    assert came
                    assert (worker, update) == (self.came[0], len(self.updates))
                    self.open.append(worker)
                    came = False
                case Drop(worker):
                    assert came
                    assert worker == self.came[0]
                    self.dropped.append(self.came)
                    came = False
                case Interrupt(worker):
                    self.interrupted.append((worker, self.busy.pop(worker)))
                case Close(update):
                    assert update == len(self.updates)
                    assert self.open
                    self.updates.append(self.open)
                    self.open = []
                case Begin(worker, version):
                    assert worker in self.alive
                    assert worker not in self.busy
                    assert version == len(self.updates) or version in self.kept
                    self.busy[worker] = version
                case Wake(at):
                    assert at > self.now
                    self.wakes.append(at)
        assert not came
        held = set(getattr(self.policy, "held", tuple)())
        assert held <= {*self.kept, len(self.updates)}
        self.kept = held
        return actions
