"""The page of a live run: what it answers, and whom it refuses."""

import dataclasses
import html.parser
import http.client
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time

import psutil
import pytest
from statuses import KILLED, run

from sgdlab.live import status as page
from sgdlab.live.status import RunPage

STATUSES = list(run(8, seconds=25.0))


@pytest.fixture
def served():
    one = RunPage()
    one.show(STATUSES[0])
    yield one
    one.close(0)


def ask(one, path="/", method="GET", **headers):
    """Status code, headers and body of one answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port_of(one), timeout=30)
    connection.putrequest(method, path, skip_host=True)
    for name, value in ({"Host": "localhost"} | headers).items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def port_of(one):
    return int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/", one.address)[1])


def sent(one, path):
    status, _, body = ask(one, path)
    assert status == 200
    return json.loads(body)


def test_it_listens_on_loopback_only(served):
    listening = [each.laddr for each in psutil.Process().net_connections("inet") if each.status == psutil.CONN_LISTEN]
    assert [each.ip for each in listening if each.port == port_of(served)] == ["127.0.0.1"]


def test_it_sends_the_newest_status(served):
    for status in STATUSES:
        served.show(status)
        assert sent(served, "/status.json") == json.loads(json.dumps(dataclasses.asdict(status)))


def test_before_the_first_status_there_is_none():
    with RunPage() as one:
        assert sent(one, "/status.json") is None
        assert sent(one, "/history.json") == {"recent": [], "curve": []}


def test_what_json_cannot_hold_is_named(served):
    served.show(dataclasses.replace(STATUSES[5], loss=float("nan"), evaluation={"accuracy": float("-inf")}))
    status = sent(served, "/status.json")
    assert (status["loss"], status["evaluation"]) == ("nan", {"accuracy": "-inf"})


def test_a_page_that_is_opened_late_sees_the_last_seconds(served):
    statuses = list(run(2, seconds=100.0))
    for status in statuses:
        served.show(status)
    history = sent(served, "/history.json")
    last = [each for each in statuses if each.seconds >= statuses[-1].seconds - page.STRIP_SECONDS]
    assert history["recent"] == [[each.seconds, "".join(w.state[0] for w in each.workers)] for each in last]
    assert history["curve"][1:] == [[each.gradients, each.loss, each.gradients_per_second] for each in statuses]


def test_a_clock_that_begins_anew_begins_a_new_history(served):
    for status in (*STATUSES, *STATUSES[:3]):
        served.show(status)
    history = sent(served, "/history.json")
    assert [seconds for seconds, _ in history["recent"]] == [status.seconds for status in STATUSES[:3]]
    assert len(history["curve"]) == 3


def test_curves_stay_short_and_span_the_run(served):
    for step in range(7 * page.CURVE_POINTS):
        served.show(dataclasses.replace(STATUSES[0], gradients=step + 1, seconds=float(step)))
    steps = [point[0] for point in sent(served, "/history.json")["curve"]]
    assert page.CURVE_POINTS / 2 <= len(steps) <= page.CURVE_POINTS
    assert {later - earlier for earlier, later in itertools.pairwise(steps)} == {8}
    assert steps[-1] >= 7 * page.CURVE_POINTS - 8


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "X"])
def test_it_can_only_be_read(served, method):
    code, headers, _ = ask(served, "/status.json", method)
    assert (code, headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize("path", ["/page.html", "/../page.py", "/status.json/", "/?", "http://localhost/", "*"])
def test_it_has_three_addresses(served, path):
    assert ask(served, path)[0] == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost:80@evil", "", None]
)
@pytest.mark.parametrize("path", ["/", "/status.json", "/history.json"])
def test_foreign_names_are_refused(served, path, host):
    code, _, body = ask(served, path, Host=host)
    assert code == 403
    assert b"<" not in body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:1", "127.0.0.1:8000"])
def test_its_own_names_are_known_at_any_port(served, host):
    assert ask(served, Host=host)[0] == 200


@pytest.mark.parametrize("path", ["/", "/status.json", "/nothing"])
def test_other_pages_cannot_use_it(served, path):
    _, headers, _ = ask(served, path, Origin="http://evil.example")
    assert not [name for name in headers if name.lower().startswith("access-control")]
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["X-Frame-Options"] == "DENY"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]


def test_the_page_is_whole_in_itself_and_writes_only_text(served):
    text = ask(served)[2].decode()
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|srcdoc", text)
    assert not re.findall(r"(?:src|href)\s*=\s*\"(?!data:,\")|url\(|@import|https?:", text)
    assert not re.findall(r"<[^>]*\s(?:style|on\w+)=", text)


def test_a_port_that_cannot_be_used_is_an_error(served):
    with pytest.raises(ValueError, match=rf"^port={port_of(served)} of 127\.0\.0\.1 cannot be used"):
        RunPage(port_of(served))
    with pytest.raises(ValueError, match=r"^port=70000 is not a port"):
        RunPage(70000)


def test_whoever_hangs_up_or_talks_nonsense_does_no_harm(served, capfd):
    for words in (b"", b"GET", b"\x00\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n"):
        with socket.create_connection(("127.0.0.1", port_of(served)), timeout=30) as line:
            line.sendall(words)
    assert sent(served, "/status.json")["seconds"] == STATUSES[0].seconds
    assert capfd.readouterr() == ("", "")


def test_closing_waits_for_those_who_watch_to_read_the_end():
    one = RunPage()
    one.show(STATUSES[0])
    assert not sent(one, "/status.json")["finished"]
    one.show(STATUSES[-1])
    closing = threading.Thread(target=one.close, args=(60.0,))
    closing.start()
    assert sent(one, "/status.json")["finished"]
    closing.join(30)
    assert not closing.is_alive()
    with pytest.raises(ConnectionRefusedError):
        ask(one)


def test_closing_waits_for_nobody_if_nobody_watches():
    one = RunPage()
    one.show(STATUSES[-1])
    begin = time.monotonic()
    one.close(60.0)
    assert time.monotonic() - begin < 30


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(not BROWSER, reason="needs Chromium")
def test_a_browser_shows_the_run_and_runs_nothing_of_it(served, tmp_path):
    status = STATUSES[20]
    assert status.workers[KILLED].state == "lost"
    evil = "<img src=x onerror=\"document.title='broken in'\">"
    worker = dataclasses.replace(status.workers[KILLED], error=evil)
    workers = (*status.workers[:KILLED], worker, *status.workers[KILLED + 1 :])
    served.show(dataclasses.replace(status, title=evil, workers=workers, events=((1.0, evil),)))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom"]
    shown = subprocess.run(
        [*command, "--virtual-time-budget=1500", served.address],
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    ).stdout
    assert re.search(r"<h2 id=\"workers\">8 workers: .*1 lost", shown)
    assert f"of {status.num_gradients}, in {status.updates} updates" in shown
    document = Document(shown)
    assert "img" not in document.tags
    assert "".join(document.texts).count(evil) == 4  # title, heading, the worker's lane, event


class Document(html.parser.HTMLParser):
    """Hold the tags and texts of a document."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.texts.append(data)
