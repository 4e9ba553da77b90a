# SPDX-License-Identifier: Apache-2.0
"""The memory budget of the running service: held memory by category, and requests over the limit."""

import contextlib
import gzip
import pathlib
import re
import threading

import pytest

import clients
import otlp
import raw
from braid import exporter, pipelines, until
from otlp import PROFILES, TRACES

pytestmark = pytest.mark.release

MIB = 1 << 20
DEAD = {"otlp": {"endpoint": "127.0.0.1:1", "tls": {"insecure": True},
                 "retry_on_failure": {"max_elapsed_time": "0s"},
                 "sending_queue": {"queue_size": 100_000_000}}}
SPAN = b"\x0a\x1c\x12\x1a\x12\x18\x0a\x10" + bytes(range(1, 17)) + b"\x2a\x04work"


@pytest.fixture
def limited_braid(braid):
    """Starts a Braid that does not wait for its dead backend during shutdown."""
    return lambda config: braid(config, "--shutdown-timeout", "1s")


def limited(limit_mib, exporters=None, **more):
    limiter = {"memory_limiter": {"check_interval": "1s", "limit_mib": limit_mib}}
    return pipelines(exporters or DEAD, processors={**limiter, **more}, workers=1)


def peak(server):
    """Returns the peak resident size in bytes."""
    with open(f"/proc/{server.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024


def held(server):
    """Returns {memory category: bytes}."""
    return {re.fullmatch(r'holder="(\w+)"', labels).group(1): value
            for labels, value in server.metrics()["braid_memory_bytes"].items()}


def post(address, body, **headers):
    return clients.http(address, "/v1/traces", body, headers=headers)


def within(server, limit_mib):
    """At most the limit plus a twentieth; sanitizer builds need additional memory."""
    assert raw.sanitized() or peak(server) <= limit_mib * MIB * 1.05, f"{peak(server) / MIB:.1f} MiB"


def flood(server, body, max_requests, connections=4):
    """Sends pipelined requests until one is rejected. Returns the received statuses."""
    head = (f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode()
    per_round = max(1, min(500, 4 * MIB // len(body)))
    statuses, sent = {}, 0
    streams = [raw.Raw(server.http) for _ in range(connections)]
    try:
        while sent < max_requests and not statuses.get("503"):
            for stream in streams:
                stream.send((head + body) * per_round)
                sent += per_round
            for stream in streams:  # a rejection before the end of its body closes the connection
                for status in stream.statuses(per_round):
                    statuses[status] = statuses.get(status, 0) + 1
    finally:
        for stream in streams:
            stream.socket.close()
    return statuses


def test_memory_categories_add_up(limited_braid):
    """The memory categories add up to the memory of the process, and shrink when memory is
    released."""
    server = limited_braid(limited(400))
    start = held(server)
    body = otlp.trace_request(2000, size=500).SerializeToString()
    for _ in range(20):
        post(server.http, body).expect_ok()
    now = held(server)
    assert now["queues"] - start["queues"] >= 20 * len(body)
    assert now["items"] > start["items"]
    rss = server.metrics()["otelcol_process_memory_rss"][""]
    assert raw.sanitized() or rss * 0.97 <= sum(now.values()) <= rss * 1.25
    marks = server.metrics()["braid_memory_limit_bytes"]
    assert marks == {'mark="hard"': 400 * MIB, 'mark="intake"': 350 * MIB, 'mark="soft"': 320 * MIB}


def memory_of_this_process():
    """Returns the machine's memory in bytes, or the limit of a cgroup above this process."""
    least = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1)) * 1024
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, kinds, path = line.split(":", 2)
        root, name = (("/sys/fs/cgroup", "memory.max") if not kinds else
                      ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"))
        if kinds and "memory" not in kinds.split(","):
            continue
        folder = pathlib.Path(root + path)
        for each in (folder, *folder.parents):
            with contextlib.suppress(OSError, ValueError):
                least = min(least, int((each / name).read_text()))
    return least


def test_a_limit_holds_without_the_processor(limited_braid):
    server = limited_braid(pipelines(DEAD, workers=2))
    marks = server.metrics()["braid_memory_limit_bytes"]
    assert marks['mark="hard"'] == pytest.approx(memory_of_this_process() * 0.8, abs=MIB)
    assert marks['mark="soft"'] < marks['mark="intake"'] < marks['mark="hard"']


@pytest.mark.parametrize("batch", [False, True], ids=["plain", "batch"])
def test_memory_of_small_requests_is_counted(limited_braid, batch):
    """One span of 30 bytes per request, a dead backend, room for 100 million requests."""
    server = limited_braid(limited(100, **({"batch": {}} if batch else {})))
    statuses = flood(server, SPAN, 1_000_000)
    assert set(statuses) == {"200", "503"}
    within(server, 100)
    assert sum(held(server).values()) >= 75 * MIB


def test_messages_of_all_sizes_can_use_the_limit(limited_braid):
    """67 KB is just over a size class of buffers."""
    server = limited_braid(limited(100))
    body = otlp.trace_request(67, size=666).SerializeToString()
    assert 66_000 < len(body) < 70_000
    statuses = flood(server, body, 10_000)
    assert set(statuses) == {"200", "503"}
    within(server, 100)
    assert statuses["200"] * len(body) >= 55 * MIB


def test_bodies_are_allocated_as_they_arrive(limited_braid):
    """Six bodies of 60 MB are announced, of which 59 MB are sent each, and the limit has room for
    one of them."""
    server = limited_braid(limited(128))
    head = ("POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
            "Content-Length: 60000000\r\n\r\n").encode()
    piece = bytes(MIB)
    streams = [raw.Raw(server.http, head) for _ in range(6)]
    for _ in range(56):
        for stream in streams:
            stream.send(piece)
    within(server, 128)
    for stream in streams:
        stream.read()
    answered = [bytes(stream.got).lower() for stream in streams if b" 503 " in bytes(stream.got)]
    assert len(answered) >= 4
    assert all(b"retry-after: " in answer for answer in answered)
    for stream in streams:
        stream.socket.close()
    until(lambda: held(server)["requests"] < MIB, "bodies to be given up")
    post(server.http, SPAN).expect_ok()


def test_a_request_that_never_fits_is_rejected_permanently(limited_braid):
    """max_request_body_size allows the request, but the memory limit cannot, with any number of
    workers."""
    config = limited(40)
    config["service"]["workers"] = 4
    server = limited_braid(config)
    answer = post(server.http, otlp.trace_request(400, size=110_000).SerializeToString())
    assert answer.code == 413
    post(server.http, otlp.trace_request(40, size=110_000).SerializeToString()).expect_ok()
    within(server, 40)


def test_a_decompression_bomb_uses_at_most_its_limit(limited_braid):
    server = limited_braid(limited(200))
    for _ in range(8):  # includes the threads of the pool
        assert post(server.http, gzip.compress(bytes(3 * MIB)), **{"Content-Encoding": "gzip"}).code == 400
    before = peak(server)
    bomb = gzip.compress(bytes(512 * MIB), 6)
    lying = bomb[:-4] + (1000).to_bytes(4, "little")
    for body in (bomb, lying):
        assert post(server.http, body, **{"Content-Encoding": "gzip"}).code in (400, 413)
    assert raw.sanitized() or peak(server) - before <= 64 * MIB + len(bomb) + 4 * MIB


def test_large_bodies_are_accepted_by_every_worker(limited_braid, sink):
    """A request of the largest size fits, with any number of workers; others are answered
    meanwhile."""
    exporters = {"otlp": {"endpoint": sink.grpc, "tls": {"insecure": True}}}
    config = limited(300, exporters)
    config["service"]["workers"] = 4
    server = limited_braid(config)
    body = otlp.trace_request(6000, size=10_000).SerializeToString()
    assert len(body) > 56 * MIB
    answers = []
    sender = threading.Thread(target=lambda: answers.append(post(server.http, body)))
    sender.start()
    small = otlp.trace_request(1, first=1_000_000).SerializeToString()
    n = 0
    while sender.is_alive():
        post(server.http, small).expect_ok()
        n += 1
    sender.join()
    answers[0].expect_ok()
    sink.wait(TRACES, 6000 + n)
    within(server, 300)


def test_dictionaries_are_counted_at_their_size(limited_braid):
    server = limited_braid(limited(400, batch={"timeout": "60s", "send_batch_size": 10_000_000}))
    for n in range(20):
        clients.http(server.http, PROFILES.path, otlp.profile_request(500, first=1 + n * 500).SerializeToString()
                     ).expect_ok()
    assert held(server)["dictionaries"] > 100_000


@pytest.mark.parametrize("workers", [1, 4])
def test_a_rejected_body_is_accepted_on_retry_or_rejected_permanently(braid, sink, workers):
    """Bodies of a third to nearly all of the limit, one at a time: on a retry each is accepted, or
    rejected permanently."""
    limiter = {"memory_limiter": {"check_interval": "1s", "limit_mib": 64}}
    server = braid(pipelines(exporter("grpc", sink), processors=limiter, workers=workers))
    one = otlp.trace_request(1000).SerializeToString()
    for mib in (20, 30, 40, 45, 50, 55, 60):
        body = one * (mib * MIB // len(one))

        def ended():
            code = post(server.http, body).code
            assert code in (200, 413, 503), code
            return code if code != 503 else None
        code = until(ended, f"{mib} MiB to pass or to be refused for good", 30)
        assert mib > 40 or code == 200 or raw.sanitized()
        assert mib < 55 or code == 413
