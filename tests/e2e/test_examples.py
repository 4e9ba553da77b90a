# SPDX-License-Identifier: Apache-2.0
"""Every shipped config, with only hosts, ports and directories changed, delivers the data of the
official SDKs."""

import dataclasses
import http.client
import json
import pathlib
import re
import subprocess
import time

import pytest
import yaml

import clients
import ingest
import otlp
import pprof
import profile_view
import scene
from braid import BINARY, DEADLINE_S, exporter, pipelines

FOLDER = pathlib.Path(__file__).parents[2] / "config" / "examples"
SERVICE = "shop-python"
# records of the scene, of a profiles request, and those of the latter with links
N_SPANS, N_SAMPLES, N_LINKED = 102, 23, 20
STATUSES = ("unset", "ok", "error")
KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
CONTROL_TOKEN = "sixteen-or-longer"
READER = "[{pull: {exporter: {prometheus: {host: 127.0.0.1, port: 0}}}}]"


@dataclasses.dataclass(frozen=True)
class Example:
    """Input of a config, and its expected properties."""
    traces: str = ""            # host:port in the file that receives spans; "": they go to files
    profiles: str = ""          # the same for samples
    spans_by: tuple = ("grpc",)  # protocols of receiver/otlp for spans, one per run
    samples_by: tuple = (("otlp", "grpc"),)  # receivers and transports for profiles
    by_http: bool = False       # the exporters are otlphttp
    copied: tuple | None = ()   # attributes copied to samples in addition to span.name; None: nothing is joined
    figures: bool = False       # spans wait for their samples, and are exported with the sums and a mark
    authorization: str | None = None  # header at the destination of spans, which is https
    health: bool = False
    pushed: bool = False        # profiles are received and exported by Pyroscope's protocols
    selective: bool = False     # only a part of the data is kept: test_production_example
    zstd: bool = False          # over gRPC, which the sink's library does not support: another Braid receives it
    gauges: dict = dataclasses.field(default_factory=dict)  # limits in the file that metrics show


EXAMPLES = {
    "cloud.yaml": Example(
        traces="https://traces.example.com/otlp", profiles="http://pyroscope:4040", spans_by=("grpc", "http"),
        samples_by=(("otlp", "grpc"), ("otlp", "proto"), ("otlp/profiles", "grpc")), by_http=True, copied=None,
        authorization="Bearer canary-7"),
    "gateway.yaml": Example(
        traces="http://tempo:4317", profiles="http://pyroscope:4040", spans_by=("grpc", "http"),
        samples_by=(("otlp", "json"), ("otlp", "grpc")),
        copied=("http.route", "span.kind", "span.status"), figures=True, health=True),
    "production.yaml": Example(traces="http://tempo:4317", profiles="http://pyroscope:4040", selective=True),
    "pyroscope.yaml": Example(traces="http://tempo:4317", profiles="http://pyroscope:4040", pushed=True),
    "files.yaml": Example(
        spans_by=("grpc", "http"), samples_by=(("otlp", "grpc"), ("otlp", "proto")), figures=True),
    "scrape.yaml": Example(  # test_pprof_receiver.py tests the rest of it
        traces="tempo:4317", profiles="pyroscope:4040", spans_by=("grpc", "http"),
        samples_by=(("otlp", "grpc"), ("otlp", "proto")), figures=True),
    "sidecar.yaml": Example(
        traces="gateway:4317", profiles="gateway:4317", spans_by=("grpc", "http"),
        samples_by=(("otlp", "proto"), ("otlp", "grpc")), copied=("http.route", "span.status"),
        health=True, zstd=True, gauges={"otelcol_exporter_queue_capacity": 33554432}),
    "tempo-pyroscope.yaml": Example(
        traces="http://tempo:4317", profiles="http://pyroscope:4040", spans_by=("grpc", "http"),
        samples_by=(("otlp/profiling", "grpc"),) * 2, figures=True),
}

ELSEWHERE = ("quickstart.yaml", "kafka-reader.yaml", "kafka-writer.yaml")  # test_quickstart.py, test_kafka.py
FILES = sorted(path.name for path in FOLDER.glob("*.yaml") if path.name not in ELSEWHERE)


def test_every_example_is_tested():
    assert FILES == sorted(EXAMPLES)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A PEM file with the key and the certificate of localhost, which is self-signed."""
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-keyout", path, "-out", path.with_suffix(".crt"), "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                   check=True, capture_output=True, timeout=DEADLINE_S)
    path.write_text(path.read_text() + path.with_suffix(".crt").read_text())
    return path


class Run:
    """One example, with sinks (or files) as its destinations."""

    def __init__(self, name, example, start, new_sink, certificate, folder):
        self.example, self.sinks, self.start = example, {}, start
        env = {"TOKEN": "canary-7", "SSL_CERT_FILE": str(certificate)}
        text = re.sub(r"\b(localhost|0\.0\.0\.0):\d+$", "127.0.0.1:0", (FOLDER / name).read_text(), flags=re.M)
        for signal in otlp.SIGNALS:
            place = getattr(example, signal.name)
            if place and place not in self.sinks:
                text = self._point(text, place, new_sink, certificate)
            self.sinks[signal] = self.sinks.get(place)
        sets = [f"--set=service.telemetry.metrics.readers={READER}"]
        if example.health:
            sets.append("--set=extensions.health_check.endpoint=127.0.0.1:0")
        self.braid = start(text.replace("/var/lib/braid", str(folder)), *sets, env=env)

    def _point(self, text, place, new_sink, certificate):
        """The config with a sink in place of a destination."""
        scheme, host, path = re.fullmatch(r"(https?://)?([^/]+)(/.*)?", place).groups("")
        tls = scheme == "https://"
        sink = self.sinks[place] = new_sink(certificate=certificate if tls else None, prefix=path)
        assert place in text
        if tls:
            address = f"localhost:{sink.http.rsplit(':', 1)[1]}"
        elif self.example.zstd:
            address = self.start(pipelines(exporter("grpc", sink))).grpc
        else:
            address = sink.http if self.example.by_http else sink.grpc
        return text.replace(place, scheme + address + path)

    def arrived(self, signal):
        """The requests exported so far."""
        if self.sinks[signal]:
            return [call.message for call in self.sinks[signal].of(signal)]
        lines = (self.braid.stdout_path.parent / "braid-out" / f"{signal.name}.json").read_text().splitlines()
        return [otlp.from_json(signal.request, line) for line in lines]

    def wait_samples(self, n):
        if self.sinks[otlp.PROFILES]:
            self.sinks[otlp.PROFILES].wait(otlp.PROFILES, n)

    def send_spans(self, transport):
        """Returns the (trace id, span id) of the sent spans, in the order printed by the client."""
        return scene.send_traces(f"python-{transport}", self.braid)

    def send_profiles(self, receiver, transport, spans):
        address = self.braid.address("grpc" if transport == "grpc" else "http", f"receiver/{receiver}")
        return scene.send_profiles(transport, address, service=SERVICE, spans=spans)


def warnings(process):
    """Returns the warnings, except that about the target of scrape.yaml, which does not exist here."""
    return [line for line in process.log().splitlines()
            if re.search(r"\t(warn|error)\t", line) and not re.search("receiver/pprof\t.*: cannot connect to ", line)]


@pytest.mark.parametrize("name", [name for name in FILES if not EXAMPLES[name].pushed and not EXAMPLES[name].selective])
def test_example(name, braid, new_sink, certificate, tmp_path):
    example = EXAMPLES[name]
    (tmp_path / "profiles").mkdir()
    run = Run(name, example, braid, new_sink, certificate, tmp_path)
    health = run.braid.address("http", "extension/health_check") if example.health else None
    if health:
        assert clients.http(health, "/", None, None, method="GET").code == 200
    ids, sent = drive(run)
    metrics = run.braid.metrics()
    for gauge, value in example.gauges.items():
        assert set(metrics[gauge].values()) == {value}
    words = run.braid.stop()
    assert warnings(run.braid) == []
    n_spans, n_samples = N_SPANS * len(ids), N_SAMPLES * len(sent)
    nothing_else = {"rejected": 0, "dropped": 0, "left": 0}
    # Counted once, even if they go to files and to debug.
    assert words == {"traces": {"received": n_spans, "sent": n_spans, **nothing_else},
                     "profiles": {"received": n_samples, "sent": n_samples, **nothing_else}}
    assert run.braid.process.poll() is not None  # its ports may belong to another process by now
    spans = check_spans(run, ids)
    check_marks(example, spans, ids)
    check_samples(run, spans, sent)
    if example.authorization:
        assert {call.headers["authorization"] for call in run.sinks[otlp.TRACES].calls} == {example.authorization}


@pytest.mark.parametrize("name", [name for name in FILES if EXAMPLES[name].pushed])
def test_pushed_example(name, braid, new_sink, pyroscope):
    """A Pyroscope SDK's profiles of two tenants are joined with earlier spans, and exported to
    Pyroscope."""
    example, spans = EXAMPLES[name], new_sink()
    text = re.sub(r"\b0\.0\.0\.0:\d+$", "127.0.0.1:0", (FOLDER / name).read_text(), flags=re.M)
    assert example.traces in text and example.profiles in text
    text = text.replace(example.traces, "http://" + spans.grpc).replace(example.profiles, pyroscope.url)
    process = braid(text, f"--set=service.telemetry.metrics.readers={READER}")
    (trace, root), *_ = scene.send_traces("python-grpc", process)
    body = ingest.make_pprof(labels={"trace_id": trace, "span_id": root}, time_ns=time.time_ns())
    for tenant in ("blue", "red"):
        answer = ingest.http1(process.address("http", "receiver/pyroscope"),
                              ingest.ingest_path("shop-python{env=prod}", spyName="gospy", format="pprof"), body,
                              {"X-Scope-OrgID": tenant})
        assert answer.code == 200
    pushes = pyroscope.wait(2)
    assert sorted(push.headers["x-scope-orgid"] for push in pushes) == ["blue", "red"]
    for push in pushes:
        assert push.labels == {"__name__": "process_cpu", "service_name": "shop-python", "env": "prod",
                               "__delta__": "false", "pyroscope_spy": "gospy"}
        labels = [dict(pprof.labels_of(push.profile, sample)) for sample in push.profile.sample]
        assert labels == [{"trace_id": trace, "span_id": root, "span.name": "POST /checkout"}] * 2
    process.stop()
    assert warnings(process) == []
    arrived = [span for call in spans.of(otlp.TRACES) for _, _, span in otlp.spans_of(call.message)]
    marks = {span.span_id.hex(): otlp.attributes_of(span.attributes).get("pyroscope.profile.id") for span in arrived}
    assert len(marks) == N_SPANS and {span: mark for span, mark in marks.items() if mark} == {root: root}


def mixed(signal):
    """Spans 1 to 3 of 5 ms, and a sample of n times 10 ms for each. The first one's trace is the
    one of four that is sampled, by its last 56 bits; the third failed."""
    request, now = otlp.request_of(signal, 3), time.time_ns()

    def trace_of(n):
        return bytes([n] * 9) + (b"\xff" if n == 1 else b"\0") * 7
    if signal is otlp.TRACES:
        for n, (_, _, span) in enumerate(otlp.spans_of(request), start=1):
            span.ClearField("trace_state")
            span.trace_id, span.status.code = trace_of(n), 2 if n == 3 else 1
            span.start_time_unix_nano, span.end_time_unix_nano = now, now + 5_000_000
            span.attributes.append(otlp.attribute("user.password", "hunter2"))
            span.attributes.append(otlp.attribute("note", "for ann@example.com, soon"))
    else:
        for n, link in enumerate(request.dictionary.link_table):
            link.trace_id = trace_of(n) if n else b""
        [at] = [i for i, each in enumerate(request.dictionary.string_table) if each == "cart.go"]
        request.dictionary.string_table[at] = "/home/ann/cart.go"
        request.resource_profiles[0].scope_profiles[0].profiles[0].time_unix_nano = now
    return request


def ask_control(process, method, rule=None):
    connection = http.client.HTTPConnection(process.address("http", "extension/control"), timeout=DEADLINE_S)
    connection.request(method, "/v1/profiling", rule and json.dumps(rule),
                       {"Authorization": f"Bearer {CONTROL_TOKEN}", "Content-Type": "application/json"})
    return json.loads(connection.getresponse().read())


def by_span(push):
    """Returns {span id: (CPU time, span name)} of a pushed profile; "" for samples without a span."""
    found = {}
    for sample in push.profile.sample:
        labels = dict(pprof.labels_of(push.profile, sample))
        span = labels.get("span_id", "")
        assert span not in found
        found[span] = (sample.value[0], labels.get("span.name"))
    return found


def test_production_example(braid, sink, pyroscope):
    """One trace of four is kept, and all slow and failed ones. Totals are exact, private data is
    not exported, and control raises the sampling on request."""
    example = EXAMPLES["production.yaml"]
    text = re.sub(r"\b(localhost|0\.0\.0\.0):\d+$", "127.0.0.1:0", (FOLDER / "production.yaml").read_text(), flags=re.M)
    text = text.replace(example.traces, "http://" + sink.grpc).replace(example.profiles, pyroscope.url)
    process = braid(text, f"--set=service.telemetry.metrics.readers={READER}", "--set=processors.join.hold=1s",
                    env={"BRAID_CONTROL_TOKEN": CONTROL_TOKEN})

    def send(signal):
        clients.grpc(process.grpc, signal, mixed(signal).SerializeToString()).expect_ok()
    send(otlp.TRACES)
    send(otlp.PROFILES)
    [push] = pyroscope.wait(1)
    ids = [n.to_bytes(8, "big").hex() for n in range(4)]
    assert by_span(push) == {ids[1]: (10_000_000, "span 1"), ids[3]: (30_000_000, "span 3"), "": (20_000_000, "span 2")}
    assert {each for each in push.profile.string_table if each.endswith("cart.go")} == {"[REDACTED]/cart.go"}
    sink.wait(otlp.TRACES, 1)
    send(otlp.TRACES)  # the service is known to send profiles: its spans wait for their figures
    rule = {"service": "shop", "duration": "1m", "sampling_percentage": 100}
    assert ask_control(process, "POST", rule)["service"] == "shop"
    assert {(each["component"], each.get("service"), each["state"]) for each in ask_control(process, "GET")["collected"]
            } == {("otlp", None, "ok"), ("pyroscope", None, "ok"), ("join", None, "some"), ("join", "shop", "all")}
    send(otlp.PROFILES)
    assert by_span(pyroscope.wait(2)[1]) == {ids[n]: (n * 10_000_000, f"span {n}") for n in (1, 2, 3)}
    sink.wait(otlp.TRACES, 2)
    arrived = [span for call in sink.of(otlp.TRACES) for _, _, span in otlp.spans_of(call.message)]
    assert [span.span_id.hex() for span in arrived] == [ids[1]] * 2
    attributes = otlp.attributes_of(arrived[1].attributes)
    assert (attributes["user.password"], attributes["note"]) == ("[REDACTED]", "for [REDACTED], soon")
    assert attributes["profile.top_functions"] == ["priceCart"]
    metrics = process.metrics()
    seconds = metrics["braid_join_span_cpu_seconds"]
    assert sorted(round(value, 6) for value in seconds.values()) == [0.02, 0.04, 0.06]  # of both requests
    assert set(metrics["braid_adaptive_step"].values()) == {0}
    words = process.stop()
    assert warnings(process) == []
    assert words["traces"] == {"received": 6, "sent": 2, "rejected": 0, "dropped": 4, "left": 0}
    assert words["profiles"] == {"received": 6, "sent": 6, "rejected": 0, "dropped": 0, "left": 0}


def drive(run):
    """Sends spans, and profiles with links to them, repeatedly. The profiles of a run are exported
    before the next run's spans are sent, so that the service is known to send profiles."""
    ids, sent = [], []
    by, to = run.example.spans_by, run.example.samples_by
    for n in range(max(len(by), len(to))):
        if n < len(by):
            ids.append(run.send_spans(by[n]))
        sent.append(run.send_profiles(*to[n], ids[-1]))
        run.wait_samples(N_SAMPLES * len(sent))
    return ids, sent


def check_spans(run, ids):
    """Checks that every span arrived once, complete. Returns {(trace id, span id): span}."""
    arrived = [item for message in run.arrived(otlp.TRACES) for item in otlp.spans_of(message)]
    by_trace = {}
    for resource, scope, span in arrived:
        by_trace.setdefault(span.trace_id.hex(), []).append((resource, scope, unmarked(span)))
    assert len(by_trace) == len(ids)
    for sent in ids:
        [(trace, _), *_] = sent
        scene.check(by_trace[trace], "python", set(sent))
    return {(span.trace_id.hex(), span.span_id.hex()): span for _, _, span in arrived}


MARKS = ("pyroscope.profile.id", "profile.id", "profile.type", "profile.sample_count", "profile.duration_us",
         "profile.inclusive_sample_count", "profile.inclusive_duration_us")


def unmarked(span):
    """Returns a copy without the attributes that the join adds."""
    copy = type(span)()
    copy.CopyFrom(span)
    kept = [pair for pair in span.attributes if pair.key not in MARKS]
    del copy.attributes[:]
    copy.attributes.extend(kept)
    return copy


def check_marks(example, spans, ids):
    """In the last run the service is known to send profiles. Sample n has n + 1 times 10 ms of its
    span; a span's figures include those of its descendants."""
    below = {}
    for n, (trace, span) in enumerate(ids[-1]):
        at = span if n < N_LINKED else ""
        while at:
            below.setdefault(at, []).append(n)
            at = spans[trace, at].parent_span_id.hex()
    for n, (trace, span) in enumerate(ids[-1]):
        marks = {key: value for key, value in otlp.attributes_of(spans[trace, span].attributes).items()
                 if key in MARKS}
        own, its = n < N_LINKED, below.get(span, [])
        want = {"pyroscope.profile.id": span} if own and example.figures else {}
        if example.figures and its:
            assert marks.pop("profile.id")
            want |= {"profile.type": "cpu:nanoseconds",
                     "profile.sample_count": own, "profile.duration_us": own * (n + 1) * 10_000,
                     "profile.inclusive_sample_count": len(its),
                     "profile.inclusive_duration_us": sum(10_000 * (each + 1) for each in its)}
        assert marks == want


def check_samples(run, spans, sent):
    """Every sample arrived once and unchanged, except for the attributes of its span that the join
    adds."""
    arrived = profile_view.samples(*run.arrived(otlp.PROFILES))
    copied = run.example.copied
    for sample in arrived:
        added = {key: sample["attributes"].pop(key)[0]
                 for key in ("span.name", "http.route", "span.kind", "span.status") if key in sample["attributes"]}
        span = spans.get(sample["link"])
        assert added == (expected(span, copied) if span and copied is not None else {})
    expected_samples = profile_view.samples(*sent)
    assert sum(sample["link"] in spans for sample in expected_samples) == N_LINKED * len(sent)
    assert sorted(arrived, key=repr) == expected_samples


def expected(span, copied):
    """Returns the attributes added to a sample of the span."""
    attributes = otlp.attributes_of(span.attributes)
    own = {"span.kind": KINDS[span.kind], "span.status": STATUSES[span.status.code],
           "http.route": attributes.get("http.route")}
    return {"span.name": span.name, **{key: own[key] for key in copied if own[key] is not None}}


@pytest.mark.parametrize("name", FILES)
def test_example_takes_backends_from_the_environment(name):
    """Every external endpoint is set by a variable, and has a default."""
    section = re.search(r"^exporters:\n((?: .*\n|\n)*)", (FOLDER / name).read_text(), flags=re.M).group(1)
    for endpoint in re.findall(r"endpoint: (.*)", section):
        assert re.fullmatch(r"\$\{env:[A-Z_]+:-[^}]+\}", endpoint), endpoint


def ports(name, protocol):
    return re.findall(protocol + r":\n +endpoint: \S+:(\d+)", (FOLDER / name).read_text())


@pytest.mark.parametrize("name", FILES)
def test_example_has_usual_ports(name):
    """An OTLP SDK configured only with a protocol finds the right server: 4317 is gRPC, 4318 HTTP."""
    assert "4318" not in ports(name, "grpc") and "4317" not in ports(name, "http")


@pytest.mark.parametrize("name", FILES)
def test_example_is_valid_as_it_is_shipped(name, tmp_path):
    done = subprocess.run([BINARY, "validate", "--config", FOLDER / name], capture_output=True, text=True,
                          timeout=DEADLINE_S, env={"TOKEN": "x", "BRAID_CONTROL_TOKEN": CONTROL_TOKEN,
                                                  "BRAID_PROFILES": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")


def test_compose_runs_braid(tmp_path):
    """The compose file of docs/using/grafana.md: mounted files exist, Braid accepts its arguments,
    and its exporters and Grafana's data sources refer to existing services."""
    folder = FOLDER.parents[1] / "demo" / "grafana"
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    mounts = [mount.split(":")[:2] for service in services.values() for mount in service.get("volumes", [])]
    assert all((folder / source).is_file() for source, _ in mounts)
    build = services["braid"]["build"]
    assert (folder / build["context"] / build["dockerfile"]).is_file()
    inside = {target: str(folder / source) for source, target in mounts}
    arguments = [inside.get(each, each) for each in services["braid"]["command"]]
    done = subprocess.run([BINARY, "print-config", *arguments], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (0, "")
    sources = yaml.safe_load((folder / "datasources.yaml").read_text())["datasources"]
    urls = re.findall(r"http://(\w+):", done.stdout) + [re.match(r"http://(\w+):", each["url"]).group(1) for each in sources]
    assert set(urls) == {"tempo", "pyroscope"} <= set(services)
    published = {port.rsplit(":", 1)[1] for port in services["braid"]["ports"]}
    assert published == set(re.findall(r"0\.0\.0\.0:(\d+)", done.stdout))
