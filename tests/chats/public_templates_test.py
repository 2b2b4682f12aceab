"""The chat templates in the wheels of trl and axolotl: what is learnt is the assistant's, from its first token to its end.

The wheels are those that `tools/bootstrap --test` installs; without them this is skipped.
"""

import glob
import pathlib
import re
import sys
import unittest

from harness import chat_template, said, user

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from dependencies import DEPENDENCIES  # noqa: E402

FOUND = sorted(
    pathlib.Path(path)
    for wheel in ("trl/chat_templates", "axolotl/utils/chat_templates/templates")
    for path in glob.glob(str(DEPENDENCIES / "templates/lib/python3*/site-packages" / wheel / "*.jinja"))
)
TOKEN = re.compile(r"<\|[^|<>]{1,40}\|>|<\|[a-z_>]+>?|<[a-z_]+\|>|</?[a-z_]{1,30}>|\[/?[A-Z_]{3,30}\]|<｜[^｜]{1,40}｜>|\[\|[a-z]+\|\]")
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "look_up", "arguments": {"city": "city3q"}}}
TOOLS = [{"type": "function", "function": {"name": "look_up", "description": "d", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "where"}}, "required": ["city"]}}}]  # fmt: skip
ANSWER = {"role": "tool", "tool_call_id": "abcdefghi", "name": "look_up", "content": "tool4q"}
CHATS = {
    "turns": [user("user1q"), said("said2q."), user("user3q"), said("said4q.")],
    "a system prompt": [{"role": "system", "content": "system1q"}, user("user1q"), said("said2q.")],
    "thoughts": [user("user1q"), said("said2q", reasoning_content="why2q"), user("user3q"), said("said4q", reasoning_content="why4q")],
    "HTML": [user("user1q"), said("<b>said2q</b>"), user("user3q"), said("<td>said4q</td>")],
    "the assistant begins": [said("said1q"), user("user1q"), said("said2q")],
    "a call": [user("user1q"), said("", tool_calls=[CALL]), ANSWER, said("said2q")],
    "a call and thoughts": [user("user1q"), said("", tool_calls=[CALL], reasoning_content="why1q"), ANSWER, said("said2q", reasoning_content="why2q")],
    "a call last": [user("user1q"), said("", tool_calls=[CALL])],
}
# Templates that write no token behind turns but the last, and those that write none at all.
ENDLESS = {"metharme", "llava"}


def renderer(path):
    text = path.read_text(encoding="utf-8")
    tokens = {*TOKEN.findall(text), "<s>", "</s>", "<|endoftext|>"}
    ends = ["</s>", "<|user|>", "<|observation|>"] if "glm" in path.stem else ["</s>"]
    config = {"chat_template": text, "bos_token": "<s>", "eos_token": "</s>"}
    return chat_template.ChatTemplate("tokenizer.json", config, None, [(token, True) for token in tokens], ends), tokens, text


def words(value):
    return set(re.findall(r"[a-z]+\dq", str(value)))


@unittest.skipUnless(FOUND, "no templates of trl and axolotl: run tools/bootstrap --test")
class PublicTemplates(unittest.TestCase):
    def test_what_is_learnt_is_the_assistants(self):
        learnt_conversations = 0
        for path in FOUND:
            template, tokens, text = renderer(path)
            for name, messages in CHATS.items():
                with self.subTest(template=path.stem, chat=name):
                    chat = {"messages": messages} | ({"tools": TOOLS} if "call" in name else {})
                    try:
                        rendered = template.render(chat)
                    except chat_template.ChatError as error:
                        # The template's own word, or something would be lost; never that what is learnt cannot be told.
                        self.assertNotIn("cannot be told", str(error))
                        continue
                    self._look(path, template, chat, rendered, tokens, marked="{%- generation" in text or "{% generation" in text)
                    learnt_conversations += 1
        self.assertGreater(learnt_conversations, 5 * len(FOUND))

    def _look(self, path, template, chat, rendered, tokens, marked):
        others = words([m for m in chat["messages"] if m["role"] != "assistant"])
        spans = [rendered.text[begin:end] for begin, end in rendered.spans]
        self.assertFalse(words(spans) & others, spans)
        self.assertTrue(all(words(span) for span in spans), spans)
        last = [m for m in chat["messages"] if m["role"] == "assistant"][-1]
        if "content" in last and last["content"]:
            self.assertTrue(words(last["content"]) <= words(spans[-1]), spans)
        if path.stem not in ENDLESS:
            for span in (*spans[:-1], spans[-1] + rendered.notes.closing):
                self.assertTrue(span.rstrip().endswith(tuple(tokens)), spans)
        if not marked and len(chat["messages"]) > 1 and not rendered.notes.unlearnt and not rendered.notes.displaced:
            # The last answer begins where its prompt ends, or where all answers begin.
            prompt = template.render_prompt({**chat, "messages": chat["messages"][:-1]}).text
            before = rendered.text[: rendered.spans[-1][0]]
            self.assertTrue(prompt.startswith(before) or before.startswith(prompt), (prompt, before))
            self.assertFalse(words(before) & words(last), before)


if __name__ == "__main__":
    unittest.main()
