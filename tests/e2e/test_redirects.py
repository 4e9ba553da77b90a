# SPDX-License-Identifier: Apache-2.0
"""Redirects of HTTP clients: 307 and 308 are followed, without credentials to another server. All
others end the request, and the log names the location."""

import re
import subprocess

import pytest

import certs
import clients
import hops
import ingest
import otlp
from braid import BINARY, DEADLINE_S, pipelines, until
from otlp import PROFILES, TRACES
from scraped import OFF, config, of_type, target

SECRET = {"authorization": "Bearer secret", "Cookie": "id=secret", "X-Api-Key": "secret"}


@pytest.fixture
def answering():
    """answering(answer, **options) makes a server that ends with the test."""
    made = []

    def make(*args, **options):
        made.append(hops.Answering(*args, **options))
        return made[-1]
    yield make
    for each in made:
        each.close()


def redirecting(answering, status, location, **options):
    return answering(hops.redirect(status, location), **options)


def otlphttp(endpoint, **options):
    return {"otlphttp": {"endpoint": endpoint, "sending_queue": {"enabled": False},
                         "retry_on_failure": {"enabled": False}, **options}}


def send(server, signal=TRACES):
    return clients.http(server.http, signal.path, otlp.request_of(signal, 3).SerializeToString())


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("signal", [TRACES, PROFILES], ids=str)
def test_the_same_request_is_sent_to_the_location(braid, sink, answering, status, signal):
    first = redirecting(answering, status, f"http://{sink.http}{signal.path}")
    server = braid(pipelines(otlphttp(f"http://{first.address}")))
    send(server, signal).expect_ok()
    sink.wait(signal, 3)
    asked, call = first.asked[0], sink.of(signal)[0]
    assert asked.method == "POST" and asked.target == signal.path
    for name in ("content-type", "content-encoding", "content-length", "user-agent"):
        assert call.headers[name] == asked.headers[name], name
    assert call.headers["host"] == sink.http
    found = server.wait_log(rf"HTTP {status} redirects to (\S+);")
    assert found.group(1) == f"http://{sink.http}{signal.path}"


@pytest.mark.parametrize("location", ["/other/v1/traces?x=1", "../other/v1/traces?x=1", "//{address}/other/v1/traces?x=1",
                                      "http://{address}/other/v1/traces?x=1#fragment"])
def test_credentials_are_kept_on_the_same_server(braid, answering, location):
    """Relative Locations (RFC 3986 section 5), including the same URL; credentials are kept."""
    def answer(asked):
        if asked.target == "/v1/traces":
            return 307, {"location": location.format(address=asked.headers["host"])}, b""
        return 200, {}, b""
    only = answering(answer)
    server = braid(pipelines(otlphttp(f"http://{only.address}", headers=SECRET), signals=["traces"]))
    send(server).expect_ok()
    one, other = only.asked
    assert other.target == "/other/v1/traces?x=1"
    assert (other.method, other.body, other.headers) == (one.method, one.body, one.headers)
    assert other.headers["authorization"] == SECRET["authorization"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_another_server_gets_no_credentials(braid, sink, answering, host):
    """Another host, and another port of the same host."""
    port = sink.http.rpartition(":")[2]
    first = redirecting(answering, 308, f"http://{host}:{port}{TRACES.path}")
    server = braid(pipelines(otlphttp(f"http://{first.address}", headers={**SECRET, "X-Scope-OrgID": "team"}),
                             signals=["traces"]))
    send(server).expect_ok()
    asked, headers = first.asked[0].headers, sink.of(TRACES)[0].headers
    for name, value in SECRET.items():
        assert asked[name.lower()] == value
    assert "secret" not in str(headers)
    assert headers["x-scope-orgid"] == "team"  # the tenant is not a credential, and the data belongs to it
    server.wait_log(r"\twarn\t.*redirects to .*; it is another server, so the headers")


def test_credentials_are_not_restored_on_the_first_server(braid, answering):
    def answer(asked):
        if asked.target == "/v1/traces":
            return 307, {"location": f"http://{other.address}/"}, b""
        return 200, {}, b""
    first = answering(answer)
    other = redirecting(answering, 307, f"http://{first.address}/end")
    server = braid(pipelines(otlphttp(f"http://{first.address}", headers=SECRET), signals=["traces"]))
    send(server).expect_ok()
    assert [each.target for each in first.asked] == ["/v1/traces", "/end"]
    assert "secret" in str(first.asked[0].headers)
    assert "secret" not in str(first.asked[1].headers)


def test_credentials_are_kept_from_http_to_https(braid, new_sink, answering, tmp_path):
    """As a server that requires TLS does; the certificate is checked."""
    key = certs.self_signed(tmp_path)
    sink = new_sink(certificate=key)
    first = redirecting(answering, 308, f"https://{sink.http}{TRACES.path}")
    server = braid(pipelines(otlphttp(f"http://{first.address}", headers=SECRET,
                                      tls={"ca_file": str(key.with_suffix(".crt"))}), signals=["traces"]))
    send(server).expect_ok()
    assert sink.of(TRACES)[0].headers["authorization"] == SECRET["authorization"]


@pytest.mark.parametrize("headers", [SECRET, {}])
def test_credentials_are_dropped_from_https_to_http(braid, sink, answering, tmp_path, headers):
    key = certs.self_signed(tmp_path)
    first = redirecting(answering, 308, f"http://{sink.http}{TRACES.path}", certificate=key)
    server = braid(pipelines(otlphttp(f"https://{first.address}", headers=headers,
                                      tls={"ca_file": str(key.with_suffix(".crt"))}), signals=["traces"]))
    answer = send(server)
    assert answer.ok == (not headers)
    assert len(sink.of(TRACES)) == (0 if headers else 1)
    if headers:
        server.wait_log(rf"HTTP 308 is not followed .*from https to http.*Location: http://{sink.http}")


@pytest.mark.parametrize("n_redirects", [3, 4])
def test_three_redirects_are_followed(braid, answering, n_redirects):
    def answer(asked):
        n = int(asked.target.rpartition("/")[2])
        return (307, {"location": f"/{n + 1}"}, b"") if n < n_redirects else (200, {}, b"")
    only = answering(answer)
    server = braid(pipelines({"otlphttp": {"traces_endpoint": f"http://{only.address}/0"}}, signals=["traces"]))
    send(server).expect_ok()
    until(lambda: server.ledger("traces")["held"] == 0 and len(only.asked) == 4, "the last request")
    assert server.ledger("traces")["sent" if n_redirects == 3 else "dropped"] == 3
    if n_redirects == 4:
        server.wait_log(r"HTTP 307 is not followed \(3 redirects were already followed\); Location: /4")


@pytest.mark.parametrize("status, location", [
    (301, "http://elsewhere.test/v1/traces"), (302, "/x"), (303, "http://elsewhere.test/"), (300, "/x"), (308, None),
    (308, "ftp://elsewhere.test/"), (307, "http://user:password@elsewhere.test/"), (307, "http://elsewhere.test:0/"),
    (308, "/" + "x" * 600)])
def test_other_redirects_are_permanent_errors_that_name_the_location(braid, answering, status, location):
    first = redirecting(answering, status, location)
    server = braid(pipelines({"otlphttp": {"endpoint": f"http://{first.address}"}}, signals=["traces"]))
    send(server).expect_ok()
    server.wait_log(rf"HTTP {status} is not followed .*; Location: {re.escape((location or 'none')[:60])}")
    until(lambda: server.ledger("traces")["dropped"] == 3, "the end")
    assert len(first.asked) == 1


def test_a_redirect_to_an_unavailable_server_is_retried(braid, sink, answering):
    """A redirect to a refused connection is a failure like any other."""
    places = ["http://127.0.0.1:1/v1/traces", f"http://{sink.http}/v1/traces"]
    first = answering(lambda asked: (307, {"location": places.pop(0)}, b""))
    server = braid(pipelines({"otlphttp": {"endpoint": f"http://{first.address}",
                                           "retry_on_failure": {"initial_interval": "50ms"}}}, signals=["traces"]))
    send(server).expect_ok()
    sink.wait(TRACES, 3)


def test_many_redirects_do_not_leak(braid, answering):
    """Each answer names another server; a few clients are cached for them."""
    ends = [answering(lambda asked: (200, {}, b"")) for _ in range(7)]
    places = [f"http://{ends[i % 7].address}/" for i in range(21)]
    first = answering(lambda asked: (307, {"location": places.pop()}, b""))
    server = braid(pipelines(otlphttp(f"http://{first.address}"), signals=["traces"]))
    for _ in range(21):
        send(server).expect_ok()
    assert [len(end.asked) for end in ends] == [3] * 7


# --- The other HTTP clients


def test_pyroscope_pushes(braid, pyroscope, answering):
    first = redirecting(answering, 308, f"{pyroscope.url}/push.v1.PusherService/Push")
    tree = pipelines({"pyroscope": {"endpoint": f"http://{first.address}", "tenant": "team", "headers": SECRET,
                                    "limits": {"max_age": "0"}}}, signals=["profiles"])
    server = braid(tree)
    send(server, PROFILES).expect_ok()
    pyroscope.wait(1)
    push = pyroscope.profiles()[0]
    assert push.headers["x-scope-orgid"] == "team"
    assert push.headers["connect-protocol-version"] == "1"
    assert "secret" not in str(push.headers)


@pytest.mark.parametrize("status", [302, 307])
def test_scrapes(braid, sink, answering, status):
    profile = ingest.make_pprof()
    program = answering(lambda asked: (200, {}, profile))
    first = redirecting(answering, status, f"http://{program.address}/real")
    server = braid(config(sink, {"targets": target(first.address), "scrape_interval": "1s", "bearer_token": "secret",
                                 "profiles": {**OFF, "goroutine": {"enabled": True}}}))
    if status == 307:
        until(lambda: of_type(sink, ("goroutine", "cpu")), "the profile")
        assert program.asked[0].method == "GET" and "secret" not in str(program.asked[0])
        assert "secret" in str(first.asked[0])
    else:
        server.wait_log(rf"HTTP 302 is not followed .*; Location: http://{program.address}/real")


@pytest.mark.parametrize("status", [302, 308])
def test_queries(answering, status):
    end = answering(lambda asked: (200, {"content-type": "text/plain"}, b"the answer\n"))
    first = redirecting(answering, status, f"http://{end.address}/there")
    done = subprocess.run([BINARY, "query", "spans", "--url", f"http://{first.address}"], capture_output=True, text=True,
                          timeout=DEADLINE_S)
    if status == 308:
        assert len(end.asked) == 1
    else:
        assert done.returncode == 1
        assert f"HTTP 302 is not followed (only 307 and 308 preserve the request); Location: http://{end.address}/there" in done.stderr
