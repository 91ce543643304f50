"""The fields of schedules, programs and recordings have the shapes and dtypes that they are declared with."""

import dataclasses
import importlib
import sys

import jaxtyping
import numpy as np
import pytest

from sgdlab import protocols, replay
from sgdlab.traces import Recording

MODULES = (
    "sgdlab.schedule",
    "sgdlab.peer_schedule",
    "sgdlab.replay.server_program",
    "sgdlab.replay.peer_program",
    "sgdlab.traces.recording",
)
ALONE = ("applied", "waves", "pauses")  # their axes are those of no other field
RUNTIMES = np.array([[2.0, 3.0, 5.0]] * 6)
SCHEDULES = {
    "one block": protocols.backup_workers(RUNTIMES, backups=1),
    "two blocks": protocols.partial(RUNTIMES, num_servers=2),
    "peers": protocols.gossip(RUNTIMES, kind="pull", seed=0),
    "scaled peers": protocols.a2cid2(RUNTIMES, num_gradients=6),
}
SCHEDULES["scaled peers"] = dataclasses.replace(
    SCHEDULES["scaled peers"],
    read=SCHEDULES["scaled peers"].reads(),
    scale=np.ones(SCHEDULES["scaled peers"].node.size),
)


SCHEDULES |= {
    f"program of {kind}": replay.lower(SCHEDULES[kind], every=2) for kind in ("one block", "two blocks", "peers")
}
SCHEDULES["recording"] = Recording(
    RUNTIMES, np.arange(6), ("a", "b", "c"), phases={"all": RUNTIMES}, began=np.arange(6.0)
)


def fields_of(schedule):
    return {field.name: getattr(schedule, field.name) for field in dataclasses.fields(schedule)}


FIELDS = [
    (kind, name)
    for kind, schedule in SCHEDULES.items()
    for name, value in fields_of(schedule).items()
    if isinstance(value, np.ndarray)
]


@pytest.fixture(scope="module", name="checked")
def import_with_checks():
    """Copies of both modules in which the declared types are checked; the originals stay."""
    with pytest.MonkeyPatch.context() as patch:
        for name in MODULES:
            package, _, own = name.rpartition(".")
            patch.setattr(importlib.import_module(package), own, importlib.import_module(name))
            patch.delitem(sys.modules, name)
        with jaxtyping.install_import_hook(MODULES, "beartype.beartype"):
            yield {name: importlib.import_module(name) for name in MODULES}


def made(checked, kind, **others):
    """The schedule of a kind, made by the constructor that checks."""
    schedule = SCHEDULES[kind]
    module = checked[type(schedule).__module__]
    return getattr(module, type(schedule).__name__)(**{**fields_of(schedule), **others})


@pytest.mark.parametrize("kind", SCHEDULES)
def test_fields_have_the_types_that_they_are_declared_with(checked, kind):
    again = made(checked, kind)
    for name, value in fields_of(SCHEDULES[kind]).items():
        np.testing.assert_array_equal(getattr(again, name), value)


@pytest.mark.sample(60)
@pytest.mark.parametrize(("kind", "name"), FIELDS)
@pytest.mark.parametrize("wrong", [lambda a: a.astype(np.float32), lambda a: a[..., None]], ids=["dtype", "axes"])
def test_an_array_of_another_type_is_none_of_the_field(checked, kind, name, wrong):
    value = wrong(getattr(SCHEDULES[kind], name))
    with pytest.raises(jaxtyping.TypeCheckError):
        made(checked, kind, **{name: value})


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, name in FIELDS if name not in ALONE])
def test_axes_of_one_name_are_of_one_length(checked, kind, name):
    value = getattr(SCHEDULES[kind], name)
    with pytest.raises(jaxtyping.TypeCheckError):
        made(checked, kind, **{name: np.concatenate([value, value])})
