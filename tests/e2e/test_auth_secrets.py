# SPDX-License-Identifier: Apache-2.0
"""Secrets of the authenticators do not appear in the log, in errors, in metrics, in printed configurations, in responses or in
exported data. Each option has a different secret."""

import base64
import json
import subprocess

import pytest
import requests

import otlp
from braid import BINARY, DEADLINE_S, exporter, pipelines, until
from otlp import TRACES

SECRETS = [f"canary{i:02}-{name}" for i, name in enumerate((
    "token", "second", "file", "inline", "password", "passwordfile", "header", "default", "headerfile", "client", "clientfile"))]
TOKEN, SECOND, FILE, INLINE, PASSWORD, PASSWORD_FILE, HEADER, DEFAULT, HEADER_FILE, CLIENT, CLIENT_FILE = SECRETS


def config(sink, folder):
    for name, text in (("tokens", FILE), ("password", PASSWORD_FILE), ("header", HEADER_FILE), ("client", CLIENT_FILE)):
        (folder / name).write_text(text + "\n")
    extensions = {
        "bearertokenauth": {"tokens": [TOKEN, SECOND]},
        "bearertokenauth/one": {"token": TOKEN},
        "bearertokenauth/file": {"filename": str(folder / "tokens")},
        "basicauth": {"htpasswd": {"inline": f"alice:{INLINE}"}},
        "basicauth/out": {"client_auth": {"username": "braid", "password": PASSWORD}},
        "basicauth/files": {"client_auth": {"username": "braid", "password_file": str(folder / "password")}},
        "headers_setter": {"headers": [{"key": "x-fixed", "value": HEADER}, {"key": "x-file", "value_file": str(folder / "header")},
                                       {"key": "x-default", "from_context": "nothing", "default_value": DEFAULT}]},
        "oauth2client": {"client_id": "braid", "client_secret": CLIENT, "token_url": "http://127.0.0.1:1/token"},
        "oauth2client/file": {"client_id": "braid", "client_secret_file": str(folder / "client"),
                              "token_url": "http://127.0.0.1:1/token"},
    }
    retry = {"retry_on_failure": {"enabled": False}}
    exporters = {}
    for i, name in enumerate(("basicauth/out", "basicauth/files", "headers_setter", "bearertokenauth/file", "oauth2client",
                              "oauth2client/file")):
        exporters.update(exporter("proto", sink, f"/{i}", auth={"authenticator": name}, **retry))
    return pipelines({**exporters, "store": {"directory": str(folder / "store")}},
                     extensions={**extensions, "query": {"endpoint": "127.0.0.1:0", "auth": {"authenticator": "bearertokenauth"}}},
                     grpc={"auth": {"authenticator": "bearertokenauth"}}, http={"auth": {"authenticator": "basicauth"}})


def forms(secret):
    """A secret as it is, and in the encodings of headers."""
    yield secret
    for user in ("alice", "braid"):
        yield base64.b64encode(f"{user}:{secret}".encode()).decode()


def check_absent(text, where):
    found = [secret for secret in SECRETS for form in forms(secret) if form in text]
    assert not found, where


@pytest.mark.parametrize("command", [["validate"], ["print-config"], ["print-config", "--defaults"]], ids=" ".join)
def test_printed_configurations(sink, tmp_path, command):
    (tmp_path / "config.yaml").write_text(json.dumps(config(sink, tmp_path)))
    done = subprocess.run([BINARY, *command, "--config", tmp_path / "config.yaml"], capture_output=True, text=True,
                          timeout=DEADLINE_S)
    check_absent(done.stdout + done.stderr, command)


def test_errors(sink, tmp_path):
    """Each secret is invalid where it is."""
    broken = config(sink, tmp_path)
    extensions = broken["extensions"]
    extensions["bearertokenauth"] = {"tokens": [TOKEN + " ", SECOND]}
    extensions["bearertokenauth/one"] = {"token": [TOKEN]}
    extensions["basicauth"] = {"htpasswd": {"inline": INLINE}}
    extensions["basicauth/out"] = {"client_auth": {"username": "a:b", "password": {"a": PASSWORD}}}
    extensions["headers_setter"] = {"headers": [{"key": "a", "value": HEADER, "from_context": "b", "default_value": DEFAULT}]}
    extensions["oauth2client"] = {"client_id": "", "client_secret": {"a": CLIENT}, "token_url": "x"}
    (tmp_path / "config.yaml").write_text(json.dumps(broken))
    done = subprocess.run([BINARY, "validate", "--config", tmp_path / "config.yaml"], capture_output=True, text=True,
                          timeout=DEADLINE_S)
    assert done.returncode != 0
    check_absent(done.stdout + done.stderr, "errors")


def test_a_running_process(braid, sink, tmp_path):
    settings = config(sink, tmp_path)
    settings["service"]["telemetry"]["logs"] = {"level": "trace"}
    server = braid(settings)
    query = f"http://{server.address('http', 'extension/query')}"
    body = otlp.trace_request(3).SerializeToString()
    kind = {"content-type": "application/x-protobuf"}
    url = f"http://{server.http}{TRACES.path}"
    seen = []

    def keep(answer):
        seen.append(answer.text + str(answer.headers))
        return answer.status_code

    post = lambda **more: keep(requests.post(url, body, timeout=DEADLINE_S, **more))
    assert post(headers=kind, auth=("alice", INLINE)) == 200
    for password in (INLINE[:-1], PASSWORD, TOKEN):
        assert post(headers=kind, auth=("alice", password)) == 401
    assert post(headers={**kind, "Authorization": f"Bearer {INLINE}"}) == 401
    get = lambda path, token: keep(requests.get(query + path, headers={"Authorization": f"Bearer {token}"}, timeout=DEADLINE_S))
    for path in ("/", "/api/braid/status", "/api/braid/session", "/api/search/tags", "/nothing"):
        get(path, TOKEN)
        get(path, SECOND)
        get(path, CLIENT)
    login = requests.post(query + "/api/braid/session", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=DEADLINE_S)
    assert keep(login) == 200
    until(lambda: len(sink.calls) >= 4, "the requests that have credentials")
    server.wait_log("no token from the token server")
    headers = [str(call.headers) for call in sink.calls]
    for secret in (HEADER, HEADER_FILE, DEFAULT, FILE):
        assert any(secret in text for text in headers), secret
    for i, text in enumerate(seen):
        check_absent(text, f"answer {i}")
    for call in sink.calls:
        check_absent(str(call.message), "exported data")
    metrics = requests.get(f"http://{server.address('metrics', node=None)}/metrics", timeout=DEADLINE_S).text
    check_absent(metrics, "metrics")
    server.stop()
    check_absent(server.log(), "the log")
    cookie = login.headers["Set-Cookie"].split(";")[0].split("=")[1]
    assert cookie not in server.log()
