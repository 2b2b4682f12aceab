"""A Slurm of one node, this machine: no daemon of the system's is needed, no key and no other user. Debian's slurm-wlm has
all of it.

    slurm = LocalSlurm()
    subprocess.run(["srun", "--ntasks", "4", "hostname"], env={**os.environ, **slurm.environment})
    slurm.stop()
"""

import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

DAEMONS = ("slurmctld", "slurmd")
START_TIMEOUT_S = 30
CONFIGURATION = """ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=16
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """Why there can be no Slurm here; empty when there can be."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    absent = [name for name in (*DAEMONS, "srun", "sinfo") if not shutil.which(name, path=path)]
    return f"{', '.join(absent)} not found: tools/bootstrap --test installs Slurm" if absent else ""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class LocalSlurm:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="slurm-"))
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        controller_port, node_port = free_ports(2)
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=socket.gethostname().split(".")[0], controller_port=controller_port, node_port=node_port,
            user=pwd.getpwuid(os.geteuid()).pw_name, folder=self.folder))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        variables = {**os.environ, **self.environment, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
        self.daemons = [subprocess.Popen([daemon, "-D"], env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                        for daemon in DAEMONS]
        deadline = time.monotonic() + START_TIMEOUT_S
        while not subprocess.run(["sinfo", "--noheader", "--states=idle"], env=variables, capture_output=True,
                                 check=False).stdout:
            if time.monotonic() > deadline:
                logs = "\n".join((self.folder / f"{daemon}.log").read_text()[-2000:] for daemon in DAEMONS)
                self.stop()
                raise RuntimeError(f"Slurm's node was not idle within {START_TIMEOUT_S} s:\n{logs}")
            time.sleep(0.1)

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
