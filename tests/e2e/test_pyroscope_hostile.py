# SPDX-License-Identifier: Apache-2.0
"""Receiver pyroscope with malicious requests: small on the wire, expensive in memory or time. Each
must be answered soon, with limited memory, and all of it must be released."""

import gzip
import socket
import time

import pytest

import clients
from ingest import NODE, ingest_path, form, http1, make_pprof
from pyroscope import PUSH_PATH

LIMIT = 4 << 20   # largest body in bytes; the receiver may use 16 MiB or four times that
ROOM = 110 << 20  # the limit's buffers, the receiver's, and the memory of an idle process
SECONDS = 5       # enough for sanitizers on a busy machine; without them it takes a tenth of a second


def varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def node(name, value, children):
    return varint(len(name)) + name + varint(value) + varint(children)


def chain(name, depth):
    return node(b"", 0, 1) + node(name, 1, 1) * (depth - 1) + node(name, 1, 0)


def speedscope(profile):
    return ('{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":[{"name":"a"}]},'
            '"profiles":[%s]}' % profile).encode()


def events(number):
    return speedscope('{"type":"evented","name":"p","unit":"nanoseconds","startValue":0,"events":[%s]}' % ",".join(
        '{"type":"O","frame":0,"at":%d}' % at for at in range(number)))


def series(samples, labels=field(1, field(1, b"__name__") + field(2, b"x"))):
    return field(1, labels + samples)


FORM = "multipart/form-data; boundary=x"
PART = b"--x\r\nContent-Disposition: form-data; name=\"profile\"\r\n\r\n"
BOMB = gzip.compress(bytes(256 << 20), 1)
TINY = field(2, field(1, b"\x6a\x00"))  # a sample that is a pprof with one comment


def nested(data, layers):
    for _ in range(layers):
        data = gzip.compress(data, 1)
    return data


# name: (path, content type, body, allowed answers); all are sent with Content-Encoding: gzip
ATTACKS = {
    "bomb": (ingest_path("a"), None, BOMB, {413}),
    "bombs in bombs": (ingest_path("a"), None, nested(BOMB, 2), {413}),
    "layers that go on": (ingest_path("a"), None, nested(b"a 1\n", 40), {422}),
    "bomb in a form": (ingest_path("a"), FORM, PART + BOMB + b"\r\n--x--", {413}),
    "bomb in a config": (ingest_path("a"), FORM, PART + make_pprof() + b"\r\n" + PART.replace(
        b"profile", b"sample_type_config") + BOMB + b"\r\n--x--", {413}),
    "brackets in a config": (ingest_path("a"), FORM, PART + make_pprof() + b"\r\n" + PART.replace(
        b"profile", b"sample_type_config") + b"[" + b"[]," * 1_300_000 + b"0]\r\n--x--", {422}),
    "bomb of labels": (ingest_path("a", format="jfr"), FORM, PART.replace(b"profile", b"jfr") + b"FLR\0\r\n" + PART.replace(
        b"profile", b"labels") + BOMB + b"\r\n--x--", {413}),
    "parts": (ingest_path("a"), FORM, (PART + b"\r\n") * 60_000 + b"--x--", {422}),
    "headers": (ingest_path("a"), FORM, b"--x\r\n" + b"A: b\r\n" * 600_000 + b"\r\n--x--", {422}),
    "almost delimiters": (ingest_path("a"), FORM, PART + b"\r\n--x " * 600_000, {422}),
    "blanks behind delimiters": (ingest_path("a"), FORM, PART + b"\r\n--x" + b" " * 4_000_000, {422}),
    "deep tree": (ingest_path("a", format="tree"), None, chain(b"a", 60_000), {400, 413}),
    "deeper tree": (ingest_path("a", format="tree"), None, chain(b"a", 800_000), {413, 422}),
    "deep trie": (ingest_path("a", format="trie"), None, chain(b"a;", 60_000), {400, 413}),
    "deeper trie": (ingest_path("a", format="trie"), None, chain(b"a;", 700_000), {413, 422}),
    "children that do not come": (ingest_path("a", format="tree"), None, node(b"", 0, 2**63), {422}),
    "children in their millions": (ingest_path("a", format="tree"), None, node(b"", 0, 1_300_000) + node(
        b"", 1, 0) * 1_300_000, {200}),
    "a name without an end": (ingest_path("a", format="trie"), None, varint(2**62), {422}),
    "frames that stay open": (ingest_path("a", format="speedscope"), None, events(100_000), {400, 413, 422}),
    "brackets": (ingest_path("a", format="speedscope"), None, b"[" * 4_000_000, {422}),
    "values": (ingest_path("a", format="speedscope"), None, b"[" + b"0," * 2_000_000 + b"0]", {413, 422}),
    "profiles": (ingest_path("a", format="speedscope"), None, speedscope(",".join(
        '{"type":"evented","unit":"none","name":"%d"}' % each for each in range(50_000))), {422}),
    "numbers": (ingest_path("a", format="speedscope"), None, speedscope(
        '{"type":"sampled","unit":"seconds","samples":[[0]],"weights":[1e999]}'), {422}),
    "one deep stack": (ingest_path("a"), None, b"a;" * 2_000_000 + b"a 1\n", {200, 400, 413}),
    "a line": (ingest_path("a"), None, b"a" * 4_000_000, {200}),
    "counts": (ingest_path("a"), None, b"a 9223372036854775807\n" * 100, {422}),
    "sample types": (ingest_path("a", format="pprof"), None, field(1, b"") * 100_000 + field(6, b"") + field(
        2, field(2, b"\x01" * 100_000)) * 30, {422}),
    "labels of a sample": (ingest_path("a", format="pprof"), None, field(1, b"") * 64 + field(6, b"") + field(6, b"a") + field(
        2, field(2, b"\x01" * 64) + b"\x1a\x04\x08\x01\x18\x01" * 100_000) * 6, {422}),
    "samples of a push": (PUSH_PATH, "application/proto", series(TINY * 500_000), {200, 413}),
    "bad samples of a push": (PUSH_PATH, "application/proto", series(field(2, field(1, b"x")) * 500_000), {400, 413}),
    "good and bad in turn": (PUSH_PATH, "application/proto", series(
        field(2, field(1, make_pprof())) + (field(2, field(1, make_pprof()[:-1])) + TINY) * 9_000), {400, 413}),
    "empty samples": (PUSH_PATH, "application/proto", series(b"\x12\x00" * 2_000_000), {200, 413}),
    "bombs of a push": (PUSH_PATH, "application/proto", series(field(2, field(1, gzip.compress(bytes(1 << 20)))) * 50), {413}),
    "labels of a series": (PUSH_PATH, "application/proto", series(TINY, b"".join(
        field(1, field(1, b"n" * 32_000 + b"%d" % each)) for each in range(120))), {400}),
    "labels for every sample": (PUSH_PATH, "application/proto", series(TINY * 5_000, field(
        1, field(1, b"__name__") + field(2, b"x" * 60_000))), {200, 400, 413}),
    "JSON": (PUSH_PATH, "application/json", b'{"series":[' + b"{}," * 1_300_000 + b"{}]}", {400, 413}),
    "deep JSON": (PUSH_PATH, "application/json", b'{"series":' + b"[" * 4_000_000, {400, 413}),
    "a bomb in a frame": (PUSH_PATH, "application/grpc-web", clients.frame(BOMB, True), {200}),
}


def config():
    http = {"endpoint": "127.0.0.1:0", "max_request_body_size": LIMIT, "read_timeout": "1s"}
    return {"receivers": {"pyroscope": {"protocols": {"http": http}}}, "exporters": {"nop": {}},
            "service": {"pipelines": {"profiles": {"receivers": ["pyroscope"], "exporters": ["nop"]}},
                        "telemetry": {"metrics": {"level": "normal", "readers": [{"pull": {
                            "exporter": {"prometheus": {"host": "127.0.0.1", "port": 0}}}}]}}}}


def check_memory(running):
    """Checks the peak memory. Address sanitizers reserve terabytes, including their shadow memory."""
    with open(f"/proc/{running.process.pid}/status", encoding="ascii") as file:
        sizes = {words[0]: int(words[1]) << 10 for words in map(str.split, file) if words[0] in ("VmHWM:", "VmPeak:")}
    assert sizes["VmHWM:"] < ROOM or sizes["VmPeak:"] > 1 << 40


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(braid, name):
    path, kind, body, codes = ATTACKS[name]
    process = braid(config())
    address = process.address("http", NODE)
    headers = {"Content-Encoding": "gzip", **({"Content-Type": kind} if kind else {})}
    body = gzip.compress(body, 1)
    begun = time.monotonic()
    answer = http1(address, path, body, headers)
    assert answer.code in codes, answer.body
    assert time.monotonic() - begun < SECONDS
    check_memory(process)
    assert http1(address, ingest_path("shop"), b"main 1\n", {}).code == 200
    metrics = process.metrics()
    assert sum(metrics.get("otelcol_receiver_refused_profile_samples", {}).values()) == 0
    ledger = process.ledger("profiles")
    assert ledger["received"] == ledger["sent"]


def test_slow_senders_are_closed(braid):
    """Announced sizes cost no memory, and connections that send nothing, or a byte now and then,
    are closed."""
    process = braid(config())
    address = process.address("http", NODE)
    host, port = address.rsplit(":", 1)
    head = b"POST /ingest?name=a HTTP/1.1\r\nHost: a\r\n"
    claims = []
    for _ in range(100):
        claims.append(socket.create_connection((host, int(port)), timeout=20))
        claims[-1].sendall(head + b"Content-Length: %d\r\n\r\na" % LIMIT)
    drip = socket.create_connection((host, int(port)), timeout=20)
    drip.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
    begun, closed = time.monotonic(), False
    while not closed and time.monotonic() - begun < 15:
        try:
            drip.sendall(b"1\r\na\r\n")
            time.sleep(0.25)
        except ConnectionError:
            closed = True
    assert closed
    for each in claims:
        assert each.recv(1) == b""
        each.close()
    drip.close()
    assert http1(address, ingest_path("shop"), b"main 1\n", {}).code == 200
    check_memory(process)
