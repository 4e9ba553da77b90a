# SPDX-License-Identifier: Apache-2.0
"""The network of a fleet: one bridge, and a network namespace for each member, so that a member can be
cut off. Without the permission to create namespaces, all members use the loopback interface."""

import os
import subprocess

import peers

GATE = "10.88.0.1"  # address of the bridge, and of the sink
PORT = 4317
ISOLATED = "BRAID_FLEET_ISOLATED"  # environment variable: this process is in a separate namespace


def ip(*words, under=()):
    subprocess.run([*under, "ip", *words], check=True)


def isolate(argv):
    """Starts the program again in a separate network namespace. Returns only if that is not
    permitted."""
    if ISOLATED in os.environ:
        return
    how = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    test = "ip link set lo up && ip link add fleet type bridge && unshare --net true"
    try:
        done = subprocess.run([*how, "sh", "-c", test], capture_output=True, check=False)
    except FileNotFoundError:
        return
    if done.returncode == 0:
        os.environ[ISOLATED] = "1"
        os.execvp(how[0], [*how, *argv])


class Host:
    """The place of one member: its address, and how to run a program there."""

    def __init__(self, address, port, under=()):
        self.address, self.port, self.under = address, port, under

    @property
    def endpoint(self):
        return f"{self.address}:{self.port}"


class Loopback:
    """All members share the loopback interface."""

    can_cut = False
    gate = "127.0.0.1"

    def host(self):
        return Host("127.0.0.1", peers.free_ports(1)[0])

    def close(self):
        pass


class Bridge:
    """Each member has a namespace and a cable to the bridge."""

    can_cut = True
    gate = GATE

    def __init__(self):
        self._holders = []  # processes that keep the namespaces
        self._cables = {}
        ip("link", "set", "lo", "up")
        ip("link", "add", "fleet", "type", "bridge")
        ip("addr", "add", f"{GATE}/24", "dev", "fleet")
        ip("link", "set", "fleet", "up")

    def host(self):
        holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
                                  stdout=subprocess.PIPE)
        holder.stdout.readline()  # the namespace exists
        self._holders.append(holder)
        n = len(self._holders)
        address, cable = f"10.88.0.{n + 10}", f"member{n}"
        under = ("nsenter", f"--net=/proc/{holder.pid}/ns/net")
        ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        ip("link", "set", cable, "master", "fleet", "up")
        ip("link", "set", "lo", "up", under=under)
        ip("addr", "add", f"{address}/24", "dev", "eth0", under=under)
        ip("link", "set", "eth0", "up", under=under)
        host = Host(address, PORT, under)
        self._cables[address] = cable
        return host

    def cut(self, host):
        """Unplugs the cable: packets are lost, and neither side is notified."""
        ip("link", "set", self._cables[host.address], "nomaster")

    def heal(self, host):
        ip("link", "set", self._cables[host.address], "master", "fleet")

    def close(self):
        for each in self._holders:
            each.kill()
            each.wait()


def network():
    return Bridge() if ISOLATED in os.environ else Loopback()
