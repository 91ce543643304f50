"""A directory with another run: its configuration is compared before its code, and no run is replaced in silence."""

import pytest

from configs import digits
from sgdlab.commands import train
from sgdlab.errors import UsageError
from sgdlab.runs import configuration, digests, resolve, store


def experiment_of(**entries):
    config = digits.get_config()
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in entries.items()})
    return resolve(config)


@pytest.fixture(name="there")
def finished_run(tmp_path):
    """A finished run of ASGD, with entries and digests of code that a test may change."""

    def leave(code=(), entries=()):
        experiment = experiment_of(method="asgd")
        config = store.plain(experiment.identity)
        for name, value in dict(entries).items():
            group, dot, last = name.rpartition(".")
            (configuration.value_of(config, group) if dot else config)[last] = value
        first = {"kind": "run", "config": config, "code": digests.of_run(experiment) | dict(code)}
        store.Store.of(tmp_path).write(train.NAME, [first, {"kind": "summary"}])
        return tmp_path

    return leave


def ask(path, experiment):
    said = []
    _, finished = train.store_of(path, experiment, rerun=False, say=said.append)
    return finished, "\n".join(said)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"method": "gap_aware"}, "with config.method=asgd, not gap_aware"),
        ({"method": "gap_aware", "seed": 3}, "with config.method=asgd, not gap_aware"),
        ({"method": "asgd", "network__kind": "mlp"}, "with config.network.kind=conv, not mlp"),
        ({"method": "asgd", "cluster__kind": "exponential"}, "with config.cluster.kind=gamma, not exponential"),
        ({"method": "asgd", "data__kind": "photographs"}, "with config.data.kind=digits, not photographs"),
        ({"method": "asgd", "seed": 3}, "with config.seed=0, not 3"),
        ({"method": "asgd", "seconds": 9.0}, "without config.seconds=9.0"),
    ],
)
def test_a_run_of_another_configuration_is_not_replaced(there, asked, words):
    path = there()
    with pytest.raises(UsageError, match=rf"holds a run {words}; name another directory, or run it anew by --rerun"):
        ask(path, experiment_of(**asked))


def test_a_run_of_the_same_configuration_by_other_code_is_run_anew(there):
    finished, said = ask(there(code={"rule": "0123456789abcdef"}), experiment_of(method="asgd"))
    assert not finished
    assert "The rule of the run in" in said
    assert "it is rerun" in said


def test_other_code_may_have_other_entries_but_not_other_values(there):
    code, asgd = {"rule": "0123456789abcdef"}, experiment_of(method="asgd")
    finished, _ = ask(there(code, {"rule.asgd.cap": 3, "optimizer.cap": 3}), asgd)
    assert not finished
    with pytest.raises(UsageError, match=r"with config.seed=7, not 0"):
        ask(there(code, {"rule.asgd.cap": 3, "seed": 7}), asgd)
    with pytest.raises(UsageError, match=r"with config.rule.asgd.cap=3, not none"):
        ask(there(entries={"rule.asgd.cap": 3}), asgd)
