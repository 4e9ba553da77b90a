# SPDX-License-Identifier: Apache-2.0
"""Braid's telemetry: metrics, the ledger, logs, and secrets that may not appear in any of them."""

import datetime
import gzip
import itertools
import json
import os
import random
import re
import signal as signals
import subprocess
import threading
import time
import urllib.request

import grpc
import pytest
from grpc import StatusCode
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

import clients
import otlp
from braid import BINARY, DEADLINE_S, ROOT, exporter, pipelines, until
from otlp import PROFILES, SIGNALS, TRACES
from sink import ACCEPT, REFUSE, Reply

ITEMS = {TRACES: "spans", PROFILES: "profile_samples"}
CLIENTS = os.environ.get("GO_CLIENTS", str(ROOT / "build" / "clients"))
each_signal = pytest.mark.parametrize("signal", SIGNALS, ids=str)


def scrape_text(server):
    with urllib.request.urlopen(f"http://{server.address('metrics', node=None)}/metrics", timeout=DEADLINE_S) as answer:
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return answer.read().decode()


def scrape(server):
    """Returns {(family, type): {labels: value}} as read by the official parser. Every series must
    be unique."""
    families = {}
    for family in text_string_to_metric_families(scrape_text(server)):
        assert (family.name, family.type) not in families
        series = families[family.name, family.type] = {}
        for sample in family.samples:
            part = {"": sample.name.removeprefix(family.name)} if family.type == "histogram" else {}
            labels = frozenset({**sample.labels, **part}.items())
            assert labels not in series, sample
            series[labels] = sample.value
    return families


def total(families, name, **labels):
    """The sum of a metric's series with these labels; there must be one."""
    [series] = [series for (family, _), series in families.items() if family == name]
    values = [value for at, value in series.items() if labels.items() <= dict(at).items()]
    assert values, (name, labels)
    return sum(values)


def send(server, signal, n_items=1, **more):
    return clients.grpc(server.grpc, signal, otlp.request_of(signal, n_items, **more).SerializeToString())


# --- Metrics ------------------------------------------------------------------------------------

COUNTERS = [
    *(f"otelcol_receiver_{what}_{items}" for what in ("accepted", "refused", "failed") for items in ITEMS.values()),
    *(f"otelcol_exporter_{what}_{items}" for what in ("sent", "send_failed", "enqueue_failed")
      for items in ITEMS.values()),
    *(f"otelcol_processor_memory_limiter_{what}_{items}" for what in ("accepted", "refused")
      for items in ITEMS.values()),
    "otelcol_processor_batch_batch_size_trigger_send", "otelcol_processor_batch_timeout_trigger_send",
    "otelcol_process_cpu_seconds", "otelcol_process_uptime",
    *(f"braid_ledger_{entry}" for entry in ("received", "sent", "rejected")),
    "braid_join_samples_joined", "braid_join_spans_entered",
]
GAUGES = ["otelcol_exporter_queue_size", "otelcol_exporter_queue_capacity", "otelcol_exporter_in_flight_requests",
          "otelcol_process_memory_rss", "braid_ledger_held", "braid_join_table_bytes", "braid_server_connections"]


def test_names_and_types(braid, sink):
    processors = {"memory_limiter": {"check_interval": "1s", "limit_mib": 512}, "join": None,
                  "batch": {"timeout": "20ms"}}
    server = braid(pipelines(exporter("grpc", sink), processors=processors))
    for signal in SIGNALS:
        send(server, signal, 3).expect_ok()
        sink.wait(signal, 3)
    families = scrape(server)
    missing = [name for kind, names in (("counter", COUNTERS), ("gauge", GAUGES)) for name in names
               if (name, kind) not in families]
    assert not missing
    assert {kind for _, kind in families} == {"counter", "gauge", "histogram"}
    for signal in SIGNALS:
        for processor in processors:
            labels = {"processor": processor, "otel_signal": signal.name}
            assert total(families, "otelcol_processor_incoming_items", **labels) == 3
            assert total(families, "otelcol_processor_outgoing_items", **labels) == 3
    [target] = families["target_info", "gauge"]
    assert dict(target)["service_name"] == "braid" and dict(target)["service_version"]


# As Collector 0.155 shows each of them.
@pytest.mark.parametrize("resource, labels", [
    ({"k8s.pod.name": "p1", "service.name": "edge", "service.instance.id": None, "9x-y": 'q"z', "a..b": "m"},
     {"_x_y": 'q"z', "a__b": "m", "k8s_pod_name": "p1", "service_name": "edge"}),
    ({"attributes": [{"name": "k8s.pod.name", "value": "p1"}, {"name": "n", "value": 7}, {"name": "service.instance.id", "value": "i"}]},
     {"k8s_pod_name": "p1", "n": "7", "service_instance_id": "i", "service_name": "braid"})])
def test_the_resource_of_the_config_is_in_target_info(braid, sink, resource, labels):
    config = pipelines(exporter("grpc", sink))
    config["service"].setdefault("telemetry", {})["resource"] = resource
    [target] = scrape(braid(config))["target_info", "gauge"]
    target = dict(target)
    assert target.pop("service_version")
    assert target == labels


def test_an_invalid_resource_is_rejected(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("receivers: {nop: }\nexporters: {nop: }\nservice:\n  pipelines: {traces: {receivers: [nop], exporters: [nop]}}\n"
                    "  telemetry: {resource: {a: {b: c}}}\n")
    done = subprocess.run([BINARY, "validate", "--config", str(path)], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 1
    assert "config.yaml:5:29: service::telemetry::resource: a: the value of an attribute must be text or null" in done.stderr


LOADED = {"memory_limiter": {"check_interval": "1s", "limit_mib": 512}, "join": None,
          "probabilistic_sampler": {"sampling_percentage": 100}, "redaction": {"allow_all_keys": True},
          "filter": {"spans": {"exclude": {"match_type": "strict", "span_names": ["-"]}}}, "attributes": {"actions": [{"key": "a", "action": "delete"}]},
          "resource": {"attributes": [{"key": "a", "value": "b", "action": "insert"}]},
          "profile_limits": None, "batch": {"timeout": "20ms"}}


def with_reader(config, **keys):
    [reader] = config["service"]["telemetry"]["metrics"]["readers"]
    reader["pull"]["exporter"]["prometheus"].update(keys)
    return config


@pytest.fixture
def loaded(braid, sink):
    """A server with every component that has metrics. It has received both signals, and its metric
    names have suffixes."""
    exporters = {**exporter("grpc", sink), "pyroscope": {"endpoint": f"http://{sink.http}"}, "nop": None}
    extensions = {"adaptive": None, "control": {"endpoint": "127.0.0.1:0", "token": "x" * 16}}
    config = pipelines(exporters, processors=LOADED, extensions=extensions)
    config["receivers"]["pprof"] = {"http": {"endpoint": "127.0.0.1:0"}}
    both = config["service"]["pipelines"]["traces"]
    config["service"]["pipelines"] = {
        "traces": {**both, "processors": [name for name in LOADED if name != "profile_limits"],
                   "exporters": ["otlp", "nop"]},
        "profiles": {**both, "receivers": ["otlp", "pprof"]}}
    server = braid(with_reader(config, without_type_suffix=False))
    for signal in SIGNALS:
        send(server, signal, 30).expect_ok()
        sink.wait(signal, 30)
    return server


def ask_metrics(server, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return clients.http(server.address("metrics", node=None), "/metrics", None, None, names, "GET").expect_ok()


def test_prometheus_linter_has_no_findings(loaded):
    """Names, units, and HELP of every family: `promtool check metrics` runs promlint."""
    done = subprocess.run([CLIENTS, "promlint"], input=scrape_text(loaded), capture_output=True, text=True,
                          timeout=DEADLINE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Observed with Collector 0.165 and each reader: suffixes are off only if both keys are true, which
# is the default.
@pytest.mark.parametrize("keys, suffixes", [
    ({}, False), ({"without_type_suffix": True}, False), ({"without_type_suffix": True, "without_units": True}, False),
    ({"without_scope_info": False}, False), ({"without_type_suffix": False}, True), ({"without_units": False}, True),
    ({"without_type_suffix": False, "without_units": True}, True)], ids=str)
def test_suffixes_of_names(braid, sink, keys, suffixes):
    server = braid(with_reader(pipelines(exporter("grpc", sink), processors={"batch": {"timeout": "20ms"}}), **keys))
    send(server, TRACES, 3).expect_ok()
    sink.wait(TRACES, 3)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", scrape_text(server), re.MULTILINE))
    counters = {name for name, kind in types.items() if kind == "counter"}
    assert len(counters) > 20
    assert {name for name in counters if name.endswith("_total") != suffixes} == set()
    assert {name.removesuffix("_total") for name in counters} >= {
        "otelcol_exporter_sent_spans", "otelcol_process_cpu_seconds", "otelcol_receiver_accepted_spans", "braid_ledger_received",
        "otelcol_processor_batch_timeout_trigger_send", "otelcol_process_uptime_seconds" if suffixes else "otelcol_process_uptime"}
    assert types["otelcol_process_memory_rss_bytes" if suffixes else "otelcol_process_memory_rss"] == "gauge"
    assert types["otelcol_processor_batch_metadata_cardinality"] == "gauge"
    assert types["otelcol_processor_batch_batch_send_size"] == "histogram"
    # OpenMetrics requires the suffix.
    kind = ask_metrics(server, accept=PROMETHEUS_ASKS).headers["content-type"]
    assert kind == (OPENMETRICS if suffixes else PLAIN)


OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS_ASKS = ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
                   "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,"
                   "text/plain;version=0.0.4;q=0.3,*/*;q=0.2")


PLAIN = "text/plain; version=0.0.4; charset=utf-8"


def check_openmetrics(text):
    families = {family.name: family for family in openmetrics.text_string_to_metric_families(text)}
    assert families["target"].type == "info"
    sizes = families["otelcol_processor_batch_batch_send_size"]
    assert sizes.type == "histogram"
    buckets = {sample.labels["le"]: sample.value for sample in sizes.samples if "le" in sample.labels}
    assert buckets["25.0"] == 0 and buckets["50.0"] == 2  # two batches of thirty
    assert not [name for name, family in families.items() if not family.documentation]


def test_the_client_chooses_the_format_of_a_scrape(loaded):
    forms = [(PROMETHEUS_ASKS, OPENMETRICS), ("application/openmetrics-text", OPENMETRICS),
             ("text/plain;q=1, application/openmetrics-text;q=0.5", PLAIN),
             ("application/openmetrics-text;q=0", PLAIN), ("*/*", PLAIN)]
    for (accept, kind), encoding in itertools.product(forms, ("identity", "gzip", "deflate, gzip;q=0.5", "gzip;q=0")):
        answer = ask_metrics(loaded, accept=accept, accept_encoding=encoding)
        packed = encoding in ("gzip", "deflate, gzip;q=0.5")
        assert answer.headers.get("content-encoding") == ("gzip" if packed else None), encoding
        text = (gzip.decompress(answer.body) if packed else answer.body).decode()
        assert answer.headers["content-type"] == kind, accept
        if kind == OPENMETRICS:
            check_openmetrics(text)
        else:
            assert list(text_string_to_metric_families(text))


@each_signal
def test_values(braid, sink, signal):
    """Three receivers, one exporter."""
    server = braid(pipelines(exporter("grpc", sink, sending_queue={"queue_size": 77})))
    send(server, signal, 4).expect_ok()
    for kind, n_items in ((otlp.PROTOBUF, 5), (otlp.JSON, 6)):
        body = otlp.encode(otlp.request_of(signal, n_items), kind)
        clients.http(server.http, signal.path, body, kind).expect_ok()
    sink.wait(signal, 15)
    items = ITEMS[signal]
    until(lambda: total(scrape(server), f"otelcol_exporter_sent_{items}", exporter="otlp") == 15, "the answers")
    families = scrape(server)
    accepted = f"otelcol_receiver_accepted_{items}"
    assert total(families, accepted, receiver="otlp", transport="grpc") == 4
    assert total(families, accepted, receiver="otlp", transport="http") == 11
    assert total(families, f"otelcol_receiver_refused_{items}", receiver="otlp") == 0
    assert total(families, f"otelcol_exporter_send_failed_{items}", exporter="otlp") == 0
    of_signal = {"exporter": "otlp", "data_type": signal.name}
    assert total(families, "otelcol_exporter_queue_capacity", **of_signal) == 77
    assert total(families, "otelcol_exporter_queue_size", **of_signal) == 0


def test_samples_are_counted_by_their_type(braid, sink):
    """Labels as the Collector's otlp receiver writes them; beyond a limit, further types of clients
    share one label."""
    server = braid(pipelines(exporter("grpc", sink), signals=["profiles"], workers=1))
    request = otlp.profile_request(3)
    strings = request.dictionary.string_table
    profile = request.resource_profiles[0].scope_profiles[0].profiles[0]
    named = ":".join(strings[index] or "<unset>" for index in (profile.sample_type.type_strindex, profile.sample_type.unit_strindex))
    clients.grpc(server.grpc, PROFILES, request.SerializeToString()).expect_ok()
    strings.append('a "b"')
    profile.sample_type.type_strindex, profile.sample_type.unit_strindex = len(strings) - 1, 0
    clients.grpc(server.grpc, PROFILES, request.SerializeToString()).expect_ok()
    counted = scrape(server)["otelcol_receiver_accepted_profile_samples", "counter"]
    labels = {"receiver": "otlp", "transport": "grpc"}
    assert {dict(series).get("sample_type"): value for series, value in counted.items() if labels.items() <= dict(series).items() and value} == {
        named: 3, 'a "b":<unset>': 3}
    for n in range(40):
        strings[-1] = f"t{n}"
        clients.grpc(server.grpc, PROFILES, request.SerializeToString()).expect_ok()
    counted = {dict(series)["sample_type"]: value for series, value in
               scrape(server)["otelcol_receiver_accepted_profile_samples", "counter"].items() if value}
    assert len(counted) == 16 and sum(counted.values()) == 42 * 3
    assert counted["_other"] == (42 - 15) * 3


SIZES = ["otelcol_exporter_enqueue_size", "otelcol_exporter_enqueue_size_bytes", "otelcol_exporter_queue_batch_send_size",
         "otelcol_exporter_queue_batch_send_size_bytes", "otelcol_processor_batch_batch_send_size_bytes",
         "otelcol_processor_queuebatch_batch_send_size", "otelcol_processor_queuebatch_batch_send_size_bytes"]


def test_sizes_of_requests_and_batches(braid, sink):
    """Names, labels and buckets of the Collector, at the telemetry level at which it shows them."""
    queue = {"batch": {"flush_timeout": "1h", "min_size": 40}}
    config = pipelines(exporter("grpc", sink, sending_queue=queue), signals=["traces"], processors={
        "batch": {"timeout": "0", "send_batch_size": 0}, "queue_batch": {"batch": {"flush_timeout": "1h", "min_size": 20}}})
    config["service"]["telemetry"]["metrics"]["level"] = "detailed"
    server = braid(config)
    for n in range(4):
        send(server, TRACES, 10, first=1 + 10 * n).expect_ok()
    sink.wait(TRACES, 40)
    families = scrape(server)
    sizes = {name: {tuple(sorted(dict(at).items())): value for at, value in families[name, "histogram"].items()} for name in SIZES}

    def of(name, part, **labels):
        return sizes[name][tuple(sorted({**labels, "": part}.items()))]

    exported, batched, queued = {"exporter": "otlp"}, {"processor": "batch"}, {"processor": "queue_batch"}
    assert [of("otelcol_exporter_enqueue_size", part, **exported) for part in ("_count", "_sum")] == [2, 40]
    assert [of("otelcol_exporter_queue_batch_send_size", part, **exported) for part in ("_count", "_sum")] == [1, 40]
    assert [of("otelcol_processor_queuebatch_batch_send_size", part, **queued) for part in ("_count", "_sum")] == [2, 40]
    [call] = sink.calls
    assert of("otelcol_exporter_queue_batch_send_size_bytes", "_sum", **exported) == call.message.ByteSize()
    assert of("otelcol_exporter_enqueue_size_bytes", "_count", **exported) == 2
    assert of("otelcol_processor_queuebatch_batch_send_size_bytes", "_count", **queued) == 2
    assert of("otelcol_processor_batch_batch_send_size_bytes", "_count", **batched) == 4
    bounds = [dict(at)["le"] for at in families["otelcol_exporter_enqueue_size_bytes", "histogram"] if "le" in dict(at)]
    assert sorted(float(bound) for bound in bounds) == [2.0 ** n for n in range(7, 25)] + [float("inf")]
    assert not any("exporter" in dict(at) for (name, _), series in families.items() if name.startswith("otelcol_processor")
                   for at in series)


def test_sizes_are_shown_at_the_detailed_level_only(braid, sink):
    server = braid(pipelines(exporter("grpc", sink, sending_queue={"batch": {}}), signals=["traces"]))
    send(server, TRACES, 1).expect_ok()
    assert not [name for name, _ in scrape(server) if name in SIZES]


def test_queue_size_counts_queued_requests(braid, sink):
    gate = threading.Event()
    sink.script = [Reply(hold=gate)]
    server = braid(pipelines(exporter("grpc", sink, sending_queue={"num_consumers": 1, "queue_size": 4})))
    answers = [send(server, TRACES, 1).code for _ in range(6)]
    assert answers == ["OK"] * 4 + ["UNAVAILABLE"] * 2  # the current one still occupies its place
    families = scrape(server)
    assert total(families, "otelcol_exporter_queue_size", data_type="traces") == 4
    assert total(families, "otelcol_exporter_queue_size", data_type="profiles") == 0
    assert total(families, "otelcol_exporter_enqueue_failed_spans") == 2
    assert total(families, "otelcol_receiver_refused_spans") == 2
    gate.set()
    sink.wait(TRACES, 4)


# --- The ledger ---------------------------------------------------------------------------------

MIXED = [ACCEPT, ACCEPT, Reply(rejected=1, message="one of them is odd"), ACCEPT,
         Reply(StatusCode.UNAVAILABLE, 503, "busy", retry_s=0.02), REFUSE, ACCEPT, Reply(message="a warning")]


class Traffic:
    """Threads that send spans and samples on separate connections until they are stopped."""

    def __init__(self, server, n_threads):
        self._server, self._stop, self._lock = server, threading.Event(), threading.Lock()
        self.offered, self.accepted = ({signal.name: 0 for signal in SIGNALS} for _ in range(2))
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(n_threads)]
        for thread in self._threads:
            thread.start()

    def _run(self, seed):
        channel = grpc.insecure_channel(self._server.grpc, clients.LOCAL)
        chance = random.Random(seed)
        while not self._stop.is_set():
            # A partial success counts profiles: here each has one sample.
            signal, n_items = (TRACES, chance.randint(1, 9)) if chance.random() < 0.5 else (PROFILES, 1)
            body = otlp.request_of(signal, n_items).SerializeToString()
            if seed % 2:
                answer = clients.grpc(None, signal, body, channel=channel)
            else:
                answer = clients.http(self._server.http, signal.path, body)
            with self._lock:
                self.offered[signal.name] += n_items
                self.accepted[signal.name] += n_items if answer.ok else 0
        channel.close()

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()


def of_exporter(families, name, signal):
    """Checks that the ledger accounts for all records passed to one exporter."""
    labels = {"exporter": name, "signal": signal.name}
    account = {entry: total(families, f"braid_exporter_{entry}", **labels)
               for entry in ("received", "sent", "rejected", "dropped", "held")}
    assert account["received"] == sum(account.values()) - account["received"], account
    return account


def check_account(families, signal, before):
    """received = sent + rejected + dropped + held at every scrape, and only `held` decreases."""
    account = {entry: total(families, f"braid_ledger_{entry}", signal=signal.name)
               for entry in ("received", "sent", "rejected", "held")}
    dropped = sum(value for (name, _), series in families.items() if name == "braid_ledger_dropped"
                  for labels, value in series.items() if ("signal", signal.name) in labels)
    assert account["received"] == account["sent"] + account["rejected"] + dropped + account["held"], account
    assert account["held"] >= 0
    assert all(account[entry] >= before.get(entry, 0) for entry in ("received", "sent", "rejected"))
    assert dropped >= before.get("dropped", 0)
    return {**account, "dropped": dropped}


@pytest.mark.parametrize("processors", [None, {"join": None, "batch": {"timeout": "20ms"}}], ids=["direct", "batch"])
@pytest.mark.parametrize("workers", [1, 3])
def test_ledger_balances_at_every_scrape(braid, new_sink, workers, processors):
    """Two destinations: one alternately accepts, rejects, delays and partially accepts; one is
    unavailable."""
    mixed, gone = new_sink(), new_sink()
    mixed.script = list(itertools.islice(itertools.cycle(MIXED), 100_000))
    gone.reply = Reply(StatusCode.UNAVAILABLE, 503, "gone")
    retry = {"initial_interval": "5ms", "max_interval": "20ms", "max_elapsed_time": "100ms"}
    server = braid(pipelines(
        {**exporter("grpc", mixed, "/mixed", retry_on_failure=retry),
         **exporter("proto", gone, "/gone", retry_on_failure=retry, sending_queue={"queue_size": 50 * workers, "num_consumers": 10 * workers})},
        processors=processors, workers=workers))
    traffic = Traffic(server, 4)
    accounts = {signal: {} for signal in SIGNALS}
    n_scrapes, end = 0, time.monotonic() + 3
    try:
        while time.monotonic() < end or n_scrapes <= 10:
            families = scrape(server)
            accounts = {signal: check_account(families, signal, accounts[signal]) for signal in SIGNALS}
            for name, signal in itertools.product(("otlp/mixed", "otlphttp/gone"), SIGNALS):
                of_exporter(families, name, signal)
            n_scrapes += 1
    finally:
        traffic.stop()
    until(lambda: not any(server.exporter_ledger(name, signal.name)["held"] for signal in SIGNALS
                          for name in ("otlp/mixed", "otlphttp/gone")), "the last tries")
    until(lambda: not any(server.ledger(signal.name)["held"] for signal in SIGNALS), "the last answers")
    families = scrape(server)
    for signal in SIGNALS:
        check_end(families, signal, traffic, check_account(families, signal, accounts[signal]), mixed)
        assert not gone.items(signal)
    assert total(families, "otelcol_exporter_send_failed_spans", exporter="otlphttp/gone") > 0


def check_end(families, signal, traffic, account, sink):
    """The ledger agrees with the counts of clients and destination."""
    offered, accepted = traffic.offered[signal.name], traffic.accepted[signal.name]
    assert account["received"] == offered
    arrived = len(sink.items(signal))
    partial = total(families, "braid_exporter_dropped", signal=signal.name, reason="partial_success")
    mixed, gone = (of_exporter(families, name, signal) for name in ("otlp/mixed", "otlphttp/gone"))
    assert partial > 0 and mixed["dropped"] > partial
    assert mixed["sent"] == account["sent"] == arrived - partial > 0  # nothing arrives anywhere else
    assert gone["sent"] == 0 and gone["held"] == 0
    items = ITEMS[signal]
    assert total(families, f"otelcol_receiver_accepted_{items}") == accepted
    assert total(families, f"otelcol_receiver_accepted_{items}") + total(
        families, f"otelcol_receiver_refused_{items}") + total(families, f"otelcol_receiver_failed_{items}") == offered


# --- Logs ---------------------------------------------------------------------------------------

LEVELS = ("error", "warn", "info", "debug", "trace")
HOSTILE = "line one\r\nline two\t\"quoted\" \\ \x1b[31m naïve"


def parse_text(line):
    time_text, level, rest = line.split("\t", 2)
    return time_text, level, rest


def parse_json(line):
    entry = json.loads(line)
    assert set(entry) <= {"ts", "level", "component", "msg"}
    return entry["ts"], entry["level"], entry["msg"]


@pytest.mark.parametrize("encoding, parse", [("console", parse_text), ("json", parse_json)])
@pytest.mark.parametrize("level", LEVELS)
def test_logs_parse_and_obey_their_level(braid, sink, tmp_path, encoding, parse, level):
    """The quiet levels do not log the ports; a unix socket needs none."""
    sink.reply = Reply(StatusCode.INVALID_ARGUMENT, 400, HOSTILE)
    address = f"{tmp_path}/grpc.sock"
    config = pipelines(exporter("proto", sink), grpc={"endpoint": address, "transport": "unix"})
    del config["receivers"]["otlp"]["protocols"]["http"]
    config["service"]["telemetry"]["logs"] = {"level": level, "encoding": encoding}
    server = braid(config)
    body = otlp.trace_request(2).SerializeToString()
    until(lambda: clients.grpc(f"unix:{address}", TRACES, body).ok, "the server")
    until(lambda: "quoted" in server.log(), "the refusal in the log")
    config["service"]["workers"] += 1
    server.config_path.write_text(json.dumps(config))
    server.process.send_signal(signals.SIGHUP)
    if level != "error":
        server.wait_log("needs a restart")
    server.stop()
    shown = set()
    for line in server.log().splitlines():
        time_text, its_level, _ = parse(line)
        assert datetime.datetime.fromisoformat(time_text).tzinfo == datetime.UTC
        shown.add(its_level)
    assert shown == set(LEVELS[:LEVELS.index(level) + 1]) - {"trace"}  # no message has that level yet
    assert "needs a restart" in server.log() or level == "error"
    assert server.stdout_path.read_text() == ""


def test_an_unavailable_destination_is_logged_at_once_and_once(braid, new_sink):
    gone = new_sink()
    gone.leave()
    server = braid(pipelines(exporter("grpc", gone, retry_on_failure={"initial_interval": "10ms"})),
                   "--shutdown-timeout=100ms")
    for n in range(3):
        send(server, TRACES).expect_ok()
    said = server.wait_log(r"warn\texporter/otlp\t(not delivered, next attempt in .*)$").group(1)
    assert gone.grpc in said and "refused" in said
    server.stop()
    assert server.log().count("not delivered") == 1


# --- Secrets ------------------------------------------------------------------------------------

SECRET = "canary-1b7e"


def with_secrets(sink):
    """A config with a secret in every place that allows one."""
    headers = {"authorization": f"Bearer {SECRET}", "x-api-key": SECRET}
    return pipelines({**exporter("grpc", sink, "/a", headers=headers),
                      **exporter("proto", sink, "/b", headers=headers)})


def command(name, *args, env=None):
    done = subprocess.run([BINARY, name, *args], capture_output=True, text=True, timeout=DEADLINE_S, env=env)
    return done.returncode, done.stdout + done.stderr


def test_secrets_are_sent_and_never_shown(braid, sink):
    """Neither Braid's secrets, in the config, nor its clients', in their requests, are shown after
    any error."""
    config = with_secrets(sink)
    config["service"]["telemetry"]["logs"] = {"level": "trace"}
    server = braid(config, "--set=service.workers=2", "--shutdown-timeout=1s")
    metadata = {"authorization": f"Bearer {SECRET}", "x-api-key": SECRET}
    shown = []
    bodies = [otlp.trace_request(1).SerializeToString(), b"\xff\xff"]  # the second is not protobuf
    replies = [ACCEPT, Reply(StatusCode.UNAUTHENTICATED, 401, "who are you?"),
               Reply(StatusCode.UNAVAILABLE, 503, "busy", retry_s=0.01), ACCEPT]
    sink.script = [reply for reply in replies for _ in range(2)]
    for body in bodies * 2:
        shown.append(clients.grpc(server.grpc, TRACES, body, metadata.items()))
        shown.append(clients.http(server.http, TRACES.path, body, headers=metadata))
        shown.append(clients.http(server.http, "/nowhere", body, headers=metadata))
    until(lambda: not sink.script, "all the replies")
    assert all(call.headers["authorization"] == f"Bearer {SECRET}" == "Bearer " + call.headers["x-api-key"]
               for call in sink.calls) and sink.calls
    shown.append(scrape_text(server))
    sink.leave()  # the destination is unavailable from now on
    shown.append(send(server, TRACES))
    server.wait_log("exporter/otlp/a\tconnection to .* refused")
    server.stop()
    assert SECRET not in server.log() + server.stdout_path.read_text() + repr(shown)


def test_print_config_redacts(sink, tmp_path):
    path = tmp_path / "config.yaml"
    config = with_secrets(sink)
    config["exporters"]["otlp/a"]["tls"] = {"key_pem": SECRET, "cert_pem": SECRET, "ca_pem": SECRET}
    config["exporters"]["otlp/a"]["headers"]["x-from-env"] = "${env:SECRET_TOKEN}"
    path.write_text(json.dumps(config))
    code, text = command("print-config", "--config", path, "--set", f"exporters.otlp/a.headers.x-set={SECRET}",
                         env={"SECRET_TOKEN": SECRET})
    assert code == 0 and "[REDACTED]" in text and "x-set" in text and "x-from-env" in text
    assert SECRET not in text


@pytest.mark.parametrize("wrong", [
    {"headers": f"Bearer {SECRET}"}, {"headers": {"authorization": [SECRET]}},
    {"headers": {"authorization": {"token": SECRET}}}, {"headers": {"authorization": f"{SECRET}\n"}},
    {"header": {"authorization": SECRET}}, {"tls": {"key_pem": [SECRET]}},
    {"endpoint": f"ftp://user:{SECRET}@example.com"}, {"endpoint": f"http://user:{SECRET}@example.com"},
    {"endpoint": f"user:{SECRET}@example.com:4317"},
], ids=str)
def test_errors_do_not_show_secrets(sink, tmp_path, wrong):
    code, text = validate_with(sink, tmp_path, wrong)
    assert code == 1 and "exporters::otlp/a" in text
    assert SECRET not in text


@pytest.mark.parametrize("harmless", [{"headers": {"authorization": f"${{env:NONE}}{SECRET}"}}])
def test_warnings_do_not_show_secrets(sink, tmp_path, harmless):
    code, text = validate_with(sink, tmp_path, harmless)
    assert code == 0 and "NONE" in text
    assert SECRET not in text


def validate_with(sink, folder, options):
    config = with_secrets(sink)
    config["exporters"]["otlp/a"].update(options)
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    return command("validate", "--config", path)


def test_an_invalid_key_is_not_shown(sink, tmp_path):
    """validate cannot detect it: the start fails."""
    config = with_secrets(sink)
    config["exporters"]["otlp/a"]["tls"] = {"key_pem": SECRET, "cert_pem": SECRET}
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config))
    code, text = command("run", "--config", path)
    assert code == 1 and "PEM" in text
    assert SECRET not in text
