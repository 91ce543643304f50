"""Comparison of the records of two runs that should be the same."""

import json

import pytest


def read(folder, name="run"):
    """The records of a run in a work directory."""
    lines = (folder / "metrics" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def same(alone, over):
    """Records that differ in the rounding of float32 and in the time that the runs took, and in nothing else."""
    assert alone[0] == over[0]
    assert len(alone) == len(over)
    for first, second in zip(alone[1:], over[1:], strict=True):
        assert first.keys() == second.keys()
        for name in first.keys() - {"compute_seconds", "finished"}:
            wanted = pytest.approx(first[name], rel=1e-5) if isinstance(first[name], float) else first[name]
            assert second[name] == wanted, name
