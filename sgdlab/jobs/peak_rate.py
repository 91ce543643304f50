"""The learning rate of an update after warm-up, which depends on how many gradients the update counts as."""

from ml_collections import ConfigDict

from sgdlab.jobs.methods import Choice
from sgdlab.jobs.run_times import local_in
from sgdlab.peer_schedule import AnySchedule


def expected_gradients(choice: Choice, num_workers: int) -> float | None:
    """Gradients that an update of the protocol has where nothing goes wrong; None where it does not say."""
    expected = choice.protocol.facts.get("expected_gradients")
    return None if expected is None else expected(choice.entries, num_workers)


def counts_as(choice: Choice, schedule: AnySchedule) -> float:
    """Gradients that an update counts as for its learning rate: those that it averages, or as the rule has it.

    A rule that averages workers makes no longer steps because a worker has sent more. One that divides by the expected
    number makes shorter steps where fewer come; were its rate lower too, steps would fall with the square.
    """
    counts_as = choice.rule.facts.get("counts_as")
    if counts_as is not None and schedule.has_server:
        return counts_as(schedule)
    expected = expected_gradients(choice, schedule.num_workers)
    if expected is not None and "expected_gradients" in choice.rule.given:
        return expected
    return schedule.gradients_per_update()


def peak_rate(config: ConfigDict, choice: Choice, per_update: float) -> float:
    """The rate after warm-up; a rule that multiplies by the number of gradients itself takes that of one.

    Args:
      config: the configuration.
      choice: its parts.
      per_update: gradients that an update counts as.
    """
    local = local_in(config)
    scales = choice.rule.facts.get("scales_by_num_gradients", False)
    if local.server_learning_rate is not None:  # of an update, whatever it averages
        return local.server_learning_rate / (per_update if scales else 1.0)
    rate = config.optimizer[choice.rule.facts.get("rate", "learning_rate")]
    if config.rate.of == "gradient":
        return rate if scales else rate * per_update
    return rate / per_update if scales else rate
