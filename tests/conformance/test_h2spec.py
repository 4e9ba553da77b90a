# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 by h2spec (RFC 7540 and 7541): both ports, plain and over TLS, every case."""

import os
import pathlib
import subprocess
import xml.etree.ElementTree as xml

import pytest

import certs
import otlp
from braid import pipelines

H2SPEC = os.environ.get("H2SPEC",
                        str(pathlib.Path(__file__).parents[2] / "build" / "bin" / "h2spec"))


@pytest.mark.parametrize("tls", [False, True], ids=["h2c", "tls"])
@pytest.mark.parametrize("port, path", [("grpc", otlp.TRACES.method), ("http", otlp.TRACES.path)])
def test_h2spec(braid, tmp_path, port, path, tls):
    options = {}
    if tls:
        pem = str(certs.self_signed(tmp_path))
        options = {"tls": {"cert_file": pem, "key_file": pem}}
    server = braid(pipelines({"nop": {}}, grpc=options, http=options))
    host, number = getattr(server, port).split(":")
    junit = tmp_path / "h2spec.xml"
    done = subprocess.run(
        [H2SPEC, "-h", host, "-p", number, "-P", path, "-o", "3", "-j", str(junit),
         *(["-t", "-k"] if tls else [])],
        capture_output=True,
        text=True,
        timeout=600)
    cases = list(xml.parse(junit).getroot().iter("testcase"))
    bad = [f"{case.get('classname')}: {case.get('name')}" for case in cases if len(case)]
    assert not bad, done.stdout
    assert len(cases) >= 145
