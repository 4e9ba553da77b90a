# SPDX-License-Identifier: Apache-2.0
"""Processors that change names and resources, in the running service. The output is read by the official protobuf classes,
and the expected values are computed here from the rules of the Collector's processors."""

import pytest

import clients
import otlp
from braid import exporter, pipelines
from otlp import TRACES, attributes_of, spans_of


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
