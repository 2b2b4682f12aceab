"""Nodes of a cluster on one machine: a network namespace each, joined by a wire that this process carries packet by
packet, so that it may lose, hold back, double or damage what it likes, in one direction or both.

Needs root (or a user namespace, which __main__ tries) and /dev/net/tun; Unavailable where either is missing.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
MTU = 9000


class Unavailable(Exception):
    """This machine does not let us do it."""


def pass_at_once(_source, _target, _packet, _chance):
    """The fate of packets on a sound wire: one copy, now."""
    return [(0.0, _packet)]


def cut_off(victims):
    """The fate of packets where nothing reaches these nodes from others, nor others from these."""
    def fate(source, target, packet, _chance):
        return [] if (source in victims) != (target in victims) else [(0.0, packet)]
    return fate


def one_way(first, second):
    """What the first sends to the second is lost; the other direction is sound."""
    def fate(source, target, packet, _chance):
        return [] if (source, target) == (first, second) else [(0.0, packet)]
    return fate


class Nodes:
    """`count` nodes at 10.77.0.1 and up. `fate(source, target, packet, chance)` decides on each packet: a list of
    (delay in seconds, packet) of what arrives."""

    def __init__(self, count, seed=0):
        self.count, self.fate = count, pass_at_once
        self.chance = random.Random(seed)
        self.namespaces, self.tunnels = [], []
        self.failure = None
        self.closing, self.waker = os.pipe()
        ready = threading.Event()
        self.thread = threading.Thread(target=self.carry, args=[ready], daemon=True)
        self.thread.start()
        ready.wait()
        if self.failure:
            self.close()
            raise Unavailable(self.failure)

    @staticmethod
    def address(node):
        return f"10.77.0.{node + 1}"

    def prefix(self, node):
        """What to put before a command that is to run on a node."""
        return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self.namespaces[node]}", "--"]

    def close(self):
        """Takes the nodes down; the processes on them must have ended."""
        os.write(self.waker, b"x")
        self.thread.join()
        for descriptor in [*self.tunnels, *self.namespaces, self.closing, self.waker]:
            os.close(descriptor)

    def carry(self, ready):
        """The wire's thread. A namespace belongs to a thread: this one enters the nodes' and makes them."""
        try:
            for node in range(self.count):
                self.make(node)
        except (OSError, subprocess.CalledProcessError) as error:
            self.failure = str(error)
        ready.set()
        under_way, number = [], 0  # heap of (when, number, node, packet)
        while not self.failure:
            timeout = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
            readable, _, _ = select.select([*self.tunnels, self.closing], [], [], timeout)
            if self.closing in readable:
                return
            for tunnel in readable:
                source = self.tunnels.index(tunnel)
                packet = os.read(tunnel, 65536)
                target = self.target(packet)
                if target is None:
                    continue
                for delay_s, arriving in self.fate(source, target, packet, self.chance):
                    heapq.heappush(under_way, (time.monotonic() + delay_s, number, target, arriving))
                    number += 1
            while under_way and under_way[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(under_way)
                os.write(self.tunnels[target], packet)

    def target(self, packet):
        """The node that an IPv4 packet is for."""
        if len(packet) < 20 or packet[0] >> 4 != 4 or packet[16:19] != bytes([10, 77, 0]):
            return None
        node = packet[19] - 1
        return node if 0 <= node < self.count else None

    def make(self, node):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "network namespaces are not allowed here")
        self.namespaces.append(os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY))
        tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        self.tunnels.append(tunnel)
        fcntl.ioctl(tunnel, TUNSETIFF, struct.pack("16sH", b"wire", IFF_TUN | IFF_NO_PI))
        for words in ("link set lo up", f"addr add {self.address(node)}/24 dev wire", f"link set wire mtu {MTU} up"):
            subprocess.run(["ip", *words.split()], check=True, capture_output=True)
