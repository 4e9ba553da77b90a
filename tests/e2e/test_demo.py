# SPDX-License-Identifier: Apache-2.0
"""The demo and the quickstart config, as demo/run puts them together, but on free ports."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DEMO = os.environ.get("DEMO", str(ROOT / "build" / "demo"))
EXAMPLES = ROOT / "config" / "examples"


def demo(*args):
    done = subprocess.run([DEMO, *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def quickstart(braid, tmp_path):
    free = [f"--set=receivers.otlp.protocols.{protocol}.endpoint=127.0.0.1:0" for protocol in ("grpc", "http")]
    free.append("--set=receivers.pyroscope.protocols.http.endpoint=127.0.0.1:0")
    metrics = "--set=service.telemetry.metrics.level=none"
    return braid((EXAMPLES / "quickstart.yaml").read_text(), *free, metrics, env={"BRAID_OUT": str(tmp_path)})


def test_demo(quickstart, tmp_path):
    sent = demo("-otlp", quickstart.grpc, "-duration", "4s")
    served, sampled = map(int, re.match(r"(\d+) requests served, (\d+) profile samples", sent).groups())
    quickstart.stop()
    report = demo("report", "-dir", str(tmp_path)).splitlines()
    spans, samples, linked = re.match(
        r"(\d+) spans and (\d+) profile samples came out, (\d+) of them", report[0]).groups()
    named, figures = re.match(r"Joined: (\d+) samples .* (\d+) spans", report[1]).groups()
    assert served <= int(spans) <= served + 2  # the last requests may be answered to nobody
    assert int(samples) == sampled
    assert sampled / 2 < int(linked) <= sampled
    assert named == linked
    assert int(figures) > 0
    slowest = report[report.index("") + 2:]  # of one that ends with the program the profile may not know
    assert slowest[0].startswith("GET /checkout")
    burned = r"GET /checkout +\S+s +[1-9]\S*s +main.priceCart +[0-9a-f]{32}$"
    assert any(re.search(burned, line) for line in slowest), "\n".join(slowest)
