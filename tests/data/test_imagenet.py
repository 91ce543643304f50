"""ImageNet is prepared from its archives without TensorFlow, and decoded as it is needed."""

import io
import pathlib
import sys
import tarfile

import numpy as np
import pytest
import tensorflow_datasets
from PIL import Image

from sgdlab import data
from sgdlab.data import imagenet_builder, preparing, stream
from sgdlab.data.imagenet import decode, rectangle

SYNSETS = ["n01440764", "n01443537", "n01484850"]
NUMBER = 2  # of each class


def photograph(seed, size=(60, 40)):
    return Image.fromarray(
        np.random.default_rng(seed).integers(0, 256, (size[1] // 4, size[0] // 4, 3), np.uint8)
    ).resize(size)


def encoded(image, kind="JPEG"):
    content = io.BytesIO()
    image.save(content, kind)
    return content.getvalue()


def archive(files):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, inside in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(inside)
            tar.addfile(entry, io.BytesIO(inside))
    return content.getvalue()


def training_files():
    """Synset -> name -> bytes; one image is in CMYK and one in PNG, as some of ImageNet's are."""
    files = {
        synset: {f"{synset}_{i}.JPEG": encoded(photograph(10 * k + i, (60 + 4 * i, 44))) for i in range(NUMBER)}
        for k, synset in enumerate(SYNSETS)
    }
    files[SYNSETS[0]][f"{SYNSETS[0]}_0.JPEG"] = encoded(photograph(0).convert("CMYK"))
    files[SYNSETS[1]][f"{SYNSETS[1]}_1.JPEG"] = encoded(photograph(11), "PNG")
    return files


VALIDATION = {f"ILSVRC2012_val_0000000{i}.JPEG": encoded(photograph(100 + i)) for i in (3, 1, 2)}


@pytest.fixture(scope="module", name="directory")
def prepared(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tfds")
    manual = preparing.by_hand(directory)
    manual.mkdir(parents=True)
    inner = {f"{synset}.tar": archive(files) for synset, files in training_files().items()}
    contents = {"ILSVRC2012_img_train.tar": archive(inner), "ILSVRC2012_img_val.tar": archive(VALIDATION)}
    for name, content in contents.items():
        (manual / name).write_bytes(content)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(imagenet_builder.Imagenet2012, "SIZES", {name: len(all_) for name, all_ in contents.items()})
        patched.setattr(imagenet_builder, "_validation_labels", lambda: SYNSETS)
        data.imagenet(data_dir=str(directory))
    return directory


def test_holds_the_files_as_they_came(directory):
    found = data.imagenet(data_dir=str(directory))
    assert (len(found.train), len(found.test), found.num_classes) == (len(SYNSETS) * NUMBER, 3, 1000)
    labels = {name: index for index, synset in enumerate(SYNSETS) for name in training_files()[synset]}
    files = {name: content for some in training_files().values() for name, content in some.items()}
    for index, example in enumerate(found.train.source):
        name = example["file_name"].decode()
        assert example["label"] == labels[name] == found.train.labels[index]
        with Image.open(io.BytesIO(files[name])) as original:
            if original.format == "JPEG" and original.mode == "RGB":
                assert example["image"] == files.pop(name)
                continue
            np.testing.assert_allclose(
                np.asarray(Image.open(io.BytesIO(example["image"])), float), original.convert("RGB"), atol=12
            )
            files.pop(name)
    assert not files
    # Labels of the validation split are in the order of the names, not in that of the archive.
    expected = dict(zip(sorted(VALIDATION), range(3), strict=True))
    assert {
        example["file_name"].decode(): int(label)
        for example, label in zip(found.test.source, found.test.labels, strict=True)
    } == expected
    official = tensorflow_datasets.builder("imagenet2012", data_dir=directory, file_format="array_record")
    assert official.is_prepared()
    assert official.info.features["label"].int2str(2) == SYNSETS[2]
    assert "tensorflow" not in sys.modules


def test_streams_what_decode_gives(directory):
    found = data.imagenet(data_dir=str(directory), size=16, test_side=20, sides=(18, 30), crops="shortest_side")
    order = np.array([[0, 3], [5, 1], [2, 4]])
    with stream.batches(found.train, order, 7, [1, 2]) as read:
        batches = list(read)
    for k, (pixels, labels) in zip((1, 2), batches, strict=True):
        for place, example in enumerate(order[k]):
            seed = np.random.SeedSequence(7, spawn_key=(k, place))
            np.testing.assert_array_equal(pixels[place], found.train.decode(found.train.source[int(example)], seed))
            assert labels[place] == found.train.labels[example]
    with stream.batches(found.test, np.array([[0, 1, 2]]), None, [0]) as read:
        ((pixels, _),) = list(read)
    np.testing.assert_array_equal(pixels[1], found.test.decode(found.test.source[1], None))
    assert found.image_shape == pixels.shape[1:] == (16, 16, 3)


def test_labels_are_read_once(directory, monkeypatch):
    data.imagenet(data_dir=str(directory))
    read = sys.modules["sgdlab.data.imagenet"]
    read._splits.cache_clear()
    monkeypatch.setattr(read, "_labels", None)
    assert len(data.imagenet(data_dir=str(directory)).train) == len(SYNSETS) * NUMBER


@pytest.mark.parametrize("size", [(60, 40), (40, 60), (41, 41)])
def test_without_a_seed_the_centre_is_cut_out(size):
    image = photograph(1, size)
    scale = 32 / min(size)
    resized = image.resize(tuple(max(round(side * scale), 32) for side in size), Image.Resampling.BILINEAR)
    rows, columns = ((side - 24) // 2 for side in np.asarray(resized).shape[:2])
    expected = np.asarray(resized)[rows : rows + 24, columns : columns + 24]
    found = decode(size=24, test_side=32)({"image": encoded(image, "PNG")}, None)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("crops", ["area", "shortest_side"])
def test_random_crops_come_from_the_image_in_both_directions(crops):
    """Of an image whose columns rise, crops rise or, mirrored, fall, from within its range."""
    ramp = np.broadcast_to(np.arange(20, 100, dtype=np.uint8)[None, :, None], (60, 80, 3))
    example = {"image": encoded(Image.fromarray(ramp.copy()), "PNG")}
    cut = decode(crops, sides=(24, 48), size=20, test_side=24)
    found = np.stack([cut(example, np.random.SeedSequence(seed)) for seed in range(40)]).astype(int)
    assert found.min() >= 20
    assert found.max() < 100
    steps = np.diff(found[:, 10, :, 0], axis=1)
    rising, falling = (steps >= 0).all(1), (steps <= 0).all(1)
    assert (rising | falling).all()
    assert 8 <= rising.sum() <= 32
    assert len({image.tobytes() for image in found}) > 30
    again = cut(example, np.random.SeedSequence(3))
    np.testing.assert_array_equal(again, found[3])


def test_shares_and_ratios_of_rectangles():
    generator = np.random.default_rng(0)
    boxes = np.array([rectangle(640, 480, generator) for _ in range(2000)])
    widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert boxes.min() >= 0
    assert (boxes[:, 2] <= 640).all()
    assert (boxes[:, 3] <= 480).all()
    ratios, shares = widths / heights, widths * heights / (640 * 480)
    assert 0.74 < ratios.min() < 0.78
    assert 1.28 < ratios.max() < 1.35
    assert 0.078 < shares.min() < 0.1
    assert 0.9 < shares.max() <= 1
    # An image so narrow that no rectangle fits: the largest central one.
    assert rectangle(10, 1000, np.random.default_rng(0)) == (0, 493, 10, 506)


@pytest.mark.parametrize("state", ["missing", "one missing", "cut off"])
def test_archives_that_are_missing_or_cut_off(state, tmp_path, directory):
    manual = preparing.by_hand(tmp_path)
    named = pathlib.Path("ILSVRC2012_img_train.tar")
    if state != "missing":
        manual.mkdir(parents=True)
        source = preparing.by_hand(directory)
        for name in ("ILSVRC2012_img_val.tar", "ILSVRC2012_img_train.tar")[: 1 if state == "one missing" else 2]:
            (manual / name).write_bytes((source / name).read_bytes()[:-1])
    with pytest.raises(ValueError, match=rf"^data_dir={str(tmp_path)!r} must hold imagenet2012.*{named}") as caught:
        data.imagenet(data_dir=str(tmp_path))
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert ("cut off" in message) == (state == "cut off")
    assert str(manual) in message


def test_crops_by_area_are_of_any_size():
    """Inception's 299 pixels are more than the smallest side that only crops of the other kind use."""
    assert decode(crops="area", size=299, test_side=342).size == 299
