# SPDX-License-Identifier: Apache-2.0
"""`braid` without a config, alone and with the demo's shop: spans and profiles of official SDKs,
and the output of `braid query`."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import pytest

import clients
import otlp
from braid import BINARY, DEADLINE_S, until

ROOT = pathlib.Path(__file__).parents[2]
SHOP = os.environ.get("SHOP", str(ROOT / "build" / "shop"))
CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
PORTS = ("receivers.otlp.protocols.grpc", "receivers.otlp.protocols.http", "receivers.pyroscope.protocols.http",
         "extensions.query")


@pytest.fixture
def start(braid, tmp_path):
    def run(*extra, **env):
        free = [f"--set={where}.endpoint=127.0.0.1:0" for where in PORTS]
        return braid(None, *free, "--set=service.telemetry.metrics.level=none", "--set=service.telemetry.logs.level=info",
                     *extra, env={"XDG_DATA_HOME": str(tmp_path / "data"), "TEMPO_ENDPOINT": "", "PYROSCOPE_ENDPOINT": "",
                                  **env})
    return run


def page(running):
    return "http://" + running.address("http", node="extension/query")


def query(running, *words):
    done = subprocess.run([BINARY, "query", *words, "--url", page(running)], capture_output=True, text=True,
                          timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_query(running, *words):
    return json.loads(query(running, *words, "--json"))


def test_output_names_the_page_and_commands(start, tmp_path):
    running = start()
    text = until(lambda: (printed := running.stdout_path.read_text()).count("http://") >= 3 and printed)
    for line in ("See them", "Send OTLP", "Send profiles", "Ctrl-C"):
        assert line in text
    assert (tmp_path / "data" / "braid").is_dir()


def test_forwards_to_the_endpoints_in_the_environment(start, sink):
    running = start(TEMPO_ENDPOINT=sink.grpc)
    text = until(lambda: "Traces go on to" in (printed := running.stdout_path.read_text()) and printed)
    assert sink.grpc in text


def test_marks_are_found_by_grafanas_query(start, tmp_path):
    """As in docs/using/grafana.md: with a hold and exact marks Grafana's Tempo data source finds
    the spans with samples."""
    marked = start("--set=processors.join.hold=1s", "--set=processors.join.profile_hold=1s", "--set=processors.join.mark=exact")
    plain = start(XDG_DATA_HOME=str(tmp_path / "plain"))
    of_spans, of_samples = otlp.trace_request(2), otlp.profile_request(1)
    now_ns = time.time_ns()
    for _, _, span in otlp.spans_of(of_spans):
        span.start_time_unix_nano, span.end_time_unix_nano = now_ns - 10**9, now_ns
    for _, profile, _ in otlp.samples_of(of_samples):
        profile.time_unix_nano = now_ns - 10**9

    def found(running, condition):
        text = urllib.parse.urlencode({"q": "{" + condition + "}"})
        with urllib.request.urlopen(f"{page(running)}/api/search?{text}", timeout=DEADLINE_S) as answer:
            return {span["name"] for trace in json.load(answer)["traces"] for span in trace["spanSet"]["spans"]}
    for running in (marked, plain):
        clients.grpc(running.grpc, otlp.TRACES, of_spans.SerializeToString()).expect_ok()
        clients.grpc(running.grpc, otlp.PROFILES, of_samples.SerializeToString()).expect_ok()
        until(lambda: found(running, 'name =~ "span.*"') == {"span 1", "span 2"}, "both spans")
    assert found(marked, "span.pyroscope.profile.id != nil") == {"span 1"}
    assert found(plain, "span.pyroscope.profile.id != nil") == set()


def test_logs_nothing(braid, tmp_path):
    free = [f"--set={where}.endpoint=127.0.0.1:0" for where in PORTS]
    running = braid(None, *free, "--set=service.telemetry.metrics.level=none",
                    env={"XDG_DATA_HOME": str(tmp_path), "TEMPO_ENDPOINT": "", "PYROSCOPE_ENDPOINT": ""})
    until(lambda: "Ctrl-C" in running.stdout_path.read_text())
    assert running.log() == ""


@pytest.fixture
def shop(start, tmp_path):
    """The demo has run for some seconds; its pricing service and its shop have ended."""
    running = start()
    pyroscope = running.address("http", node="receiver/pyroscope")
    with open(tmp_path / "pricing.err", "w") as err:
        pricing = subprocess.Popen([sys.executable, str(ROOT / "demo/pricing/pricing.py")], stdout=subprocess.PIPE,
                                   stderr=err, text=True, env={**os.environ, "OTLP": f"http://{running.http}",
                                                               "PYROSCOPE": f"http://{pyroscope}"})
    try:
        url = pricing.stdout.readline().strip()
        assert url, (tmp_path / "pricing.err").read_text()
        done = subprocess.run([SHOP, "-otlp", f"http://{running.http}", "-pyroscope", f"http://{pyroscope}", "-pricing", url,
                               "-duration", "4s"], capture_output=True, text=True, timeout=DEADLINE_S * 2)
        assert done.returncode == 0, done.stderr
    finally:
        pricing.terminate()
        pricing.wait(DEADLINE_S)
    served = int(re.search(r"(\d+) requests served", done.stdout)[1])
    assert served > 0
    return running


def test_demo(shop):
    def guilty():
        top = run_query(shop, "top", "--query", '{service_name="pricing"}', "--type", CPU, "--sort", "total")
        return [function["name"] for function in top["functions"] if "match_coupons" in function["name"]]

    until(guilty, "the pricing service's profile")
    slow = run_query(shop, "spans", "--service", "pricing", "--name", "POST /price", "--limit", "20")["spans"]
    assert {span["name"] for span in slow} == {"POST /price"}
    assert [span["duration_ns"] for span in slow] == sorted((span["duration_ns"] for span in slow), reverse=True)

    # The slowest spans may have waited for a processor, and have few samples or none.
    def guilty_of(span):
        trace = run_query(shop, "trace", span["trace_id"])["spans"]
        profile = run_query(shop, "profile", "--span", f"{span['trace_id']}/{span['span_id']}", "--type", CPU)
        return (any(other["name"] == "POST /checkout" for other in trace) and
                any("match_coupons" in name for name in profile["flamebearer"]["names"]))

    span = until(lambda: next(filter(guilty_of, slow), None), "a slow span's own flame graph")
    trace = run_query(shop, "trace", span["trace_id"])["spans"]
    assert {other["service"] for other in trace} == {"shop", "pricing"}
    root = next(other for other in trace if other["name"] == "POST /checkout")
    assert root["duration_ns"] >= span["duration_ns"]
    # The bridges label every span: the child has the function, and the rest of its request does
    # not.
    child = next(other for other in trace if other["name"] == "apply coupons" and other["parent_id"] == span["span_id"])
    for each, has in ((child, True), (span, False)):
        profile = run_query(shop, "profile", "--span", f"{span['trace_id']}/{each['span_id']}", "--scope", "self", "--type", CPU)
        assert any("match_coupons" in name for name in profile["flamebearer"]["names"]) == has
    text = query(shop, "spans", "--service", "pricing", "--name", "POST /price", "--limit", "1")
    assert re.search(r"pricing +POST /price +[0-9a-f]{32}/[0-9a-f]{16}$", text, re.M)
    assert re.search(r"pricing: POST /price$", query(shop, "trace", span["trace_id"]), re.M)
