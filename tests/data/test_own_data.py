"""Custom data: the parts `npz` and `tfds` give what the arrays say, train whole runs, and refuse by name."""

import importlib
import os
import sys

import numpy as np
import pytest
import tensorflow_datasets
from absl import flags, logging
from absl.testing import flagsaver
from lib import tiny
from PIL import Image
from tensorflow_datasets.core.features import image_feature

from sgdlab import data
from sgdlab.data.reading import data_source, read_split
from sgdlab.errors import UsageError
from sgdlab.registry import DATASETS
from sgdlab.runs.plan import make_plan
from sgdlab.runs.train import train

CLASSES = 3
SIZES = [(6, 4, 3), (5, 7, 1), (4, 4, 2)]


def examples(shape, number, seed=0):
    """Images uint8[n, H, W, C] whose brightness tells the label, and labels int64[n]."""
    generator = np.random.default_rng(seed)
    labels = np.arange(number) % CLASSES
    noise = generator.integers(0, 40, size=(number, *shape))
    return (80 * labels[:, None, None, None] + noise).astype(np.uint8), labels


def arrays(shape=(6, 4, 3), **changed):
    (x_train, y_train), (x_test, y_test) = examples(shape, 96), examples(shape, 24, seed=1)
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test} | changed


@pytest.fixture(name="saved")
def saved_arrays(tmp_path):
    def save(**found):
        np.savez(tmp_path / "mine.npz", **found)
        return str(tmp_path / "mine.npz")

    return save


class Bands(tensorflow_datasets.core.GeneratorBasedBuilder):
    """Bright and dark images, not square, in colour."""

    VERSION = tensorflow_datasets.core.Version("1.0.0")
    KEYS = ("image", "label")

    def _info(self):
        image, label = self.KEYS
        return tensorflow_datasets.core.DatasetInfo(
            builder=self,
            supervised_keys=self.KEYS,
            features=tensorflow_datasets.features.FeaturesDict(
                {
                    image: tensorflow_datasets.features.Image(shape=(6, 4, 3), encoding_format="png"),
                    label: tensorflow_datasets.features.ClassLabel(num_classes=CLASSES),
                }
            ),
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(96, 0), "test": self._generate_examples(24, 1)}

    def _generate_examples(self, number, seed):
        images, labels = examples((6, 4, 3), number, seed)
        for index in range(number):
            yield index, dict(zip(self.KEYS, (Image.fromarray(images[index]), int(labels[index])), strict=True))


class NamedBands(Bands):
    """The same under other names."""

    KEYS = ("photo", "kind")


class Scalars(tensorflow_datasets.core.GeneratorBasedBuilder):
    """No images."""

    VERSION = tensorflow_datasets.core.Version("1.0.0")

    def _info(self):
        features = {"image": tensorflow_datasets.features.Scalar(np.int64)}
        return tensorflow_datasets.core.DatasetInfo(
            builder=self, features=tensorflow_datasets.features.FeaturesDict(features)
        )

    def _split_generators(self, dl_manager):
        return {"train": iter([(0, {"image": 0})])}

    def _generate_examples(self):
        raise NotImplementedError


class Unreachable(Bands):
    """Cannot be prepared here."""

    def _split_generators(self, dl_manager):
        raise ConnectionError("no route to host\nand more lines")


@pytest.fixture(scope="module", name="tfds_directory")
def prepared(tmp_path_factory):
    return str(tmp_path_factory.mktemp("tfds"))


class TestNpz:
    @pytest.mark.parametrize("shape", SIZES)
    def test_bytes_are_divided_by_255(self, saved, shape):
        given = arrays(shape)
        found = data.npz(path=saved(**given))
        for split in ("train", "test"):
            images = getattr(found, split)
            assert images.images.dtype == np.float32
            np.testing.assert_allclose(images.images * 255, given[f"x_{split}"], rtol=1e-6)
            np.testing.assert_array_equal(images.labels, given[f"y_{split}"])
        assert (found.image_shape, found.num_classes) == (shape, CLASSES)

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_floats_are_taken_as_they_are(self, saved, dtype):
        images = np.random.default_rng(0).normal(size=(96, 5, 7)).astype(dtype)
        found = data.npz(path=saved(**arrays((5, 7, 1), x_train=images)))
        np.testing.assert_array_equal(found.train.images, images.astype(np.float32)[..., None])

    def test_one_channel_may_be_left_out(self, saved):
        with_channel = data.npz(path=saved(**arrays((5, 7, 1))))
        given = arrays((5, 7, 1))
        without = {name: array[..., 0] if name.startswith("x") else array[:, None] for name, array in given.items()}
        found = data.npz(path=saved(**without))
        np.testing.assert_array_equal(found.train.images, with_channel.train.images)
        np.testing.assert_array_equal(found.test.labels, with_channel.test.labels)

    def test_classes_of_the_test_set_count(self, saved):
        given = arrays()
        assert data.npz(path=saved(**given | {"y_test": given["y_test"] + 4})).num_classes == CLASSES + 4

    def test_a_file_is_read_once_and_again_when_it_has_changed(self, saved):
        path = saved(**arrays())
        first = data.npz(path=path)
        assert data.npz(path=path) is first
        again = arrays()
        again["x_train"] = 255 - again["x_train"]
        saved(**again)
        os.utime(path, ns=(0, 1))
        np.testing.assert_allclose(data.npz(path=path).train.images, 1 - first.train.images, atol=1e-6)

    @pytest.mark.parametrize(
        ("changed", "match"),
        [
            ({"x_train": np.zeros([96, 6, 4, 3], np.int32)}, "x_train of dtype int32 must be uint8, or floating"),
            ({"x_train": np.zeros([96, 24], np.uint8)}, r"x_train of shape \(96, 24\) must be images"),
            ({"x_test": np.zeros([0, 6, 4, 3], np.uint8)}, r"x_test of shape \(0, 6, 4, 3\) .* at least one"),
            (
                {"x_train": np.full([96, 6, 4, 3], np.nan)},
                r"x_train\[0, 0, 0, 0\]=nan must be finite .*; 96 of 96",
            ),
            ({"x_test": np.diag(np.array([0, 1e300]))[None]}, r"x_test\[0, 1, 1\]=1e\+300 must be finite .*; 1 of 1"),
            ({"x_test": np.zeros([24, 4, 6, 3], np.uint8)}, r"\(24, 4, 6, 3\), must be of one size"),
            ({"y_train": np.zeros([95], int)}, "x_train has 96 images, y_train 95 labels"),
            ({"y_train": np.zeros([96])}, r"y_train of shape \(96,\) and dtype float64 must be integers"),
            ({"y_train": np.eye(96, dtype=int)}, r"y_train of shape \(96, 96\) .* must be integers \[n\]"),
            ({"y_test": np.full([24], -1)}, "y_test from -1 to -1 must be labels from 0"),
            ({"y_test": np.full([24], 2**40)}, f"y_test from {2**40} to {2**40} must be labels"),
            ({"x_train": np.array([None, {}])}, "Object arrays cannot be loaded"),
        ],
    )
    def test_arrays_that_do_not_fit(self, saved, changed, match):
        path = saved(**arrays(**changed))
        with pytest.raises(UsageError, match=f"(?s)^--config.data.npz.path={path!r} must be an .npz file.*{match}"):
            DATASETS.make("npz", {"path": path})

    def test_arrays_that_are_missing(self, saved):
        given = arrays()
        del given["y_train"], given["x_test"]
        with pytest.raises(ValueError, match=r"^path=.* y_train, x_test missing; it holds x_train, y_test"):
            data.npz(path=saved(**given))

    def test_files_that_are_none(self, tmp_path):
        with pytest.raises(ValueError, match=r"^path='' must be an .npz file .*: no file is named$"):
            data.npz()
        (tmp_path / "folder.npz").mkdir()
        (tmp_path / "text.npz").write_text("x_train")
        (tmp_path / "picture.npz").write_bytes(b"\x89PNG")
        np.save(tmp_path / "one.npy", np.zeros(3))
        (tmp_path / "empty.npz").touch()
        (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04cut off")
        kinds = {
            "nowhere.npz": "there is no such file",
            "folder.npz": "it is a directory",
            "text.npz": r"it is another kind of file \(text\)",
            "picture.npz": "it is another kind of file",
            "one.npy": "it holds a single array, as a file that ends in .npy",
            "empty.npz": "it is empty",
            "cut.npz": "its end is missing",
        }
        for name, what in kinds.items():
            path = str(tmp_path / name)
            with pytest.raises(ValueError, match=f"^path={path!r} must be an .npz file .*: {what}$"):
                data.npz(path=path)


class TestTfds:
    @pytest.mark.parametrize("name", ["bands", "bands:1.0.0", "named_bands"])
    def test_is_what_the_builder_generates(self, tfds_directory, name):
        found = data.tfds(name=name, data_dir=tfds_directory)
        for split, (number, seed) in {"train": (96, 0), "test": (24, 1)}.items():
            images, labels = examples((6, 4, 3), number, seed)
            pairs = zip(
                (255 * getattr(found, split).images).round().astype(int), getattr(found, split).labels, strict=True
            )
            expected = zip(images.astype(int), labels, strict=True)
            # TFDS shuffles examples when it prepares them.
            flat = lambda those: sorted((*image.ravel().tolist(), int(label)) for image, label in those)
            assert flat(pairs) == flat(expected)
        assert (found.image_shape, found.num_classes) == ((6, 4, 3), CLASSES)

    def test_splits_and_one_reading(self, tfds_directory):
        given = {"name": "bands", "data_dir": tfds_directory, "train": "train[:50%]", "test": "train[50%:]"}
        found = data.tfds(**given)
        assert (len(found.train), len(found.test)) == (48, 48)
        assert data.tfds(**given) is found

    @pytest.mark.parametrize(
        ("changed", "match"),
        [
            ({"name": ""}, "name='' must be the name of a TFDS builder"),
            ({"name": "no_such_builder"}, "name='no_such_builder' must be a TFDS builder"),
            ({"name": "bands:7.0.0"}, "name='bands:7.0.0' must be a TFDS builder"),
            ({"name": "scalars"}, "name='scalars' must have an image and a class label.* it has image: Scalar"),
            ({"train": "trian"}, "train='trian' must be a split of bands.* train, test"),
            ({"test": "test[:0]"}, "test='test\\[:0\\]' must"),
            ({"name": "unreachable"}, r"name='unreachable' is not prepared in .*ConnectionError: no route to host\)"),
        ],
    )
    def test_what_is_refused(self, tfds_directory, changed, match):
        with pytest.raises(UsageError, match=f"^--config.data.tfds.{match}") as caught:
            DATASETS.make("tfds", {"name": "bands", "data_dir": tfds_directory} | changed)
        assert len(str(caught.value).splitlines()) == 1

    def test_is_read_after_flags_were_restored(self, tfds_directory):
        """flagsaver deletes the flags that array_record defined inside of its block."""
        module = "array_record.python.array_record_data_source"
        importlib.import_module(module)
        for flag in flags.FLAGS.get_flags_for_module(module):
            delattr(flags.FLAGS, flag.name)
        with flagsaver.flagsaver():
            inside = data.tfds(name="bands", data_dir=tfds_directory, train="train[:20]")
            assert flags.FLAGS.get_flags_for_module(module)
        assert not flags.FLAGS.get_flags_for_module(module)
        after = data.tfds(name="bands", data_dir=tfds_directory, train="train[:30]")
        np.testing.assert_array_equal(after.train.images[:20], inside.train.images)
        assert len(after.train) == 30

    def test_reading_logs_nothing(self, tfds_directory, monkeypatch, caplog):
        given = {"name": "bands", "data_dir": tfds_directory}
        data.tfds(**given)  # preparing it may log
        monkeypatch.setattr(image_feature, "cv2", None)
        monkeypatch.setattr(logging, "_log_counter_per_token", {})  # of what TFDS logs once per process
        source = data_source(tensorflow_datasets.builder(**given, file_format="array_record"), "test")
        caplog.set_level("WARNING", logger="absl")
        caplog.clear()
        assert len(read_split(source)) == 24
        assert not caplog.records
        logging._log_counter_per_token.clear()
        source[0]  # not read by sgdlab: the same warning is logged
        assert [record.msg[:24] for record in caplog.records] == ["OpenCV is not installed."]

    def test_one_of_tfds_own_without_tensorflow(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sys.modules["sgdlab.data.tfds"], "find_spec", lambda name: None)
        with pytest.raises(ValueError, match=r"^name='mnist' is not prepared in .*TensorFlow is not installed"):
            data.tfds(name="mnist", data_dir=str(tmp_path))


def test_images_of_several_sizes_are_refused():
    sizes = [{"image": np.zeros((size, 4, 1), np.uint8), "label": 0} for size in (4, 5)]
    with pytest.raises(ValueError, match=r"\(4, 4, 1\) and \(5, 4, 1\) must be of one size"):
        read_split(sizes)
    with pytest.raises(ValueError, match="images of dtype uint16 must be uint8, or floating"):
        read_split([{"image": np.zeros((4, 4, 1), np.uint16), "label": 0}])


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("kind", "shape", "network"), [("npz", (6, 4, 3), "conv"), ("npz", (5, 7, 1), "mlp"), ("tfds", (6, 4, 3), "mlp")]
)
def test_whole_runs(kind, shape, network, saved, tfds_directory):
    entries = {"npz": {"path": saved(**arrays(shape))}, "tfds": {"name": "bands", "data_dir": tfds_directory}}[kind]
    config = tiny.config(
        data__kind=kind, network__kind=network, network__conv__channels=(4, 8), batch_size=8, epochs=12.0,
        **{f"data__{kind}__{name}": value for name, value in entries.items()},
    )  # fmt: skip
    plan = make_plan(config)
    assert plan.experiment.data.dataset.image_shape == shape
    run = train(plan)
    assert run.records[-1]["gradients"] == 12 * 96 // 8
    chance = 1 / CLASSES
    assert run.records[-1]["test_accuracy"] > 2 * chance  # the brightness tells the label
