"""What the numbers say, in sentences made from them."""

import dataclasses

import numpy as np

from sgdlab.advice import culprits, measured
from sgdlab.advice.comparison import DEEP_MARKOV, FINISHING, INTERRUPTED, STALE, Protocol
from sgdlab.advice.recording import Parts
from sgdlab.advice.stragglers import Stragglers
from sgdlab.advice.table import Table
from sgdlab.advice.verdict import Verdict
from sgdlab.advice.words import counted, figure, interval, some


@dataclasses.dataclass(frozen=True, eq=False)
class Findings:
    """All that there is to say something about.

    Attributes:
      parts: of the recording.
      table: of the answers.
      verdict: the recommendation.
      stragglers: who is slow.
    """

    parts: Parts
    table: Table
    verdict: Verdict
    stragglers: Stragglers


def all_of(found: Findings) -> list[tuple[str, str]]:
    """Pairs of a word and what there is to say: the recommendation, costs, culprits, and what limits these answers."""
    told = [
        ("Recommendation", f"{recommendation(found)} {alternatives(found)}"),
        ("What stragglers cost", cost(found)),
        ("Who they are", culprits.told(found.stragglers, found.parts.complete)),
        ("Asynchrony", asynchrony(found)),
        ("Before you switch", larger_steps(found)),
        ("What limits this", limits(found)),
    ]
    return [(word, sentences) for word, sentences in told if sentences]


def recommendation(found: Findings) -> str:
    """The answer in one sentence."""
    chosen = found.verdict.chosen
    if chosen.backups == 0:
        return "Stay with full synchrony: nothing that was tried is measurably faster on this cluster."
    line = found.table.line(chosen, "throughput")
    return (
        f"Use {described(chosen, found.parts)}: {interval(line.relative, line.low, line.high)} times the gradients per "
        f"second of full synchrony, {100 * line.share_of_oracle:.1f} % of what an oracle would get that knows every "
        f"run-time beforehand.{_how(chosen)}"
    )


def described(protocol: Protocol, parts: Parts) -> str:
    """A protocol in words that need no table."""
    if protocol.title in (INTERRUPTED, FINISHING):
        workers = len(parts.workers)
        late = "interrupted" if protocol.title == INTERRUPTED else "let finish, and their gradients dropped"
        waits = f"an update waits for {workers - protocol.backups} of {workers}, and the others are {late}"
        return f"{counted(protocol.backups, 'backup worker')} ({waits})"
    title = f"a deadline of {protocol.title}" if protocol.title.startswith("median") else f"the {protocol.title}"
    return f"{title} ({protocol.setting})" if protocol.setting else protocol.title


_HOW = {
    "median + k MAD": "as many workers as were done, on average over the window, by the median of its run-times plus k "
    "median absolute deviations",
    "running mean": "the number of workers that would be best if the sorted run-times were the mean of those in the "
    "window",
    "Elfving": "the number of workers that would be best if run-times were independent and normal, with the mean and "
    "deviation of the window",
    "Kalman filter": "the number of workers that is best by a filter for each of them, which follows its run-times",
    DEEP_MARKOV: "the number of workers that is best by a learned model, which foresees all run-times together",
}
"""What an update waits for, where that is not said by the name."""


def _how(protocol: Protocol) -> str:
    waits = _HOW.get(protocol.title)
    return f" An update waits for {waits}, and late workers are interrupted." if waits else ""


def alternatives(found: Findings) -> str:
    """How the fastest, the deep Markov cutoff and the oracle stand to the recommendation."""
    verdict, table = found.verdict, found.table
    sentences = []
    if verdict.over_chosen is not None:
        sentences.append(
            f"Of fresh gradients, {described(verdict.fastest, found.parts)} gives most per second, "
            f"{interval(*verdict.over_chosen)} times as many: too small or too uncertain a gain for what it takes."
        )
    deep = next(protocol for protocol in table.comparison.protocols if protocol.title == DEEP_MARKOV)
    line = table.line(deep, "throughput")
    if not verdict.is_of(deep):
        sentences.append(
            f"The deep Markov cutoff reaches {interval(line.relative, line.low, line.high)} times full synchrony, "
            f"{100 * line.share_of_oracle:.1f} % of the oracle."
        )
    return " ".join(sentences)


def cost(found: Findings) -> str:
    """What stragglers cost under full synchrony, over all that was recorded."""
    runtimes = found.parts.complete.runtimes
    workers = runtimes.shape[1]
    idle = measured.interrupted(runtimes, workers).idle
    slowest = np.median(runtimes.max(axis=1) / np.median(runtimes, axis=1))
    return (
        f"Under full synchrony {100 * idle:.1f} % of all worker-seconds are spent waiting for the last (over all "
        f"complete steps): {figure(idle * workers, 3)} of the {workers} workers stand idle on average, and in a "
        f"typical step the last takes {slowest:.2f} times the median."
    )


def asynchrony(found: Findings) -> str:
    """What not waiting gives, and its price."""
    found_so = found.table.comparison.by_role(STALE)[0].paper
    return (
        f"Where nobody waits there are {interval(*found.table.relative(found_so))} times the gradients per second of "
        f"full synchrony, but they are {found_so.staleness:.1f} updates old on average, and each is an update of its "
        "own: such a gradient is worth less, and how much less must be tried."
    )


def larger_steps(found: Findings) -> str:
    """What fewer gradients in an update mean for the learning rate, and whose data are never seen."""
    if found.verdict.chosen.backups == 0:
        return ""
    chosen, workers = found.verdict.chosen.paper, len(found.parts.workers)
    whole = abs(chosen.waited_for - round(chosen.waited_for)) < 1e-9
    waited = f"{chosen.waited_for:.0f}" if whole else figure(chosen.waited_for, 3)
    updates = chosen.updates_per_second * found.table.comparison.synchrony.iteration_seconds
    sentences = [
        f"An update averages {waited} gradients instead of {workers}, "
        f"{100 * chosen.waited_for / workers:.0f} % of the batch, and there are {updates:.2f} times as many updates "
        "per second. Scale the learning rate with the number of gradients, or enlarge each worker's batch, and compare "
        "the loss at equal times: gradients per second are not yet progress."
    ]
    ignored = found.stragglers.persistent
    if ignored.size and chosen.waited_for <= workers - 1:
        names = some([found.parts.workers[i] for i in ignored])
        others = np.delete(found.parts.test, ignored, axis=1)
        alone = measured.interrupted(others, others.shape[1]).gradients_per_second
        gain = alone / found.table.comparison.synchrony.gradients_per_second
        sentences.append(
            f"Gradients of worker{'s' * (ignored.size > 1)} {names} would hardly ever be used: let all workers draw "
            "their examples from the whole data set, or those of a fixed share are lost. The others alone, fully "
            f"synchronous, give {gain:.3f} times as many gradients per second as all workers do now."
        )
    return " ".join(sentences)


def limits(found: Findings) -> str:
    """What these answers do not know."""
    parts, note = found.parts, found.table.comparison.note
    sentences = []
    if parts.recording.gaps:
        sentences.append(
            "The recorded steps are a sample: windows of the predictors reach across the gaps, and a model of the "
            "dynamics can learn less from them than from consecutive steps."
        )
    if parts.left_out:
        was = "was" if parts.left_out == 1 else "were"
        sentences.append(f"{counted(parts.left_out, 'step')} in which a worker is missing {was} left out.")
    if note:
        sentences.append(note)
    sentences.append(
        f"The intervals (90 %, from {len(parts.test)} steps) say how much these steps could have come out otherwise, "
        "not what the cluster does next week. Communication and the server's own time are not part of the run-times."
    )
    return " ".join(sentences)
