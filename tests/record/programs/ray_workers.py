"""A Ray Train job of two workers, of which one is slow in its forward pass. python ray_workers.py DIRECTORY."""

import sys
import time

import ray
import ray.train.torch
import torch
from sgdlab_record import ray_train


def train(settings):
    recorder = ray_train.recorder(settings["directory"])
    model = ray_train.prepare_model(torch.nn.Linear(4, 1), recorder)
    for _ in range(30):
        with recorder.phase("forward"):
            time.sleep(0.01 + 0.05 * (recorder.worker == 1))
            loss = model(torch.ones(2, 4)).sum()
        with recorder.phase("backward", waits=True):
            loss.backward()
        recorder.step()
    recorder.close()
    assert recorder.errors == 0


ray.init(num_cpus=2, include_dashboard=False)
scaling = ray.train.ScalingConfig(num_workers=2, use_gpu=False)
run = ray.train.RunConfig(storage_path=f"{sys.argv[1]}-ray", name="run")
settings = {"directory": sys.argv[1]}
ray.train.torch.TorchTrainer(train, train_loop_config=settings, scaling_config=scaling, run_config=run).fit()
print("done")
