# SPDX-License-Identifier: Apache-2.0
"""Processors that select and change single spans and samples, in the running service. The output is
read by the official protobuf classes and compared with results computed here from the rules."""

import hashlib
import random

import pytest

import clients
import otlp
import profile_view
from braid import exporter, pipelines
from otlp import PROFILES, SIGNALS, TRACES, attribute, attributes_of, spans_of

each_signal = pytest.mark.parametrize("signal", SIGNALS, ids=str)


@pytest.fixture
def through(braid, sink):
    return lambda **processors: braid(
        pipelines(exporter("grpc", sink), processors=processors, workers=1))


def send(server, signal, request):
    clients.grpc(server.grpc, signal, request.SerializeToString()).expect_ok()


def of_random_traces(n, seed=1):
    """The same n traces as spans and as samples, and their ids."""
    rng = random.Random(seed)
    ids = [rng.randbytes(16) for _ in range(n)]
    spans, samples = otlp.trace_request(n), otlp.profile_request(n)
    for id, (_, _, span) in zip(ids, spans_of(spans)):
        span.trace_id = id
    for id, link in zip(ids, samples.dictionary.link_table[1:]):
        link.trace_id = id
    return ids, spans, samples


def fnv1a(data):
    hash = 0x811c9dc5
    for byte in data:
        hash = (hash ^ byte) * 0x01000193 & 0xffffffff
    return hash


def by_threshold(threshold):
    return lambda id: int.from_bytes(id[9:], "big") >= threshold


def by_hash(seed, percentage):
    accepted = int(percentage * 163.84)
    return lambda id: fnv1a(seed.to_bytes(4, "little") + id) & 0x3fff < accepted


@pytest.mark.parametrize("options,kept,tracestate", [
    ({"mode": "proportional", "sampling_percentage": 30}, by_threshold(0xb333 << 40), "ot=th:b333,k=v"),
    ({"mode": "equalizing", "sampling_percentage": 1}, by_threshold(0xfd70a << 36), "ot=th:fd70a,k=v"),
    ({"mode": "equalizing", "sampling_percentage": 100}, by_threshold(0), "ot=th:0,k=v"),
    ({"hash_seed": 22, "sampling_percentage": 30}, by_hash(22, 30), None),
    ({"sampling_percentage": 75}, by_hash(0, 75), None),
], ids=["proportional", "equalizing", "all", "hash", "hash-without-seed"])
def test_samples_of_a_kept_trace_are_kept(through, sink, options, kept, tracestate):
    ids, spans, samples = of_random_traces(1000)
    expected = [id for id in ids if kept(id)]
    server = through(probabilistic_sampler=options)
    send(server, TRACES, spans)
    send(server, PROFILES, samples)
    arrived = [span for _, _, span in sink.wait(TRACES, len(expected))]
    assert [span.trace_id for span in arrived] == expected
    originals = {span.trace_id: span for _, _, span in spans_of(spans)}
    for span in arrived:
        state = span.trace_state
        assert state == tracestate if tracestate else state.startswith("ot=rv:") and state.endswith(",k=v")
        span.trace_state = "k=v"
        assert span == originals[span.trace_id]
    sink.wait(PROFILES, len(expected))
    [call] = sink.of(PROFILES)
    links = [sample["link"][0] for sample in profile_view.View(call.message).samples()]
    assert links == [id.hex() for id in expected]
    assert profile_view.samples(call.message) == [
        sample for sample in profile_view.samples(samples) if sample["link"][0] in set(links)]


def test_unlinked_samples_are_kept_by_default(through, sink):
    server = through(**{"probabilistic_sampler": {"sampling_percentage": 0}})
    send(server, PROFILES, otlp.profile_request(3, linked=False))
    send(server, PROFILES, otlp.profile_request(5))
    sink.wait(PROFILES, 3)


@each_signal
def test_attributes(through, sink, signal):
    """Both signals use one list of actions; the expected result is computed here, too."""
    server = through(attributes={"actions": [
        {"key": "s", "action": "hash"},
        {"key": "thread.name", "action": "hash"},
        {"key": "i", "converted_type": "string", "action": "convert"},
        {"key": "pad", "action": "delete"},
        {"key": "copy", "from_attribute": "thread.name", "action": "insert"},
        {"key": "new", "value": [1, "x"], "action": "insert"}], "apply_to": "samples"})
    request = otlp.request_of(signal, 20)
    send(server, signal, request)
    arrived = sink.wait(signal, 20)
    if signal is TRACES:
        for (_, _, before), (_, _, after) in zip(spans_of(request), arrived):
            expected = attributes_of(before.attributes)
            expected["s"] = hashlib.sha256(expected["s"].encode()).hexdigest()
            expected["i"] = "-7"
            del expected["pad"]
            expected["new"] = [1, "x"]
            assert list(attributes_of(after.attributes).items()) == list(expected.items())
            before.ClearField("attributes")
            after.ClearField("attributes")
            assert after == before
        return
    [call] = sink.of(signal)
    hashed = hashlib.sha256(b"worker-1").hexdigest()
    expected = profile_view.samples(request)
    for sample in expected:
        sample["attributes"] = {"thread.name": (hashed, ""), "copy": (hashed, ""), "new": ([1, "x"], "")}
    assert profile_view.samples(call.message) == expected
    # 20 samples share the new attributes: three entries behind the existing two
    assert len(call.message.dictionary.attribute_table) == 5


def test_attributes_of_some_spans(through, sink):
    server = through(attributes={
        "include": {"match_type": "regexp", "span_names": ["[02468]$"],
                    "attributes": [{"key": "i", "value": "^-7$"}]},
        "exclude": {"match_type": "strict", "span_names": ["span 4"]},
        "actions": [{"key": "even", "value": True, "action": "insert"}]})
    send(server, TRACES, otlp.trace_request(10))
    marked = [span.name for _, _, span in sink.wait(TRACES, 10)
              if attributes_of(span.attributes).get("even")]
    assert marked == ["span 2", "span 6", "span 8", "span 10"]


def test_filter_spans(through, sink):
    server = through(filter={"spans": {
        "include": {"match_type": "strict", "services": ["shop"], "span_kinds": ["SPAN_KIND_SERVER"],
                    "libraries": [{"name": "tests", "version": "1.0"}]},
        "exclude": {"match_type": "regexp", "span_names": ["^span [1-3]$"]}}})
    request = otlp.trace_request(6)
    send(server, TRACES, request)
    send(server, TRACES, otlp.trace_request(4, service="cart"))
    sink.wait(TRACES, 3)
    [call] = sink.of(TRACES)
    del request.resource_spans[0].scope_spans[0].spans[:3]
    assert call.message == request


def test_filter_samples(through, sink):
    request = otlp.profile_request(6)
    tables, (profile, ) = request.dictionary, request.resource_profiles[0].scope_profiles[0].profiles
    tables.stack_table.add(location_indices=[1])  # without priceCart
    tables.attribute_table.add(key_strindex=3, value=attribute("", "worker-2").value)
    for sample in profile.samples[:2]:
        sample.stack_index = 2
    profile.samples[5].attribute_indices[:] = [2]
    server = through(filter={"profiles": {
        "include": {"match_type": "strict", "functions": ["priceCart"], "sample_types": ["cpu"]},
        "exclude": {"match_type": "regexp", "attributes": [{"key": "thread.name", "value": "2$"}]}}})
    send(server, PROFILES, request)
    arrived = [sample.values[0] for _, _, sample in sink.wait(PROFILES, 3)]
    assert arrived == [sample.values[0] for sample in profile.samples[2:5]]
    del profile.samples[5], profile.samples[:2]
    [call] = sink.of(PROFILES)
    assert profile_view.samples(call.message) == profile_view.samples(request)


@each_signal
def test_a_request_dropped_as_a_whole_is_accepted(through, sink, signal):
    """The client is answered; nothing is exported, and the next request is."""
    every = {"exclude": {"match_type": "regexp", "services": ["^cart$"]}}
    server = through(filter={"spans": every, "profiles": every})
    send(server, signal, otlp.request_of(signal, 5, service="cart"))
    send(server, signal, otlp.request_of(signal, 2, service="shop"))
    sink.wait(signal, 2)
    assert len(sink.of(signal)) == 1
