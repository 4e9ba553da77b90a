# SPDX-License-Identifier: Apache-2.0
"""py-spy's output for an unmodified program, as an upload, as a file in a directory, and as
Pyroscope's clients send it: the exported data, and the data in Pyroscope, equal the lines of the
file."""

import collections
import json
import subprocess
import sys
import time

import pytest

import ingest
import otlp
import profile_view
import programs
import pyroscope_reader
from braid import Braid
from pyroscope import Pyroscope

RATE = 50
PERIOD_NS = 10**9 // RATE
PROGRAM = """
import threading, time

def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(i * i for i in range(1000))

other = threading.Thread(target=work, args=(2, ), name="other one")
other.start()
work(2)
other.join()
"""


def record(path, form_of):
    command = [programs.PY_SPY, "record", "-r", str(RATE), "-f", form_of, "-o", str(path), "--threads",
               "--", sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return path.read_bytes()


def raw_stacks(data):
    """Returns {frames, the leaf first: nanoseconds}: a count behind the last space of each line."""
    found = collections.Counter()
    for line in data.decode().splitlines():
        frames, _, count = line.rpartition(" ")
        found[tuple(reversed(frames.split(";")))] += int(count) * PERIOD_NS
    return found


def speedscope_stacks(data):
    """Returns the same for a speedscope file: a profile per thread, whose samples are periods,
    for any weights."""
    whole, found = json.loads(data), collections.Counter()
    names = [frame["name"] for frame in whole["shared"]["frames"]]
    for profile in whole["profiles"]:
        assert profile["type"] == "sampled"
        for sample in profile["samples"]:
            found[tuple(names[i] for i in reversed(sample))] += PERIOD_NS
    return found


TYPES = {"cpu": "process_cpu:cpu:nanoseconds:cpu:nanoseconds", "wall": "wall:wall:nanoseconds:cpu:nanoseconds"}
READERS = {"raw": raw_stacks, "speedscope": speedscope_stacks}


@pytest.fixture(scope="module", params=READERS)
def recording(request, tmp_path_factory):
    """Returns (its name, its bytes, the expected stacks)."""
    data = record(tmp_path_factory.mktemp("py-spy") / "out", request.param)
    said = READERS[request.param](data)
    assert any("work" in frame for stack in said for frame in stack)
    return request.param, data, said


def upload(address, name, data):
    answer = ingest.http1(address, f"/v1/profiles/upload?name=shop%7Benv%3Dtest%7D&sampleRate={RATE}", data, {})
    assert answer.code == 200, answer.body


def as_client(address, name, data):
    """Runs `curl` as Pyroscope's documentation describes for scripts."""
    query = {"spyName": "pyspy", "sampleRate": RATE, "from": int(time.time()) - 2, "until": int(time.time())}
    path = ingest.ingest_path("shop{env=test}", **query, **({"format": name} if name == "speedscope" else {}))
    answer = ingest.http1(address, path, data, {"Content-Type": "text/plain"})
    assert answer.code == 200, answer.body


LISTEN = {"endpoint": "127.0.0.1:0"}
WAYS = {
    "upload": ({"pprof": {"http": LISTEN}}, upload),
    "pyroscope": ({"pyroscope": {"protocols": {"http": LISTEN}}}, as_client),
    "folder": ({"pprof": {"file": {"path": "in", "poll_interval": "100ms", "after": "delete", "sample_rate": RATE,
                                   "labels": {"service_name": "shop", "env": "test"}}}}, None),
}


@pytest.mark.parametrize("way", WAYS)
def test_stacks_equal_the_file(recording, way, tmp_path):
    name, data, said = recording
    receivers, send = WAYS[way]
    # Pyroscope takes seconds of several profiles in a file (here: threads) for wall time.
    kind = "wall" if (name, way) == ("speedscope", "pyroscope") else "cpu"
    behind = Pyroscope()
    (tmp_path / "in").mkdir()
    braid = Braid({
        "receivers": receivers,
        "exporters": {"file": {"path": str(tmp_path / "out")},
                      "pyroscope": {"endpoint": behind.url, "tls": {"insecure": True}}},
        "service": {"telemetry": {"metrics": {"level": "none"}},
                    "pipelines": {"profiles": {"receivers": list(receivers), "exporters": ["file", "pyroscope"]}}},
    }, tmp_path)
    try:
        if send:
            send(braid.address("http", node=f"receiver/{next(iter(receivers))}"), name, data)
        else:
            (tmp_path / "in" / ".new").write_bytes(data)
            (tmp_path / "in" / ".new").rename(tmp_path / "in" / "new")
        behind.wait(1)
        braid.stop()
    finally:
        braid.kill()
        behind.close()
    came, stored = collections.Counter(), collections.Counter()
    for sample in profile_view.samples(*(otlp.from_json(otlp.PROFILES.request, line)
                                         for line in (tmp_path / "out").read_text().splitlines())):
        assert (sample["type"], sample["period"]) == ((kind, "nanoseconds"), PERIOD_NS)
        assert sample["resource"]["service.name"] == "shop" and sample["resource"]["env"] == "test"
        came[tuple(line[0] for frame in sample["frames"] for line in frame["lines"])] += sum(sample["values"])
    for key, value in behind.stored().items():
        assert key.type == TYPES[kind]
        assert ("service_name", "shop") in key.labels
        stored[tuple(frame[0] for frame in key.stack)] += value
    assert came == stored == said
    assert pyroscope_reader.stacks(behind) == {(TYPES[kind], ""): said}
