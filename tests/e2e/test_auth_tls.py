# SPDX-License-Identifier: Apache-2.0
"""Client certificates: the log has the reason of a rejection, the client does not; changed CA files keep connections open."""

import pathlib
import shutil
import socket
import ssl
import sys

import pytest

import otlp
from auth import guarded
from braid import DEADLINE_S, exporter, pipelines, until

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "scorecard.d"))
from pki import Authority  # noqa: E402

BODY = otlp.trace_request(1).SerializeToString()


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    return Authority(folder / "ours"), Authority(folder / "theirs")


def mutual(sink, ours, ca, **more):
    server = ours.server()
    return pipelines(exporter("grpc", sink), http={"tls": {"cert_file": str(server.cert), "key_file": str(server.key),
                                                           "client_ca_file": str(ca), **more}})


def connect(server, ours, names=None):
    context = ssl.create_default_context(cafile=ours.cert)
    if names:
        context.load_cert_chain(names.cert, names.key)
    host, port = server.http.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
    return context.wrap_socket(sock, server_hostname="localhost")


def post(sock):
    sock.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
    return sock.recv(4096)


def outcome(server, ours, names):
    """Returns the response, or what the client learns of the rejection."""
    try:
        with connect(server, ours, names) as sock:
            return post(sock).decode()
    except OSError as error:
        return str(error)


# What OpenSSL calls each fault of a certificate (X509_verify_cert_error_string).
REASONS = {
    "none": "sent no certificate",
    "expired": "certificate has expired",
    "not yet valid": "certificate is not yet valid",
    "for servers": "certificate purpose",
    "for code": "certificate purpose",
    "signed by itself": "self.signed certificate",
    "signed by a leaf": "invalid CA certificate",
    "another authority": "unable to get local issuer certificate",
}


@pytest.fixture(scope="module")
def bad(authorities):
    ours, theirs = authorities
    return {"none": None, **ours.bad_clients(), "another authority": theirs.client()}


@pytest.mark.parametrize("fault", REASONS)
def test_reason_is_logged_and_not_sent(braid, sink, authorities, bad, fault):
    """TLS has an alert for some faults (RFC 8446 section 6.2); the client receives nothing else."""
    ours, _ = authorities
    server = braid(mutual(sink, ours, ours.cert))
    seen = outcome(server, ours, bad[fault])
    assert "200 OK" not in seen
    server.wait_log(rf"http: rejected a connection from 127\.0\.0\.1:\d+: .*{REASONS[fault]}")
    assert not any(word in seen for word in ("purpose", "issuer", "not yet", "invalid CA", "self")), seen
    assert "200 OK" in outcome(server, ours, ours.client("good-" + fault.replace(" ", "-")))


def test_a_changed_ca_file_keeps_connections(braid, sink, authorities, tmp_path):
    ours, theirs = authorities
    good, other = ours.client("good"), theirs.client("other")
    ca = tmp_path / "ca.pem"
    shutil.copy(ours.cert, ca)
    server = braid(mutual(sink, ours, ca, client_ca_file_reload=True))
    assert "200 OK" not in outcome(server, ours, other)
    with connect(server, ours, good) as sock:
        assert b"200 OK" in post(sock)
        shutil.copy(theirs.cert, tmp_path / "new")
        (tmp_path / "new").replace(ca)
        until(lambda: "200 OK" in outcome(server, ours, other), "the new CA")
        assert "200 OK" not in outcome(server, ours, good)
        assert b"200 OK" in post(sock)


def test_tokens_and_certificates_together(braid, sink, authorities):
    ours, _ = authorities
    names = ours.client("both")
    config = guarded(sink)
    config["receivers"]["otlp"]["protocols"]["http"].update(mutual(sink, ours, ours.cert)["receivers"]["otlp"]["protocols"]["http"])
    server = braid(config)
    with connect(server, ours, names) as sock:
        assert b"401 Unauthorized" in post(sock)
