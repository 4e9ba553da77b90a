# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 by h2spec (RFC 7540 and 7541): both ports, every case."""

import os
import pathlib
import subprocess
import xml.etree.ElementTree as xml

import pytest

import otlp
from braid import pipelines

H2SPEC = os.environ.get("H2SPEC",
                        str(pathlib.Path(__file__).parents[2] / "build" / "bin" / "h2spec"))


@pytest.mark.parametrize("port, path", [("grpc", otlp.TRACES.method), ("http", otlp.TRACES.path)])
def test_h2spec(braid, tmp_path, port, path):
    server = braid(pipelines({"nop": {}}))
    host, number = getattr(server, port).split(":")
    junit = tmp_path / "h2spec.xml"
    done = subprocess.run(
        [H2SPEC, "-h", host, "-p", number, "-P", path, "-o", "3", "-j",
         str(junit)],
        capture_output=True,
        text=True,
        timeout=600)
    cases = list(xml.parse(junit).getroot().iter("testcase"))
    bad = [f"{case.get('classname')}: {case.get('name')}" for case in cases if len(case)]
    assert not bad, done.stdout
    assert len(cases) >= 145
