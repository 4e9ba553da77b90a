# SPDX-License-Identifier: Apache-2.0
"""Authentication of the query extension (page, APIs and sessions), control, health_check and metrics."""

import os
import re
import subprocess

import pytest
import requests

import clients
from auth import BEARER, TOKEN
from braid import BINARY, DEADLINE_S, until

RIGHT = {"Authorization": f"Bearer {TOKEN}"}
USERS = {"basicauth": {"htpasswd": {"inline": "grafana:plain-canary"}}}
SESSION = "/api/braid/session"


@pytest.fixture
def serve(braid, tmp_path):
    """Returns a function that starts Braid with the extension query, and returns (server, base URL)."""
    def start(extensions=BEARER, **query):
        auth = {"authenticator": next(iter(extensions))} if extensions else {}
        pipeline = {"receivers": ["otlp"], "exporters": ["store"]}
        server = braid({
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}},
            "exporters": {"store": {"directory": str(tmp_path / "store")}},
            "extensions": {**extensions, "query": {"endpoint": "127.0.0.1:0", **({"auth": auth} if auth else {}), **query}},
            "service": {"extensions": [*extensions, "query"], "pipelines": {"traces": pipeline, "profiles": pipeline},
                        "telemetry": {"metrics": {"level": "none"}}}})
        return server, f"http://{server.address('http', 'extension/query')}"
    return start


def status(method, url, **more):
    return requests.request(method, url, timeout=DEADLINE_S, **more).status_code


# Requests of the data sources of Grafana: Tempo and Pyroscope.
APIS = ["/api/search/tags", "/api/echo", "/api/braid/status", "/api/braid/slice", "/pyroscope/render?query=x", "/api/traces/1"]


@pytest.mark.parametrize("path", APIS)
def test_every_api_needs_credentials(serve, path):
    _, base = serve()
    assert status("GET", base + path) == 401
    assert status("GET", base + path, headers={"Authorization": "Bearer no"}) == 401
    assert status("GET", base + path, headers=RIGHT) not in (401, 429)


def test_post_and_grpc_apis_need_credentials(serve):
    _, base = serve()
    path = "/querier.v1.QuerierService/ProfileTypes"
    assert status("POST", base + path, json={}) == 401
    assert status("POST", base + path, json={"start": 0, "end": 1}, headers=RIGHT) == 200
    call = lambda *metadata: clients.grpc(base.removeprefix("http://"), None, b"", metadata,
                                          method="/tempopb.StreamingQuerier/SearchTags")
    assert call().code == "UNAUTHENTICATED"


def test_basic_credentials_of_a_data_source(serve):
    _, base = serve(USERS)
    assert status("GET", base + "/api/search/tags", auth=("grafana", "plain-canary")) == 200
    answer = requests.get(base + "/api/search/tags", auth=("grafana", "no"), timeout=DEADLINE_S)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Basic realm="braid", charset="UTF-8"')


def test_session_of_the_page(serve):
    server, base = serve()
    browser = requests.Session()
    assert browser.get(base + "/", timeout=DEADLINE_S).status_code == 200
    described = {"required": True, "session": False, "credentials": "token", "header": "authorization", "scheme": "Bearer"}
    assert browser.get(base + SESSION, timeout=DEADLINE_S).json() == described
    assert browser.post(base + SESSION, timeout=DEADLINE_S).status_code == 401
    wrong = browser.post(base + SESSION, headers={"Authorization": "Bearer no", "Sec-Fetch-Mode": "cors",
                                                  "Sec-Fetch-Site": "same-origin"}, timeout=DEADLINE_S)
    assert (wrong.status_code, wrong.headers["WWW-Authenticate"]) == (401, 'X-Bearer realm="braid"')
    answer = browser.post(base + SESSION, headers=RIGHT, timeout=DEADLINE_S)
    assert (answer.status_code, answer.json()) == (200, {**described, "session": True})
    cookie = answer.headers["Set-Cookie"]
    assert re.fullmatch(r"braid-session-\d+=[0-9a-f]{64}; Path=/; HttpOnly; SameSite=Strict", cookie)
    assert answer.headers["Cache-Control"] == "no-store"
    assert browser.get(base + "/api/braid/status", timeout=DEADLINE_S).status_code == 200
    assert browser.get(base + SESSION, timeout=DEADLINE_S).json()["session"] is True
    value = cookie.split(";")[0]
    assert status("GET", base + "/api/braid/status", headers={"Cookie": "a=b; " + value + "; c=d"}) == 200
    for forged in (value[:-1], value + "0", value.replace("=", "=x"), value.split("=")[0] + "=", "braid-session=" + value):
        assert status("GET", base + "/api/braid/status", headers={"Cookie": forged}) == 401
    # other sites: browsers would not send the cookie, and the request is rejected even with it
    other = {"Cookie": value, "Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert status("GET", base + "/api/braid/status", headers=other) == 403
    assert status("POST", base + SESSION, headers={**RIGHT, **other}) == 403
    assert status("DELETE", base + SESSION, headers=other) == 403
    answer = browser.delete(base + SESSION, timeout=DEADLINE_S)
    assert answer.json()["session"] is False and "Max-Age=0" in answer.headers["Set-Cookie"]
    assert status("GET", base + "/api/braid/status", headers={"Cookie": value}) == 401
    assert TOKEN not in server.log() and value.split("=")[1] not in server.log()


def test_sessions_end_with_their_credentials(serve, tmp_path):
    (tmp_path / "token").write_text("first")
    _, base = serve({"bearertokenauth": {"filename": str(tmp_path / "token")}})
    answer = requests.post(base + SESSION, headers={"Authorization": "Bearer first"}, timeout=DEADLINE_S)
    cookie = {"Cookie": answer.headers["Set-Cookie"].split(";")[0]}
    assert status("GET", base + "/api/braid/status", headers=cookie) == 200
    (tmp_path / "token").write_text("second")
    until(lambda: status("GET", base + "/api/braid/status", headers=cookie) == 401, "the end of the session")


def test_the_least_recently_used_session_ends(serve):
    _, base = serve()
    log_in = lambda: requests.post(base + SESSION, headers=RIGHT, timeout=DEADLINE_S).headers["Set-Cookie"].split(";")[0]
    works = lambda cookie: status("GET", base + "/api/braid/status", headers={"Cookie": cookie}) == 200
    first, second = log_in(), log_in()
    for _ in range(62):
        log_in()
    assert works(first)
    log_in()
    assert works(first) and not works(second)


def test_query_command_sends_credentials(serve):
    _, base = serve()
    run = lambda **env: subprocess.run([BINARY, "query", "spans", "--url", base], capture_output=True, text=True,
                                       timeout=DEADLINE_S, env={**os.environ, **env})
    assert run().returncode != 0 and "credentials" in run().stderr
    assert run(BRAID_AUTHORIZATION=f"Bearer {TOKEN}").returncode == 0


def test_without_auth_there_is_no_login(serve):
    _, base = serve({})
    assert requests.get(base + SESSION, timeout=DEADLINE_S).json() == {"required": False, "session": False}
    assert status("POST", base + SESSION) == 405
    assert status("GET", base + "/api/braid/status") == 200


def test_control_health_check_and_metrics(braid, sink, tmp_path):
    auth = {"auth": {"authenticator": "bearertokenauth"}}
    pipeline = {"receivers": ["nop"], "exporters": ["nop"]}
    server = braid({
        "receivers": {"nop": {}}, "exporters": {"nop": {}},
        "extensions": {**BEARER, "control": {"endpoint": "127.0.0.1:0", **auth},
                       "health_check": {"endpoint": "127.0.0.1:0", **auth}},
        "service": {"extensions": ["bearertokenauth", "control", "health_check"], "pipelines": {"traces": pipeline},
                    "telemetry": {"metrics": {"address": "127.0.0.1:0", **auth}}, "workers": 2}})
    urls = {"control": f"http://{server.address('http', 'extension/control')}/v1/profiling",
            "health_check": f"http://{server.address('http', 'extension/health_check')}/",
            "metrics": f"http://{server.address('metrics', node=None)}/metrics"}
    for name, url in urls.items():
        assert [status("GET", url), status("GET", url, headers=RIGHT)] == [401, 200], name
    text = requests.get(urls["metrics"], headers=RIGHT, timeout=DEADLINE_S).text
    assert 'server="extension/control http"' in text and TOKEN not in text
