# SPDX-License-Identifier: Apache-2.0
"""Processors in the running service."""

import pytest

import clients
import otlp
import profile_view
from braid import exporter, pipelines
from otlp import SIGNALS

each_signal = pytest.mark.parametrize("signal", SIGNALS, ids=str)


@pytest.fixture
def through(braid, sink):
    """through(processors) starts Braid with them in front of the sink. It has one worker, since
    each worker makes separate batches."""
    return lambda **processors: braid(
        pipelines(exporter("grpc", sink), processors=processors, workers=1))


def send_apart(server, signal, n_requests, **more):
    """Sends one record in each request, all different; returns the requests."""
    requests = [otlp.request_of(signal, 1, first=n + 1, **more) for n in range(n_requests)]
    for request in requests:
        clients.grpc(server.grpc, signal, request.SerializeToString()).expect_ok()
    return requests


@each_signal
def test_batch_waits_for_its_size(through, sink, signal):
    server = through(batch={"timeout": "1h", "send_batch_size": 100})
    requests = send_apart(server, signal, 100)
    sink.wait(signal, 100)
    [call] = sink.of(signal)
    check_same(signal, [call], requests)


@each_signal
def test_batch_sends_a_partial_batch_after_its_timeout(through, sink, signal):
    server = through(batch={"timeout": "50ms", "send_batch_size": 1000})
    requests = send_apart(server, signal, 10)
    sink.wait(signal, 10)
    check_same(signal, sink.of(signal), requests)


@each_signal
@pytest.mark.parametrize("n_items", [7, 100, 1001])
def test_batch_never_exceeds_its_maximum(through, sink, signal, n_items):
    server = through(batch={"timeout": "50ms", "send_batch_size": 10, "send_batch_max_size": 10})
    request = otlp.request_of(signal, n_items)
    clients.grpc(server.grpc, signal, request.SerializeToString()).expect_ok()
    sink.wait(signal, n_items)
    assert all(len(otlp.items_of(signal, call.message)) <= 10 for call in sink.of(signal))
    check_same(signal, sink.of(signal), [request])


def test_batched_profiles_share_one_dictionary(through, sink):
    """100 requests contain the same functions: each name is in the output once."""
    server = through(batch={"timeout": "1h", "send_batch_size": 100})
    send_apart(server, otlp.PROFILES, 100)
    sink.wait(otlp.PROFILES, 100)
    [call] = sink.of(otlp.PROFILES)
    tables = call.message.dictionary
    assert len(set(tables.string_table)) == len(tables.string_table)
    for table, n_entries in ((tables.function_table, 2), (tables.location_table, 2), (tables.stack_table, 1),
                             (tables.mapping_table, 1), (tables.attribute_table, 1), (tables.link_table, 100)):
        assert len(table) == 1 + n_entries


@each_signal
def test_resource(through, sink, signal):
    server = through(resource={"attributes": [
        {"key": "deployment.environment", "value": "test", "action": "insert"},
        {"key": "service.name", "value": "other", "action": "upsert"}]})
    [request] = send_apart(server, signal, 1)
    [(resource, *_)] = sink.wait(signal, 1)
    assert otlp.attributes_of(resource.attributes) == {"deployment.environment": "test", "service.name": "other"}


@each_signal
def test_resource_does_not_change_the_records(through, sink, signal):
    server = through(resource={"attributes": [{"key": "x", "value": "y", "action": "insert"}]})
    [request] = send_apart(server, signal, 1)
    sink.wait(signal, 1)
    [call] = sink.of(signal)
    for each in otlp.resources_of(signal, call.message):
        [added] = [pair for pair in each.resource.attributes if pair.key == "x"]
        each.resource.attributes.remove(added)
    assert call.message == request


def check_same(signal, calls, requests):
    """The calls contain the records of the requests, however they were merged."""
    arrived = [call.message for call in calls]
    if signal is otlp.PROFILES:
        assert profile_view.samples(*arrived) == profile_view.samples(*requests)
    else:
        assert items(arrived) == items(requests)


def items(requests):
    """Each span with its resource and scope, in no particular order."""
    return sorted(tuple(part.SerializeToString(deterministic=True) for part in item)
                  for request in requests for item in otlp.spans_of(request))
