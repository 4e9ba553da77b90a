# SPDX-License-Identifier: Apache-2.0
"""The extension oauth2client against a token server made with oauthlib."""

import base64
import json
import subprocess
import threading
import time
import types
import urllib.parse

import pytest

import hops
import httpd
import otlp
from auth import send_grpc
from braid import BINARY, DEADLINE_S, exporter, pipelines, until
from otlp import TRACES

oauthlib = pytest.importorskip("oauthlib")
from oauthlib.oauth2 import BackendApplicationServer, RequestValidator  # noqa: E402

ID, SECRET = "braid:client", "canary-sécret&+ %"


class Validator(RequestValidator):
    """Accepts one client, whose credentials are in the header, or in the body if `in_body` is true."""

    def __init__(self, server):
        self.server = server

    def authenticate_client(self, request, *args, **kwargs):
        kind, _, coded = request.headers.get("authorization", "").partition(" ")
        if self.server.in_body:
            given = request.client_id, request.client_secret
        elif kind == "Basic":
            given = tuple(map(urllib.parse.unquote_plus, base64.b64decode(coded).decode().split(":", 1)))
        else:
            return False
        request.client = type("Client", (), {"client_id": given[0]})()
        return given == (ID, self.server.secret)

    def validate_grant_type(self, client_id, grant_type, client, request, *args, **kwargs):
        return grant_type == "client_credentials"

    def validate_scopes(self, client_id, scopes, client, request, *args, **kwargs):
        return set(scopes) <= {"traces.write", "profiles.write"}

    def get_default_scopes(self, *args, **kwargs):
        return ["traces.write"]

    def save_bearer_token(self, token, request, *args, **kwargs):
        self.server.tokens.append(token)
        self.server.forms.append(dict(request.decoded_body))


class TokenServer:
    def __init__(self, lifetime_s=3600):
        self.tokens, self.forms, self.posts = [], [], 0
        self.secret, self.in_body, self.down, self.hold = SECRET, False, False, None
        endpoint = BackendApplicationServer(Validator(self), token_expires_in=lifetime_s)
        owner = self

        class Handler(httpd.Handler):
            def do_POST(self):
                owner.posts += 1
                body = self.body().decode()
                if owner.hold:
                    owner.hold.wait(DEADLINE_S)
                if owner.down:
                    headers, text, status = {}, "", 503
                else:
                    headers, text, status = endpoint.create_token_response(
                        f"https://tokens{self.path}", "POST", body, dict((k.lower(), v) for k, v in self.headers.items()))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text or "")))
                self.end_headers()
                self.wfile.write((text or "").encode())

        self.http = httpd.Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/realms/x/token"

    def close(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def tokens(request):
    server = TokenServer(**getattr(request, "param", {}))
    yield server
    server.close()


def config(sink, tokens, kind="grpc", workers=1, **more):
    client = {"client_id": ID, "client_secret": SECRET, "token_url": tokens.url, **more}
    retry = {"retry_on_failure": {"initial_interval": "200ms", "max_interval": "500ms"}}
    return pipelines(exporter(kind, sink, auth={"authenticator": "oauth2client"}, **retry),
                     extensions={"oauth2client": client}, workers=workers)


def sent(sink):
    return [{name.lower(): value for name, value in call.headers.items()}["authorization"] for call in list(sink.calls)]


@pytest.mark.parametrize("kind", ["grpc", "proto"])
def test_one_token_serves_all_requests(braid, sink, tokens, kind):
    server = braid(config(sink, tokens, kind, scopes=["traces.write", "profiles.write"],
                          endpoint_params={"audience": "a b&c", "list": ["1", "2"]}))
    for _ in range(5):
        assert send_grpc(server).ok
    until(lambda: len(sink.calls) == 5, "five requests")
    assert len(tokens.tokens) == 1
    assert set(sent(sink)) == {f"Bearer {tokens.tokens[0]['access_token']}"}
    assert tokens.tokens[0]["scope"] == "traces.write profiles.write"
    assert tokens.forms[0]["audience"] == "a b&c" and tokens.forms[0]["grant_type"] == "client_credentials"
    assert sum(server.metrics()["braid_oauth_tokens"].values()) == 1
    for secret in (SECRET, tokens.tokens[0]["access_token"]):
        assert secret not in server.log()


def test_a_server_that_reads_only_the_body(braid, sink, tokens):
    tokens.in_body = True
    server = braid(config(sink, tokens))
    assert send_grpc(server).ok
    until(lambda: sink.calls, "the request")
    assert tokens.posts == 2


@pytest.mark.parametrize("tokens", [{"lifetime_s": 4}], indirect=True)
def test_a_token_is_renewed_before_it_expires(braid, sink, tokens):
    """The buffer of 5 minutes is longer than the token's life, so it is renewed after half of it, 2 s."""
    server = braid(config(sink, tokens))
    end = time.monotonic() + 7
    while time.monotonic() < end:
        assert send_grpc(server).ok
        time.sleep(0.1)
    assert 3 <= len(tokens.tokens) <= 5
    until(lambda: server.ledger("traces")["held"] == 0, "the last request")
    assert server.ledger("traces")["sent"] == server.ledger("traces")["received"]
    assert [token for token in dict.fromkeys(sent(sink))] == [f"Bearer {each['access_token']}" for each in tokens.tokens][:len(set(sent(sink)))]


def test_requests_wait_for_the_token(braid, sink, tokens):
    tokens.hold = threading.Event()
    server = braid(config(sink, tokens, workers=2))
    for _ in range(4):
        assert send_grpc(server).ok
    until(lambda: tokens.posts, "the token request")
    assert not sink.calls
    tokens.hold.set()
    until(lambda: server.ledger("traces")["sent"] == 12, "all requests")


def test_requests_are_retried_while_the_token_server_is_down(braid, sink, tokens):
    tokens.down = True
    server = braid(config(sink, tokens))
    assert send_grpc(server).ok
    server.wait_log("no token from the token server: status 503")
    tokens.down = False
    until(lambda: server.ledger("traces")["sent"] == 3, "the request")


def test_wrong_secret_and_secret_file(braid, sink, tokens, tmp_path):
    (tmp_path / "secret").write_text("wrong-canary\n")
    server = braid(config(sink, tokens, client_secret="", client_secret_file=str(tmp_path / "secret")))
    assert send_grpc(server).ok
    server.wait_log("no token from the token server: status 401, invalid_client")
    (tmp_path / "secret").write_text(SECRET + "\n")
    until(lambda: server.ledger("traces")["sent"] == 3, "the request")
    assert "wrong-canary" not in server.log()


@pytest.mark.parametrize("more, error", [
    ({"client_id": ""}, "client_id: must be set, or client_id_file"),
    ({"client_secret": ""}, "client_secret: must be set"),
    ({"token_url": "tokens.example"}, "token_url: must be an http or https URL"),
    ({"endpoint_params": {"a": {"b": "c"}}}, "endpoint_params: a must be a text or a list"),
])
def test_settings_are_checked(sink, tokens, tmp_path, more, error):
    (tmp_path / "config.yaml").write_text(json.dumps(config(sink, tokens, **more)))
    done = subprocess.run([BINARY, "validate", "--config", tmp_path / "config.yaml"], capture_output=True, text=True,
                          timeout=DEADLINE_S)
    assert done.returncode != 0 and f"extensions::oauth2client::{error}" in done.stderr


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_does_not_get_the_secret(braid, sink, status):
    """The token server rejects the header, so the secret is in the body. Then it redirects to another server."""
    other = hops.Answering(lambda asked: (200, {"content-type": "application/json"}, b'{"access_token": "other"}'))
    first = hops.Answering(lambda asked: (status, {"location": f"http://{other.address}/token"}, b"")
                           if b"client_secret" in asked.body else (401, {}, b"{}"))
    try:
        server = braid(config(sink, types.SimpleNamespace(url=f"http://{first.address}/token")))
        assert send_grpc(server).ok
        until(lambda: sum(b"client_secret" in asked.body for asked in first.asked) == 2, "two redirects")
        assert other.asked == []
        server.kill()
    finally:
        first.close()
        other.close()
