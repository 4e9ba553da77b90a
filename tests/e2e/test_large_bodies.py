# SPDX-License-Identifier: Apache-2.0
"""Bodies of all kinds that threads parse, mixed with small ones, at several workers; some clients
disconnect. All memory is released afterwards, by the metrics."""

import concurrent.futures
import gzip
import socket

import pytest
import zstandard

import clients
import otlp
from braid import DEADLINE_S, check_closed, pipelines, until
from otlp import PROFILES, TRACES

MIB = 1 << 20
UPLOAD = "/v1/profiles/upload?name=shop&format=folded"


def otlp_body(signal, size):
    """Returns a request of about that many bytes with one signal, and its number of records."""
    one = otlp.request_of(signal, 1, size=1000).SerializeToString()
    n = size // len(one)
    return one * n, n  # concatenated requests form one request


def folded(size):
    lines, n = [], 0
    while size > 0:
        lines.append(b"main;handle;work%d %d\n" % (n % 5000, n % 7 + 1))
        size -= len(lines[-1])
        n += 1
    return b"".join(lines)


def zstd(body):
    """Compressed by a streaming encoder, which does not know the size."""
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=23)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(body) + stream.flush()


def shapes(server):
    """Returns (address, path, content type, encoding, body) of every kind, large and small."""
    uploads = server.address("http", "receiver/pprof")
    made = []
    for size in (20_000, 3 * MIB, 9 * MIB, 18 * MIB):
        plain, _ = otlp_body(TRACES, size)
        made += [(server.http, "/v1/traces", otlp.PROTOBUF, "", plain),
                 (server.http, "/v1/traces", otlp.PROTOBUF, "gzip", gzip.compress(plain, 1)),
                 (server.http, "/v1/traces", otlp.PROTOBUF, "zstd", zstd(plain))]
    for n in (10, 2_000, 6_000):
        profile = otlp.profile_request(n).SerializeToString()
        made += [(server.http, PROFILES.path, otlp.PROTOBUF, "", profile),
                 (server.http, PROFILES.path, otlp.PROTOBUF, "gzip", gzip.compress(profile, 1)),
                 (server.http, "/v1/traces", otlp.JSON, "", otlp.to_json(otlp.trace_request(n, size=900)))]
    for size in (1000, 3 * MIB, 8 * MIB):
        text = folded(size)
        made += [(uploads, UPLOAD, None, "", text), (uploads, UPLOAD, None, "gzip", gzip.compress(text, 1))]
    return made


def post(shape):
    address, path, kind, encoding, body = shape
    headers = {"content-encoding": encoding} if encoding else {}
    return clients.http(address, path, body, kind, headers)


def leave(shape):
    """Sends a whole request, and disconnects before the answer."""
    address, path, kind, encoding, body = shape
    host, port = address.rsplit(":", 1)
    head = f"POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-length: {len(body)}\r\n"
    head += f"content-type: {kind}\r\n" if kind else ""
    head += f"content-encoding: {encoding}\r\n" if encoding else ""
    with socket.create_connection((host, int(port)), DEADLINE_S) as connection:
        connection.sendall(head.encode() + b"\r\n" + body)


@pytest.fixture
def server(braid):
    config = pipelines({"nop": {}}, processors={"batch": {"timeout": "10ms"}}, workers=4)
    config["receivers"]["pprof"] = {"http": {"endpoint": "127.0.0.1:0"}}
    profiles = config["service"]["pipelines"]["profiles"]
    config["service"]["pipelines"]["profiles"] = {**profiles, "receivers": ["otlp", "pprof"]}
    return braid(config)


def holders(server):
    """Memory held for requests: all of it must be released after them."""
    metrics = server.metrics()["braid_memory_bytes"]
    return {labels: value for labels, value in metrics.items()
            if any(f'"{name}"' in labels for name in ("requests", "batches", "queues", "items"))}


def ledgers(server):
    return [check_closed(server.ledger(signal.name)) for signal in (TRACES, PROFILES)]


def send_all(server, each):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        leaving = [pool.submit(leave, shape) for shape in each[::3]]
        answers = list(pool.map(post, each))
        for one in leaving:
            one.result()
    assert [(answer.code, answer.message) for answer in answers] == [(200, "")] * len(answers)
    until(lambda: all(account["held"] == 0 for account in ledgers(server)), "all to leave")


def test_large_and_small_together(server):
    """Each batcher keeps some memory for the next batch, and no more after three rounds than after
    one."""
    each = shapes(server)
    for _ in range(3):
        send_all(server, each)
        until(lambda: sum(holders(server).values()) < MIB, "no more than that to be held")
    for account in ledgers(server):
        assert account["sent"] + account["rejected"] == account["received"] > 0
    server.stop()


def test_shutdown_while_large_bodies_are_read(server):
    each = [shape for shape in shapes(server) if len(shape[4]) > MIB]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        leaving = [pool.submit(leave, shape) for shape in each]
        leaving[0].result()
        server.terminate()
        for one in leaving:
            one.exception()
    server.stop()
