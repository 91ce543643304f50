"""Failures in sentences: time between them, how often to write a checkpoint, and spares."""

from sgdlab.report.words import counted, listed, sentence
from sgdlab.stragglers.diagnosis.causes import named
from sgdlab.stragglers.estimate import duration
from sgdlab.stragglers.failures import UP, Failures, Outage
from sgdlab.stragglers.recording import SplitRecording

_MOST_TOLD = 3
_KNOWN = {"flag": "", "phase": " (as its phase says)", "": " (an example: --checkpoint_seconds says another)"}


def said(failures: Failures | None, parts: SplitRecording) -> str:
    """Say who failed, how often, and what to do about it; empty where nobody did and no checkpoint was asked about."""
    if failures is None or not (failures.outages or failures.known == "flag"):
        return ""
    number, repair = len(failures.outages), failures.repair
    told = listed([_outage(each, parts) for each in failures.outages], _MOST_TOLD)
    happened = f"{counted(number, 'failure')} in {duration(failures.up)}: {told}"
    repaired = f", and a repair takes {repair.worded(duration)}" if repair else ""
    text = [
        f"{happened if number else f'No failure in {duration(failures.up)}'}. The mean time between failures is "
        f"{failures.between.worded(duration)}{repaired}.",
        f"With {duration(failures.checkpoint_seconds)} for a checkpoint{_KNOWN[failures.known]}, the least time is "
        f"lost with {failures.checkpoint_every.worded(duration)} of work between two (Young's interval).",
    ]
    if number:
        spares = [(share, found) for share in UP if (found := failures.spares(share)) is not None]
        counts = [f"{found.worded('{:.0f}'.format)} for {100 * share:.0f} % of the time" for share, found in spares]
        text.append(f"Spare workers that keep all {failures.workers} up, if they fail independently: {listed(counts)}.")
        text.append("Workers that stopped and did not come back are not counted." if parts.stopped else "")
        text.append(
            "A log that was interrupted looks the same; intervals are of 95 %, for failures that come at random."
        )
    return sentence(" ".join(filter(None, text)))


def _outage(outage: Outage, parts: SplitRecording) -> str:
    recording = parts.recording
    who = f"{named(recording.workers, outage.workers)} missing" if outage.workers else "all stood still"
    return f"{who} from step {recording.steps[outage.row]} on for {duration(outage.seconds)}"
