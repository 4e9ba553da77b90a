# SPDX-License-Identifier: Apache-2.0
"""Simulates a bad network on this machine: a TUN device in a separate network namespace.

Packets to FAR are returned from FAR to NEAR: both addresses of each packet are exchanged, which
does not change its checksums. A listener on NEAR is thus reached over the bad network at FAR."""

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time

NEAR, FAR = "10.9.0.1", "10.9.0.2"
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454ca, 1, 0x1000
QUEUE_S = 0.5  # packets that wait longer for a slow line are dropped


class BadNetwork:
    """Works only in a separate namespace (unshare --net), with the permission to configure it."""

    def __init__(self):
        self._tun = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(self._tun, TUNSETIFF, struct.pack("16sH", b"bad0", IFF_TUN | IFF_NO_PI))
        for command in (["link", "set", "lo", "up"], ["addr", "add", f"{NEAR}/24", "dev", "bad0"],
                        ["link", "set", "bad0", "up"]):
            subprocess.run(["ip", *command], check=True)
        self._random = random.Random(15)
        self._flows, self._dead = set(), set()
        self._waiting, self._n, self._free = [], 0, 0.0
        self.good()
        threading.Thread(target=self._run, daemon=True).start()

    def good(self):
        self.loss, self.latency_s, self.bits_per_s, self.cut = 0.0, 0.0, 0.0, False

    def forget(self):
        """All existing connections lose their other end, without any notification."""
        self._dead |= self._flows

    def _take(self, packet):
        if packet[0] >> 4 != 4 or packet[9] != 6:
            return
        flow = frozenset(struct.unpack("!HH", packet[20:24]))
        self._flows.add(flow)
        if self.cut or flow in self._dead or self._random.random() < self.loss:
            return
        now = time.monotonic()
        if self.bits_per_s:
            if self._free > now + QUEUE_S:
                return
            self._free = max(self._free, now) + len(packet) * 8 / self.bits_per_s
        self._n += 1
        due = max(now, self._free if self.bits_per_s else now) + self.latency_s
        heapq.heappush(self._waiting, (due, self._n, packet[:12] + packet[16:20] + packet[12:16] + packet[20:]))

    def _run(self):
        while True:
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                os.write(self._tun, heapq.heappop(self._waiting)[2])
            timeout = max(0, self._waiting[0][0] - now) if self._waiting else 1
            if select.select([self._tun], [], [], timeout)[0]:
                self._take(os.read(self._tun, 65536))
