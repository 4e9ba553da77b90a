# SPDX-License-Identifier: Apache-2.0
"""The attacks of test_attacks.py and http1_cases.h through Debian's HAProxy and nginx, which keep
connections to Braid and share them among clients. A proxy may handle an attack in any way,
but it must agree with Braid about where requests end. Braid sends as many answers as the proxy sends
requests. It accepts only data that the proxy saw as a request. The next client on the shared
connection gets the answer to its request."""

import ast
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess

import pytest

import clients
import otlp
from braid import DEADLINE_S, Braid, exporter, pipelines, until
from otlp import TRACES
from raw import DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, Raw, block, frame, h2, literal
from sink import Sink
from tap import Tap

HERE = pathlib.Path(__file__).resolve().parent
CASES = HERE.parent / "support" / "http1_cases.h"
PROXIES = ("haproxy", "haproxy lenient", "nginx")
FRAMES = 1000  # few enough for a proxy to accept them all


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


attacks = load(HERE / "test_attacks.py")


def literals(text, macros):
    """Returns the bytes of adjacent string literals and macros, joined as in C."""
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|\w+', text)
    return b"".join(ast.literal_eval("b" + token) if token[0] == '"' else macros[token] for token in tokens)


def requests_of_http1_cases():
    """Returns {name: bytes} of the requests in tests/support/http1_cases.h."""
    text, macros = CASES.read_text(), {}
    for name, value in re.findall(r'^#define (\w+) (".*)$', text, re.MULTILINE):
        macros[name] = literals(value, macros)
    string = r'"(?:[^"\\]|\\.)*"'
    found = re.findall(rf'\bQ\(\d+, ({string}), ({string}),\s*((?:{string}|\w+|\s)+)\),', text)
    return {f"{ast.literal_eval(section)}: {ast.literal_eval(what)}": literals(data, macros)
            for section, what, data in found}


def body_of(name):
    span = {"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331", "name": name}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def post(name, *lines):
    """A valid request, whose span and query have this name."""
    body = body_of(name)
    head = [b"POST /v1/traces?%s HTTP/1.1" % name.encode(), b"Host: h", b"Content-Type: application/json",
            b"Content-Length: %d" % len(body), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


FOLLOWS, INSIDE = "follows", "inside"


def hidden(*lines, before=b"", after=b""):
    """A request whose body contains another one, for a server that uses the other of two lengths.
    The content type is protobuf, for which an empty body is valid, too: a server that sees no
    body answers 200 and reads on."""
    return (b"POST /v1/traces HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-protobuf\r\n"
            + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + before + post(INSIDE) + after)


def chunk(data):
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)


LONG = b"Content-Length: %d" % (5 + len(post(INSIDE)))
SHAPES = {  # values of Transfer-Encoding that one side may take for chunked and the other not
    "plain": b"Transfer-Encoding: chunked", "blank before the colon": b"Transfer-Encoding : chunked",
    "tab": b"Transfer-Encoding:\tchunked", "vertical tab": b"Transfer-Encoding:\x0bchunked",
    "xchunked": b"Transfer-Encoding: xchunked", "folded": b"Transfer-Encoding:\r\n chunked",
    "bare LF": b"X: y\nTransfer-Encoding: chunked", "bare CR": b"X: y\rTransfer-Encoding: chunked",
    "quoted": b'Transfer-Encoding: "chunked"', "two": b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
    "list": b"Transfer-Encoding: identity, chunked", "underscore": b"Transfer_Encoding: chunked",
    "NUL": b"Transfer-Encoding: chunked\0", "upper case": b"TRANSFER-ENCODING: CHUNKED",
}
HIDDEN = {
    **{f"CL.TE, {name}": hidden(LONG, line, before=b"0\r\n\r\n") for name, line in SHAPES.items()},
    **{f"TE.CL, {name}": hidden(b"Content-Length: 4", line,
                                before=b"%x\r\n" % len(post(INSIDE)), after=b"\r\n0\r\n\r\n")
       for name, line in SHAPES.items()},
    "two lengths": hidden(b"Content-Length: 0", b"Content-Length: %d" % len(post(INSIDE))),
    "two lengths, other order": hidden(b"Content-Length: %d" % len(post(INSIDE)), b"Content-Length: 0"),
    "length with a plus": hidden(b"Content-Length: +0"),
    "upgrade with a length": hidden(b"Connection: upgrade", b"Upgrade: h2c", b"Content-Length: 0"),
    "expectation": hidden(b"Expect: 100-continue", b"Content-Length: %d" % len(post(INSIDE))),
    "GET with a body": hidden(b"Content-Length: %d" % len(post(INSIDE))).replace(b"POST", b"GET", 1),
    "LF in an extension": hidden(SHAPES["plain"], before=b"2;\n", after=b"\r\n0\r\n\r\n"),
    "CR in an extension": hidden(SHAPES["plain"], before=b"2;\rxx\r\n{}\r\n0\r\n\r\n"),
    "a trailer": hidden(SHAPES["plain"], before=b"0\r\nContent-Length: 9\r\n\r\n"),
    "1.0 that keeps alive": hidden(b"Connection: keep-alive", SHAPES["plain"], before=b"0\r\n\r\n")
                            .replace(b"HTTP/1.1", b"HTTP/1.0", 1),
}
ATTACKS = {**{f"smuggling, {name}": data for name, data in attacks.SMUGGLING.items()},
           **requests_of_http1_cases(), **{f"hidden, {name}": data for name, data in HIDDEN.items()}}


# --- The proxies

HAPROXY = """
global
  log stdout format raw local0
  nbthread 1
defaults
  mode http
  log global
  log-format "seen %b/%s %ST %{+Q}r"
  retries 0
  timeout connect 10s
  timeout client 1s
  timeout http-request 1s
  timeout server 30s
frontend http1
  bind fd@{http1}
  {lenient}
  default_backend http1
frontend down
  bind fd@{down} proto h2
  {lenient}
  default_backend http1
frontend h2
  bind fd@{h2} proto h2
  default_backend h2
backend http1
  http-reuse always
  server braid {http} maxconn 1 pool-max-conn 1
backend h2
  http-reuse always
  server braid {grpc} proto h2
"""

NGINX = """
daemon off; user root; worker_processes 1; pid {folder}/pid; error_log {folder}/error info;
events {{ worker_connections 256; }}
http {{
  log_format ours 'seen $upstream_addr $status "$request"';
  access_log {folder}/log ours;
  client_body_temp_path {folder}/1; proxy_temp_path {folder}/2; fastcgi_temp_path {folder}/3;
  uwsgi_temp_path {folder}/4; scgi_temp_path {folder}/5;
  client_body_timeout 1s; client_header_timeout 1s; keepalive_timeout 10s; lingering_close off;
  ignore_invalid_headers off; underscores_in_headers on;
  upstream http1 {{ server {http}; keepalive 1; }}
  proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
  proxy_request_buffering off; proxy_next_upstream off;
  server {{ listen {http1}; location / {{ proxy_pass http://http1; }} }}
  server {{ listen {down} http2; location / {{ proxy_pass http://http1; }} }}
  server {{ listen {h2} http2; location / {{ grpc_pass grpc://{grpc}; }} }}
}}
"""


def program(name):
    return shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")


@dataclasses.dataclass
class Proxy:
    """A proxy in front of a Braid process, with a tap between the two."""
    braid: Braid
    sink: Sink
    tap: Tap  # on the HTTP/1.1 side
    log: pathlib.Path
    process: subprocess.Popen
    http1: str  # clients use HTTP/1.1, and so does the proxy
    down: str   # clients use HTTP/2, the proxy uses HTTP/1.1
    h2: str     # both use HTTP/2
    n_victims: int = 0

    def asked(self):
        """Returns [(status, request line)] of the proxy's HTTP/1.1 requests to Braid."""
        lines = re.findall(r'^seen (\S+) (\d+) "(.*)"$', self.log.read_text(errors="replace"), re.MULTILINE)
        return [(int(status), request) for to, status, request in lines if to in ("http1/braid", self.tap.http)]

    def n_answers(self):
        """Returns the number of Braid's answers, without interim answers."""
        return sum(count_answers(bytes(data)) for data in self.tap.received)

    def names(self):
        return [span.name for call in list(self.sink.calls) for _, _, span in otlp.spans_of(call.message)]


def count_answers(data):
    n = 0
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        status = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
        assert status, data[:200]
        if not end:
            break
        length = re.search(rb"\r\ncontent-length: (\d+)", head, re.IGNORECASE)
        n += int(status.group(1)) >= 200
        data = rest[int(length.group(1)) if length else 0:]
    return n


def start(name, folder, sockets, braid, tap):
    """Starts the program on sockets that the test has bound: otherwise a port might not be free any
    more."""
    values = {"http": tap.http, "grpc": braid.grpc, "folder": folder}
    if name.startswith("haproxy"):
        lenient = "option accept-invalid-http-request" if "lenient" in name else ""
        text = HAPROXY.replace("{+Q}", "{{+Q}}").format(
            **values, lenient=lenient, **{key: each.fileno() for key, each in sockets.items()})
        command, environment = [program("haproxy"), "-f", str(folder / "config")], {}
    else:
        names = {key: "%s:%d" % each.getsockname() for key, each in sockets.items()}
        text = NGINX.format(**values, **names)
        command = [program("nginx"), "-c", str(folder / "config"), "-p", str(folder), "-e", str(folder / "error")]
        environment = {"NGINX": "".join(f"{each.fileno()};" for each in sockets.values())}
    (folder / "config").write_text(text)
    with (folder / ("log" if "haproxy" in name else "out")).open("wb") as out:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                pass_fds=[each.fileno() for each in sockets.values()],
                                env={**os.environ, **environment})


@pytest.fixture(scope="module", params=PROXIES)
def proxy(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("proxy")
    sink = Sink()
    braid = Braid(pipelines(exporter("grpc", sink)), folder / "braid")
    tap = Tap(braid.http)
    sockets = {each: socket.create_server(("127.0.0.1", 0)) for each in ("http1", "down", "h2")}
    process = start(request.param, folder, sockets, braid, tap)
    addresses = {key: "%s:%d" % each.getsockname() for key, each in sockets.items()}
    for each in sockets.values():
        each.close()
    try:
        made = Proxy(braid, sink, tap, folder / "log", process, **addresses)
        until(lambda: (folder / "log").exists() or process.poll() is not None, request.param)
        assert process.poll() is None, (folder / "log").read_text()
        yield made
        healthy(made)
        braid.stop()
    finally:
        process.terminate()  # nginx's child processes end with it, but not if it gets SIGKILL
        process.wait(DEADLINE_S)
        braid.kill()
        tap.close()
        sink.close()


# --- Checks


def healthy(proxy):
    """Other clients' requests, over any of the proxy's connections to Braid: each gets the right
    answer."""
    for _ in range(2):
        proxy.n_victims += 1
        name = f"victim{proxy.n_victims}"
        answer = clients.http(proxy.http1, f"{TRACES.path}?{name}", body_of(name), otlp.JSON)
        assert (answer.code, answer.body) == (200, b"{}"), answer
        until(lambda n=name: proxy.names().count(n) == 1, f"{name} at the sink")
        until(lambda n=name: any(f"?{n} " in request for _, request in proxy.asked()), f"{name} in the log")
    # A proxy may still use a connection that Braid has closed. It then rejects a stream, which
    # clients send again (RFC 9113, 8.7).
    until(lambda: clients.grpc(proxy.h2, TRACES, otlp.trace_request(1).SerializeToString()).ok, "an answer over gRPC")


def differences(proxy, asked, n_answers, names):
    """Returns the differences between the proxy and Braid since these counts; "" if they agree."""
    new = proxy.asked()[asked:]
    accepted = sorted(name for name in proxy.names()[names:] if name in (FOLLOWS, INSIDE))
    meant = sorted(name for status, request in new for name in (FOLLOWS, INSIDE)
                   if status == 200 and f"?{name} " in request)
    if proxy.n_answers() - n_answers > len(new):
        return f"{proxy.n_answers() - n_answers} answers to {len(new)} requests"
    return "" if accepted == meant else f"{accepted} accepted, {meant} sent"


@pytest.fixture
def agreement(proxy):
    """Checks after the test, however it ended for the attacker."""
    before = (len(proxy.asked()), proxy.n_answers(), len(proxy.names()))
    yield
    healthy(proxy)
    found = differences(proxy, *before)
    if found:  # the proxy may write its log a moment later
        until(lambda: not differences(proxy, *before), f"an end of: {found}")


# --- HTTP/1.1


@pytest.mark.parametrize("name", ATTACKS)
def test_smuggling(proxy, agreement, name):
    with Raw(proxy.http1) as attacker:
        attacker.send(ATTACKS[name] + post(FOLLOWS, b"Connection: close"))
        attacker.wait()
        answers = attacker.got.count(b"HTTP/1.1 ") + attacker.got.count(b"HTTP/1.0 ")
    assert answers <= 4, attacker.got


# --- HTTP/2 in front, HTTP/1.1 behind


def lying(path="/v1/traces", *fields, method=b"POST", flags=END_HEADERS, data=post(INSIDE)):
    return lambda n: (frame(HEADERS, flags, n, block(path, (b"content-type", b"application/x-protobuf"), *fields, method=method))
                      + (b"" if flags & END_STREAM else frame(DATA, END_STREAM, n, data)))


REQUEST = " HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n" + post(INSIDE).decode()
DOWN = {
    "length too short": lying("/v1/traces", (b"content-length", b"0")),
    "length too short by one": lying("/v1/traces", (b"content-length", b"%d" % (len(post(INSIDE)) - 1))),
    "length too long": lying("/v1/traces", (b"content-length", b"9999")),
    "two lengths": lying("/v1/traces", (b"content-length", b"0"), (b"content-length", b"%d" % len(post(INSIDE)))),
    "length with a plus": lying("/v1/traces", (b"content-length", b"+0")),
    "length with a list": lying("/v1/traces", (b"content-length", b"0, 0")),
    "length and nothing": lying("/v1/traces", (b"content-length", b"9"), flags=END_HEADERS | END_STREAM),
    "no length": lying("/v1/traces"),
    "chunked": lying("/v1/traces", (b"transfer-encoding", b"chunked"), data=b"0\r\n\r\n" + post(INSIDE)),
    "chunked and a length": lying("/v1/traces", (b"transfer-encoding", b"chunked"), (b"content-length", b"5"),
                                  data=b"0\r\n\r\n" + post(INSIDE)),
    "chunked with a blank": lying("/v1/traces", (b"transfer-encoding ", b"chunked"), data=b"0\r\n\r\n" + post(INSIDE)),
    "a line in a value": lying("/v1/traces", (b"x", b"y\r\nTransfer-Encoding: chunked"), data=b"0\r\n\r\n" + post(INSIDE)),
    "a line feed in a value": lying("/v1/traces", (b"x", b"y\nContent-Length: 0")),
    "a NUL in a value": lying("/v1/traces", (b"x", b"y\0")),
    "a line in a name": lying("/v1/traces", (b"x: y\r\ntransfer-encoding", b"chunked"), data=b"0\r\n\r\n" + post(INSIDE)),
    "a colon in a name": lying("/v1/traces", (b"content-length: 0\r\nx", b"y")),
    "upper case": lying("/v1/traces", (b"Content-Length", b"0")),
    "connection": lying("/v1/traces", (b"connection", b"content-length")),
    "upgrade": lying("/v1/traces", (b"connection", b"upgrade"), (b"upgrade", b"h2c")),
    "expectation": lying("/v1/traces", (b"expect", b"100-continue")),
    "request in the path": lying("/v1/traces" + REQUEST),
    "blank in the path": lying("/v1/traces HTTP/1.1"),
    "line feed in the path": lying("/v1/traces\nx"),
    "no slash in the path": lying("v1/traces"),
    "absolute path": lying("http://other/v1/traces"),
    "request in the method": lying("/v1/traces", method=b"POST /v1/traces" + REQUEST.encode()),
    "blank in the method": lying("/v1/traces", method=b"GET /v1/traces HTTP/1.1\r\nx:"),
    "two hosts": lying("/v1/traces", (b"host", b"other")),
    "two paths": lying("/v1/traces", (b":path", b"/smuggled")),
    "a pseudo-header behind a field": lying("/v1/traces", (b"x", b"y"), (b":method", b"GET")),
    "unknown pseudo-header": lying("/v1/traces", (b":x", b"y")),
    "trailers with a length": lambda n: (
        frame(HEADERS, END_HEADERS, n, block("/v1/traces", (b"content-type", b"application/x-protobuf")))
        + frame(DATA, 0, n, post(INSIDE))
        + frame(HEADERS, END_HEADERS | END_STREAM, n, literal(b"transfer-encoding", b"chunked"))),
}


@pytest.mark.parametrize("name", DOWN)
def test_smuggling_from_http2(proxy, agreement, name):
    body = body_of(FOLLOWS)
    follows = (frame(HEADERS, END_HEADERS, 3, block(f"/v1/traces?{FOLLOWS}", (b"content-type", b"application/json"),
                                                    (b"content-length", b"%d" % len(body))))
               + frame(DATA, END_STREAM, 3, body))
    with h2(proxy.down) as attacker:
        attacker.send(DOWN[name](1) + follows)

        def over():
            ends = [kind for kind, flags, stream, _ in attacker.frames()
                    if stream == 3 and (kind == RST_STREAM or flags & END_STREAM)]
            return attacker.read() or ends or attacker.goaway() is not None
        attacker.wait(over)


# --- HTTP/2 in front, HTTP/2 behind


@pytest.mark.parametrize("name", attacks.FLOODS)
def test_flood(proxy, agreement, name):
    """The proxy may accept it, forward it or end it; others are served all the time, and Braid
    holds no memory for it."""
    with h2(proxy.h2) as attacker:
        for _, data in zip(range(FRAMES), attacks.FLOODS[name]()):
            if not attacker.send(data):
                break
        healthy(proxy)
    until(lambda: proxy.braid.ledger("traces")["held"] == 0, "the end of what was sent")


def test_the_ledger_is_exact(proxy):
    """Braid's count of received records equals the number that arrived after all of these tests."""
    until(lambda: proxy.braid.ledger("traces")["held"] == 0, "the end of what was sent")
    ledger = proxy.braid.ledger("traces")
    assert ledger["received"] == ledger["sent"] == len(proxy.names())
