"""MNIST, CIFAR-10 and CIFAR-100 are prepared without TensorFlow from files in the original formats, or by hand."""

import functools
import gzip
import hashlib
import http.server
import io
import json
import pathlib
import sys
import tarfile
import threading
import urllib.error

import numpy as np
import pytest
import tensorflow_datasets
from tensorflow_datasets.core.download import checksums

from sgdlab import data
from sgdlab.data import original, original_builders, preparing
from sgdlab.errors import UsageError
from sgdlab.registry import DATASETS

NUMBERS = {"train": 20, "test": 7}
CLASSES = {"mnist": 10, "cifar10": 10, "cifar100": 100}
SHAPES = {"mnist": (28, 28, 1), "cifar10": (32, 32, 3), "cifar100": (32, 32, 3)}
BUILDERS = {
    "mnist": original_builders.MNIST,
    "cifar10": original_builders.Cifar10,
    "cifar100": original_builders.Cifar100,
}


def examples(name):
    """Split -> (uint8[n, H, W, C], labels int[n])."""
    generator = np.random.default_rng(len(name))
    return {
        split: (
            generator.integers(0, 256, (number, *SHAPES[name]), dtype=np.uint8),
            generator.integers(0, CLASSES[name], number, dtype=np.uint8),
        )
        for split, number in NUMBERS.items()
    }


def archive(files):
    """A compressed tar archive of name -> bytes."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as tar:
        for name, inside in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(inside)
            tar.addfile(entry, io.BytesIO(inside))
    return content.getvalue()


def rows(images, *labels):
    """CIFAR's binary rows: labels, then the pixels of each channel."""
    pixels = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([np.stack(labels, 1), pixels], 1).tobytes()


def mnist_files():
    files = {}
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images, labels = examples("mnist")[split]
        sizes = np.array([len(images), 28, 28], ">i4").tobytes()
        files[f"{prefix}-images-idx3-ubyte.gz"] = gzip.compress(bytes([0, 0, 8, 3]) + sizes + images.tobytes())
        files[f"{prefix}-labels-idx1-ubyte.gz"] = gzip.compress(bytes([0, 0, 8, 1]) + sizes[:4] + labels.tobytes())
    return files


def cifar10_files():
    (images, labels), test = examples("cifar10")["train"], examples("cifar10")["test"]
    folder = "cifar-10-batches-bin/"
    names = "airplane automobile bird cat deer dog frog horse ship truck"
    files = {f"{folder}batches.meta.txt": (names.replace(" ", "\n") + "\n\n").encode()}
    for part in range(5):
        files[f"{folder}data_batch_{part + 1}.bin"] = rows(
            images[4 * part : 4 * part + 4], labels[4 * part : 4 * part + 4]
        )
    return {"cifar-10-binary.tar.gz": archive(files | {f"{folder}test_batch.bin": rows(*test)})}


def cifar100_files():
    folder = "cifar-100-binary/"
    files = {
        f"{folder}coarse_label_names.txt": "".join(f"coarse{number}\n" for number in range(20)).encode(),
        f"{folder}fine_label_names.txt": "".join(f"fine{number}\n" for number in range(100)).encode(),
    }
    for split in NUMBERS:
        images, labels = examples("cifar100")[split]
        files[f"{folder}{split}.bin"] = rows(images, labels % 20, labels)
    return {"cifar-100-binary.tar.gz": archive(files)}


FILES = {"mnist": mnist_files, "cifar10": cifar10_files, "cifar100": cifar100_files}


@pytest.fixture(scope="module", name="served")
def server(tmp_path_factory):
    """Files in the original formats: their folder, and the address of a server of this machine."""
    folder = tmp_path_factory.mktemp("served")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    for files in FILES.values():
        for name, content in files().items():
            (folder / name).write_bytes(content)
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as answering:
        threading.Thread(target=answering.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{answering.server_port}/"
        answering.shutdown()


@pytest.fixture(autouse=True)
def from_here(served, monkeypatch):
    """The builders take the original files from this machine, with the checksums of those."""
    folder, address = served
    infos = {
        f"{address}{path.name}": checksums.UrlInfo(
            path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest(), path.name
        )
        for path in folder.iterdir()
    }
    for builder in BUILDERS.values():
        monkeypatch.setattr(builder, "url_infos", infos)
    monkeypatch.setattr(original_builders.MNIST, "URL", address)
    for builder in (original_builders.Cifar10, original_builders.Cifar100):
        official = builder.__mro__[2]._cifar_info.fget
        here = lambda self, known=official: known(self)._replace(url=address + pathlib.Path(known(self).url).name)
        monkeypatch.setattr(builder, "_cifar_info", property(here))
    monkeypatch.setattr(original_builders, "_SECONDS", 5.0)
    original._splits.cache_clear()


def flat(pixels, labels):
    return sorted((*image.ravel().tolist(), int(label)) for image, label in zip(pixels, labels, strict=True))


@pytest.mark.parametrize("name", CLASSES)
def test_official_checksums_are_those_of_tfds(name, monkeypatch):
    monkeypatch.undo()
    official = tensorflow_datasets.builder_cls(name)
    assert official is BUILDERS[name].__mro__[2]  # it is still the one that TFDS knows by this name
    ours = BUILDERS[name].url_infos
    assert ours == official.url_infos
    assert sorted(info.filename for info in ours.values()) == sorted(DATASETS[name].facts.by_hand)
    assert all(len(info.checksum) == 64 and info.size > 0 for info in ours.values())


@pytest.mark.parametrize("name", CLASSES)
def test_prepared_from_downloads_and_read_again_by_tfds(name, tmp_path):
    found = getattr(data, name)(data_dir=str(tmp_path))
    assert (found.image_shape, found.num_classes, found.levels) == (SHAPES[name], CLASSES[name], 256)
    official = tensorflow_datasets.builder(name, data_dir=tmp_path, file_format="array_record")
    assert official.is_prepared()
    for split, (images, labels) in examples(name).items():
        read = getattr(found, split)
        assert flat(read.pixels, read.labels) == flat(images, labels)
        # The order of the examples is TFDS's, whoever has prepared them.
        for image, label, example in zip(read.pixels, read.labels, official.as_data_source(split), strict=True):
            np.testing.assert_array_equal(image, example["image"])
            assert label == example["label"]
    assert "tensorflow" not in sys.modules


def test_arrays_beside_the_records_are_used_unless_they_are_damaged(tmp_path, monkeypatch):
    first = data.mnist(data_dir=str(tmp_path))
    reads = []
    read_split = preparing.read_split
    monkeypatch.setattr(preparing, "read_split", lambda *given, **named: reads.append(1) or read_split(*given, **named))
    for damage, expected in (("", 0), ("train_pixels", 1), ("test_labels", 1), ("", 0)):
        for file in tmp_path.rglob(f"{damage}.npy" if damage else "nothing"):
            file.write_bytes(file.read_bytes()[:-1])
        original._splits.cache_clear()
        reads.clear()
        again = data.mnist(data_dir=str(tmp_path))
        assert len(reads) == expected
        for split in NUMBERS:
            np.testing.assert_array_equal(getattr(again, split).pixels, getattr(first, split).pixels)
            np.testing.assert_array_equal(getattr(again, split).labels, getattr(first, split).labels)


def test_files_given_by_hand(tmp_path, served, monkeypatch):
    folder, _ = served
    monkeypatch.setattr(original_builders, "ask", None)  # nothing is asked for
    manual = preparing.by_hand(tmp_path)
    manual.mkdir(parents=True)
    name = "cifar-10-binary.tar.gz"
    (manual / name).write_bytes((folder / name).read_bytes())
    assert len(data.cifar10(data_dir=str(tmp_path)).train) == NUMBERS["train"]


@pytest.mark.parametrize("how", ["by hand", "downloaded"])
def test_a_wrong_or_cut_off_file_is_refused_by_name(how, tmp_path, served, monkeypatch):
    folder, _ = served
    name = "train-labels-idx1-ubyte.gz"
    whole = (folder / name).read_bytes()
    if how == "by hand":
        preparing.by_hand(tmp_path).mkdir(parents=True)
        (preparing.by_hand(tmp_path) / name).write_bytes(whole[:-1])
    else:
        (folder / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        with pytest.raises(
            UsageError, match=rf"^--config.data.mnist.data_dir={str(tmp_path)!r} must .* {name}"
        ) as caught:
            DATASETS.make("mnist", {"data_dir": str(tmp_path)})
    finally:
        (folder / name).write_bytes(whole)
    assert len(str(caught.value).splitlines()) == 1
    assert preparing.version("mnist", tmp_path) is None


@pytest.mark.parametrize("name", CLASSES)
def test_a_missing_set_names_its_files_and_where_they_go(name, tmp_path, monkeypatch):
    def refused(url):
        raise urllib.error.URLError(f"no route to {url}\nand more lines")

    monkeypatch.setattr(original_builders, "ask", refused)
    with pytest.raises(ValueError, match=rf"^data_dir={str(tmp_path)!r} must hold {name}") as caught:
        getattr(data, name)(data_dir=str(tmp_path))
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    for words in (*DATASETS[name].facts.by_hand, str(preparing.by_hand(tmp_path)), "no route to"):
        assert words in message


def test_another_version_and_another_format(tmp_path):
    data.mnist(data_dir=str(tmp_path))
    (path,) = (tmp_path / "mnist").iterdir()
    older = path.rename(path.with_name("2.9.0"))
    facts = json.loads((older / "dataset_info.json").read_text())
    (older / "dataset_info.json").write_text(json.dumps(facts | {"version": "2.9.0"}))
    original._splits.cache_clear()
    assert len(data.mnist(data_dir=str(tmp_path)).train) == NUMBERS["train"]
    (older / "dataset_info.json").write_text(json.dumps(facts | {"version": "2.9.0", "fileFormat": "tfrecord"}))
    for file in older.rglob("*.npy"):
        file.unlink()
    original._splits.cache_clear()
    with pytest.raises(ValueError, match=r"^data_dir=.* must hold mnist as array_record, but .*2.9.0 is of another"):
        data.mnist(data_dir=str(tmp_path))
    (older / "dataset_info.json").write_text("{")
    with pytest.raises(
        ValueError, match=r"^data_dir=.* must hold mnist as TFDS prepares it, but .*2.9.0 cannot be read"
    ):
        data.mnist(data_dir=str(tmp_path))
