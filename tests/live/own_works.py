"""Works of loops of one's own, in a file that workers can import."""

import os
import pathlib
import time

import numpy as np

from sgdlab.live import OwnWork


def initial():
    return {"w": np.array([1.0, -2.0, 0.5], np.float32), "b": np.float32(0.25)}


def gradient(params, ticket):
    """Depends on the ticket and the parameters, so that neither can be mistaken."""
    target = np.sin(1.0 + ticket * np.arange(1.0, 4.0)).astype(np.float32)
    return {"w": params["w"] - target, "b": params["b"] * np.float32(0.5)}, float(np.sum((params["w"] - target) ** 2))


def steady(worker, seconds=0.0):
    def slowly(params, ticket):
        time.sleep(seconds)
        return gradient(params, ticket)

    return initial(), slowly


def faulty(worker, folder):
    """Ticket 0 always raises; the process that has ticket 5 first dies, and 9 raises once: files say so."""

    def once(name):
        try:
            (pathlib.Path(folder) / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def failing(params, ticket):
        if ticket == 5 and once("died"):
            os._exit(3)
        if ticket == 0 or (ticket == 9 and once("raised")):
            raise ArithmeticError("a mistake of the user")
        return gradient(params, ticket)

    return initial(), failing


def random(worker):
    """Of a loader whose order nobody knows."""
    generator = np.random.default_rng()

    def drawn(params, ticket):
        time.sleep(0.01)
        return gradient(params, int(generator.integers(1000)))

    return OwnWork(initial(), drawn, deterministic=False)


def misshapen(worker):
    return initial(), lambda params, ticket: ({"w": np.zeros(2), "b": 0.0}, 0.0)
