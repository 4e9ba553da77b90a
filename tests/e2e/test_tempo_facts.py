# SPDX-License-Identifier: Apache-2.0
"""The same queries for the same spans: recorded answers of a real Tempo compared with Braid's.

data/tempo/spans.json is one OTLP request. answers.jsonl has requests to Tempo 3.1.0-dev (commit
ad33aa8, one process, local storage) after it was sent, and the answers, without statistics and
exemplars. With TEMPO=<binary> that server is started and queried instead, with spans of the last
minute: it does not search older ones before they are in its storage. Known differences are listed
here, and in the README of extensions/query.
"""

import base64
import json
import pathlib
import re
import time
import urllib.parse
import urllib.request

import pytest
from google.protobuf import json_format
from opentelemetry.proto.trace.v1 import trace_pb2 as otlp_trace

import peers
import tempo
import wire
from braid import DEADLINE_S, Braid, pipelines

DATA = pathlib.Path(__file__).parents[1] / "data" / "tempo"
FACTS = [json.loads(line) for line in (DATA / "answers.jsonl").read_text().splitlines()]


LAST_S = 1795375900  # the last start of a span
SHIFT_S = (int(time.time()) - LAST_S) // 60 * 60 if peers.TEMPO else 0  # added to all times
TWO_ROOTS = "e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1"  # which of the two is the trace's root is not specified

UNSUPPORTED = ("pipeline in brackets", "arithmetic of metrics")  # each is rejected with its name in the error

# The same spans are found, with different attributes.
OTHER_ATTRIBUTES = {
    # Tempo returns only the queried values of a list, and lists missing ones as nil or empty.
    '{span.tags="red"}', '{span.tags=~"bl.*"}', "{span.sizes=2}", "{span.sizes>2}", '{event:name="retry"}',
    "{event:timeSinceStart>10ms}", "{event:timeSinceStart=7ms}", "{span.attempt=nil}", "{resource.region=nil}",
    "{span.nowhere=nil}", '{name="charge"} | select(duration, name, status, statusMessage)',
    '{name="charge" && kind=server} | select(event:name, event.retries)',
}

OURS_FINDS_MORE = {
    '{!(name="charge")}', "{span.k^2=9}",
    # integers compared with fractions
    "{resource.host.cpus>3.5}", "{span.share<1}", "{span.weight>=1}", "{span.weight=1}",
    '{name="step"} ~ {name="step"}', '{name="step" && status=error} ~ {}',  # in a trace without a root
    '{name="GET /cart"} !>> {}', '{name="render"} !~ {}',
    '{link:traceID="000f7651916cd43dd8448eb211c80319"}',  # with leading zeros
    "{childCount>2}", '{ name = "charge" } # another',
    '{\n  resource.service.name = "shop"   # the service\n  && name = "charge"\n  && duration > 500ms\n}',
}
OURS_FINDS_LESS = {
    '{span.tags!="red"}', '{event:name!="retry"}',  # no value of a list may match
    '{name="first"} ~ {name="second"}',  # roots are not siblings
    '{trace:id="f7651916cd43dd8448eb211c80319"}',  # without leading zeros
}
OTHER_VALUES = {
    # In the answer to a request without a query, values are lists of texts: "402" is a number, 1.0 is 1.
    "span.http.status_code", ".http.status_code", "span.weight",
    # Values of the other one of two roots; durations.
    "rootName", "trace:rootName", "trace:duration", "event:timeSinceStart",
    # A name without a scope is taken for an attribute.
    "service.name", "env", "nowhere", "bad.", "root.name",
}
OTHER_FILTERS = {  # Braid's values have a type; Braid searches both scopes for an attribute without one
    ("span.http.status_code", '{name="charge"}'),
    ("name", '{.env="production"}')}
OTHER_METRICS = {  # 0 and 1 are in a bucket; the first value of a list counts
    '{resource.service.name="steps"} | quantile_over_time(span.k, .5)',
    '{resource.service.name="steps"} | histogram_over_time(span.k)', 
    "{} | avg_over_time(name)"}  # Braid requires a number


def is_different(fact):
    """Returns whether Braid's answer is known to differ."""
    path, params = fact["path"], fact["params"]
    q = params.get("q")
    if path == "/api/search" and q == "{}":
        return params["start"] > LAST_S  # Tempo compares with the time range of a block
    if path == "/api/search":
        return q in OURS_FINDS_MORE | OURS_FINDS_LESS or q == "{} | rate()" or \
            params.get("tags") in ("service.name=shop attempt=1", "ok=true", "nonsense")
    if "/v2/search/tag/" in path:
        tag = path.split("/")[5]
        return (tag, q) in OTHER_FILTERS if q else tag in OTHER_VALUES
    return path.startswith("/api/metrics") and q in OTHER_METRICS


def shifted(params):
    return {name: value + SHIFT_S if name in ("start", "end") and isinstance(value, int) and value > 10**9 else value
            for name, value in params.items()}


def send(address):
    body = re.sub(r'(imeUnixNano":\s*")(\d+)"', lambda at: f'{at[1]}{int(at[2]) + SHIFT_S * 10**9}"',
                  (DATA / "spans.json").read_text())
    request = urllib.request.Request(f"http://{address}/v1/traces", body.encode(),
                                     {"content-type": "application/json"})
    urllib.request.urlopen(request, timeout=DEADLINE_S).close()


def found(server):
    """Returns the number of traces found by a search for everything."""
    status, body = server.call(f"/api/search?q=%7B%7D&limit=1000&start={LAST_S + SHIFT_S - 6000}&end={LAST_S + SHIFT_S}")
    return len(peers.as_json(body).get("traces", [])) if status == 200 else 0


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Returns a function from a fact to (status, body) of Tempo's answer."""
    if not peers.TEMPO:
        yield lambda fact: (fact["status"], base64.b64decode(fact["protobuf"]) if "protobuf" in fact else
                            text(fact["answer"]).encode() if "answer" in fact else fact["text"].encode())
        return
    server, otlp = peers.tempo(tmp_path_factory.mktemp("tempo-real"))
    try:
        peers.ready(server, lambda: server.call("/ready")[0] == 200, "Tempo")
        send(otlp)
        everything = {trace["traceID"] for fact in FACTS if fact["path"] == "/api/search" and "answer" in fact
                      for trace in fact["answer"].get("traces", [])}
        peers.ready(server, lambda: found(server) >= len(everything), "all spans in Tempo")
        yield lambda fact: ask(server.address, fact)
    finally:
        server.stop()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tempo")
    server = Braid(pipelines({"store": {"directory": str(folder / "store"), "retention": {"max_age": "0s"}}},
                             extensions={"query": {"endpoint": "127.0.0.1:0"}}), folder / "braid")
    try:
        send(server.http)
        yield server.address("http", "extension/query")
        server.stop()
    finally:
        server.kill()


def ask(address, fact):
    """Returns (status, body) of Braid's answer."""
    params = "?" + urllib.parse.urlencode(shifted(fact["params"])) if fact["params"] else ""
    request = urllib.request.Request(f"http://{address}{urllib.parse.quote(fact['path'])}{params}",
                                     headers={"Accept": fact.get("accept", "application/json")})
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as failure:
        return failure.code, failure.read()


# --- Compared parts of an answer: unordered values are compared without their order -------------------------------------

def text(value):
    return json.dumps(value, sort_keys=True)


def pairs(found):
    return sorted(map(text, found))


def traces(answer, whole=True, attributes=True):
    """Returns traces by id, and spans by id. Zeros and empty texts may be left out. `whole`: with
    the spans."""
    found = {}
    for trace in answer.get("traces", []):
        found[trace["traceID"]] = {key: value for key, value in trace.items()
                                   if key not in ("spanSet", "spanSets", "serviceStats") and value}
        if trace["traceID"] == TWO_ROOTS:
            found[TWO_ROOTS].pop("rootTraceName")
        if whole:
            found[trace["traceID"]] |= {
                "serviceStats": trace["serviceStats"],
                "spanSets": sorted(({"matched": each["matched"], "attributes": pairs(each.get("attributes", [])),
                                     "spans": {span["spanID"]: span_of(span, attributes) for span in each["spans"]}}
                                    for each in trace["spanSets"]), key=text)}
    return found


def span_of(span, attributes):
    """The span's name is left out: Tempo returns it only if the query contains it, Braid always."""
    return {**{key: value for key, value in span.items() if key != "name" and value not in ("0", "")},
            "attributes": pairs(span.get("attributes", [])) if attributes else None}


def series(answer):
    """compare() returns the ten most frequent values of an attribute. The choice among equally
    frequent names is unspecified, and so is the root of a trace with two. Tempo counts nine
    children of a span that has three."""
    found = {}
    for each in answer.get("series", []):
        labels = {label["key"] for label in each["labels"]}
        if "__meta_type" in labels and labels & {"name", "rootName", "span:childCount"}:
            continue
        samples = {int(sample["timestampMs"]): pytest.approx(sample.get("value", 0)) for sample in each.get("samples", [])}
        found[text(pairs(each["labels"]))] = samples if "samples" in each else pytest.approx(each.get("value", 0))
    return found


def spans(resources):
    """Returns each span with its resource and scope: their grouping and order are unspecified."""
    def plain(message):
        rest = {key: value for key, value in message.items() if key != "attributes" and value != {}}
        return pairs(message.get("attributes", [])), text(rest)
    return sorted((plain(part.get("resource", {})), plain(scope.get("scope", {})), plain(span))
                  for part in resources for scope in part["scopeSpans"] for span in scope["spans"])


def spans_of_protobuf(data):
    batches = json_format.MessageToDict(otlp_trace.TracesData.FromString(data)).get("resourceSpans", [])
    return spans(batches)


def comparable(fact, body):
    """Returns the parts that are equal in two equivalent answers."""
    path = fact["path"]
    if "protobuf" in fact:
        if "/v2/" in path:
            length, at = wire.read_varint(body, 1)
            assert body[0] == 1 << 3 | 2
            body = body[at:at + length]
        return spans_of_protobuf(body)
    if "answer" not in fact:
        return body.decode().rstrip("\n")
    answer = json.loads(body)
    if "/traces/" in path:
        return spans((answer.get("trace", {}).get("resourceSpans") or []) if "/v2/" in path else answer["batches"])
    if path.startswith("/api/metrics"):
        return series(answer)
    if path == "/api/search":
        return traces(answer, "q" in fact["params"], fact["params"].get("q") not in OTHER_ATTRIBUTES)
    if "scopes" in answer:
        return {scope["name"]: sorted(scope["tags"]) for scope in answer["scopes"] if scope["tags"]}
    return pairs(answer.get("tagNames", answer.get("tagValues", [])))


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: f"{fact['path']} {fact.get('accept', '')} {fact['params']}")
def test_answer_equals_tempos(address, recorded, fact):
    """A known difference that no longer occurs must be removed from the list."""
    status, body = ask(address, fact)
    expected_status, expected = recorded(fact)
    if status == 400 and expected_status == 200 and b"not supported" in body:
        assert any(name in body.decode() for name in UNSUPPORTED), body
        return
    if is_different(fact):
        assert status != expected_status or comparable(fact, body) != comparable(fact, expected)
        return
    assert status == expected_status, body
    assert body
    assert status != 200 or comparable(fact, body) == comparable(fact, expected)
