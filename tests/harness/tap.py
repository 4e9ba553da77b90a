# SPDX-License-Identifier: Apache-2.0
"""A TCP relay between a client and Braid, or Braid and a sink. It records the traffic and can cut
the connections."""

import socket
import threading


class Tap:
    def __init__(self, target, near="127.0.0.1"):
        host, port = target.rsplit(":", 1)
        self._target = (host, int(port))
        self._server = socket.create_server((near, 0))
        # The same attributes as a sink, so that it can replace one.
        self.grpc = self.http = f"{near}:{self._server.getsockname()[1]}"
        self.n_sent = 0         # bytes from Braid to the sink
        self.n_connections = 0
        self.sent = []          # bytes from near to far, of each connection
        self.received = []      # bytes from far to near
        self._sockets = []
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def _accept(self, server):
        while True:
            try:
                near, _ = server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.n_connections += 1
            self.sent.append(bytearray())
            self.received.append(bytearray())
            self._sockets += [near, far]
            threading.Thread(target=self._pump, args=(near, far, self.sent[-1], True), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, self.received[-1]), daemon=True).start()

    def _pump(self, source, target, kept, forth=False):
        try:
            while data := source.recv(65536):
                if forth:
                    self.n_sent += len(data)
                kept += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self):
        """Breaks every connection that is open now."""
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def leave(self):
        """Refuses connections until come_back, and breaks those that are open. The port stays reserved."""
        address = self._server.getsockname()
        self._server.shutdown(socket.SHUT_RDWR)  # ends accept() in the thread
        self._server.close()
        self._server = socket.socket()
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._server.bind(address)
        self.cut()

    def come_back(self):
        self._server.listen(100)
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def close(self):
        self._server.close()
        self.cut()
