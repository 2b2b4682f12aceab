"""What models say, as text: behind a prompt, in pieces, with places; and the processes in Python that tell it."""

import json
import os
import signal
import subprocess
import unittest

from commands import HANG_S, SLUICE, CommandTest, call
from serve_test import Server, events
from small_models import byte_tokenizer, chain, chained_model, llama_tokenizer


class BehindAPrompt(CommandTest):
    """Llama 2's decoder leaves out the blank in front of what it is given, which is no beginning here."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.folder / "model"
        ids = llama_tokenizer(cls.model)
        hello, world, two = (ids["\u2581" + word] for word in ("Hello", "world", "two"))
        grin = [3 + byte for byte in "\U0001F600".encode()]
        chained_model(cls.model, len(ids), chain([hello, world, *grin, two], 2), 2, bos_token_id=1)
        cls.said = " world\U0001F600 two"
        cls.server = Server("--model", cls.model)
        cls.addClassCleanup(cls.server.close)

    def test_generate(self):
        self.assertEqual(self.done("generate", "--model", self.model, "--prompt", "Hello", "--tokens", 9),
                         "Hello" + self.said + "\n")
        (self.folder / "p.jsonl").write_text('{"prompt": "Hello"}\n')
        self.done("generate", "--model", self.model, "--prompts", self.folder / "p.jsonl", "--out", self.folder / "said.jsonl",
                  "--stop", "wo", "--stop", " two")
        self.assertEqual(json.loads((self.folder / "said.jsonl").read_text())["text"], " ")

    def test_completions(self):
        for echo in (False, True):
            choice = self.server.ask("completions", prompt="Hello", max_tokens=9, temperature=0, logprobs=2,
                                     echo=echo)["choices"][0]
            self.assertEqual(choice["text"], ("Hello" if echo else "") + self.said)
            logprobs = choice["logprobs"]
            self.assertEqual("".join(logprobs["tokens"]), choice["text"])
            self.assertEqual(logprobs["tokens"][-6:], [" world", "", "", "", "\U0001F600", " two"])
            places = [len("".join(logprobs["tokens"][:i])) for i in range(len(logprobs["tokens"]))]
            self.assertEqual(logprobs["text_offset"], places)
            self.assertEqual([len(top) for top in logprobs["top_logprobs"][-6:]], [2] * 6)
            self.assertEqual(list(logprobs["top_logprobs"][-6])[0], " world")

    def test_streams(self):
        body = {"prompt": "Hello", "max_tokens": 9, "temperature": 0, "stream": True}
        _, content = self.server.call("POST", "/v1/completions", body)
        pieces = [json.loads(event)["choices"][0]["text"] for event in events(content)[:-1]]
        self.assertEqual("".join(pieces), self.said)
        self.assertTrue(pieces[0].startswith(" world"), pieces)

    def test_what_a_stop_takes_away_has_no_place(self):
        choice = self.server.ask("completions", prompt="Hello", max_tokens=9, temperature=0, logprobs=1,
                                 stop="two")["choices"][0]
        self.assertEqual(choice["text"], " world\U0001F600 ")
        self.assertLessEqual(max(choice["logprobs"]["text_offset"]), len(choice["text"]))

    def test_a_chat_tells_of_its_alternatives(self):
        byte_tokenizer(self.folder / "chat", configured={
            "eos_token": "<|im_end|>", "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"})
        chained_model(self.folder / "chat", 258, chain([*b"abc"], 257), 257)
        server = Server("--model", self.folder / "chat")
        try:
            answer = server.ask("chat/completions", messages=[{"role": "user", "content": "a"}], max_tokens=4, temperature=0,
                                logprobs=True, top_logprobs=3)
            content = answer["choices"][0]["logprobs"]["content"]
            self.assertEqual([(each["token"], len(each["top_logprobs"])) for each in content], [("b", 3), ("c", 3)])
            self.assertEqual(content[0]["top_logprobs"][0]["token"], "b")
        finally:
            server.close()


class AnswersFile(CommandTest):
    def test_each_line_has_what_was_asked(self):
        model = byte_tokenizer(self.folder / "model", configured={
            "eos_token": "<|im_end|>", "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"})
        chained_model(model, 258, chain([*b"abc"], 257), 257)
        messages = [{"role": "user", "content": "a"}]
        asked = [{"prompt": "a"}, {"messages": messages}, {"ids": [97]}]
        (self.folder / "asked.jsonl").write_text("".join(json.dumps(each) + "\n" for each in asked))
        out = self.folder / "answers.jsonl"
        self.done("generate", "--model", model, "--prompts", self.folder / "asked.jsonl", "--out", out, "--tokens", 2)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        self.assertEqual([line["text"] for line in lines], ["bc"] * 3)
        self.assertEqual([{key: line[key] for key in ("prompt", "messages") if key in line} for line in lines],
                         [{"prompt": "a"}, {"messages": messages}, {"prompt": "a"}])


class RowsWithoutAToken(CommandTest):
    """A model with more rows than its tokenizer has tokens, which finds one of these the likeliest."""

    def test_they_are_never_said(self):
        model = self.folder / "model"
        byte_tokenizer(model, marks=("<|end|>",), configured={"eos_token": "<|end|>"})
        chained_model(model, 272, {}, 269, eos_token_id=256)
        said = json.loads(self.done("generate", "--model", model, "--prompt", "the", "--tokens", 4, "--json"))
        self.assertTrue(all(token < 257 for token in said["ids"]), said)
        server = Server("--model", model)
        try:
            for more in ({}, {"stop": ["x"]}, {"logprobs": 3}, {"stream": True}, {"temperature": 2.0}):
                status, content = server.call("POST", "/v1/completions",
                                              {"prompt": [116, 271], "max_tokens": 3, "temperature": 0} | more)
                self.assertEqual(status, 200, content)
        finally:
            server.close()


class Scoring(CommandTest):
    def test_a_prompt_may_fill_the_context(self):
        model = byte_tokenizer(self.folder / "model", configured={"eos_token": "<|im_end|>"})
        chained_model(model, 258, {}, 257)
        server = Server("--model", model, "--context-length", 64)
        try:
            body = {"max_tokens": 0, "echo": True, "logprobs": 1}
            answer = server.ask("completions", prompt=[97] * 64, **body)
            self.assertEqual(len(answer["choices"][0]["logprobs"]["token_logprobs"]), 64)
            self.assertEqual(server.call("POST", "/v1/completions", body | {"prompt": [97] * 65})[0], 400)
            self.assertEqual(server.call("POST", "/v1/completions", {"prompt": [97] * 64, "max_tokens": 1})[0], 400)
        finally:
            server.close()


class Children(CommandTest):
    """Processes in Python beside a command."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = byte_tokenizer(cls.folder / "model", marks=("<pad>", "<EOT>"))
        chained_model(cls.model, 258, {}, 97, eos_token_id=None)
        (cls.folder / "a.txt").write_text("Line of text.\n\n" * 40)
        cls.done("corpus", "build", cls.folder / "a.txt", "--tokenizer", cls.model, "--end-token", "none", "--out",
                 cls.folder / "corpus")

    def test_a_tokenizer_that_is_killed_is_started_anew(self):
        server = Server("--model", self.model)
        try:
            for _ in range(3):
                children = subprocess.run(["pgrep", "-P", str(server.process.pid)], capture_output=True, text=True).stdout.split()
                self.assertTrue(children)
                for child in children:
                    os.kill(int(child), signal.SIGKILL)
                for _ in range(6):
                    status, content = server.call("POST", "/v1/completions", {"prompt": "abc", "max_tokens": 2})
                    self.assertEqual(status, 200, content)
        finally:
            server.close()

    def test_an_end_of_documents_is_needed_to_end_documents_alone(self):
        built = call("corpus", "build", self.folder / "a.txt", "--tokenizer", self.model, "--out", self.folder / "none")
        self.assertEqual(built.returncode, 2)
        self.assertIn("or 'none', with --end-token", built.stderr)
        corpus = self.folder / "corpus/corpus"
        self.assertIn("Line of text.", self.done("corpus", "show", corpus, 0))
        self.done("inspect", corpus)
        self.done("inspect", self.model / "tokenizer.json")
        self.done("generate", "--model", self.model, "--prompt", "abc", "--tokens", 2)

    def test_every_command_takes_the_interpreter_that_is_there(self):
        corpus = self.folder / "corpus/corpus"
        commands = {
            "corpus build": (self.folder / "a.txt", "--tokenizer", self.model, "--end-token", "none", "--out", self.folder / "b"),
            "corpus show": (corpus, 0), "inspect": (corpus,),
            "generate": ("--model", self.model, "--prompt", "abc", "--tokens", 2)}
        (self.folder / "home").mkdir()
        elsewhere = {name: value for name, value in os.environ.items() if name != "SLUICE_DEPS"}
        elsewhere |= {"HOME": str(self.folder / "home"), "PYTHONHOME": "/nonexistent", "PYTHONSAFEPATH": "1"}
        for command, arguments in commands.items():
            with self.subTest(command):
                words = [SLUICE, *command.split(), *map(str, arguments)]
                found = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, env=elsewhere)
                self.assertEqual(found.returncode, 0, found.stderr)
                told = call(*command.split(), *arguments, "--python", "/nonexistent/python")
                self.assertEqual(told.returncode, 2)
                self.assertIn("cannot start /nonexistent/python: No such file or directory", told.stderr)
                self.assertIn("name another Python with --python", told.stderr)


if __name__ == "__main__":
    unittest.main()
