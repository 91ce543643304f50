"""The PeerSchedule refuses whatever contradicts itself, and says of a small run what can be counted by hand.

The run (2 nodes and a center, 5 seconds; in brackets what a gradient is taken at):

    second      0   1   2   3   4   5
    node 0      [ 0 ][   3   ][ ]           3 = 3/4 of its own 2 and 1/4 of the center's 0
    node 1      [   0   ]   [   3   ]       3 = half of its own 2, 1/4 of node 0's 3 and 1/4 of the center's 2
    center          2                       2 = 3/4 of its own 0 and 1/4 of node 0's 2
"""

import dataclasses
import re

import numpy as np
import pytest

from sgdlab import PeerSchedule

ARRAYS = {
    "node": np.int32,
    "started": np.float64,
    "finished": np.float64,
    "event": np.int32,
    "source": np.int32,
    "source_version": np.int32,
    "weight": np.float64,
}
EVENTS = ("node", "started", "finished")
EDGES = ("event", "source", "source_version", "weight")
END = 5


def fields() -> dict:
    events = [(0, 0, 1), (1, 0, 2), (0, 1, 3), (2, 1, 1), (1, 3, END), (0, 3, 3.5)]
    edges = [
        (0, 0, 0, 1),
        (1, 1, 0, 1),
        (2, 0, 2, 0.75),
        (2, 2, 0, 0.25),
        (3, 2, 0, 0.75),
        (3, 0, 2, 0.25),
        (4, 1, 2, 0.5),
        (4, 0, 3, 0.25),
        (4, 2, 2, 0.25),
        (5, 0, 4, 1),
    ]
    columns = dict(zip(EVENTS, zip(*events, strict=True), strict=True))
    columns |= dict(zip(EDGES, zip(*edges, strict=True), strict=True))
    return {name: np.array(column, float) for name, column in columns.items()} | {"num_nodes": 2}


def small(**changed) -> PeerSchedule:
    return PeerSchedule(**fields() | changed)


def not_fresh() -> PeerSchedule:
    return small(fresh=False)


def no_center() -> PeerSchedule:
    return PeerSchedule([0, 1], [0, 0], [1, 2], [0, 1, 1], [0, 1, 0], [0, 0, 1], [1, 0.5, 0.5], num_nodes=2)


def empty() -> PeerSchedule:
    return PeerSchedule([], [], [], [], [], [], [], num_nodes=3)


def put(name: str, row, value: float) -> dict:
    array = fields()[name].copy()
    array[row] = value
    return {name: array}


VERSIONS = "0 or a version that earlier events have made"
LATER = "finite and later than started"
IN_ORDER = "0 to E - 1 in order, none left out"


class TestValidation:
    def test_accepts_the_example(self):
        schedule = small()
        assert (schedule.num_nodes, schedule.num_workers, schedule.num_gradients) == (2, 2, 5)
        assert schedule.fresh
        assert schedule.has_center

    @pytest.mark.parametrize("num_nodes", [0, -1])
    def test_number_of_nodes(self, num_nodes):
        with pytest.raises(ValueError, match=rf"num_nodes={num_nodes} must be at least 1"):
            small(num_nodes=num_nodes)

    @pytest.mark.parametrize("names", [EVENTS, EDGES])
    @pytest.mark.parametrize("shape", [(5,), (11,), (6, 1), (10, 1), ()])
    def test_shapes(self, names, shape):
        for name in names:
            with pytest.raises(
                ValueError, match=rf"{', '.join(names)} must have one shape.*{name}.*{re.escape(str(shape))}"
            ):
                small(**{name: np.zeros(shape)})

    @pytest.mark.parametrize("names", [EVENTS, EDGES])
    def test_tables(self, names):
        with pytest.raises(ValueError, match="must have one shape, \\[events\\] or \\[edges\\]"):
            small(**{name: fields()[name][:, None] for name in names})

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            (put("node", 4, -1), "node=-1 in row 4 must be 0 to 2"),
            (put("node", 4, 3), "node=3 in row 4 must be 0 to 2"),
            *[(put("started", 2, value), f"started={value} in row 2 must be finite, not negative")
              for value in (-1.0, np.nan, np.inf)],
            (put("finished", 2, 1), f"finished=1.0 in row 2 must be {LATER}"),
            (put("finished", 2, 0.5), f"finished=0.5 in row 2 must be {LATER}"),
            (put("finished", 2, np.nan), f"finished=nan in row 2 must be {LATER}"),
            (put("finished", 2, np.inf), f"finished=inf in row 2 must be {LATER}"),
            (put("finished", 3, 0.5), f"finished=0.5 in row 3 must be {LATER}"),  # of the center
            (put("event", 0, 1), f"event=1 in row 0 must be {IN_ORDER}"),
            (put("event", 0, -2), f"event=-2 in row 0 must be {IN_ORDER}"),
            (put("event", 3, 4), f"event=4 in row 3 must be {IN_ORDER}"),
            (put("event", 9, 3), f"event=3 in row 9 must be {IN_ORDER}"),
            (put("event", 9, 6), f"event=6 in row 9 must be {IN_ORDER}"),
            ({name: fields()[name][:5] for name in EVENTS}, f"event=5 in row 9 must be {IN_ORDER}"),
            ({name: fields()[name][:9] for name in EDGES}, "event must name all 6 events"),
            ({name: [] for name in EDGES}, "event must name all 6 events"),
            (put("source", 7, -1), "source=-1 in row 7 must be 0 to 2"),
            (put("source", 7, 3), "source=3 in row 7 must be 0 to 2"),
            (put("weight", 7, np.nan), "weight=nan in row 7 must be finite"),
            (put("weight", 7, np.inf), "weight=inf in row 7 must be finite"),
            (put("weight", 2, 0.5), "weight=0.75 in row 2 must be such that those of an event add up to 1"),
            (put("weight", 9, 1 + 1e-8), "in row 5 must be such that those of an event add up to 1"),
            (put("source_version", 9, -1), f"source_version=-1 in row 9 must be {VERSIONS}"),
            # An event does not read what it makes itself.
            (put("source_version", 0, 1), f"source_version=1 in row 0 must be {VERSIONS}"),
            (put("source_version", 2, 3), f"source_version=3 in row 2 must be {VERSIONS}"),
            (put("source_version", 2, 4), f"source_version=4 in row 2 must be {VERSIONS}"),
            # Nor what later ones make, nor what nobody makes.
            (put("source_version", 7, 5), f"source_version=5 in row 7 must be {VERSIONS}"),
            (put("source_version", 7, 7), f"source_version=7 in row 7 must be {VERSIONS}"),
            (put("source_version", 3, 2), f"source_version=2 in row 3 must be {VERSIONS}"),
            (put("source_version", 8, 3), f"source_version=3 in row 8 must be {VERSIONS}"),
        ],
    )  # fmt: skip
    def test_rows_that_contradict_each_other(self, changed, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            small(**changed)

    @pytest.mark.parametrize(
        "changed",
        [
            put("finished", 3, 1.5),  # the center may take its time
            put("source_version", 7, 4),  # the newest that there is
            put("source_version", 7, 0),
            put("source_version", 8, 1),
            put("weight", [2, 3], [1.5, -0.5]),
            put("weight", 9, 1 + 1e-12),
        ],
    )
    def test_rows_that_do_not(self, changed):
        small(**changed)

    def test_a_version_exists_from_the_event_after_the_one_that_makes_it(self):
        make = lambda version: PeerSchedule(
            [0, 1], [0, 0], [1, 1], [0, 1, 1], [0, 1, 0], [0, 0, version], [1, 0.5, 0.5], 2
        )
        for version in (0, 1, 2):
            make(version)
        with pytest.raises(ValueError, match="source_version=3 in row 2"):
            make(3)

    @pytest.mark.parametrize("name", ["node", "event", "source", "source_version"])
    @pytest.mark.parametrize("value", [0.5, 2.0**40, np.nan])
    def test_what_is_no_whole_number(self, name, value):
        with pytest.raises(ValueError, match=f"{name} of dtype float64 must hold whole numbers of int32"):
            small(**put(name, 3, value))


def moving(**changed) -> PeerSchedule:
    """Two nodes with companions: node 1 averages with node 0 while it computes, and so does its companion, number 4."""
    events = [(0, 0, 1, 0), (1, 1, 1, -1), (4, 1, 1, -1), (1, 0, 2, 0)]
    edges = [(0, 0, 0, 1), (1, 1, 0, 0.5), (1, 0, 2, 0.5), (2, 4, 0, 1), (2, 0, 2, 0.5), (2, 0, 0, -0.5), (3, 1, 2, 1)]
    columns = dict(zip((*EVENTS, "read"), zip(*events, strict=True), strict=True))
    columns |= dict(zip(EDGES, zip(*edges, strict=True), strict=True))
    own = {"scale": [1, 1, 1, 0.5], "num_nodes": 2, "fresh": False, "companions": True}
    return PeerSchedule(**{name: np.array(column, float) for name, column in columns.items()} | own | changed)


class TestMoves:
    def test_are_no_gradients(self):
        schedule = moving()
        assert (schedule.num_gradients, schedule.num_variables, schedule.has_center) == (2, 5, False)
        assert schedule.takes_gradient().tolist() == [True, False, False, True]
        assert schedule.reads().tolist() == [0, -1, -1, 0]
        np.testing.assert_array_equal(schedule.number(), [0, 0, 0, 1])
        np.testing.assert_array_equal(schedule.gradient_number(), [0, 0])
        np.testing.assert_array_equal(small().gradient_number(), [0, 0, 1, 1, 2])
        np.testing.assert_array_equal(schedule.busy_share(), [0.5, 1.0])
        assert (small().read, small().scale, small().num_variables) == (None, None, 3)
        assert small().reads().tolist() == [1, 1, 3, -1, 3, 5]
        assert not_fresh().reads().tolist() == [0, 0, 2, -1, 2, 4]

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"read": [0, -1, -1, 3]}, "read=3 in row 3 must be -1, or a version from before its event"),
            ({"read": [-2, -1, -1, 0]}, "read=-2 in row 0 must be -1, or a version from before its event"),
            (
                {"read": [0, -1, 0, 0], "finished": [1, 1, 2, 2]},
                "read=0 in row 2 must be -1: only nodes take gradients",
            ),
            ({"fresh": True}, "read=0 in row 0 must be -1, or the version that its event averages"),
            ({"read": [0, 0, -1, 0]}, "finished=1.0 in row 1 must be finite and later than started"),
            ({"read": [0, -1]}, "read has shape (2,); there are 4 events"),
            ({"scale": np.ones(5)}, "scale has shape (5,); there are 4 events"),
            ({"scale": [1, 1, 1, np.inf]}, "scale=inf in row 3 must be finite"),
            ({"companions": False}, "node=4 in row 2 must be 0 to 2"),
            ({"source": [0, 1, 0, 5, 0, 0, 1]}, "source=5 in row 3 must be 0 to 4"),
        ],
    )
    def test_and_gradients_that_contradict_the_rest_are_refused(self, changed, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            moving(**changed)

    def test_are_in_the_file_where_there_are_some(self, tmp_path):
        small().save(tmp_path / "plain.npz")
        with np.load(tmp_path / "plain.npz") as stored:
            assert set(stored.files) == {*ARRAYS, "num_nodes", "fresh"}


class TestCounted:
    def test_number_of_each_nodes_events(self):
        np.testing.assert_array_equal(small().number(), [0, 0, 1, 0, 1, 2])
        random = np.random.default_rng(0).integers(0, 4, 50)
        event = np.arange(50)
        schedule = PeerSchedule(random, event, event + 1.0, event, random, 0 * event, np.ones(50), num_nodes=4)
        expected = [int((random[:place] == node).sum()) for place, node in enumerate(random)]
        np.testing.assert_array_equal(schedule.number(), expected)

    def test_clock_and_throughput(self):
        assert small().wall_clock() == END
        assert small().gradients_per_second() == 5 / END
        assert (no_center().wall_clock(), no_center().gradients_per_second()) == (2, 1)

    def test_shares_of_the_wall_clock(self):
        """The center takes no time of anybody's."""
        np.testing.assert_allclose(small().busy_share(), [3.5 / END, 4 / END], rtol=1e-15)
        np.testing.assert_allclose(small().idle_share(), [1.5 / END, 1 / END], rtol=1e-14)

    def test_a_node_without_events_is_idle(self):
        schedule = dataclasses.replace(no_center(), num_nodes=3)
        np.testing.assert_array_equal(schedule.busy_share(), [1 / 2, 1, 0])
        np.testing.assert_array_equal(schedule.idle_share(), [1 / 2, 0, 1])

    def test_nothing_happened(self):
        schedule = empty()
        assert schedule.wall_clock() == schedule.gradients_per_second() == schedule.num_gradients == 0
        assert not schedule.has_center
        np.testing.assert_array_equal(schedule.busy_share(), [0, 0, 0])
        assert schedule.number().size == 0

    @pytest.mark.parametrize("make", [small, no_center, empty])
    def test_its_text_is_one_line_with_the_counts(self, make):
        schedule = make()
        counts = [schedule.num_nodes, schedule.num_gradients, schedule.event.size, schedule.wall_clock()]
        assert [float(number) for number in re.findall(r"\d+\.?\d*", str(schedule))] == counts
        assert ("center" in str(schedule)) == schedule.has_center
        assert "\n" not in str(schedule)
