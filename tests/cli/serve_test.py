"""sluice serve: OpenAI's endpoints on a small model, asked by many at once, wrongly, and by some who leave."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import time
import unittest
import urllib.request

from chat_corpora_test import PLAIN, TOOLS, WRITER
from commands import HANG_S, SLUICE, CommandTest, call

VOCABULARY = 258
CONFIG = """
[model]
layers = 2
hidden = 32
heads = 4
kv_heads = 2
ffn_hidden = 48
vocab = {vocabulary}
[data]
train = [["{folder}/corpus/corpus", 1.0]]
context_length = 128
tokens_per_step = 512
[train]
steps = 2
threads = 1
dtype = "float64"
[parallel]
strategies = ["<1,1,1>"]
calibration = "analytic"
[memory]
device_gib = 1.0
margin_gib = 0.1
[checkpoint]
every = 2
[log]
dir = "{folder}/run"
tensorboard = false
"""


class Server:
    """A server on a port of its own, until close()."""

    def __init__(self, *arguments, **environment):
        self.process = subprocess.Popen(
            [SLUICE, "serve", "--port", "0", "--threads", "1", "--dtype", "float64", *map(str, arguments)],
            stderr=subprocess.PIPE, text=True, env=os.environ | environment)
        self.log = ""
        for line in self.process.stderr:
            self.log += line
            if found := re.search(r"serving .* at http://127\.0\.0\.1:(\d+)/v1", line):
                self.port = int(found.group(1))
                return
        raise AssertionError(f"the server did not start: {self.log}")

    def call(self, method, path, body=None, headers=(), timeout=HANG_S):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        data = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)
        connection.request(method, path, data, dict(headers))
        response = connection.getresponse()
        content = response.read().decode()
        connection.close()
        return response.status, content

    def ask(self, path, **body):
        status, content = self.call("POST", f"/v1/{path}", body)
        assert status == 200, content
        return json.loads(content)

    def metric(self, name):
        _, content = self.call("GET", "/metrics")
        return int(re.search(rf"^{name} (\d+)$", content, re.MULTILINE).group(1))

    def rank(self, number):
        """The process of a rank, which is started by the server's own; None: there is none."""
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if ((folder / "comm").read_text().strip() == f"sluice rank {number}"
                        and int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]) == self.process.pid):
                    return int(folder.name)
            except OSError:  # it has ended
                pass
        return None

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        _, rest = self.process.communicate(timeout=HANG_S)
        self.log += rest
        return self.process.returncode


def events(content):
    return [line[len("data: "):] for line in content.split("\n\n") if line]


class Serve(CommandTest):
    ranks = ()  # that serve
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        tokenizer = cls.folder / "tokenizer"
        tokenizer.mkdir()
        subprocess.run([TOOLS, "-c", WRITER, tokenizer / "tokenizer.json"], check=True)
        (tokenizer / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": PLAIN}))
        text = cls.folder / "text"
        text.mkdir()
        source = pathlib.Path(json.__file__).parent
        for path in source.glob("*.py"):
            (text / path.name).write_bytes(path.read_bytes())
        cls.done("corpus", "build", text, "--out", cls.folder / "corpus", "--delimiter", "\\n\\n\\n", "--tokenizer", tokenizer)
        config = cls.folder / "run.toml"
        config.write_text(CONFIG.format(folder=cls.folder, vocabulary=VOCABULARY))
        cls.done("train", "--config", config)
        cls.model = ("--model", cls.folder / "run", "--tokenizer", tokenizer)
        cls.server = Server(*cls.model, *cls.ranks, "--name", "small", "--max-num-seqs", 8, "--max-queued-requests", 40, "--context-length", 256)
        cls.addClassCleanup(cls.server.close)

    def generated(self, prompt, *arguments):
        return json.loads(self.done("generate", *self.model, "--prompt", prompt, "--dtype", "float64", "--threads", 1, "--json",
                                    *arguments))

    def test_a_completion_is_what_generate_says(self):
        said = self.generated("def main():", "--tokens", 20)
        answer = self.server.ask("completions", prompt="def main():", max_tokens=20, temperature=0, logprobs=1)
        choice = answer["choices"][0]
        self.assertEqual(choice["text"], said["text"])
        self.assertEqual(choice["finish_reason"], said["finish_reason"])
        for ours, theirs in zip(choice["logprobs"]["token_logprobs"], said["logprobs"], strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-11)
        self.assertEqual((answer["object"], answer["model"]), ("text_completion", "small"))
        self.assertEqual(answer["usage"], {"prompt_tokens": 11, "completion_tokens": 20, "total_tokens": 31})

    def test_prompts_samples_and_seeds(self):
        wanted = {"max_tokens": 12, "temperature": 0.9, "seed": 5, "n": 2}
        answer = self.server.ask("completions", prompt=["one", [100, 101, 102]], **wanted)
        self.assertEqual([choice["index"] for choice in answer["choices"]], [0, 1, 2, 3])
        again = self.server.ask("completions", prompt=["one", [100, 101, 102]], **wanted)
        self.assertEqual(answer["choices"], again["choices"])
        self.assertNotEqual(answer["choices"][0]["text"], answer["choices"][1]["text"])

    def test_a_stream_is_the_same_text_in_pieces(self):
        body = {"prompt": "import", "max_tokens": 30, "temperature": 0.8, "seed": 1, "n": 2}
        whole = self.server.ask("completions", **body)
        _, content = self.server.call("POST", "/v1/completions", body | {"stream": True})
        *chunks, last = events(content)
        self.assertEqual(last, "[DONE]")
        texts, reasons = ["", ""], [None, None]
        for chunk in map(json.loads, chunks):
            choice = chunk["choices"][0]
            texts[choice["index"]] += choice["text"]
            reasons[choice["index"]] = choice["finish_reason"]
        self.assertEqual(texts, [choice["text"] for choice in whole["choices"]])
        self.assertEqual(reasons, [choice["finish_reason"] for choice in whole["choices"]])

    def test_stops_are_left_out(self):
        free = self.server.ask("completions", prompt="x", max_tokens=40, temperature=0.9, seed=2)["choices"][0]["text"]
        stop = free[10:13]
        for stream in (False, True):
            body = {"prompt": "x", "max_tokens": 40, "temperature": 0.9, "seed": 2, "stop": ["never said", stop], "stream": stream}
            _, content = self.server.call("POST", "/v1/completions", body)
            if stream:
                text = "".join(json.loads(event)["choices"][0]["text"] for event in events(content)[:-1])
            else:
                text = json.loads(content)["choices"][0]["text"]
                self.assertEqual(json.loads(content)["choices"][0]["finish_reason"], "stop")
            self.assertEqual(text, free[:free.index(stop)])

    def test_a_prompt_that_is_echoed_is_scored_as_eval_does(self):
        """What lm-evaluation-harness asks of local-completions."""
        text = (self.folder / "text" / "decoder.py").read_text()[:90]
        (self.folder / "echo.txt").write_text(text)
        self.done("corpus", "build", self.folder / "echo.txt", "--out", self.folder / "echo", "--tokenizer",
                  self.folder / "tokenizer")
        losses = self.folder / "losses.jsonl"
        self.done("eval", "--model", self.folder / "run", "--corpus", self.folder / "echo/corpus", "--losses", losses,
                  "--threads", 1, "--dtype", "float64")
        ids = struct.unpack("<%dH" % (len((self.folder / "echo/corpus.bin").read_bytes()) // 2),
                            (self.folder / "echo/corpus.bin").read_bytes())
        answer = self.server.ask("completions", prompt=list(ids), max_tokens=1, temperature=0, logprobs=1, echo=True)
        logprobs = answer["choices"][0]["logprobs"]
        self.assertEqual(len(logprobs["token_logprobs"]), len(ids) + 1)
        self.assertIsNone(logprobs["token_logprobs"][0])
        self.assertAlmostEqual(-sum(logprobs["token_logprobs"][1:-1]), json.loads(losses.read_text())["loss_sum"], delta=1e-9)
        for score, top in zip(logprobs["token_logprobs"][1:], logprobs["top_logprobs"][1:], strict=True):
            self.assertLessEqual(score, max(top.values()) + 1e-12)

    def test_chats_go_through_the_template(self):
        messages = [{"role": "user", "content": "Hi"}]
        answer = self.server.ask("chat/completions", messages=messages, max_tokens=10, temperature=0, logprobs=True)
        prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        same = self.server.ask("completions", prompt=prompt, max_tokens=10, temperature=0)
        message = answer["choices"][0]["message"]
        self.assertEqual((message["role"], message["content"]), ("assistant", same["choices"][0]["text"]))
        self.assertEqual(len(answer["choices"][0]["logprobs"]["content"]), answer["usage"]["completion_tokens"])
        _, content = self.server.call("POST", "/v1/chat/completions", {
            "messages": messages, "max_completion_tokens": 10, "temperature": 0, "stream": True})
        deltas = [json.loads(event)["choices"][0]["delta"] for event in events(content)[:-1]]
        self.assertEqual(deltas[0]["role"], "assistant")
        self.assertEqual("".join(delta.get("content", "") for delta in deltas), message["content"])

    def test_chats_are_put_in_order_as_corpora_are(self):
        def tokens(content, **more):
            messages = [{"role": "user", "content": content}]
            return self.server.ask("chat/completions", messages=messages, max_tokens=1, temperature=0, **more)["usage"]["prompt_tokens"]
        text = "What colour is grass?"
        self.assertEqual(tokens([{"type": "text", "text": text}]), tokens(text))
        self.assertEqual(tokens("<|im_end|>") - tokens(""), len("<|im_end|>"))  # which somebody wrote, so a byte each
        self.assertEqual(tokens(text, chat_template_kwargs={"enable_thinking": False}), tokens(text))
        status, answer = self.server.call("POST", "/v1/completions", {"prompt": "a", "chat_template_kwargs": {"a": 1}})
        self.assertEqual(status, 400)
        self.assertIn("chat_template_kwargs", answer)

    def test_a_file_of_prompts_may_have_chats(self):
        prompts = self.folder / "chats.jsonl"
        prompts.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi"}]}) + "\n")
        out = self.folder / "chats_said.jsonl"
        self.done("generate", *self.model, "--prompts", prompts, "--out", out, "--tokens", 10, "--dtype", "float64")
        answer = self.server.ask("chat/completions", messages=[{"role": "user", "content": "Hi"}], max_tokens=10, temperature=0)
        self.assertEqual(json.loads(out.read_text())["text"], answer["choices"][0]["message"]["content"])

    def test_many_at_once_each_get_what_they_would_alone(self):
        def ask(number):
            return self.server.ask("completions", prompt="n" * (1 + number % 50), max_tokens=5 + number % 20, temperature=0.9,
                                   seed=number)["choices"][0]["text"]
        alone = [ask(number) for number in range(12)]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            self.assertEqual(list(pool.map(ask, range(12))), alone)

    def test_who_asks_wrongly_is_told_what(self):
        def refusal(body, path="completions", status=400):
            got, content = self.server.call("POST", f"/v1/{path}", body)
            self.assertEqual(got, status, content)
            return json.loads(content)["error"]["message"]
        self.assertIn("is not JSON", refusal("{"))
        self.assertIn("prompt is missing", refusal({}))
        self.assertIn("temperature is", refusal({"prompt": "a", "temperature": "hot"}))
        self.assertIn("temperature", refusal({"prompt": "a", "temperature": -1}))
        self.assertIn("top_p", refusal({"prompt": "a", "top_p": 0}))
        self.assertIn(f"ids from 0 to {VOCABULARY - 1}", refusal({"prompt": [VOCABULARY]}))
        self.assertIn("has no token", refusal({"prompt": [[]]}))
        self.assertIn("together more than the 256", refusal({"prompt": "a" * 200, "max_tokens": 100}))
        self.assertIn("frequency_penalty is 2.5", refusal({"prompt": "a", "frequency_penalty": 2.5}))
        self.assertIn("messages are missing", refusal({}, "chat/completions"))
        self.assertIn("unknown role 'king'", refusal({"messages": [{"role": "king", "content": ""}]}, "chat/completions"))
        self.assertIn("a stream", refusal({"prompt": "a", "stream": True, "logprobs": 1}))
        for method, path, status in (("GET", "/v1/nothing", 404), ("GET", "/v1/completions", 404)):
            got, content = self.server.call(method, path)
            self.assertEqual((got, json.loads(content)["error"]["type"]), (status, "invalid_request_error"))
        for path in ("/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/classify", "/pooling", "/v1/embeddings"):
            status, content = self.server.call("POST", path, {"input": "a", "query": "a", "documents": ["b"]})
            error = json.loads(content)["error"]
            self.assertEqual((status, error["code"]), (400, "unsupported_endpoint"), path)
            self.assertIn("does not end in a head", error["message"])
        self.assertEqual(self.server.call("GET", "/health"), (200, '{"status":"ok"}'))

    def test_who_leaves_makes_room(self):
        before = self.server.metric("sluice_requests_aborted_total")
        for _ in range(3):
            body = json.dumps({"prompt": "x", "max_tokens": 250, "stream": True, "temperature": 0.9})
            with socket.create_connection(("127.0.0.1", self.server.port)) as asker:
                asker.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                asker.recv(200)
        self.server.ask("completions", prompt="y", max_tokens=200, temperature=0.9, seed=1)
        self.server.ask("completions", prompt="y", max_tokens=200, temperature=0.9, seed=1)
        self.assertGreaterEqual(self.server.metric("sluice_requests_aborted_total") + self.server.metric("sluice_sequences_running"),
                                before)
        self.assertEqual(self.server.metric("sluice_sequences_waiting"), 0)

    def test_a_run_is_followed(self):
        config, run = self.folder / "run.toml", self.folder / "followed"
        train = lambda steps: self.done("train", "--config", config, "--set", f"log.dir={run}", "--set", f"train.steps={steps}",
                                        "--resume", "auto")
        train(2)
        server = Server("--model", run, "--tokenizer", self.folder / "tokenizer", "--follow", "--context-length", 256,
                        *getattr(self, "ranks", ()))
        self.addCleanup(server.close)
        ask = lambda: server.ask("completions", prompt="import json", max_tokens=6, temperature=0, logprobs=1)["choices"][0]["logprobs"]
        before = ask()
        train(6)
        deadline = time.monotonic() + HANG_S
        while (now := ask()) == before and time.monotonic() < deadline:
            time.sleep(0.2)
        said = json.loads(self.done("generate", "--model", run, "--tokenizer", self.folder / "tokenizer", "--prompt", "import json",
                                    "--tokens", 6, "--dtype", "float64", "--threads", 1, "--json"))
        self.assertNotEqual(now, before)
        for ours, theirs in zip(now["token_logprobs"], said["logprobs"], strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-11)
        server.close()
        self.assertIn("step-6", server.log)

    def test_a_key_is_asked_for_and_too_many_are_refused(self):
        server = Server(*self.model, "--max-num-seqs", 1, "--max-queued-requests", 1, "--context-length", 512, SLUICE_API_KEY="secret")
        try:
            status, content = server.call("GET", "/v1/models")
            self.assertEqual(status, 401)
            self.assertIn("the key is wrong or missing", content)
            key = {"Authorization": "Bearer secret"}
            self.assertEqual(json.loads(server.call("GET", "/v1/models", headers=key)[1])["data"][0]["id"],
                             str(self.folder / "run"))

            def ask(number):
                return server.call("POST", "/v1/completions", {"prompt": "x", "max_tokens": 300, "temperature": 1.0, "seed": number},
                                   headers=key)[0]
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                statuses = list(pool.map(ask, range(12)))
            self.assertEqual(set(statuses), {200, 503})
        finally:
            self.assertEqual(server.close(), 0)
        self.assertIn("told to stop", server.log)

    def test_other_machines_are_not_let_in_without_a_key(self):
        done = subprocess.run([SLUICE, "serve", *map(str, self.model), "--host", "0.0.0.0", "--port", "0"], capture_output=True,
                              text=True, timeout=HANG_S, env={k: v for k, v in os.environ.items() if k != "SLUICE_API_KEY"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("set SLUICE_API_KEY", done.stderr)
        taken = subprocess.run([SLUICE, "serve", *map(str, self.model), "--port", str(self.server.port)], capture_output=True,
                               text=True, timeout=HANG_S)
        self.assertEqual(taken.returncode, 2)
        self.assertIn("another program does", taken.stderr)

    def test_the_address_that_is_said_can_be_opened(self):
        """An IPv6 address stands in brackets, because of its colons."""
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            self.skipTest(f"no IPv6 here: {error}")
        process = subprocess.Popen([SLUICE, "serve", "--port", "0", "--host", "::1", "--threads", "1", *map(str, self.model)],
                                   stderr=subprocess.PIPE, text=True)
        try:
            url = next(found.group(1) for line in process.stderr if (found := re.search(r" at (http://\S+)/v1;", line)))
            with urllib.request.urlopen(f"{url}/health", timeout=HANG_S) as response:
                self.assertEqual(response.status, 200)
        finally:
            process.terminate()
            process.communicate()


class ServeOnRanks(Serve):
    """The same of one model on two stages of two TP ranks each."""

    ranks = ("--nproc", 4, "--strategy", "<2,2,1>")
    test_a_file_of_prompts_may_have_chats = None  # of another command
    test_a_key_is_asked_for_and_too_many_are_refused = test_other_machines_are_not_let_in_without_a_key = None
    test_the_address_that_is_said_can_be_opened = None

    def test_a_lost_rank_is_started_anew_and_the_endpoint_answers_again(self):
        ask = lambda **more: self.server.call("POST", "/v1/completions", {"prompt": "def main():", "max_tokens": 8, "temperature": 0} | more)
        status, before = ask()
        self.assertEqual(status, 200, before)
        for lost in (3, 0):
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                process = self.server.rank(lost)
                asked = pool.submit(ask, max_tokens=240, n=8, temperature=1, seed=1)
                while self.server.metric("sluice_sequences_running") == 0 and not asked.done():
                    pass
                os.kill(process, signal.SIGKILL)
                if lost != 0:  # else nobody is left to say so
                    self.assertIn(asked.result(HANG_S)[0], (200, 503))
            deadline, status = time.monotonic() + HANG_S, 0
            while status != 200 and time.monotonic() < deadline:
                try:
                    status, after = ask()
                except (OSError, http.client.HTTPException):  # nobody listens yet
                    pass
                time.sleep(0.1)
            self.assertEqual(status, 200)
            self.assertEqual(json.loads(after)["choices"], json.loads(before)["choices"])

    def test_what_ranks_cannot_serve_is_refused(self):
        for arguments, told in {("--strategy", "2x<1,1,1>"): "start a server for each", (): "--strategy"}.items():
            done = call("serve", *self.model, "--nproc", 2, *arguments)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(told, done.stderr)


if __name__ == "__main__":
    unittest.main()
