"""A second simulation of rollouts: slow, obvious, in exact fractions, without clocks of tokens, heaps or stamps.

Every rollout holds the tokens that it still needs. At each instant all of them are moved on; then it is asked anew what
comes next. Policies are written here from their descriptions, on lists of all groups.
"""

import itertools
import math
from fractions import Fraction

INFINITE = math.inf


class Naive:
    def __init__(self, tokens, system, policy, num_steps, *, given=None):
        self.tokens, self.system, self.steps = tokens.tolist(), system, num_steps
        self.policy, self.given = policy, given or {}
        self.batch, self.size = system.batch, tokens.shape[2]
        self.now = Fraction(0)
        self.groups, self.rollouts = [], []
        self.engines = [{"version": 0, "rows": []} for _ in range(system.engines)]
        self.version = self.step = self.fresh = self.counter = 0
        self.training, self.paused = None, False
        self.loads, self.steps_began, self.steps_ended, self.applied = [], [], [], []
        self.waiting, self.queue, self.again = [], [], []

    # -------------------------------------------------------------- policies, by name
    def may_begin(self):
        eta = {"synchronous": 0, "one_step_off": 1}.get(self.policy, self.given.get("eta", self.given.get("gate")))
        gone = sum(group["fate"] in ("stale", "overflow", "aborted") for group in self.groups)
        if self.policy == "budget":
            return self.counter < (1 + self.given["theta"]) * self.batch
        return eta is None or len(self.groups) - gone < (eta + self.version + 1) * self.batch

    def too_old(self):
        """Groups that a version has left behind while they were decoded."""
        if self.given.get("stale") != "abort":
            return []
        groups = [(n, group) for n, group in enumerate(self.groups) if group["fate"] == "running"]
        return [n for n, group in groups if self.version - group["read"] > self.given["lag"]]

    def is_withheld(self, rollout):
        lag = self.given["lag"] if self.given.get("stale") == "withhold" else INFINITE
        return self.step - rollout["read"] > lag

    def unwanted(self):
        if self.given.get("stale") == "withhold":
            return [(n, "stale") for n in self.queue if all(map(self.is_withheld, self.members(n)))]
        if self.policy == "window" and self.given.get("lag") is not None:
            return [(n, "stale") for n in self.queue if self.step - self.groups[n]["read"] > self.given["lag"]]
        if self.policy == "queue_drop" and self.given.get("capacity") is not None:
            most = self.given["capacity"] * self.batch
            return [(n, "overflow") for n in self.queue[: max(len(self.queue) - most, 0)]]
        return []

    def next_batch(self):
        queue, read = self.queue, lambda n: self.groups[n]["read"]
        if self.policy in ("synchronous", "one_step_off", "in_order"):
            queue = [n for n in queue if self.step * self.batch <= n < (self.step + 1) * self.batch]
        if self.policy == "version_fifo":
            queue = sorted(queue, key=read)
            running = [read(n) for n, group in enumerate(self.groups) if group["fate"] == "running"]
            if len(queue) >= self.batch and any(version < read(queue[self.batch - 1]) for version in running):
                return None
        if self.policy == "window" and self.given.get("freshest"):
            queue = sorted(queue, key=lambda n: -read(n))
        return queue[: self.batch] if len(queue) >= self.batch else None

    # -------------------------------------------------------------- machines
    def rate(self, engine):
        busy, speed = len(engine["rows"]), self.system.speed
        return Fraction(speed(busy) if callable(speed) else speed) * (not self.paused)

    def go(self):
        self.settle()
        while len(self.applied) < self.steps:
            self.move_to(self.next_instant())
            if self.training is not None and self.training == self.now:
                self.end_step()
            while self.loads and self.loads[0] == self.now and len(self.applied) < self.steps:
                self.load()
            for engine in self.engines:
                for row in [row for row in engine["rows"] if self.rollouts[row]["left"] == 0 and not self.paused]:
                    self.end_rollout(engine, row)
            self.queue += sorted(n for n, g in enumerate(self.groups) if g["ready"] == self.now and g["new"])
            for group in self.groups:
                group["new"] = group["new"] and group["ready"] is None
            self.refresh_the_empty()
            if len(self.applied) < self.steps:
                self.settle()
        return self

    def members(self, number):
        return [rollout for rollout in self.rollouts if rollout["group"] == number]

    def refresh_the_empty(self):
        for engine in self.engines:
            if not engine["rows"] and not self.paused:
                engine["version"] = self.version

    def next_instant(self):
        times = [self.loads[0]] if self.loads else []
        times += [] if self.training is None else [self.training]
        for engine in self.engines:
            if engine["rows"] and not self.paused:
                least = min(self.rollouts[row]["left"] for row in engine["rows"])
                times.append(self.now + least / self.rate(engine))
        assert times, "all wait for ever"
        return min(times)

    def move_to(self, instant):
        for engine in self.engines:
            passed = (instant - self.now) * (self.rate(engine) if engine["rows"] else 0)
            for row in engine["rows"]:
                self.rollouts[row]["left"] -= passed
        self.now = instant

    def end_step(self):
        self.steps_ended.append(self.now)
        self.training = None
        self.paused = self.system.hold in ("engines", "both")
        self.loads.append(self.now + Fraction(self.system.transfer))

    def load(self):
        self.loads.pop(0)
        self.applied.append(self.now)
        self.version += 1
        self.paused = False
        self.counter = sum(group["fate"] in ("running", "queued") for group in self.groups)
        for engine in self.engines:
            if self.system.refresh == "in_flight" or not engine["rows"]:
                engine["version"] = self.version
                for row in engine["rows"]:
                    rollout = self.rollouts[row]
                    rollout["cuts"].append((self.version, math.floor(rollout["tokens"] - rollout["left"])))

    def end_rollout(self, engine, row):
        engine["rows"].remove(row)
        rollout = self.rollouts[row]
        rollout["finished"] = self.now
        group = self.groups[rollout["group"]]
        group["open"] -= 1
        if not group["open"]:
            group.update(ready=self.now, fate="queued", new=True)

    def settle(self):
        while True:
            for number in self.too_old():
                self.stop(number)
            for number, fate in self.unwanted():
                self.queue.remove(number)
                self.give_up(number, fate)
            waits = self.system.hold in ("trainer", "both") and self.loads
            batch = None if self.training is not None or waits else self.next_batch()
            if batch is None:
                break
            tokens = 0
            for number in batch:
                self.queue.remove(number)
                self.groups[number].update(fate="trained", step=self.step)
                for rollout in self.members(number):
                    rollout["withheld"] = self.is_withheld(rollout)
                    tokens += rollout["tokens"] * (not rollout["withheld"])
            self.steps_began.append(self.now)
            self.step += 1
            self.training = self.now + Fraction(self.system.train) + Fraction(self.system.train_token) * tokens
        while (engine := self.free_engine()) is not None and (self.waiting or self.may_begin()):
            if not self.waiting:
                self.begin_group()
            self.begin_rollout(engine)

    def stop(self, number):
        """The group's rollouts leave their slots as they are; those that have not begun never do."""
        for row, rollout in enumerate(self.rollouts):
            if rollout["group"] == number and rollout["finished"] is None:
                rollout["finished"] = self.now
                self.engines[rollout["engine"]]["rows"].remove(row)
        if number == len(self.groups) - 1:
            self.waiting = []
        self.refresh_the_empty()
        self.give_up(number, "aborted")

    def give_up(self, number, fate):
        group = self.groups[number]
        group["fate"] = fate
        if self.given.get("requeue") == "front":
            self.again.insert(0, group["prompt"])
        elif self.given.get("requeue") == "back":
            self.again.append(group["prompt"])

    def lengths(self, group):
        return self.tokens[group["attempt"] % len(self.tokens)][group["prompt"]]

    def free_engine(self):
        open_ = [
            (len(engine["rows"]), index)
            for index, engine in enumerate(self.engines)
            if len(engine["rows"]) < self.system.slots and engine["version"] == self.version and not self.paused
        ]
        return min(open_)[1] if open_ else None

    def begin_group(self):
        self.counter += 1
        if self.again:
            prompt = self.again.pop(0)
        else:
            prompt = self.fresh % len(self.tokens[0])
            self.fresh += 1
        attempt = sum(group["prompt"] == prompt for group in self.groups)
        group = {"prompt": prompt, "attempt": attempt, "read": None, "open": self.size, "ready": None, "new": False}
        self.groups.append(group | {"fate": "running", "step": -1})
        self.waiting = list(self.lengths(group))

    def begin_rollout(self, index):
        engine, group = self.engines[index], self.groups[-1]
        if group["read"] is None:
            group["read"] = engine["version"]
        length = self.waiting.pop(0)
        rollout = {"group": len(self.groups) - 1, "engine": index, "read": engine["version"], "tokens": length}
        rollout |= {"left": Fraction(length), "started": self.now, "finished": None, "withheld": False}
        rollout["cuts"] = [(engine["version"], 0)]
        engine["rows"].append(len(self.rollouts))
        self.rollouts.append(rollout)

    def spans(self):
        """[(rollout, version, tokens)], without those of no tokens."""
        found = []
        for number, rollout in enumerate(self.rollouts):
            made = math.floor(rollout["tokens"] - rollout["left"])
            cuts = [*rollout["cuts"], (None, made)]
            for (version, begin), (_, end) in itertools.pairwise(cuts):
                if end > begin:
                    found.append((number, version, end - begin))
        return found
