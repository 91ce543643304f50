"""The rule of each protocol in one sentence: whom an update waits for, and what becomes of the others."""

from sgdlab.advice.comparison.comparison import BY_RATE, DEEP_MARKOV, FINISHING, INTERRUPTED, REFITTED, Protocol
from sgdlab.report.words import counted

_INTERRUPT = "interrupt the others"
_MOST = "for the number c of workers with the most gradients per second, c divided by the {}"


def entries(protocol: Protocol) -> dict[str, str]:
    """The parameters of its predictor, as its flags say them.

    Args:
      protocol: a protocol of the table.

    Returns:
      name -> value, as in {"window": "2", "deviations": "6.0"}; empty if it has no flags of a predictor.
    """
    pairs = (flag.removeprefix("--config.predictor.").partition("=") for flag in protocol.flags)
    return {name.partition(".")[2]: value for name, _, value in pairs if name.count(".") == 1}


def rule(protocol: Protocol, workers: int) -> str:
    """What to do in every step, in a sentence.

    Args:
      protocol: a protocol of the table.
      workers: N, number of workers.

    Example:
      >>> from sgdlab.advice import comparison
      >>> rule(comparison.Protocol("full synchrony", "", comparison.DEPLOYABLE, {}, 0), 16)
      'Every update waits for the gradients of all workers.'
    """
    if protocol.without:
        return f"Keep full synchrony, {protocol.title}: every update waits for all of the other workers."
    if protocol.backups == 0:
        return "Every update waits for the gradients of all workers."
    if protocol.backups is not None:
        return _fixed(protocol.title, workers, protocol.backups)
    title = protocol.title.removesuffix(REFITTED)
    sentence = _PREDICTED[title].format(**{"window": "few", "deviations": "k"} | entries(protocol))
    by_rate = f" Here a second costs what it earned in the run so far ({BY_RATE})." if _is_by_rate(protocol) else ""
    again = f" Choose the parameters again {protocol.setting}." if protocol.title.endswith(REFITTED) else ""
    return f"{sentence.replace('the last 1 steps', 'the last step')}{by_rate}{again}"


def _fixed(title: str, workers: int, backups: int) -> str:
    one = backups == 1
    others = "the other worker" if one else f"the other {backups} workers"
    begins = f"Update as soon as {workers - backups} of the {workers} gradients are there"
    if title == INTERRUPTED:
        return f"{begins}, interrupt {others}, and begin the next step with all."
    if one:
        return f"{begins}; {others} finishes its gradient, which is dropped, and then reads the newest parameters."
    return f"{begins}; {others} finish their gradients, which are dropped, and then read the newest parameters."


_PREDICTED = {
    INTERRUPTED: f"Update as soon as the number of gradients is there that was best before, and {_INTERRUPT}.",
    FINISHING: "Update as soon as the number of gradients is there that was best before; the others finish gradients "
    "that are dropped.",
    "median + k MAD": "After each step, take the run-times of the last {window} steps and their median; in the next "
    "step wait for as many workers as finished, on average, before that median plus {deviations} times the median "
    f"distance from it, and {_INTERRUPT}.",
    "running mean": "After each step, sort the run-times of each of the last {window} steps and average the shortest, "
    f"the second shortest, and so on; in the next step wait {_MOST.format('c-th average')}, and {_INTERRUPT}.",
    "Elfving": "After each step, take mean and standard deviation of the run-times of the last {window} steps; in the "
    "next step wait "
    f"{_MOST.format('expected c-th of as many normal run-times')}, and {_INTERRUPT}.",
    "Kalman filter": "Before each step, a Kalman filter predicts the run-time of each worker; wait "
    f"{_MOST.format('expected c-th run-time')}, and {_INTERRUPT}.",
    DEEP_MARKOV: "Before each step, the trained model predicts the run-times of all workers; wait "
    f"{_MOST.format('expected c-th run-time')}, and {_INTERRUPT}.",
}


def _is_by_rate(protocol: Protocol) -> bool:
    return protocol.setting.endswith(BY_RATE)


def who_enters(protocol: Protocol, workers: int) -> str:
    """How many gradients enter an update, as a headline says it.

    Args:
      protocol: a protocol of the table.
      workers: N, number of workers.
    """
    waited = protocol.paper.waited_for
    if protocol.backups is not None:
        return f"{workers - protocol.backups} of {workers} enter every update"
    shown = f"{waited:.0f}" if abs(waited - round(waited)) < 0.05 else f"{waited:.1f}"
    return f"on average {shown} of {workers} enter an update"


def whom_not_to_wait_for(protocol: Protocol, workers: int) -> str:
    """What a headline tells to do.

    Args:
      protocol: a protocol of the table, other than full synchrony.
      workers: N, number of workers.
    """
    late = workers - protocol.paper.waited_for
    if late < 0.5:
        return "do not always wait for the slowest worker"
    return f"do not wait for the slowest {'worker' if late < 1.5 else counted(round(late), 'worker')}"
