"""Test what processes share, without a process: memory, messages, settings, and the words for their ends."""

import os
import random
import select
import signal
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pools import assert_equal

from sgdlab.errors import in_one_line
from sgdlab.hosts import messages
from sgdlab.hosts.messages import line_of
from sgdlab.live import environment, processes
from sgdlab.live.shared_arrays import ALIGNMENT, MemoryLayout, Pieces, Versions
from sgdlab.live.work import WorkSource

TREE = {
    "a": jnp.arange(5, dtype=jnp.bfloat16),
    "b": [jnp.arange(6.0, dtype=jnp.float32).reshape(2, 3), jnp.float32(2.5)],
    "c": jnp.zeros([0, 3], jnp.int32),
}


def test_a_tree_in_memory():
    layout = MemoryLayout(jax.eval_shape(lambda: TREE))
    assert [field.offset for field in layout.fields] == [0, ALIGNMENT, 2 * ALIGNMENT, 3 * ALIGNMENT]
    assert layout.size == 3 * ALIGNMENT  # the last one is empty
    memory = np.full(layout.size, 255, np.uint8)
    layout.write(layout.views(memory), TREE)
    copied = layout.copied(memory)
    memory[:] = 0
    assert_equal(copied, TREE)
    assert all(leaf.ctypes.data % ALIGNMENT == 0 for leaf in jax.tree.leaves(copied) if leaf.size)
    assert MemoryLayout(()).size > 0  # nothing cannot be mapped


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (TREE | {"a": TREE["a"].astype(jnp.float32)}, r"^\['a'\] must be bfloat16\[5\]; it is float32\[5\]"),
        (TREE | {"a": TREE["a"][:1]}, r"^\['a'\] must be bfloat16\[5\]; it is bfloat16\[1\]"),  # could be broadcast
        (TREE | {"d": TREE["a"]}, "^5 arrays have come where 4 were expected"),
    ],
)
def test_a_tree_of_other_arrays_is_refused(tree, words):
    layout = MemoryLayout(TREE)
    memory = np.zeros(layout.size, np.uint8)
    with pytest.raises(ValueError, match=words):
        layout.write(layout.views(memory), tree)


def test_two_processes_must_mean_the_same_arrays():
    MemoryLayout(TREE).check(MemoryLayout(TREE).described())
    with pytest.raises(ValueError, match=r"^\['c'\] is missing in the worker and int32\[0, 3\] in the server"):
        MemoryLayout({name: leaf for name, leaf in TREE.items() if name != "c"}).check(MemoryLayout(TREE).described())
    with pytest.raises(ValueError, match=r"^\['d'\] is bfloat16\[5\] in the worker and missing in the server"):
        MemoryLayout(TREE | {"d": TREE["a"]}).check(MemoryLayout(TREE).described())


@pytest.mark.parametrize("named", [False, True])
def test_memory_is_shared_and_grows(named, monkeypatch, tmp_path):
    if named:  # as where the operating system knows no memory without a file
        monkeypatch.delattr(os, "memfd_create", raising=False)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ours = Pieces(100_000)
    theirs = Pieces(100_000, os.dup(ours.file))
    for index in (0, 2, 1):
        ours[index][:] = index + 1
        assert (theirs[index] == index + 1).all()
        assert theirs[index].shape == (100_000,)
    theirs[0][5] = 77
    assert ours[0][5] == 77
    assert list(tmp_path.iterdir()) == []
    ours.close()
    assert (theirs[1] == 2).all()  # until the last of them is gone
    theirs.close()


def test_versions_against_a_dictionary():
    draw = random.Random(0)
    layout = MemoryLayout(np.zeros(3))
    versions, held, most = Versions(layout), {}, 0
    memory = Pieces(layout.size, os.dup(versions.file))
    for number in range(300):
        if held and draw.random() < 0.5:
            gone = draw.choice(list(held))
            versions.release(gone)
            del held[gone]
        else:
            held[versions.publish(np.full(3, float(number)))] = number
        most = max(most, len(held))
        assert {version: layout.copied(memory[version])[0] for version in held} == held
    assert os.fstat(versions.file).st_blocks * 512 == most * memory._stride  # no more than were held at once
    with pytest.raises(ValueError, match="must be float64"):
        versions.publish(np.zeros(4))


MESSAGES = [
    {"kind": "begin", "ticket": 3, "slot": 0},
    {"kind": ""},
    {"kind": "failed", "error": "Grad \N{NABLA}\n" * 50},
]


def test_messages_come_whole_however_they_are_cut():
    whole = b"".join(map(line_of, MESSAGES))
    for size in range(1, len(whole), 7):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            line, found = messages.BufferedSocket(ours), []
            for start in range(0, len(whole), size):
                theirs.sendall(whole[start : start + size])
                said, ended = line.receive()
                assert not ended
                found += said
            assert found == MESSAGES


def test_a_line_keeps_what_the_other_side_does_not_take():
    ours, theirs = socket.socketpair()
    line, count = messages.BufferedSocket(ours), 0
    while not line.waits:
        line.send({"kind": "", "number": count})
        count += 1
    line.send({"kind": "", "number": count, "more": "x" * 3_000_000})  # of which the socket takes a part
    line.send({"kind": "", "number": count + 1})
    other, found = messages.BufferedSocket(theirs), []
    while len(found) < count + 2:
        line.flush()
        found += [message["number"] for message in other.receive()[0]]
    assert found == list(range(count + 2))
    assert not line.waits

    theirs.sendall(line_of({"kind": "a"}) + line_of({"kind": "b"})[:-1])
    assert line.receive() == ([{"kind": "a"}], False)
    theirs.close()
    assert select.select([ours], [], [], 10)[0]
    assert line.receive() == ([], True)
    line.send({"kind": "c"})  # nobody is there; that was said
    assert not line.waits
    ours.close()


def test_a_reader_ends_with_its_writer():
    ours, theirs = socket.socketpair()
    ours.sendall(line_of({"kind": "a"}) + line_of({"kind": "b"})[:-1])
    ours.close()
    assert list(messages.heard(theirs)) == [{"kind": "a"}]
    theirs.close()


def test_the_end_of_a_process_in_words(tmp_path, monkeypatch):
    counters = tmp_path / "vmstat"
    monkeypatch.setattr(processes, "_COUNTERS", counters)
    assert processes.described(-signal.SIGKILL, processes.killed_for_memory()) == "killed by SIGKILL"
    counters.write_text("pgfault 12\noom_kill 4\n", encoding="ascii")
    killed = processes.killed_for_memory()
    assert processes.described(-signal.SIGKILL, killed) == "killed by SIGKILL"
    counters.write_text("pgfault 13\noom_kill 5\n", encoding="ascii")
    assert "for lack of memory" in processes.described(-signal.SIGKILL, killed)
    assert processes.described(-signal.SIGSEGV, killed) == "killed by SIGSEGV"
    assert processes.described(3, killed) == "exit code 3"

    log = tmp_path / "worker_0.log"
    assert processes.last_lines(log) == ""
    log.write_text("".join(f"line {k}\n\n" for k in range(2000)), encoding="ascii")
    assert processes.last_lines(log) == "line 1997 | line 1998 | line 1999"


def test_gpus_of_workers(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,GPU-6,7")
    gpus = lambda worker, *rest: environment.devices(worker, *rest)["CUDA_VISIBLE_DEVICES"]
    assert [gpus(worker, 4, 1) for worker in range(4)] == ["4", "5", "GPU-6", "7"]
    assert [gpus(worker, 2, 2) for worker in range(2)] == ["4,5", "GPU-6,7"]
    assert [gpus(worker, 7, 0.5) for worker in range(7)] == ["4", "4", "5", "5", "GPU-6", "GPU-6", "7"]
    assert environment.devices(0, 7, 0.5)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.450"
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in environment.devices(0, 4, 1)
    for number, share in ((5, 1), (9, 0.5), (3, 2)):
        with pytest.raises(ValueError, match=f"gpus_per_worker={share} wants 5 GPUs|.* wants 6 GPUs .*; there are 4"):
            environment.devices(0, number, share)
    for share in (0, -1, 1.5, 0.4):
        for worker in (0, None):
            with pytest.raises(ValueError, match=f"gpus_per_worker={share} must be a whole number, or 1 over one"):
                environment.devices(worker, 1, share)


@pytest.mark.parametrize(("gpus", "expected"), [(None, ("cpu", "unset")), (0.5, ("cuda,cpu", "false"))])
def test_the_server_computes_where_workers_do(gpus, expected):
    code = (
        "import os, jax\nfrom sgdlab.live import environment\n"
        f"environment.for_server({gpus})\n"
        "print(jax.config.jax_platforms, os.environ.get('XLA_PYTHON_CLIENT_PREALLOCATE', 'unset'))\n"
        "jax.config.update('jax_platforms', 'cuda')\n"
        f"environment.for_joined({{'jax_enable_x64': True}}, {gpus})\n"
        "print(jax.config.jax_platforms, jax.config.jax_enable_x64)"
    )
    names = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_PLATFORMS", "XLA_PYTHON"))}
    names["JAX_PLATFORMS"] = "cuda,cpu"
    server, joined = subprocess.check_output([sys.executable, "-c", code], env=names, text=True).splitlines()
    assert tuple(server.split()) == expected
    assert joined.split() == [expected[0], "True"]


def test_settings_of_workers(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    of = lambda number, **given: environment.for_worker(0, num_workers=number, gpus_per_worker=None, given=given)
    jax.config.update("jax_enable_x64", True)
    assert of(4)["JAX_ENABLE_X64"] == "True"
    jax.config.update("jax_enable_x64", False)
    assert of(4)["JAX_ENABLE_X64"] == "False"
    assert of(4, JAX_ENABLE_X64="1")["JAX_ENABLE_X64"] == "1"
    assert of(4)["JAX_DISABLE_MOST_OPTIMIZATIONS"] == str(jax.config.values["jax_disable_most_optimizations"])
    assert (of(4)["OMP_NUM_THREADS"], of(4)["XLA_FLAGS"]) == ("5", "--xla_cpu_enable_fast_math=false")
    everywhere = environment.for_worker(None, num_workers=5, gpus_per_worker=None, given={}, cores=10)
    assert everywhere["OMP_NUM_THREADS"] == "5"
    assert of(5)["OMP_NUM_THREADS"] == "1"
    assert of(5)["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false --xla_cpu_multi_thread_eigen=false"
    assert of(5)["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (WorkSource("module", 0), "^function='module' must be a module's name, a colon, and"),
        (WorkSource("a module:work", 0), "^function='a module:work' must be"),
        (
            WorkSource("__main__:work", 0),
            "^function='__main__:work' must be in a module that other processes can import",
        ),
        (WorkSource("module:work", {"a": {1}}), "^argument must be of values that JSON can write: Object of type set"),
        (WorkSource("module:work", 0, {"mine": "/nowhere.py"}), r"^modules\['mine'\]='/nowhere.py' must be a file"),
    ],
)
def test_a_source_that_no_other_process_could_use(source, words):
    with pytest.raises(ValueError, match=words):
        source.check()


def test_work_of_a_file_that_no_import_finds(tmp_path):
    file = tmp_path / "process_works_elsewhere.py"
    file.write_text(
        "from sgdlab.live.work import Work\ndef work(argument):\n    return Work(argument['params'], None, None)\n",
        encoding="ascii",
    )
    source = WorkSource("process_works_elsewhere:work", {"params": 5}, {"process_works_elsewhere": str(file)})
    source.check()
    assert source.make().params == 5
    assert source._replace(argument={"params": 6}).make().params == 6
    with pytest.raises(ValueError, match="must name a function; process_works_elsewhere has no play"):
        source._replace(function="process_works_elsewhere:play").make()


def test_an_error_in_one_line():
    def mistaken():
        return WorkSource("module", 0).check()

    with pytest.raises(ValueError, match="module") as caught:
        mistaken()
    said = in_one_line(caught.value)
    # The last line outside of libraries and of this package.
    assert said.startswith("ValueError: function='module' must be")
    assert said.endswith(': return WorkSource("module", 0).check())')
    assert in_one_line(ValueError("first\nsecond")) == "ValueError: first"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (b"x" * 70_001, "it sent more than 70,000 bytes, which no message has"),
        (b"[" * 60_000 + b"\n", "it sent JSON that is nested too deeply"),
        (b"[]\n", "it sent no message with kind (str)"),
        (b"{]\n", "what it has sent is no message: it sent what is not JSON"),
    ],
)
def test_what_is_no_message_ends_the_line_after_those_before_it(wrong, words, monkeypatch):
    monkeypatch.setattr(messages, "MOST", 70_000)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = messages.BufferedSocket(ours)
        theirs.sendall(line_of({"kind": "a"}) + wrong)
        assert line.receive() == ([{"kind": "a"}], True)
        assert words in line.error
        line.send({"kind": "b"})
        assert theirs.recv(100) == b""
        assert line.receive() == ([], True)


def test_a_side_that_does_not_read_is_left_when_too_much_waits_for_it(monkeypatch):
    monkeypatch.setattr(messages, "MOST_UNSENT", 1 << 20)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line, sent = messages.BufferedSocket(ours), 0
        while not line.error:
            line.send({"words": "x" * 1000})
            sent += 1
            assert sent < 10_000
        assert sent > (1 << 20) // 1100
        assert line.error == "it has not read what it was sent: 1 MiB wait for it"
        assert line.receive() == ([], True)
        assert not line.waits


@pytest.mark.skipif(sys.platform != "linux", reason="of the C library of Linux")
def test_the_memory_of_messages_is_kept_between_them():
    code = (
        "import resource, sys, threading, numpy as np\nfrom sgdlab.live import frames\n"
        "sys.argv[1:] and frames.keep_memory()\n"
        "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "before, messages = faults(), lambda: [np.ones(1 << 20, np.uint8) for _ in range(4)]\n"
        "thread = threading.Thread(target=lambda: [len(messages()) for _ in range(20)])\n"
        "thread.start(), thread.join(), print(faults() - before)"
    )
    of = lambda *given: int(subprocess.check_output([sys.executable, "-c", code, *given], text=True))
    kept, returned = of("keep"), of()
    assert kept < 6 * 256  # pages of the messages that are there at once, and little more
    assert returned > 4 * kept
