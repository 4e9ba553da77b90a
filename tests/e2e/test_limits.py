# SPDX-License-Identifier: Apache-2.0
"""redaction and profile_limits in the running service; the output is read by the official classes."""

import copy
import hashlib
import hmac

import pytest

import clients
import otlp
import profile_view
from braid import check_closed, exporter, pipelines
from otlp import PROFILES, TRACES

MASK = "[REDACTED]"


@pytest.fixture
def through(braid, sink):
    """through(signal, processors) starts Braid with them in front of the sink."""
    return lambda signal, **processors: braid(
        pipelines(exporter("grpc", sink), signals=[signal.name], processors=processors, workers=1))


def send(server, signal, request):
    clients.grpc(server.grpc, signal, request.SerializeToString()).expect_ok()


def deep_request(depths):
    """Sample number n has the value n and as many frames f1 (the leaf), f2 ... as the n-th depth."""
    request = otlp.profile_request(0)
    tables = request.dictionary
    first = len(tables.location_table)
    for n in range(1, max(depths) + 1):
        tables.string_table.append(f"f{n}")
        tables.function_table.add(name_strindex=len(tables.string_table) - 1)
        location = tables.location_table.add(mapping_index=1, address=n)
        location.lines.add(function_index=len(tables.function_table) - 1, line=n)
    [profile] = request.resource_profiles[0].scope_profiles[0].profiles
    for n, depth in enumerate(depths, 1):
        tables.stack_table.add(location_indices=range(first, first + depth))
        profile.samples.add(stack_index=len(tables.stack_table) - 1, values=[n])
    return request


def names(sample):
    return [line[0] for frame in sample["frames"] for line in frame["lines"]]


def test_deep_stacks_keep_their_leaves(through, sink):
    server = through(PROFILES, profile_limits={})
    depths = [1, 63, 64, 65, 500]
    send(server, PROFILES, deep_request(depths))
    sink.wait(PROFILES, len(depths))
    [call] = sink.of(PROFILES)
    by_value = {sample["values"][0]: sample for sample in profile_view.samples(call.message)}
    for n, depth in enumerate(depths, 1):
        frames = [f"f{i}" for i in range(1, depth + 1)]
        wanted = frames if depth <= 64 else frames[:63] + ["[truncated]"]
        assert names(by_value[n]) == wanted
    assert server.metrics()["braid_profile_limits_changed"][
        'processor="profile_limits",what="stack"'] == 2


def test_large_requests_are_split(through, sink):
    """All records arrive, and no request is too large or has too many samples."""
    server = through(PROFILES, profile_limits={"max_profile_size": 5000, "max_samples": 70})
    request = otlp.profile_request(1000)
    size = len(request.SerializeToString())
    send(server, PROFILES, request)
    sink.wait(PROFILES, 1000)
    calls = sink.of(PROFILES)
    assert len(calls) >= max(size // 5000, 1000 // 70)
    for call in calls:
        assert len(call.message.SerializeToString()) <= 5000
        assert len(otlp.items_of(PROFILES, call.message)) <= 70
    assert profile_view.samples(*[call.message for call in calls]) == profile_view.samples(request)


def with_thread_names(request, texts):
    """Sets the thread.name of sample n to the n-th text."""
    tables = request.dictionary
    for (_, _, sample), text in zip(otlp.samples_of(request), texts):
        tables.attribute_table.add(key_strindex=3, value=otlp.attribute("", text).value)
        del sample.attribute_indices[:]
        sample.attribute_indices.append(len(tables.attribute_table) - 1)
    return request


def test_an_unsplittable_record_is_dropped_and_counted(through, sink):
    server = through(PROFILES, profile_limits={"max_profile_size": 5000})
    texts = [f"worker-{n}" for n in range(10)]
    whole = with_thread_names(otlp.profile_request(10), texts)
    texts[6] = "x" * 6000
    send(server, PROFILES, with_thread_names(otlp.profile_request(10), texts))
    sink.wait(PROFILES, 9)
    got = profile_view.samples(*[call.message for call in sink.of(PROFILES)])
    # The 7th sample has 70 ms.
    assert got == [each for each in profile_view.samples(whole) if each["values"] != [70_000_000]]
    ledger = check_closed(server.ledger("profiles"))
    assert ledger["received"] == 10 and ledger["sent"] == 9
    dropped = server.metrics()["braid_ledger_dropped"]
    [value] = [n for labels, n in dropped.items() if "profile_too_large" in labels]
    assert value == 1


def test_values_of_a_label_are_limited(through, sink):
    server = through(PROFILES, profile_limits={"max_label_values": 3})
    for n, texts in enumerate((["a", "b", "a"], ["c", "d", "b"]), 1):
        send(server, PROFILES, with_thread_names(otlp.profile_request(3), texts))
        sink.wait(PROFILES, 3 * n)  # exports of two requests may arrive in any order
    got = [{sample["values"][0] // 10_000_000: sample["attributes"]["thread.name"][0]
            for sample in profile_view.samples(call.message)} for call in sink.of(PROFILES)]
    assert got == [{1: "a", 2: "b", 3: "a"}, {1: "c", 2: "[other]", 3: "b"}]


def test_redaction_of_spans(through, sink):
    key = "0123456789abcdef" * 2
    server = through(TRACES, redaction={
        "blocked_values": ["[0-9]{16}"], "blocked_value_words": ["DECLINED"],
        "hash_function": "hmac-sha256", "hmac_key": key})
    request = otlp.trace_request(3)
    wanted = copy.deepcopy(request)

    def hashed(text):
        return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()

    for (_, _, span), (_, _, other) in zip(otlp.spans_of(request), otlp.spans_of(wanted)):
        for before, after in (("hunter2", hashed("hunter2")),):
            span.attributes.append(otlp.attribute("db.PASSWORD", before))
            other.attributes.append(otlp.attribute("db.PASSWORD", after))
        card = "4111111111111111"
        span.attributes.append(otlp.attribute("note", f"card {card}, thanks"))
        other.attributes.append(otlp.attribute("note", f"card {hashed(card)}, thanks"))
        other.status.message = "card " + hashed("declined")
        other.events[0].attributes[0].value.string_value = hashed("Declined")
    send(server, TRACES, request)
    sink.wait(TRACES, 3)
    [call] = sink.of(TRACES)
    assert call.message == wanted


def test_redaction_of_profiles(through, sink):
    server = through(PROFILES, redaction={
        "function_names": {"words": ["pricecart"]}, "file_paths": {"patterns": ["/srv/[a-z]+"]},
        "blocked_key_words": ["THREAD"]})
    request = otlp.profile_request(5)
    # A label with the name of a function must not be taken for one.
    tables = request.dictionary
    tables.attribute_table.add(key_strindex=5, value=otlp.attribute("", "main").value)
    for _, _, sample in otlp.samples_of(request):
        sample.attribute_indices.append(2)
    send(server, PROFILES, request)
    sink.wait(PROFILES, 5)
    [call] = sink.of(PROFILES)
    wanted = profile_view.samples(request)
    for sample in wanted:
        assert sample["attributes"] == {"thread.name": ("worker-1", ""), "priceCart": ("main", "")}
        sample["attributes"]["thread.name"] = (MASK, "")
        for frame in sample["frames"]:
            frame["lines"] = [tuple(MASK if text == "priceCart" else text for text in line)
                              for line in frame["lines"]]
            frame["mapping"] = (*frame["mapping"][:-1], MASK)
    assert profile_view.samples(call.message) == wanted
    assert b"/srv/shop" not in call.message.SerializeToString()


def test_long_texts_do_not_block(through, sink):
    """A pattern that takes quadratic time over 2 MB: half an hour without a limit."""
    server = through(TRACES, redaction={"blocked_values": ["[a-z0-9.]+@[a-z.]+"]})
    request = otlp.trace_request(1)
    [(_, _, span)] = otlp.spans_of(request)
    span.attributes.append(otlp.attribute("text", "abcd" * 500_000))
    send(server, TRACES, request)
    sink.wait(TRACES, 1)
    [call] = sink.of(TRACES)
    [(_, _, span)] = otlp.spans_of(call.message)
    assert otlp.attributes_of(span.attributes)["text"] == MASK
    assert server.metrics()["braid_redaction_gave_up"]['processor="redaction"'] >= 1
