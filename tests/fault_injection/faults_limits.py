"""Surroundings that are too narrow or odd: descriptors, memory, closed streams, an empty environment, other clocks."""

import os
import shutil
import socket

from fault import Group
from harness import free_port
from job import RANKS
from fault_injection import Skipped

FAULTS = Group("limits")
CLEAN = "ends 1 with a clean line"
GOES_ON = "goes on"


# What a program says that did not expect its end.
UNCLEAN = ("terminate called", "internal error", "Aborted", "Segmentation", "core dumped")


def limited(name, option):
    """A limit that may be too low: then a line says so."""
    def strike(trial):
        endings = trial.ends(trial.start(prefix=["prlimit", option, "--"]), 0, 1, 2, 127)
        trial.never_says(endings, *UNCLEAN)
    FAULTS.add(name, ("start",), "ends 0, or 1 with a clean line", strike)


for few in (8, 16, 24, 32, 48):
    limited(f"{few} file descriptors", f"--nofile={few}")
for mebibytes in (300, 700, 1000, 1400, 2000):
    limited(f"{mebibytes} MiB of address space", f"--as={mebibytes << 20}")


@FAULTS("no standard streams", ("start",), GOES_ON)
def no_streams(trial):
    shell = ["bash", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "bash"]
    trial.ends(trial.start(prefix=shell), 0)
    trial.complete()


@FAULTS("an empty environment", ("start",), GOES_ON)
def empty_environment(trial):
    trial.ends(trial.start(inherit=False), 0)
    trial.complete()


@FAULTS("no temporary directory", ("start",), GOES_ON)
def no_temporary_directory(trial):
    trial.ends(trial.start(variables={"TMPDIR": "/nonexistent"}), 0)
    trial.complete()


@FAULTS("a locale with other numbers", ("start",), GOES_ON)
def other_locale(trial):
    trial.ends(trial.start(variables={"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"}), 0)
    trial.complete()


@FAULTS("one core for all ranks", ("start",), GOES_ON)
def one_core(trial):
    trial.ends(trial.start(prefix=["taskset", "-c", "0"]), 0)
    trial.complete()


@FAULTS("the port of the store is taken", ("start",), CLEAN)
def port_taken(trial):
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        trial.configure(train__join_timeout_s=3)
        job = trial.job()
        for rank in range(RANKS):
            job.start_rank("run", rank, taken.getsockname()[1], "--resume", "auto")
        trial.ends(job, 1, says="port")


@FAULTS("the store's host cannot be resolved", ("start",), CLEAN)
def no_such_host(trial):
    trial.configure(train__join_timeout_s=3)
    job = trial.job()
    for rank in range(RANKS):
        job.start_rank("run", rank, free_port(15_000, 20_000), "--resume", "auto", address="nowhere.invalid")
    trial.ends(job, 1, 2, says=r"nowhere\.invalid")


@FAULTS("a node's clocks are a year ahead", ("start",), GOES_ON)
def other_clocks(trial):
    if shutil.which("unshare") is None:
        raise Skipped("unshare is not there")
    year_s = 365 * 86400
    job = trial.job()
    port = free_port(15_000, 20_000)
    for rank in range(RANKS):
        prefix = ["unshare", "--time", "--monotonic", year_s, "--boottime", year_s, "--"] if rank == 1 else []
        job.start_rank("run", rank, port, "--resume", "auto", prefix=list(map(str, prefix)))
    endings = job.wait()
    if "unshare" in endings["rank1"].output and endings["rank1"].status == 1:
        raise Skipped("time namespaces are not allowed here")
    trial.ends(job, 0)
    trial.complete()


@FAULTS("the date jumps back by a year", ("step", "save"), GOES_ON)
def date_jumps(trial):
    library = next((path for path in ("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
                                      "/usr/lib/faketime/libfaketime.so.1") if os.path.exists(path)), None)
    if library is None:
        raise Skipped("libfaketime is not installed")
    date = trial.directory / "tmp.date"
    date.write_text("+0\n")
    job = trial.start(variables={"LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": date, "FAKETIME_NO_CACHE": 1,
                                 "FAKETIME_DONT_FAKE_MONOTONIC": 1})
    trial.reach(job)
    date.write_text("-365d\n")
    trial.ends(job, 0)
    trial.complete()
