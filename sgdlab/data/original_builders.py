"""TFDS's own builders of MNIST, CIFAR-10 and CIFAR-100, made to prepare their data without TensorFlow.

Their names, versions, features and checksums are TFDS's, so that what they prepare is read by TFDS's own classes, and
the other way round; only the reading of the original files is done here.
"""

import gzip
import pathlib
import tarfile
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from PIL import Image
from tensorflow_datasets.core import registered
from tensorflow_datasets.core.download import resource

_SECONDS = 20.0
_CIFAR_PIXELS = (3, 32, 32)


class Unreachable(Exception):
    """An original file is neither there nor can it be downloaded; the message is one line."""


def fetched(manager: tfds.download.DownloadManager, infos: dict[str, Any], urls: Sequence[str]) -> list[pathlib.Path]:
    """Original files: those given by hand, those downloaded before, or downloads; TFDS checks size and SHA-256.

    Args:
      manager: of the builder.
      infos: TFDS's `url_infos`, the official sizes and checksums.
      urls: where the files are from.

    Returns:
      Their paths.

    Raises:
      Unreachable: if a file is missing and its server does not answer within 20 seconds. TFDS would try for minutes.
    """
    folder = pathlib.Path(manager.download_dir)
    for url in urls:
        info = infos[url]
        downloaded = folder.rglob(resource.get_dl_fname(url, info.checksum))
        if (folder / "manual" / info.filename).exists() or any(downloaded):
            continue
        try:
            ask(url)
        except OSError as error:
            raise Unreachable(f"{url} cannot be downloaded: {error}") from error
    return [pathlib.Path(path) for path in manager.download(list(urls))]


def ask(url: str) -> None:
    """Asks a server for the header of a file.

    Raises:
      OSError: if it does not answer, or has no such file.
    """
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=_SECONDS):
        pass


def idx(path: pathlib.Path) -> np.ndarray:
    """An array of bytes in the IDX format, compressed by gzip: two zeros, type, number of dimensions, sizes, values."""
    with gzip.open(path) as file:
        content = file.read()
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


class _Idx:
    """Of `tfds.image_classification.MNIST`: the four files in the IDX format."""

    url_infos: Any
    URL: str

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator[Any]]:
        names = [
            f"{split}-{content}-ubyte.gz" for split in ("train", "t10k") for content in ("images-idx3", "labels-idx1")
        ]
        files = fetched(dl_manager, self.url_infos, [urllib.parse.urljoin(self.URL, name) for name in names])
        return {"train": self._generate_examples(*files[:2]), "test": self._generate_examples(*files[2:])}

    def _generate_examples(self, images: pathlib.Path, labels: pathlib.Path) -> Iterator[tuple[int, dict[str, Any]]]:
        for index, (image, label) in enumerate(zip(idx(images), idx(labels), strict=True)):
            # A PIL image: TFDS encodes arrays as PNG through TensorFlow only.
            yield index, {"image": Image.fromarray(image), "label": int(label)}


class _Cifar:
    """Of TFDS's CIFAR builders: the archive of the binary version, whose rows are labels and then pixels by channel."""

    _cifar_info: Any
    url_infos: Any
    info: Any

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator[Any]]:
        known = self._cifar_info
        (path,) = fetched(dl_manager, self.url_infos, [known.url])
        with tarfile.open(path) as archive:
            for key, name in zip(known.label_keys, known.label_files, strict=True):
                # pyrefly: ignore[missing-attribute]  # a member is a file
                names = archive.extractfile(known.prefix + name).read().decode().split()
                self.info.features[key].names = names
        return {
            "train": self._generate_examples("train_", path, known.train_files),
            "test": self._generate_examples("test_", path, known.test_files),
        }

    def _generate_examples(
        self, prefix: str, path: pathlib.Path, names: Sequence[str]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        known = self._cifar_info
        labels, index = len(known.label_keys), 0
        with tarfile.open(path) as archive:
            for name in names:
                # pyrefly: ignore[missing-attribute]  # a member is a file
                content = archive.extractfile(known.prefix + name).read()
                for row in np.frombuffer(content, np.uint8).reshape(-1, labels + np.prod(_CIFAR_PIXELS)):
                    pixels = row[labels:].reshape(_CIFAR_PIXELS).transpose(1, 2, 0)
                    found = dict(zip(known.label_keys, map(int, row[:labels]), strict=True))
                    yield index, found | {"id": f"{prefix}{index:05d}", "image": Image.fromarray(pixels)}
                    index += 1


# Imported here, since TFDS imports them at their first use, and would not register them within the block below.
_OFFICIAL: Any = tfds.image_classification.MNIST, tfds.image_classification.Cifar10, tfds.image_classification.Cifar100

# The names are TFDS's own, which its registry has already. A subclass has no checksums unless it is given them.
with registered.skip_registration():

    class MNIST(_Idx, _OFFICIAL[0]):
        """MNIST (LeCun, Cortes, Burges 1998)."""

        url_infos = _OFFICIAL[0].url_infos

    class Cifar10(_Cifar, _OFFICIAL[1]):
        """CIFAR-10 (Krizhevsky 2009)."""

        url_infos = _OFFICIAL[1].url_infos

    class Cifar100(_Cifar, _OFFICIAL[2]):
        """CIFAR-100 (Krizhevsky 2009)."""

        url_infos = _OFFICIAL[2].url_infos
