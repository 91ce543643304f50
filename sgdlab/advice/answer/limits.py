"""What the results do not cover, in sentences."""

from sgdlab.advice.findings import Findings
from sgdlab.advice.recording import SplitRecording
from sgdlab.report.words import counted


def limits(findings: Findings) -> str:
    """What the results do not cover.

    Args:
      findings: all results.
    """
    parts, note = findings.parts, findings.comparison.note
    sentences = []
    if parts.paused.any():
        sentences.append(
            f"The {counted(int(parts.paused.sum()), 'pause')} of all workers count in the time of every protocol, and "
            "nothing was tuned or trained on them."
        )
    if parts.recording.gaps:
        sentences.append(
            "The recorded steps are a sample: the windows of the predictors extend across the gaps, and a model of the "
            "dynamics learns less from them than from consecutive steps."
        )
    if parts.left_out:
        was = "was" if parts.left_out == 1 else "were"
        sentences.append(f"{counted(parts.left_out, 'step')} with a missing run-time {was} excluded.")
    if note:
        sentences.append(note)
    sentences += [
        f"The intervals (90 %, from {len(parts.test)} steps) cover the variation between the recorded steps, not a "
        "later change of the cluster.",
        communication(parts),
    ]
    return " ".join(sentences)


def communication(parts: SplitRecording) -> str:
    """What of communication is in the times.

    Args:
      parts: the recording.
    """
    if parts.transfer_share is not None:
        return (
            f"The transfer of the collectives, {100 * parts.transfer_share:.1f} % of full synchrony's time, counts in "
            "every protocol as it was recorded, whoever takes part; the server's own time is not known."
        )
    if parts.live:
        return (
            "The run-times are those that the server of the live run waited: the way there and back is in them, the "
            "server's own time is not."
        )
    return (
        "Of communication the times contain what the recorder counted as a worker's run-time; the transfer of a "
        "collective and the server's own time are not recorded by themselves."
    )
