"""corpus build --train-tokenizer: tokenizers that can chat, and the one advice on sizes of vocabularies."""

import json
import re
import unittest

from commands import CommandTest, call

QUESTIONS = ["Who are you?", "When is high tide, d\u00e9j\u00e0 vu?", "May I sail now?"]
ANSWERS = ["I am the harbour's tide clock.", "At six, and at half past six.\nIn the evening.", "Only with the ebb."]
# Turns end by the tokenizer's own token, and marks are put together from roles.
ROLES = ("{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% if m.role == 'assistant' %}{{ eos_token }}"
         "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}")
FULL_RANGE = re.compile(r"give --train-tokenizer (\d+) to (\d+), or more text$", re.M)
LEAST = re.compile(r"give --train-tokenizer (\d+) or more$", re.M)


def chatml(question, answer):
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n"


class TrainedTokenizers(CommandTest):
    def setUp(self):
        self.here = self.folder / self._testMethodName
        self.here.mkdir()
        self.chats = self.here / "chats.jsonl"
        self.chats.write_text("".join(
            json.dumps({"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}) + "\n"
            for question, answer in zip(QUESTIONS, ANSWERS, strict=True)), encoding="utf-8")
        self.text = self.here / "text.txt"
        self.text.write_text("".join(f"word {i} of many, {i * i}\n" for i in range(500)), encoding="utf-8")

    def build(self, source, out, *options):
        return json.loads(self.done("corpus", "build", source, "--out", self.here / out, "--json", *options))

    def shown(self, out, document):
        return json.loads(self.done("corpus", "show", self.here / out, document, "--json"))

    def tokens(self, out):
        model = json.loads((self.here / out / "tokenizer.json").read_text(encoding="utf-8"))
        return {token["content"]: token["id"] for token in model["added_tokens"]}

    def refused_by(self, source, out, *options):
        result = call("corpus", "build", source, "--out", self.here / out, *options)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertFalse((self.here / out).exists(), "a failed build leaves a folder")
        return result.stderr

    def test_conversations_train_a_tokenizer_that_can_chat(self):
        built = self.build(self.chats, "corpus", "--chat", "--train-tokenizer", 330)
        self.assertEqual(built["vocabulary"], 330)
        config = json.loads((self.here / "corpus/tokenizer_config.json").read_text())
        self.assertEqual(config["eos_token"], "<|im_end|>")
        self.assertEqual(set(self.tokens("corpus")), {"<|im_start|>", "<|im_end|>"})
        self.assertIn("<|im_start|>", (self.here / "corpus/chat_template.jinja").read_text())
        for i, (question, answer) in enumerate(zip(QUESTIONS, ANSWERS, strict=True)):
            self.assertEqual(self.shown("corpus", i)["text"], chatml(question, answer))
        # The folder is a tokenizer like any other: other conversations are built with it, and equal ones to equal bytes.
        self.build(self.chats, "again", "--chat", "--tokenizer", self.here / "corpus")
        for name in ("corpus.bin", "corpus.idx", "corpus.mask", "tokenizer.json", "chat_template.jinja"):
            self.assertEqual((self.here / "corpus" / name).read_bytes(), (self.here / "again" / name).read_bytes(), name)

    def test_a_tokenizer_of_plain_text_can_chat_later(self):
        self.build(self.text, "text", "--train-tokenizer", 400, "--chat-template", "chatml")
        self.build(self.chats, "corpus", "--chat", "--tokenizer", self.here / "text")
        self.assertEqual(self.shown("corpus", 1)["text"], chatml(QUESTIONS[1], ANSWERS[1]))

    def test_a_template_of_ones_own_decides_the_control_tokens(self):
        template = self.here / "roles.jinja"
        template.write_text(ROLES)
        self.build(self.chats, "corpus", "--chat", "--train-tokenizer", 300, "--chat-template", template)
        self.assertEqual(set(self.tokens("corpus")), {"<|startoftext|>", "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>"})
        self.assertEqual(self.shown("corpus", 0)["text"],
                         f"<|startoftext|><|user|>{QUESTIONS[0]}<|assistant|>{ANSWERS[0]}<|endoftext|>")
        self.assertEqual((self.here / "corpus/chat_template.jinja").read_text(), ROLES)
        self.build(self.chats, "told", "--chat", "--train-tokenizer", 300, "--chat-template", template, "--end-token", "<|stop|>")
        self.assertTrue(self.shown("told", 0)["text"].endswith(f"{ANSWERS[0]}<|stop|>"))

    def test_equal_inputs_train_equal_tokenizers(self):
        for out in ("one", "two"):
            self.build(self.chats, out, "--chat", "--train-tokenizer", 340)
        for name in ("tokenizer.json", "corpus.bin"):
            self.assertEqual((self.here / "one" / name).read_bytes(), (self.here / "two" / name).read_bytes())

    def test_the_advice_on_sizes_can_be_followed(self):
        """Sizes that are advised serve, and their neighbours outside get the same advice."""
        for source, options in ((self.text, ()), (self.chats, ("--chat",)), (self.text, ("--chat-template", "chatml"))):
            with self.subTest(options=options, source=source.name):
                said = self.refused_by(source, "no", "--train-tokenizer", 1_000_000, *options)
                least, most = map(int, FULL_RANGE.search(said).groups())
                self.assertLessEqual(least, most)
                self.assertEqual(FULL_RANGE.search(self.refused_by(source, "no", "--train-tokenizer", most + 1, *options)).groups(),
                                 (str(least), str(most)))
                for small in (1, least - 1):
                    said = self.refused_by(source, "no", "--train-tokenizer", small, *options)
                    self.assertEqual(LEAST.search(said)[1], str(least), said)
                for size in (least, most):
                    self.assertEqual(self.build(source, f"size{size}{len(options)}{source.name}", "--train-tokenizer", size,
                                                *options)["vocabulary"], size)

    def test_a_text_too_poor_for_any_vocabulary_is_said_to_be(self):
        self.text.write_text("a")
        said = self.refused_by(self.text, "no", "--train-tokenizer", 512)
        advised = FULL_RANGE.search(said)
        if advised:
            self.build(self.text, "yes", "--train-tokenizer", advised[1])
        else:
            self.assertRegex(said, "give more text$")

    def test_wrong_usage_names_the_way_out(self):
        cases = [
            (("--pairs", "--train-tokenizer", 300), "--pairs are two corpora of one tokenizer: train it first"),
            (("--train-tokenizer", 300, "--sanitize", "all"), "--sanitize is for conversations.*--chat"),
            (("--chat", "--train-tokenizer", 300, "--chat-template", "nope.jinja"),
             "--chat-template is 'nope.jinja', and there is no such file: name a Jinja file, or chatml"),
        ]  # fmt: skip
        for options, message in cases:
            with self.subTest(message):
                self.assertRegex(self.refused_by(self.chats, "no", *options), message)
        self.build(self.text, "plain", "--train-tokenizer", 300)
        self.assertRegex(self.refused_by(self.chats, "no", "--chat", "--tokenizer", self.here / "plain"),
                         "has no chat template: .*--train-tokenizer with --chat or --chat-template")
        self.chats.write_text('{"text": "no conversation"}\n')
        self.assertRegex(self.refused_by(self.chats, "no", "--chat", "--train-tokenizer", 300),
                         "no conversation that the template renders to train a tokenizer from: check the inputs")


if __name__ == "__main__":
    unittest.main()
