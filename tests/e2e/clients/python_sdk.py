# SPDX-License-Identifier: Apache-2.0
"""Sends the scene of README.md with the official Python SDK: python_sdk.py grpc|http ENDPOINT
none|gzip"""

import json
import sys

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


def exporter(transport, endpoint, compression):
    if transport == "grpc":
        import grpc
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        codings = {"none": grpc.Compression.NoCompression, "gzip": grpc.Compression.Gzip}
        return OTLPSpanExporter(endpoint, insecure=True, compression=codings[compression])
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    return OTLPSpanExporter(f"http://{endpoint}/v1/traces", compression=Compression(compression))


def main():
    provider = TracerProvider(resource=Resource.create(
        {"service.name": "shop-python", "service.version": "1.2.3"}))
    provider.add_span_processor(
        BatchSpanProcessor(exporter(*sys.argv[1:]), max_export_batch_size=40))
    tracer = provider.get_tracer("scene", "0.1")
    linked = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1))
    sent = []
    with tracer.start_as_current_span(
            "POST /checkout", kind=trace.SpanKind.SERVER,
            links=[trace.Link(linked, {"link.kind": "batch"})],
            attributes={"http.route": "/checkout", "http.response.status_code": 503,
                        "cart.total": 12.5, "cart.paid": True, "cart.items": ["apple", "pear"],
                        "note": "naïve ✓"}) as root:
        with tracer.start_as_current_span("charge card", kind=trace.SpanKind.CLIENT) as charge:
            charge.add_event("retry", {"attempt": 2})
            charge.set_status(trace.StatusCode.ERROR, "card declined")
        sent += [root, charge]
        for n in range(100):
            with tracer.start_as_current_span("tick", attributes={"n": n}) as tick:
                sent.append(tick)
        root.set_status(trace.StatusCode.OK)
    provider.shutdown()
    for span in sent:
        ids = span.get_span_context()
        print(json.dumps([f"{ids.trace_id:032x}", f"{ids.span_id:016x}"]))


main()
