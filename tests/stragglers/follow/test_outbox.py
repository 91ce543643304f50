"""Alarms that are sent: to a real server that answers, is slow, refuses or is dead; nobody waits for it."""

import contextlib
import http.server
import json
import logging
import threading

import pytest
from planted_traces import noise
from test_follow import HEADER, answer, text_of

from sgdlab.stragglers.diagnosis.causes import HANGS, SILENT
from sgdlab.stragglers.follow import outbox
from sgdlab.stragglers.follow.outbox import Outbox, Refused, webhook


@pytest.fixture(name="server")
def what_posts_are_sent_to(monkeypatch):
    """A server: its address, the bodies and paths that came, the statuses to answer with, and an event it waits for."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.got.append((self.path, self.headers["Content-Type"], body))
            made.go.wait(20)
            with contextlib.suppress(OSError):  # who asked has gone
                self.send_response(made.statuses.pop(0) if made.statuses else 200)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

        do_GET = do_POST  # noqa: N815

        def log_message(self, *_):
            pass

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url, made.got, made.statuses, made.go = f"http://127.0.0.1:{made.server_port}", [], [], threading.Event()
    made.go.set()
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.go.set()
    made.shutdown()
    made.server_close()


def numbers(server):
    return [json.loads(body)["step"] for _, _, body in server.got]


def test_alarms_arrive_in_their_order_as_json(server):
    with Outbox("webhook", webhook(f"{server.url}/hook?key=1")) as box:
        for step in range(5):
            box.put({"step": step, "text": "é"})
    assert (box.given, box.sent, box.lost, box.why) == (5, 5, 0, "")
    assert numbers(server) == [0, 1, 2, 3, 4]
    assert {(path, kind) for path, kind, _ in server.got} == {("/hook?key=1", "application/json")}


def test_what_fails_is_sent_again_after_growing_pauses_and_what_is_refused_is_not(server, monkeypatch):
    pauses, sleep = [], lambda _: None
    monkeypatch.setattr(outbox.time, "sleep", sleep)
    server.statuses = [503, 429, 200, 404, 302]
    box = Outbox("webhook", webhook(server.url), pauses=(0.3, 0.6, 0.9))
    monkeypatch.setattr(box._closing, "wait", pauses.append)
    with box:
        for step in range(4):
            box.put({"step": step})
    assert numbers(server) == [0, 0, 0, 1, 2, 3]  # a redirection is not followed
    assert (box.sent, box.lost) == (2, 2)
    assert box.why == "the server answers 302 Found"
    assert pauses == pytest.approx([0.0, 0.1, 0.4, 0.0, 0.0, 0.0])
    assert list(outbox.PAUSES) == sorted(outbox.PAUSES)


def test_nobody_waits_for_a_server_that_does_not_answer_and_the_oldest_are_dropped(server, monkeypatch):
    monkeypatch.setattr(outbox, "TIMEOUT", 20.0)
    server.go.clear()
    box = Outbox("webhook", webhook(server.url), most=10)
    box.put({"step": 0})
    while not server.got:  # it is being sent, and hangs
        pass
    for step in range(1, 31):
        box.put({"step": step})
    assert box.lost == 20
    server.go.set()
    with box:
        pass
    assert numbers(server) == [0, *range(21, 31)]
    assert (box.given, box.lost) == (31, 20)


def test_a_dead_server_and_one_that_hangs_are_given_up_at_the_end(server, monkeypatch):
    monkeypatch.setattr(outbox, "TIMEOUT", 0.3)
    server.go.clear()
    dead = webhook("http://127.0.0.1:9")
    with Outbox("a", dead) as refused, Outbox("b", webhook(server.url)) as hung:
        for step in range(3):
            refused.put({"step": step})
            hung.put({"step": step})
    assert (refused.lost, refused.why) == (3, "Connection refused")
    assert hung.lost == 3
    assert hung.why in ("timed out", "there was no answer in time")


def test_a_try_that_raises_anything_ends_no_diagnosis():
    def send(record):
        raise KeyError("x") if record["step"] else Refused("no")

    with Outbox("a", send, pauses=(0.0,)) as box:
        box.put({"step": 0})
        box.put({"step": 1})
    assert (box.lost, box.why) == (2, "'x'")


@pytest.fixture(name="slow_trace")
def trace_with_a_slow_worker(tmp_path):
    runtimes = noise(300, 8, 0)
    runtimes[200:, 5] *= 1.7
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + text_of(runtimes))
    return [f"--follow={path}", "--once", f"--workdir={tmp_path}"]


def test_the_command_posts_each_alarm_once_however_often_the_trace_is_read(server, slow_trace, tmp_path):
    for _ in range(2):
        assert answer(*slow_trace, f"--webhook={server.url}") == 3
    ((_, _, body),) = server.got
    record, (line,) = json.loads(body), (tmp_path / "alarms.jsonl").read_text().splitlines()
    text = record.pop("text")
    assert record == json.loads(line)
    assert "worker 5 has been" in text


def test_the_command_says_what_did_not_arrive_and_its_answer_is_the_same(server, slow_trace, capsys):
    server.statuses = [410]
    assert answer(*slow_trace, f"--webhook={server.url}/secret") == 3
    errors = capsys.readouterr().err
    assert "--webhook: 1 of 1 alarm did not arrive: the server answers 410 Gone" in errors
    assert "secret" not in errors


def test_alarms_are_logs_of_opentelemetry(server, slow_trace, capsys):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="opentelemetry-exporter-otlp-proto-http")
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest  # noqa: PLC0415

    assert answer(*slow_trace, f"--otlp={server.url}") == 3
    ((path, kind, body),) = server.got
    assert (path, kind) == ("/v1/logs", "application/x-protobuf")
    (resource,) = ExportLogsServiceRequest.FromString(body).resource_logs
    assert "sgdlab" in [pair.value.string_value for pair in resource.resource.attributes if pair.key == "service.name"]
    (log,) = resource.scope_logs[0].log_records
    known = {pair.key.removeprefix("sgdlab.alarm."): pair.value for pair in log.attributes}
    assert (log.event_name, log.severity_text) == ("sgdlab.alarm", "WARN")
    assert log.body.string_value in capsys.readouterr().out
    assert (known["kind"].string_value, known["since"].int_value) == ("slow worker", 200)
    assert [each.string_value for each in known["workers"].array_value.values] == ["5"]
    assert known["factor"].double_value == pytest.approx(1.7, rel=0.1)


def test_what_stops_a_job_is_an_error_and_what_is_over_is_no_warning(server):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="opentelemetry-exporter-otlp-proto-http")
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest  # noqa: PLC0415

    from sgdlab.stragglers.follow.otlp import log_sender  # noqa: PLC0415

    send, severities = log_sender(server.url), []
    cases = ((SILENT, "raised"), (HANGS, "raised"), (SILENT, "cleared"), ("slow worker", "worse"))
    for kind, event in cases:
        send({"time": 1.0, "text": "words", "kind": kind, "event": event})
    for _, _, body in server.got:
        (resource,) = ExportLogsServiceRequest.FromString(body).resource_logs
        severities += [log.severity_text for log in resource.scope_logs[0].log_records]
    assert severities == ["ERROR", "ERROR", "INFO", "WARN"]


def test_a_collector_that_refuses_logs_is_said_once(server, slow_trace, capfd, monkeypatch):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="opentelemetry-exporter-otlp-proto-http")
    server.statuses, logged = [400] * 50, logging.Handler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [logged])
    monkeypatch.setattr(logged, "handle", lambda record: pytest.fail(record.getMessage()))
    assert answer(*slow_trace, f"--otlp={server.url}") == 3
    errors = capfd.readouterr().err
    assert "--otlp: 1 of 1 alarm did not arrive: the collector does not answer, or refuses the logs" in errors
    assert "Failed to export" not in errors
