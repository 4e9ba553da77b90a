# SPDX-License-Identifier: Apache-2.0
"""Certificates for servers under test."""

import subprocess

DEADLINE_S = 30


def self_signed(folder):
    """Writes a PEM file with the key and the certificate of 127.0.0.1, which is self-signed."""
    key, certificate = folder / "server.pem", folder / "server.crt"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True, timeout=DEADLINE_S)
    key.write_text(key.read_text() + certificate.read_text())
    return key
