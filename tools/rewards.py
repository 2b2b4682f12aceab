#!/usr/bin/env python3
"""Answers on standard output what responses on standard input are worth.

Usage: rewards.py FILE.py FUNCTION TIMEOUT      calls FUNCTION(prompt, response, reference), which returns a number
       rewards.py --regex PATTERN TIMEOUT       1 where the pattern is found in the response, else 0

TIMEOUT, in seconds, is for one response. All integers are little-endian. After start-up and after every question comes
a status byte: K, and the answer; or X, a uint64 size and a message, which names the function and the response.
  R, uint64 count, per response three texts, uint64 bytes and UTF-8: prompt, response, reference
                        -> per response a double
The process ends with its input.
"""

import importlib.util
import math
import os
import pathlib
import re
import signal
import struct
import sys

source = sys.stdin.buffer
sink = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what functions print must not come between answers


class BadReward(Exception):
    """A message for the user."""


def read_exactly(size):
    data = source.read(size)
    if len(data) != size:
        sys.exit(0)
    return data


def read_size():
    return struct.unpack("<Q", read_exactly(8))[0]


def read_text():
    return read_exactly(read_size()).decode("utf-8", errors="replace")


def load(path, name):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    if spec is None or not pathlib.Path(path).is_file():
        raise BadReward(f"cannot read {path}: rl.reward names a Python file that is not there")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(pathlib.Path(path).resolve().parent))
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        raise BadReward(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise BadReward(f"{path} has no function {name}: name one that takes (prompt, response, reference)")
    return function


def compiled(pattern):
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise BadReward(f"regex:{pattern} is no regular expression: {error}") from error
    return lambda prompt, response, reference: 1.0 if expression.search(response) else 0.0


def expire(signal_number, frame):
    raise TimeoutError


def score(function, name, timeout, parts):
    shown = parts[1] if len(parts[1]) <= 200 else parts[1][:200] + "…"
    signal.setitimer(signal.ITIMER_REAL, timeout)
    try:
        value = float(function(*parts))
    except TimeoutError as error:
        raise BadReward(f"{name} took longer than {timeout:g} s (rl.reward_timeout_s) for the response {shown!r}") from error
    except Exception as error:
        raise BadReward(f"{name} failed with {type(error).__name__}: {error}; the response was {shown!r}") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if not math.isfinite(value):
        raise BadReward(f"{name} returned {value} for the response {shown!r}: rewards are finite numbers")
    return value


def tell(status, answer):
    sink.write(status + answer)
    sink.flush()


def tell_fault(error):
    message = str(error).encode("utf-8", errors="replace")
    tell(b"X", struct.pack("<Q", len(message)) + message)


def main():
    first, second, timeout = sys.argv[1], sys.argv[2], float(sys.argv[3])
    signal.signal(signal.SIGALRM, expire)
    try:
        function = compiled(second) if first == "--regex" else load(first, second)
        name = f"regex:{second}" if first == "--regex" else f"{second} of {first}"
    except BadReward as error:
        return tell_fault(error)
    tell(b"K", b"")
    while True:
        read_exactly(1)
        answers = [[read_text(), read_text(), read_text()] for _ in range(read_size())]
        try:
            rewards = [score(function, name, timeout, parts) for parts in answers]
        except BadReward as error:
            tell_fault(error)
            continue
        tell(b"K", struct.pack(f"<{len(rewards)}d", *rewards))


if __name__ == "__main__":
    main()
