"""Reads a recording of either kind: of a run with a server, or of peers."""

import os
import zipfile

from sgdlab.live.peer_recording import PeerRecording
from sgdlab.live.recording import LiveRecording

AnyRecording = LiveRecording | PeerRecording


def load(path: str | os.PathLike[str]) -> AnyRecording:
    """Reads and checks a recording; nothing is unpickled.

    Raises:
      FileNotFoundError: where there is no such file.
      ValueError: where the file is no recording of either kind.
    """
    try:
        with zipfile.ZipFile(path) as file:
            peers = "node.npy" in file.namelist()  # a schedule of servers has workers
    except zipfile.BadZipFile:  # `LiveRecording` says what is wrong
        peers = False
    return PeerRecording.load(path) if peers else LiveRecording.load(path)
