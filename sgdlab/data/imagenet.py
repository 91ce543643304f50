"""The part `imagenet`: ImageNet 2012, prepared from the archives that a person gives, and streamed."""

import dataclasses
import functools
import io
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sgdlab import arguments
from sgdlab.data import preparing
from sgdlab.data.family import DATASETS
from sgdlab.data.preprocess import Preprocess
from sgdlab.data.source import Dataset, StreamedImages

if TYPE_CHECKING:
    from PIL import Image

CROPS = ("area", "shortest_side")
_STATISTICS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_FILES = ("ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar")
_TRIES = 10
_BLOCK = 1024


@dataclasses.dataclass(frozen=True)
class decode:  # noqa: N801 (used as a function is)
    """Decodes a JPEG file and cuts a square out of it: `(example, seed) -> uint8[size, size, 3]`.

    To train on, `area` cuts out a rectangle of 8 to 100 % of the area and of an aspect ratio from 3/4 to 4/3, both
    random (Szegedy et al. 2015), and resizes it; `shortest_side` resizes the image until its shortest side is a random
    whole number between two bounds, and cuts out a random square (Simonyan and Zisserman 2015; Jin et al. 2016). Both
    mirror with probability 1/2. Without a seed, the shortest side becomes `test_side`, and the centre is cut out.

    Attributes:
      crops: "area" or "shortest_side".
      sides: the bounds of the shortest side, pixels.
      size: height and width of what is cut out, pixels.
      test_side: the shortest side of images to evaluate on, pixels.

    Raises:
      ValueError: if an attribute is out of its range.

    Example:
      >>> file = io.BytesIO()
      >>> from PIL import Image
      >>> Image.new("RGB", (50, 40)).save(file, "JPEG")
      >>> decode(size=24, test_side=32)({"image": file.getvalue()}, np.random.SeedSequence(0)).shape
      (24, 24, 3)
    """

    crops: str = "area"
    sides: tuple[int, int] = (256, 480)
    size: int = 224
    test_side: int = 256

    def __post_init__(self) -> None:
        arguments.one_of("crops", self.crops, CROPS)
        arguments.whole("size", self.size)
        arguments.whole("test_side", self.test_side, least=self.size)
        scaled = self.crops == "shortest_side"  # the only one that uses sides
        if scaled and (len(self.sides) != 2 or not self.size <= self.sides[0] <= self.sides[1]):
            raise ValueError(f"sides={self.sides!r} must be two rising whole numbers of at least size={self.size}")

    def __call__(self, example: Mapping[str, Any], seed: np.random.SeedSequence | None) -> np.ndarray:
        """Decodes one example, of whose features only `image`, JPEG bytes, is used."""
        # Not at the top: the part is registered in every process.
        from PIL import Image  # noqa: PLC0415

        image = Image.open(io.BytesIO(example["image"])).convert("RGB")
        if seed is None:
            image = _resized(image, self.test_side)
            left, top = ((side - self.size) // 2 for side in image.size)
            return np.asarray(image.crop((left, top, left + self.size, top + self.size)))
        generator = np.random.default_rng(seed)
        if self.crops == "area":
            box = rectangle(*image.size, generator)
            image = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)
        else:
            image = _resized(image, int(generator.integers(self.sides[0], self.sides[1] + 1)))
            left, top = (int(generator.integers(side - self.size + 1)) for side in image.size)
            image = image.crop((left, top, left + self.size, top + self.size))
        pixels = np.asarray(image)
        return np.ascontiguousarray(pixels[:, ::-1]) if generator.random() < 0.5 else pixels


def rectangle(width: int, height: int, generator: np.random.Generator) -> tuple[int, int, int, int]:
    """A random rectangle within an image: left, top, right and bottom, pixels.

    Its area is uniform between 8 and 100 % of the image's, the logarithm of its aspect ratio uniform between those of
    3/4 and 4/3. Where ten of them do not fit, it is the largest central one whose aspect ratio is in these bounds.

    Source: Szegedy et al. 2015 (Going deeper with convolutions), section 6.

    Example:
      >>> left, top, right, bottom = rectangle(50, 40, np.random.default_rng(0))
      >>> 0 <= left < right <= 50 and 0 <= top < bottom <= 40
      True
    """
    low, high = 3 / 4, 4 / 3
    for _ in range(_TRIES):
        area = generator.uniform(0.08, 1) * width * height
        aspect = math.exp(generator.uniform(math.log(low), math.log(high)))
        columns, rows = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < columns <= width and 0 < rows <= height:
            left, top = int(generator.integers(width - columns + 1)), int(generator.integers(height - rows + 1))
            return left, top, left + columns, top + rows
    columns, rows = min(width, max(round(height * high), 1)), min(height, max(round(width / low), 1))
    left, top = (width - columns) // 2, (height - rows) // 2
    return left, top, left + columns, top + rows


@DATASETS.register(
    title="ImageNet 2012",
    source="Russakovsky et al. 2015",
    tfds="imagenet2012",
    by_hand=_FILES,
    where="https://image-net.org/download-images, after registration",
)
def imagenet(
    *,
    data_dir: str | None = None,
    crops: str = "area",
    sides: tuple[int, int] = (256, 480),
    size: int = 224,
    test_side: int = 256,
    colour_noise: float = 0.0,
) -> Dataset:
    """ImageNet 2012: 1,281,167 images to train on, 50,000 (the validation split) to test on, 1,000 classes; streamed.

    A copy that TFDS has prepared is read; else it is prepared from the two archives, 145 GB, which are given by hand.
    Preparing takes hours and as much disk again, twice that while it lasts. The labels of all examples are read once
    and saved beside the records. Every channel is normalised.

    Args:
      data_dir: TFDS directory; None is TFDS_DATA_DIR, or ~/tensorflow_datasets.
      crops: area: random parts of 8 to 100 % of the image, resized; shortest_side: random scales, random crops.
      sides: smallest and largest shortest side, pixels; used by shortest_side.
      size: height and width of inputs, pixels.
      test_side: shortest side of test images, whose centre is used, pixels.
      colour_noise: standard deviation of the noise along the principal components of colours; 0.1 is usual.

    Returns:
      The `Dataset` of `StreamedImages`.

    Raises:
      ValueError: if an argument is out of its range, or it is missing and cannot be prepared; the message begins with
        the argument.
    """
    decoder = decode(crops, tuple(sides), size, test_side)
    augmentation = None
    if arguments.real("colour_noise", colour_noise, least=0) > 0:
        # Not at the top: it needs JAX, and the part is registered in every process.
        from sgdlab.data import augment  # noqa: PLC0415

        augmentation = augment.colour_noise(colour_noise)
    train, test, num_classes = _splits(str(preparing.directory(data_dir)))
    shape = (size, size, 3)
    return Dataset(
        StreamedImages(*train, decoder, shape),
        StreamedImages(*test, decoder, shape),
        num_classes,
        Preprocess(*_STATISTICS, augmentation),
    )


@functools.lru_cache(maxsize=2)
def _splits(data_dir: str) -> tuple:
    import tensorflow_datasets as library  # noqa: PLC0415 (it takes seconds)

    facts = DATASETS["imagenet"].facts
    builder = preparing.prepared(facts, data_dir, "sgdlab.data.imagenet_builder:Imagenet2012")
    splits = []
    for split in ("train", "validation"):
        source = preparing.source(builder, split, decoders={"image": library.decode.SkipDecoding()})
        labels = preparing.load_array(builder, f"{split}_labels")
        if labels is None or len(labels) != len(source):
            labels = _labels(source)
            preparing.save_array(builder, f"{split}_labels", labels)
        splits.append((source, labels))
    return *splits, builder.info.features["label"].num_classes


def _labels(source: Any) -> np.ndarray:
    labels = np.empty(len(source), np.int32)
    for begin in range(0, len(source), _BLOCK):
        block = range(begin, min(begin + _BLOCK, len(source)))
        labels[begin : block.stop] = [example["label"] for example in source.__getitems__(list(block))]
    return labels


def _resized(image: "Image.Image", shortest: int) -> "Image.Image":
    """Its shortest side becomes as long as is wanted; the aspect ratio stays."""
    scale = shortest / min(image.size)
    width, height = (max(round(side * scale), shortest) for side in image.size)
    from PIL import Image  # noqa: PLC0415 (as above)

    return image.resize((width, height), Image.Resampling.BILINEAR)
