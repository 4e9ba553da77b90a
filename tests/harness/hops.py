# SPDX-License-Identifier: Apache-2.0
"""HTTP servers between a client and its destination: redirects, and proxies."""

import contextlib
import dataclasses
import select
import socket
import ssl
import threading

import httpd
from braid import DEADLINE_S


@dataclasses.dataclass(frozen=True)
class Asked:
    method: str
    target: str
    headers: dict
    body: bytes


class Answering:
    """An HTTP server that records each request and answers with `answer(asked)`: (status, headers,
    body). certificate: a PEM file with its key, for HTTPS."""

    def __init__(self, answer, certificate=None, host="127.0.0.1"):
        self.asked, self.answer = [], answer
        self._server = httpd.Server((host, 0), _Handler)
        self._server.owner = self
        if certificate:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self._server.server_port
        self.address = f"{host}:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class _Handler(httpd.Handler):
    def do_POST(self):
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, self.path, headers, self.body())
        self.server.owner.asked.append(asked)
        status, more, body = self.server.owner.answer(asked)
        self.send_response(status)
        for name, value in more.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST


def redirect(status, location):
    """An answer of `Answering`."""
    return lambda asked: (status, {"location": location} if location is not None else {}, b"moved")


@dataclasses.dataclass(frozen=True)
class Passed:
    """A request received by a proxy: its start line, and its headers."""
    line: str
    headers: dict


class Accepting:
    """A server on a free port. `_handle(client)` runs in a thread for each connection, which is
    closed when it returns."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        with_shutdown(self._listener)
        self._listener.close()
        for each in list(self._open):
            with_shutdown(each)

    def _serve(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._run, args=(client,), daemon=True).start()

    def _run(self, client):
        with client, contextlib.suppress(OSError):
            self._handle(client)


class Proxy(Accepting):
    """An HTTP proxy for CONNECT and absolute URLs; the latter one request per connection. It
    forwards everything to `target`, whatever server was named, so that names need not exist;
    with `targets`, to one after the other. refuse: a status line to answer instead. late: it
    answers CONNECT together with the server's first bytes."""

    def __init__(self, target, refuse=None):
        self.passed, self.target, self.refuse, self.targets, self.late = [], target, refuse, [], False
        super().__init__()

    def _handle(self, client):
        head, rest = _read_head(client)
        if not head:
            return
        line, *fields = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        self.passed.append(Passed(line, headers))
        if self.refuse:
            client.sendall(f"HTTP/1.1 {self.refuse}\r\nContent-Length: 5\r\n\r\nsorry".encode())
            return
        host, _, port = (self.targets.pop(0) if self.targets else self.target).rpartition(":")
        with socket.create_connection((host, int(port)), DEADLINE_S) as server:
            if line.startswith("CONNECT "):
                first = server.recv(65536) if self.late else b""
                client.sendall(b"HTTP/1.1 200 Connection established\r\nContent-Length: 9\r\n\r\n" + first)
                server.sendall(rest)
            else:
                method, url, version = line.split(" ")
                path = "/" + url.split("/", 3)[3]
                kept = [field for field in fields if not field.lower().startswith(("proxy-", "connection:"))]
                request = "\r\n".join([f"{method} {path} {version}", *kept, "Connection: close", "", ""])
                server.sendall(request.encode("latin-1") + rest)
            _pump(client, server)


def with_shutdown(sock):
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _read_head(sock):
    got = b""
    while b"\r\n\r\n" not in got:
        data = sock.recv(65536)
        if not data:
            return b"", b""
        got += data
    head, _, rest = got.partition(b"\r\n\r\n")
    return head, rest


def _pump(one, other):
    """Copies bytes in both directions until one side ends."""
    while True:
        for ready in select.select([one, other], [], [], DEADLINE_S)[0]:
            data = ready.recv(65536)
            if not data:
                return
            (other if ready is one else one).sendall(data)
