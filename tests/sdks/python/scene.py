# SPDX-License-Identifier: Apache-2.0
"""Pyroscope's Python SDK and its span processor (1.x or 0.8, whichever is installed), at work on one
slow request."""

import json
import os
import time

import pyroscope
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from pyroscope.otel import PyroscopeSpanProcessor

SECONDS = float(os.environ["SECONDS"])


def burn(seconds):
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        n += sum(i * i for i in range(1000))
    return n


def root_work():
    return burn(SECONDS / 2)


def child_work():
    return burn(SECONDS / 2)


def say(span, name):
    context = span.get_span_context()
    print(json.dumps([f"{context.trace_id:032x}", f"{context.span_id:016x}", name]))


pyroscope.configure(application_name="shop", server_address=os.environ["PYROSCOPE"],
                    sample_rate=100, tags={"env": "test", "region": "eu west"})
provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
provider.add_span_processor(PyroscopeSpanProcessor())
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(os.environ["OTLP"] + "/v1/traces")))
tracer = provider.get_tracer("scene")
with tracer.start_as_current_span("POST /checkout", kind=SpanKind.SERVER,
                                  attributes={"http.route": "/checkout"}) as root:
    root_work()
    with tracer.start_as_current_span("charge card") as child:
        child_work()
pyroscope.shutdown()
provider.shutdown()
say(root, "POST /checkout")
say(child, "charge card")
