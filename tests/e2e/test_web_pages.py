# SPDX-License-Identifier: Apache-2.0
"""Web pages of other origins cannot write to a server that only the user's machine reaches, unless
CORS names them. The requests are those that browsers send (Fetch Standard;
w3.org/TR/fetch-metadata)."""

import pytest

import ingest
import otlp
from braid import exporter, pipelines
from otlp import PROFILES, TRACES

FOREIGN = {  # name: headers
    "simple": {"origin": "https://evil.example", "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    "old browser": {"origin": "https://evil.example"},
    "sandboxed": {"origin": "null"},
    "embedded": {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    "another port": {"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-site"},
    # The page's name resolves to Braid's address: its origin equals the Host.
    "rebound": {"origin": "http://evil.example", "host": "evil.example", "sec-fetch-site": "same-origin"},
}


def config(sink, **http):
    made = pipelines(exporter("proto", sink), http=http)
    made["receivers"] |= {"pyroscope": {"protocols": {"http": {"endpoint": "127.0.0.1:0", **http}}},
                          "pprof": {"http": {"endpoint": "127.0.0.1:0", **http}}}
    made["service"]["pipelines"]["profiles"] = {**made["service"]["pipelines"]["profiles"],
                                                "receivers": ["otlp", "pyroscope", "pprof"]}
    return made


def requests(server):
    """Returns [(address, path, body, content type)] of each receiver's endpoints."""
    pyroscope, uploads = server.address("http", "receiver/pyroscope"), server.address("http", "receiver/pprof")
    push = ingest.push_request(({"__name__": "process_cpu", "service_name": "shop"}, [(ingest.make_pprof(), "")]))
    return [(server.http, TRACES.path, otlp.request_of(TRACES, 3).SerializeToString(), otlp.PROTOBUF),
            (server.http, PROFILES.path, otlp.request_of(PROFILES, 3).SerializeToString(), otlp.PROTOBUF),
            (pyroscope, "/ingest?name=shop.cpu", b"main;work 1\n", "text/plain"),
            (pyroscope, "/push.v1.PusherService/Push", push.SerializeToString(), "application/proto"),
            (uploads, "/v1/profiles/upload?name=shop.cpu", b"main;work 1\n", "text/plain")]


def send(request, headers):
    address, path, body, kind = request
    return ingest.http1(address, path, body, {"content-type": kind, **headers})


@pytest.mark.parametrize("page", FOREIGN)
def test_a_page_of_another_origin_cannot_write(braid, sink, page):
    server = braid(config(sink))
    for request in requests(server):
        answer = send(request, FOREIGN[page])
        assert answer.code == 403 and b"cors::allowed_origins" in answer.body, (request[1], answer)
    assert {server.ledger(kind)["received"] for kind in ("traces", "profiles")} == {0}


def test_other_clients_can_write(braid, sink):
    server = braid(config(sink))
    for request in requests(server):
        own = {"origin": f"http://{request[0]}", "sec-fetch-site": "same-origin"}
        for headers in ({}, own, {"sec-fetch-site": "none"}, {"host": "an-alias-of-loopback"}):
            answer = send(request, headers)
            assert answer.code == 200, (request[1], headers, answer)


def test_cors_names_pages(braid, sink):
    """With credentials, as the Collector answers: sendBeacon in the web SDK always sends them."""
    server = braid(config(sink, cors={"allowed_origins": ["https://*.example"]}))
    headers = {"origin": "https://shop.example", "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
    for request in requests(server):
        answer = send(request, headers)
        assert answer.code == 200, (request[1], answer)
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"
        assert answer.headers["access-control-allow-credentials"] == "true"
        preflight = ingest.http1(request[0], request[1], b"", {**headers, "access-control-request-method": "POST"}, "OPTIONS")
        assert preflight.code == 204
        assert preflight.headers["access-control-allow-origin"] == "https://shop.example"
        assert preflight.headers["access-control-allow-credentials"] == "true"
        refused = send(request, {**headers, "origin": "https://shop.evil"})
        assert refused.code == 403 and "access-control-allow-credentials" not in refused.headers


def test_answers_cannot_be_embedded(braid, tmp_path):
    """No answer to a query can be embedded by another page, or be interpreted as another type."""
    server = braid(pipelines({"store": {"directory": str(tmp_path / "data")}},
                             extensions={"query": {"endpoint": "127.0.0.1:0"}}))
    address = server.address("http", "extension/query")
    for path in ("/", "/api/braid/status", "/api/braid/spans?q={", "/api/search?q={", "/api/search", "/nothing",
                 "/pyroscope/label-names", "/api/braid/openapi.json"):
        answer = ingest.http1(address, path, None, {}, "GET")
        assert answer.headers["x-content-type-options"] == "nosniff", (path, answer)
        assert answer.headers["cross-origin-resource-policy"] == "same-origin", (path, answer)
