"""Commands of a program that is loaded once: most of a short command's processor time is loading libtorch.

tests/fuzz/start_once.cpp, preloaded, lets a copy of the loaded process run each command.
"""

import atexit
import os
import pathlib
import signal
import struct
import subprocess
import tempfile
import threading

# The built library; None: each command loads the program for itself.
LIBRARY = os.environ.get("START_ONCE")
# Commands that need libtorch, and end by themselves.
COMMANDS = frozenset(("import", "export", "eval", "embed", "generate", "train", "profile"))
# The program prepares signals for these ahead of its libraries, by its first argument.
PREPARED = frozenset(("train", "profile"))
NO_LIMIT_S = 2**64 - 1  # of processor time: RLIM_INFINITY


class StartOnce:
    """One command at a time. `arguments` are those that the program is loaded with."""

    def __init__(self, program, library, environment=None, arguments=()):
        # `sluice` would become sluice-torch, which has all commands, for some of them.
        if os.access(f"{program}-torch", os.X_OK):
            program = f"{program}-torch"
        self.process = subprocess.Popen([program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env={**(environment or os.environ), "LD_PRELOAD": str(library)})
        atexit.register(self.close)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def start(self, arguments, folder, files, seconds):
        """Begins a command in a folder, with `files` for what it writes to stdout and stderr; its process id."""
        words = [seconds, folder, *files, *arguments]
        request = b"".join(os.fsencode(str(word)) + b"\0" for word in words)
        self.process.stdin.write(struct.pack("<I", len(request)) + request)
        self.process.stdin.flush()
        process = self.figures("<q")[0]
        if process <= 0:
            raise RuntimeError(f"{self.process.args} cannot start another process")
        return process

    def wait(self):
        """(what wait() says, seconds of processor time, peak bytes)"""
        status, microseconds, kibibytes = self.figures("<qqq")
        return status, microseconds / 1e6, kibibytes * 1024

    def figures(self, form):
        return struct.unpack(form, self.process.stdout.read(struct.calcsize(form)))


class Commands:
    """Runs commands of one program as subprocess.run does, of those in COMMANDS copies of a process that is kept."""

    def __init__(self, program):
        self.program, self.kept, self.busy = program, {}, threading.Lock()

    def run(self, arguments, folder, environment, timeout_s):
        arguments = list(map(str, arguments))
        # A second one at the same time may be what the first waits for.
        if LIBRARY and arguments[:1] and arguments[0] in COMMANDS and self.busy.acquire(blocking=False):
            try:
                return self.copied(arguments, folder, environment, timeout_s)
            finally:
                self.busy.release()
        return subprocess.run([self.program, *arguments], cwd=folder, env=environment, text=True, capture_output=True,
                              timeout=timeout_s, check=False)

    def copied(self, arguments, folder, environment, timeout_s):
        prepared = [word for word in arguments[:1] if word in PREPARED]
        key = (*prepared, *sorted(environment.items()))
        if key not in self.kept:
            self.kept[key] = StartOnce(os.path.abspath(self.program), LIBRARY, environment, prepared)
        with tempfile.TemporaryDirectory(prefix="sluice-said-") as name:
            files = [pathlib.Path(name, said) for said in ("stdout", "stderr")]
            process = self.kept[key].start(arguments, folder, files, NO_LIMIT_S)
            overdue = threading.Timer(timeout_s, os.kill, (process, signal.SIGKILL))
            overdue.start()
            try:
                status, _, _ = self.kept[key].wait()
            except BaseException:  # whoever interrupts a test ends what it waits for
                os.kill(process, signal.SIGKILL)
                del self.kept[key]
                raise
            finally:
                late = not overdue.is_alive()
                overdue.cancel()
            said = [file.read_text() for file in files]
        if late:
            raise subprocess.TimeoutExpired([self.program, *arguments], timeout_s, *said)
        return subprocess.CompletedProcess([self.program, *arguments], os.waitstatus_to_exitcode(status), *said)
