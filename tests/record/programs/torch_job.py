"""One of two processes that train by PyTorch; worker 1 is slow inside the backward pass from step 20 on.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set; python torch_job.py DIRECTORY LOOP, which is ddp, accelerate,
hugging_face or lightning.
"""

import os
import sys
import time

import sgdlab_record
import torch
from torch import nn

DIRECTORY, LOOP = sys.argv[1:3]
RANK, STEPS, SLOW_SINCE = int(os.environ["RANK"]), 60, 20


class Late(torch.autograd.Function):
    """Takes time in the backward pass, before the gradients of the layers in front of it."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        Late.calls += 1
        time.sleep(0.03 + 0.2 * (RANK == 1 and Late.calls > SLOW_SINCE))
        return gradient


Late.calls = 0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 64), nn.Linear(64, 1)

    def forward(self, x=None, labels=None):
        out = self.second(Late.apply(torch.tanh(self.first(x))))
        return out if labels is None else {"loss": nn.functional.mse_loss(out[:, 0], labels), "logits": out}


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 2 * 4 * STEPS

    def __getitem__(self, index):
        time.sleep(0.001)
        return {"x": torch.full((8,), index / 100), "labels": torch.tensor(1.0)}


def ddp(recorder):
    from sgdlab_record.profiling import torch_windows
    from sgdlab_record.pytorch import record_ddp

    torch.distributed.init_process_group("gloo")
    model = record_ddp(nn.parallel.DistributedDataParallel(Model()), recorder)
    torch_windows(recorder, every=20, steps=5)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    sampler = torch.utils.data.DistributedSampler(Data())
    for batch in recorder.each("data", torch.utils.data.DataLoader(Data(), batch_size=4, sampler=sampler)):
        with recorder.phase("forward"):
            loss = model(**batch)["loss"]
        with recorder.phase("backward", waits=True):
            loss.backward()
        with recorder.phase("update"):
            optimizer.step()
            optimizer.zero_grad()
        recorder.step()
    sums = [None, None]
    torch.distributed.all_gather_object(sums, sum(weight.double().sum().item() for weight in model.parameters()))
    assert sums[0] == sums[1]  # the gradients were averaged
    torch.distributed.destroy_process_group()


def accelerate(recorder):
    from accelerate import Accelerator
    from sgdlab_record.accelerate import record

    accelerator, model = Accelerator(cpu=True), Model()
    loader = torch.utils.data.DataLoader(Data(), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.01), loader)
    record(accelerator, recorder, model, optimizer)
    for batch in recorder.each("data", loader):
        accelerator.backward(model(**batch)["loss"])
        optimizer.step()
        optimizer.zero_grad()
    accelerator.end_training()


def hugging_face(recorder):
    import transformers
    from sgdlab_record.hugging_face import RecorderCallback

    arguments = transformers.TrainingArguments(
        f"{DIRECTORY}-out", per_device_train_batch_size=4, num_train_epochs=1, report_to=[], save_strategy="no",
        use_cpu=True, ddp_backend="gloo", logging_strategy="no", disable_tqdm=True, average_tokens_across_devices=False,
    )  # fmt: skip
    trainer = transformers.Trainer(Model(), arguments, train_dataset=Data())
    trainer.add_callback(RecorderCallback(recorder, trainer))
    trainer.train()


def lightning(recorder):
    import lightning.pytorch as pl
    from sgdlab_record.lightning import RecorderCallback

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, _):
            return self.model(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    trainer = pl.Trainer(
        accelerator="cpu", devices=1, num_nodes=2, strategy="ddp", max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, callbacks=[RecorderCallback(recorder)],
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(Data(), batch_size=4))


recorder = sgdlab_record.Recorder(DIRECTORY, worker=RANK)
{"ddp": ddp, "accelerate": accelerate, "hugging_face": hugging_face, "lightning": lightning}[LOOP](recorder)
recorder.close()
print("done", recorder.number, recorder.errors)
