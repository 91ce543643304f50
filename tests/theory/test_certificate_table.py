"""The table of certificates: cells, notes said once for methods alike, and formats that agree."""

import csv
import io
import json
import math

import numpy as np

from sgdlab import protocols, theory
from sgdlab.report import table
from sgdlab.theory import certificate_table

SECONDS = np.array([1.0, 1.0, 9.0])
RUNTIMES = np.tile(SECONDS, (40, 1))
PROBLEM = theory.Problem(variance=4.0)


def certificates(*titles):
    own = {
        "Sync": lambda: protocols.synchronous(RUNTIMES),
        "Gossip": lambda: protocols.gossip(RUNTIMES, kind="pull", num_gradients=50, seed=0),
    }
    return {t: theory.certificate(own.get(t, lambda: protocols.asynchronous(RUNTIMES))()) for t in titles}


def known(*titles, **others):
    return certificate_table.Certified(certificates(*titles), PROBLEM, **others)


def notes(*titles, **others):
    return certificate_table.notes(known(*titles, **others))


def test_a_row_has_the_numbers_of_the_certificate():
    (row,) = certificate_table.table(known("Sync")).rows
    # R = 2: 4 * 3 + 8 * 4 gradients, three of which take 9 s.
    assert row[:5] == ["Sync", "2", "44", "132", "0"]
    assert row[8:] == ["3 of 3", "0 (1.00)"]
    assert len(row) == len(certificate_table.COLUMNS)


def test_without_a_server_cells_are_empty_and_a_note_says_why():
    (row,) = certificate_table.table(known("Gossip")).rows
    assert row[1:6] == ["-"] * 5
    assert any(note.startswith("Gossip: Without a server") for note in notes("Gossip"))


def test_methods_alike_are_named_together():
    said = [note for note in notes("A", "B", "Sync") if "under-used" in note]
    assert len(said) == 1
    assert "of worker 2 under A and B." in said[0]
    many = next(note for note in notes(*"ABCDEFGH") if "under-used" in note)
    assert "under A, B, C, D, E, F and 2 more." in many


def test_a_rule_that_weighs_workers_alike_under_uses_nobody():
    found = notes("A", "B", balanced={"B"})
    assert any("of worker 2 under A." in note for note in found)
    assert any("all workers weigh alike under B" in note for note in found)


def test_methods_of_local_steps_are_named():
    assert "another than the server's: Async." in notes("Sync", "Async", local={"Async"})[-1]
    assert not any("of their own, these" in note for note in notes("Sync", "Async"))


def test_the_least_times_are_said_where_seconds_are_known():
    assert not any("No method can be faster" in note for note in notes("A"))
    (least,) = [note for note in notes("A", seconds=SECONDS) if "No method can be faster" in note]
    for floor in (theory.homogeneous(SECONDS, PROBLEM), theory.heterogeneous(SECONDS, PROBLEM)):
        assert f"{certificate_table.number(floor.seconds)} s" in least


def test_every_format_has_the_same_numbers():
    found = known("Sync", "A", "Gossip", seconds=SECONDS)
    entries = json.loads(certificate_table.as_json(found))
    rows = list(csv.DictReader(io.StringIO(certificate_table.comma_separated(found))))
    for row, (title, one) in zip(rows, found.certificates.items(), strict=True):
        assert row["method"] == title
        iterations = one.iterations(PROBLEM)
        assert row["iterations"] == ("" if iterations is None else str(iterations))
        assert entries["certificates"][title]["iterations"] == iterations
        assert float(row["effective_workers"]) == one.effective_workers
    assert entries["floors"]["workers"] == 2
    text, markdown = certificate_table.table(found).text(), certificate_table.table(found).markdown()
    for note in certificate_table.notes(found):
        assert note in " ".join(text.split())
        assert note in markdown
    assert max(map(len, text.splitlines())) <= table.WIDTH


def test_numbers_that_are_not_finite():
    assert (certificate_table.number(math.inf), certificate_table.number(math.nan)) == ("never", "-")
    entries = json.loads(certificate_table.as_json(known("A", seconds=np.array([1.0, math.inf, 1.0]))))
    assert entries["floors"]["heterogeneous"] is None
