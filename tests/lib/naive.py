"""A second parameter server, in plain NumPy: slow, obvious, and written from the papers rather than from sgdlab.

Barkai et al. 2020, Algorithms 1 to 11 and 14, with what the design settles; PSP-SGD's Algorithm 1, line 13; Zheng et
al. 2017 (DC-ASGD); Mishchenko et al. 2022; Chan and Lane 2014. Parameters are flat dicts of float64 arrays; every
version that anybody could have read is kept in a list; nothing is in place, padded or compiled.
"""

import copy

import numpy as np

DECAY, EPSILON = 0.999, 1e-8  # of the gap's moving average, Algorithm 14


def tree(function, *dicts):
    """Applies a function entry by entry."""
    return {name: function(*(d[name] for d in dicts)) for name in dicts[0]}


def mean(dicts):
    return tree(lambda *values: sum(values) / len(values), *dicts)


def replay(schedule, server, gradient):
    """Walks the rows of a schedule in order and returns the server's parameters at the end.

    `gradient(parameters read, number)` is that of the gradient with this number among those that enter an update.
    """
    sent = [server.send()]
    messages, delays = [], []
    used = [row for row in range(schedule.num_gradients) if schedule.update[row, 0] >= 0]
    for place, row in enumerate(used):
        update, read = int(schedule.update[row, 0]), sent[schedule.read[row, 0]]
        delay = update - int(schedule.read[row, 0]) + 1
        server.sender = int(schedule.worker[row])
        messages.append(server.receive(gradient(read, place), read, delay))
        delays.append(delay)
        if place + 1 == len(used) or schedule.update[used[place + 1], 0] != update:
            step = tuple(mean(parts) for parts in zip(*messages, strict=True))
            server.apply(*step, delay=sum(delays) / len(delays), worker=int(schedule.worker[row]))
            sent.append(server.send())
            messages, delays = [], []
    return server.theta


class Asgd:
    """Algorithm 2, and the base of the others: v <- gamma v + g; theta <- theta - eta v."""

    def __init__(self, theta, *, eta, gamma=0.0, nesterov=False, weight_decay=0.0):
        self.theta = {name: np.array(value, np.float64) for name, value in theta.items()}
        self.eta = eta if callable(eta) else lambda k: eta
        self.gamma, self.nesterov, self.weight_decay = gamma, nesterov, weight_decay
        self.k = 0  # updates made
        self.v = self.zeros()

    def zeros(self):
        return tree(np.zeros_like, self.theta)

    def decayed(self, g):
        return tree(lambda g, theta: g + self.weight_decay * theta, g, self.theta)

    def receive(self, g, read, delay):
        """Return what one gradient contributes to its update: a tuple of dicts, each averaged over the update."""
        return (self.penalised(self.decayed(g), read, delay),)

    def penalised(self, g, read, delay):
        return g

    def step_size(self, delay):
        return self.eta(self.k)

    def apply(self, g, *, delay, worker):
        self.v = tree(lambda v, g: self.gamma * v + g, self.v, g)
        step = tree(lambda v, g: self.gamma * v + g, self.v, g) if self.nesterov else self.v
        self.theta = tree(lambda theta, s: theta - self.step_size(delay) * s, self.theta, step)
        self.k += 1

    def send(self):
        return self.theta


class StalenessAware(Asgd):
    """Algorithm 3: the step is divided by the delay."""

    def step_size(self, delay):
        return self.eta(self.k) / delay


class StalenessAwareGradient(Asgd):
    """Algorithm 5: the gradient is divided by the delay."""

    def penalised(self, g, read, delay):
        return tree(lambda g: g / delay, g)


class LinearScaling(Asgd):
    """PSP-SGD, Algorithm 1, line 13: theta <- theta - d eta U(mean of d gradients)."""

    d = 0

    def receive(self, g, read, delay):
        self.d += 1
        return super().receive(g, read, delay)

    def step_size(self, delay):
        return self.d * self.eta(self.k)

    def apply(self, g, *, delay, worker):
        super().apply(g, delay=delay, worker=worker)
        self.d = 0


class DelayAdaptive(Asgd):
    """Mishchenko et al.: a step is cut where its gradient is later than N updates."""

    def __init__(self, theta, *, num_workers, **rest):
        super().__init__(theta, **rest)
        self.num_workers = num_workers

    def step_size(self, delay):
        return self.eta(self.k) * (self.num_workers / delay if delay > self.num_workers else 1.0)


class ExponentialPenalty(Asgd):
    """Chan and Lane: a gradient counts e^-penalty less for each update that it missed."""

    def __init__(self, theta, *, penalty, **rest):
        super().__init__(theta, **rest)
        self.penalty = penalty

    def penalised(self, g, read, delay):
        missed = delay - 1
        return tree(lambda g: g / np.exp(self.penalty) ** missed, g)


class DelayCompensated(Asgd):
    """DC-ASGD, Zheng et al. 2017, Algorithm 2; adaptive: equation 10 with the mean square of section 6.

    Of several gradients, each is corrected with the mean square that it would make alone, and then their mean
    counts.
    """

    def __init__(self, theta, *, variance_control, adaptive=False, mean_square_decay=0.95, **rest):
        super().__init__(theta, **rest)
        self.control, self.adaptive, self.m = variance_control, adaptive, mean_square_decay
        self.mean_square = self.zeros()

    def folded(self, square):
        return tree(lambda old, new: self.m * old + (1 - self.m) * new, self.mean_square, square)

    def receive(self, g, read, delay):
        g = self.decayed(g)
        square = tree(lambda g: g * g, g)
        strength = tree(lambda _: self.control, g)
        if self.adaptive:
            strength = tree(lambda s: self.control / np.sqrt(s + 1e-7), self.folded(square))
        hessian = tree(lambda strength, square: strength * square, strength, square)
        moved = tree(lambda now, then: now - then, self.theta, read)
        return tree(lambda g, h, moved: g + h * moved, g, hessian, moved), square

    def apply(self, g, square, *, delay, worker):
        super().apply(g, delay=delay, worker=worker)
        self.mean_square = self.folded(square)


class Measure:
    """The gap of Definition 1 and its C of Algorithm 14."""

    def __init__(self, theta, eta_max, granularity):
        self.eta_max, self.granularity = eta_max, granularity
        self.m = self.size(tree(np.zeros_like, theta))
        self.folded = 0

    def size(self, values):
        """Squares of what counts as one thing: a parameter, a layer, or all there is."""
        if self.granularity == "parameter":
            return tree(np.square, values)
        per_layer = tree(lambda value: np.sum(value**2), values)
        if self.granularity == "layer":
            return per_layer
        return tree(lambda _: sum(per_layer.values()), values)

    def of(self, theta, read):
        """G, an array or a number for each entry of theta."""
        if self.folded == 0:  # everybody has the initial parameters
            return tree(lambda value: 1.0, theta)
        c = tree(lambda m: self.eta_max * (np.sqrt(m / (1 - DECAY**self.folded)) + EPSILON), self.m)
        moved = self.size(tree(lambda a, b: a - b, theta, read))
        return tree(lambda moved, c: np.sqrt(moved) / c + 1, moved, c)

    def fold(self, v):
        self.m = tree(lambda m, square: DECAY * m + (1 - DECAY) * square, self.m, self.size(v))
        self.folded += 1


class GapAware(Asgd):
    """Algorithm 4: the gradient is divided by the gap."""

    def __init__(self, theta, *, eta_max=None, granularity="parameter", **rest):
        super().__init__(theta, **rest)
        self.gap = Measure(self.theta, self.eta(0) if eta_max is None else eta_max, granularity)

    def penalised(self, g, read, delay):
        return tree(lambda g, gap: g / gap, g, self.gap.of(self.theta, read))

    def apply(self, g, *, delay, worker):
        super().apply(g, delay=delay, worker=worker)
        self.gap.fold(self.v)


class PrintedGapAware(GapAware):
    """Algorithm 14 as printed: gradient k's own step, unpenalised, enters C before G_k is measured.

    Of several gradients, each is measured as if it were alone, and the step of their mean is kept.
    """

    def folded(self, raw):
        gap = copy.deepcopy(self.gap)
        gap.fold(tree(lambda v, g: self.gamma * v + g, self.velocity_of(self.sender), raw))
        return gap

    def velocity_of(self, worker):
        return self.v

    def receive(self, g, read, delay):
        g = self.decayed(g)
        return tree(lambda g, gap: g / gap, g, self.folded(g).of(self.theta, read)), g

    def apply(self, penalised, raw, *, delay, worker):
        gap = self.folded(raw)
        super().apply(penalised, delay=delay, worker=worker)
        self.gap = gap


class Dana(Asgd):
    """Algorithm 6: a velocity for each worker, and an estimate of the future parameters is sent."""

    def __init__(self, theta, *, num_workers, **rest):
        super().__init__(theta, **rest)
        self.velocities = [self.zeros() for _ in range(num_workers)]

    def apply(self, g, *, delay, worker):
        self.v = self.velocities[worker]
        super().apply(g, delay=delay, worker=worker)
        self.velocities[worker] = self.v

    def send(self):
        if self.k == 0:
            return self.theta
        total = tree(lambda *v: sum(v), *self.velocities)
        return tree(lambda theta, v: theta - self.eta(self.k - 1) * self.gamma * v, self.theta, total)


class DanaStalenessAware(Dana):
    """Algorithm 7."""

    penalised = StalenessAwareGradient.penalised


class DanaGapAware(Dana):
    """Algorithm 8: the gap is measured from the estimate that was sent; C is over the sender's velocity."""

    def __init__(self, theta, *, eta_max=None, granularity="parameter", **rest):
        super().__init__(theta, **rest)
        self.gap = Measure(self.theta, self.eta(0) if eta_max is None else eta_max, granularity)

    penalised = GapAware.penalised

    def apply(self, g, *, delay, worker):
        super().apply(g, delay=delay, worker=worker)
        self.gap.fold(self.velocities[worker])


class PrintedDanaGapAware(PrintedGapAware, DanaGapAware):
    """Algorithm 8 with Algorithm 14 as printed: the step is that of the sender's velocity."""

    def velocity_of(self, worker):
        return self.velocities[worker]


class Adam(Asgd):
    """Algorithm 9, with Kingma and Ba's bias correction: one more than the updates made before."""

    def __init__(self, theta, *, b1=0.9, b2=0.999, eps=1e-8, **rest):
        super().__init__(theta, **rest)
        self.b1, self.b2, self.eps = b1, b2, eps
        self.first, self.second = self.zeros(), self.zeros()

    def receive(self, g, read, delay):
        g = self.decayed(g)
        return self.penalised(g, read, delay), g

    def apply(self, penalised, raw, *, delay, worker):
        self.first = tree(lambda m, g: self.b1 * m + (1 - self.b1) * g, self.first, penalised)
        self.second = tree(lambda v, g: self.b2 * v + (1 - self.b2) * g**2, self.second, raw)
        k = self.k + 1
        self.step = tree(
            lambda m, v: m / (1 - self.b1**k) / (np.sqrt(v / (1 - self.b2**k)) + self.eps), self.first, self.second
        )
        self.theta = tree(lambda theta, s: theta - self.eta(self.k) * s, self.theta, self.step)
        self.k = k


class AdamStalenessAware(Adam):
    """Algorithm 10: the first moment alone sees the penalty."""

    penalised = StalenessAwareGradient.penalised


class AdamGapAware(Adam):
    """Algorithm 11; C is over Adam's step."""

    def __init__(self, theta, *, eta_max=None, granularity="parameter", **rest):
        super().__init__(theta, **rest)
        self.gap = Measure(self.theta, self.eta(0) if eta_max is None else eta_max, granularity)

    penalised = GapAware.penalised

    def apply(self, penalised, raw, *, delay, worker):
        super().apply(penalised, raw, delay=delay, worker=worker)
        self.gap.fold(self.step)
