#!/usr/bin/env python3
"""Answers what responses are worth (sluice_channel.py says where).

Usage: rewards.py FILE.py FUNCTION TIMEOUT LOAD_TIMEOUT  calls FUNCTION(prompt, response, reference), which returns a number
       rewards.py --regex PATTERN TIMEOUT LOAD_TIMEOUT   1 where the pattern is found in the response, else 0

TIMEOUT, in seconds, is for one response, LOAD_TIMEOUT for FILE.py and all that it imports. All integers are little-endian.
  R, uint64 count, per response three texts, uint64 bytes and UTF-8: prompt, response, reference
                        -> per response K and a double; or X, a uint64 size and why there is none, with its place
A function that does not let itself be stopped is told of by T and Python's traces of all threads, as the text of
faulthandler; whoever hears that ends this process. It ends with its input otherwise, or soon after.
"""

import faulthandler
import importlib.util
import math
import os
import pathlib
import re
import select
import signal
import struct
import sys
import threading
import time
import traceback

import sluice_channel as channel
from sluice_channel import one_line, read_exactly, read_size, refusal

PATIENCE_S = 2  # for functions that run when the input ends


class BadReward(Exception):
    """A message for the user."""


class Expired(BaseException):
    """The time of a response is over. No Exception: functions catch those."""


def read_text():
    return read_exactly(read_size()).decode("utf-8", errors="replace")


def load(path, name, timeout):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    if spec is None or not pathlib.Path(path).is_file():
        raise BadReward(f"cannot read {path}: rl.reward names a Python file that is not there")
    module = importlib.util.module_from_spec(spec)
    # As Python itself looks for modules of a program; Sluice's own are found by now.
    sys.path[:] = [str(pathlib.Path(path).resolve().parent), *channel.python_path,
                   *(folder for folder in sys.path[1:] if folder not in channel.python_path)]
    sys.modules.setdefault(spec.name, module)
    signal.signal(signal.SIGALRM, expire)
    try:
        signal.setitimer(signal.ITIMER_REAL, timeout)
        spec.loader.exec_module(module)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Expired as error:
        raise BadReward(f"{place_in(path, error)} takes longer than {timeout:g} s to load: do what takes long once, in front of the run; "
                        "a larger rl.reward_timeout_s raises this limit, too") from error
    except BaseException as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise BadReward(f"{place_in(path, error)} cannot be loaded: {type(error).__name__}: {one_line(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise BadReward(f"{path} has no function {name}: name one that takes (prompt, response, reference)")
    return function


def place_in(path, error):
    """The line of the file at which something was raised, as FILE:LINE."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return f"{path}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"{path}:{lines[-1]}" if lines else path


def compiled(pattern):
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise BadReward(f"regex:{pattern} is no regular expression: {error}") from error
    return lambda prompt, response, reference: 1.0 if expression.search(response) else 0.0


def expire(signal_number, frame):
    raise Expired


class Clock:
    """Ends what takes longer than `timeout` seconds: by a signal, and where that doesn't help by telling Sluice."""

    def __init__(self, timeout):
        self.timeout = timeout

    def __enter__(self):
        self.begin = time.monotonic()
        signal.signal(signal.SIGALRM, expire)  # a function may have set another
        signal.setitimer(signal.ITIMER_REAL, self.timeout)
        faulthandler.dump_traceback_later(1.1 * self.timeout + 0.25, file=channel.sink.fileno())
        return self

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()

    def expired(self):
        return time.monotonic() - self.begin > self.timeout


def call(function, clock, parts):
    """(value, None) or (None, what was raised)."""
    try:
        try:
            with clock:
                return function(*parts), None
        except BaseException as error:
            return None, error
    except Expired as error:  # between the clock's end and here
        return None, error


def score(function, file, name, timeout, parts):
    """A response's answer on the channel."""
    clock = Clock(timeout)
    value, error = call(function, clock, parts)
    place = (place_in(file, error) if error else where(function, file)) if file else ""
    shown = f"{place}: {name}" if place else name
    if isinstance(error, Expired) or clock.expired():
        return refusal(f"{shown} took longer than {timeout:g} s (rl.reward_timeout_s)")
    if error:
        return refusal(f"{shown} failed with {type(error).__name__}: {one_line(error)}")
    try:
        number = float(value)
    except Exception:
        number = math.nan
    if not math.isfinite(number):
        return refusal(f"{shown} returned {one_line(repr(value))[:200]}: rewards are finite numbers")
    return b"K" + struct.pack("<d", number)


def where(function, file):
    code = getattr(function, "__code__", None)
    return f"{file}:{code.co_firstlineno}" if code else file


def end_with_input():
    """Ends a function that runs on when nobody hears of it any more, and all that it started."""
    watched = select.poll()
    watched.register(channel.source, select.POLLRDHUP)
    watched.poll()
    time.sleep(PATIENCE_S)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main():
    first, second, timeout, load_timeout = *sys.argv[1:3], *map(float, sys.argv[3:5])
    is_regex = first == "--regex"
    try:
        function = compiled(second) if is_regex else load(first, second, load_timeout)
    except BadReward as error:
        return channel.tell(refusal(error))
    file, name = (None, f"regex:{second}") if is_regex else (first, second)
    if os.getpgrp() == os.getpid():
        threading.Thread(target=end_with_input, daemon=True).start()
    channel.tell(b"K")
    while True:
        read_exactly(1)
        answers = [[read_text(), read_text(), read_text()] for _ in range(read_size())]
        for parts in answers:
            channel.tell(score(function, file, name, timeout, parts))


if __name__ == "__main__":
    channel.run(main)
