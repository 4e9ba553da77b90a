# SPDX-License-Identifier: Apache-2.0
"""Attributes may be nested as deep as in the Collector: 49 arrays in arrays, in every encoding.
Python's protobuf reads at most 100 nested messages, so the output is read from a JSON file."""

import json
from types import SimpleNamespace

import pytest

import clients
import otlp
from braid import exporter, pipelines, until
from otlp import TRACES


DEPTH = 49
CARD = "4111111111111111"


def request(depth=DEPTH):
    made = otlp.request_of(TRACES, 1)
    value = made.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="nested").value
    for _ in range(depth):
        value = value.array_value.values.add()
    value.string_value = CARD
    return made


def as_json(depth=DEPTH):
    tree = json.loads(otlp.to_json(otlp.request_of(TRACES, 1)))
    value = {"stringValue": CARD}
    for _ in range(depth):
        value = {"arrayValue": {"values": [value]}}
    tree["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"].append({"key": "nested", "value": value})
    return json.dumps(tree).encode()


def send(server, kind):
    if kind == "grpc":
        clients.grpc(server.grpc, TRACES, request().SerializeToString()).expect_ok()
    elif kind == "json":
        assert clients.http(server.http, TRACES.path, as_json(), otlp.JSON).code == 200
    else:
        assert clients.http(server.http, TRACES.path, request().SerializeToString()).code == 200


def written(path):
    """Returns the value inside the arrays in the file's only span, and the number of arrays."""
    until(lambda: path.exists() and path.read_bytes().endswith(b"\n"), "the file's line")
    [line] = path.read_text().splitlines()
    [span] = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    [value] = [attribute["value"] for attribute in span["attributes"] if attribute["key"] == "nested"]
    depth = 0
    while "arrayValue" in value:
        [value], depth = value["arrayValue"]["values"], depth + 1
    return depth, value["stringValue"]


@pytest.mark.parametrize("kind", ["proto", "json", "grpc"])
@pytest.mark.parametrize("out", ["grpc", "proto", "json"])
def test_arrays_in_arrays(braid, tmp_path, kind, out):
    behind = braid(pipelines({"file": {"path": str(tmp_path / "out.json")}}, signals=["traces"]))
    front = braid(pipelines(exporter(out, SimpleNamespace(grpc=behind.grpc, http=behind.http)), signals=["traces"], processors={
        "attributes": {"actions": [{"key": "other", "value": "x", "action": "insert"}]}}))
    send(front, kind)
    assert written(tmp_path / "out.json") == (DEPTH, CARD)


def test_redaction_reaches_the_innermost_value(braid, tmp_path):
    server = braid(pipelines({"file": {"path": str(tmp_path / "out.json")}}, signals=["traces"], processors={
        "redaction": {"allow_all_keys": True, "blocked_values": ["4[0-9]{15}"]}}))
    send(server, "grpc")
    assert written(tmp_path / "out.json") == (DEPTH, "[REDACTED]")


def test_the_store_shows_them(braid, tmp_path):
    server = braid(pipelines({"store": {"directory": str(tmp_path / "data")}},
                             extensions={"query": {"endpoint": "127.0.0.1:0"}}))
    send(server, "grpc")
    trace = request().resource_spans[0].scope_spans[0].spans[0].trace_id.hex()
    for path in ("/api/braid/traces/", "/api/traces/"):
        answer = clients.http(server.address("http", "extension/query"), path + trace, None, None, method="GET")
        assert answer.code == 200 and CARD.encode() in answer.body, (path, answer)


@pytest.mark.parametrize("kind", ["proto", "json"])
def test_deeper_arrays_are_rejected_with_a_message(braid, sink, kind):
    server = braid(pipelines(exporter("proto", sink)))
    answer = clients.http(server.http, TRACES.path, *(
        (as_json(200), otlp.JSON) if kind == "json" else (request(200).SerializeToString(),)))
    assert answer.code == 400 and "nest" in answer.message, answer
