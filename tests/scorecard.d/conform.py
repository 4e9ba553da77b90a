# SPDX-License-Identifier: Apache-2.0
"""Lines about protocol conformance, and about error messages for mistakes of peers."""

import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import sys
import xml.etree.ElementTree as xml

import otlp
from braid import BINARY, Braid, pipelines
from card import Figure, joined, line
from pki import Authority

ROOT = pathlib.Path(__file__).resolve().parents[2]


# --- 1


def h2spec(address, path, folder, *tls):
    host, port = address.rsplit(":", 1)
    junit = folder / "h2spec.xml"
    subprocess.run([os.environ["H2SPEC"], "-h", host, "-p", port, "-P", path, "-o", "3", "-j", junit, *tls],
                   capture_output=True, timeout=600)
    cases = list(xml.parse(junit).getroot().iter("testcase"))
    return sum(len(case) == 0 for case in cases), len(cases)


@line(1, "h2spec, the conformance test of HTTP/2, over plaintext (h2c) and TLS, on the gRPC port and the HTTP port",
      "145 of 145 tests pass each time", fast=True)
def http2(folder, fast):
    names = Authority(folder).server()
    tls = {"tls": {"cert_file": str(names.cert), "key_file": str(names.key)}}
    results = []
    for what, more, flags in (("h2c", {}, ()), ("TLS", tls, ("-t", "-k"))):
        server = Braid(pipelines({"nop": {}}, grpc=more, http=more), folder / what)
        try:
            for port, path in (("grpc", otlp.TRACES.method), ("http", otlp.TRACES.path)):
                good, n = h2spec(getattr(server, port), path, folder, *flags)
                results.append(Figure(f"{port} {what} {good} of {n}", good == n >= 145))
        finally:
            server.kill()
    return joined(*results)


# --- 2 and 3


def pytest(folder, *paths):
    """Returns (passed, all) of test files. Prints the names of the tests that did not pass."""
    junit = folder / "junit.xml"
    subprocess.run([sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}", *paths], cwd=ROOT,
                   capture_output=True, stdin=subprocess.DEVNULL)
    [suite] = xml.parse(junit).getroot().iter("testsuite")
    cases = list(suite.iter("testcase"))
    bad = [case for case in cases if any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))]
    for case in bad:
        print(f"did not pass: {case.get('name')}: {case[0].get('message')}", file=sys.stderr)
    return len(cases) - len(bad), len(cases)


@line(2, "conformance tests of the rules of OTLP, gRPC and HTTP, with protobuf and JSON",
      ">= 120 checks, 0 failures")
def rules(folder, fast):
    good, n = pytest(folder, "tests/conformance/test_otlp_server.py", "tests/conformance/test_otlp_client.py")
    return Figure(f"{good} of {n} checks", good == n >= 120)


@line(3, "22 attacks over HTTP/2 and 40 cases of request smuggling, sent directly and through HAProxy and nginx",
      "each attack is ended within 1,000 frames and takes <= 1 MiB of memory; Braid and the proxy never disagree about "
      "where a request ends; other clients are served")
def attacks(folder, fast):
    figures = []
    for what, path in (("directly", "test_attacks.py"), ("behind proxies", "test_proxies.py")):
        good, n = pytest(folder, f"tests/conformance/{path}")
        figures.append(Figure(f"{what} {good} of {n} checks", good == n))
    return joined(*figures)


# --- 20

SOME = "a-token-of-some-length"
FREE = ("authorization", "service_name")  # keys of maps that accept any key: headers, labels


def misspelt(text):
    """Returns [(line, word, config)]: each key of an example of the README with two of its letters
    swapped."""
    lines = text.splitlines()
    for number, each in enumerate(lines):
        found = re.fullmatch(r"(\s+(?:- )?)([a-z_]{5,})(:.*)", each)
        if not found or found.group(2) in FREE:
            continue
        before, word, after = found.groups()
        wrong = word[:1] + word[2] + word[1] + word[3:]
        if wrong != word:
            yield number + 1, wrong, "\n".join([*lines[:number], before + wrong + after, *lines[number + 1:]]) + "\n"


@line(20, "invalid configurations",
      ">= 100 files; each error names file:line:col, the wrong word and the right word; no port is opened", fast=True)
def configs(folder, fast):
    told = n = 0
    missed = []
    for example in sorted((ROOT / "config" / "examples").glob("*.yaml")):
        for number, word, text in misspelt(example.read_text()):
            path = folder / "bad.yaml"
            path.write_text(text)
            done = subprocess.run([BINARY, "--config", path], capture_output=True, text=True, timeout=30,
                                  env={**os.environ, "TOKEN": SOME, "BRAID_CONTROL_TOKEN": SOME})
            n += 1
            where = re.search(rf"^{re.escape(str(path))}:{number}:\d+: .*", done.stderr, re.MULTILINE)
            if (done.returncode == 1 and where and word in where.group(0) and "did you mean" in where.group(0)
                    and "listening" not in done.stderr):
                told += 1
            else:
                missed.append(f"{example.stem}:{number} {word}")
    rest = f" (not {', '.join(missed[:5])}{' ...' if len(missed) > 5 else ''})" if missed else ""
    return Figure(f"{told} of {n} files, each with one key misspelt{rest}", told == n >= 100)


# --- 23


def accepts(address, context, talk=True):
    """Returns whether a client with this context gets an answer."""
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), 10) as plain, \
                context.wrap_socket(plain, server_hostname="localhost") as secure:
            if talk:  # with TLS 1.3 the server checks the client's certificate after the handshake
                secure.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                return secure.recv(100).startswith(b"HTTP/1.1 ")
            return True
    except OSError:
        return False


def client(authority, version=None, ciphers=None, names=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.cert)
    if version:
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = version
    if ciphers:
        context.set_ciphers(ciphers)
    if names:
        context.load_cert_chain(names.cert, names.key)
    return context


OLD = {"TLS 1.0": (ssl.TLSVersion.TLSv1, "ALL:@SECLEVEL=0"), "TLS 1.1": (ssl.TLSVersion.TLSv1_1, "ALL:@SECLEVEL=0"),
       **{name: (ssl.TLSVersion.TLSv1_2, name + ":@SECLEVEL=0") for name in (
           "ECDHE-ECDSA-AES128-SHA256", "ECDHE-RSA-AES128-SHA", "AES128-GCM-SHA256", "AES256-SHA", "NULL-SHA256",
           "DHE-RSA-AES128-GCM-SHA256")}}


def testssl(address, folder):
    found = shutil.which("testssl") or shutil.which("testssl.sh")
    if not found:
        return Figure("testssl is not installed", False)
    out = folder / "testssl.json"
    subprocess.run([found, "--quiet", "--jsonfile", out, address], capture_output=True, stdin=subprocess.DEVNULL,
                   timeout=600)
    bad = re.findall(r'"id"\s*:\s*"([^"]*)"[^}]*"severity"\s*:\s*"(?:MEDIUM|HIGH|CRITICAL)"', out.read_text())
    # The certificate is the test's, and Braid has no page here for which a browser expects these
    # headers.
    ours = [each for each in bad if not each.startswith("cert") and each != "security_headers"]
    return Figure(f"testssl: {len(ours)} findings above LOW {' '.join(ours)}".strip(), not ours)


@line(23, "TLS and mTLS",
      "only TLS 1.2 or newer with AEAD ciphers; testssl finds nothing above the severity LOW; 8 of 8 invalid client "
      "certificates are rejected")
def tls(folder, fast):
    ours, theirs = Authority(folder / "ours"), Authority(folder / "theirs")
    names = ours.server()
    plain = {"cert_file": str(names.cert), "key_file": str(names.key)}
    mutual = {**plain, "client_ca_file": str(ours.cert)}
    server = Braid(pipelines({"nop": {}}, grpc={"tls": mutual}, http={"tls": plain}), folder / "braid")
    try:
        weak = []
        for name, (version, ciphers) in OLD.items():
            try:
                context = client(ours, version, ciphers)
            except ssl.SSLError:
                weak.append(False)  # the test's client does not support it either
                continue
            weak.append(accepts(server.http, context, talk=False))
        new = [accepts(server.http, client(ours, version)) for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)]
        good = accepts(server.grpc, client(ours, names=ours.client()))
        bad = {"none": None, **ours.bad_clients(), "another authority": theirs.client()}
        taken = [name for name, names in bad.items() if accepts(server.grpc, client(ours, names=names))]
        return joined(
            Figure(f"{len(weak) - sum(weak)} of {len(weak)} offers of weak TLS rejected, TLS 1.2 and 1.3 accepted", not any(weak) and all(new)),
            Figure(f"{len(bad) - len(taken)} of {len(bad)} invalid client certificates rejected {' '.join(taken)}".strip(),
                   good and not taken and len(bad) >= 8),
            Figure("testssl only without --fast", True) if fast else testssl(server.http, folder))
    finally:
        server.kill()
