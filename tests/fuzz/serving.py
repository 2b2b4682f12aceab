#!/usr/bin/env python3
"""Requests to a running `sluice serve` by grammar and with damaged bytes: whole, in chunks, packed by gzip, several at once on a connection,
from clients that leave halfway. The server answers each with a status that a client may cause, lives, and keeps no memory.

    tests/fuzz/serving.py --count 20000 [--seed 1] [--connections 16]

SLUICE names the program, which may be a sanitizer's build: what that reports ends the server, and is printed.
"""

import concurrent.futures
import gzip
import json
import pathlib
import random
import re
import socket
import sys

import damage
import endless

OTHER_PLACES = ["/health", "/metrics", "/v1/models", "/v1/models/x", "/v1", "*", "http://localhost/health"]
CHAT = [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "text", "text": "b"}]}, {"role": "user", "content": "é"}]
FIELDS = {
    "max_tokens": [1, 3, 40], "temperature": [0, 1.5], "top_p": [1, 0.2], "n": [1, 3], "stream": [True, False], "logprobs": [2, True],
    "top_logprobs": [3], "stop": ["c", ["a", "bc"]], "logit_bias": [{"97": 5}], "echo": [True], "seed": [1], "presence_penalty": [0.5],
    "stream_options": [{"include_usage": True}], "tools": [[]], "tool_choice": ["none"], "response_format": [{"type": "text"}], "user": ["u"]}
MAY_BE_CAUSED = {200, 400, 403, 404, 405, 408, 413, 415, 417, 431, 501, 503, 505}
WAIT_S = 60


def body_of(source):
    """(place, body)"""
    body = {key: source.choice(values) for key, values in FIELDS.items() if source.randrange(6) == 0}
    chat = source.randrange(2) == 0
    if chat:
        body["messages"] = CHAT[:source.choice([1, 1, 3])]
    else:
        body["prompt"] = source.choice(["abc", ["a", "b"], [97, 98], [[97], [98]]])
    place = "/v1/chat/completions" if chat else "/v1/completions"
    content = json.dumps(body).encode()
    for _ in range(source.choice([0, 0, 1, 2])):
        content = source.choice([damage.of_bytes, damage.of_text, damage.of_json])(content, source)
    return place, content


def in_chunks(source, content):
    made, at = b"", 0
    while at < len(content):
        part = content[at: at + source.randint(1, 60)]
        made += b"%x\r\n" % len(part) + part + b"\r\n"
        at += len(part)
    return made + b"0\r\n\r\n"


def message(source):
    place, content = body_of(source)
    lines = [b"Host: localhost", b"Content-Type: " + source.choice([b"application/json"] * 9 + [b"text/plain"])]
    if source.randrange(8) == 0:
        content = gzip.compress(content * source.choice([1, 1, 1000]))
        lines.append(b"Content-Encoding: gzip")
    if source.randrange(3) == 0:
        content = in_chunks(source, content)
        lines.append(b"Transfer-Encoding: chunked")
    else:
        lines.append(b"Content-Length: %d" % len(content))
    if source.randrange(10) == 0:
        lines.append(source.choice([b"Expect: 100-continue", b"Range: bytes=0-1,0-2", b"Connection: close", b"Origin: http://else"]))
    method = source.choice([b"POST"] * 9 + [b"GET", b"HEAD", b"OPTIONS", b"PUT"])
    if method != b"POST" or source.randrange(10) == 0:
        place = source.choice(OTHER_PLACES)
    data = method + b" " + place.encode() + b" HTTP/1.1\r\n" + b"\r\n".join(lines) + b"\r\n\r\n" + content
    return damage.of_bytes(data, source) if source.randrange(4) == 0 else data


def statuses_of(port, seed):
    """Sends up to four messages on a connection, whole or in pieces. Returns the statuses, none for a client that leaves."""
    source, got = random.Random(seed), b""
    data = b"".join(message(source) for _ in range(source.choice([1, 1, 1, 4])))
    leaves = source.randrange(5) == 0
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
        try:
            at = 0
            while at < len(data):
                size = source.choice([len(data), len(data), source.randint(1, 2000)])
                connection.sendall(data[at: at + size])
                at += size
            if leaves:
                return []
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                got += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
    return [int(status) for status in re.findall(rb"(?:^|[\n}])HTTP/1\.1 ([2-5]\d\d) ", got)]


def memory_mib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) // 1024


def strike(server, args):
    """(faults, how often each status came, MiB behind a third and at the end)."""
    faults, counts, memory = [], {}, []

    def one(seed):
        try:
            return seed, statuses_of(server.port, seed)
        except OSError as error:
            return seed, error
    with concurrent.futures.ThreadPoolExecutor(args.connections) as pool:
        for third in range(3):
            seeds = range(args.seed + third * args.count // 3, args.seed + (third + 1) * args.count // 3)
            for seed, told in pool.map(one, seeds):
                if isinstance(told, OSError):
                    faults.append(f"seed {seed}: {told}")
                    continue
                for status in told:
                    counts[status] = counts.get(status, 0) + 1
                    if status not in MAY_BE_CAUSED:
                        faults.append(f"seed {seed}: status {status}")
                if server.process.poll() is not None:
                    faults.append(f"seed {seed}, or one shortly before it: the server ended with {server.process.returncode}")
                    return faults, counts, memory
            memory.append(memory_mib(server.process.pid))
            if server.call("GET", "/health")[0] != 200:
                faults.append("/health is not well")
    return faults, counts, memory


def main():
    parser = endless.parser(20_000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--growth-mib", type=int, default=64)
    args = parser.parse_args()
    with endless.server("--context-length", 512, "--header-s", 5, "--body-s", 5) as server:
        faults, counts, memory = strike(server, args)
    if server.ended != 0 or "Sanitizer" in server.log:
        faults.append(f"the server ended with {server.ended}: {server.log[-5000:]}")
    if len(memory) == 3 and memory[-1] - memory[0] > args.growth_mib:
        faults.append(f"its memory grew from {memory[0]} to {memory[-1]} MiB")
    print(f"{args.count} connections: answers by status {dict(sorted(counts.items()))}; memory {memory} MiB; {len(faults)} faults")
    print("\n".join(faults[:20]))
    sys.exit(1 if faults or counts.get(200, 0) < args.count // 20 else 0)


if __name__ == "__main__":
    main()
