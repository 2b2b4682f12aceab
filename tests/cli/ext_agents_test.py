"""examples/ext_agents.py against a server that is told what to say, and against `sluice serve` with a small model."""

import http.server
import json
import pathlib
import re
import subprocess
import sys
import threading
import unittest

from commands import HANG_S, CommandTest

PROGRAM = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "ext_agents.py"
FILLER = "The weather was fine and nothing of note happened on that day. " * 40


class Stub(http.server.ThreadingHTTPServer):
    """Answers chats by reply(system, user); `busy` requests are refused first."""

    def __init__(self, reply, busy=0):
        self.reply, self.busy, self.asked = reply, busy, []
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            refused = self.server.busy > 0
            self.server.busy -= refused
        system, user = (message["content"] for message in body["messages"])
        status, answer = 503, {"error": {"message": "full"}}
        if not refused:
            with self.server.lock:
                self.server.asked.append(user)
            reply = self.server.reply(system, user)
            status = 200 if reply is not None else 400
            answer = {"choices": [{"message": {"content": reply}}], "usage": {"total_tokens": len(user) // 4}}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def librarian(system, user):
    """Notes sentences with "lighthouse"; who the keeper's sister is only once he knows the keeper's name; answers with both."""
    if system.startswith("Answer"):
        return "Ada Finch built it." if "keeper is Tom" in user and "sister Ada" in user else "UNKNOWN"
    part = user.split("\n\nQuestion:")[0]
    facts = [f"8: The lighthouse's keeper is Tom." for _ in re.findall("keeper is Tom", part)]
    if "sister Ada" in part and "keeper is Tom" in user.split("Facts that have been noted")[-1] and "noted" in user:
        facts.append("9: Tom's sister Ada Finch built the lighthouse.")
    facts += ["2: There is a lighthouse." for _ in re.findall("a lighthouse stands", part)]
    return "\n".join(facts) or "NONE"


class ExtAgents(CommandTest):
    def ask(self, server, *arguments, texts=("letters.txt",), expect=0):
        done = subprocess.run([sys.executable, "-B", str(PROGRAM), "--server", server, "--question", "Who built the lighthouse?",
                               *arguments, *(str(self.folder / text) for text in texts)], text=True, capture_output=True, timeout=HANG_S)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done

    def stub(self, reply, **options):
        server = Stub(reply, **options)
        self.addCleanup(server.close)
        return server

    def write_letters(self):
        pages = [FILLER, "On the cape a lighthouse stands.\n\n" + FILLER, FILLER + "Its keeper is Tom.", FILLER,
                 FILLER + "Tom's sister Ada laid every stone."]
        (self.folder / "letters.txt").write_text("\n\n".join(pages))

    def test_facts_of_several_parts_come_together(self):
        self.write_letters()
        server = self.stub(librarian)
        trace = self.folder / "trace.jsonl"
        done = self.ask(server.url, "--part", "3000", "--trace", trace)
        self.assertIn("Ada Finch built it.", done.stdout)
        self.assertRegex(done.stdout, r"9  part \d+: Tom's sister Ada Finch")
        lines = [json.loads(line) for line in trace.read_text().splitlines()]
        self.assertEqual(len(lines), len(server.asked))
        rounds = {int(found[1]) for line in lines if (found := re.search(r"round (\d+)", line["who"]))}
        self.assertEqual(rounds, {1, 2, 3}, "one finds the keeper, one his sister, one nothing new")
        reducers = [line["who"] for line in lines if line["who"].startswith("reducer")]
        self.assertEqual(reducers, ["reducer, 1 facts", "reducer, 2 facts"])
        for line in lines:
            self.assertLess(len(line["messages"][1]["content"]), 3000 + 600)

    def test_nothing_found_is_said(self):
        (self.folder / "letters.txt").write_text(FILLER)
        done = self.ask(self.stub(lambda *_: "NONE").url, expect=3)
        self.assertIn("No answer: 0 facts from 1 parts", done.stdout)

    def test_a_full_server_is_waited_for(self):
        self.write_letters()
        done = self.ask(self.stub(librarian, busy=4).url, "--part", "3000")
        self.assertIn("Ada Finch built it.", done.stdout)

    def test_what_is_wrong_is_named(self):
        self.write_letters()
        self.assertIn("answers 400", self.ask(self.stub(lambda *_: None).url, expect=1).stderr)
        self.assertIn("start `sluice serve`", self.ask("http://127.0.0.1:9", expect=1).stderr)
        self.assertIn("missing.txt: No such file", self.ask("http://127.0.0.1:9", texts=("missing.txt",), expect=1).stderr)
        (self.folder / "letters.txt").write_text(" ")
        self.assertIn("the texts are empty", self.ask("http://127.0.0.1:9", expect=1).stderr)
        self.assertIn("0 is no count", self.ask("http://127.0.0.1:9", "--part", "0", expect=2).stderr)


if __name__ == "__main__":
    unittest.main()
