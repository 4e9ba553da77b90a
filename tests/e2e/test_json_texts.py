# SPDX-License-Identifier: Apache-2.0
"""Texts in JSON that are not UTF-8: SDKs cut attributes in the middle of a character, and no batch
may be lost because of that. Invalid bytes become U+FFFD, as in protobuf."""

import base64
import json

import pytest
from google.protobuf import json_format

import clients
import otlp
from braid import exporter, pipelines
from otlp import PROFILES, TRACES

BEFORE = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"'
AFTER = b'"}]}]}]}'


def name_of(server, sink, text):
    answer = clients.http(server.http, TRACES.path, BEFORE + text + AFTER, otlp.JSON)
    assert answer.code == 200, answer
    [(_, _, span)] = sink.wait(TRACES, 1)
    return span.name


@pytest.mark.parametrize("text, name", [
    (rb"cut \ud83d", "cut \ufffd"), (rb"\udc00 cut", "\ufffd cut"), (rb"\ud83d\ude00", "\U0001f600"),
    (rb"\ud83d\ud83d\ude00", "\ufffd\U0001f600"), (rb"\ud83d\u0041", "\ufffdA"),
    (b"cut \xf0\x9f", "cut \ufffd\ufffd"), (b"\xff", "\ufffd"), (b"latin \xe9", "latin \ufffd"),
    ("\u00e9".encode(), "\u00e9"),
])
def test_invalid_bytes_are_replaced(braid, sink, text, name):
    server = braid(pipelines(exporter("proto", sink)))
    assert name_of(server, sink, text) == name
    repaired = sum(server.metrics()["braid_receiver_repaired_strings"].values())
    assert repaired == (0 if text.isascii() or text == "\u00e9".encode() else 1)


def test_a_strict_receiver_rejects_invalid_bytes(braid, sink):
    server = braid(pipelines(exporter("proto", sink), receiver={"invalid_utf8": "reject"}))
    answer = clients.http(server.http, TRACES.path, BEFORE + b"\xff" + AFTER, otlp.JSON)
    assert answer.code == 400 and "UTF-8" in answer.message


def test_incomplete_json_is_rejected_as_incomplete(braid, sink):
    server = braid(pipelines(exporter("proto", sink)))
    answer = clients.http(server.http, TRACES.path, BEFORE + b"\xff", otlp.JSON)
    assert answer.code == 400 and "not JSON" in answer.message


def by_original_names(message):
    def with_hex(node):
        if isinstance(node, dict):
            return {key: base64.b64decode(value).hex() if key in ("trace_id", "span_id", "parent_span_id", "profile_id")
                    else with_hex(value) for key, value in node.items()}
        return [with_hex(each) for each in node] if isinstance(node, list) else node
    return json.dumps(with_hex(json_format.MessageToDict(
        message, preserving_proto_field_name=True, use_integers_for_enums=True))).encode()


@pytest.mark.parametrize("signal", [TRACES, PROFILES])
def test_original_names_are_read_like_lower_camel_case(braid, sink, signal):
    server = braid(pipelines(exporter("proto", sink)))
    made = otlp.request_of(signal, 3)
    body = by_original_names(made)
    assert b"resource_" in body
    assert clients.http(server.http, signal.path, body, otlp.JSON).code == 200
    found = list(sink.wait(signal, 3))
    assert [each[-1] for each in found] == [each[-1] for each in otlp.items_of(signal, made)]
