"""Test what `experiments.tuned` shows of the runs that are stored."""

from experiments import tuned


def test_workloads_that_are_stored_are_shown_and_chosen(monkeypatch, tmp_path, capsys):
    known = tuned.methods()
    monkeypatch.setattr(tuned, "methods", lambda: {name: known[name] for name in ("asgd", "nag_asgd")})
    monkeypatch.setattr(tuned, "RESULTS", tmp_path)
    monkeypatch.setattr(tuned, "CHOSEN", tmp_path / "chosen.json")
    tuned.store(["gamma-n8", "gamma-n32"])
    shown = capsys.readouterr().out
    for name in ("gamma-n8", "gamma-n32"):
        assert f"\n{name}\n" in shown
        text = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
        assert "| NAG-ASGD " in text
        assert "best of 24" in text
    written = {path.name for path in tmp_path.iterdir()}
    assert {"README.md", "methods.csv", "profiles.png", "chosen.json", "gamma-n8.png"} <= written
