"""The control tokens that a chat template writes, for a tokenizer that is trained to chat by it."""

import pathlib
import re

import chat_template
from chat_template import ChatError

CHATML = "chatml"
CHATML_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
NO_TOKEN = "none"
# Texts that templates write as control tokens: <|im_start|>, <｜User｜>, [|system|]; <s>, </think>, <start_of_turn>; <|turn>,
# <turn|>; [INST], [/INST].
CONTROL = re.compile(
    r"<[|｜][^\s\0<>|｜]+[|｜]>|\[\|[^\s\0\[\]|]+\|\]|<[|/]?[A-Za-z][A-Za-z0-9_]*>|<[A-Za-z][A-Za-z0-9_]*\|>|\[/?[A-Z][A-Z_]*\]")
# What a template's variables are called where the tokenizer decides it, and what they are here.
VARIABLES = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|unknown|>", "pad_token": "<|padding|>",
             "sep_token": "<|separator|>", "cls_token": "<|class|>", "mask_token": "<|mask|>"}
ANSWER = "Xanswerx"
PROBES = [
    [{"role": "system", "content": "Xrulesx"}, {"role": "user", "content": "Xquestionx"}, {"role": "assistant", "content": ANSWER}],
    [{"role": "user", "content": "Xquestionx"}, {"role": "assistant", "content": ANSWER}],
]


def template_source(told):
    """(name for messages, text) of the template that is told."""
    if told in ("", CHATML) and not pathlib.Path(told or CHATML).is_file():
        return CHATML, CHATML_TEMPLATE
    if not pathlib.Path(told).is_file():
        raise ChatError(f"--chat-template is {told!r}, and there is no such file: name a Jinja file, or {CHATML}")
    return told, chat_template.read_text(told)


class ControlTokens:
    """Those that a template writes, the end token among them."""

    def __init__(self, name, text, told_end):
        environment = chat_template.Environment("2024-01-01")
        self.template = chat_template.Template(name, text, environment)
        self.variables = {key: token for key, token in VARIABLES.items() if re.search(rf"\b{key}\b", text)}
        drawn = [found for messages in PROBES for prompt in (False, True) if (found := self._drawn(messages, prompt))]
        if not drawn:
            raise ChatError(f"{name}: the chat template refuses a question and its answer: name another with --chat-template")
        found = CONTROL.findall("\0".join([self.template.literals, *drawn]))
        self.end = told_end if told_end not in ("", NO_TOKEN) else self._behind_answers(drawn)
        self.all = list(dict.fromkeys([self.end, *self.variables.values(), *found]))

    def _drawn(self, messages, prompt):
        try:
            return self.template.compiled.render(messages=messages, add_generation_prompt=prompt, **self.variables)
        except Exception:  # a template may refuse a role
            return ""

    def _behind_answers(self, drawn):
        for text in drawn:
            behind = text.partition(ANSWER)[2]
            token = CONTROL.search(behind)
            if token and not behind[: token.start()].strip():
                return token[0]
        return self.variables.get("eos_token", VARIABLES["eos_token"])

    def config(self):
        """What tokenizer_config.json says."""
        return {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
                **self.variables, "eos_token": self.end}  # fmt: skip
