# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of the bridge: microseconds of CPU time per span and per step of a task,
without it and with it.

    python measure.py      in an environment with this package, and with uvloop if it should be measured"""

import asyncio
import time

import braid_bridge
import pyroscope
from opentelemetry.sdk.trace import TracerProvider

TURNS = 100_000
provider = TracerProvider()
tracer = provider.get_tracer("measure")
loops = {"asyncio": asyncio.new_event_loop()}
try:
    import uvloop
    loops["uvloop"] = uvloop.new_event_loop()
except ImportError:
    pass


async def spans():
    for _ in range(TURNS):
        with tracer.start_as_current_span("a"):
            pass


async def steps():
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def steps_in_span():
    with tracer.start_as_current_span("a"):
        await steps()


def measure(loop, work):
    best = float("inf")
    for _ in range(3):
        begin = time.thread_time()
        loop.run_until_complete(work())
        best = min(best, time.thread_time() - begin)
    return best / TURNS * 1e6


def measure_all():
    return {f"{name}, {work.__name__}": measure(loop, work) for name, loop in loops.items() for work in (spans, steps, steps_in_span)}


pyroscope.configure(application_name="measure", server_address="http://localhost:9")
without = measure_all()
braid_bridge.install(provider)
for name, value in measure_all().items():
    print(f"{name:24} {without[name]:6.2f} {value:6.2f}")
pyroscope.shutdown()
