"""The TFDS builder of ImageNet, made to prepare it without TensorFlow from the two archives that a person gives."""

import io
import pathlib
import tarfile
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import tensorflow_datasets as tfds
from PIL import Image
from tensorflow_datasets.core import registered

FILES = {"train": "ILSVRC2012_img_train.tar", "validation": "ILSVRC2012_img_val.tar"}
"""Split -> archive."""

_QUALITY = 100


# TFDS's registry has the name already.
with registered.skip_registration():

    class Imagenet2012(tfds.core.GeneratorBasedBuilder):
        """ImageNet 2012 (ILSVRC 2012), 1,281,167 images to train on and 50,000 to validate on, of 1,000 classes.

        Version, features and keys are those of TFDS's builder of this name; the optional test split, which has no
        labels, is left out. JPEG bytes are stored as they come, but for the 22 images in CMYK and the one in PNG, which
        are encoded anew in RGB.
        """

        VERSION = tfds.core.Version("5.1.0")
        MANUAL_DOWNLOAD_INSTRUCTIONS = "manual_dir must hold ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar."
        SIZES: ClassVar[dict[str, int]] = {
            "ILSVRC2012_img_train.tar": 147_897_477_120,
            "ILSVRC2012_img_val.tar": 6_744_924_160,
        }

        def _info(self) -> tfds.core.DatasetInfo:
            names = tfds.core.tfds_path("datasets/imagenet2012/labels.txt")
            return tfds.core.DatasetInfo(
                builder=self,
                description=self.__doc__,
                homepage="https://image-net.org/",
                supervised_keys=("image", "label"),
                features=tfds.features.FeaturesDict(
                    {
                        "image": tfds.features.Image(encoding_format="jpeg"),
                        "label": tfds.features.ClassLabel(names_file=names),
                        "file_name": tfds.features.Text(),
                    }
                ),
            )

        def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator[Any]]:
            # Where a directory is missing, TFDS's own property raises several lines.
            folder = pathlib.Path(dl_manager.download_dir) / "manual"
            for name in FILES.values():
                path = folder / name
                if not path.exists():
                    raise FileNotFoundError(f"{path} is missing")
                if path.stat().st_size != self.SIZES[name]:
                    raise OSError(
                        f"{path} has {path.stat().st_size:,} bytes and not {self.SIZES[name]:,}: it is cut off or "
                        "another file"
                    )
            return {
                "train": self._generate_examples(folder / FILES["train"]),
                "validation": self._generate_examples(folder / FILES["validation"], _validation_labels()),
            }

        def _generate_examples(
            self, path: pathlib.Path, labels: list[str] | None = None
        ) -> Iterator[tuple[str, dict[str, Any]]]:
            """Of an archive of images whose labels are in the order of their names; else of one of archives."""
            with tarfile.open(path) as archive:
                if labels is not None:
                    known = dict(zip(sorted(archive.getnames()), labels, strict=True))
                    yield from _images(archive, known)
                    return
                for member in archive:
                    with tarfile.open(fileobj=archive.extractfile(member)) as inner:
                        label = pathlib.PurePosixPath(member.name).stem
                        yield from _images(inner, dict.fromkeys(inner.getnames(), label))


def _validation_labels() -> list[str]:
    path = tfds.core.tfds_path("datasets/imagenet2012/validation_labels.txt")
    return pathlib.Path(path).read_text(encoding="utf-8").split()


def _images(archive: tarfile.TarFile, labels: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for member in archive:
        # pyrefly: ignore[missing-attribute]  # a member is a file
        content = in_jpeg(archive.extractfile(member).read())
        yield member.name, {"image": content, "label": labels[member.name], "file_name": member.name}


def in_jpeg(content: bytes) -> bytes:
    """An encoded image as a JPEG file in RGB or shades of grey; where it is one already, it stays as it is."""
    with Image.open(io.BytesIO(content)) as image:
        if image.format == "JPEG" and image.mode in ("RGB", "L"):
            return content
        encoded = io.BytesIO()
        image.convert("RGB").save(encoded, "JPEG", quality=_QUALITY, subsampling=0)
    return encoded.getvalue()
