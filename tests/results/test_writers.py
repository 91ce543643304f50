"""Writers: what TensorBoard and Weights & Biases are given is what the metrics file holds."""

import contextlib
import json
import struct
import sys
import time
import types

import pytest

from sgdlab.errors import UsageError
from sgdlab.results import writers

WHAT = {"method": "asgd", "seed": 1, "rank": 3, "serial": False, "guess": 0.1, "metric": "accuracy"}
CONFIG = {"epochs": 2.0, "target": None, "network": {"kind": "mlp", "mlp": {"widths": [8, 4], "bias": True}}}
RUN = {"kind": "run", **WHAT, "config": CONFIG}
EVALUATIONS = [
    {
        "kind": "evaluation",
        "gradients": 8 * i,
        "seconds": 2.5 * i,
        "test_loss": 1.0 / (i + 1),
        "gap": None if i == 0 else 0.5 * i,
    }
    for i in range(3)
]
SUMMARY = {
    **{"kind": "summary", **WHAT, "gradients": 16, "test_accuracy": 0.75, "diverged": False},
    **{"staleness": 1.5, "capacity": 0.5, "compute_seconds": 2.0, "steps": 16},
}
RECORDS = [RUN, *EVALUATIONS, SUMMARY]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def written(name, path):
    with writers.opened([name], path, "asgd-n8-seed1") as (writer,):
        for record in RECORDS:
            writer.write(record)


def events(folder):
    """The events of a log: records of a length, its checksum, the message, its checksum."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            yield event_pb2.Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]


def scalars(folder):
    found = {}
    for event in events(folder):
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def leveldb_records(data, block=2**15, head=7):
    """The records of a log in LevelDB's format: blocks of chunks, each a checksum, a length and a type."""
    whole, at = b"", head  # the file's own head
    while at + head <= len(data):
        left = block - at % block
        if left < head:
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + head])
        whole += data[at + head : at + head + length]
        at += head + length
        if kind in (1, 4):  # a whole record, or the last chunk of one
            yield whole
            whole = b""


def wandb_records(folder, patience=60.0):
    """The records of the only offline run; on a busy machine its last ones are written after its process has ended."""
    proto = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    (log,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    end = time.monotonic() + patience
    while True:
        found = [proto.Record.FromString(data) for data in leveldb_records(log.read_bytes())]
        if any(record.WhichOneof("record_type") == "exit" for record in found) or time.monotonic() > end:
            return found
        time.sleep(0.1)


def test_tensorboard_has_every_number_at_its_gradient(tmp_path):
    pytest.importorskip("tensorboardX")
    written("tensorboard", tmp_path)
    written("tensorboard", tmp_path)  # a run that is made anew does not stand beside its old self
    found = scalars(tmp_path / "tensorboard/asgd-n8-seed1")
    assert [step for step, _ in found["test_loss"]] == [0, 8, 16]
    assert [value for _, value in found["test_loss"]] == pytest.approx([e["test_loss"] for e in EVALUATIONS])
    assert found["gap"] == [(8, 0.5), (16, 1.0)]
    assert found["summary/test_accuracy"] == [(16, 0.75)]
    assert found["by_seconds/gap"] == [(2500, 0.5), (5000, 1.0)]  # virtual milliseconds
    assert "by_seconds/seconds" not in found
    # Each is a picture of one point: neither settings nor counts.
    assert {tag for tag in found if tag.startswith("summary/")} == {
        f"summary/{name}" for name in ("test_accuracy", "staleness", "diverged")
    }
    assert "seed" not in found
    texts = [v for e in events(tmp_path / "tensorboard/asgd-n8-seed1") for v in e.summary.value if "conf" in v.tag]
    assert json.dumps(RUN["config"], indent=2).encode() in texts[0].tensor.string_val[0]


@pytest.mark.full
def test_wandb_has_every_number_at_its_gradient(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    written("wandb", tmp_path / "runs")
    history, summary, config, run, steps = [], {}, {}, None, {}
    for record in wandb_records(tmp_path / "runs"):
        kind = record.WhichOneof("record_type")
        if kind == "history":
            items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            history.append(items)
        elif kind == "summary":
            summary |= {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in record.summary.update}
        elif kind == "config":
            config |= {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in record.config.update}
        elif kind == "metric":
            steps[record.metric.glob_name or record.metric.name] = record.metric.step_metric
        elif kind == "run":
            run = record.run
    assert (run.project, run.display_name) == ("runs", "asgd-n8-seed1")
    assert [items["test_loss"] for items in history] == [e["test_loss"] for e in EVALUATIONS]
    assert [items["_step"] for items in history] == [0, 8, 16]
    assert "gap" not in history[0]
    assert [items["by_seconds/test_loss"] for items in history] == [e["test_loss"] for e in EVALUATIONS]
    assert steps["by_seconds/*"] == "seconds"
    assert (summary["test_accuracy"], summary["capacity"]) == (0.75, 0.5)
    assert not {"rank", "serial", "guess"} & summary.keys()
    assert config["epochs"] == 2.0


def test_tensorboard_has_the_settings_as_hyperparameters_of_the_same_run(tmp_path):
    proto = pytest.importorskip("tensorboardX.proto.plugin_hparams_pb2")
    written("tensorboard", tmp_path)
    (run,) = (tmp_path / "tensorboard").iterdir()
    found = {}
    for event in events(run):
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "hparams":
                found[value.tag] = proto.HParamsPluginData.FromString(value.metadata.plugin_data.content)
    given = found["_hparams_/session_start_info"].session_start_info.hparams
    assert {name: getattr(value, value.WhichOneof("kind")) for name, value in given.items()} == {
        "epochs": 2.0, "network.kind": "mlp", "network.mlp.widths": "[8, 4]", "network.mlp.bias": True,
    }  # fmt: skip
    metrics = [info.name.tag for info in found["_hparams_/experiment"].experiment.metric_infos]
    assert metrics == ["summary/test_accuracy", "summary/test_loss", "summary/seconds_to_target"]
    assert "_hparams_/session_end_info" in found


@pytest.mark.parametrize("failed", [False, True])
def test_wandb_says_how_a_run_ended(tmp_path, monkeypatch, failed):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    with contextlib.suppress(KeyboardInterrupt), writers.opened(["wandb"], tmp_path / "runs", "x"):
        if failed:
            raise KeyboardInterrupt
    records = wandb_records(tmp_path / "runs")
    (ended,) = (record.exit.exit_code for record in records if record.WhichOneof("record_type") == "exit")
    assert ended == failed


def test_writers_are_closed_and_are_told_of_a_failure(tmp_path, monkeypatch):
    seen = []

    class Own:
        def __init__(self, directory, name):
            self.where = (directory, name)

        def write(self, record):
            seen.append(record["kind"])

        def close(self, *, failed):
            seen.append((self.where, failed))

    monkeypatch.setitem(writers.WRITERS, "own", Own)
    writers.check(["own"])
    written("own", tmp_path)
    where = (tmp_path, "asgd-n8-seed1")
    assert seen == [*(record["kind"] for record in RECORDS), (where, False)]
    with pytest.raises(KeyboardInterrupt), writers.opened(["own"], *where):
        raise KeyboardInterrupt
    assert seen[-1] == (where, True)


def test_who_is_not_logged_in_is_told_in_one_line(monkeypatch, tmp_path):
    class Refusal(Exception):
        """As wandb raises it, which takes a second to import."""

    def refuse(**given):
        raise Refusal("No API key configured.")

    errors, settings = types.SimpleNamespace(UsageError=Refusal), lambda **given: None
    wandb = types.SimpleNamespace(init=refuse, errors=errors, Settings=settings)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    with (
        pytest.raises(UsageError, match=r"^--writers=wandb: No API key configured\. WANDB_MODE=offline needs no login"),
        writers.opened(["wandb"], tmp_path, "x"),
    ):
        pass


def test_what_is_not_known_or_not_installed_is_refused(monkeypatch):
    with pytest.raises(UsageError, match="--writers=csv must be one of tensorboard, wandb"):
        writers.check(["csv"])
    monkeypatch.setattr(writers.TensorBoard, "package", "no_such_package")
    with pytest.raises(UsageError, match=r"--writers=tensorboard needs .*sgdlab\[tensorboard\]"):
        writers.check(["tensorboard"])
