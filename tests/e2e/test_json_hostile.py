# SPDX-License-Identifier: Apache-2.0
"""OTLP/JSON that needs much more memory than its size suggests: the memory of the process during
one request."""

import gzip

import pytest

import clients
import otlp
from braid import exporter, pipelines
from otlp import TRACES

SIZE = 16 << 20
SHADOWED = 1 << 40  # address sanitizers reserve terabytes, including their shadow memory
SPANS = b'{"resourceSpans":[{"scopeSpans":[{"spans":[%s]}]}]}'


def repeat(around, unit, last):
    return around % (unit * (SIZE // len(unit)) + last)


SHAPES = {
    "unknown zeros": repeat(b'{"x":[%s]}', b"0,", b"0"),
    "unknown objects": repeat(b'{"x":[%s]}', b"{},", b"0"),
    "unknown lists": repeat(b'{"x":[%s]}', b"[],", b"0"),
    "unknown members": repeat(b"{%s}", b'"x":0,', b'"x":0'),
    "a name": repeat(b'{"%s":0}', b"x", b""),
    "one member again and again": repeat(SPANS, b'{"name":"a","name":"b"},', b"{}"),
}


def memory(process):
    """Returns the current and largest memory in bytes, by the kernel's names."""
    with open(f"/proc/{process.process.pid}/status", encoding="ascii") as file:
        return {words[0]: int(words[1]) << 10 for words in map(str.split, file) if words[0].startswith("Vm")}


@pytest.mark.parametrize("name", SHAPES)
def test_memory_of_one_request_is_bounded(braid, sink, name):
    body = SHAPES[name]
    server = braid(pipelines(exporter("grpc", sink), signals=["traces"], workers=1,
                             http={"max_request_body_size": 2 * SIZE}))
    clients.http(server.http, TRACES.path, b'{"x":[0]}', otlp.JSON).expect_ok()
    before = memory(server)["VmRSS:"]
    headers = {"content-encoding": "gzip"}
    clients.http(server.http, TRACES.path, gzip.compress(body, 1), otlp.JSON, headers).expect_ok()
    after = memory(server)
    assert after["VmHWM:"] - before <= 2 * len(body) + (1 << 20) or after["VmPeak:"] > SHADOWED
