"""Flags of `sgdlab live`: where workers run, and what the server does about those that are missing or silent."""

import dataclasses
from typing import Any

from absl import flags

from sgdlab.commands import serve_flag
from sgdlab.errors import said_of
from sgdlab.live.settings import LiveSettings

SHOWN = ("emulate", "num_workers", "serve", "transport")
"""Those on the first page of --help."""

TRANSPORTS = ("processes", "ray")


def define_flags() -> None:
    """Defines them."""
    own = LiveSettings()
    flags.DEFINE_integer("num_workers", None, "Number of workers: the same as --config.cluster.num_workers.")
    flags.DEFINE_enum("transport", "processes", TRANSPORTS, "Workers are processes of this machine, or Ray actors.")
    flags.DEFINE_string("address", None, "Of the Ray cluster, such as auto; by default one of this machine alone.")
    flags.DEFINE_float("gpus_per_worker", None, "GPUs of each worker, such as 1 or 0.5; by default it has none.")
    flags.DEFINE_float(
        "emulate",
        None,
        "Gradients take at least as long as on the configuration's cluster, so many seconds on average.",
    )
    serve_flag.define("Show the run as a page, on a port of this machine alone: --serve, or --serve=8080.", __name__)
    flags.DEFINE_integer("min_workers", own.min_workers, "The run goes on with so many, and ends with fewer.")
    flags.DEFINE_float("join_seconds", own.join_seconds, "How long the start waits for all workers.")
    flags.DEFINE_float("wait_seconds", own.wait_seconds, "How long the run waits for --min_workers.")
    flags.DEFINE_float("patience", own.patience, "A worker silent for so many times its usual time is lost.")
    flags.DEFINE_float("least_patience", own.least_patience, "Seconds of silence before which no worker is lost.")
    flags.DEFINE_float("first_patience", own.first_patience, "The same, while a worker's usual time is not known.")
    flags.DEFINE_integer("respawns", own.respawns, "How often in a row a worker's process is started again.")
    flags.DEFINE_integer("checkpoint_updates", own.checkpoint_updates, "Updates between two checkpoints, at least.")
    flags.DEFINE_float("checkpoint_seconds", own.checkpoint_seconds, "Seconds between two checkpoints, at least.")
    flags.DEFINE_bool("rerun", False, "Run anew what is there; its records are put aside.")
    flags.DEFINE_list("writers", [], "Where records go besides: tensorboard, wandb.")


def settings() -> LiveSettings:
    """Return what the flags say of the server."""
    given: Any = flags.FLAGS
    names = [field.name for field in dataclasses.fields(LiveSettings) if field.name in given]
    with said_of("--"):
        return LiveSettings(**{name: given[name].value for name in names})
