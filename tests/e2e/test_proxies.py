# SPDX-License-Identifier: Apache-2.0
"""Requests through an HTTP proxy set by the environment or by proxy_url. The test proxy forwards
everything to one address, and the servers have names that do not exist: a client that bypassed
the proxy would fail."""

import base64
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

USER = "user:p%40ss@"  # the Authorization header for it
BASIC = "Basic " + base64.b64encode(b"user:p@ss").decode()


@pytest.fixture
def new_proxy():
    """new_proxy(target, **options) makes a proxy that ends with the test."""
    made = []

    def make(*args, **options):
        made.append(hops.Proxy(*args, **options))
        return made[-1]
    yield make
    for each in made:
        each.close()


def environment(**variables):
    """Returns the environment with its proxy variables replaced by these."""
    names = ("http_proxy", "https_proxy", "no_proxy")
    return {**{name: "" for name in names}, **{name.upper(): "" for name in names}, **variables}


def send(server, signal=TRACES):
    return clients.http(server.http, signal.path, otlp.request_of(signal, 3).SerializeToString())


def at_once(**options):
    return {"sending_queue": {"enabled": False}, "retry_on_failure": {"enabled": False}, **options}


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "proxy_url"])
@pytest.mark.parametrize("user", ["", USER], ids=["", "user"])
def test_http_has_the_whole_url_in_its_request_line(braid, new_sink, new_proxy, variable, user):
    sink = new_sink(prefix="/base")
    proxy = new_proxy(sink.http)
    url = f"http://{user}{proxy.address}"
    own = {"proxy_url": url} if variable == "proxy_url" else {}
    server = braid(pipelines({"otlphttp": at_once(endpoint="http://tempo.test:4318/base", **own)}, signals=["traces"]),
                   env=environment(**({} if own else {variable: url})))
    send(server).expect_ok()
    sink.wait(TRACES, 3)
    passed = proxy.passed[0]
    assert passed.line == "POST http://tempo.test:4318/base/v1/traces HTTP/1.1"
    assert passed.headers["host"] == "tempo.test:4318"  # RFC 9112 section 3.2.2
    assert passed.headers.get("proxy-authorization") == (BASIC if user else None)


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "proxy_url"])
@pytest.mark.parametrize("http2", [False, True])
def test_https_goes_through_a_tunnel(braid, new_sink, new_proxy, tmp_path, variable, http2):
    key = certs.self_signed(tmp_path)
    sink = new_sink(certificate=key)
    proxy = new_proxy(sink.http)
    url = f"http://{USER}{proxy.address}"
    own = {"proxy_url": url} if variable == "proxy_url" else {}
    tls = {"ca_file": str(key.with_suffix(".crt")), "server_name_override": "127.0.0.1"}
    server = braid(pipelines({"otlphttp": at_once(endpoint="https://tempo.test", tls=tls, force_attempt_http2=http2,
                                                  headers={"authorization": "secret"}, **own)}, signals=["traces"]),
                   env=environment(**({} if own else {variable: url})))
    send(server).expect_ok()
    send(server).expect_ok()
    assert sink.of(TRACES)[0].headers["host"] == "tempo.test:443"
    assert [each.line for each in proxy.passed] == ["CONNECT tempo.test:443 HTTP/1.1"]  # one connection, reused
    assert proxy.passed[0].headers == {"host": "tempo.test:443", "proxy-authorization": BASIC}


@pytest.mark.parametrize("balancer", ["round_robin", "pick_first"])
def test_grpc_goes_through_a_tunnel(braid, sink, new_proxy, balancer):
    """Also without TLS, through the proxy for https: as grpc-go does."""
    proxy = new_proxy(sink.grpc)
    server = braid(pipelines({"otlp": at_once(endpoint="tempo.test:4317", tls={"insecure": True}, balancer_name=balancer)},
                             signals=["traces"]),
                   env=environment(HTTPS_PROXY=proxy.address, HTTP_PROXY="http://nowhere.test"))
    for _ in range(3):
        send(server).expect_ok()
    sink.wait(TRACES, 9)
    assert [each.line for each in proxy.passed] == ["CONNECT tempo.test:4317 HTTP/1.1"]


def test_a_server_that_sends_first_is_read(braid, sink, new_proxy):
    """HTTP/2 servers may send SETTINGS at once, together with the proxy's answer."""
    proxy = new_proxy(sink.grpc)
    proxy.late = True
    server = braid(pipelines({"otlp": at_once(endpoint="tempo.test:4317", tls={"insecure": True})}, signals=["traces"]),
                   env=environment(HTTPS_PROXY=proxy.address))
    send(server).expect_ok()
    sink.wait(TRACES, 3)


@pytest.mark.parametrize("no_proxy", ["*", "127.0.0.1,localhost", ""])
def test_exceptions_and_loopback_are_reached_directly(braid, sink, new_proxy, no_proxy):
    proxy = new_proxy(sink.http)
    env = environment(HTTP_PROXY=proxy.address, HTTPS_PROXY=proxy.address, NO_PROXY=no_proxy)
    server = braid(pipelines({"otlphttp": at_once(endpoint=f"http://{sink.http}"),
                              "otlp": at_once(endpoint=sink.grpc, tls={"insecure": True})}, signals=["traces"]), env=env)
    send(server).expect_ok()
    sink.wait(TRACES, 6)
    assert not proxy.passed


def test_proxy_url_has_no_exceptions(braid, sink, new_proxy):
    proxy = new_proxy(sink.http)
    server = braid(pipelines({"otlphttp": at_once(endpoint=f"http://{sink.http}", proxy_url=f"http://{proxy.address}")},
                             signals=["traces"]), env=environment(NO_PROXY="*"))
    send(server).expect_ok()
    assert len(proxy.passed) == 1


@pytest.mark.parametrize("status, words", [("407 Proxy Authentication Required", "user:password@"),
                                           ("403 Forbidden", ""), ("502 Bad Gateway", "")])
def test_a_rejection_is_logged_with_its_reason(braid, sink, new_proxy, status, words):
    code = status[:3]
    proxy = new_proxy(sink.http, refuse=status)
    env = environment(HTTP_PROXY=proxy.address, HTTPS_PROXY=f"http://secret:secret@{proxy.address}")
    retry = {"retry_on_failure": {"enabled": False}}
    server = braid(pipelines({"otlphttp": {"endpoint": "http://tempo.test", **retry},
                              "otlp": {"endpoint": "tempo.test:4317", **retry},
                              "otlphttp/s": {"endpoint": "https://tempo.test", **retry}}, signals=["traces"]), env=env)
    send(server).expect_ok()
    through = re.escape(f"through the proxy {proxy.address} (HTTPS_PROXY): the proxy rejects CONNECT with HTTP {code}")
    for name in ("otlp", "otlphttp/s"):
        server.wait_log(rf"exporter/{name}\t.*{through}.*{words}")
    server.wait_log(rf"exporter/otlphttp\t.*HTTP {code}.*{words}.*\(through the proxy {proxy.address}\)")
    assert "secret" not in server.log()


def test_a_server_that_is_not_a_proxy_is_logged(braid, sink):
    """A server with another protocol, and an unavailable one."""
    env = environment(HTTPS_PROXY=sink.grpc)
    server = braid(pipelines({"otlp": {"endpoint": "tempo.test:4317"}}, signals=["traces"]), env=env)
    send(server).expect_ok()
    server.wait_log(rf"through the proxy {sink.grpc} \(HTTPS_PROXY\): ")
    server.kill()
    env = environment(HTTPS_PROXY="proxy.test:1")
    server = braid(pipelines({"otlp": {"endpoint": "tempo.test:4317"}}, signals=["traces"]), env=env)
    send(server).expect_ok()
    server.wait_log(r"cannot resolve tempo.test:4317 through the proxy proxy.test:1 \(HTTPS_PROXY\): ")
    server.kill()


def test_a_redirect_goes_through_the_proxy(braid, sink, new_proxy):
    end = hops.Answering(hops.redirect(308, "http://moved.test/v1/traces"))
    try:
        first = new_proxy(end.address)
        server = braid(pipelines({"otlphttp": at_once(endpoint="http://tempo.test", proxy_url=f"http://{first.address}")},
                                 signals=["traces"]), env=environment())
        first.targets = [end.address, sink.http]
        send(server).expect_ok()
    finally:
        end.close()
    assert [each.line for each in first.passed] == [
        "POST http://tempo.test:80/v1/traces HTTP/1.1", "POST http://moved.test:80/v1/traces HTTP/1.1"]


# --- The other HTTP clients


def test_pyroscope_pushes(braid, pyroscope, new_proxy):
    proxy = new_proxy(pyroscope.address)
    server = braid(pipelines({"pyroscope": {"endpoint": "http://pyroscope.test:4040", "limits": {"max_age": "0"},
                                            "proxy_url": f"http://{USER}{proxy.address}"}}, signals=["profiles"]),
                   env=environment())
    send(server, PROFILES).expect_ok()
    pyroscope.wait(1)
    until(lambda: server.ledger("profiles")["held"] == 0, "the answer")
    assert proxy.passed[0].line == "POST http://pyroscope.test:4040/push.v1.PusherService/Push HTTP/1.1"
    assert proxy.passed[0].headers["proxy-authorization"] == BASIC
    assert "proxy-authorization" not in pyroscope.profiles()[0].headers


@pytest.mark.parametrize("own", [False, True])
def test_scrapes(braid, sink, new_proxy, own):
    program = hops.Answering(lambda asked: (200, {}, ingest.make_pprof()))
    proxy = new_proxy(program.address)
    receiver = {"targets": target("shop.test:6060"), "scrape_interval": "1s",
                "profiles": {**OFF, "goroutine": {"enabled": True}}}
    try:
        braid(config(sink, {**receiver, **({"proxy_url": f"http://{proxy.address}"} if own else {})}),
              env=environment(**({} if own else {"HTTP_PROXY": proxy.address, "NO_PROXY": "127.0.0.1"})))
        until(lambda: of_type(sink, ("goroutine", "cpu")), "the profile")
        assert proxy.passed[0].line == "GET http://shop.test:6060/debug/pprof/goroutine HTTP/1.1"
    finally:
        program.close()


def test_queries(new_proxy):
    end = hops.Answering(lambda asked: (200, {"content-type": "text/plain"}, b"the answer\n"))
    try:
        proxy = new_proxy(end.address)
        subprocess.run([BINARY, "query", "spans", "--url", "http://braid.test:3200"], capture_output=True,
                       timeout=DEADLINE_S, env=environment(http_proxy=proxy.address))
        assert proxy.passed[0].line.startswith("GET http://braid.test:3200/")
    finally:
        end.close()


# --- Config


@pytest.mark.parametrize("url, words", [
    ("127.0.0.1:3128", "must be http://[user:password@]host[:port]"),
    ("http://user:secret@proxy:0", "must be http://[user:password@]host[:port]"),
    ("http://proxy/path", "must be http://[user:password@]host[:port]"),
    ("https://user:secret@proxy", "https:// proxies are not supported"),
    ("socks5://proxy:1080", "socks5:// proxies are not supported")])
def test_an_invalid_proxy_url_is_an_error_with_its_place(tmp_path, url, words):
    path = tmp_path / "config.yaml"
    path.write_text(f"""receivers: {{otlp: {{protocols: {{http: {{}}}}}}}}
exporters:
  otlphttp:
    endpoint: http://tempo.test
    proxy_url: {url}
service: {{pipelines: {{traces: {{receivers: [otlp], exporters: [otlphttp]}}}}}}
""")
    done = subprocess.run([BINARY, "validate", "--config", path], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode != 0
    assert f"{path}:5:16: exporters::otlphttp::proxy_url: " in done.stderr and words in done.stderr
    assert "secret" not in done.stderr
