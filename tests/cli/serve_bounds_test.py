"""sluice serve faces a network: many connections, slow ones, bodies without an end, messages that two programs read
differently, clients that leave, signals. Each test is one of liveness: whatever the others do, a client is answered."""

import concurrent.futures
import contextlib
import gzip
import json
import re
import signal
import socket
import time

from commands import HANG_S, CommandTest
from serve_test import Server
from small_models import byte_tokenizer, chained_model

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
FIELDS = b"Host: 127.0.0.1\r\nContent-Type: application/json\r\n"
SHORT = json.dumps({"prompt": "abc", "max_tokens": 1, "temperature": 0}).encode()


def endless_model(folder):
    """A model that says byte behind byte, and never ends."""
    byte_tokenizer(folder, configured={"eos_token": "<|im_end|>", "chat_template": TEMPLATE})
    chained_model(folder, 258, {byte: (byte + 1) % 256 for byte in range(256)}, 257, max_position_embeddings=1 << 17)
    return folder


def post(content=SHORT, lines=None, path=b"/v1/completions"):
    lines = [b"Content-Length: %d" % len(content)] if lines is None else lines
    return b"POST " + path + b" HTTP/1.1\r\n" + FIELDS + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + content


def long_request(**more):
    return post(json.dumps({"prompt": "abc", "max_tokens": 100_000, "temperature": 0} | more).encode())


def statuses(got):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", got)]


class BoundsTest(CommandTest):
    arguments = ("--context-length", 1 << 17, "--max-num-seqs", 8)
    environment = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = endless_model(cls.folder / "model")
        cls.server = Server("--model", cls.model, *cls.arguments, **cls.environment)
        cls.addClassCleanup(cls.server.close)

    def connect(self, server=None, source="127.0.0.1"):
        connection = socket.create_connection(("127.0.0.1", (server or self.server).port), timeout=HANG_S, source_address=(source, 0))
        self.addCleanup(connection.close)
        return connection

    def exchange(self, data, server=None, answers=1):
        """What comes back to `data`, until the server closes or so many answers have their bodies."""
        connection, got = self.connect(server), b""
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(data)
        while True:
            try:
                piece = connection.recv(1 << 16)
            except ConnectionResetError:
                piece = b""
            got += piece
            heads = re.findall(rb"HTTP/1\.1 (?:[2-5]\d\d) .*?\r\n\r\n", got, re.DOTALL)
            lengths = [int(found) for head in heads for found in re.findall(rb"Content-Length: (\d+)", head)]
            if not piece or (len(heads) >= answers and len(got) >= sum(map(len, heads)) + sum(lengths)):
                return got

    def assert_answers(self, server=None):
        server = server or self.server
        self.assertEqual(server.call("GET", "/health")[0], 200)
        self.assertEqual(server.ask("completions", prompt="abc", max_tokens=4, temperature=0)["choices"][0]["text"], "defg")

    def memory_mib(self):
        with open(f"/proc/{self.server.process.pid}/status") as status:
            return int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1)) // 1024


class Bounds(BoundsTest):
    def test_many_connections_at_once(self):
        connections = [self.connect() for _ in range(700)]
        for connection in connections:
            connection.sendall(post())
        for connection in connections:
            self.assertEqual(statuses(connection.recv(1 << 16)), [200])
        self.assert_answers()

    def test_slow_requests_hold_nobody_up(self):
        slow = [self.connect() for _ in range(300)]
        for i, connection in enumerate(slow):
            connection.sendall(post()[:20 + i % 100])
        for connection in slow[::7]:
            connection.sendall(b"x")
        self.assert_answers()

    def test_nested_brackets_are_refused(self):
        for deep in ("[" * 75_000 + "]" * 75_000, '{"a":' * 75_000 + "1" + "}" * 75_000, "[" * 3_000_000):
            for path, body in (("completions", f'{{"prompt": {deep}}}'), ("completions", f'{{"prompt": "a", "stop": {deep}, "x": {deep}}}'),
                               ("chat/completions", f'{{"messages": {deep}}}')):
                self.assertEqual(self.server.call("POST", f"/v1/{path}", body)[0], 400)
        self.assert_answers()

    def test_many_entries_are_refused(self):
        bias = json.dumps({"prompt": "a", "logit_bias": {str(i): 1 for i in range(100_000)}})
        for body in (bias, '{"prompt": [' + "[]," * 2_000_000 + "[]]}", '{"prompt": "a", "stop": ' + json.dumps(["a"] * 70) + "}",
                     json.dumps({"prompt": "a", "stop": "a" * 2000}), json.dumps({"prompt": [[1]] * 3000})):
            status, content = self.server.call("POST", "/v1/completions", body)
            self.assertEqual(status, 400, content)
        self.assert_answers()

    def test_heads_and_bodies_without_an_end_are_refused(self):
        before = self.memory_mib()
        for data, status in ((b"GET /" + b"a" * (8 << 20), 431), (b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * (1 << 20), 431),
                             (post(lines=[b"Content-Length: 99999999999"], content=b""), 413),
                             (post(lines=[b"Transfer-Encoding: chunked"], content=(b"10000\r\n" + b" " * 65536 + b"\r\n") * 400), 413),
                             (b"GET /health HTTP/1.1\r\n" + FIELDS + b"Transfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b" " * 65536, 413),
                             (post(gzip.compress(b" " * (64 << 20)), lines=[b"Content-Encoding: gzip", b"Content-Length: 65000"]), 415)):
            got = self.exchange(data)
            self.assertIn(statuses(got), ([status], []), got[:200])  # nothing: it was reset while the client still sent
        self.assert_answers()
        self.assertLess(self.memory_mib() - before, 300)

    def test_an_unread_body_is_no_request(self):
        smuggled = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        for head in (b"OPTIONS /v1/completions", b"GET /v1/nothing", b"PUT /health", b"POST /health", b"DELETE /v1/models"):
            for lines in (b"Content-Length: %d\r\n\r\n" % len(smuggled), b"Transfer-Encoding: chunked\r\n\r\n"):
                got = self.exchange(head + b" HTTP/1.1\r\n" + FIELDS + lines + smuggled)
                self.assertEqual(len(statuses(got)), 1, got)
        got = self.exchange(b"GET /health HTTP/1.1\r\n" + FIELDS + b"Content-Length: %d\r\n\r\n" % len(smuggled) + smuggled
                            + b"GET /health HTTP/1.0\r\n\r\n", answers=2)
        self.assertEqual(statuses(got), [200, 200])

    def test_messages_that_are_read_differently_are_refused(self):
        length, coding = b"Content-Length: %d" % len(SHORT), b"Transfer-Encoding: chunked"
        size = b"%x" % len(SHORT)

        def chunked(text, end=b"\r\n"):
            return text + b"\r\n" + SHORT + end + b"0\r\n\r\n"
        for lines, content in (([length, b"Content-Length: 5"], SHORT), ([length + b", 5"], SHORT), ([b"Content-Length: +%d" % len(SHORT)], SHORT),
                               ([length, b" folded"], SHORT), ([b"X : a", length], SHORT), ([b"Transfer-Encoding: xchunked", length], SHORT),
                               ([coding], chunked(b"0x" + size)), ([coding], chunked(b"+" + size)), ([coding], chunked(size + b"z")),
                               ([coding], chunked(size, b"XX")), ([coding, coding], chunked(size))):
            self.assertIn(statuses(self.exchange(post(content, lines)))[0], (400, 501), lines)
        for lines, content in (([coding], chunked(size + b";a=b")), ([coding], size + b"\r\n" + SHORT + b"\r\n0\r\nX: a\r\n\r\n"), ([length], SHORT)):
            self.assertEqual(statuses(self.exchange(post(content, lines))), [200], lines)
        absolute = post().replace(b" /v1", b" http://127.0.0.1:%d/v1" % self.server.port)
        self.assertEqual(statuses(self.exchange(absolute)), [200])

    def test_pipelined_requests_are_answered_in_order(self):
        asked = b"".join(post(json.dumps({"prompt": "abc", "max_tokens": n, "temperature": 0}).encode()) for n in (9, 1, 5, 3))
        got = self.exchange(asked, answers=4)
        self.assertEqual(re.findall(rb'"completion_tokens":(\d+)', got), [b"9", b"1", b"5", b"3"])

    def test_a_post_without_a_body_is_answered_at_once(self):
        self.assertEqual(statuses(self.exchange(post(b"", lines=[]))), [400])

    def test_content_types(self):
        for size in (10, 10_000, 100_000):
            status, content = self.server.call("POST", "/v1/completions", '{"prompt": "%s"}' % ("a" * size),
                                               {"Content-Type": "application/x-www-form-urlencoded"})
            self.assertEqual(status, 415)
            self.assertIn("Content-Type: application/json", content)
        for kind in ("application/json", "Application/JSON; charset=utf-8"):
            self.assertEqual(self.server.call("POST", "/v1/completions", SHORT, {"Content-Type": kind})[0], 200)

    def test_pages_of_the_web_are_not_answered(self):
        def status(**fields):
            return self.server.call("POST", "/v1/completions", SHORT, fields)[0]
        port = self.server.port
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example", ""):
            self.assertEqual(status(Host=host), 403, host)
        for host in (f"127.0.0.1:{port}", "localhost", f"[::1]:{port}"):
            self.assertEqual(status(Host=host), 200, host)
        for origin in ("http://evil.example", "null", "http://localhost:3000"):
            self.assertEqual(status(Host=f"localhost:{port}", Origin=origin), 403, origin)
        self.assertEqual(status(Host=f"localhost:{port}", Origin=f"http://localhost:{port}"), 200)

    def test_ranges_are_ignored(self):
        for fields in ({"Range": "bytes=0-3"}, {"Range": "bytes=" + ",".join(["0-"] * 2500)}):
            self.assertEqual(self.server.call("GET", "/health", headers=fields), (200, '{"status":"ok"}'))
            self.assertIn("choices", json.loads(self.server.call("POST", "/v1/completions", SHORT, fields)[1]))

    def wait_for(self, name, value):
        deadline = time.monotonic() + HANG_S
        while (now := self.server.metric(name)) != value:
            self.assertLess(time.monotonic(), deadline, f"{name} is {now}")
            time.sleep(0.05)

    def test_clients_that_leave_free_their_texts(self):
        for more in ({}, {"stream": True}, {"n": 3}):
            connections = [self.connect() for _ in range(6)]
            for connection in connections:
                connection.sendall(long_request(**more))
            deadline = time.monotonic() + HANG_S
            while self.server.metric("sluice_sequences_running") == 0 and time.monotonic() < deadline:
                time.sleep(0.05)
            for connection in connections:
                connection.close()
            self.wait_for("sluice_sequences_running", 0)
            self.wait_for("sluice_sequences_waiting", 0)
        self.assert_answers()

    def test_one_client_with_many_requests_leaves_room_for_another(self):
        crowd = [self.connect(source="127.0.0.2") for _ in range(60)]
        for connection in crowd:
            connection.sendall(long_request(n=4))
        self.assert_answers()  # by 127.0.0.1, beside texts that never end
        self.assertGreater(self.server.metric("sluice_sequences_waiting"), 0)
        for connection in crowd:
            connection.close()
        self.wait_for("sluice_sequences_running", 0)


class Waiting(BoundsTest):
    arguments = ("--context-length", 4096, "--max-num-seqs", 1, "--max-queued-requests", 6, "--grace", 0.5, "--connections-per-client", 40, "--header-s", 0.5)

    def test_too_many_are_told_to_come_again(self):
        with concurrent.futures.ThreadPoolExecutor(30) as pool:
            got = list(pool.map(lambda _: self.exchange(post(json.dumps({"prompt": "a", "max_tokens": 400}).encode())), range(30)))
        self.assertEqual({statuses(each)[0] for each in got}, {200, 503})
        self.assertTrue(all(b"Retry-After" in each for each in got if statuses(each) == [503]))
        self.assert_answers()

    def test_connections_beyond_the_bound_are_refused(self):
        held = [self.connect(source="127.0.0.3") for _ in range(40)]
        self.assertEqual(statuses(self.connect(source="127.0.0.3").recv(1000)), [503])
        self.assert_answers()
        self.assertEqual(held[0].recv(1000), b"")  # idle from the beginning: closed at its deadline


class Ending(BoundsTest):
    def ended(self, server):
        server.process.send_signal(signal.SIGTERM)
        server.process.communicate(timeout=HANG_S)
        return server.process.returncode

    def test_requests_end_within_the_grace(self):
        server = Server("--model", self.model, *self.arguments, "--grace", HANG_S)
        connection = self.connect(server)
        connection.sendall(post(json.dumps({"prompt": "abc", "max_tokens": 3000, "temperature": 0}).encode()))
        while server.metric("sluice_sequences_running") == 0:
            time.sleep(0.05)
        server.process.send_signal(signal.SIGTERM)
        got = b""
        while piece := connection.recv(1 << 16):
            got += piece
        self.assertEqual(statuses(got), [200])
        self.assertIn(b"Connection: close", got)
        server.process.communicate(timeout=HANG_S)
        self.assertEqual(server.process.returncode, 0)

    def test_the_others_are_told(self):
        server = Server("--model", self.model, *self.arguments, "--grace", 0.2)
        whole = [self.connect(server) for _ in range(40)]
        for connection in whole:
            connection.sendall(long_request())
        stream = self.connect(server)
        stream.sendall(long_request(stream=True))
        stream.recv(10)
        self.assertEqual(self.ended(server), 0)
        for connection in whole:
            got = connection.recv(1 << 16)
            self.assertEqual(statuses(got), [503])
            self.assertIn(b"Retry-After", got)
        got = b""
        while piece := stream.recv(1 << 16):
            got += piece
        self.assertIn(b"the server stops", got[-1000:])
        self.assertNotIn(b"[DONE]", got)


class Keys(BoundsTest):
    environment = {"SLUICE_API_KEY": "first,second"}

    def status(self, key=None, **fields):
        fields |= {"Authorization": key} if key else {}
        return self.server.call("POST", "/v1/completions", SHORT, fields)[0]

    def test_keys(self):
        self.assertEqual([self.status(f"Bearer {key}") for key in ("first", "second", "first,second", "", "firs", "firstfirst")],
                         [200, 200, 401, 401, 401, 401])
        self.assertEqual([self.status("first"), self.status(), self.server.call("GET", "/metrics")[0]], [401] * 3)
        self.assertEqual(self.server.call("GET", "/health")[0], 200)
        self.assertEqual(self.status("Bearer first", Host="a.example"), 200)

    def test_no_body_is_read_before_the_key(self):
        got = self.exchange(post(lines=[b"Content-Length: 10000000", b"Expect: 100-continue"], content=b""))
        self.assertEqual(statuses(got), [401])
        self.assertIn(b"Connection: close", got)


if __name__ == "__main__":
    import unittest
    unittest.main()
