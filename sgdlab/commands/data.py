"""Lists the data sets, or prepares one and describes it. Nothing is trained.

    sgdlab data
    sgdlab data cifar10 --data_dir=/data/tfds

Without a name, one line says of each data set whether it is prepared. With one, the data set is read, and prepared
first where need be: from files that are downloaded or, where a licence asks for it, given by hand.
"""

import pathlib
from collections.abc import Iterator, Sequence

from absl import flags

from sgdlab import data
from sgdlab.commands import launch
from sgdlab.data import preparing
from sgdlab.data.family import DATASETS
from sgdlab.data.stream import StreamedImages
from sgdlab.errors import UsageError
from sgdlab.registry import Part

_UNITS = ("bytes", "kB", "MB", "GB", "TB")


def define_flags() -> None:
    """Defines the flags of this command; an argument that is no flag is the name of a data set."""
    flags.DEFINE_string(
        "name", None, "The data set to prepare; it may be given without the flag, as in `sgdlab data mnist`."
    )
    flags.DEFINE_string("data_dir", None, "TFDS directory (default: TFDS_DATA_DIR, or ~/tensorflow_datasets).")


def main(argv: Sequence[str]) -> None:
    """Lists the data sets, or prepares one and describes it."""
    given = flags.FLAGS
    alone = argv[1] if len(argv) > 1 else None
    if alone and given.name is not None:
        raise UsageError(f"--name={given.name} must be left out beside {alone!r}: one data set at a time")
    name = alone or given.name
    if name is None:
        for line in listed(given.data_dir):
            print(line)
        return
    part = DATASETS.check(name, repr(name) if alone else f"--name={name}")
    for line in described(part, given.data_dir):
        print(line, flush=True)


def listed(data_dir: str | None) -> Iterator[str]:
    """One line for each data set: its name, its title, and whether it is prepared."""
    width = max(map(len, DATASETS))
    titles = max(len(part.title) for part in DATASETS.values())
    for name, part in DATASETS.items():
        yield f"{name:<{width}}  {part.title:<{titles}}  {_state(part, data_dir)}"


def described(part: Part, data_dir: str | None) -> Iterator[str]:
    """Reads a data set, which prepares it where need be, and yields lines on what it holds.

    Raises:
      UsageError: if it is missing and cannot be prepared, or it needs entries of the configuration.
    """
    needed = _entry(part)
    if needed:
        raise UsageError(
            f"{part.name} needs an entry of the configuration, and is prepared by what uses it: sgdlab train "
            f"--config.data.kind={part.name} --config.data.{part.name}.{needed}=..."
        )
    chosen = {"data_dir": data_dir} if data_dir is not None and "data_dir" in part.defaults else {}
    try:
        found = DATASETS.make(part.name, chosen)
    except UsageError as error:
        flag = f"--config.data.{part.name}.data_dir"
        message = str(error)
        raise UsageError(f"--data_dir{message.removeprefix(flag)}" if message.startswith(flag) else message) from error
    yield f"{part.name}: {part.title}" + (f" ({part.source})" if part.source else "")
    for split in ("train", "test"):
        examples = getattr(found, split)
        words = _of_text(examples) if isinstance(found, data.Text) else _of_images(examples)
        yield f"  {split:<6} {words}"
    if isinstance(found, data.Text):
        yield f"  vocabulary of {found.vocabulary:,}"
        yield from (f"  {name}: {value}" for name, value in found.facts.items())
    else:
        yield f"  {found.num_classes:,} classes"
    path = preparing.version(part.facts.tfds, data_dir) if part.facts.tfds else None
    if path:
        yield f"  on disk: {_size(_bytes_on_disk(path))} in {path}"


def _entry(part: Part) -> str | None:
    """The entry without which a data set is none: a file or a custom builder."""
    return next((name for name in (*part.facts.files, "name") if part.defaults.get(name) == ""), None)


def _state(part: Part, data_dir: str | None) -> str:
    if _entry(part):
        return f"a custom one: sgdlab train --config.data.kind={part.name} --config.data.{part.name}.{_entry(part)}=..."
    if not part.facts.tfds:
        return "needs no files"
    path = preparing.version(part.facts.tfds, data_dir)
    if path:
        return f"prepared: {_size(_bytes_on_disk(path))} in {path}"
    files = ", ".join(part.facts.by_hand)
    how = f"downloaded by `sgdlab data {part.name}`, or" if part.facts.downloaded else "needs"
    return f"not prepared: {how} {files} ({part.facts.where}) in {preparing.by_hand(data_dir)}"


def _of_images(images: data.Images | StreamedImages) -> str:
    shape = "x".join(map(str, images.image_shape))
    if isinstance(images, StreamedImages):
        return f"{len(images):,} images, decoded to {shape} when they are needed"
    return f"{len(images):,} images of {shape}, {images.pixels.dtype}, {_size(images.pixels.nbytes)} in memory"


def _of_text(tokens: data.Tokens) -> str:
    return f"{len(tokens.tokens):,} tokens, {len(tokens):,} segments of {tokens.segment}, {_size(tokens.tokens.nbytes)}"


def _bytes_on_disk(folder: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _size(number: int) -> str:
    """A number of bytes with its unit.

    Example:
      >>> _size(999), _size(153_600_000)
      ('999 bytes', '153.6 MB')
    """
    power = min(max(len(str(number)) - 1, 0) // 3, len(_UNITS) - 1)
    return f"{number} {_UNITS[0]}" if power == 0 else f"{number / 1000**power:.1f} {_UNITS[power]}"


COMMAND = launch.Command(
    main=main, usage=__doc__, define=define_flags, configured=False, positional=True, hidden=("workdir",)
)
