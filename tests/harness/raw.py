# SPDX-License-Identifier: Apache-2.0
"""Raw bytes on a socket that no library would send, and HTTP/2 frames by hand (RFC 9113 section
4.1)."""

import re
import select
import socket
import struct
import time

from braid import BINARY

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED = 1, 4, 8
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DEADLINE_S = 20.0


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """Returns a header field without indexing, with a new name: RFC 7541 section 6.2.2."""
    def text(data):
        if len(data) < 127:
            return bytes([len(data)]) + data
        rest, out = len(data) - 127, bytearray([127])
        while rest >= 128:
            out.append(rest % 128 | 128)
            rest //= 128
        return bytes(out) + bytes([rest]) + data
    return b"\0" + text(name) + text(value)


def block(path, *more, method=b"POST"):
    """Returns the header block of a request."""
    fields = [(b":method", method), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", b"h"),
              *more]
    return b"".join(literal(*field) for field in fields)


def ready(sock, events, timeout_s):
    """Waits for a socket with poll, which supports descriptors over 1023."""
    poll = select.poll()
    if sock:
        poll.register(sock, events)
    poll.poll(timeout_s * 1000)


class Raw:
    """A connection that keeps the received bytes."""

    def __init__(self, address, first=b"", receive_buffer=None, source=None):
        host, port = address.rsplit(":", 1)
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source:
            self.socket.bind((source, 0))
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.got = bytearray()
        self.ended = False
        self.sent = 0
        self.send(first)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def read(self):
        """Reads the available bytes; returns True once the peer has closed the connection."""
        try:
            while not self.ended:
                data = self.socket.recv(1 << 16)
                self.got += data
                self.ended = not data
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True
        return self.ended

    def send(self, data):
        """Sends all data, unless the peer closes the connection first. Returns whether all was
        sent."""
        view, end = memoryview(data), time.monotonic() + DEADLINE_S
        while view and not self.read():
            assert time.monotonic() < end, "the peer neither reads nor ends"
            try:
                n = self.socket.send(view)
                self.sent += n
                view = view[n:]
            except BlockingIOError:
                ready(self.socket, select.POLLIN | select.POLLOUT, 0.1)
            except OSError:
                self.ended = True
        return not view

    def wait(self, condition=None, deadline_s=DEADLINE_S):
        """Waits until condition() holds or, without one, until the peer closes the connection."""
        waited, before = 0, time.monotonic()
        while not (self.read() if condition is None else condition()):
            assert waited < deadline_s, f"in vain; got {bytes(self.got[-300:])!r}"
            ready(None if self.ended else self.socket, select.POLLIN, 0.02)
            now = time.monotonic()
            waited += min(now - before, 0.1)  # if the machine was suspended, so was the peer
            before = now
            self.read()
        return self

    def statuses(self, n):
        """Reads the next n answers of HTTP/1.1, or those until the peer closed: returns their
        statuses as text."""
        found = []
        while len(found) < n:
            heads = list(re.finditer(rb"HTTP/1\.1 (\d+) ", self.got))
            found += [head[1].decode() for head in heads]
            if heads:
                del self.got[:heads[-1].end()]
            elif self.ended:
                break
            else:
                self.wait(lambda: self.ended or re.search(rb"HTTP/1\.1 \d+ ", self.got))
        return found

    def frames(self):
        """Returns [(kind, flags, stream, payload)] of the received frames."""
        at, frames = 0, []
        while at + 9 <= len(self.got):
            size = int.from_bytes(self.got[at:at + 3], "big")
            kind, flags, stream = struct.unpack(">BBI", self.got[at + 3:at + 9])
            if at + 9 + size > len(self.got):
                break
            frames.append((kind, flags, stream, bytes(self.got[at + 9:at + 9 + size])))
            at += 9 + size
        return frames

    def goaway(self):
        """Returns the error code of the last GOAWAY, or None."""
        codes = [int.from_bytes(f[3][4:8], "big") for f in self.frames() if f[0] == GOAWAY]
        return codes[-1] if codes else None


def h2(address, settings=b"", **options):
    return Raw(address, PREFACE + frame(SETTINGS, payload=settings), **options)


def memory_kib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def sanitized(_=None):
    """Returns whether the binary under test is a sanitizer build, whose memory is not comparable.
    Reads the file, because only root may read the mappings of the process."""
    with open(BINARY, "rb") as binary:
        text = binary.read()
    return any(name in text for name in (b"__asan_init", b"__tsan_init", b"__msan_init"))
