"""Written records are put together as if they had been in memory, in the memory of what comes out."""

import functools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sgdlab import arrays, policies
from sgdlab.live.checkpoint import RecordFile, read_parts
from sgdlab.live.engine import LiveEngine
from sgdlab.live.settings import LiveSettings
from sgdlab.live.transport import Nobody
from sgdlab.protocols import recorder as recorders
from sgdlab.protocols.recorder import Recorder, Row
from sgdlab.schedule import DROPPED, PENDING

WORKERS = 4
COLUMNS = ("ticket", "worker", "read", "started", "arrived", "update", "fate", "seconds", "loss", "life")


def happened(draw, events, folder):
    """A run of events of several gradients each, some of which end at the same instant; its recorder and its rows.

    Parts of what has ended are written to a file on the way. The rows are kept in Python, as `Row` has them.
    """
    recorder, file, rows, now, length = Recorder(), RecordFile(folder), {}, 0.0, 0

    def begin(worker):
        ticket = len(rows)
        rows[ticket] = Row(ticket, worker, recorder.updates, now, life=int(draw.integers(3)))
        recorder.began(ticket, worker, recorder.updates, now, life=rows[ticket].life)

    for worker in range(WORKERS):
        begin(worker)
    for _ in range(events):
        now += float(draw.integers(1, 4))
        open_rows = [rows[ticket] for ticket in recorder.open]
        ending = [open_rows[place] for place in draw.permutation(len(open_rows))[: draw.integers(1, 4)]]
        takes = False
        for row in ending:
            if draw.random() < 0.5:
                row.seconds = float(draw.random())
                recorder.took(row.ticket, row.seconds)
            row.loss = recorder.open[row.ticket].loss = float(draw.random())
            used = draw.random() < 0.6
            takes |= used
            row.arrived, row.update, row.fate = now, recorder.updates if used else DROPPED, "" if used else "late"
            recorder.ended(row.ticket, now, row.update, row.fate)
        if takes and draw.random() < 0.8:
            recorder.closed(now)
        elif takes:
            open_update = [row for row in rows.values() if row.update == recorder.updates]
            assert open_update  # it is still open
        for row in rows.values():  # what is said later, and perhaps twice
            if row.ticket not in recorder.open and draw.random() < 0.1:
                said = float(draw.random())
                recorder.took(row.ticket, said)
                row.seconds = said if math.isnan(row.seconds) else row.seconds
        for row in ending:
            begin(row.worker)
        if draw.random() < 0.3:
            length = file.add(recorder.take())
    file.close()
    return recorder, rows, functools.partial(read_parts, folder, length)


def naive(recorder, rows, applied):
    """The rows of the schedule, sorted in Python."""
    end, found = applied[-1] if applied else 0.0, []
    for place, row in enumerate(sorted(rows.values(), key=lambda row: (math.isnan(row.arrived), row.arrived))):
        pending = math.isnan(row.arrived) or row.update >= len(applied)
        if pending and row.started >= end:
            continue
        update = PENDING if pending else row.update
        arrived = max(end, math.nextafter(row.started, math.inf)) if math.isnan(row.arrived) else row.arrived
        found.append((arrived, row.worker, place, row, update))
    return [(row, arrived, update) for arrived, _, _, row, update in sorted(found, key=lambda each: each[:3])]


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), events=st.integers(0, 60), at_once=st.sampled_from([1, 2, 7, 1 << 16]))
def test_rows_are_those_of_a_sort_in_memory(seed, events, at_once, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recorders, "_AT_ONCE", at_once)
        recorder, rows, before = happened(np.random.default_rng(seed), events, tmp_path_factory.mktemp("record"))
        applied = [at for part in [*before(), recorder.part] for at in part.columns["applied"]]
        schedule, found = recorder.schedule(WORKERS, before)
    expected = naive(recorder, rows, applied)
    assert found["ticket"].tolist() == [row.ticket for row, *_ in expected]
    for name in ("worker", "read", "started", "life"):
        assert found[name].tolist() == [getattr(row, name) for row, *_ in expected]
    np.testing.assert_array_equal(found["seconds"], [row.seconds for row, *_ in expected])
    np.testing.assert_array_equal(found["loss"], [row.loss for row, *_ in expected])
    assert found["fate"].tolist() == [row.fate for row, *_ in expected]
    assert schedule.arrived[:, 0].tolist() == [arrived for _, arrived, _ in expected]
    assert schedule.update[:, 0].tolist() == [update for *_, update in expected]
    assert schedule.applied[:, 0].tolist() == applied


def recorded(folder, gradients, at_once=1000):
    """The record of workers that take turns, which no process has in its memory at once."""
    file, times = RecordFile(folder), 2.0**-10
    for first in range(0, gradients, at_once):
        number = np.arange(first, min(first + at_once, gradients))
        arrived, nothing = (number + 1) * times, np.zeros(0)
        columns = {
            "ticket": number, "worker": number % WORKERS, "read": np.maximum(number - WORKERS + 1, 0),
            "started": np.maximum(arrived - WORKERS * times, 0.0), "arrived": arrived, "update": number,
            "fate": np.zeros(number.size), "seconds": np.full(number.size, times), "loss": arrived,
            "life": np.zeros(number.size), "applied": arrived, "late": nothing, "late_seconds": nothing,
        }  # fmt: skip
        length = file.add(recorders.RecordPart(columns))
    file.close()
    return functools.partial(read_parts, folder, length)


def test_memory_beside_the_arrays_of_a_recording_does_not_grow(tmp_path):
    more = []
    for gradients in (50_000, 200_000):
        folder = tmp_path / f"{gradients}"
        folder.mkdir()
        before = recorded(folder, gradients)
        given = {"num_workers": WORKERS, "num_gradients": gradients, "settings": LiveSettings()}
        engine = LiveEngine(policies.asynchronous(num_workers=WORKERS), None, Nobody(), **given)
        engine.flying.recorder.updates = gradients
        tracemalloc.start()
        recording = engine.recording({}, {}, before)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        schedule = recording.schedule
        own = [getattr(recording, name) for name in ("ticket", "seconds", "loss", "fate", "life")]
        own += [getattr(schedule, name) for name in COLUMNS if hasattr(schedule, name)] + [schedule.applied]
        assert recording.ledger()["applied"] == gradients
        assert sum(array.nbytes for array in own) == 112 * gradients
        more.append(peak - 112 * gradients)
    assert more[1] < more[0] + 6 * 150_000, more  # some marks of a byte, while it is checked


def test_an_array_is_copied_unless_nobody_can_write_it():
    values = np.arange(3.0)
    view = values[:]
    view.flags.writeable = False
    found = arrays.frozen_copy("x", view, np.float64)
    values[0] = 7.0
    assert found.tolist() == [0.0, 1.0, 2.0]
    assert arrays.frozen_copy("x", found, np.float64) is found
    assert arrays.frozen_copy("x", found, np.float32) is not found
    assert not arrays.frozen_copy("x", found[::2], np.float64).flags.writeable
