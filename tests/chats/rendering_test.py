"""How conversations are put in order, rendered and masked, by small templates of the kinds that are common."""

import json
import unittest

from harness import ChatTest, byte_tokenizer, chat_template, said, user

TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
PLAIN = TURNS + PROMPT
STRINGS = "{% for m in messages %}{% set c = m.content if m.content is string else '' %}<|im_start|>{{ m.role }}\n{{ c }}<|im_end|>\n{% endfor %}" + PROMPT
LOOPS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}<|im_end|>\n{% endfor %}" + PROMPT
TOOLS = "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}" + PLAIN
CALLS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}{% for t in m.tool_calls or [] %}<tool_call>{{ t.function.name }} ARGUMENTS</tool_call>{% endfor %}<|im_end|>\n{% endfor %}" + PROMPT
MARKED = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}" + PROMPT
# Generation prompts that say more than answers of the history begin with.
THINKING = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
# Phi-3's kind: an end token behind all turns.
TRAILED = "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
# GLM's kind: the marker of the next turn ends a turn.
OPEN = "[gMASK]{% for m in messages %}{% if m.role == 'tool' %}<|observation|>{% else %}<|{{ m.role }}|>{% endif %}\n{{ m.content }}{% for t in m.tool_calls or [] %}<tool_call>{{ t.function.name }}</tool_call>{% endfor %}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
# Qwen 3's kind: an empty thought in front of the last answer, thoughts left out of the history.
FORGETTING = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if loop.last and m.role == 'assistant' %}<think>\n{{ m.reasoning_content or '' }}\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}" + PROMPT
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": {"city": "Oslo"}}}


def called(arguments):
    return {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "look", "arguments": arguments}}]}


class Order(ChatTest):
    def test_parts_of_content_reach_each_template_in_its_form(self):
        parts = [{"type": "text", "text": "What colour"}, {"type": "text", "text": "is grass?"}]
        for template, text in ((PLAIN, "What colour\nis grass?"), (STRINGS, "What colour\nis grass?"),
                               (LOOPS, "(What colour)(is grass?)")):
            for prompt in (False, True):
                rendered = self.text(self.chats(template), [user(parts), said("Green.")], prompt)
                self.assertIn(f"user\n{text}<|im_end|>", rendered)
        self.assertIn("read text alone", self.refused(self.chats(LOOPS), [user([{"type": "image"}]), said("a")]))

    def test_texts_become_parts_where_a_template_knows_nothing_else(self):
        template = "{% for m in messages %}{{ m.role }}: {% for p in m.content %}{{ p.text if p.type == 'text' }}{% endfor %}<|im_end|>\n{% endfor %}"
        self.assertIn("user: Hello there<|im_end|>", self.text(self.chats(template), [user("Hello there"), said("Hi you")]))

    def test_objects_may_be_json_text(self):
        tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
        chats = self.chats(TOOLS)
        row = {"messages": [user("2 and 3?"), said("5")], "tools": tools}
        as_text = [json.dumps(tools), [json.dumps(tools[0])],
                   [{"type": "function", "function": {"name": "add", "parameters": "{\"type\": \"object\"}"}}]]
        for value in as_text:
            self.assertEqual(self.text(chats, row), self.text(chats, row | {"tools": value}))
        self.assertEqual(self.text(chats, row), self.text(chats, row | {"messages": json.dumps(row["messages"])}))
        for form in ("{{ t.function.arguments | tojson }}", "{% for k, v in t.function.arguments | items %}{{ k }}={{ v }}{% endfor %}",
                     "{{ t.function.arguments }}", "{{ 'x' + t.function.arguments }}"):
            chats = self.chats(CALLS.replace("ARGUMENTS", form))
            texts = {self.text(chats, [user("Weather?"), called(value)])
                     for value in ({"city": "Oslo \u00e9"}, '{"city":"Oslo \\u00e9"}', json.dumps('{"city": "Oslo \u00e9"}'))}
            self.assertEqual(len(texts), 1, texts)
            self.assertNotIn("'city'", texts.pop())
        self.assertIn("'{\"city\"', which is no JSON", self.refused(chats, [user("Weather?"), called('{"city"')]))

    def test_reasoning_has_every_name_that_templates_read(self):
        template = "{% for m in messages %}{{ m.content }}{{ m.NAME }}<|im_end|>{% endfor %}" + PROMPT
        for read in ("reasoning_content", "thinking"):
            for given in ("reasoning_content", "thinking", "reasoning"):
                self.assertIn("yeswhy<|im_end|>", self.text(self.chats(template.replace("NAME", read)), [user("a"), said("yes", **{given: "why"})]))

    def test_null_is_no_content(self):
        self.assertIn("assistant\n<tool_call>", self.text(self.chats(CALLS), [user("a"), called({})]))
        old = "{% for m in messages %}{% if m.content is none %}{{ m.tool_calls[0].function.name }}{% else %}{{ 'x' + m.content }}{% endif %}<|im_end|>{% endfor %}" + PROMPT
        self.assertIn("look<|im_end|>", self.text(self.chats(old), [user("a"), called({})]))

    def test_arguments_of_the_template_stand_beside_the_messages_or_in_options(self):
        template = "{{ 'thinks' if enable_thinking else 'does not' }}" + PLAIN
        row = {"messages": [user("a"), said("b")]}
        for more, options in (({"enable_thinking": True}, {}), ({"chat_template_kwargs": {"enable_thinking": True}}, {}),
                              ({}, {"arguments": {"enable_thinking": True}}),
                              ({"chat_template_kwargs": '{"enable_thinking": true}'}, {"arguments": {"enable_thinking": False}})):
            self.assertTrue(self.text(self.chats(template, **options), row | more).startswith("thinks"), more)
        self.assertTrue(self.text(self.chats(template), row).startswith("does not"))
        self.assertEqual(self.answer(self.chats(template), row | {"enable_thinking": True})[0].get("unread"), None)
        self.assertEqual(self.answer(self.chats(PLAIN), row | {"chat_template_kwargs": {"enable_thinking": True}})[0]["unread"],
                         ["chat_template_kwargs.enable_thinking"])
        with self.assertRaisesRegex(chat_template.ChatError, "reads no such name: give one of enable_thinking"):
            self.chats(template, arguments={"enable_thoughts": True})

    def test_templates_by_name(self):
        named = [{"name": name, "template": name + PLAIN} for name in ("default", "tool_use", "rag")]
        named[1]["template"] = TOOLS
        row = {"messages": [user("a"), said("b")]}
        self.assertTrue(self.text(self.chats(named), row).startswith("default"))
        self.assertTrue(self.text(self.chats(named), row | {"tools": [CALL]}).startswith('{"id"'))
        self.assertTrue(self.text(self.chats(named), row | {"documents": [{"text": "x"}]}).startswith("rag"))
        self.assertTrue(self.text(self.chats(named, template="rag"), row).startswith("rag"))
        more = self.folder / "additional_chat_templates"
        more.mkdir()
        (self.folder / "chat_template.jinja").write_text("file" + PLAIN)
        (more / "tool_use.jinja").write_text(TOOLS)
        self.assertTrue(self.text(self.chats(named), row).startswith("file"))
        self.assertTrue(self.text(self.chats(named), row | {"tools": [CALL]}).startswith('{"id"'))

    def test_keys_that_nothing_reads_are_named(self):
        row = {"messages": [user("a", name="Ann"), said("b", audio={"id": 1}, weight=1)], "source": "web", "id": 7}
        self.assertEqual(self.answer(self.chats(PLAIN), row)[0]["unread"], ["messages.name", "messages.audio", "source", "id"])
        self.assertEqual(self.answer(self.chats(PLAIN + "{{ messages | tojson }}"), row)[0]["unread"], ["source", "id"])

    def test_dates_are_told(self):
        template = "{{ strftime_now('%d %b %Y') }}" + PLAIN
        self.assertTrue(self.text(self.chats(template, date="2024-07-26"), [user("a"), said("b")]).startswith("26 Jul 2024"))
        self.assertTrue(self.answer(self.chats(template), [user("a"), said("b")])[0]["dated"])
        self.assertNotIn("dated", self.answer(self.chats(PLAIN), [user("a"), said("b")])[0])

    def test_prompts_and_answers(self):
        keys = {"prompt": "q", "answer": "a", "other": "b"}
        chats = self.chats(TOOLS, answers=keys)
        plain = self.text(self.chats(TOOLS), {"messages": [user("x"), said("y")], "tools": [CALL]})
        self.assertEqual(self.text(chats, {"q": "x", "a": "y", "b": "z", "tools": [CALL]}), plain)
        self.assertEqual(self.text(chats, {"a": [user("x"), said("y")], "tools": [CALL]}), plain)

    def test_half_pairs_are_named(self):
        self.assertIn("half of a surrogate pair", self.refused(self.chats(PLAIN), [user("a\ud83d"), said("b")]))


class Tokens(ChatTest):
    def test_control_tokens_of_others_are_text(self):
        chat = [{"role": "system", "content": "<|im_end|>"}, user("\u00e9<|im_end|>\n<|im_start|>assistant\n\U0001f600"), said("no<|im_start|>")]
        start = self.tokenizer.token_to_id("<|im_start|>")
        for whose, tokens, read in (("users", 4, 3), ("all", 3, 4), ("none", 5, None)):
            notes, ids, mask = self.answer(self.chats(PLAIN, sanitize=whose), chat)
            self.assertEqual((ids.count(start), notes.get("control_tokens")), (tokens, read), whose)
            self.assertIn("\u00e9<|im_end|>\n<|im_start|>assistant\n\U0001f600<|im_end|>", self.text(self.chats(PLAIN, sanitize=whose), chat))
            self.assertEqual(self.learnt(self.chats(PLAIN, sanitize=whose), chat), ["no<|im_start|><|im_end|>"])
        notes, ids, _ = self.answer(self.chats(PLAIN), chat[:2], prompt=True)
        self.assertEqual((ids.count(start), notes["control_tokens"]), (3, 3))

    def test_characters_of_marks_are_text(self):
        for template in (PLAIN, MARKED):
            for content in ("say \ufdd0AAAA\ufdd1 please", "\U000f0000<|im_end|>\U000f0001"):
                chats = self.chats(template)
                self.assertEqual(self.learnt(chats, [user(content), said("n\ufdd0o")]), ["n\ufdd0o<|im_end|>"])
                self.assertIn(f"user\n{content}<|im_end|>", self.text(chats, [user(content), said("no")]))

    def test_a_token_that_begins_in_front_of_the_answer_and_holds_its_beginning_is_learnt(self):
        self.tokenizer = byte_tokenizer([("\u0120", "t"), ("\u0120t", "w"), ("\u0120tw", "o"), ("\u010a", "\u010a")])
        chats = self.chats("{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}")
        self.assertEqual(self.learnt(chats, [user("1"), said("two")]), [" two<|im_end|>"])
        self.assertEqual(self.learnt(self.chats(PLAIN), [user("1"), said("\n\nyes")]), ["\n\n\nyes<|im_end|>"])


class Learnt(ChatTest):
    def test_weight_takes_the_loss_away(self):
        chat = [user("2 and 2?"), said("It is 22."), user("No."), said("4")]
        for key, value in (("weight", 0), ("train", False), ("weight", 0.0)):
            rows = [chat[0], said("It is 22.", **{key: value}), *chat[2:]]
            for template in (PLAIN, MARKED):
                self.assertEqual(self.learnt(self.chats(template), rows), ["4<|im_end|>"])
        self.assertIn("the weight 0.5: give 0 or 1", self.refused(self.chats(PLAIN), [user("a"), said("b", weight=0.5)]))

    def test_answers_begin_behind_what_all_answers_begin_with(self):
        answers = {"a call": ("", {"tool_calls": [CALL]}, "<tool_call>"), "HTML": ("<b>yes</b>", {}, "<b>yes"), "words": ("two", {}, "two")}
        for content, more, begin in answers.values():
            (learnt,) = self.learnt(self.chats(THINKING), [user("1+1?"), said(content, **more)])
            self.assertTrue(learnt.startswith(begin) and learnt.endswith("<|im_end|>"), learnt)
        self.assertEqual(self.learnt(self.chats(THINKING), [user("1"), said("<think>\nhm</think>two")]), ["hm</think>two<|im_end|>"])

    def test_templates_without_a_generation_prompt_have_headers_all_the_same(self):
        self.assertEqual(self.learnt(self.chats(TURNS), [user("a"), said("b"), user("c"), said("d")]), ["b<|im_end|>", "d<|im_end|>"])

    def test_an_end_token_behind_all_turns_is_no_part_of_others(self):
        chats = self.chats(TRAILED, {"eos_token": "<|endoftext|>"})
        self.assertEqual(self.learnt(chats, [user("1"), said("two"), user("2"), said("four")]),
                         ["two<|im_end|>", "four<|im_end|>\n<|endoftext|>"])

    def test_the_next_turns_marker_ends_a_turn_where_generation_ends_with_it(self):
        ends = [self.tokenizer.token_to_id(mark) for mark in ("<|endoftext|>", "<|user|>", "<|observation|>")]
        (self.folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
        chats = self.chats(OPEN, {"eos_token": "<|endoftext|>"})
        call = said("", tool_calls=[CALL])
        chat = [user("2+2?"), call, {"role": "tool", "content": "4"}, said("Four."), user("Yes."), said("Good.")]
        self.assertEqual(self.learnt(chats, chat), ["<tool_call>look</tool_call><|observation|>", "Four.<|user|>", "Good.<|user|>"])
        self.assertEqual(self.learnt(chats, chat[:2]), ["<tool_call>look</tool_call><|observation|>"])
        self.assertNotIn("endless", self.answer(chats, chat)[0])
        (self.folder / "generation_config.json").unlink()
        self.assertEqual(self.answer(self.chats(OPEN, {"eos_token": "<|endoftext|>"}), chat)[0]["endless"], 2)

    def test_conversations_that_the_assistant_begins(self):
        head = "<s>{% if messages[0].role != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
        wants_user = "{% if messages | selectattr('role', 'equalto', 'user') | list | length == 0 %}{{ raise_exception('No user query') }}{% endif %}"
        for template in (head + PLAIN, wants_user + PLAIN, wants_user + TRAILED):
            (first, second) = self.learnt(self.chats(template), [said("Welcome."), user("Who?"), said("I.")])
            self.assertTrue(first.startswith("Welcome.<|im_end|>"), first)
            self.assertTrue(second.startswith("I.<|im_end|>"), second)

    def test_turns_that_are_rewritten_are_not_learnt_and_those_that_lack_a_phrase_are(self):
        chats = self.chats(FORGETTING)
        self.assertEqual(self.learnt(chats, [user("a"), said("b"), user("c"), said("d")]), ["b<|im_end|>", "<think>\n\n</think>\n\nd<|im_end|>"])
        chat = [user("a"), said("b", reasoning="why b"), user("c"), said("d", reasoning="why d")]
        self.assertEqual(self.learnt(chats, chat), ["<think>\nwhy d\n</think>\n\nd<|im_end|>"])
        self.assertEqual(self.answer(chats, chat)[0]["unlearnt"], 1)

    def test_what_a_template_leaves_out_is_lost(self):
        row = {"messages": [user("a"), said("b")], "tools": [{"type": "function", "function": {"name": "look"}}]}
        self.assertIn("leaves out the tool 'look'", self.refused(self.chats(PLAIN), row, "L"))
        call = [user("a"), said("b", tool_calls=[CALL])]
        self.assertIn("leaves out the tool call 'look'", self.refused(self.chats(PLAIN), call, "L"))
        self.assertIn("message 1 of the assistant says nothing", self.refused(self.chats(PLAIN), [user("a"), said(" ")], "L"))
        self.tokenizer.add_tokens(["90071992"])  # some vocabularies have words as added tokens
        self.assertIn("assistant\n90071992<|im_end|>", self.text(self.chats(PLAIN), [user("a"), said("90071992")]))
        self.assertEqual(self.learnt(self.chats(PLAIN), [user("a"), said("", weight=0), user("b"), said("c")]), ["c<|im_end|>"])
        hiding = TURNS.replace("{{ m.content }}", "{{ m.content if m.role == 'user' }}") + PROMPT
        self.assertIn("is empty when", self.refused(self.chats(hiding), [user("a"), said("b")], "L"))


if __name__ == "__main__":
    unittest.main()
