"""Work of toy workers, whose gradients are known: the parameters plus the number of the ticket."""

import os
import sys

import jax
import jax.numpy as jnp

from sgdlab.live.work import Work

FOR_EVER = 1e6
BAD_TICKET = 666


def params():
    return {
        "bfloat16": jnp.ones([3], jnp.bfloat16),
        "matrix": jnp.arange(6, dtype=jnp.float32).reshape(2, 3),
        "none": jnp.zeros([0, 4], jnp.float32),
        "scalar": jnp.float32(7),
    }


def plus(argument):
    """After the first gradient of a run worker `argument["slow"]` takes for ever; gradient `argument["bad"]` raises."""

    def check(ticket):
        if ticket.max() == argument.get("bad", BAD_TICKET):
            raise ArithmeticError("a mistake of the user")
        return ticket

    def grad_fn(params, batch):
        (ticket,) = jax.pure_callback(check, jax.ShapeDtypeStruct((1,), jnp.int32), batch)
        grads = jax.tree.map(lambda leaf: leaf + ticket.astype(leaf.dtype), params)
        return grads, {"loss": ticket / 2, "stats": [jnp.full([2], ticket, jnp.bfloat16)]}

    def seconds(worker, k):
        if "prints" in argument:
            print(argument["prints"], worker, flush=True)
        return FOR_EVER if k and worker == argument.get("slow") else 0.0

    return Work(params(), grad_fn, lambda ticket: ticket[None], seconds=seconds)


def naming_heavy_modules(argument):
    """Its gradients raise an error that names what is loaded."""

    def seconds(worker, k):
        loaded = [name for name in argument if name in sys.modules]
        raise LookupError(f"loaded: {loaded}, {jax.config.jax_enable_x64}")

    return plus({})._replace(seconds=seconds)


def raising(argument):
    raise OSError(argument)


def dying(argument):
    print(argument, file=sys.stderr, flush=True)
    os._exit(3)
