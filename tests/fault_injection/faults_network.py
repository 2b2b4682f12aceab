"""The network between nodes, one rank on each, each node a network namespace: partitions, half-open links, slow and
lossy ones, and a node that loses its power."""

import signal
import sys
import time

import nodes
from fault import Group
from job import RANKS, Broken
from fault_injection import Skipped

FAULTS = Group("network")
GOES_ON = "goes on"
LOST = "all end 1 and name a rank"
PORT = 15_000
# A cut that the ranks outlive: less than the heartbeat's silence.
SHORT_S = 3.0


def on_nodes(trial, fate=nodes.pass_at_once):
    """A run with each rank on a node of its own; (nodes, job)."""
    try:
        network = nodes.Nodes(RANKS, trial.seed)
    except nodes.Unavailable as error:
        raise Skipped(str(error)) from error
    trial.at_the_end(network.close)
    network.fate = fate
    job = trial.job()
    for rank in range(RANKS):
        job.start_rank("run", rank, PORT, "--resume", "auto", local=(0, 1), address=network.address(0),
                       prefix=network.prefix(rank))
    return network, job


def link_of(trial):
    """Two nodes by the trial's chance."""
    return trial.chance.sample(range(RANKS), 2)


def for_a_while(name, make_fate, phases):
    def strike(trial):
        network, job = on_nodes(trial)
        trial.reach(job)
        network.fate = make_fate(trial)
        time.sleep(SHORT_S)
        network.fate = nodes.pass_at_once
        trial.ends(job, 0)
        trial.complete()
    FAULTS.add(f"{name} for {SHORT_S:.0f} s", phases, GOES_ON, strike)


def for_good(name, make_fate, phases):
    def strike(trial):
        network, job = on_nodes(trial)
        trial.reach(job)
        network.fate = make_fate(trial)
        trial.ends(job, 1, says=r"rank \d")
    FAULTS.add(f"{name} for good", phases, LOST, strike)


def any_node(trial):
    return nodes.cut_off({trial.chance.randrange(RANKS)})


def any_half_link(trial):
    return nodes.one_way(*link_of(trial))


def hubs(trial):
    """Between ranks 0 and 1, at which all others' signs of life arrive."""
    return nodes.one_way(*trial.chance.choice(((0, 1), (1, 0))))


for_a_while("a node is cut off", any_node, ("join", "step", "push", "save", "evaluate"))
for_a_while("a link is half open", any_half_link, ("join", "step", "save"))
for_good("a node is cut off", any_node, ("join", "step", "save"))
for_good("a link is half open", any_half_link, ("step", "save"))
for_good("the link between ranks 0 and 1 is half open", hubs, ("step",))


def all_along(name, fate, wanted=GOES_ON):
    """The wire is bad from the first packet to the last."""
    def strike(trial):
        _, job = on_nodes(trial, fate)
        trial.ends(job, 0)
        trial.complete()
    FAULTS.add(f"{name} all along", ("start",), wanted, strike)


def slow(_source, _target, packet, _chance):
    return [(0.02, packet)]


def uneven(_source, _target, packet, chance):
    return [(chance.choice((0.0, 0.0, 0.0, 0.02)), packet)]


def lossy(_source, _target, packet, chance):
    return [] if chance.random() < 0.01 else [(0.0, packet)]


def doubling(_source, _target, packet, chance):
    return [(0.0, packet)] * (2 if chance.random() < 0.2 else 1)


def damaging(_source, _target, packet, chance):
    """Some packets arrive with a byte changed behind the addresses; TCP's checksum finds them."""
    if chance.random() >= 0.01 or len(packet) < 60:
        return [(0.0, packet)]
    place = chance.randrange(40, len(packet))
    return [(0.0, packet[:place] + bytes([packet[place] ^ 1]) + packet[place + 1:])]


def busy_then_idle(_source, _target, packet, _chance):
    """Half of each second passes nothing; what was sent meanwhile comes late."""
    now = time.monotonic() % 0.4
    return [(0.0 if now > 0.2 else 0.2 - now, packet)]


all_along("packets are late", slow)
all_along("packets overtake each other", uneven)
all_along("one packet in a hundred is lost", lossy)
all_along("one packet in five comes twice", doubling)
all_along("one packet in a hundred is damaged", damaging)
all_along("packets come in bursts", busy_then_idle)


# Connects to every port that is listened at on its node, as soon as it is, and says nothing.
CALLER = """
import pathlib, socket, time
called = {}
while True:
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        address, port = fields[1].split(":")
        if fields[3] == "0A" and port not in called:
            host = "127.0.0.1" if address == "00000000" else socket.inet_ntoa(bytes.fromhex(address)[::-1])
            try:
                called[port] = [socket.create_connection((host, int(port, 16)), 1) for _ in range(3)]
            except OSError:
                pass
    time.sleep(0.001)
"""


@FAULTS("silent connections ahead of late ranks", ("start",), GOES_ON)
def silent_ahead(trial):
    network, job = on_nodes(trial, slow)
    callers = trial.job()
    for node in range(2):
        callers.start(f"caller{node}", [sys.executable, "-c", CALLER], prefix=network.prefix(node))
    for ending in job.wait().values():
        if ending.status != 0:
            raise Broken(str(ending))
    for process in callers.processes.values():
        process.kill()
    callers.wait()
    trial.ends(job, 0)
    trial.complete()


@FAULTS("large packets vanish", ("start", "step"), "all end 1 and name a rank")
def large_packets_vanish(trial):
    def fate(_source, _target, packet, _chance):
        return [(0.0, packet)] if len(packet) <= 600 else []
    trial.configure(train__join_timeout_s=20)
    network, job = on_nodes(trial, fate if trial.phase == "start" else nodes.pass_at_once)
    if trial.phase != "start":
        trial.reach(job)
        network.fate = fate
    trial.ends(job, 0, 1, says=None)


@FAULTS("a node loses its power", ("join", "step", "save", "evaluate"), LOST)
def power_lost(trial):
    network, job = on_nodes(trial)
    trial.reach(job)
    victim = trial.chance.randrange(RANKS)
    network.fate = nodes.cut_off({victim})
    job.signal_rank(victim, signal.SIGKILL)
    endings = trial.ends(job, 1, -signal.SIGKILL, says=rf"rank {victim}|rank 0")
    if endings[f"rank{victim}"].status != -signal.SIGKILL:
        raise Broken(f"rank {victim} ended otherwise: {endings[f'rank{victim}']}")
