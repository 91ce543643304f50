"""A schedule of peers, replayed by its definition: every version of everybody's parameters is kept in a dict."""

import functools

import jax
import numpy as np

from sgdlab import rules


@functools.cache
def compiled(function):
    """One compilation for all replays."""
    return jax.jit(function)


@jax.jit
def batch_of(batch_fn, number):
    return batch_fn(number)


@jax.jit
def step_of(rule, grads, state, mean, node, scale):
    """(parameters, state) after a step; the rule is data."""
    message = rule.receive(grads, state, mean, worker=node, delay=1.0, read_params=mean)
    step, state = rule.update(message, state, mean, num_gradients=1, delay=1.0, worker=node)
    return jax.tree.map(lambda p, s: p + scale * s, mean, step), state


class Replayed:
    """Hold what a replay leaves.

    Attributes:
      versions: {(node, version): parameters}; the center has the number N.
      state, stats: of each node, lists.
      aux: of each gradient, in order.
    """

    def __init__(self, schedule, optimizer, grad_fn, params, batch_fn, *, stats=None, fold=None, step_scale=None):
        rule = optimizer if isinstance(optimizer, rules.ServerRule) else rules.server_rule(optimizer)
        grad_fn = compiled(grad_fn)
        batch_fn = batch_fn if isinstance(batch_fn, jax.tree_util.Partial) else jax.tree_util.Partial(batch_fn)
        self.schedule, nodes = schedule, schedule.num_nodes
        self.versions = {(node, 0): params for node in range(nodes + 1)}
        self.counts = [0] * (nodes + 1)  # events of each node
        self.made = []  # counts, before each gradient
        self.state = [rule.init(params)] * nodes
        self.stats, self.seen = [stats] * nodes, []
        self.aux, self.order = [], []
        for event, node in enumerate(schedule.node.tolist()):
            edges = np.flatnonzero(schedule.event == event)
            read = [self.versions[int(schedule.source[e]), int(schedule.source_version[e])] for e in edges]
            weights = [float(schedule.weight[e]) for e in edges]
            mean = jax.tree.map(lambda *v, w=weights: sum(a * b for a, b in zip(w, v, strict=True)), *read)
            number = self.counts[node]
            self.versions[node, 2 * number + 1] = self.versions[node, 2 * number + 2] = mean
            if node < nodes:
                self.made.append((list(self.counts), list(self.stats)))
                at = mean if schedule.fresh else self.versions[node, 2 * number]
                grads, aux = grad_fn(at, batch_of(batch_fn, len(self.aux)))
                scale = 1.0 if step_scale is None else float(step_scale[len(self.aux)])
                self.aux.append(aux)
                self.order.append(node)
                stepped, self.state[node] = step_of(rule, grads, self.state[node], mean, node, scale)
                self.versions[node, 2 * number + 2] = stepped
                if fold is not None:
                    self.stats[node] = compiled(fold)(self.stats[node], aux)
            self.counts[node] += 1
        self.made.append((list(self.counts), list(self.stats)))

    def after(self, gradients):
        """([every node's parameters], center, [every node's statistics]) once so many gradients are made.

        Events of the center behind the last of them are done too.
        """
        counts, stats = self.made[gradients]
        found = [self.versions[node, 2 * count] for node, count in enumerate(counts)]
        return found[:-1], found[-1], stats

    def stacked(self, trees):
        return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
