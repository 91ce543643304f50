"""The results in sentences: recommendation, cost of stragglers, asynchrony, learning rate and limits."""

import numpy as np

from sgdlab.advice import culprits, measured
from sgdlab.advice.comparison import DEEP_MARKOV, FINISHING, INTERRUPTED, STALE, Protocol
from sgdlab.advice.findings import Findings
from sgdlab.advice.recording import Parts
from sgdlab.advice.words import counted, figure, interval, some


def all_of(findings: Findings) -> list[tuple[str, str]]:
    """Pairs of a heading and its sentences, the recommendation first.

    Args:
      findings: all results.
    """
    pairs = [
        ("Recommendation", f"{recommendation(findings)} {alternatives(findings)}"),
        ("Cost of stragglers", cost(findings)),
        ("Stragglers", culprits.describe(findings.stragglers, findings.parts.complete)),
        ("Asynchrony", asynchrony(findings)),
        ("Before you switch", larger_steps(findings)),
        ("Limits", limits(findings)),
    ]
    return [(heading, text) for heading, text in pairs if text]


def recommendation(findings: Findings) -> str:
    """The recommended protocol and its gain over full synchrony.

    Args:
      findings: all results.
    """
    chosen = findings.verdict.chosen
    if chosen.backups == 0:
        return "Keep full synchrony: no other protocol is measurably faster on this cluster."
    line = findings.table.line(chosen, "throughput")
    return (
        f"Use {described(chosen, findings.parts)}. It gives {interval(line.relative, line.low, line.high)} times the "
        f"gradients per second of full synchrony, and {100 * line.share_of_oracle:.1f} % of those of an oracle that "
        f"knows all run-times in advance.{_cutoff(chosen)}"
    )


def described(protocol: Protocol, parts: Parts) -> str:
    """The name of a protocol with its parameters and what they mean.

    Args:
      protocol: a protocol of the table.
      parts: the recording.
    """
    if protocol.title in (INTERRUPTED, FINISHING):
        workers = len(parts.workers)
        late = "are interrupted" if protocol.title == INTERRUPTED else "finish gradients that are then dropped"
        waits = f"an update waits for {workers - protocol.backups} of {workers} workers; the others {late}"
        return f"{counted(protocol.backups, 'backup worker')} ({waits})"
    titles = {"median + k MAD": "a deadline of median + k MAD", "Elfving": "Elfving's formula"}
    title = titles.get(protocol.title, f"the {protocol.title}")
    return f"{title} ({protocol.setting})" if protocol.setting else protocol.title


_CUTOFFS = {
    "median + k MAD": "the number of workers that finished, on average over the last iterations (the window), before "
    "the median of the window's run-times plus k median absolute deviations",
    "running mean": "the number of workers that maximises gradients per second if the sorted run-times equal their "
    "mean over the last iterations (the window)",
    "Elfving": "the number of workers that maximises gradients per second if run-times are independent and normal, "
    "with mean and deviation of the last iterations (the window)",
    "Kalman filter": "the number of workers that maximises gradients per second by the predictions of a Kalman filter "
    "for each worker",
    DEEP_MARKOV: "the number of workers that maximises gradients per second by the predictions of a learned model of "
    "all workers",
}
"""What an update waits for with each predicted cutoff."""


def _cutoff(protocol: Protocol) -> str:
    waits = _CUTOFFS.get(protocol.title)
    return f" An update waits for {waits}; the other workers are interrupted." if waits else ""


def alternatives(findings: Findings) -> str:
    """The fastest protocol, if another is recommended, and the deep Markov cutoff.

    Args:
      findings: all results.
    """
    verdict, table = findings.verdict, findings.table
    sentences = []
    if verdict.over_chosen is not None:
        sentences.append(
            f"The most gradients per second come from {described(verdict.fastest, findings.parts)}: "
            f"{interval(*verdict.over_chosen)} times those of the recommended protocol. This gain is too small or too "
            "uncertain for a more complicated protocol."
        )
    deep = next(protocol for protocol in table.comparison.protocols if protocol.title == DEEP_MARKOV)
    line = table.line(deep, "throughput")
    if not verdict.is_of(deep):
        sentences.append(
            f"The deep Markov cutoff gives {interval(line.relative, line.low, line.high)} times the gradients per "
            f"second of full synchrony, and {100 * line.share_of_oracle:.1f} % of the oracle's."
        )
    return " ".join(sentences)


def cost(findings: Findings) -> str:
    """The idle time under full synchrony, in the evaluation steps and in all complete steps.

    Args:
      findings: all results.
    """
    runtimes = findings.parts.complete.runtimes
    workers = runtimes.shape[1]
    evaluated, idle = findings.table.comparison.synchrony.idle, measured.interrupted(runtimes, workers).idle
    slowest = np.median(runtimes.max(axis=1) / np.median(runtimes, axis=1))
    return (
        f"Under full synchrony workers wait for the slowest in {100 * evaluated:.1f} % of all worker-seconds of the "
        f"evaluation steps, and in {100 * idle:.1f} % of those of all complete steps. In all complete steps "
        f"{figure(idle * workers, 3)} of the {workers} workers are idle on average, and in the median step the slowest "
        f"worker takes {slowest:.2f} times as long as the median worker."
    )


def asynchrony(findings: Findings) -> str:
    """The gradients per second of asynchronous SGD, and their staleness.

    Args:
      findings: all results.
    """
    result = findings.table.comparison.by_role(STALE)[0].paper
    return (
        f"If no worker waits, there are {interval(*findings.table.relative(result))} times the gradients per second of "
        f"full synchrony, with a mean staleness of {result.staleness:.1f} updates, and each gradient is an update by "
        "itself. A stale gradient contributes less to training; how much less has to be measured."
    )


def larger_steps(findings: Findings) -> str:
    """What fewer gradients in an update mean for the learning rate, and which workers' data would hardly be used.

    Args:
      findings: all results.
    """
    if findings.verdict.chosen.backups == 0:
        return ""
    chosen, workers = findings.verdict.chosen.paper, len(findings.parts.workers)
    whole = abs(chosen.waited_for - round(chosen.waited_for)) < 1e-9
    waited = f"{chosen.waited_for:.0f}" if whole else figure(chosen.waited_for, 3)
    updates = chosen.updates_per_second * findings.table.comparison.synchrony.iteration_seconds
    sentences = [
        f"An update averages {waited} gradients instead of {workers}, "
        f"{100 * chosen.waited_for / workers:.0f} % of the batch, and there are {updates:.2f} times as many updates "
        "per second. Scale the learning rate with the number of gradients, or enlarge the batch of each worker, and "
        "compare the loss at equal times: more gradients per second do not guarantee faster training."
    ]
    slow = findings.stragglers.persistent
    if slow.size and chosen.waited_for <= workers - 1:
        names = some([findings.parts.workers[i] for i in slow])
        others = np.delete(findings.parts.test, slow, axis=1)
        alone = measured.interrupted(others, others.shape[1]).gradients_per_second
        gain = alone / findings.table.comparison.synchrony.gradients_per_second
        sentences.append(
            f"Gradients of worker{'s' * (slow.size > 1)} {names} would hardly ever be used: let all workers draw their "
            "examples from the whole data set, because examples that only slow workers hold are lost otherwise. The "
            f"other workers alone, in full synchrony, give {gain:.3f} times as many gradients per second as all "
            "workers in full synchrony."
        )
    return " ".join(sentences)


def limits(findings: Findings) -> str:
    """What the results do not cover.

    Args:
      findings: all results.
    """
    parts, note = findings.parts, findings.table.comparison.note
    sentences = []
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
    sentences.append(
        f"The intervals (90 %, from {len(parts.test)} steps) cover the variation between the recorded steps, not a "
        "later change of the cluster. The run-times contain neither communication nor the server's own time."
    )
    return " ".join(sentences)
