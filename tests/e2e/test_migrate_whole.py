"""braid migrate --rest: both files together are equivalent to the original, for the configs in
tests/data/collector."""
import collections
import os
import pathlib
import re
import subprocess

import pytest
import yaml

import clients
import otlp
from braid import BINARY, DEADLINE_S
from otlp import TRACES

DATA = pathlib.Path(__file__).parent.parent / "data" / "collector"
FILES = sorted(DATA.glob("*.yaml"))
ENV = {"POD_IP": "127.0.0.1", "OTLP_PORT": "4317", "CLUSTER": "c", "ORG": "o", "BACKEND_TOKEN": "t", "HOSTNAME": "h",
       "INSTANCE_ID": "1", "API_KEY": "k", "CLIENT_TOKEN": "c", "DD_API_KEY": "d"}
KINDS = ("receivers", "processors", "exporters")


def run(*args):
    return subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=DEADLINE_S, env=ENV)


class Divided:
    def __init__(self, file, folder):
        self.original = yaml.safe_load(file.read_text())
        self.braid_path, rest_path = folder / "braid.yaml", folder / "rest.yaml"
        done = run("migrate", file, "--rest", rest_path)
        assert done.returncode == 0, done.stderr
        self.messages = done.stderr
        self.braid_path.write_text(done.stdout)
        self.text, self.rest_text = done.stdout, rest_path.read_text() if rest_path.exists() else ""
        self.braid, self.rest = yaml.safe_load(self.text), yaml.safe_load(self.rest_text)

    @property
    def parts(self):
        return [part for part in (self.braid, self.rest) if part]


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def divided(request, tmp_path):
    return Divided(request.param, tmp_path)


def ids(config, kind):
    return {name for pipeline in config["service"]["pipelines"].values() for name in pipeline.get(kind) or []}


def is_link(config, kind, name, others):
    """Returns whether it is an end of a link, which the original does not have."""
    return name.startswith(("otlp/collector", "otlp/braid")) and name not in (others.get(kind) or {})


def paths(configs, original):
    """Returns every path from a receiver to an exporter as (signal, receiver, processors,
    exporter). Links join pipelines of two files, connectors those of one. memory_limiter is left
    out: it does not change data, and each process needs one."""
    starts, found = [], collections.Counter()
    readers = collections.defaultdict(list)  # pipelines by a link's endpoint, or by a file's connector
    for part, config in enumerate(configs):
        connectors = config.get("connectors") or {}
        for name, pipeline in config["service"]["pipelines"].items():
            for receiver in pipeline["receivers"]:
                if receiver in connectors:
                    readers[part, receiver].append((part, name))
                elif is_link(config, "receivers", receiver, original):
                    readers[config["receivers"][receiver]["protocols"]["grpc"]["endpoint"]].append((part, name))
                else:
                    starts.append((receiver, (part, name)))

    def walk(start, at, steps):
        config, name = configs[at[0]], at[1]
        pipeline = config["service"]["pipelines"][name]
        steps = steps + tuple(each for each in pipeline.get("processors") or [] if "memory_limiter" not in each)
        for exporter in pipeline["exporters"]:
            if exporter in (config.get("connectors") or {}):
                next_ones, step = readers[at[0], exporter], (exporter,)
            elif is_link(config, "exporters", exporter, original):
                next_ones, step = readers[config["exporters"][exporter]["endpoint"]], ()
            else:
                found[start, name.split("/")[0], steps, exporter] += 1
                continue
            assert next_ones, f"nothing reads {exporter}"
            for next_one in next_ones:
                walk(start, next_one, steps + step)
    for receiver, at in starts:
        walk(receiver, at, ())
    return found


def test_every_path_of_the_original_exists_once(divided):
    assert paths(divided.parts, divided.original) == paths([divided.original], divided.original)


def test_no_link_precedes_a_component_that_reads_request_metadata(divided):
    """A link transfers data without the metadata of the incoming requests."""
    for pipeline in divided.braid["service"]["pipelines"].values():
        linked = any(is_link(divided.braid, "receivers", name, divided.original) for name in pipeline["receivers"])
        for name in pipeline.get("processors") or []:
            settings = yaml.safe_dump((divided.braid.get("processors") or {}).get(name))
            assert not linked or not re.search("from_context|metadata_keys", settings), name
    for part in divided.parts:
        for pipeline in part["service"]["pipelines"].values():
            linked = any(is_link(part, "receivers", name, divided.original) for name in pipeline["receivers"])
            for name in pipeline["exporters"]:
                auth = (((part.get("exporters") or {}).get(name) or {}).get("auth") or {}).get("authenticator")
                settings = yaml.safe_dump((part.get("extensions") or {}).get(auth))
                assert not linked or "from_context" not in settings


def test_every_component_is_named(divided):
    for kind in KINDS:
        assert ids(divided.original, kind) <= set().union(*(ids(part, kind) for part in divided.parts))


def test_braid_accepts_its_part(divided):
    done = run("validate", "--config", divided.braid_path)
    assert done.returncode == 0, done.stderr


def test_the_collectors_part_is_complete(divided):
    """By the Collector's rules: everything that pipelines and extensions refer to is defined, every
    pipeline has both ends, and so does every connector."""
    if not divided.rest:
        return
    config = divided.rest
    connectors = config.get("connectors") or {}
    for name, pipeline in config["service"]["pipelines"].items():
        assert pipeline["receivers"] and pipeline["exporters"], name
        for kind in KINDS:
            ends = connectors if kind != "processors" else {}
            assert set(pipeline.get(kind) or []) <= set(config.get(kind) or {}) | set(ends), (name, kind)
    assert ids(config, "receivers") & set(connectors) == ids(config, "exporters") & set(connectors)
    assert set(config["service"].get("extensions") or []) <= set(config.get("extensions") or {})
    for exporter in ids(config, "exporters") - set(connectors):
        auth = ((config["exporters"][exporter] or {}).get("auth") or {}).get("authenticator")
        assert not auth or auth in config["service"]["extensions"]


def port_of(endpoint):
    return re.search(r":(\d+|\$\{[^}]*\})$", endpoint).group(1)


def listeners(config):
    """Returns the ports of the servers that both kinds of process have."""
    defaults = {"grpc": "localhost:4317", "http": "localhost:4318"}
    for name in ids(config, "receivers"):
        settings = (config.get("receivers") or {}).get(name) or {}
        if name.split("/")[0] == "otlp":
            for protocol, own in settings["protocols"].items():
                yield port_of((own or {}).get("endpoint") or defaults[protocol])
    for name in config["service"].get("extensions") or []:
        if name.split("/")[0] == "health_check":
            own = config["extensions"][name] or {}
            yield port_of(own.get("endpoint") or "localhost:13133")
    metrics = (config["service"].get("telemetry") or {}).get("metrics") or {}
    readers = metrics.get("readers")
    yield str(readers[0]["pull"]["exporter"]["prometheus"]["port"] if readers else 8888)


def test_no_port_is_used_twice(divided):
    used_ports = [port for part in divided.parts for port in listeners(part)]
    twice = {port for port in used_ports if used_ports.count(port) > 1}
    assert all("$" in port for port in twice), used_ports
    for port in twice:
        assert f"::endpoint: 0.0.0.0:{port}" in divided.rest_text[:divided.rest_text.index("\nreceivers:")]
        assert f"both Braid and the Collector would listen on 0.0.0.0:{port}" in divided.messages


def test_the_suggested_join_is_valid(divided, tmp_path):
    """The suggestion in the header is valid in the file once it is uncommented, and joins both
    signals."""
    lines = divided.text.splitlines()
    offer = "\n".join(line[4:] for line in lines if line.startswith("#   "))
    signals = {name.split("/")[0] for name in divided.braid["service"]["pipelines"]}
    assert bool(offer) == (signals == {"traces"} and lines[0].startswith("# Braid's part of"))
    if not offer:
        return
    (tmp_path / "offer.yaml").write_text(offer)
    done = run("validate", "--config", divided.braid_path, "--config", tmp_path / "offer.yaml")
    assert done.returncode == 0, done.stderr
    assert "no profiles pipeline" not in done.stderr and "no traces pipeline" not in done.stderr


def test_the_header_lists_all_components(divided):
    if not divided.text.startswith("# Braid's part of"):
        return
    head = " ".join(line[2:] for line in divided.text.split("\n") if line.startswith("# "))
    carried, kept = head.split("Carried over: ")[1].split("Not carried over: ")
    for kind in (*KINDS, "connectors", "extensions"):
        for name in divided.original.get(kind) or {}:
            stays = name in (divided.braid.get(kind) or {})
            assert name in (carried if stays else kept).replace(";", ",").replace(",", " ").split()


def test_existing_names_are_not_changed(tmp_path):
    """Link ids, pipeline names and ports of the original are not changed."""
    text = """
receivers: {otlp/collector: {protocols: {http: {endpoint: "localhost:24317"}}}, otlp/braid: {protocols: {grpc: }}, skywalking: }
exporters: {otlp/braid: {endpoint: "a:1"}, datadog: , otlp/collector: {endpoint: "b:1"}}
service:
  pipelines:
    traces: {receivers: [otlp/collector, skywalking], exporters: [otlp/braid, otlp/collector, datadog]}
    traces/behind: {receivers: [otlp/braid], exporters: [datadog]}
"""
    file = tmp_path / "c.yaml"
    file.write_text(text)
    made = Divided(file, tmp_path)
    assert run("validate", "--config", made.braid_path).returncode == 0
    assert made.braid["service"]["pipelines"]["traces"] == {
        "receivers": ["otlp/collector", "otlp/collector_"], "exporters": ["otlp/braid", "otlp/collector", "otlp/collector_"]}
    assert made.rest["service"]["pipelines"] == {
        "traces": {"receivers": ["skywalking"], "exporters": ["otlp/braid_"]},
        "traces/behind": {"receivers": ["otlp/braid"], "exporters": ["datadog"]},
        "traces/behind_": {"receivers": ["otlp/braid_"], "exporters": ["datadog"]}}
    assert made.rest["exporters"]["otlp/braid_"]["endpoint"] == "localhost:24318"
    assert made.braid["exporters"]["otlp/collector_"]["endpoint"] == "localhost:24319"


def test_there_are_enough_configs():
    assert len(FILES) >= 20


# --- --skip-unsupported without a Collector --------------------------------------------------------

AUTH = {
    "bearertokenauth": ({"token": "${env:TOKEN}"}, {"authorization": "Bearer s3cret"}),
    "bearertokenauth/scheme": ({"token": "t", "scheme": "Token", "header": "X-Key"}, {"x-key": "Token t"}),
    # RFC 7617, section 2: the example of the scheme
    "basicauth": ({"client_auth": {"username": "Aladdin", "password": "open sesame"}},
                  {"authorization": "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}),
    "basicauth/env": ({"client_auth": {"username": "${env:NAME}", "password": "${env:PASSWORD}"}},
                      {"authorization": "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}),
    "headers_setter/own": ({"headers": [{"action": "insert", "key": "X-Own", "value": "not this"},
                                        {"action": "upsert", "key": "x-second", "value": "this"}]},
                           {"x-own": "o", "x-second": "this"}),
    "headers_setter": ({"headers": [{"action": "upsert", "key": "X-Scope-OrgID", "value": "a"},
                                    {"action": "insert", "key": "X-Plain", "value": "b"}]},
                       {"x-scope-orgid": "a", "x-plain": "b"}),
}
AUTH_ENV = {"TOKEN": "s3cret", "NAME": "Aladdin", "PASSWORD": "open sesame"}


def with_auth(name, settings, sink):
    return {"receivers": {"otlp": {"protocols": {"http": {"endpoint": "localhost:0"}}}},
            "exporters": {"otlphttp": {"endpoint": f"http://{sink.http}", "headers": {"X-Own": "o", "X-Second": "s"},
                                       "auth": {"authenticator": name}}},
            "extensions": {name: settings},
            "service": {"extensions": [name], "telemetry": {"metrics": {"level": "none"}},
                        "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["otlphttp"]}}}}


@pytest.mark.parametrize("migrated", [False, True], ids=["skip", "migrate"])
@pytest.mark.parametrize("name", AUTH)
def test_an_authenticator_reaches_the_backend(braid, sink, tmp_path, name, migrated):
    settings, wanted = AUTH[name]
    config = with_auth(name, settings, sink)
    if migrated:
        file = tmp_path / "collector.yaml"
        file.write_text(yaml.safe_dump(config, sort_keys=False))
        done = subprocess.run([BINARY, "migrate", str(file)], capture_output=True, text=True, timeout=DEADLINE_S,
                              env={**os.environ, **AUTH_ENV})
        assert done.returncode == 0, done.stderr
        assert "s3cret" not in done.stdout and "open sesame" not in done.stdout or "env" not in name
        config = yaml.safe_load(done.stdout)
    server = braid(config, *([] if migrated else ["--skip-unsupported"]), env=AUTH_ENV)
    body = otlp.encode(otlp.trace_request(1), otlp.PROTOBUF)
    assert clients.http(server.http, TRACES.path, body, otlp.PROTOBUF).code == 200
    sink.wait(TRACES, 1)
    [call] = sink.calls
    assert {key: call.headers.get(key) for key in wanted} == wanted and call.headers["x-own"] == "o"


REFUSED = {  # extensions, the name, the error
    "an authenticator that Braid does not have": ({"sigv4auth": {"region": "x"}}, "sigv4auth",
                                                  'exporters::otlphttp::auth::authenticator: "auth": Braid does not have its authenticator; '
                                                  "--accept-loss removes the exporter"),
    "no such extension": ({}, "nobody", 'exporters::otlphttp::auth::authenticator: Braid does not have the authenticator "nobody"'),
    "a server's side": ({"basicauth": {"htpasswd": {"inline": "a:b"}}}, "basicauth",
                        'exporters::otlphttp::auth::authenticator: "basicauth" does not add credentials to requests'),
}


@pytest.mark.parametrize("command", ["validate", "migrate"])
@pytest.mark.parametrize("case", REFUSED)
def test_an_unknown_authenticator_is_rejected(sink, tmp_path, case, command):
    extensions, name, error = REFUSED[case]
    config = {**with_auth(name, {}, sink), "extensions": extensions}
    config["service"]["extensions"] = list(extensions)
    if not extensions:
        del config["extensions"]
    file = tmp_path / "collector.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    args = ["migrate", file] if command == "migrate" else ["validate", "--skip-unsupported", "--config", file]
    done = run(*args)
    assert done.returncode == 1 and done.stdout == ""
    assert error in done.stderr


LOSSY = {
    "transform": {"trace_statements": [{"context": "span", "statements": ['flatten(attributes)']}]},
    "span": {"name": {"from_attributes": ["a"]}, "made_up_elsewhere": True},
    "unknownprocessor": {},
    "filter": {"traces": {"spanevent": ['name == "a"']}},
    "attributes": {"actions": [{"key": "a", "action": "delete"},
                               {"key": "b", "from_context": "client.address", "action": "upsert"}]},
    "resource": {"attributes": [{"key": "a", "action": "delete"},
                                {"key": "b", "from_context": "client.address", "action": "upsert"}]},
    "redaction": {"allow_all_keys": True, "made_up_elsewhere": True},
    "probabilistic_sampler": {"sampling_percentage": 5, "made_up_elsewhere": True},
}


@pytest.mark.parametrize("command", ["validate", "migrate"])
@pytest.mark.parametrize("name", LOSSY)
def test_an_important_processor_is_left_out_only_on_request(tmp_path, name, command):
    config = {"receivers": {"otlp": {"protocols": {"http": {"endpoint": "localhost:0"}}}},
              "processors": {name: LOSSY[name], "groupbytrace": {}}, "exporters": {"debug": {}},
              "service": {"telemetry": {"metrics": {"level": "none"}},
                          "pipelines": {"traces": {"receivers": ["otlp"], "processors": [name, "groupbytrace"],
                                                   "exporters": ["debug"]}}}}
    file = tmp_path / "collector.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    args = ["migrate", file] if command == "migrate" else ["validate", "--skip-unsupported", "--config", file]
    done = run(*args)
    assert done.returncode == 1 and done.stdout == ""
    assert f"processors::{name}" in done.stderr
    assert "--accept-loss removes it, migrate --rest keeps it in a Collector" in done.stderr
    done = run(*args, "--accept-loss")
    assert done.returncode == 0, done.stderr
    assert f"processors::{name}" in done.stderr
    if command == "migrate":
        done = run("migrate", file, "--rest", tmp_path / "rest.yaml")
        assert done.returncode == 0, done.stderr
        assert yaml.safe_load((tmp_path / "rest.yaml").read_text())["service"]["pipelines"]["traces"] == {
            "receivers": ["otlp"], "processors": [name, "groupbytrace"], "exporters": ["otlp/braid"]}
