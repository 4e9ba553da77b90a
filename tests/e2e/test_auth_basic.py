# SPDX-License-Identifier: Apache-2.0
"""The extension basicauth: htpasswd files that other programs write, on servers and clients."""

import base64
import subprocess
import time

import pytest

from auth import guarded, post, send_grpc
from braid import exporter, pipelines, until

PASSWORD = "canary-pass: wörd"


def basic(name, password):
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def openssl(kind, password=PASSWORD):
    return subprocess.run(["openssl", "passwd", f"-{kind}", "-stdin"], input=password, check=True, capture_output=True,
                          text=True).stdout.strip()


# Hashes of "myPassword" in Apache's documentation (httpd.apache.org/docs/2.4/misc/password_encryptions.html).
APACHE = {
    "bcrypt": "$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC",
    "md5": "$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/",
    "sha1": "{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=",
}


def test_hash_types(braid, sink):
    lines = [f"{kind}:{hashed}" for kind, hashed in APACHE.items()]
    lines += [f"openssl-{kind}:{openssl(kind, 'myPassword')}" for kind in ("apr1", "1", "5", "6")]
    lines += ["", "# a comment", "plain:myPassword"]
    server = braid(guarded(sink, {"basicauth": {"htpasswd": {"inline": "\n".join(lines)}}}))
    for name in [*APACHE, "openssl-apr1", "openssl-1", "openssl-5", "openssl-6", "plain"]:
        assert post(server, auth=(name, "myPassword")).status_code == 200, name
    for name in [*APACHE, "plain", "nobody"]:
        answer = post(server, auth=(name, "mypassword"))
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Basic realm="braid", charset="UTF-8"')
    assert send_grpc(server, ("authorization", basic("sha1", "myPassword"))).ok
    assert send_grpc(server, ("authorization", basic("sha1", "no"))).code == "UNAUTHENTICATED"
    for malformed in ("Basic", "Basic !", "Basic " + base64.b64encode(b"nocolon").decode(), "Bearer x"):
        assert post(server, headers={"Authorization": malformed}).status_code in (401, 429)


def test_file_of_htpasswd_is_read_again(braid, sink, tmp_path):
    users = tmp_path / "users"
    for i, (name, kind) in enumerate((("bcrypt", "-B"), ("md5", "-m"), ("sha", "-s"), ("sha256", "-2"), ("plain", "-p"))):
        subprocess.run(["htpasswd", "-i", kind, *(["-c"] if i == 0 else []), users, name], input=PASSWORD, text=True,
                       check=True, capture_output=True)
    config = {"basicauth": {"htpasswd": {"file": str(users), "inline": "inline:first\nmd5:second"}}}
    server = braid(guarded(sink, config, workers=2))
    passwords = {"bcrypt": PASSWORD, "sha": PASSWORD, "sha256": PASSWORD, "plain": PASSWORD, "inline": "first", "md5": "second"}
    for name, password in passwords.items():
        assert send_grpc(server, ("authorization", basic(name, password))).ok, name
    subprocess.run(["htpasswd", "-D", users, "bcrypt"], check=True, capture_output=True)
    until(lambda: not send_grpc(server, ("authorization", basic("bcrypt", PASSWORD))).ok, "the removal of a user")
    assert send_grpc(server, ("authorization", basic("sha", PASSWORD))).ok
    assert PASSWORD not in server.log()


def test_a_limited_address_cannot_guess_passwords(braid, sink):
    """Above the limit, even the right password is not checked, unless it was right before."""
    lines = f"early:{APACHE['bcrypt']}\nlate:{APACHE['bcrypt']}"
    server = braid(guarded(sink, {"basicauth": {"htpasswd": {"inline": lines}}}))
    assert post(server, auth=("early", "myPassword")).status_code == 200
    codes = [post(server, auth=("late", str(i))).status_code for i in range(40)]
    assert codes[:10] == [401] * 10 and codes[-1] == 429
    assert post(server, auth=("late", "myPassword")).status_code == 429
    assert post(server, auth=("early", "myPassword")).status_code == 200
    until(lambda: post(server, auth=("late", "myPassword")).status_code == 200, "the end of the limit")


def timed(function):
    begun = time.monotonic()
    function()
    return time.monotonic() - begun


def test_known_credentials_are_not_hashed_again(braid, sink):
    """A bcrypt hash of cost 12 takes more than 100 ms. Checking an unknown user takes as long as checking a known one."""
    line = subprocess.run(["htpasswd", "-nbB", "-C", "12", "user", "right"], check=True, capture_output=True, text=True).stdout
    server = braid(guarded(sink, {"basicauth": {"htpasswd": {"inline": line}}}))
    first = timed(lambda: post(server, auth=("user", "right")).raise_for_status())
    assert first > 0.05
    assert timed(lambda: [post(server, auth=("user", "right")).raise_for_status() for _ in range(10)]) < 10 * first / 2
    assert timed(lambda: post(server, auth=("nobody", "right"))) > first / 4


@pytest.mark.parametrize("kind", ["grpc", "proto", "json"])
def test_exporters_send_user_and_password(braid, sink, kind):
    client = {"client_auth": {"username": "Aladdin", "password": "open sesame"}}  # the example of RFC 7617
    out = exporter(kind, sink, auth={"authenticator": "basicauth/out"},
                   headers={"Authorization": "replaced", "x-other": "kept"})
    server = braid(pipelines(out, extensions={"basicauth/out": client}))
    assert send_grpc(server).ok
    call = until(lambda: sink.calls, "a request")[0]
    headers = {name.lower(): value for name, value in call.headers.items()}
    assert (headers["authorization"], headers["x-other"]) == ("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "kept")


def test_client_files_are_read_again(braid, sink, tmp_path):
    (tmp_path / "name").write_text("Aladdin\n")
    (tmp_path / "password").write_text("first\n")
    client = {"client_auth": {"username_file": str(tmp_path / "name"), "password_file": str(tmp_path / "password")}}
    server = braid(pipelines(exporter("proto", sink, auth={"authenticator": "basicauth"}), extensions={"basicauth": client}))

    def sent():
        sink.calls.clear()
        assert send_grpc(server).ok
        call = until(lambda: sink.calls, "a request")[0]
        return {name.lower(): value for name, value in call.headers.items()}["authorization"]

    assert sent() == basic("Aladdin", "first")
    (tmp_path / "password").write_text("second\n")
    until(lambda: sent() == basic("Aladdin", "second"), "the new password")


def test_a_braid_authenticates_at_another(braid, sink, tmp_path):
    """Both ends of Basic and of bearer authentication, over gRPC and HTTP."""
    users = {"basicauth": {"htpasswd": {"inline": f"gateway:{openssl('6')}"}}}
    gateway = braid(guarded(sink, users))
    client = {"basicauth/out": {"client_auth": {"username": "gateway", "password": PASSWORD}}}
    for kind, more in (("grpc", {}), ("proto", {})):
        out = exporter(kind, gateway, auth={"authenticator": "basicauth/out"}, **more)
        agent = braid(pipelines(out, extensions=client))
        assert send_grpc(agent).ok
        until(lambda: agent.ledger("traces")["sent"] == 3, "the spans at the gateway")
        agent.stop()
    until(lambda: gateway.ledger("traces")["sent"] == 6, "the spans at the sink")
    for server in (agent, gateway):
        assert PASSWORD not in server.log()
