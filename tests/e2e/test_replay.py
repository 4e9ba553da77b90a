# SPDX-License-Identifier: Apache-2.0
"""`braid save` and `braid open`: the content of a store as one file, shown elsewhere under the same
ids."""

import io
import json
import os
import signal
import subprocess
import tarfile
import time
import urllib.error
import urllib.request

import pytest

from braid import BINARY, DEADLINE_S, until


def run(*words, **env):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=DEADLINE_S,
                          env={**os.environ, **env})


def config(folder):
    return {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}, "http": {"endpoint": "127.0.0.1:0"}}}},
        "exporters": {"store": {"directory": str(folder)}},
        "extensions": {"query": {"endpoint": "127.0.0.1:0"}},
        "service": {"extensions": ["query"], "telemetry": {"metrics": {"level": "none"}},
                    "pipelines": {kind: {"receivers": ["otlp"], "exporters": ["store"]} for kind in ("traces", "profiles")}},
    }


def spans_of(running):
    url = f"http://{running.address('http', node='extension/query')}/api/braid/spans?start=now-1h&limit=100&sort=start"
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return json.load(answer)["spans"]


def span(number, start_ns):
    return {"traceId": f"{number:032x}", "spanId": f"{number:016x}", "name": f"operation {number}",
            "startTimeUnixNano": str(start_ns), "endTimeUnixNano": str(start_ns + 1000 * number)}


@pytest.fixture
def kept(braid, tmp_path):
    """A running Braid that has stored ten spans."""
    running = braid(config(tmp_path / "kept"))
    now = time.time_ns() - 60_000_000_000
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [span(number, now + number) for number in range(1, 11)]}]}]}
    request = urllib.request.Request(f"http://{running.http}/v1/traces", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=DEADLINE_S).close()
    return running, tmp_path / "kept"


def show(braid, file, **env):
    """Runs braid open on a free port set with --set, which the log names."""
    return braid(None, "--set=extensions.query.endpoint=127.0.0.1:0", "--set=service.telemetry.logs.level=info",
                 command=["open", str(file)], env=env)


def test_saved_while_it_runs_and_opened_elsewhere(braid, kept, tmp_path):
    running, folder = kept
    before = spans_of(running)
    assert [each["span_id"] for each in before] == [f"{number:016x}" for number in range(10, 0, -1)]
    done = run("save", tmp_path / "slice", "--directory", folder)
    assert done.returncode == 0, done.stderr
    (tmp_path / "temporary").mkdir()
    shown = show(braid, tmp_path / "slice", TMPDIR=str(tmp_path / "temporary"))
    assert spans_of(shown) == before
    shown.stop()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_it_is_a_tar_of_databases(kept, tmp_path):
    assert run("save", tmp_path / "slice", "--directory", kept[1]).returncode == 0
    with tarfile.open(tmp_path / "slice") as archive:
        members = archive.getmembers()
        assert [member.name for member in members] == ["partition-00000001.db"]
        assert archive.extractfile(members[0]).read(16) == b"SQLite format 3\0"
    assert (tmp_path / "slice").stat().st_mode & 0o777 == 0o600


def test_time_range_selects_partitions(kept, tmp_path):
    done = run("save", tmp_path / "slice", "--directory", kept[1], "--time-range", "1s")
    assert done.returncode == 1 and "no data of that time" in done.stderr
    assert not (tmp_path / "slice").exists()
    assert run("save", tmp_path / "slice", "--directory", kept[1], "--time-range", "10m").returncode == 0


def test_existing_files_are_not_overwritten(kept, tmp_path):
    (tmp_path / "slice").write_text("mine")
    done = run("save", tmp_path / "slice", "--directory", kept[1])
    assert done.returncode == 1 and "File exists" in done.stderr
    assert (tmp_path / "slice").read_text() == "mine"


@pytest.mark.parametrize("words, wrong", [
    (["--nonsense", "slice"], "--nonsense"), (["slice", "another"], "another"), (["slice", "--directory"], "--directory"),
])
def test_wrong_words_are_named(tmp_path, words, wrong):
    done = subprocess.run([BINARY, "save", *words], capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
    assert done.returncode != 0 and "unknown or incomplete argument" in done.stderr and wrong in done.stderr
    assert not list(tmp_path.iterdir())


def slice_url(running, query=""):
    return f"http://{running.address('http', node='extension/query')}/api/braid/slice{query}"


def test_saved_over_http_and_opened_elsewhere(braid, kept, tmp_path):
    running, folder = kept
    with urllib.request.urlopen(slice_url(running), timeout=DEADLINE_S) as answer:
        assert answer.headers["content-type"] == "application/x-tar"
        assert answer.headers.get_filename().startswith("braid-") and answer.headers.get_filename().endswith(".tar")
        (tmp_path / "slice").write_bytes(answer.read())
    assert run("save", tmp_path / "other", "--directory", folder).returncode == 0
    with tarfile.open(tmp_path / "slice") as left, tarfile.open(tmp_path / "other") as right:
        assert left.getnames() == right.getnames() == ["partition-00000001.db"]
    assert not list(folder.glob("slice*"))
    shown = show(braid, tmp_path / "slice")
    assert spans_of(shown) == spans_of(running)


def test_time_range_selects_partitions_over_http(kept):
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(slice_url(kept[0], "?start=now-1s"), timeout=DEADLINE_S)
    assert refused.value.code == 404 and "no data of that time" in json.load(refused.value)["error"]


def test_a_reader_that_pauses_loses_nothing(braid, tmp_path):
    """A file larger than the unread part of a stream may be: the server waits for the reader; a
    second reader is asked to wait."""
    running = braid(config(tmp_path / "kept"))
    start_ns = time.time_ns() - 60_000_000_000
    for number in range(8):
        spans = [span(number * 100 + i + 1, start_ns) for i in range(100)]
        for each in spans:
            each["attributes"] = [{"key": "noise", "value": {"stringValue": os.urandom(15000).hex()}}]
        request = urllib.request.Request(f"http://{running.http}/v1/traces",
                                         json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode(),
                                         {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=DEADLINE_S).close()
    with urllib.request.urlopen(slice_url(running), timeout=DEADLINE_S) as answer:
        first = answer.read(1000)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(slice_url(running), timeout=DEADLINE_S)
        assert refused.value.code == 503 and "another slice" in json.load(refused.value)["error"]
        rest = answer.read()
    (tmp_path / "slice").write_bytes(first + rest)
    assert len(first) + len(rest) > 10_000_000
    shown = show(braid, tmp_path / "slice")
    url = f"http://{shown.address('http', node='extension/query')}/api/braid/status"
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        assert json.load(answer)["store"]["spans"] == 800
    # A client that disconnects makes room for the next.
    urllib.request.urlopen(slice_url(running), timeout=DEADLINE_S).close()

    def again():
        try:
            with urllib.request.urlopen(slice_url(running), timeout=DEADLINE_S) as answer:
                return len(answer.read()) > 10_000_000
        except urllib.error.HTTPError as refused:
            assert refused.code == 503
            return False
    until(again)


def test_unreadable_partitions_are_listed(braid, tmp_path):
    """The other partitions are saved in spite of a damaged one, and the file lists it."""
    config_of = config(tmp_path / "kept")
    config_of["exporters"]["store"]["partition"] = {"rows": 1000}
    running = braid(config_of)
    start_ns = time.time_ns() - 60_000_000_000
    for number in range(30):
        spans = [span(number * 100 + i + 1, start_ns) for i in range(100)]
        for each in spans:
            each["attributes"] = [{"key": "noise", "value": {"stringValue": os.urandom(1000).hex()}}]
        request = urllib.request.Request(f"http://{running.http}/v1/traces",
                                         json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode(),
                                         {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=DEADLINE_S).close()
    with urllib.request.urlopen(slice_url(running), timeout=DEADLINE_S) as answer:
        (tmp_path / "slice").write_bytes(answer.read())
    with tarfile.open(tmp_path / "slice") as archive:
        order = archive.getmembers()
    assert len(order) >= 2 and order[0].size > 300_000  # more than one piece
    with open(tmp_path / "kept" / order[-1].name, "r+b") as damaged:
        damaged.write(os.urandom(order[-1].size))
    with urllib.request.urlopen(slice_url(running), timeout=DEADLINE_S) as answer:
        (tmp_path / "slice").write_bytes(answer.read())
    with tarfile.open(tmp_path / "slice") as archive:
        members = archive.getmembers()
        assert [member.name for member in members] == [member.name for member in order[:-1]] + ["left-out.txt"]
        lines = archive.extractfile(members[-1]).read().decode().splitlines()
    assert [line.split(": ")[0] for line in lines] == [order[-1].name]
    running.wait_log("a slice is incomplete: 1 partitions could not be read")
    done = run("save", tmp_path / "saved", "--directory", tmp_path / "kept")
    assert done.returncode == 0
    assert "1 partition could not be read and was left out" in done.stderr
    shown = show(braid, tmp_path / "saved")
    assert len(spans_of(shown)) == 100
    shown.wait_log(f"{tmp_path / 'saved'} lacks {order[-1].name}: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL], ids=lambda number: number.name)
def test_unpacked_files_are_removed(braid, kept, tmp_path, number):
    """The directory with the unpacked file is removed, however the process ends."""
    assert run("save", tmp_path / "slice", "--directory", kept[1]).returncode == 0
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    shown = show(braid, tmp_path / "slice", TMPDIR=str(temporary))
    assert len(spans_of(shown)) == 10
    assert len(list(temporary.iterdir())) == 1
    pid = shown.process.pid
    [child] = open(f"/proc/{pid}/task/{pid}/children").read().split()
    os.kill(int(child) if number == signal.SIGKILL else pid, number)
    shown.process.wait(DEADLINE_S)
    shown.kill()
    assert list(temporary.iterdir()) == []


def archive_of(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, 4 if kind == tarfile.REGTYPE else 0
            info.linkname = "/etc/passwd" if kind == tarfile.SYMTYPE else ""
            archive.addfile(info, io.BytesIO(b"evil") if info.size else None)
    return out.getvalue()


@pytest.mark.parametrize("data", [
    b"", b"x", b"\1" * 512, archive_of(("../partition-00000001.db", tarfile.REGTYPE)),
    archive_of(("/partition-00000001.db", tarfile.REGTYPE)), archive_of(("lock", tarfile.REGTYPE)),
    archive_of(("partition-00000001.db", tarfile.SYMTYPE)),
    archive_of(("partition-00000001.db", tarfile.REGTYPE), ("partition-00000001.db", tarfile.REGTYPE)),
    archive_of(("partition-00000001.db", tarfile.REGTYPE))[:700], archive_of(("partition-0000000A.db", tarfile.REGTYPE)),
    archive_of(("partition-0000000a.db", tarfile.REGTYPE), ("partition-0000000A.db", tarfile.REGTYPE)),
    archive_of(*((f"partition-{n:08x}.db", tarfile.REGTYPE) for n in range(10001))), archive_of()],
    ids=["empty", "short", "no header", "traversal", "absolute", "other name", "link", "twice", "cut", "upper case",
         "twice in other case", "too many", "none"])
def test_other_files_are_rejected(data, tmp_path):
    (tmp_path / "slice").write_bytes(data)
    (tmp_path / "temporary").mkdir()
    done = run("open", tmp_path / "slice", TMPDIR=str(tmp_path / "temporary"))
    assert done.returncode == 1, done.stderr
    assert str(tmp_path / "slice") in done.stderr or "cannot create" in done.stderr
    assert list((tmp_path / "temporary").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slice", "temporary"]
