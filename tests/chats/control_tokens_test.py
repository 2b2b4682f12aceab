"""The control tokens that a tokenizer gets when it is trained for a chat template."""

import unittest

from harness import ChatTest

import control_tokens

LOOP = "{% for m in messages %}BODY{% endfor %}"


def body(text):
    return LOOP.replace("BODY", text)


class ControlTokens(ChatTest):
    def found(self, template, end=""):
        found = control_tokens.ControlTokens("here", template, end)
        return found.end, set(found.all)

    def test_the_default_is_chatml(self):
        name, text = control_tokens.template_source("")
        self.assertEqual((name, control_tokens.template_source("chatml")), ("chatml", (name, text)))
        self.assertEqual(self.found(text), ("<|im_end|>", {"<|im_start|>", "<|im_end|>"}))

    def test_marks_of_all_common_forms_are_found(self):
        cases = [
            ("<|start|>{{ m.role }}<|mid|>{{ m.content }}<|end|>", "<|end|>", {"<|start|>", "<|mid|>"}),
            ("{{ '<|' + m.role + '|>' + m.content + eos_token }}", "<|endoftext|>", {"<|system|>", "<|user|>", "<|assistant|>"}),
            ("{{ bos_token }}[INST] {{ m.content }} [/INST]</s>", "[/INST]", {"[INST]", "</s>", "<|startoftext|>"}),
            ("<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>\n", "<end_of_turn>", {"<start_of_turn>"}),
            ("<\uff5cUser\uff5c>{{ m.content }}<\uff5cend\uff5c>", "<\uff5cend\uff5c>", {"<\uff5cUser\uff5c>"}),
            ("[|{{ m.role }}|]{{ m.content }}[|endofturn|]\n", "[|endofturn|]", {"[|system|]", "[|user|]", "[|assistant|]"}),
            ("<|turn>{{ m.role }}\n{{ m.content }}<turn|>\n", "<turn|>", {"<|turn>"}),
        ]  # fmt: skip
        for text, end, others in cases:
            with self.subTest(text):
                self.assertEqual(self.found(body(text)), (end, {end, *others}))

    def test_templates_without_marks_end_by_the_usual_token(self):
        self.assertEqual(self.found(body("{{ m.role }}: {{ m.content }}\n")), ("<|endoftext|>", {"<|endoftext|>"}))
        self.assertEqual(self.found(body("{{ m.content }} and then <b>"))[0], "<|endoftext|>", "other text stands between")

    def test_an_end_that_is_told_goes_first(self):
        end, found = self.found(body("{{ m.content }}<|im_end|>"), "<|stop|>")
        self.assertEqual((end, found), ("<|stop|>", {"<|stop|>", "<|im_end|>"}))
        self.assertEqual(self.found(body("{{ m.content }}<|im_end|>"), "none")[0], "<|im_end|>")

    def test_a_template_may_refuse_rules_and_not_everything(self):
        refusing = "{% if m.role == 'system' %}{{ raise_exception('no rules') }}{% endif %}{{ m.content }}<|end|>"
        self.assertEqual(self.found(body(refusing))[0], "<|end|>")
        with self.assertRaisesRegex(control_tokens.ChatError, "refuses a question and its answer: name another"):
            self.found("{{ raise_exception('never') }}")
        with self.assertRaisesRegex(control_tokens.ChatError, "is no Jinja"):
            self.found("{% for %}")
        with self.assertRaisesRegex(control_tokens.ChatError, "'absent.jinja', and there is no such file: name a Jinja file, or chatml"):
            control_tokens.template_source("absent.jinja")


if __name__ == "__main__":
    unittest.main()
