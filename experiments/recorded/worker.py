"""A worker of a recorded job: it trains a perceptron on images of digits, step by step with the others.

It is started as `python -m experiments.recorded.worker '{"rank": 0, ...}'`, with the arguments of `run`.
"""

import json
import os
import pathlib
import socket
import sys
import time
import zlib

import numpy as np

from experiments.recorded.episodes import DISK, GRADIENT, LINK, LOADER, Episode

BATCH, PIXELS, HIDDEN, CLASSES = 512, 64, 512, 10
SHAPES = ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
SIZES = [int(np.prod(shape)) for shape in SHAPES]
MESSAGE = sum(SIZES) + 1
"""Numbers of a message: the parameters' gradient, or its mean, and the loss."""

WARM_UP = 10
"""Steps before those that are kept: the first ones import, and fill caches."""

_BATCHES, _RATE, _MOMENTUM, _NOISE = 16, 0.02, 0.9, 0.3
_CHUNK, _FILL = 4096, os.urandom(1 << 18)


def store(folder: pathlib.Path, rows: np.ndarray, draw: np.random.Generator) -> None:
    """Leave batches, drawn from uint8[n, pixels + 1] with the label at the end of a row, compressed in a folder."""
    folder.mkdir(parents=True)
    for number in range(_BATCHES):
        batch = rows[draw.integers(len(rows), size=BATCH)]
        (folder / f"{number:02}.z").write_bytes(zlib.compress(batch.tobytes()))


def decoded(path: pathlib.Path, noise: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Read a batch: float32[B, pixels] with noise, and int[B]."""
    rows = np.frombuffer(zlib.decompress(path.read_bytes()), np.uint8).reshape(-1, PIXELS + 1)
    pixels = rows[:, :-1].astype(np.float32) / 16
    return pixels + _NOISE * noise.standard_normal(pixels.shape, np.float32), rows[:, -1].astype(int)


def gradient(parameters: np.ndarray, pixels: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the gradient of the mean cross-entropy of a perceptron with tanh, and behind it the cross-entropy."""
    vectors = np.split(parameters, np.cumsum(SIZES)[:-1])
    first, first_bias, second, second_bias = (v.reshape(shape) for v, shape in zip(vectors, SHAPES, strict=True))
    hidden = np.tanh(pixels @ first + first_bias)
    logits = hidden @ second + second_bias
    logits -= logits.max(axis=1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    each = np.arange(len(labels)), labels
    wrong = np.exp(logs)
    wrong[each] -= 1
    wrong /= len(labels)
    back = (wrong @ second.T) * (1 - hidden * hidden)
    parts = (pixels.T @ back, back.sum(axis=0), hidden.T @ wrong, wrong.sum(axis=0), -logs[each].mean(keepdims=True))
    return np.concatenate([part.ravel() for part in parts])


def initial(seed: int) -> np.ndarray:
    """Draw the parameters before the first step, float32."""
    draw = np.random.default_rng(seed)
    return np.concatenate([draw.standard_normal(s).ravel() / np.sqrt(s[0]) for s in SHAPES]).astype(np.float32)


def run(
    *, rank: int, address: tuple[str, int], shard: str, trace: str, steps: int, seed: int, episode: Episode, paced: bool
) -> None:
    """Train with the others, and record each phase of each step.

    Args:
      rank: number of the worker.
      address: of the hub.
      shard: folder of its batches, as `store` leaves them.
      trace: folder of what is recorded.
      steps: that are kept; `WARM_UP` come before them.
      seed: of the parameters and of the noise.
      episode: what is done.
      paced: whether a limited link is limited here.
    """
    import sgdlab_record  # noqa: PLC0415 (it is in record/ of the checkout, which only workers have on their path)

    batches = sorted(pathlib.Path(shard).glob("*.z"))
    parameters, noise = initial(seed), np.random.default_rng([seed, rank])
    velocity, mean = np.zeros_like(parameters), np.zeros(MESSAGE, np.float32)
    recorder = sgdlab_record.Recorder(trace, rank, node="host")
    with recorder, socket.create_connection(address, timeout=60) as channel:
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel.sendall(bytes([rank]))
        for step in range(-WARM_UP, steps):
            with recorder.phase("data"):
                path = batches[step % len(batches)]
                for _ in range(episode.strength_of(DISK, rank, step)):
                    _read_from_disk(path)
                for _ in range(max(episode.strength_of(LOADER, rank, step), 1)):
                    pixels, labels = decoded(path, noise)
            with recorder.phase("gradient"):
                message = gradient(parameters, pixels, labels)
                if more := BATCH * episode.strength_of(GRADIENT, rank, step) // 100:  # which nobody uses
                    rows = np.arange(more) % BATCH
                    gradient(parameters, pixels[rows], labels[rows])
            with recorder.phase("upload"):
                _send(channel, memoryview(message).cast("B"), episode.strength_of(LINK, rank, step) if paced else 0)
                receive(channel, memoryview(bytearray(1)))  # the hub has it all
            with recorder.phase("receive"):
                receive(channel, memoryview(mean).cast("B"))
            with recorder.phase("update"):
                velocity *= _MOMENTUM
                velocity += mean[:-1]
                parameters -= _RATE * velocity
            recorder.step()


def receive(channel: socket.socket, whole: memoryview) -> None:
    """Fill a buffer from a socket; ConnectionError if the other end closes it."""
    while whole:
        count = channel.recv_into(whole)
        if not count:
            raise ConnectionError("the other end is gone")
        whole = whole[count:]


def _send(channel: socket.socket, whole: memoryview, mbits: int) -> None:
    """Send a message, with pauses that make this rate of it, if it is not 0."""
    begin = time.perf_counter()
    for first in range(0, len(whole), _CHUNK if mbits else len(whole)):
        part = whole[first : first + _CHUNK] if mbits else whole
        channel.sendall(part)
        if mbits:
            time.sleep(max(begin + 8e-6 * (first + len(part)) / mbits - time.perf_counter(), 0.0))


def _read_from_disk(path: pathlib.Path) -> None:
    """Write beside a batch until it is on the disk, drop the batch from memory, and read it from the disk again."""
    with path.with_suffix(".fill").open("wb") as file:
        file.write(_FILL)
        os.fsync(file.fileno())
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        file.read()


if __name__ == "__main__":
    fields = json.loads(sys.argv[1])
    run(**{**fields, "episode": Episode(*fields["episode"])})
