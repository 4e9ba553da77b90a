# SPDX-License-Identifier: Apache-2.0
"""Pyroscope's Python SDK and its span processor (1.x or 0.8, whichever is installed), with one slow
request, or many short ones."""

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
REQUESTS = int(os.environ.get("REQUESTS", 0))


def burn(seconds):
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        n += sum(i * i for i in range(1000))
    return n


def root_work(seconds):
    return burn(seconds)


def child_work(seconds):
    return burn(seconds)


def say(span, name):
    context = span.get_span_context()
    print(json.dumps([f"{context.trace_id:032x}", f"{context.span_id:016x}", name]))


pyroscope.configure(application_name="shop", server_address=os.environ["PYROSCOPE"],
                    sample_rate=100, tags={"env": "test", "region": "eu west"})
provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
provider.add_span_processor(PyroscopeSpanProcessor())
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(os.environ["OTLP"] + "/v1/traces")))
tracer = provider.get_tracer("scene")


def request(own, below):
    """Makes a span and a child, which work for that many seconds."""
    with tracer.start_as_current_span("POST /checkout", kind=SpanKind.SERVER,
                                      attributes={"http.route": "/checkout"}) as root:
        root_work(own)
        with tracer.start_as_current_span("charge card") as child:
            child_work(below)
    say(root, "POST /checkout")
    say(child, "charge card")


for n in range(REQUESTS):  # some of them work for less than the profiler's interval
    request(n % 4 * 0.02, n // 4 % 4 * 0.02)
    time.sleep(0.2)
if not REQUESTS:
    request(SECONDS / 2, SECONDS / 2)
pyroscope.shutdown()
provider.shutdown()
