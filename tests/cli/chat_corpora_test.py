"""corpus build --chat: conversations by a tokenizer's template, and which of their tokens are learnt."""

import json
import os
import pathlib
import subprocess
import unittest

from commands import CommandTest, call

TOOLS = pathlib.Path(os.environ.get("SLUICE_DEPS", pathlib.Path.home() / ".cache" / "sluice")) / "tools/bin/python"
# A byte-level tokenizer without merges: a token a byte, and the template's marks.
WRITER = """
import sys
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in ("<|im_start|>", "<|im_end|>")])
tokenizer.save(sys.argv[1])
"""
TURN = "<|im_start|>{{ message.role }}\n"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
PLAIN = "{% for message in messages %}" + TURN + "{{ message.content }}<|im_end|>\n{% endfor %}" + PROMPT
MARKED = (
    "{% for message in messages %}" + TURN + "{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ message.content }}<|im_end|>{% endif %}\n{% endfor %}" + PROMPT
)
# Leaves out of earlier turns what was thought there.
FORGETFUL = (
    "{% for message in messages %}" + TURN + "{% if message.role == 'assistant' and not loop.last %}"
    "{{ message.content.split('</think>')[-1] }}{% else %}{{ message.content }}{% endif %}<|im_end|>\n{% endfor %}"
    + PROMPT
)
CHAT = [("system", "Be brief."), ("user", "Hi"), ("assistant", "<think>hm</think>Hello"), ("user", "d\u00e9j\u00e0?"),
        ("assistant", "<think>so</think>Vu.")]


def conversation(turns):
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


class ChatCorpora(CommandTest):
    def setUp(self):
        self.tokenizer = self.folder / self._testMethodName
        self.tokenizer.mkdir()
        subprocess.run([TOOLS, "-c", WRITER, self.tokenizer / "tokenizer.json"], check=True)
        self.lines = self.tokenizer / "chats.jsonl"

    def build(self, template, rows, *arguments):
        config = {"eos_token": "<|im_end|>"} | ({"chat_template": template} if template else {})
        (self.tokenizer / "tokenizer_config.json").write_text(json.dumps(config))
        self.lines.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        self.corpus = self.tokenizer / "corpus"
        return call("corpus", "build", self.lines, "--out", self.corpus, "--tokenizer", self.tokenizer, "--chat",
                    "--json", *arguments)

    def learnt(self, template, turns):
        """What was built, and the parts of the document that the mask lets count."""
        return self.learnt_of(template, conversation(turns))

    def learnt_of(self, template, row):
        built = self.build(template, [row])
        self.assertEqual(built.returncode, 0, built.stderr)
        ids = (self.corpus / "corpus.bin").read_bytes()
        mask = (self.corpus / "corpus.mask").read_bytes()
        self.assertEqual(len(ids), 2 * len(mask))
        self.assertEqual(json.loads(built.stdout)["loss_tokens"], sum(mask))
        alphabet = json.loads((self.tokenizer / "tokenizer.json").read_text())
        names = {i: name for name, i in alphabet["model"]["vocab"].items()}
        names |= {token["id"]: token["content"] for token in alphabet["added_tokens"]}
        parts, before = [], 0
        for i, counts in enumerate(mask):
            name = names[int.from_bytes(ids[2 * i : 2 * i + 2], "little")]
            if counts and not before:
                parts.append("")
            if counts:
                parts[-1] += name.replace("\u0120", " ").replace("\u010a", "\n")
            before = counts
        return built, parts

    def test_marked_spans_are_learnt(self):
        _, parts = self.learnt(MARKED, CHAT)
        self.assertEqual(parts, ["<think>hm</think>Hello<|im_end|>", "<think>so</think>Vu.<|im_end|>"])

    def written(self, *parts):
        folder = self.corpus.joinpath(*parts)
        return [(folder / name).read_bytes() for name in ("corpus.bin", "corpus.mask", "corpus.idx")]

    def test_prompts_and_pairs_are_conversations(self):
        def chat(answer):
            self.assertEqual(self.build(MARKED, [conversation([*CHAT[:2], ("assistant", answer)])]).returncode, 0)
            return self.written()
        yes, no = chat("yes"), chat("no")
        prompt = conversation(CHAT[:2])["messages"]
        def told(answer):
            return [{"role": "assistant", "content": answer}]
        for row in ({"prompt": prompt, "answer": "yes"}, {"prompt": prompt, "answer": told("yes")},
                    {"answer": prompt + told("yes"), "other": 1}):
            self.assertEqual(self.build(MARKED, [row], "--prompts").returncode, 0)
            self.assertEqual(self.written(), yes)
        self.assertEqual(self.build(MARKED, [{"q": "Hi", "a": "yes"}], "--prompts", "--prompt-key", "q", "--answer-key", "a").returncode, 0)
        texts = self.written()
        self.assertEqual(self.build(MARKED, [conversation([("user", "Hi"), ("assistant", "yes")])]).returncode, 0)
        self.assertEqual(self.written(), texts)
        for row in ({"prompt": prompt, "chosen": "yes", "rejected": "no"},
                    {"chosen": prompt + told("yes"), "rejected": prompt + told("no")}):
            built = self.build(MARKED, [row], "--pairs")
            self.assertEqual(built.returncode, 0, built.stderr)
            self.assertEqual(set(json.loads(built.stdout)), {"chosen", "rejected"})
            self.assertEqual((self.written("chosen"), self.written("rejected")), (yes, no))
        for row, arguments, told in (({"prompt": "a"}, ("--prompts",), "under 'answer': name the key of answers"),
                                     ({"answer": "a"}, ("--prompts",), "under 'prompt': name the key of prompts"),
                                     ({"prompt": "a", "chosen": 3}, ("--pairs",), "under 'chosen'"),
                                     ({}, ("--pairs", "--prompts"), "give one of the two")):
            built = self.build(MARKED, [row], "--strict", *arguments)
            self.assertEqual(built.returncode, 2)
            self.assertIn(told, built.stderr)

    def test_a_build_that_fails_leaves_no_folder(self):
        out = self.tokenizer / "new" / "pairs"
        for row, options in (({"prompt": "a", "chosen": "b"}, ["--pairs"]), ({"prompt": "a"}, ["--prompts"]), ({"x": 1}, [])):
            with self.subTest(options=options):
                self.lines.write_text(json.dumps(row) + "\n")
                (self.tokenizer / "tokenizer_config.json").write_text(json.dumps({"chat_template": PLAIN}))
                built = call("corpus", "build", self.lines, "--out", out, "--tokenizer", self.tokenizer, "--chat", *options)
                self.assertEqual(built.returncode, 2, built.stderr)
                self.assertFalse(out.parent.exists())
        out.parent.mkdir()
        kept = out.parent / "kept"
        kept.touch()
        self.assertEqual(call("corpus", "build", self.lines, "--out", out, "--tokenizer", self.tokenizer, "--chat").returncode, 2)
        self.assertEqual(list(out.parent.iterdir()), [kept])

    def test_each_stage_says_once_that_it_is_done(self):
        built = self.build(PLAIN, [conversation(CHAT)])
        self.assertEqual(built.stderr.count("encode: done"), 1, built.stderr)

    def test_forms_of_other_programs_are_recognised_and_said(self):
        turns = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello")]
        self.assertEqual(self.build(MARKED, [conversation(turns)]).returncode, 0)
        expected = [(self.corpus / name).read_bytes() for name in ("corpus.bin", "corpus.mask")]
        forms = {
            "ShareGPT": {"conversations": [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "Hi"},
                                           {"from": "gpt", "value": "Hello"}]},
            "ShareGPT's form": {"system": "Be brief.", "conversations": json.dumps([{"from": "Human", "value": "Hi"},
                                                                                  {"from": "gpt", "value": "Hello"}])},
            "under the key conversations": {"conversations": conversation(turns)["messages"]},
            "Alpaca": {"system": "Be brief.", "instruction": "Hi", "input": "", "output": "Hello"},
            "prompt, completion": {"prompt": conversation(turns[:2])["messages"], "completion": "Hello"},
            "prompt, response": {"system": "Be brief.", "prompt": "Hi", "response": "Hello"},
        }
        for name, row in forms.items():
            with self.subTest(name):
                built = self.build(MARKED, [row, row])
                self.assertEqual(built.returncode, 0, built.stderr)
                found = [(self.corpus / name).read_bytes() for name in ("corpus.bin", "corpus.mask")]
                self.assertEqual(found, [2 * each for each in expected])
                self.assertEqual(built.stderr.count("conversations are read by"), 1)
                self.assertIn(name, built.stderr)
                self.assertNotIn("neither Sluice nor", built.stderr)
        self.assertNotIn("are read by", self.build(MARKED, [conversation(turns)]).stderr)

    def test_an_input_follows_its_instruction(self):
        built, parts = self.learnt_of(MARKED, {"instruction": "Add", "input": "1, 2", "output": "3",
                                               "history": [["Hi", "Hello"]]})
        self.assertEqual((built.returncode, parts), (0, ["Hello<|im_end|>", "3<|im_end|>"]))

    def test_turns_of_no_known_speaker_are_named(self):
        for row, fault in (
            ({"conversations": [{"from": "narrator", "value": "Once"}]}, r"turn 0 of `conversations` is from 'narrator'"),
            ({"conversations": [{"from": "gpt"}]}, "has no `from` or no `value`"),
            ({"conversations": "{"}, "no JSON"),
            ({"conversations": [{"from": "function_call", "value": "go"}]}, "without a name"),
            ({"instruction": 3, "output": "x"}, "have to be texts"),
            ({"prompt": 3, "completion": "x"}, "neither a text nor a list"),
        ):
            with self.subTest(fault):
                built = self.build(MARKED, [row], "--strict")
                self.assertEqual(built.returncode, 2, built.stderr)
                self.assertRegex(built.stderr, fault)

    def test_without_marks_the_difference_of_prefixes_is_learnt(self):
        _, parts = self.learnt(PLAIN, CHAT)
        self.assertEqual(parts, ["<think>hm</think>Hello<|im_end|>", "<think>so</think>Vu.<|im_end|>"])

    def test_a_template_that_rewrites_earlier_turns_trains_the_last_one_and_says_so(self):
        built, parts = self.learnt(FORGETFUL, CHAT)
        self.assertEqual(parts, ["<think>so</think>Vu.<|im_end|>"])
        self.assertEqual(json.loads(built.stdout)["rewritten_documents"], 1)
        self.assertRegex(built.stderr, "1 of 1 conversations: the chat template rewrites earlier messages")

    def test_the_template_may_come_from_a_file(self):
        template = self.tokenizer / "mine.jinja"
        template.write_text(MARKED)
        built = self.build(None, [conversation(CHAT)], "--chat-template", template)
        self.assertEqual(built.returncode, 0, built.stderr)
        self.assertEqual((self.corpus / "chat_template.jinja").read_text(), MARKED)

    def test_what_is_wrong_is_named_with_its_line_and_a_way_out(self):
        good = conversation(CHAT)
        cases = [
            (PLAIN, [good, '{"messages": [}'], r"chats.jsonl:2 is not JSON"),
            (PLAIN, [good, conversation([("user", "a"), ("bot", "b")])],
             r"chats.jsonl:2: message 1 has the unknown role 'bot': give it one of system, "),
            (PLAIN, [conversation([("user", "a")])], r"chats.jsonl:1: nothing of it would be learnt: give it a message"),
            (PLAIN, [{"text": "a"}], r"chats.jsonl:1: there are no messages: a line holds "),
            ("{# nothing #}", [good], r"chats.jsonl:1: the chat template renders nothing of it: "),
            ("{{ raise_exception('no system') }}", [good], r"chats.jsonl:1: the chat template refuses it: no system: "),
            ("{{ raise_exception('no\\n  system') }}", [good], r"chats.jsonl:1: the chat template refuses it: no system: "),
            ("{% for %}", [good], r"^sluice: \S+/tokenizer_config.json: the chat template is no Jinja: .*--chat-template"),
            (None, [good], r"^sluice: \S+/tokenizer.json: it comes without a chat template: name one with --chat-template"),
        ]
        for template, rows, message in cases:
            with self.subTest(message=message):
                built = self.build(template, rows, "--strict")
                self.assertEqual((built.returncode, built.stdout), (2, ""), built.stderr)
                self.assertRegex(built.stderr, message)
                self.assertFalse((self.tokenizer / "corpus" / "corpus.idx").exists())

    def test_what_would_be_lost_ends_the_build_with_a_count_and_a_way_out(self):
        good = conversation(CHAT)
        tools = good | {"tools": [{"type": "function", "function": {"name": "look_up"}}]}
        empty = conversation([("user", "a"), ("assistant", "")])
        built = self.build(PLAIN, [good, tools, empty, tools, tools])
        self.assertEqual((built.returncode, built.stdout), (2, ""), built.stderr)
        self.assertRegex(built.stderr, "(?m)^sluice: something of 4 of 5 conversations would be lost")
        self.assertNotIn("\\u000a", built.stderr, "several lines were written as one")
        self.assertRegex(built.stderr, "(?m)^\\S*chats.jsonl:2: the chat template leaves out the tool 'look_up': .*--chat-template")
        self.assertRegex(built.stderr, "chats.jsonl:3: message 1 of the assistant says nothing")
        self.assertFalse((self.corpus / "corpus.idx").exists())

    def test_what_is_not_read_or_read_otherwise_is_said_once(self):
        rows = [conversation([("user", "a<|im_end|>b"), ("assistant", "c")]) | {"source": i} for i in range(3)]
        built = self.build(PLAIN, rows)
        self.assertEqual(built.returncode, 0, built.stderr)
        self.assertRegex(built.stderr, "3 control tokens that others than the assistant wrote were read as text")
        self.assertEqual(built.stderr.count("neither Sluice nor the chat template reads: source (3)"), 1)
        self.assertEqual(json.loads(built.stdout)["unread_keys"], {"source": 3})
        as_tokens = json.loads(self.build(PLAIN, rows, "--sanitize", "none").stdout)
        self.assertLess(as_tokens["tokens"], json.loads(built.stdout)["tokens"])
        self.assertEqual(as_tokens["control_tokens_as_text"], 0)

    def test_the_date_is_an_option_and_is_recorded(self):
        template = "{{ strftime_now('%d %b %Y') }}\n" + PLAIN
        for arguments, date in ((("--chat-date", "2024-07-26"), "2024-07-26"), ((), None)):
            built = self.build(template, [conversation(CHAT)], *arguments)
            self.assertEqual(built.returncode, 0, built.stderr)
            recorded = json.loads((self.corpus / "lengths.json").read_text())["chat"]
            self.assertEqual(recorded["sanitize"], "users")
            self.assertRegex(recorded["date"], date or r"\d{4}-\d\d-\d\d")
            self.assertIn(recorded["date"], built.stderr)
        self.assertEqual(self.build(template, [conversation(CHAT)], "--chat-date", "26.7.2024").returncode, 2)
        self.assertEqual(self.build(PLAIN, [conversation(CHAT)]).returncode, 0)
        self.assertNotIn("date", json.loads((self.corpus / "lengths.json").read_text())["chat"])

    def test_options_of_conversations_want_some(self):
        (self.tokenizer / "a.txt").write_text("text")
        for option in (("--sanitize", "all"), ("--chat-date", "2024-07-26"), ("--template-argument", "a=1")):
            built = call("corpus", "build", self.tokenizer / "a.txt", "--out", self.tokenizer / "none", "--tokenizer", self.tokenizer, *option)
            self.assertEqual(built.returncode, 2)
            self.assertIn(f"{option[0]} is for conversations", built.stderr)

    def test_tools_stand_beside_prompts_and_answers(self):
        template = "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}" + PLAIN
        row = {"prompt": "a", "answer": "b", "tools": [{"name": "look_up", "arguments": {"z": 1, "a": 2}}]}
        built = self.build(template, [row], "--prompts")
        self.assertEqual(built.returncode, 0, built.stderr)
        text = call("corpus", "show", self.corpus / "corpus", "0").stdout
        self.assertIn('{"name": "look_up", "arguments": {"z": 1, "a": 2}}', text)

    def test_more_templates_go_with_the_corpus(self):
        more = self.tokenizer / "additional_chat_templates"
        more.mkdir()
        (self.tokenizer / "chat_template.jinja").write_text(PLAIN)
        (more / "tool_use.jinja").write_text("{{ tools[0].name }}" + PLAIN)
        row = conversation(CHAT) | {"tools": [{"name": "look_up"}]}
        self.assertEqual(self.build(None, [row]).returncode, 0)
        self.assertTrue((self.corpus / "additional_chat_templates/tool_use.jinja").exists())
        self.assertEqual(self.build(None, [row], "--chat-template", "tool_use").returncode, 0)
        self.assertIn("tools[0]", (self.corpus / "chat_template.jinja").read_text())
        built = self.build(None, [row], "--chat-template", "another")
        self.assertEqual(built.returncode, 2)
        self.assertIn("the tokenizer's own are called default, tool_use", built.stderr)

    def test_a_template_that_is_no_jinja_is_named_with_its_file(self):
        template = self.tokenizer / "syntax.jinja"
        template.write_text("{% for %}")
        built = self.build(PLAIN, [conversation(CHAT)], "--chat-template", template)
        self.assertEqual((built.returncode, built.stdout), (2, ""), built.stderr)
        self.assertRegex(built.stderr, rf"^sluice: {template}: the chat template is no Jinja: .*--chat-template")


if __name__ == "__main__":
    unittest.main()
