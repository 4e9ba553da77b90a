# SPDX-License-Identifier: Apache-2.0
"""Connectors: pipelines that send their data to other pipelines."""

import copy
import json
import re
import signal
import subprocess
import time
import urllib.request

import prometheus_client.parser
import pytest
from prometheus_client.openmetrics import parser as openmetrics

import clients
import otlp
from braid import BINARY, DEADLINE_S, exporter, pipelines, until
from numbered import SPANS, expected, names, request
from otlp import PROFILES, TRACES
from sink import BUSY, Reply


def connected(exporters, connectors, lists, *, workers=1):
    """Returns a config with these pipelines: id -> (receivers, exporters) or (receivers, processors, exporters)."""
    config = pipelines(exporters, processors={"batch": {"timeout": "10ms"}}, workers=workers)
    config["connectors"] = connectors
    made = {}
    for name, parts in lists.items():
        made[name] = {"receivers": parts[0], "processors": parts[1] if len(parts) == 3 else [], "exporters": parts[-1]}
    config["service"]["pipelines"] = made
    return config


def reload(server, config):
    def count():
        return server.metrics()["braid_config_reloads"]['result="success"']
    before = count()
    server.config_path.write_text(json.dumps(config))
    server.process.send_signal(signal.SIGHUP)
    until(lambda: count() == before + 1, "the reload")


def settled(server, kind):
    return until(lambda: (lambda each: each["held"] == 0 and each["received"] and each)(server.ledger(kind)))


FORWARD = {"traces/in": (["otlp"], ["forward"]), "traces/one": (["forward"], ["batch"], ["otlp"]),
           "profiles/in": (["otlp"], ["forward"]), "profiles/one": (["forward"], ["otlp"])}


@pytest.mark.parametrize("workers", [1, 2])
def test_forward(braid, sink, new_sink, workers):
    """Two pipelines follow the connector. The ledger counts each record once."""
    other = new_sink()
    exporters = {**exporter("grpc", sink), **exporter("grpc", other, "/other")}
    lists = {**FORWARD, "traces/two": (["forward"], ["otlp/other"])}
    server = braid(connected(exporters, {"forward": None}, lists, workers=workers))
    for number in range(4):
        clients.grpc(server.grpc, TRACES, request(number)).expect_ok()
    clients.grpc(server.grpc, PROFILES, otlp.profile_request(5).SerializeToString()).expect_ok()
    sink.wait(TRACES, 4 * SPANS)
    other.wait(TRACES, 4 * SPANS)
    sink.wait(PROFILES, 5)
    assert names(sink) == names(other) == expected(range(4))
    account = settled(server, "traces")
    assert account["received"] == account["sent"] == 4 * SPANS
    metrics = server.metrics()
    for name in ("otelcol_connector_consumed_items", "otelcol_connector_produced_items"):
        assert metrics[name] == {'connector="forward",otel_signal="traces"': 4 * SPANS,
                                 'connector="forward",otel_signal="profiles"': 5}


@pytest.mark.parametrize("workers", [1, 2])
def test_reload_with_connectors(braid, sink, new_sink, workers):
    """Pipelines behind a connector are added, changed and removed. The connector itself stays."""
    other = new_sink()
    exporters = {**exporter("grpc", sink), **exporter("grpc", other, "/other")}
    one = connected(exporters, {"forward": None}, FORWARD, workers=workers)
    two = connected(exporters, {"forward": None}, {**FORWARD, "traces/two": (["forward"], ["otlp/other"])}, workers=workers)
    none = connected(exporters, {}, {"traces": (["otlp"], ["batch"], ["otlp"]), "profiles": (["otlp"], ["otlp"])},
                     workers=workers)
    chain = connected(exporters, {"forward": None, "forward/2": None},
                      {**FORWARD, "traces/one": (["forward"], ["forward/2"]), "traces/2": (["forward/2"], ["otlp/other"])},
                      workers=workers)
    server = braid(one)
    numbers, to_sink, to_other = iter(range(1000)), [], []

    def send(*lists):
        for number in [next(numbers) for _ in range(5)]:
            clients.grpc(server.grpc, TRACES, request(number)).expect_ok()
            for each in lists:
                each.append(number)
    send(to_sink)
    for config, lists in [(two, (to_sink, to_other)), (none, (to_sink,)), (one, (to_sink,)), (chain, (to_other,)),
                          (two, (to_sink, to_other)), (one, (to_sink,))]:
        reload(server, config)
        send(*lists)
    sink.wait(TRACES, len(to_sink) * SPANS)
    other.wait(TRACES, len(to_other) * SPANS)
    assert names(sink) == expected(to_sink) and names(other) == expected(to_other)
    log = server.log()
    assert "connector/forward" in log and log.count("grpc listening on") == 1
    account = settled(server, "traces")
    assert account["received"] == account["sent"] == len(to_sink + to_other) * SPANS - 2 * 5 * SPANS
    assert server.metrics()["otelcol_connector_consumed_items"]['connector="forward",otel_signal="traces"'] > 0
    assert not server.stop()["traces"].get("held")


def test_stop_delivers_what_a_batch_before_a_connector_holds(braid, sink):
    config = connected(exporter("grpc", sink), {"forward": None}, {
        "traces/in": (["otlp"], ["batch"], ["forward"]), "traces/one": (["forward"], ["batch"], ["otlp"])})
    config["processors"]["batch"] = {"timeout": "1h", "send_batch_size": 100000}
    server = braid(config)
    clients.grpc(server.grpc, TRACES, request(1)).expect_ok()
    account = server.stop()["traces"]
    assert account["sent"] == SPANS and names(sink) == expected([1])


def spans_of(sink):
    return {span.name for call in sink.of(TRACES) for resource in call.message.resource_spans
            for scope in resource.scope_spans for span in scope.spans}


@pytest.mark.parametrize("workers", [1, 2])
def test_routing(braid, sink, new_sink, workers):
    """By the client's metadata, by an attribute of the resource, and by the name of a span; the rest to the default."""
    sinks = {"tenant": sink, "shop": new_sink(), "last": new_sink(), "rest": new_sink()}
    exporters = {key: value for name, each in sinks.items() for key, value in exporter("grpc", each, f"/{name}").items()}
    table = [
        {"context": "request", "condition": 'request["X-Tenant"] == "acme"', "pipelines": ["traces/tenant"]},
        {"condition": 'attributes["service.name"] == "shop"', "pipelines": ["traces/shop", "profiles/shop"]},
        {"context": "span", "condition": r'IsMatch(name, "\\.2$")', "pipelines": ["traces/last"]}]
    config = connected(exporters, {"routing": {"table": table, "default_pipelines": ["traces/rest", "profiles/rest"]}}, {
        "traces/in": (["otlp"], ["routing"]), "profiles/in": (["otlp"], ["routing"]),
        "profiles/shop": (["routing"], ["otlp/shop"]), "profiles/rest": (["routing"], ["otlp/rest"]),
        **{f"traces/{name}": (["routing"], ["otlp/" + name]) for name in sinks}}, workers=workers)
    config["receivers"]["otlp"]["protocols"]["grpc"]["include_metadata"] = True
    server = braid(config)

    def send(number, service, metadata=()):
        made = otlp.traces.ExportTraceServiceRequest.FromString(request(number))
        for each in made.resource_spans:
            del each.resource.attributes[:]
            each.resource.attributes.append(otlp.attribute("service.name", service))
        clients.grpc(server.grpc, TRACES, made.SerializeToString(), metadata=metadata).expect_ok()
    send(1, "shop", [("x-tenant", "acme")])
    send(2, "shop", [("x-tenant", "other")])
    send(3, "cart")
    clients.grpc(server.grpc, PROFILES, otlp.profile_request(4, service="shop").SerializeToString()).expect_ok()
    clients.grpc(server.grpc, PROFILES, otlp.profile_request(3, service="cart").SerializeToString()).expect_ok()
    sinks["tenant"].wait(TRACES, SPANS)
    sinks["shop"].wait(TRACES, SPANS)
    sinks["last"].wait(TRACES, 1)
    sinks["rest"].wait(TRACES, 2)
    sinks["shop"].wait(PROFILES, 4)
    sinks["rest"].wait(PROFILES, 3)
    assert spans_of(sinks["tenant"]) == {"1.0", "1.1", "1.2"} and spans_of(sinks["shop"]) == {"2.0", "2.1", "2.2"}
    assert spans_of(sinks["last"]) == {"3.2"} and spans_of(sinks["rest"]) == {"3.0", "3.1"}
    account = settled(server, "traces")
    assert account["received"] == account["sent"] == 3 * SPANS


@pytest.mark.parametrize("workers", [1, 2])
def test_reload_keeps_routes(braid, sink, new_sink, workers):
    """A routing connector does not change, but the pipelines of its routes do, one of which has two pipelines."""
    other = new_sink()
    exporters = {**exporter("grpc", sink), **exporter("grpc", other, "/other")}
    settings = {"table": [{"context": "span", "condition": r'IsMatch(name, "\\.2$")', "pipelines": ["traces/one", "traces/two"]}],
                "default_pipelines": ["traces/one"]}
    server = braid(connected(exporters, {"routing": settings}, {
        "traces/in": (["otlp"], ["routing"]), "traces/one": (["routing"], ["otlp"]), "traces/two": (["routing"], ["otlp/other"])},
        workers=workers))
    for number in range(6):
        clients.grpc(server.grpc, TRACES, request(number)).expect_ok()
        processors = (["batch"],) if number % 2 == 0 else ()
        exporters["otlp/other"]["timeout"] = f"{20 + number}s"
        reload(server, connected(exporters, {"routing": settings}, {
            "traces/in": (["otlp"], *processors, ["routing"]), "traces/one": (["routing"], *processors, ["otlp"]),
            "traces/two": (["routing"], ["otlp/other"])}, workers=workers))
    clients.grpc(server.grpc, TRACES, request(6)).expect_ok()
    sink.wait(TRACES, 7 * SPANS)
    other.wait(TRACES, 7)
    assert names(sink) == expected(range(7)) and spans_of(other) == {f"{number}.2" for number in range(7)}
    assert "connector/routing" not in "".join(re.findall(r"changed: .*", server.log()))
    account = settled(server, "traces")
    assert account["received"] == account["sent"] == 7 * SPANS


def test_failover(braid, sink, new_sink):
    """The second backend is used when the first one is down. A reload of other components keeps the current level."""
    other = new_sink()
    direct = {"sending_queue": {"enabled": False}, "retry_on_failure": {"enabled": False}}
    exporters = {**exporter("grpc", sink, "/first", **direct), **exporter("grpc", other, "/second", **direct)}
    failover = {"priority_levels": [["traces/first"], ["traces/second"]]}
    config = connected(exporters, {"failover": failover}, {
        "traces/in": (["otlp"], ["failover"]), "traces/first": (["failover"], ["otlp/first"]),
        "traces/second": (["failover"], ["otlp/second"])})
    server = braid(config)
    clients.grpc(server.grpc, TRACES, request(1)).expect_ok()
    assert names(sink) == expected([1])
    sink.reply = Reply(BUSY.grpc, BUSY.http, "down")
    for number in (2, 3):
        clients.grpc(server.grpc, TRACES, request(number)).expect_ok()
    assert names(other) == expected([2, 3])
    sink.reply = Reply()
    changed = copy.deepcopy(config)
    changed["service"]["pipelines"]["traces/in"]["processors"] = ["batch"]
    reload(server, changed)
    clients.grpc(server.grpc, TRACES, request(4)).expect_ok()
    other.wait(TRACES, 3 * SPANS)
    assert names(sink) == expected([1])
    changed["connectors"]["failover"]["retry_interval"] = "5m"  # a changed connector begins with the first level
    reload(server, changed)
    clients.grpc(server.grpc, TRACES, request(5)).expect_ok()
    sink.wait(TRACES, 2 * SPANS)
    account = settled(server, "traces")
    assert account["received"] == account["sent"] == 5 * SPANS
    assert server.metrics()["braid_failover_switches"]['connector="failover",otel_signal="traces"'] == 1
    first = server.metrics()["braid_exporter_rejected"]['exporter="otlp/first",signal="traces"']
    assert first == SPANS  # the level was tried once


def timed(service, name, durations_ms, *, kind=2, status=0, attributes=(), state="", trace=1):
    """Returns a trace request with one span of each duration."""
    made = otlp.traces.ExportTraceServiceRequest()
    resource = made.resource_spans.add()
    if service is not None:
        resource.resource.attributes.append(otlp.attribute("service.name", service))
    resource.resource.attributes.append(otlp.attribute("host.name", "h1"))
    spans = resource.scope_spans.add().spans
    for index, duration in enumerate(durations_ms):
        span = spans.add(trace_id=bytes(15) + bytes([trace]), span_id=bytes(6) + bytes([1, index]), name=name, kind=kind,
                         trace_state=state, start_time_unix_nano=10**18, end_time_unix_nano=10**18 + int(duration * 1e6))
        span.status.code = status
        for key, value in attributes:
            span.attributes.append(otlp.attribute(key, value))
    return made.SerializeToString()


def series(server, name):
    """Returns the series of a metric: sorted labels without `connector` -> value."""
    found = {}
    for labels, value in server.metrics().get(name, {}).items():
        pairs = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
        pairs.pop("connector")
        found[tuple(sorted(pairs.items()))] = value
    return found


def labels(**pairs):
    return tuple(sorted(pairs.items()))


GET = {"service_name": "shop", "span_name": "GET /", "span_kind": "SPAN_KIND_SERVER", "status_code": "STATUS_CODE_UNSET"}
MS = "traces_span_metrics_duration_milliseconds"


@pytest.mark.parametrize("workers", [1, 2])
def test_span_metrics(braid, sink, workers):
    """The names and labels are those with which the Collector's Prometheus exporter prints the metrics of its connector."""
    config = connected(exporter("grpc", sink), {"spanmetrics": {"dimensions": [{"name": "http.route"}, {"name": "host.name"},
                                                                              {"name": "tier", "default": "none"}]}},
                       {"traces": (["otlp"], ["batch"], ["spanmetrics", "otlp"])}, workers=workers)
    server = braid(config)
    for _ in range(2):
        clients.grpc(server.grpc, TRACES, timed("shop", "GET /", [1, 2, 5000, 20000])).expect_ok()
    error = timed("shop", "GET /", [3], kind=3, status=2, attributes=[("http.route", "/a\"b"), ("tier", 7)])
    clients.grpc(server.grpc, TRACES, error).expect_ok()
    clients.grpc(server.grpc, TRACES, timed(None, "GET /", [1])).expect_ok()  # not counted, as in the Collector
    sink.wait(TRACES, 10)
    until(lambda: sum(series(server, "traces_span_metrics_calls").values()) == 9)
    get = {**GET, "host_name": "h1", "tier": "none"}
    failed = {**get, "span_kind": "SPAN_KIND_CLIENT", "status_code": "STATUS_CODE_ERROR", "http_route": '/a\\"b', "tier": "7"}
    assert series(server, "traces_span_metrics_calls") == {labels(**get): 8, labels(**failed): 1, labels(otel_metric_overflow="true"): 0}
    assert series(server, MS + "_count")[labels(**get)] == 8
    assert series(server, MS + "_sum")[labels(**get)] == 2 * (1 + 2 + 5000 + 20000)
    buckets = {dict(key)["le"]: value for key, value in series(server, MS + "_bucket").items()
               if dict(key).get("span_kind") == "SPAN_KIND_SERVER"}
    assert buckets == {"2": 4, "4": 4, "6": 4, "8": 4, "10": 4, "50": 4, "100": 4, "200": 4, "400": 4, "800": 4, "1000": 4,
                       "1400": 4, "2000": 4, "5000": 6, "10000": 6, "15000": 6, "+Inf": 8}
    assert server.metrics()["braid_span_metrics_uncounted"]['connector="spanmetrics"'] == 1
    account = settled(server, "traces")
    assert account["received"] == account["sent"] == 10
    with urllib.request.urlopen(f"http://{server.address('metrics', node=None)}/metrics", timeout=DEADLINE_S) as answer:
        text = answer.read().decode()
    assert "# TYPE traces_span_metrics_calls_total counter\n" in text
    assert len(list(prometheus_client.parser.text_string_to_metric_families(text))) > 10


def test_span_metrics_only_and_limited(braid):
    """A pipeline can end in the connector. Above the limit, spans are counted in one series."""
    settings = {"aggregation_cardinality_limit": 3, "namespace": "", "exclude_dimensions": ["span.kind"],
                "histogram": {"unit": "s", "explicit": {"buckets": ["100ms", "1s"]}}}
    server = braid(connected({"nop": None}, {"span_metrics": settings}, {
        "traces": (["otlp"], ["span_metrics"]), "profiles": (["otlp"], ["nop"])}))
    for number in range(10):
        clients.grpc(server.grpc, TRACES, timed("shop", f"span {number}", [50, 500, 5000])).expect_ok()
    found = series(server, "calls")
    assert found.pop(labels(otel_metric_overflow="true")) == 7 * 3
    assert found == {labels(service_name="shop", span_name=f"span {number}", status_code="STATUS_CODE_UNSET"): 3
                     for number in range(3)}
    buckets = {dict(key)["le"]: value for key, value in series(server, "duration_seconds_bucket").items()
               if "otel_metric_overflow" in dict(key)}
    assert buckets == {"0.1": 7, "1": 14, "+Inf": 21}
    account = settled(server, "traces")
    assert account["received"] == account["dropped"] == 30
    assert server.metrics()["braid_ledger_dropped"]['signal="traces",reason="aggregated"'] == 30


def ask_metrics(server, accept):
    answer = clients.http(server.address("metrics", node=None), "/metrics", None, None, {"accept": accept}, "GET").expect_ok()
    return answer.headers["content-type"], answer.body.decode()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("suffixes", [False, True])
def test_exemplars(braid, workers, suffixes):
    """A bucket has its newest span as exemplar, and the calls have the newest span, with its duration as in the Collector. At the
    limit, the oldest exemplar is replaced. The parser checks that the value of an exemplar is within its bucket."""
    settings = {"exemplars": {"enabled": True, "max_per_data_point": 2}, "histogram": {"explicit": {"buckets": ["10ms", "100ms"]}}}
    config = connected({"nop": None}, {"span_metrics": settings}, {
        "traces": (["otlp"], ["span_metrics"]), "profiles": (["otlp"], ["nop"])}, workers=workers)
    [reader] = config["service"]["telemetry"]["metrics"]["readers"]
    reader["pull"]["exporter"]["prometheus"]["without_type_suffix"] = not suffixes
    server = braid(config)
    before = time.time()
    for trace, durations in [(1, [5, 50]), (2, [7]), (3, [500]), (0, [8])]:  # a span without a trace id is not an exemplar
        clients.grpc(server.grpc, TRACES, timed("shop", "GET /", durations, trace=trace)).expect_ok()
    kind, text = ask_metrics(server, "application/openmetrics-text; version=1.0.0")
    after = time.time()
    assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    families = {family.name: family for family in openmetrics.text_string_to_metric_families(text)}
    assert families["braid_ledger_received"].type == ("counter" if suffixes else "unknown")
    assert families["traces_span_metrics_calls"].type == "counter"
    found = {}
    for sample in families["traces_span_metrics_calls"].samples + families[MS].samples:
        if sample.exemplar:
            found[sample.labels.get("le", "calls")] = (sample.exemplar.labels, sample.exemplar.value)
            assert before - 0.001 <= float(sample.exemplar.timestamp) <= after
    assert found == {name: ({"trace_id": f"{trace:032x}", "span_id": "0000000000000100"}, value)
                     for name, trace, value in [("10.0", 2, 7), ("+Inf", 3, 500), ("calls", 3, 500)]}
    assert series(server, "traces_span_metrics_calls")[labels(**GET)] == 5
    kind, text = ask_metrics(server, "text/plain")
    assert kind.startswith("text/plain") and "trace_id" not in text


def test_span_metrics_count_what_is_accepted(braid, sink):
    """A refused request is not counted, because the client sends it again. A sampled span stands for several."""
    direct = {"sending_queue": {"enabled": False}, "retry_on_failure": {"enabled": False}}
    server = braid(connected(exporter("grpc", sink, **direct), {"span_metrics": {"histogram": {"disable": True}}},
                             {"traces": (["otlp"], ["otlp", "span_metrics"])}))
    sink.reply = Reply(BUSY.grpc, BUSY.http, "down")
    assert not clients.grpc(server.grpc, TRACES, timed("shop", "GET /", [1])).ok
    sink.reply = Reply()
    clients.grpc(server.grpc, TRACES, timed("shop", "GET /", [1])).expect_ok()
    clients.grpc(server.grpc, TRACES, timed("shop", "GET /", [1], state="ot=th:c")).expect_ok()  # a probability of 1/4
    assert series(server, "traces_span_metrics_calls")[labels(**GET)] == 1 + 4
    assert MS + "_count" not in server.metrics()


@pytest.mark.parametrize("settings, error", [
    ({"dimensions": [{"default": "x"}]}, 'connectors::span_metrics::dimensions[0]: needs a "name"'),
    ({"dimensions": [{"name": "span.name"}]}, 'dimensions[0]::name: "span.name" is already a dimension'),
    ({"dimensions": [{"name": "a.b"}, {"name": "a_b"}]}, 'dimensions[1]: the label of "a_b" would be "a_b", but another label has this name'),
    ({"dimensions": [{"glob": "a.*"}]}, '"glob": Braid supports only single attributes; use "name"'),
    ({"histogram": {"explicit": {"buckets": ["1s", "x"]}}}, 'buckets: must be a list of durations, got "x"'),
    ({"histogram": {"explicit": {"buckets": ["1s", "1000ms"]}}}, "buckets: must be in ascending order"),
    ({"histogram": {"exponential": {"max_size": 10}}}, "Braid supports only explicit buckets"),
    ({"events": {"enabled": True}}, "Braid does not count span events"),
    ({"aggregation_cardinality_limit": -1}, "aggregation_cardinality_limit"),
])
def test_wrong_settings_of_span_metrics(tmp_path, settings, error):
    config = connected({"nop": None}, {"span_metrics": settings}, {"traces": (["otlp"], ["span_metrics"])})
    assert error in run("validate", config=config, tmp_path=tmp_path, code=1).stderr


def test_span_metrics_is_not_a_receiver(tmp_path):
    config = connected({"nop": None}, {"span_metrics": None}, {
        "traces": (["otlp"], ["span_metrics"]), "traces/2": (["span_metrics"], ["nop"])})
    done = run("validate", config=config, tmp_path=tmp_path, code=1)
    assert "connectors::span_metrics: sends no data in Braid; remove it from the receivers of pipelines" in done.stderr


def run(*args, config, tmp_path, code=0):
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config))
    done = subprocess.run([BINARY, *args, "--config", str(path)], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == code, done.stderr
    return done


def test_a_cycle_is_an_error_of_the_configuration(tmp_path):
    lists = {"traces/in": (["otlp", "forward/2"], ["batch"], ["forward"]), "traces/one": (["forward"], ["otlp", "forward/2"])}
    config = connected({"otlp": {"endpoint": "localhost:1"}}, {"forward": None, "forward/2": None}, lists)
    done = run("validate", config=config, tmp_path=tmp_path, code=1)
    assert ('cycle detected: connector "forward/2" (traces to traces) -> processor "batch" in pipeline "traces/in" -> '
            'connector "forward" (traces to traces) -> connector "forward/2" (traces to traces)') in done.stderr


def test_the_effective_configuration_has_the_connectors(tmp_path):
    config = connected({"otlp": {"endpoint": "localhost:1"}}, {"forward": None}, FORWARD)
    shown = run("print-config", "--defaults", config=config, tmp_path=tmp_path).stdout
    assert "connectors:\n  forward: {}\n" in shown
    path = tmp_path / "again.yaml"
    path.write_text(shown)
    subprocess.run([BINARY, "validate", "--config", path], check=True, timeout=DEADLINE_S)
