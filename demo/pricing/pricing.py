# SPDX-License-Identifier: Apache-2.0
"""Pricing service of the demo: POST /price?items=N returns {"Total": ...}. The official SDKs of OpenTelemetry and Pyroscope
send its spans and its CPU profile, and the bridge labels the samples of every span. It is slow on purpose: match_coupons is
quadratic in the size of the cart."""

import http.server
import json
import os
import signal
import threading
import urllib.parse

import braid_bridge
import pyroscope
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind

SERVICE = "pricing"
COUPONS = [f"coupon-{number}" for number in range(200)]


def base_prices(cart):
    return [1.0 + item % 7 for item in cart]


def is_valid(coupon, item, other):
    return (len(coupon) * item + other) % 97 == 0


def match_coupons(cart):
    """Tries every coupon on every pair of items. The flame graph should show this function."""
    found = 0
    for item in cart:
        for other in cart:
            for coupon in COUPONS:
                found += is_valid(coupon, item, other)
    return found


def add_taxes(total):
    return round(total * 1.19, 2)


class Pricing(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        url = urllib.parse.urlsplit(self.path)
        items = int(urllib.parse.parse_qs(url.query)["items"][0])
        with tracer.start_as_current_span(f"POST {url.path}", context=propagate.extract(self.headers),
                                          kind=SpanKind.SERVER, attributes={"cart.items": items}):
            cart = list(range(items))
            prices = base_prices(cart)
            with tracer.start_as_current_span("apply coupons"):
                discount = match_coupons(cart) * 0.01
            body = json.dumps({"Total": add_taxes(sum(prices) - discount)}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


pyroscope.configure(application_name=SERVICE, server_address=os.environ["PYROSCOPE"], sample_rate=100)
provider = TracerProvider(resource=Resource.create({"service.name": SERVICE}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(os.environ["OTLP"] + "/v1/traces"),
                                               schedule_delay_millis=1000))
braid_bridge.install(provider)
trace.set_tracer_provider(provider)
tracer = provider.get_tracer(SERVICE)
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "0"))), Pricing)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
pyroscope.shutdown()
provider.shutdown()
