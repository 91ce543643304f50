"""A configuration's data: what it trains and tests on, how many gradients that makes, and what a network is given."""

import math
from typing import Any

from ml_collections import ConfigDict

from sgdlab.data import Dataset, Text, streams_of
from sgdlab.errors import UsageError, said_of
from sgdlab.jobs.run_times import mean_steps, num_workers
from sgdlab.registry import DATASETS, NETWORKS
from sgdlab.tasks.kinds import kind_of

AnyDataset = Dataset | Text


def dataset_of(config: ConfigDict) -> AnyDataset:
    """What a configuration trains and tests on."""
    return DATASETS.make(config.data.kind, config.data[config.data.kind])


def batches_per_epoch(config: ConfigDict, dataset: AnyDataset) -> int:
    """Gradients that use one epoch of data.

    Raises:
      UsageError: where a batch is larger than the data.
    """
    if config.batch_size > len(dataset.train):
        raise UsageError(
            f"--config.batch_size={config.batch_size} must be at most {len(dataset.train)}, the training examples of "
            f"{config.data.kind}"
        )
    return len(dataset.train) // config.batch_size


def num_gradients(config: ConfigDict, dataset: AnyDataset) -> int:
    """Gradients that a run uses; of several local steps, as many as use the examples of its epochs.

    Where slower workers make fewer steps, a gradient counts as the mean of all workers: an estimate, of which a plan
    makes what its schedule needs.
    """
    return math.ceil(config.epochs * batches_per_epoch(config, dataset) / mean_steps(config))


def network_arguments(config: ConfigDict, dataset: AnyDataset) -> dict[str, Any]:
    """What a network is given of the data.

    Raises:
      UsageError: where the network is one for data of another kind.
    """
    kind = config.network.kind
    part = NETWORKS.check(kind)
    if isinstance(dataset, Text):
        given = {"vocabulary": dataset.vocabulary}
    else:
        given = {"image_shape": dataset.image_shape, "num_classes": dataset.num_classes}
        if "levels" in part.given:
            with said_of(f"--config.data.kind={config.data.kind}: "):
                given["levels"] = dataset.levels
    missing = sorted(part.given - given.keys() - {"rngs"})
    if missing:
        raise UsageError(
            f"--config.network.kind={kind} is a network for {kind_of(part).name} and needs {' and '.join(missing)}, "
            f"which --config.data.kind={config.data.kind} does not have"
        )
    return given


def check_text(config: ConfigDict, text: Text) -> None:
    """Raises a `UsageError` where a text is too short for streams of every worker's own, or is to be streamed."""
    with said_of("--config."):
        streams_of(text.train, num_workers=num_workers(config), batch_size=config.batch_size)
    if config.stream:
        raise UsageError(f"--config.stream=True has no effect: {config.data.kind} is a text, which is on the device")
