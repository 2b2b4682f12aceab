"""sluice serve of models that end in a head: embeddings, reranking, scores and classes, beside what `embed` and `eval --scores` say of
the same texts; asked wrongly, by many at once, and by clients that leave."""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import math
import os
import signal
import socket
import struct
import time
import unittest

from commands import HANG_S, CommandTest, call
from serve_test import Server
from small_models import byte_tokenizer, run_configuration

SHAPE = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn_hidden": 48, "vocab": 258}
TEXTS = ["the harbour at noon", "a tide clock", "how to tie a knot", "rope and canvas", "salt", "north by north west, and a long way",
         "the harbour at night", "knots"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def unit(values):
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


class HeadTest(CommandTest):
    ranks = ()
    around = ()  # marks that the tokenizer puts around a text

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokenizer = byte_tokenizer(cls.folder / "tokenizer", configured={"chat_template": TEMPLATE}, around=cls.around)

    @classmethod
    def corpus(cls, name, objects, *arguments):
        lines = cls.folder / f"{name}.jsonl"
        lines.write_text("".join(json.dumps(each) + "\n" for each in objects))
        cls.done("corpus", "build", lines, "--tokenizer", cls.tokenizer,
                 *(() if {"--end-token", "--labels"} & set(arguments) else ("--end-token", "none")), *arguments, "--out", cls.folder / name)
        return cls.folder / name / "corpus"

    @classmethod
    def trained(cls, name, corpus, **head):
        config = cls.folder / f"{name}.toml"
        changes = {f"head__{key}": value for key, value in head.items()}
        config.write_text(run_configuration(SHAPE, corpus, cls.folder / f"{name}-run", train__dtype="float64", optimizer__lr=0.02,
                                            optimizer__warmup_steps=0, **changes))
        cls.done("train", "--config", config)
        return cls.folder / f"{name}-run"

    @classmethod
    def serve(cls, run, *arguments):
        server = Server("--model", run, "--tokenizer", cls.tokenizer, "--name", "mine", "--context-length", 64, *cls.ranks, *arguments)
        cls.addClassCleanup(server.close)
        return server

    def assert_near(self, ours, theirs, delta=1e-5):
        self.assertEqual(len(ours), len(theirs))
        for mine, other in zip(ours, theirs, strict=True):
            self.assertAlmostEqual(mine, other, delta=delta)

    def refused(self, server, path, said, status=400, **body):
        got, content = server.call("POST", path, body)
        self.assertEqual(got, status, content)
        self.assertIn(said, json.loads(content)["error"]["message"])


class Embeddings(HeadTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        texts = cls.corpus("texts", [{"text": text} for text in TEXTS])
        near = cls.corpus("near", [{"text": text[::-1]} for text in TEXTS])
        cls.run_folder = cls.trained("embed", texts, kind="embed", positives=[str(near)], pairs_per_step=4)
        cls.server = cls.serve(cls.run_folder, "--max-num-batched-tokens", 40)
        lines = cls.folder / "lines.txt"
        lines.write_text("\n".join(TEXTS) + "\n")
        told = cls.done("embed", lines, "--model", cls.run_folder, "--tokenizer", cls.tokenizer, "--dtype", "float64")
        cls.expected = [json.loads(line)["embedding"] for line in told.splitlines()]

    def embeddings(self, **body):
        answer = self.server.ask("embeddings", **body)
        return [each["embedding"] for each in answer["data"]]

    def test_they_are_those_of_embed_whatever_form_the_input_has(self):
        answer = self.server.ask("embeddings", input=TEXTS, model="mine")
        self.assertEqual([each["index"] for each in answer["data"]], list(range(len(TEXTS))))
        self.assertEqual((answer["object"], answer["model"]), ("list", "mine"))
        tokens = sum(map(len, TEXTS))
        self.assertEqual(answer["usage"], {"prompt_tokens": tokens, "total_tokens": tokens})
        for each, expected in zip(answer["data"], self.expected, strict=True):
            self.assert_near(each["embedding"], expected)
        ids = [list(text.encode()) for text in TEXTS]
        for form in (TEXTS[2], ids[2]):
            self.assert_near(self.embeddings(input=form)[0], self.expected[2])
        self.assert_near(self.embeddings(input=ids)[5], self.expected[5])

    def test_base64_and_fewer_dimensions(self):
        packed = self.embeddings(input=TEXTS[0], encoding_format="base64")[0]
        self.assert_near(struct.unpack("<32f", base64.b64decode(packed)), self.expected[0])
        self.assert_near(self.embeddings(input=TEXTS[0], dimensions=5)[0], unit(self.expected[0][:5]))

    def test_a_text_of_one_token_and_one_that_is_cut(self):
        self.assertAlmostEqual(dot(*[self.embeddings(input="a")[0]] * 2), 1, delta=1e-5)
        self.assert_near(self.embeddings(input=TEXTS[5] * 9, truncate_prompt_tokens=len(TEXTS[5]))[0], self.expected[5])

    def test_many_clients_get_what_each_would_get_alone(self):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            asked = [pool.submit(self.embeddings, input=TEXTS[i % len(TEXTS)]) for i in range(96)]
            for i, each in enumerate(asked):
                self.assert_near(each.result()[0], self.expected[i % len(TEXTS)])

    def test_documents_are_ranked_by_cosine(self):
        for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
            status, content = self.server.call("POST", path, {"query": TEXTS[0], "documents": TEXTS[1:], "top_n": 3})
            self.assertEqual(status, 200, content)
            results = json.loads(content)["results"]
            cosines = [dot(self.expected[0], each) for each in self.expected[1:]]
            order = sorted(range(len(cosines)), key=lambda i: -cosines[i])[:3]
            self.assertEqual([each["index"] for each in results], order)
            self.assert_near([each["relevance_score"] for each in results], [cosines[i] for i in order])
            self.assertEqual([each["document"]["text"] for each in results], [TEXTS[1 + i] for i in order])

    def test_scores_are_cosines(self):
        answer = self.server.ask("score", text_1=TEXTS[:2], text_2=TEXTS[2:4])
        self.assert_near([each["score"] for each in answer["data"]],
                         [dot(self.expected[i], self.expected[2 + i]) for i in range(2)])

    def test_wrong_requests_are_refused_by_name(self):
        refused = self.refused
        refused(self.server, "/v1/embeddings", "input[1] is an empty text", input=["a", ""])
        refused(self.server, "/v1/embeddings", "input is missing")
        refused(self.server, "/v1/embeddings", "has 65 tokens, more than the 64", input="a" * 65)
        refused(self.server, "/v1/embeddings", "dimensions", input="a", dimensions=33)
        refused(self.server, "/v1/embeddings", "'other' is not served here", status=404, input="a", model="other")
        refused(self.server, "/v1/embeddings", "stream", input="a", stream=True)
        refused(self.server, "/v1/completions", "ends in embeddings of 32 numbers", prompt="a")
        refused(self.server, "/v1/chat/completions", "ends in embeddings of 32 numbers", messages=[])
        refused(self.server, "/classify", "knows no classes", input="a")
        refused(self.server, "/rerank", "documents is missing", query="a")
        self.assertEqual(self.server.call("GET", "/health")[0], 200)

    def test_it_says_what_it_serves(self):
        model = json.loads(self.server.call("GET", "/v1/models")[1])["data"][0]
        self.assertEqual((model["id"], model["max_model_len"]), ("mine", 64))
        before = self.server.metric("sluice_prompt_tokens_total")
        self.embeddings(input="abc")
        self.assertEqual(self.server.metric("sluice_prompt_tokens_total"), before + 3)

    def test_clients_that_leave_and_texts_beyond_the_bound(self):
        server = self.serve(self.run_folder, "--max-queued-requests", 400, "--waiting-per-client", 300, "--max-num-batched-tokens", 64)
        body = json.dumps({"input": ["b" * 64] * 300}).encode()
        head = b"POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S)) for _ in range(8)]
            for connection in connections:
                connection.sendall(head + body)
            told = (int(connection.recv(64).split()[1]) for connection in reversed(connections))
            self.assertIn(503, told)
        # Their remains are dropped before the next batch.
        end = time.monotonic() + HANG_S
        while server.call("POST", "/v1/embeddings", {"input": "after all of them"})[0] != 200:
            self.assertLess(time.monotonic(), end, "texts that clients left still stand in the way")
            time.sleep(0.05)
        self.assertGreater(server.metric("sluice_requests_refused_total"), 0)
        self.assertEqual(server.close(), 0)


class EmbeddingsOnRanks(Embeddings):
    """The same of one model on two TP ranks, and of a copy that a third has alone."""

    ranks = ("--nproc", 3, "--strategy", "<2,1,1> + <1,1,1>")

    def test_a_lost_rank_is_started_anew_and_the_endpoint_answers_again(self):
        server = self.serve(self.run_folder)
        body = {"input": TEXTS}
        self.assertEqual(server.call("POST", "/v1/embeddings", body)[0], 200)
        lost = server.rank(2)
        os.kill(lost, signal.SIGKILL)
        end, status = time.monotonic() + HANG_S, 0
        while status != 200:
            self.assertLess(time.monotonic(), end, "the endpoint does not answer again")
            time.sleep(0.05)
            if server.rank(2) in (None, lost):
                continue
            with contextlib.suppress(OSError, http.client.HTTPException):  # nobody listens yet
                status, content = server.call("POST", "/v1/embeddings", body)
        for each, expected in zip(json.loads(content)["data"], self.expected, strict=True):
            self.assert_near(each["embedding"], expected)


class Rewards(HeadTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        chosen = cls.corpus("chosen", [{"text": text} for text in TEXTS])
        rejected = cls.corpus("rejected", [{"text": text[::-1]} for text in TEXTS])
        cls.run_folder = cls.trained("reward", chosen, kind="reward", rejected=[str(rejected)], pairs_per_step=4)
        cls.server = cls.serve(cls.run_folder, "--pair-template", "{query}\n{document}")

    def rewards_of(self, texts):
        corpus = self.corpus("scored", [{"text": text} for text in texts])
        scores = self.folder / "scores.jsonl"
        self.done("eval", "--model", self.run_folder, "--corpus", corpus, "--scores", scores, "--dtype", "float64", "--other-tokenizer")
        return [json.loads(line)["numbers"][0] for line in scores.read_text().splitlines()]

    def test_they_are_those_of_eval(self):
        expected = self.rewards_of(TEXTS)
        status, content = self.server.call("POST", "/pooling", {"input": TEXTS})
        self.assertEqual(status, 200, content)
        self.assert_near([each["data"][0] for each in json.loads(content)["data"]], expected)
        answer = self.server.ask("classify", input=TEXTS)
        self.assert_near([each["probs"][0] for each in answer["data"]], list(map(sigmoid, expected)))

    def test_a_conversation_is_one_text(self):
        answer = self.server.ask("pooling", messages=[{"role": "user", "content": "tide?"}, {"role": "assistant", "content": "six"}])
        ids = [256, *b"user\ntide?", 257, *b"\n", 256, *b"assistant\nsix", 257, *b"\n"]
        self.assertEqual(answer["usage"]["prompt_tokens"], len(ids))
        self.assert_near(answer["data"][0]["data"], self.server.ask("pooling", input=ids)["data"][0]["data"])

    def test_documents_are_ranked_by_their_reward_behind_the_query(self):
        expected = self.rewards_of([f"{TEXTS[0]}\n{document}" for document in TEXTS[1:5]])
        answer = self.server.ask("rerank", query=TEXTS[0], documents=TEXTS[1:5])
        order = sorted(range(4), key=lambda i: -expected[i])
        self.assertEqual([each["index"] for each in answer["results"]], order)
        self.assert_near([each["relevance_score"] for each in answer["results"]], [sigmoid(expected[i]) for i in order])
        answer = self.server.ask("score", text_1=TEXTS[0], text_2=TEXTS[1:5], use_activation=False)
        self.assert_near([each["score"] for each in answer["data"]], expected)

    def test_what_it_cannot_is_refused(self):
        self.refused(self.server, "/v1/embeddings", "ends in one number a text", input="a")
        result = call("serve", "--model", self.run_folder, "--tokenizer", self.tokenizer, "--pair-template", "{query}")
        self.assertEqual(result.returncode, 2)
        self.assertIn("write {query} and {document} in it", result.stderr)


class RewardsOnRanks(Rewards):
    """The same of one model on two stages."""

    ranks = ("--nproc", 2, "--strategy", "<1,2,1>")

    def test_what_ranks_cannot_serve_is_refused(self):
        result = call("serve", "--model", self.run_folder, "--tokenizer", self.tokenizer, "--nproc", 2, "--strategy", "<3,1,1>")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("<3,1,1>", result.stderr)


class AroundTexts(HeadTest):
    """A tokenizer that puts marks around texts, as BERT's: corpora, `embed` and the endpoint, on two ranks that each have the whole
    model, read the same."""

    ranks = ("--nproc", 2)
    around = ("<|im_start|>", "<|im_end|>")

    def test_all_doors_read_the_same_tokens(self):
        added = ("--end-token", "added")
        texts = self.corpus("texts", [{"text": text} for text in TEXTS], *added)
        near = self.corpus("near", [{"text": text[::-1]} for text in TEXTS], *added)
        run = self.trained("embed", texts, kind="embed", positives=[str(near)], pairs_per_step=4, pooling="mean")
        scores = self.folder / "scores.jsonl"
        self.done("eval", "--model", run, "--corpus", texts, "--scores", scores, "--dtype", "float64")
        expected = [unit(json.loads(line)["numbers"]) for line in scores.read_text().splitlines()]
        lines = self.folder / "lines.txt"
        lines.write_text("\n".join(TEXTS) + "\n")
        told = self.done("embed", lines, "--model", run, "--tokenizer", self.tokenizer, "--dtype", "float64")
        server = self.serve(run)
        answer = server.ask("embeddings", input=TEXTS)
        self.assertEqual(answer["usage"]["prompt_tokens"], sum(len(text) + 2 for text in TEXTS))
        for each, line, served in zip(expected, told.splitlines(), answer["data"], strict=True):
            self.assert_near(json.loads(line)["embedding"], each)
            self.assert_near(served["embedding"], each)
        ids = server.ask("embeddings", input=[256, *TEXTS[0].encode()[:8], 257])["data"][0]["embedding"]
        cut = server.ask("embeddings", input=TEXTS[0], truncate_prompt_tokens=10)["data"][0]["embedding"]
        self.assert_near(cut, ids)

    def test_labelled_texts_have_them_and_nothing_else(self):
        for name, options, more in (("added", (), 2), ("none", ("--end-token", "none"), 1)):
            self.corpus(f"labelled-{name}", [{"text": "abc", "label": "a"}], "--labels", *options)
            told = json.loads((self.folder / f"labelled-{name}" / "lengths.json").read_text())
            self.assertEqual(told["tokens"], 3 + more, name)


class Classes(HeadTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        labelled = [{"text": text, "label": ["calm", "storm", "fog"][i % 3]} for i, text in enumerate(TEXTS)]
        cls.labelled = cls.corpus("labelled", labelled, "--labels")
        cls.run_folder = cls.trained("classify", cls.labelled, kind="classify", labels=["calm", "storm", "fog"])
        cls.server = cls.serve(cls.run_folder)

    def test_they_are_those_of_eval(self):
        scores = self.folder / "scores.jsonl"
        self.done("eval", "--model", self.run_folder, "--corpus", self.labelled, "--scores", scores, "--dtype", "float64")
        expected = [json.loads(line)["numbers"] for line in scores.read_text().splitlines()]
        raw = self.server.ask("classify", input=TEXTS, use_activation=False)["data"]
        told = self.server.ask("classify", input=TEXTS)["data"]
        for mine, likely, numbers in zip(raw, told, expected, strict=True):
            self.assert_near(mine["probs"], numbers)
            self.assertEqual(likely["label"], ["calm", "storm", "fog"][numbers.index(max(numbers))])
            sums = [math.exp(number - max(numbers)) for number in numbers]
            self.assert_near(likely["probs"], [each / sum(sums) for each in sums])

    def test_what_it_cannot_is_refused(self):
        self.refused(self.server, "/v1/rerank", "ends in 3 classes", query="a", documents=["b"])
        for path, body in (("completions", {"prompt": "a"}), ("chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
            self.refused(self.server, f"/v1/{path}", "ends in 3 classes and generates no text: ask /classify", **body)


class ClassesOnRanks(Classes):
    """The same of one model on two CP ranks."""

    ranks = ("--nproc", 2, "--strategy", "<1,1,2>")


if __name__ == "__main__":
    unittest.main()
