#!/usr/bin/env python3
"""Messages of HTTP that end where one program sees it and another does not, sent to `sluice serve` and read by h11 beside it.

Each message stands in front of `GET /metrics`, so that a server that sees its end elsewhere answers otherwise. A message that h11
accepts is answered as itself, and the one behind it too; one that h11 refuses is refused, and its connection closed. Differences that are
known: folded lines, and a return inside a chunk's extension, are refused here and not by h11; beside chunks a length ends the connection here.

    tests/fuzz/framings.py --count 1000 [--seed 1]
"""

import json
import random
import re
import socket
import sys

import h11

import endless

BODY = json.dumps({"prompt": "abc", "max_tokens": 1, "temperature": 0}).encode()
BEHIND = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def chunked(source):
    size, at, made = source.choice([b"%x", b"%X", b"00%x", b"0x%x", b"+%x", b"%xg", b" %x", b"%x ", b"-%x", b"%x;a=b", b"%x;", b"%x;a\rb"]), 0, b""
    odd = source.randrange(4) == 0
    end = source.choice([b"\r\n", b"\n", b"XX", b"\r", b""]) if odd else b"\r\n"
    while at < len(BODY):
        part = BODY[at: at + source.randint(1, 40)]
        # Odd sizes and ends are rare enough that messages without any are many.
        made += (size if source.randrange(3) == 0 else b"%x") % len(part) + (end if source.randrange(3) == 0 else b"\r\n") + part
        made += end if source.randrange(3) == 0 else b"\r\n"
        at += len(part)
    return made + source.choice([b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX: a\r\n\r\n", b"0\r\nbad\r\n\r\n", b"00\r\n\r\n", b"0;x\r\n\r\n"])


def message(source):
    """(bytes, whether a known difference is in it)."""
    length = b"Content-Length: %d" % len(BODY)
    in_chunks = source.randrange(2) == 0
    odd = [b"Content-Length: 5", b"Content-Length: +%d" % len(BODY), length + b", 5", length + b", %d" % len(BODY), length + b"z", b"Content-Length: ",
           b"Transfer-Encoding: xchunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked", b"Transfer-Encoding: ,chunked", b"X : a",
           b": a", b"Garbage", b"a b: c", b"X: a\0b", b"X: a\rb", b"X: a\x0bb", b"X: a\x01b", b"X: \xff", b"Host: b", b" folded", b"X:a", b"X: \t a \t",
           b"Expect: 100-continue"]
    lines = [b"Transfer-Encoding: chunked" if in_chunks else length] + [source.choice(odd) for _ in range(source.choice([0, 0, 1, 1, 2]))]
    source.shuffle(lines)
    first = source.choice([b"POST /v1/completions HTTP/1.1"] * 8 + [b"POST http://localhost/v1/completions HTTP/1.1", b"POST  /v1/completions HTTP/1.1",
                                                                   b"POST /v1/completions HTTP/1.1 ", b"POST\t/v1/completions HTTP/1.1",
                                                                   b"POST /v1/completions http/1.1", b"POST /v1/completions HTTP/1.x"])
    newline = source.choice([b"\r\n"] * 8 + [b"\n"])
    head = newline.join([first, b"Host: localhost", b"Content-Type: application/json", *lines])
    known = any(line.startswith(b" ") for line in lines) or (any(line.startswith(b"Transfer-Encoding") for line in lines)
                                                            and any(line.startswith(b"Content-Length") for line in lines))
    body = chunked(source) if in_chunks else BODY
    return head + newline * 2 + body, known or b";a\r" in body


def by_h11(data):
    """How many whole requests h11 reads, and whether it refuses what comes then."""
    connection, whole = h11.Connection(h11.SERVER), 0
    connection.receive_data(data)
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.EndOfMessage):
                whole += 1
                connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is h11.MUST_CLOSE:
                    return whole, False
                connection.start_next_cycle()
            elif not isinstance(event, (h11.Request, h11.Data)):  # it needs more
                return whole, False
    except h11.RemoteProtocolError:
        return whole, True


def by_server(port, data):
    """The statuses of the answers until the connection ends, or nothing more comes."""
    got = b""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(20)
        try:
            connection.sendall(data)
            while piece := connection.recv(1 << 16):
                got += piece
        except ConnectionResetError:
            pass
        except TimeoutError:
            return None
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([2-5]\d\d) ", got)]


def fault_of(port, data, known):
    read, refused = by_h11(data)
    told = by_server(port, data)
    if told is None:
        return "no end comes"
    good = [status for status in told if status == 200]
    if known:
        return None if len(good) <= read else f"{len(good)} are answered, h11 reads {read}"
    if len(good) != read:
        return f"{len(good)} are answered, h11 reads {read}"
    if refused and (not told or told[-1] < 400):
        return "h11 refuses, and no answer does"
    return None


def main():
    args = endless.parser(1000).parse_args()
    accepted = faults = 0
    with endless.server("--context-length", 512, "--header-s", 2, "--body-s", 2) as server:
        for seed in range(args.seed, args.seed + args.count):
            data, known = message(random.Random(seed))
            accepted += by_h11(data + BEHIND)[0] == 2
            if fault := fault_of(server.port, data + BEHIND, known):
                faults += 1
                print(f"seed {seed}: {fault}: {data!r}")
    print(f"{args.count} messages, of which h11 reads {accepted} and what stands behind them; {faults} are read otherwise")
    sys.exit(1 if faults or accepted < args.count // 10 else 0)


if __name__ == "__main__":
    main()
