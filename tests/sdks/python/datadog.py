# SPDX-License-Identifier: Apache-2.0
"""A program under Datadog's profiler, with a span around its work; prints [trace, span, name] as scene.py does."""

import json
import os
import time

from ddtrace import tracer
from ddtrace.profiling import Profiler


def root_work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(i * i for i in range(1000))


profiler = Profiler()
profiler.start()
with tracer.trace("POST /checkout", service="shop") as span:
    print(json.dumps([f"{span.trace_id:032x}", f"{span.span_id:016x}", "POST /checkout"]))
    root_work(float(os.environ["SECONDS"]))
profiler.stop()
