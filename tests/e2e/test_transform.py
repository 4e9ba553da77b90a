# SPDX-License-Identifier: Apache-2.0
"""The processor transform, and the conditions of filter, in the running service. The output is read
by the official protobuf classes and compared with results computed here from the Collector's
documentation (pkg/ottl/ottlfuncs/README.md, 0.165)."""

import hashlib
import re

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
    return clients.grpc(server.grpc, signal, request.SerializeToString())


def test_spans(through, sink):
    """Each statement changes a field of its own; everything else arrives as it was."""
    server = through(transform={"error_mode": "propagate", "trace_statements": [
        'set(resource.attributes["deployment.environment"], "test")',
        'set(scope.name, Concat([scope.name, scope.version], "@"))',
        'set(span.attributes["digest"], SHA256(span.name)) where span.kind == SPAN_KIND_SERVER',
        'replace_pattern(span.name, "^span (\\\\d)$", "n-$${1}")',
        'delete_matching_keys(span.attributes, "^(pad|raw|d)$")',
        'set(span.attributes["m"]["k"][0], span.status.message)',
        'set(span.attributes["took"], span.end_time_unix_nano - span.start_time_unix_nano)',
        'set(spanevent.attributes["exception.type"], ConvertCase(spanevent.attributes["exception.type"], "upper"))',
        'merge_maps(spanevent.attributes, ParseJSON("{\\"a\\": {\\"b\\": [1, null]}}"), "insert")',
    ]})
    request = otlp.trace_request(3)
    send(server, TRACES, request).expect_ok()
    sink.wait(TRACES, 3)
    [call] = sink.of(TRACES)
    # The statements, applied to the request that was sent.
    resource = request.resource_spans[0]
    resource.resource.attributes.append(attribute("deployment.environment", "test"))
    resource.scope_spans[0].scope.name = "tests@1.0"
    for _, _, span in spans_of(request):
        values = attributes_of(span.attributes)
        kept = [pair for pair in span.attributes if pair.key not in ("pad", "raw", "d")]
        del span.attributes[:]
        span.attributes.extend(kept)
        [m] = [pair for pair in span.attributes if pair.key == "m"]
        m.value.CopyFrom(attribute("m", {"k": ["card declined"]}).value)
        span.attributes.append(attribute("digest", hashlib.sha256(span.name.encode()).hexdigest()))
        span.attributes.append(attribute("took", 5_000_000))
        span.name = re.sub(r"^span (\d)$", r"n-\1", span.name)
        assert values["m"] == {"k": [False]}
        [event] = span.events
        event.attributes[0].value.string_value = "DECLINED"
        added = event.attributes.add(key="a")
        pair = added.value.kvlist_value.values.add(key="b")
        pair.value.array_value.values.add(double_value=1)
        pair.value.array_value.values.add()
    assert call.message == request


def test_samples(through, sink):
    server = through(transform={"error_mode": "propagate", "profile_statements": [
        'set(sample.attributes["leaf"], sample.function_names[0])',
        'set(sample.attributes["of"], sample.link.span_id.string) where sample.values[0] > 20000000',
        'replace_all_patterns(sample.attributes, "value", "worker-(?P<n>\\\\d)", "w$${n}")',
    ]})
    request = otlp.profile_request(4)
    send(server, PROFILES, request).expect_ok()
    sink.wait(PROFILES, 4)
    [call] = sink.of(PROFILES)
    expected = profile_view.samples(request)
    for sample in expected:
        sample["attributes"] = {"thread.name": ("w1", ""), "leaf": ("priceCart", "")}
        if sample["values"][0] > 20_000_000:
            sample["attributes"]["of"] = (sample["link"][1], "")
    assert profile_view.samples(call.message) == sorted(expected, key=repr)
    # 4 samples share the new attributes: three entries of `of` and `leaf`, and one of `thread.name`
    assert len(call.message.dictionary.attribute_table) == 2 + 1 + 2 + 1


def test_profiles(through, sink):
    server = through(transform={"error_mode": "propagate", "profile_statements": [
        {"context": "profile", "conditions": ['sample_type.type == "cpu"'],
         "statements": ['set(sample_type.type, "wall")', 'set(attributes["env"], "test")', 'set(period, period * 2)']},
        {"context": "scope", "statements": ['set(attributes["n"], Len(name))']},
        {"context": "resource", "statements": ['keep_keys(attributes, ["none"])']},
    ]})
    request = otlp.profile_request(2)
    send(server, PROFILES, request).expect_ok()
    sink.wait(PROFILES, 2)
    [call] = sink.of(PROFILES)
    expected = profile_view.samples(request)
    for sample in expected:
        sample["type"] = ("wall", "nanoseconds")
        sample["period"] = 20_000_000
        sample["scope"] = ("tests", {"n": 5})
        sample["resource"] = {}
        sample["profile"] = (*sample["profile"][:3], {"env": ("test", "")})
    assert profile_view.samples(call.message) == expected


FAILING = {TRACES: 'set(span.attributes["x"], Substring(resource.attributes["service.name"], 4, 1))',
           PROFILES: 'set(sample.attributes["x"], Substring(resource.attributes["service.name"], 4, 1))'}


@each_signal
@pytest.mark.parametrize("mode", ["default", "ignore", "silent", "propagate"])
def test_error_modes(through, sink, signal, mode):
    """A text of four bytes has no fifth one. The Collector's default is `ignore` (since 0.153)."""
    options = {} if mode == "default" else {"error_mode": mode}
    key = "trace_statements" if signal is TRACES else "profile_statements"
    server = through(transform={**options, key: [FAILING[signal]]})
    send(server, signal, otlp.request_of(signal, 1, service="shops")).expect_ok()
    answer = send(server, signal, otlp.request_of(signal, 2, service="shop"))
    failed = "Substring: the range goes beyond the end of the text"
    if mode == "propagate":
        assert answer.code == "INVALID_ARGUMENT" and failed in answer.message and not answer.retry_info
        assert len(sink.wait(signal, 1)) == 1
        return
    answer.expect_ok()
    sink.wait(signal, 3)
    assert list(server.metrics()["braid_transform_failed"].values()) == [2]
    if mode == "silent":
        server.stop()
        assert failed not in server.log()
    else:
        server.wait_log(failed)


def test_conditions_of_filter(through, sink):
    """filter has the same functions."""
    server = through(filter={"trace_conditions": [
        'Len(span.name) == 6 and Int(Split(span.name, " ")[1]) > 4',
        'span.end_time_unix_nano - span.start_time_unix_nano > 5000000']})
    send(server, TRACES, otlp.trace_request(12)).expect_ok()
    assert [span.name for _, _, span in sink.wait(TRACES, 7)] == [f"span {n}" for n in (1, 2, 3, 4, 10, 11, 12)]


@pytest.mark.parametrize("mode", ["ignore", "propagate"])
def test_conditions_of_filter_that_fail(through, sink, mode):
    server = through(filter={"error_mode": mode, "trace_conditions": ['Substring(span.name, 0, 7) == "span 10"']})
    answer = send(server, TRACES, otlp.trace_request(10))
    if mode == "propagate":
        assert answer.code == "INVALID_ARGUMENT" and "filter: Substring" in answer.message
        return
    assert [span.name for _, _, span in sink.wait(TRACES, 9)] == [f"span {n}" for n in range(1, 10)]
