"""The configuration of a recorded run: that of the run itself, with the file's digest, in event mode.

It is a configuration file whose variant is the recording: `--config=recorded_config.py:runs/live/recording.npz`.
"""

from ml_collections import ConfigDict, config_dict

from sgdlab.runs import configuration, digests, recorded
from sgdlab.runs.live import config_of


def get_config(recording: str) -> ConfigDict:
    """The configuration of a recording; a `ValueError` where it is none."""
    own = config_of(recorded.load(recording).config["config"])
    kinds = {family: own[family].kind for family in ("cluster", "network", "data")}
    config = configuration.entries(kinds)
    with config.ignore_type(), config.unlocked():
        config.update(own)
        config.mode = config_dict.create(mode="event").get_ref("mode")
        config.recording = digests.of_content(recorded.content_of(recording))  # of the file of events
    return config
