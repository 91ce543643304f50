"""Streamed batches depend on (seed, number, place) alone, whoever decodes them; nothing stays behind."""

import pathlib
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import psutil
import pytest
from absl import flags

from sgdlab import data
from sgdlab.data import stream
from sgdlab.errors import UsageError

NUMBER, SHAPE = 30, (5, 4, 3)
ORDER = np.random.default_rng(0).integers(0, NUMBER, (12, 4), dtype=np.int32)


def images():
    generator = np.random.default_rng(1)
    return data.Images(
        generator.integers(0, 256, (NUMBER, *SHAPE), dtype=np.uint8),
        generator.integers(0, 5, NUMBER, dtype=np.int32),
    )


def with_noise(example, seed):
    if seed is None:
        return example
    return example ^ np.random.default_rng(seed).integers(0, 256, SHAPE, dtype=np.uint8)


def refusing(example, seed):
    if (example == images().pixels[ORDER[5, 2]]).all():
        raise OSError("cut off")
    return example


def slow(example, seed):
    time.sleep(0.02)
    return example


def streamed(decode=with_noise):
    found = images()
    return stream.StreamedImages(found.pixels, found.labels, decode, SHAPE)


def read(begin, end, *, seed=3, workers=0, split=None):
    with stream.batches(split or streamed(), ORDER, seed, range(begin, end), workers=workers) as found:
        return list(found)


def naive(seed):
    """Batch by batch and image by image."""
    held = images()
    found = []
    for k, batch in enumerate(ORDER):
        seeds = [None if seed is None else np.random.SeedSequence(seed, spawn_key=(k, b)) for b in range(len(batch))]
        pixels = [with_noise(held.pixels[example], one) for example, one in zip(batch, seeds, strict=True)]
        found.append((np.stack(pixels), held.labels[batch]))
    return found


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
        assert (one[0].dtype, one[1].dtype) == (np.uint8, np.int32)


def of_grain():
    """Threads that read ahead, once those have ended that are about to."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        found = [thread for thread in threading.enumerate() if "grain" in thread.name]
        if not found:
            return []
        time.sleep(0.01)
    return found


def decoding(parent=None):
    """Processes of Python's multiprocessing, but for its resource tracker."""
    children = psutil.Process(parent).children(recursive=True)
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


@pytest.mark.parametrize("seed", [3, 4, None])
def test_any_part_of_the_order_is_what_one_by_one_gives(seed):
    expected = naive(seed)
    for begin, end in ((0, 12), (5, 9), (11, 12), (4, 4)):
        assert_same(read(begin, end, seed=seed), expected[begin:end])


def test_seeds_numbers_and_places_differ():
    split = stream.StreamedImages(np.zeros((NUMBER, *SHAPE), np.uint8), images().labels, with_noise, SHAPE)
    found = [read(0, 12, seed=seed, split=split) for seed in (0, 1)]
    drawn = {image.tobytes() for batches in found for pixels, _ in batches for image in pixels}
    assert len(drawn) == 2 * ORDER.size


@pytest.mark.full
@pytest.mark.long("starts readers in processes of their own")
def test_processes_give_the_same_and_end():
    assert_same(read(3, 12, workers=2), naive(3)[3:])
    assert not decoding()
    assert not of_grain()


FOREVER = """
import sys, time
sys.path.insert(0, {folder!r})
import test_stream
from sgdlab.data import stream

if __name__ == "__main__":
    found = stream.batches(test_stream.streamed(), test_stream.ORDER, 0, range(12), workers=1)
    next(found)
    print("decoding", flush=True)
    time.sleep(100)
"""


def test_processes_end_where_their_parent_is_killed(tmp_path):
    script = tmp_path / "forever.py"
    script.write_text(FOREVER.format(folder=str(pathlib.Path(__file__).parent)))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout.readline() == b"decoding\n"
        children = decoding(parent.pid)
        parent.kill()
    assert len(children) == 1
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive


def test_images_in_memory_are_streamed_as_they_are():
    held = images()
    for split in (held, stream.streamed(held)):
        for (pixels, labels), batch in zip(read(2, 12, split=split), ORDER[2:], strict=True):
            np.testing.assert_array_equal(pixels, held.pixels[batch])
            np.testing.assert_array_equal(labels, held.labels[batch])
    shades = data.Images(held.pixels % 17, held.labels, white=16)
    assert stream.streamed(shades).white == 16


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_come_out_where_the_batch_would_have_been(workers):
    found = stream.batches(streamed(refusing), ORDER, 0, range(12), workers=workers)
    seen = []
    with pytest.raises(ValueError, match=rf"^example {ORDER[5, 2]} cannot be decoded: OSError: cut off"):
        seen.extend(found)
    first = next(k for k, batch in enumerate(ORDER) if ORDER[5, 2] in batch)
    assert len(seen) == first
    assert list(found) == []
    assert not of_grain()
    assert not decoding()


@pytest.mark.parametrize("how", ["before", "in the middle", "twice", "by with"])
def test_closing_leaves_no_thread(how):
    found = stream.batches(streamed(slow), ORDER, 0, range(12))
    if how != "before":
        next(found)
    if how == "by with":
        with found:
            pass
    found.close()
    if how == "twice":
        found.close()
    assert [thread for thread in threading.enumerate() if "grain" in thread.name] == []
    assert list(found) == []


def test_reads_ahead():
    """The consumer's time is not added to that of decoding."""
    seen = []

    def counted(example, seed):
        seen.append(1)
        return example

    with stream.batches(streamed(counted), ORDER, 0, range(12)) as found:
        next(found)
        until = time.monotonic() + 5
        while len(seen) < 3 * ORDER.shape[1] and time.monotonic() < until:
            time.sleep(0.01)
        assert len(seen) >= 3 * ORDER.shape[1]


def test_reads_after_flags_were_forgotten():
    """Grain defines flags when it is imported, which `launch.answer` deletes if that was within its block."""
    read(0, 1)
    for flag in flags.FLAGS.get_flags_for_module("grain._src.core.config"):
        delattr(flags.FLAGS, flag.name)
    assert_same(read(0, 2), naive(3)[:2])


def test_without_grain(monkeypatch):
    monkeypatch.setitem(sys.modules, "grain", None)
    with pytest.raises(UsageError, match=r"need Grain, which is not installed: pip install 'sgdlab\[stream\]'"):
        read(0, 1)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"order": ORDER[0]}, r"order of shape \(4,\) and dtype int32 must be integers"),
        ({"order": ORDER + NUMBER}, rf"order from {ORDER.min() + NUMBER} to .* must be examples from 0 to 29"),
        ({"seed": -1}, "seed=-1 must be"),
        ({"which": [0, 30]}, r"which=\[ 0 30\] must be ascending numbers of batches, from 0 to 11"),
        ({"which": [-1, 2]}, r"which=\[-1  2\] must be"),
        ({"which": [2, 1]}, r"which=\[2 1\] must be"),
        ({"workers": 0.5}, "workers=0.5 must be"),
    ],
)
def test_impossible_arguments(given, match):
    known = {"split": streamed(), "order": ORDER, "seed": 0, "which": range(12), "workers": 0} | given
    workers = known.pop("workers")
    with pytest.raises(ValueError, match=f"^{match}"):
        stream.batches(*known.values(), workers=workers)


def test_a_split_that_contradicts_itself():
    held = images()
    with pytest.raises(ValueError, match=r"labels of shape \(3,\) must be labels \[n\] of n = 30"):
        stream.StreamedImages(held.pixels, held.labels[:3], with_noise, SHAPE)
    split = stream.StreamedImages(held.pixels, held.labels, with_noise, (4, 5, 3))
    with pytest.raises(ValueError, match=r"was decoded to shape \(5, 4, 3\), and not to \(4, 5, 3\)"):
        read(0, 1, split=split)


def test_is_a_data_set_with_the_same_inputs():
    held = images()
    preprocess = data.Preprocess(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    both = [data.Dataset(split, split, 5, preprocess) for split in (held, stream.streamed(held))]
    assert both[0].image_shape == both[1].image_shape == SHAPE
    assert both[0].levels == both[1].levels == 256
    inputs = jax.jit(lambda pixels: preprocess.train(pixels, 255, None))
    for (pixels, _), batch in zip(read(0, 12, split=both[1].train), ORDER, strict=True):
        np.testing.assert_array_equal(inputs(pixels), inputs(held.pixels[batch]))
