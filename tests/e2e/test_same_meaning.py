# SPDX-License-Identifier: Apache-2.0
"""Options with the same meaning as in the Collector."""

import json
import os
import subprocess

import pytest
from grpc import StatusCode

import clients
import otlp
import raw
from braid import BINARY, DEADLINE_S, exporter, pipelines, until
from otlp import PROFILES, TRACES
from sink import Reply


def send(server, n_items=1, **more):
    return clients.grpc(server.grpc, TRACES, otlp.trace_request(n_items, **more).SerializeToString())


# --- Headers of exporters -----------------------------------------------------------------------

OWN_WORDS = {"Host": "backend.example:1", "User-Agent": "mine/1", "Content-Type": otlp.PROTOBUF,
             "Content-Length": "1", "X-Plain": "x"}


def test_headers_replace_those_of_http(braid, sink, tap):
    """Go's server answers 400 to a repeated Host; confighttp sets Request.Host and Header.Set."""
    wire = tap(sink.http)
    server = braid(pipelines(exporter("proto", wire, headers=OWN_WORDS), signals=("traces",)))
    send(server).expect_ok()
    sink.wait(TRACES, 1)
    head = bytes(wire.sent[0]).split(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    lines = [tuple(line.split(": ", 1)) for line in head]
    names = [name.lower() for name, _ in lines]
    assert len(names) == len(set(names)), head
    fields = {name.lower(): value for name, value in lines}
    assert {name: fields[name.lower()] for name in ("Host", "User-Agent", "Content-Type", "X-Plain")} == {
        name: OWN_WORDS[name] for name in ("Host", "User-Agent", "Content-Type", "X-Plain")}
    assert int(fields["content-length"]) > 1


def test_headers_replace_those_of_grpc(braid, sink):
    """HTTP/2 has one :authority and no host; the content type is always gRPC's."""
    server = braid(pipelines(exporter("grpc", sink, headers=OWN_WORDS), signals=("traces",)))
    send(server).expect_ok()
    sink.wait(TRACES, 1)
    [call] = sink.calls
    assert call.headers["user-agent"].startswith("mine/1")
    assert call.headers["x-plain"] == "x"
    assert "host" not in call.headers


# --- A backend's answer is passed on to the client ----------------------------------------------

@pytest.mark.parametrize("kind", ["proto", "grpc"])
def test_a_backends_429_is_passed_on(braid, sink, kind):
    """As in the Collector without queue and retries, whose errors.go keeps the status of the exporter's error."""
    sink.reply = Reply(StatusCode.RESOURCE_EXHAUSTED, 429, "slow down", retry_s=7)
    off = {"enabled": False}
    server = braid(pipelines(exporter(kind, sink, sending_queue=off, retry_on_failure=off), signals=("traces",)))
    answer = send(server)
    assert answer.code == "RESOURCE_EXHAUSTED" and answer.retry_info.retry_delay.seconds == 7
    for content_type in (otlp.PROTOBUF, otlp.JSON):
        body = otlp.encode(otlp.trace_request(1), content_type)
        answer = clients.http(server.http, TRACES.path, body, content_type)
        assert answer.code == 429 and answer.headers["retry-after"] == "7"
        assert answer.status.code == StatusCode.RESOURCE_EXHAUSTED.value[0] and "slow down" in answer.message


# --- batch ---------------------------------------------------------------------------------------

def test_batch_without_a_size_sends_at_once(braid, sink):
    """With a timeout that never expires: all data is sent at once, split by the maximum size."""
    batch = {"timeout": "1h", "send_batch_size": 0, "send_batch_max_size": 4}
    server = braid(pipelines(exporter("grpc", sink), processors={"batch": batch}, signals=("traces",)))
    send(server, 10).expect_ok()
    sink.wait(TRACES, 10)
    assert sorted(len(otlp.items_of(TRACES, call.message)) for call in sink.calls) == [2, 4, 4]


# --- from_context --------------------------------------------------------------------------------

TENANT = {"attributes": {"actions": [{"key": "tenant", "action": "insert", "from_context": "metadata.x-tenant"}]}}


def tenants(braid, sink, **protocol):
    server = braid(pipelines(exporter("grpc", sink), processors=TENANT, signals=("traces",), grpc=protocol, http=protocol))
    body = otlp.trace_request(1).SerializeToString()
    clients.grpc(server.grpc, TRACES, body, metadata=[("x-tenant", "blue")]).expect_ok()
    clients.http(server.http, TRACES.path, body, headers={"X-Tenant": "blue"}).expect_ok()
    sink.wait(TRACES, 2)
    found = [attribute.value.string_value for call in sink.of(TRACES)
             for part in call.message.resource_spans for scope in part.scope_spans for span in scope.spans
             for attribute in span.attributes if attribute.key == "tenant"]
    return found, server.log()


def test_from_context_needs_include_metadata(braid, sink):
    """As in the Collector, where client.Metadata is empty without it; Braid logs a warning."""
    found, log = tenants(braid, sink)
    assert found == []
    assert 'processor attributes reads the client metadata "x-tenant"' in log and "include_metadata: true" in log


@pytest.mark.parametrize("keys, warned", [([], True), (["X-Other"], True), (["x-TENANT"], False)])
def test_partitions_behind_batch_need_its_metadata_keys(braid, sink, keys, warned):
    """A batch without the key merges requests of several clients, and the result does not have a
    tenant."""
    config = pipelines(exporter("grpc", sink, sending_queue={"batch": {"partition": {"metadata_keys": ["x-tenant"]}}}),
                       processors={"batch": {"metadata_keys": keys}} if keys else {"batch": {}})
    server = braid(config)
    assert server.grpc  # the process has started
    log = server.log()
    [warning] = [line for line in log.splitlines() if "which is lost here" in line] or [""]
    assert bool(warning) == warned, log
    assert not warned or all(text in warning for text in ("processors::batch", "x-tenant", "metadata_keys")), warning


def test_from_context_with_include_metadata(braid, sink):
    found, log = tenants(braid, sink, include_metadata=True)
    assert found == ["blue", "blue"]
    assert "include_metadata" not in log


@pytest.mark.release
def test_growth_by_a_long_header_is_bounded(braid, sink):
    """Each span would get the 15,000 bytes of the header: 260 KB would become 45 MB. One span may
    have them."""
    server = braid(pipelines(exporter("grpc", sink), processors=TENANT, signals=("traces",), http={"include_metadata": True}))
    headers = {"X-Tenant": "x" * 15000}
    answer = clients.http(server.http, TRACES.path, otlp.trace_request(3000).SerializeToString(), headers=headers)
    assert answer.code == 400 and b"attributes: a list of attributes" in answer.body
    assert raw.sanitized() or server.metrics()["otelcol_process_memory_rss"][""] < 60 << 20
    clients.http(server.http, TRACES.path, otlp.trace_request(1).SerializeToString(), headers=headers).expect_ok()
    sink.wait(TRACES, 1)


# --- Log lines -----------------------------------------------------------------------------------

def test_rejected_requests_are_logged(braid, sink):
    """One line for many, with the peer and the reason."""
    server = braid(pipelines(exporter("grpc", sink), signals=("traces",)))
    for _ in range(20):
        assert clients.http(server.http, TRACES.path, b"\xff\xff").code == 400
    line = server.wait_log(r"\twarn\treceiver/otlp\trejected a request from (\S+): (\w+): (.*)$")
    assert line.group(1).startswith("127.0.0.1:") and line.group(2) == "INVALID_ARGUMENT"
    assert server.log().count("rejected a request") == 1


def test_metrics_sent_to_a_traces_receiver_are_logged(braid, sink):
    server = braid(pipelines(exporter("grpc", sink), signals=("traces",)))
    assert clients.http(server.http, "/v1/metrics", b"").code == 404
    server.wait_log(r"rejected a request from 127.0.0.1:\d+: UNIMPLEMENTED: unknown path /v1/metrics; traces go to /v1/traces")


def test_a_recovering_exporter_logs_the_duration_of_the_failure(braid, sink):
    sink.script = [Reply(StatusCode.UNAVAILABLE, 503, "away")] * 8
    retry = {"initial_interval": "300ms", "max_interval": "300ms", "randomization_factor": 0}
    server = braid(pipelines(exporter("grpc", sink, retry_on_failure=retry), signals=("traces",)))
    send(server).expect_ok()
    sink.wait(TRACES, 1)
    down = float(server.wait_log(r"\tinfo\texporter/otlp\tthe destination responds again after (\S+) s").group(1))
    assert 2.1 <= down < 60  # seven delays passed


def test_the_last_lines_count_each_record_once_per_exporter(braid, new_sink):
    one, two = new_sink(), new_sink()
    two.reply = Reply(StatusCode.INVALID_ARGUMENT, 400, "no")
    server = braid(pipelines({**exporter("grpc", one, "/one"), **exporter("proto", two, "/two")}, signals=("traces",)))
    send(server, 7).expect_ok()
    one.wait(TRACES, 7)
    until(lambda: server.exporter_ledger("otlphttp/two", "traces")["dropped"] == 7, "the refusal")
    until(lambda: server.exporter_ledger("otlp/one", "traces")["sent"] == 7, "the answer")
    server.stop()
    last = [line.split("\t")[-1] for line in server.log().splitlines()[-4:]]
    assert last == ["exporter otlp/one: traces: 7 spans received, 7 sent, 0 rejected, 0 dropped, 0 left",
                    "exporter otlphttp/two: traces: 7 spans received, 0 sent, 0 rejected, 7 dropped, 0 left",
                    "traces: 7 spans received, 7 sent, 0 rejected, 0 dropped, 0 left",
                    "profiles: 0 samples received, 0 sent, 0 rejected, 0 dropped, 0 left"]


# --- file: group_by ------------------------------------------------------------------------------

def of_services(*names):
    """One request with a Resource for each name; None: without the attribute."""
    request = otlp.trace_request(1)
    [model] = list(request.resource_spans)
    del request.resource_spans[:]
    for name in names:
        part = request.resource_spans.add()
        part.CopyFrom(model)
        del part.resource.attributes[:]
        if name is not None:
            attribute = part.resource.attributes.add(key="team")
            attribute.value.string_value = name
    return request.SerializeToString()


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_file_groups_by_an_attribute(braid, tmp_path):
    """One file for each value, at most one of them open. Data without a value is dropped, and no
    value leads out of the directory."""
    folder = tmp_path / "out"
    group_by = {"enabled": True, "resource_attribute": "team", "max_open_files": 1}
    server = braid(pipelines({"file": {"path": f"{folder}/x-*/spans.json", "group_by": group_by}}, signals=("traces",)))
    names = ["red", "blue", "red", "../../up", None, "a/b", "n" * 500]
    for _ in range(2):
        clients.grpc(server.grpc, TRACES, of_services(*names)).expect_ok()
    account = server.ledger("traces")
    assert (account["received"], account["sent"], account["dropped"]) == (14, 10, 4)
    found = {str(file.relative_to(folder)): lines_of(file) for file in folder.rglob("*") if file.is_file()}
    assert sorted(found) == ["x-a/b/spans.json", "x-blue/spans.json", "x-red/spans.json", "x-up/spans.json"]
    assert [len(line["resourceSpans"]) for line in found["x-red/spans.json"]] == [2, 2]
    assert [len(line["resourceSpans"]) for line in found["x-blue/spans.json"]] == [1, 1]
    assert not [file for file in tmp_path.rglob("*up*") if folder not in file.parents]


def test_file_groups_profiles_with_their_dictionary(braid, tmp_path):
    config = pipelines({"file": {"path": f"{tmp_path}/p-*.json", "group_by": {
        "enabled": True, "resource_attribute": "service.name"}}}, signals=("profiles",))
    server = braid(config)
    clients.grpc(server.grpc, PROFILES, otlp.profile_request(3).SerializeToString()).expect_ok()
    [file] = tmp_path.glob("p-*.json")
    [line] = lines_of(file)
    assert line["resourceProfiles"] and len(line["dictionary"]["stringTable"]) > 1


@pytest.mark.parametrize("path", ["/tmp/none.json", "/tmp/*/*.json", "*.json"])
def test_file_groups_need_one_star(tmp_path, path):
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(pipelines({"file": {"path": path, "group_by": {"enabled": True}}})))
    done = subprocess.run([BINARY, "validate", "--config", str(file)], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 1 and "must have exactly one *" in done.stderr


# --- redaction: url_sanitizer -------------------------------------------------------------------

# The first six are those of the Collector's test, sanitizer_test.go.
URLS = [("/api/users/123e4567-e89b-12d3-a456-426614174000", "/api/users/*"), ("/api/users/12345", "/api/users/*"),
        ("/api/users/123/posts/456", "/api/users/*/posts/*"), ("/api/users", "/api/users"),
        ("/api/users?id=123&name=john", "/api/users"), ("", ""),
        ("https://shop.example:8443/v1/cart/a1b2c3#top", "https://shop.example:8443/v1/cart/*"),
        ("/x/deadbeef/cafe", "/x/*/cafe"), ("/a" * 12, "/a" * 10), ("/" + "w" * 33, "/*")]


def test_url_sanitizer(braid, sink):
    keys = ["http.url", "url.full"]
    redaction = {"allow_all_keys": True, "url_sanitizer": {"enabled": True, "attributes": keys},
                 "blocked_values": ["users"]}
    server = braid(pipelines(exporter("grpc", sink), processors={"redaction": redaction}, signals=("traces",)))
    request = otlp.trace_request(1)
    [model] = request.resource_spans[0].scope_spans[0].spans
    del request.resource_spans[0].scope_spans[0].spans[:]
    names = [("GET /users/42", 2, "GET /[REDACTED]/*"), ("GET /users/42", 1, "GET /[REDACTED]/42"),
             ("/42/43", 3, "/42/43"), ("plain 42", 3, "plain 42")]
    for n, (url, _) in enumerate(URLS * 2):
        name, kind, _ = names[n % len(names)]
        made = request.resource_spans[0].scope_spans[0].spans.add()
        made.CopyFrom(model)
        made.name, made.kind = name, kind
        del made.attributes[:]
        for key in (keys[n % 2], "other"):
            made.attributes.add(key=key).value.string_value = url
    clients.grpc(server.grpc, TRACES, request.SerializeToString()).expect_ok()
    sink.wait(TRACES, len(URLS) * 2)
    spans = sink.calls[0].message.resource_spans[0].scope_spans[0].spans
    for n, (span, (url, clean)) in enumerate(zip(spans, URLS * 2)):
        assert [attribute.value.string_value for attribute in span.attributes] == [
            text.replace("users", "[REDACTED]") for text in (clean, url)]
        assert span.name == names[n % len(names)][2]


# --- redaction: db_sanitizer --------------------------------------------------------------------

# The output of Collector 0.155, except for the last of each system, which its README contains.
STATEMENTS = [
    ("postgresql", "SELECT * FROM users WHERE id = 42", "SELECT * FROM users WHERE id = ?"),
    ("PostgreSQL", "SELECT a FROM t WHERE id = 42 AND name='O''Brien'", "SELECT a FROM t WHERE id = ? AND name=??"),
    ("postgresql", "SELECT 1e-5, 2E+3, 3e, 4e+ FROM t", "SELECT ?, ?, ?, ? FROM t"),
    ("sqlite", "select  a ,b from t1 where x in (1, 2,3)   ", "select  a ,b from t? where x in (?, ?,?)"),
    ("other_sql", "INSERT INTO t (a,b) VALUES (1.5, 'x'), (-2e10, \"q\")", "INSERT INTO t (a,b) VALUES (?, ?), (?, \"q\")"),
    ("postgresql", "/* c 7 */ SELECT 1 -- tail 5\n, 4;", "/* c 7 */ SELECT ? -- tail 5\n, ?;"),
    ("postgresql", "SELECT $1, ?, :name, TRUE, NULL, nullx", "SELECT ?, ?, :name, ?, ?, nullx"),
    ("postgresql", "SELECT $$body 'x' 5$$, $tag$ yy $tag$", "SELECT ?, ?"),
    ("postgresql", "UPDATE s.table_2023_01 SET c = 0xFF, d = 'a\\'b'", "UPDATE s.table_?_? SET c = ?, d = ?"),
    ("postgresql", "SELECT E'esc\\'x', N'u', X'1F' FROM a AS b2", "SELECT E?, N?, X? FROM a AS b?"),
    ("postgresql", "SELECT 'unclosed", "SELECT ?"),
    ("postgresql", "SELECT a-1, c=-3, t.c1::int FROM x LIMIT 10", "SELECT a?, c=-?, t.c?::int FROM x LIMIT ?"),
    ("mariadb", "SELECT `c1` FROM t WHERE a = \"dq\"", "SELECT `c?` FROM t WHERE a = ?"),
    ("redis", "AUTH secret", "AUTH ?"), ("redis", "GET", "GET"), ("redis", "SET key value", "SET ?"),
    ("valkey", "AUTH secret", "AUTH ?"), ("valkey", "SET a b\nGET c", "SET ?\nGET ?"),
    ("memcached", "set key 0 60 5\r\nvalue", "set key 0 60 5"), ("memcached", "get key", "get key"),
    ("mongodb", '{"find":"users","filter":{"age":{"$gt":5},"n":[1,"a",true,null]}}',
     '{"find":"?","filter":{"age":{"$gt":"?"},"n":["?","?","?","?"]}}'),
    ("elasticsearch", '{"a": {}, "b": [], "c":"x" }', '{"a":{},"b":[],"c":"?"}'),
    ("opensearch", '{"a":"x\\"y","b":-1.5e3}', '{"a":"?","b":"?"}'), ("mongodb", '{"a":"secret', "?")]
SYSTEMS = ["sql", "redis", "valkey", "memcached", "mongo", "opensearch", "es"]


def sanitized(braid, sink, spans, **more):
    """Sends spans as (kind, name, attributes); returns the output: (name, attributes)."""
    systems = {system: {"enabled": True, "attributes": ["db.statement", "db.query.text"]} for system in SYSTEMS}
    redaction = {"allow_all_keys": True, "db_sanitizer": {**systems, **more}}
    server = braid(pipelines(exporter("grpc", sink), processors={"redaction": redaction}, signals=("traces",)))
    request = otlp.trace_request(len(spans))
    for made, (kind, name, attributes) in zip(request.resource_spans[0].scope_spans[0].spans, spans):
        made.kind, made.name = kind, name
        del made.attributes[:]
        for key, value in attributes:
            made.attributes.add(key=key).value.string_value = value
    clients.grpc(server.grpc, TRACES, request.SerializeToString()).expect_ok()
    sink.wait(TRACES, len(spans))
    return [(span.name, [(a.key, a.value.string_value) for a in span.attributes])
            for span in sink.calls[0].message.resource_spans[0].scope_spans[0].spans]


def test_db_sanitizer(braid, sink):
    keys = ["db.statement", "db.query.text"]
    spans = [(3, "plain 1", [(keys[n % 2], text), ("other", text), (["db.system", "db.system.name"][n % 2], system)])
             for n, (system, text, _) in enumerate(STATEMENTS)]
    for n, ((_, attributes), (system, text, clean)) in enumerate(zip(sanitized(braid, sink, spans), STATEMENTS)):
        assert attributes[0] == (keys[n % 2], clean), system
        assert attributes[1] == ("other", text)


def test_db_sanitizer_of_names(braid, sink):
    text, sql = "SELECT a FROM t WHERE b = 'x'", ("db.system", "mysql")
    spans = [(3, text, [sql]), (1, text, [sql]), (2, text, [sql]), (4, text, [sql]), (3, text, []), (3, text, [("db.system", "cassandra")]),
             (3, text, [("db.system", "cassandra"), ("db.system.name", "mysql")]), (3, text, [("db.system.name", "mysql"), ("db.system", "redis")]),
             (3, "find users", [("db.system", "mongodb")]), (3, '{"a": 1}', [("db.system", "mongodb")])]
    clean = text.replace("'x'", "?")
    assert [name for name, _ in sanitized(braid, sink, spans)] == [
        clean, clean, clean, text, text, text, clean, clean, "find users", '{"a":"?"}']


def test_db_sanitizer_without_names(braid, sink):
    [(name, attributes)] = sanitized(braid, sink, [(3, "GET 'x'", [("db.statement", "GET 'x'"), ("db.system", "mysql")])],
                                     sanitize_span_name=False, redis={"enabled": False})
    assert name == "GET 'x'" and attributes[0] == ("db.statement", "GET ?")


# --- Text that looks like YAML --------------------------------------------------------------------

TOKENS = ["plain", "a: b", "[a, b]", "{a: b}", "- x", "123", "true", "a$$b"]


@pytest.mark.parametrize("value, sent, token", [
    *(("Bearer ${env:T}", "Bearer {}", token) for token in [*TOKENS, "null", "#c"]),
    *(("${env:T}", "{}", token) for token in [*TOKENS, "null", "~", "# comment"])])
def test_a_text_option_is_not_parsed_as_yaml(braid, sink, token, value, sent):
    """confmap keeps the original text of a reference for options that expect text; $$ is an escaped
    $."""
    config = pipelines(exporter("grpc", sink, headers={"x-token": value}), signals=("traces",))
    server = braid(config, env={"T": token})
    send(server).expect_ok()
    sink.wait(TRACES, 1)
    assert sink.calls[0].headers["x-token"] == sent.format(token.replace("$$", "$"))
    shown = subprocess.run([BINARY, "print-config", "--config", str(server.stdout_path.parent / "config.yaml")], capture_output=True,
                           text=True, timeout=DEADLINE_S, env={**os.environ, "T": "canary: 1"})
    assert shown.returncode == 0 and "canary" not in shown.stdout
