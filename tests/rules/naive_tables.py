"""Servers that keep gradients of workers, a second time: whole algorithms in plain NumPy, each with its own events.

Worker i's loss is a quadratic of its own. Its s-th gradient takes `seconds[s, i]`; the k-th gradient that the server
uses has the k-th noise. Each function returns the parameters at the end, and those that each used gradient was computed
on. Written from: Maranjyan and Richtarik 2025 (Ringleader ASGD, tables G and G+); Tyurin's Algorithm 1 (Malenia SGD);
Chang et al. 2025 (ACE and ACED, the mean over the whole table every time); Mahran et al. 2026 (Rescaled ASGD); Wang et
al. 2024 (CA2FL, Algorithm 2).
"""

import heapq

import numpy as np

SIZE = 3
_random = np.random.default_rng(7)
CURVATURE, CENTRE = _random.uniform(0.3, 1.0, (8, SIZE)), _random.normal(size=(8, SIZE))
NOISE = 0.3 * _random.normal(size=(256, SIZE))
START = _random.normal(size=SIZE)


def gradient(worker, x, number):
    return CURVATURE[worker] * (x - CENTRE[worker]) + NOISE[number]


class Workers:
    """Keep who is computing what; `begin` is told the point, `next` says who is first."""

    def __init__(self, seconds):
        self.seconds, self.heap, self.begun, self.point = seconds, [], [0] * seconds.shape[1], {}
        self.now, self.read = 0.0, []

    def begin(self, worker, x):
        heapq.heappush(self.heap, (self.now + self.seconds[self.begun[worker], worker], worker))
        self.begun[worker] += 1
        self.point[worker] = x

    def next(self):
        self.now, worker = heapq.heappop(self.heap)
        return worker

    def gradient_of(self, worker):
        x = self.point[worker]
        self.read.append(x)
        return gradient(worker, x, len(self.read) - 1)

    def stop_all(self):
        self.heap = []


def ringleader(seconds, eta, gradients, points="own"):
    n = seconds.shape[1]
    workers, x = Workers(seconds), START
    for i in range(n):
        workers.begin(i, x)
    sums, counts = np.zeros((n, SIZE)), np.zeros(n)

    def go_on(j):
        workers.begin(j, workers.point[j] if points == "own" else x)

    while True:
        while True:  # phase 1: until everybody is in the table
            j = workers.next()
            sums[j] += workers.gradient_of(j)
            counts[j] += 1
            if (counts > 0).all():
                break
            go_on(j)
        x = x - eta * np.mean(sums / counts[:, None], axis=0)
        if len(workers.read) >= gradients:
            return x, workers.read
        workers.begin(j, x)
        left = set(range(n)) - {j}
        sums_next, counts_next = np.zeros((n, SIZE)), np.zeros(n)
        while left:  # phase 2: one update for each of the others
            j = workers.next()
            g = workers.gradient_of(j)
            if j in left:
                sums[j] += g
                counts[j] += 1
                x = x - eta * np.mean(sums / counts[:, None], axis=0)
                if len(workers.read) >= gradients:
                    return x, workers.read
                workers.begin(j, x)
                left.remove(j)
            else:
                sums_next[j] += g
                counts_next[j] += 1
                go_on(j)
        sums, counts = sums_next, counts_next


def malenia(seconds, eta, gradients, collected=0.0, interrupt=False, momentum=0.0):
    n = seconds.shape[1]
    workers, x, v = Workers(seconds), START, np.zeros(SIZE)
    version = dict.fromkeys(range(n), 0)
    for i in range(n):
        workers.begin(i, x)
    k = 0
    while True:
        sums, counts = np.zeros((n, SIZE)), np.zeros(n)
        while (counts == 0).any() or 1 / np.mean(1 / counts) <= collected / n:
            j = workers.next()
            if version[j] == k:
                sums[j] += workers.gradient_of(j)
                counts[j] += 1
                if (counts > 0).all() and 1 / np.mean(1 / counts) > collected / n:
                    break
            version[j] = k
            workers.begin(j, x)
        d = np.mean(sums / counts[:, None], axis=0)
        v = momentum * v + d
        x = x - eta * (momentum * v + d)  # Nesterov's
        k += 1
        if len(workers.read) >= gradients:
            return x, workers.read
        if interrupt:
            workers.stop_all()
        for i in range(n) if interrupt else (j,):
            version[i] = k
            workers.begin(i, x)


def ace(seconds, eta, gradients, max_staleness=None, fill_first=True, momentum=0.0, weight_decay=0.0):
    n = seconds.shape[1]
    workers, x, v = Workers(seconds), START, np.zeros(SIZE)
    for i in range(n):
        workers.begin(i, x)
    table, when = [None] * n, [0] * n
    k, version = 0, [0] * n  # steps made, and the step from which a worker has its point
    while len(workers.read) < gradients:
        j = workers.next()
        table[j], when[j] = workers.gradient_of(j), version[j]
        if not fill_first or all(g is not None for g in table):
            active = [i for i in range(n) if table[i] is not None]
            if max_staleness is not None:
                active = [i for i in active if k - when[i] <= max_staleness]
            if active:
                v = momentum * v + np.mean([table[i] for i in active], axis=0) + weight_decay * x
                x = x - eta * v
            k += 1
        workers.begin(j, x)
        version[j] = k
    return x, workers.read


def rescaled(seconds, eta, gradients, given=None, momentum=0.0):
    n = seconds.shape[1]
    workers, x, v = Workers(seconds), START, np.zeros(SIZE)
    for i in range(n):
        workers.begin(i, x)
    came = np.zeros(n)
    while len(workers.read) < gradients:
        j = workers.next()
        g = workers.gradient_of(j)
        came[j] += 1
        if given is None:  # each of the others has done half a gradient since its last
            share = came[j] / (came[j] + sum(came[i] + 0.5 for i in range(n) if i != j))
        else:
            share = (1 / given[j]) / np.sum(1 / np.array(given))
        v = momentum * v + g / (n * share)
        x = x - eta * v
        workers.begin(j, x)
    return x, workers.read


def ca2fl(seconds, eta, gradients, size, momentum=0.0):
    n = seconds.shape[1]
    workers, x, v = Workers(seconds), START, np.zeros(SIZE)
    for i in range(n):
        workers.begin(i, x)
    h = np.zeros((n, SIZE))
    while len(workers.read) < gradients:
        mean_h, differences = h.mean(axis=0), []
        while len(differences) < size:
            j = workers.next()
            g = workers.gradient_of(j)
            differences.append(g - h[j])
            h[j] = g
            if len(differences) == size:
                v = momentum * v + mean_h + np.mean(differences, axis=0)
                x = x - eta * v
            workers.begin(j, x)
    return x, workers.read
