"""The machines as a configuration sets them: how long every worker takes for every gradient."""

import dataclasses
from collections.abc import Callable

import numpy as np
from ml_collections import ConfigDict

from sgdlab import cluster
from sgdlab.errors import UsageError
from sgdlab.seeds import seed_of


def gamma(config: ConfigDict, rows: int) -> np.ndarray:
    """Machines of equal or unequal speed; a gradient takes `batch_size` seconds on average."""
    return cluster.gamma(
        num_workers=config.cluster.num_workers,
        num_gradients=rows,
        heterogeneous=config.cluster.heterogeneous,
        batch_size=config.batch_size,
        seed=seed_of(config, "runtimes"),
    )


def regimes(config: ConfigDict, rows: int) -> np.ndarray:
    """Workers on nodes that fall into a slow regime and stay in it for a while."""
    return law(config.cluster).draw(rows, seed=seed_of(config, "runtimes")).runtimes


def recorded(config: ConfigDict, rows: int) -> np.ndarray:
    """Those of a trace; steps in which a worker is missing are left out."""
    path, workers = config.cluster.trace, config.cluster.num_workers
    try:
        runtimes = cluster.recorded(path).complete().runtimes
    except (ValueError, OSError) as error:
        raise UsageError(f"--config.cluster.trace: {error}") from error
    if runtimes.shape[1] != workers:
        raise UsageError(f"--config.cluster.num_workers={workers} must be {runtimes.shape[1]}, the workers of {path}")
    if runtimes.shape[0] < rows:
        raise UsageError(
            f"--config.cluster.trace={path} has {runtimes.shape[0]} complete steps, and this run needs about {rows}; "
            "set --config.epochs lower or --config.batch_size higher"
        )
    return runtimes[:rows]


MACHINES: dict[str, Callable[[ConfigDict, int], np.ndarray]] = {
    "gamma": gamma,
    "regimes": regimes,
    "recorded": recorded,
}
"""Kinds of machines by name: configuration and rows -> run-times [rows, N]."""


def law(machines: ConfigDict) -> cluster.RegimeCluster:
    """The cluster with regimes that `num_workers` and `regimes` of a configuration's machines describe.

    Raises:
      UsageError: where it cannot be.

    Example:
      >>> from configs import digits
      >>> law(digits.get_config().cluster).num_nodes
      4
    """
    entries = machines.regimes.to_dict()
    try:
        return cluster.RegimeCluster(
            num_workers=machines.num_workers,
            contention=cluster.Contention(**entries.pop("contention")),
            drift=cluster.Drift(**entries.pop("drift")),
            **entries,
        )
    except ValueError as error:
        raise UsageError(f"--config.cluster.regimes: {error}") from error


def regime_entries(**changed: object) -> ConfigDict:
    """All that a configuration can say of a cluster with regimes, `RegimeCluster`'s own defaults but for what is given.

    Example:
      >>> regime_entries(num_nodes=4, mean=1.0, std=0.4).contention.factor
      1.0
    """
    entries: dict[str, object] = {}
    for field in dataclasses.fields(cluster.RegimeCluster):
        if field.name in ("num_workers", "num_nodes", "mean", "std"):
            continue
        nested = dataclasses.is_dataclass(field.default)
        entries[field.name] = dataclasses.asdict(field.default) if nested else field.default
    return ConfigDict({**entries, **changed})
