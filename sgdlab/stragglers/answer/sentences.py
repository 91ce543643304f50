"""The results in sentences, beside the headline: waiting, other protocols, asynchrony, learning rate and limits."""

import numpy as np

from sgdlab import arrays
from sgdlab.report.words import counted, figure, interval, percent, sentence, some
from sgdlab.stragglers import failures, network, timeouts
from sgdlab.stragglers.answer import headline, rules
from sgdlab.stragglers.comparison import measured, refit
from sgdlab.stragglers.comparison.comparison import DEEP_MARKOV
from sgdlab.stragglers.comparison.protocol import DEPLOYABLE, STALE, usage
from sgdlab.stragglers.diagnosis.causes import Cause, named
from sgdlab.stragglers.diagnosis.diagnosis import Diagnosis
from sgdlab.stragglers.estimate import duration
from sgdlab.stragglers.findings import Findings
from sgdlab.stragglers.recording import SplitRecording
from sgdlab.stragglers.what_if import pipeline_words
from sgdlab.traces import Recording

_BLOCKS = 10
"""Parts of the recording between which the share of waiting is compared."""

_EQUAL = 0.001
"""Relative gain below which a protocol is not said to be faster than another."""

_LASTING = 0.2
"""Correlation between consecutive steps from which slowness is said to last."""


def all_of(findings: Findings) -> list[tuple[str, str]]:
    """Pairs of a heading and its sentences, what is broken and what to do first."""
    said, rule = headline.headline(findings), rules.rule(findings.verdict.chosen, len(findings.parts.workers))
    return [("What is slow", said.problem), ("What to do", f"{said.advice} {rule}".strip()), *details(findings)]


def details(findings: Findings) -> list[tuple[str, str]]:
    """The pairs after the first two, in the order of the page."""
    differ, complete = findings.comparison.halves, findings.parts.complete
    halves = differ.sentence(findings.settings.refit, refit.least(findings.parts)) if differ else ""
    others = findings.diagnosis.causes[1:]
    pairs = [
        ("Waiting", waiting(findings)),
        ("Stages", stages(findings.diagnosis, complete)),
        ("Communication", network.said(findings.network)),
        ("Failures", failures.said(findings.failures, findings.parts)),
        ("Time-outs", timeouts.said(findings.timeouts)),
        ("Other causes", " ".join(f"{sentence(one.headline(complete))} {cost(one)}" for one in others)),
        ("How long slowness lasts", memory(findings)),
        ("Tuning and evaluation steps", halves),
        ("Other protocols", alternatives(findings)),
        ("Asynchrony", asynchrony(findings)),
        ("Before you switch", larger_steps(findings)),
        ("Reading the trace", " ".join(sentence(note) for note in findings.parts.recording.notes)),
        ("Limits", limits(findings)),
    ]
    return [(heading, text) for heading, text in pairs if text]


def waiting(findings: Findings) -> str:
    """The share of waiting under full synchrony: of the evaluation steps, and its range over the recording."""
    parts = findings.parts
    workers, idle = len(parts.workers), findings.comparison.synchrony.idle
    blocks = np.array_split(parts.runtimes, min(_BLOCKS, len(parts.runtimes)))
    shares = [measured.interrupted(block, workers).idle for block in blocks]
    slowest = np.median(parts.test.max(axis=1) / arrays.median(parts.test, axis=1))
    return (
        f"Under full synchrony workers wait for the slowest in {100 * idle:.1f} % of all worker-seconds of the "
        f"evaluation steps ({100 * min(shares):.1f} to {100 * max(shares):.1f} % in the tenths of the recording): "
        f"{figure(idle * workers, 3)} of the {workers} workers are idle on average. In the median evaluation step the "
        f"slowest worker takes {slowest:.2f} times as long as the median worker."
    )


_EXPOSED = 0.02
"""Share of a step from which what a stage exposes is told."""


def stages(found: Diagnosis, complete: Recording) -> str:
    """Say in which stages the time of a step goes, with whom, and who cannot be told apart where all wait."""
    frontier = found.frontier
    if frontier is None:
        return ""
    whole, said = frontier.seconds.sum(), []
    for stage, seconds, exposed in zip(frontier.stages, frontier.seconds, frontier.exposed, strict=True):
        ahead = named(complete.workers, [int(seconds.argmax())])
        more = f" ({duration(exposed)} more than the median worker's, mostly with {ahead} ahead)"
        said.append(f"{stage} {percent(seconds.sum() / whole)}{more if exposed > _EXPOSED * whole else ''}")
    return (
        f"Of {duration(whole)} a step, from wait to wait, the frontier of the workers spends in {some(said)}. The wait "
        f"is in the last of these, {frontier.said_of_last(complete.workers)}."
    )


def cost(cause: Cause) -> str:
    """Say what would be saved without a cause: by itself, and after all the others, which can hide it."""
    alone = f"Without this alone, full synchrony would take {100 * cause.share:.1f} % less time"
    hidden = cause.last_share > max(0.01, 1.5 * cause.share)
    return f"{alone}, and {100 * cause.last_share:.1f} % less after all the others." if hidden else f"{alone}."


def memory(findings: Findings) -> str:
    """Say how long slowness lasts, and whether a model can therefore predict it."""
    found = findings.diagnosis
    if found.memory is None:
        return "There are too few consecutive recorded steps to estimate how long slowness lasts."
    reading = "the compute time of a step hardly depends on that of the step before, so no model can predict it well"
    if found.memory >= _LASTING:
        reading = "slowness lasts for several steps, so a model of the dynamics can predict it"
    return (
        "The correlation of a worker's relative compute time (less its own mean) between consecutive steps is "
        f"{found.memory:.2f}, from {found.pairs} pairs of steps: {reading}."
    )


def alternatives(findings: Findings) -> str:
    """The fastest protocol, if another is recommended, and the deep Markov cutoff."""
    verdict, table = findings.verdict, findings.table
    sentences = []
    if verdict.over_chosen is not None and verdict.over_chosen[0] > 1 + _EQUAL:
        sentences.append(
            f"The most gradients per second come from {rules.described(verdict.fastest, len(findings.parts.workers))}: "
            f"{interval(*verdict.over_chosen)} times those of the recommended protocol. This gain is too small or too "
            "uncertain for a more complicated protocol."
        )
    why = " It was trained on the tuning steps, which differ from the evaluation steps; see above."
    trained_once = findings.comparison.halves is not None and findings.settings.refit is None
    deep = [row for row in findings.comparison.by_role(DEPLOYABLE) if row.method == DEEP_MARKOV]
    sentences += [
        f"The deep Markov cutoff gives {interval(*table.relative(row.result))} times the gradients per second of full "
        f"synchrony, {percent(table.share_of_oracle(row.result))} of what would be possible if all times were known "
        f"in advance.{why * trained_once}"
        for row in deep
        if not verdict.is_of(row)
    ]
    sentences += [f"Not tried: {title}. {why}" for title, why in findings.comparison.left_out.items()]
    return " ".join(sentences)


def asynchrony(findings: Findings) -> str:
    """The gradients per second of asynchronous SGD, their staleness, and whose data it would learn little from."""
    (row,), workers = findings.comparison.by_role(STALE), findings.parts.workers
    result, used = row.result, usage(row)
    few = used.under_used.tolist()
    said = (
        f"If no worker waits, there are {interval(*findings.table.relative(result))} times the gradients per second of "
        f"full synchrony, with a mean staleness of {result.staleness:.1f} updates (at most "
        f"{result.largest_staleness}), and each gradient is an update by itself. A stale gradient contributes less to "
        "training; how much less has to be measured."
    )
    if not few:
        return said
    return (
        f"{said} Less than half of an equal share of the gradients would come from {named(workers, few)}: "
        f"the data are learned from as by {figure(used.effective_workers, 3)} equal workers of {len(workers)}, which "
        "matters where each has its own."
    )


def larger_steps(findings: Findings) -> str:
    """Say what fewer gradients in an update mean for the learning rate, and whose data would hardly be used."""
    workers, chosen = findings.parts.workers, findings.verdict.chosen.result
    if findings.verdict.chosen.backups == 0:
        return ""
    whole = abs(chosen.waited_for - round(chosen.waited_for)) < 1e-9
    waited = f"{chosen.waited_for:.0f}" if whole else figure(chosen.waited_for, 3)
    updates = chosen.updates_per_second * findings.comparison.synchrony.iteration_seconds
    said = (
        f"If fewer are waited for, an update averages {waited} gradients instead of {len(workers)}, "
        f"{100 * chosen.waited_for / len(workers):.0f} % of the batch, and there are {updates:.2f} times as many "
        "updates per second. Scale the learning rate with the number of gradients, or enlarge the batch of each "
        "worker, and compare the loss at equal times: more gradients per second do not guarantee faster training."
    )
    slow = sorted({worker for cause in findings.diagnosis.machines for worker in cause.workers})
    if not slow or chosen.waited_for > len(workers) - 1 + 0.1:
        return said
    return (
        f"{said} Gradients of {named(workers, slow)} would hardly ever be used: let all workers draw their examples "
        "from the whole data set, because examples that only slow workers hold are lost otherwise."
    )


def limits(findings: Findings) -> str:
    """Say what the results do not cover."""
    parts, pauses = findings.parts, int(findings.parts.paused.sum())
    was = "was" if parts.left_out == 1 else "were"
    sentences = [
        f"The {counted(pauses, 'pause')} of all workers count in the time of every protocol, and nothing was tuned or "
        "trained on them."
        if pauses
        else "",
        "The recorded steps are a sample: the windows of the predictors extend across the gaps, and a model of the "
        "dynamics learns less from them than from consecutive steps."
        if parts.recording.gaps
        else "",
        f"{counted(parts.left_out, 'step')} with a missing compute time {was} excluded." if parts.left_out else "",
        findings.comparison.note,
        f"A worker that is dropped takes {duration(price)} to come back, which is in the seconds of all protocols that "
        "drop one."
        if (price := findings.settings.rejoin_seconds)
        else "",
        f"The intervals (90 %, from {len(parts.test)} steps) cover the variation between the recorded steps, not a "
        "later change of the cluster.",
        communication(parts),
        pipeline_words.limits(parts.complete),
    ]
    return " ".join(filter(None, sentences))


def communication(parts: SplitRecording) -> str:
    """Say what of communication is in the times."""
    if parts.transfer_share is not None:
        return (
            f"The transfer of the collectives, {100 * parts.transfer_share:.1f} % of full synchrony's time, counts in "
            "every protocol as it was recorded, whoever takes part; the server's own time is not known."
        )
    if parts.live:
        return (
            "The times are those that the server of the live run waited: the way there and back is in them, the "
            "server's own time is not."
        )
    return (
        "Of communication the times contain what the recorder counted as a worker's compute time; the transfer of a "
        "collective and the server's own time are not recorded by themselves."
    )
