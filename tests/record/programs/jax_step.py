"""One of two processes whose step is one jitted function with its all-reduce; a worker is slow in a stage.

python jax_step.py DIRECTORY RANK PORT SLOW_STAGE HOW: SLOW_STAGE is data, compute or none, of worker 1 from step 30 on;
HOW is vectors, or boundary, where the function says when its gradients are there.
"""

import functools
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import sgdlab_record
from sgdlab_record import jax_loop, optax_loop

directory, rank, port, slow, how = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
recorder = sgdlab_record.Recorder(directory, rank)
mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
optimizer = optax_loop.averaged(recorder, "data")


def own_work(weights, batch, seconds):  # sleeps in the function, as the work of a slow worker would take longer
    def work(gradient, seconds):
        time.sleep(float(seconds[0]))
        return gradient

    gradient = jnp.tanh(weights @ batch[0])
    return jax.pure_callback(work, jax.ShapeDtypeStruct(gradient.shape, gradient.dtype), gradient, seconds)


@jax.jit
@functools.partial(
    jax.shard_map, mesh=mesh, in_specs=(jax.P(), jax.P("data"), jax.P("data")), out_specs=jax.P(), check_vma=False
)
def step(weights, batch, seconds):
    gradient = own_work(weights, batch, seconds)
    if how == "boundary":
        gradient, _ = optimizer.update(gradient, optimizer.init(weights))
    else:
        gradient = jax.lax.pmean(gradient, "data")
    return weights - 0.01 * gradient


def of_all(local):
    sharding = jax.sharding.NamedSharding(mesh, jax.P("data"))
    return jax.make_array_from_process_local_data(sharding, local)


step = jax_loop.recorded(step, recorder)
weights = jax.device_put(jnp.ones((128, 128)), jax.sharding.NamedSharding(mesh, jax.P()))
draw = np.random.default_rng(rank)
jax.block_until_ready(weights)
for number in range(80):
    is_slow = rank == 1 and number >= 30
    with recorder.phase("data"):
        time.sleep(draw.uniform(0.02, 0.03) + 0.2 * (is_slow and slow == "data"))
        batch = of_all(draw.normal(size=(1, 128, 128)).astype(np.float32))
        seconds = of_all(np.array([draw.uniform(0.03, 0.04) + 0.2 * (is_slow and slow == "compute")], np.float32))
    weights = step(weights, batch, seconds)
    recorder.step()
recorder.close()
print("done", recorder.errors)
