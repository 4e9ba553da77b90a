# SPDX-License-Identifier: Apache-2.0
"""Authentication of clients: which requests the listeners accept, and how they reject the others."""

import json
import socket
import subprocess
import time

import grpc as grpcio
import pytest
import requests

import clients
import otlp
from auth import AUTH, BEARER, TOKEN, guarded, post, rejected, send_grpc
from braid import BINARY, DEADLINE_S, exporter, pipelines, until
from otlp import PROFILES, TRACES


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("signal", [TRACES, PROFILES], ids=lambda signal: signal.name)
def test_bearer_token_admits_requests_and_others_are_rejected(braid, sink, signal, workers):
    server = braid(guarded(sink, workers=workers))
    right = f"Bearer {TOKEN}"
    assert send_grpc(server, ("authorization", right), signal=signal).ok
    assert post(server, signal, headers={"Authorization": right}).status_code == 200
    for wrong in ("Bearer canary-bearer-5c0", right + "x", TOKEN, "Bearer", "Basic " + TOKEN, "bearer x"):
        answer = send_grpc(server, ("authorization", wrong), signal=signal)
        assert (answer.code, answer.message) == ("UNAUTHENTICATED", "the credentials are not valid")
    answer = send_grpc(server, signal=signal)
    assert (answer.code, answer.message) == ("UNAUTHENTICATED", "the request has no credentials")
    answer = post(server, signal)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="braid"')
    until(lambda: server.ledger(signal.name)["sent"] == 6, "both requests at the sink")
    assert server.ledger(signal.name)["received"] == 6
    assert rejected(server, "missing") == 2 and rejected(server, "invalid") == 6
    assert TOKEN not in server.log()


def test_grpc_call_credentials_of_a_client(braid, sink, tmp_path):
    """grpcio's call credentials require TLS."""
    certificate = tmp_path / "server.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", certificate, "-out", tmp_path / "cert.pem", "-subj", "/CN=localhost", "-days", "2",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
    tls = {"tls": {"cert_file": str(tmp_path / "cert.pem"), "key_file": str(certificate)}}
    config = guarded(sink)
    config["receivers"]["otlp"]["protocols"]["grpc"].update(tls)
    server = braid(config)
    channel = grpcio.ssl_channel_credentials((tmp_path / "cert.pem").read_bytes())
    for token, code in ((TOKEN, "OK"), ("wrong", "UNAUTHENTICATED")):
        both = grpcio.composite_channel_credentials(channel, grpcio.access_token_call_credentials(token))
        with grpcio.secure_channel(server.grpc, both, clients.LOCAL) as secure:
            answer = clients.grpc(None, TRACES, otlp.trace_request(1).SerializeToString(), channel=secure)
            assert answer.code == code


def test_a_rejected_request_is_answered_before_its_body(braid, sink):
    """The client announces a body that it never sends."""
    server = braid(guarded(sink))
    host, port = server.http.rsplit(":", 1)
    for head in ("Content-Length: 1000000", "Transfer-Encoding: chunked", "Content-Length: 9\r\nExpect: 100-continue"):
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as sock:
            sock.sendall(f"POST /v1/traces HTTP/1.1\r\nHost: {server.http}\r\n{head}\r\n"
                         "Content-Type: application/x-protobuf\r\n\r\n".encode())
            assert sock.recv(4096).startswith(b"HTTP/1.1 401 ")


def test_curl_with_a_token(braid, sink, tmp_path):
    server = braid(guarded(sink))
    (tmp_path / "body").write_bytes(otlp.trace_request(2).SerializeToString())
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "content-type: application/x-protobuf",
               "--data-binary", f"@{tmp_path}/body", f"http://{server.http}/v1/traces"]
    for more, status in (([], "401"), (["--oauth2-bearer", TOKEN], "200"), (["--oauth2-bearer", "x"], "401"),
                         (["--http2-prior-knowledge", "--oauth2-bearer", TOKEN], "200"),
                         (["--http2-prior-knowledge"], "401")):
        # curl 7.88 reports the reset with NO_ERROR after an early response (RFC 9113 section 8.1) as exit code 92
        done = subprocess.run(command + more, capture_output=True, text=True)
        assert (done.stdout, done.returncode in (0, 92)) == (status, True)


def test_token_in_a_query_parameter(braid, sink):
    """As request_params of the Collector's confighttp: the parameter has the name of the header."""
    config = guarded(sink, {"bearertokenauth": {"header": "x-token", "scheme": "", "token": "a:b+c"}})
    config["receivers"]["otlp"]["protocols"]["http"]["auth"]["request_params"] = ["X-Token"]
    server = braid(config)
    for query, code in (("?X-Token=a%3Ab%2Bc", 200), ("?x=1&X-Token=a:b%2Bc&y", 200), ("?X-Token=a", 401), ("?X-Toke=a%3Ab%2Bc", 401),
                        ("?X-Token=%zz", 401), ("", 401)):
        assert post(server, path="/v1/traces" + query).status_code == code, query


def test_scheme_header_and_several_tokens(braid, sink):
    server = braid(guarded(sink, {"bearer_token_auth/keys": {
        "header": "X-Api-Key", "scheme": "", "tokens": ["first-key", "second-key"]}}))
    for key, code in (("first-key", 200), ("second-key", 200), ("third-key", 401), ("", 401), ("Bearer first-key", 401)):
        assert post(server, headers={"X-Api-Key": key}).status_code == code
    assert send_grpc(server, ("x-api-key", "second-key")).ok


def test_token_file_is_read_again(braid, sink, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("one  a comment\n\n  two\n")
    server = braid(guarded(sink, {"bearertokenauth": {"filename": str(tokens)}}))
    status = lambda token: post(server, headers={"Authorization": f"Bearer {token}"}).status_code
    assert [status(token) for token in ("one", "two", "three", "a")] == [200, 200, 401, 401]
    (tmp_path / "new").write_text("three\n")
    (tmp_path / "new").replace(tokens)
    until(lambda: status("three") == 200, "the new token")
    assert status("one") in (401, 429)  # 429: after the polling above
    tokens.unlink()
    server.wait_log("cannot be read, its last contents stay in use")
    assert status("three") == 200


def test_an_address_with_many_failures_is_limited(braid, sink):
    """Ten failures in a burst, then one a second; valid tokens still pass."""
    server = braid(guarded(sink))
    begun = time.monotonic()
    answers = [post(server, headers={"Authorization": "Bearer wrong"}) for _ in range(30)]
    codes = [answer.status_code for answer in answers]
    assert codes[:10] == [401] * 10
    assert codes.count(401) <= 10 + (time.monotonic() - begun) + 1
    limited = next(answer for answer in answers if answer.status_code == 429)
    assert limited.headers["Retry-After"] == "1"
    answer = send_grpc(server, ("authorization", "Bearer wrong"))
    if answer.code != "UNAUTHENTICATED":  # each listener counts for itself
        assert (answer.code, answer.retry_info.retry_delay.seconds) == ("RESOURCE_EXHAUSTED", 1)
    assert post(server, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert post(server).status_code == 401
    assert rejected(server, "limited") == codes.count(429)


def test_cors_preflights_need_no_credentials(braid, sink):
    config = guarded(sink)
    config["receivers"]["otlp"]["protocols"]["http"]["cors"] = {"allowed_origins": ["https://shop.example"]}
    server = braid(config)
    page = {"Origin": "https://shop.example", "Access-Control-Request-Method": "POST"}
    assert requests.options(f"http://{server.http}/v1/traces", headers=page, timeout=DEADLINE_S).status_code == 204
    assert post(server, headers=page).status_code == 401


@pytest.mark.parametrize("settings, error", [
    ({"authenticator": "absent"}, "Braid does not have the authenticator \"absent\""),
    ({"authenticator": "basicauth"}, "must be the id of an extension in service::extensions, got \"basicauth\""),
    ({}, "must be the id of an extension, such as {authenticator: bearertokenauth}"),
    ({"authenticator": "health_check"}, "\"health_check\" does not check the credentials of clients"),
])
def test_auth_names_an_authenticator(sink, tmp_path, settings, error):
    config = pipelines(exporter("grpc", sink), extensions={**BEARER, "health_check": {"endpoint": "127.0.0.1:0"}},
                       grpc={"auth": settings})
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    done = subprocess.run([BINARY, "validate", "--config", tmp_path / "config.yaml"], capture_output=True, text=True,
                          timeout=DEADLINE_S)
    assert done.returncode != 0
    assert f"receivers::otlp::protocols::grpc::auth::authenticator: {error}" in done.stderr


def test_a_listener_for_other_machines_warns_without_auth(braid, sink):
    config = pipelines(exporter("grpc", sink), grpc={"endpoint": "0.0.0.0:0"}, http={"endpoint": "0.0.0.0:0", **AUTH},
                       extensions=BEARER)
    server = braid(config)
    server.wait_log("grpc: other machines can send requests to 0.0.0.0:0 without authentication; set auth")
    assert server.log().count("without authentication") == 1
