# SPDX-License-Identifier: Apache-2.0
"""Processors that change names and resources, in the running service. The output is read by the official protobuf classes,
and the expected values are computed here from the rules of the Collector's processors."""

import pytest

import clients
import otlp
from braid import exporter, pipelines
from otlp import SIGNALS, TRACES, attribute, attributes_of, items_of, samples_of, spans_of


@pytest.fixture
def through(braid, sink):
    """through(signal, processors) starts Braid with them in front of the sink."""
    return lambda signal, **processors: braid(
        pipelines(exporter("grpc", sink), signals=[signal.name], processors=processors, workers=1))


def send(server, signal, request):
    clients.grpc(server.grpc, signal, request.SerializeToString()).expect_ok()


def test_span(through, sink):
    request = otlp.trace_request(10)
    for i, (_, _, span) in enumerate(spans_of(request)):
        span.name = f"/users/{i}/orders"
    server = through(TRACES, span={"include": {"match_type": "regexp", "span_names": ["^/users/[0-4]/"]},
                                   "name": {"to_attributes": {"rules": ["^/users/(?P<user>[^/]+)"]}},
                                   "status": {"code": "Error", "description": "checked"}})
    send(server, TRACES, request)
    for i, ((_, _, before), (_, _, after)) in enumerate(zip(spans_of(request), sink.wait(TRACES, 10))):
        if i < 5:
            assert attributes_of(after.attributes) == attributes_of(before.attributes) | {"user": str(i)}
            assert (after.name, after.status.message) == ("/users/{user}/orders", "checked")
            assert after.status.code == after.status.STATUS_CODE_ERROR
            for field in ("name", "attributes", "status"):
                before.ClearField(field)
                after.ClearField(field)
        assert after == before


@pytest.mark.parametrize("signal", SIGNALS, ids=str)
def test_group_by_attrs(through, sink, signal):
    """The values of the records are found again in their resources."""
    request = otlp.request_of(signal, 12)
    if signal is TRACES:
        for i, (_, _, span) in enumerate(spans_of(request)):
            span.attributes.append(attribute("tenant", f"tenant {i % 3}"))
    else:
        tables = request.dictionary
        tables.string_table.append("tenant")
        first = len(tables.attribute_table)
        for i in range(3):
            tables.attribute_table.add(key_strindex=len(tables.string_table) - 1,
                                       value=attribute("", f"tenant {i}").value)
        for i, (_, _, sample) in enumerate(samples_of(request)):
            sample.attribute_indices.append(first + i % 3)
    server = through(signal, groupbyattrs={"keys": ["tenant"]})
    send(server, signal, request)
    arrived = sink.wait(signal, 12)
    before = items_of(signal, request)
    for i, (resource, parent, record) in enumerate(arrived):
        tenant, position = divmod(i, 4)  # groups are in the order of their first record
        original = before[3 * position + tenant]
        assert attributes_of(resource.attributes) == {"service.name": "shop", "tenant": f"tenant {tenant}"}
        if signal is TRACES:
            del original[2].attributes[-1]
        else:
            del original[2].attribute_indices[-1]
            assert parent.profile_id == original[1].profile_id
        assert record == original[2]
