"""Ranks meet wherever rank 0's name points: in network namespaces whose host name stands for an address of the network, for
127.0.1.1, for an IPv6 address, on one node and on two; and who does not meet the others ends.

Needs root (namespaces), `unshare`, `nsenter` and `ip`.
"""

import shlex
import shutil
import subprocess
import unittest

from harness import TestCase, environment, free_port, losses, main, records

NAME = "node7"
# Two interfaces, the first with addresses of both kinds.
NODE = f"""
ip link set lo up
for n in 0 1; do ip link add eth$n type veth peer name end$n; ip link set eth$n up; ip link set end$n up; done
ip addr add 10.11.0.5/16 dev eth0; ip -6 addr add fd00:11::5/64 dev eth0 nodad; ip addr add 10.12.0.5/16 dev eth1
hostname {NAME}
mount --bind "$HOSTS" /etc/hosts
"""
HOSTS = {"network": f"10.11.0.5 {NAME}", "Debian": f"127.0.1.1 {NAME}", "IPv6": f"fd00:11::5 {NAME}",
         "both kinds": f"fd00:11::5 {NAME}\n10.11.0.5 {NAME}"}


def missing():
    """Why namespaces cannot be had here; empty where they can."""
    for tool in ("unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            return f"{tool} is not there"
    made = subprocess.run(["unshare", "-n", "-m", "-u", "ip", "link", "add", "eth0", "type", "veth"], capture_output=True,
                          text=True, check=False)
    return "" if made.returncode == 0 else f"no network namespace can be made: {made.stderr.strip()[-100:]}"


def by_hand(rank, ranks, master, port):
    return {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": master,
            "MASTER_PORT": port}


def slurm(rank, ranks, master, port):
    return {"SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_NTASKS": ranks, "SLURM_STEP_NUM_TASKS": ranks,
            "SLURM_STEP_ID": 0, "SLURM_NODEID": 0, "SLURM_STEP_TASKS_PER_NODE": ranks, "SLURM_STEP_NODELIST": master,
            "SLURM_JOB_ID": port}


def mpi(rank, ranks, master, port):
    return {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": ranks, "OMPI_COMM_WORLD_LOCAL_RANK": rank,
            "OMPI_COMM_WORLD_LOCAL_SIZE": ranks, "MASTER_ADDR": master, "MASTER_PORT": port}



@unittest.skipIf(missing(), missing())
class Namespaces(TestCase):
    def node(self, script, hosts, timeout_s=100):
        """Runs a bash script on a node that knows these hosts; $1 is the program."""
        (self.directory / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{hosts}\n")
        return subprocess.run(["unshare", "-n", "-m", "-u", "bash", "-ec", NODE + script, "bash", self.program()],
                              cwd=self.directory, env=environment(HOSTS=self.directory / "hosts"), capture_output=True, text=True,
                              timeout=timeout_s, check=False)

    def rank(self, run, variables, *arguments):
        """The words of a shell that start a rank, whose lines go to RUN.RANK.log."""
        settings = " ".join(shlex.quote(f"{name}={value}") for name, value in variables.items())
        return f'env {settings} "$1" train --config {run}.toml {" ".join(arguments)}'

    def configured(self, run, ranks, **changes):
        self.config(run, **{"train__steps": 2, "train__join_timeout_s": 10, "parallel__strategies": [f"{ranks}x<1,1,1>"], **changes})

    def told(self):
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in sorted(self.directory.glob("*.log")))

    def meets(self, run, launcher, master, hosts, ranks=2):
        """A run that ends well."""
        self.configured(run, ranks)
        port = free_port()
        lines = [f"{self.rank(run, launcher(rank, ranks, master, port))} 2>{run}.{rank}.log & pids+=($!)" for rank in range(ranks)]
        done = self.node("pids=()\n" + "\n".join(lines) + '\nfor pid in "${pids[@]}"; do wait $pid; done', hosts)
        self.assertEqual(done.returncode, 0, f"{done.stderr}\n{self.told()}")
        self.assertEqual(len(losses(self.directory / run)), 2)


class OneNode(Namespaces):
    def test_a_host_name_of_each_kind(self):
        for kind, hosts in HOSTS.items():
            for launcher in (by_hand, slurm, mpi):
                with self.subTest(kind=kind, launcher=launcher.__name__):
                    self.meets(f"{launcher.__name__}-{kind.replace(' ', '-')}", launcher, NAME, hosts)

    def test_addresses(self):
        for number, master in enumerate(("10.11.0.5", "10.12.0.5", "127.0.1.1", "localhost", "fd00:11::5", "[fd00:11::5]")):
            with self.subTest(address=master):
                self.meets(f"address-{number}", by_hand, master, HOSTS["network"])

    def test_our_own_launcher_needs_no_name(self):
        self.configured("own", 2)
        done = self.node('"$1" train --config own.toml --nproc 2', HOSTS["Debian"])
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_name_that_does_not_resolve_ends_all_ranks_within_seconds(self):
        self.configured("unknown", 2, train__join_timeout_s=60)
        lines = [f"{self.rank('unknown', by_hand(rank, 2, 'nowhere.invalid', 4000))} 2>unknown.{rank}.log & pids+=($!)"
                 for rank in range(2)]
        done = self.node("pids=()\n" + "\n".join(lines) + '\nfor pid in "${pids[@]}"; do wait $pid || echo $?; done',
                         HOSTS["network"], timeout_s=50)
        self.assertEqual(done.stdout.split(), ["1", "1"], self.told())
        for rank in range(2):
            self.assertIn("cannot resolve host 'nowhere.invalid'", (self.directory / f"unknown.{rank}.log").read_text())

    def test_a_rank_that_never_meets_the_others_ends(self):
        """It does not train alone."""
        for launcher in (by_hand, slurm):
            run = f"alone-{launcher.__name__}"
            self.configured(run, 2, train__join_timeout_s=2)
            done = self.node(f"{self.rank(run, launcher(0, 2, NAME, 4001))} 2>{run}.log || echo $?", HOSTS["network"])
            self.assertEqual(done.stdout.strip(), "1", self.told())
            self.assertIn("rank 1 of 2 did not join", (self.directory / f"{run}.log").read_text())
            self.assertFalse((self.directory / run / "metrics.jsonl").exists() and records(self.directory / run))


class TwoNodes(Namespaces):
    """A second network namespace at the other end of a wire, with hosts of its own."""

    WIRE = """
unshare -n -m bash -c 'mount --bind others /etc/hosts; ip link set lo up; echo up; exec sleep 300' >up & other=$!
until grep -q up up; do sleep 0.05; done
ip link add wire0 type veth peer name wire1 netns $other
ip addr add 10.13.0.1/24 dev wire0; ip -6 addr add fd00:13::1/64 dev wire0 nodad; ip link set wire0 up
nsenter -t $other -n ip addr add 10.13.0.2/24 dev wire1; nsenter -t $other -n ip -6 addr add fd00:13::2/64 dev wire1 nodad
nsenter -t $other -n ip link set wire1 up
ip route add default via 10.13.0.2 dev wire0
there() { nsenter -t $other -n -m env --chdir="$PWD" "$@"; }
trap 'kill $other' EXIT
"""

    def meet(self, run, hosts, others):
        """Two ranks on the first node, one on the second."""
        (self.directory / "others").write_text(f"127.0.0.1 localhost\n{others}\n")
        self.configured(run, 3)
        port, script = free_port(), self.WIRE + "pids=()\n"
        for rank in range(3):
            variables = {"RANK": rank, "LOCAL_RANK": rank % 2, "WORLD_SIZE": 3, "LOCAL_WORLD_SIZE": 2 if rank < 2 else 1,
                         "MASTER_ADDR": NAME, "MASTER_PORT": port}
            words = self.rank(run, variables)
            script += f'{"there " if rank == 2 else ""}{words} 2>{run}.{rank}.log & pids+=($!)\n'
        done = self.node(script + 'for pid in "${pids[@]}"; do wait $pid; done', hosts)
        self.assertEqual(done.returncode, 0, f"{done.stderr}\n{self.told()}")
        self.assertEqual(len(losses(self.directory / run)), 2)

    def test_the_name_is_the_loopback_at_home(self):
        self.meet("debian", HOSTS["Debian"], f"10.13.0.1 {NAME}")

    def test_the_name_is_the_network_everywhere(self):
        self.meet("network", f"10.13.0.1 {NAME}", f"10.13.0.1 {NAME}")

    def test_ipv6(self):
        self.meet("ipv6", f"fd00:13::1 {NAME}", f"fd00:13::1 {NAME}")


if __name__ == "__main__":
    main()
