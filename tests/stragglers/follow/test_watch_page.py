"""The page of a watch: it shows what was found, runs nothing of it, and is for this machine only."""

import http.client
import json
import os
import re
import shutil
import subprocess

import pytest
from planted_traces import noise

from sgdlab.report.status_page import StatusPage
from sgdlab.stragglers.follow.follower import SHOWN, Follower
from sgdlab.traces.options import Options

EVIL = "<img src=x onerror=\"document.title='broken in'\">"
NAME = EVIL.replace('"', "")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture
def followed(tmp_path):
    runtimes = noise(600, 60, 0)
    runtimes[300:, 5] *= 1.6
    runtimes[100::100] += 6.0
    names = [NAME if worker == 5 else f"w{worker}" for worker in range(60)]
    path = tmp_path / "trace.csv"
    rows = [f"{names[w]},{t},{seconds}" for t, row in enumerate(runtimes.tolist()) for w, seconds in enumerate(row)]
    path.write_text("\n".join(["worker,step,duration", *rows, ""]))
    follower = Follower(path, Options())
    follower.poll()
    follower.poll(end=True)
    return follower


def ask(page, path="/status.json", host="localhost"):
    connection = http.client.HTTPConnection("127.0.0.1", int(page.address.rsplit(":", 1)[1][:-1]), timeout=30)
    connection.request("GET", path, headers={"Host": host})
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


def test_it_sends_the_newest_state(followed):
    with StatusPage("sgdlab.stragglers.follow") as page:
        assert json.loads(ask(page)[2]) is None
        page.show(followed.state())
        state = json.loads(ask(page)[2])
    assert state == json.loads(json.dumps(followed.state())) | {"idle": state["idle"]}
    assert len(state["scores"]) == SHOWN < state["workers"]
    first = state["scores"][0]
    assert first["worker"] == NAME
    assert first["against_fleet"] == pytest.approx(1.6, rel=0.1)
    assert first["against_itself"] == pytest.approx(1.6, rel=0.1)
    ratios = state["strip"]["ratios"][0]
    assert len(ratios) == 60
    assert sum(ratio > 1.3 for ratio in ratios) == 30
    assert state["strip"]["steps"] == [0, 599]
    assert [gain["sentence"].split(":")[0] for gain in state["gains"]]


def test_it_is_for_this_machine_only(followed):
    with StatusPage("sgdlab.stragglers.follow") as page:
        page.show(followed.state())
        assert ask(page, host="evil.example")[0] == 403
        assert ask(page, path="/trace.csv")[0] == 404
        headers = ask(page, path="/")[1]
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]


def test_it_is_whole_in_itself_and_writes_only_text(followed):
    with StatusPage("sgdlab.stragglers.follow") as page:
        text = ask(page, path="/")[2].decode()
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|srcdoc", text)
    assert not re.findall(r"(?:src|href)\s*=\s*\"(?!data:,\")|url\(|@import|https?:", text)
    assert not re.findall(r"<[^>]*\s(?:style|on\w+)=", text)


@pytest.mark.skipif(not BROWSER, reason="needs Chromium")
def test_a_browser_shows_it_and_runs_nothing_of_it(followed, tmp_path):
    with StatusPage("sgdlab.stragglers.follow") as page:
        page.show(followed.state())
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}"]
        shown = subprocess.run(
            [*command, "--virtual-time-budget=1500", "--dump-dom", page.address],
            env=os.environ | {"HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        ).stdout
    assert "<img" not in shown
    body = shown[: shown.index("<script>")]
    assert body.count("&lt;img src=x") >= 3  # the box, the lane, the alarm
    assert "600 steps of 60 workers, up to step 599" in body
    assert re.search(r"5 pauses of all workers, every 100 steps", body)
    assert "without worker &lt;img" in body
