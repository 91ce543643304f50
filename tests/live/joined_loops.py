"""Loops of PyTorch and of JAX that join a run; as a program, one of its workers."""

import sys
import time

import numpy as np

from sgdlab import live

DATA = np.random.default_rng(0).normal(size=(256, 8)).astype(np.float32)
TARGETS = DATA @ (np.arange(8, dtype=np.float32) / 8)


def rows_of(ticket):
    return np.random.default_rng(ticket).integers(len(DATA), size=16)


def of_torch(worker):
    """A model of two layers."""
    import torch  # noqa: PLC0415

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    named = dict(model.named_parameters())

    def gradient(params, ticket):
        model.load_state_dict({name: torch.tensor(value) for name, value in params.items()})
        rows = rows_of(ticket)
        found = model(torch.from_numpy(DATA[rows]))[:, 0]
        loss = torch.nn.functional.mse_loss(found, torch.from_numpy(TARGETS[rows]))
        return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True)), loss.item()

    return {name: value.detach().numpy() for name, value in named.items()}, gradient


def of_jax(worker):
    """The same in JAX, with parameters in a list."""
    import jax  # noqa: PLC0415
    import jax.numpy as jnp  # noqa: PLC0415

    def loss(params, inputs, targets):
        (first, shift), last = params
        return jnp.mean((jnp.tanh(inputs @ first + shift) @ last - targets) ** 2)

    compiled = jax.jit(jax.value_and_grad(loss))

    def gradient(params, ticket):
        rows = rows_of(ticket)
        value, grads = compiled(params, DATA[rows], TARGETS[rows])
        return grads, value

    generator = np.random.default_rng(1)
    normal = lambda *shape: (generator.normal(size=shape) / 3).astype(np.float32)
    return [[normal(8, 16), normal(16)], normal(16)], gradient


def main(work, address, certificate=None):
    _, gradient = globals()[work](0)
    sent = 0
    with live.join(address, certificate=certificate) as worker:
        for ticket, params in worker:
            time.sleep(0.01)
            worker.send(*gradient(params, ticket))
            sent += 1
    print("ended", sent, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
