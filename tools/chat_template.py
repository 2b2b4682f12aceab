"""Conversations as text by a tokenizer's chat template, with what of the text the model is to learn.

Templates run as transformers runs them: Jinja2 in an immutable sandbox, blocks trimmed, with the tokenizer's special
tokens, `raise_exception`, `strftime_now` and a `tojson` that keeps Unicode as it is.

What is learnt are the spans that the template marks ({% generation %} … {% endgeneration %}). A template without marks
is asked twice for each turn of the assistant: what it renders in front of the turn, the generation prompt included, and
what up to its end; what the second has more is learnt. Both must be prefixes of the whole. A template that rewrites
earlier turns, as those do that leave out what was thought there, breaks that; then the last turn alone is learnt.
"""

import datetime
import json
import os
import pathlib

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
LEARNT = "assistant"
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
# Characters that stand around marked spans while a template renders. Unicode keeps them out of all text.
OPENING, CLOSING = "\ufdd0", "\ufdd1"


class ChatError(Exception):
    """A message for the user."""


def token_text(config, key):
    token = config.get(key)
    return token.get("content") if isinstance(token, dict) else token


def find_template(tokenizer_path, config, told):
    """(path, text) of the template: the file `told`, or the one that goes with the tokenizer."""
    if told:
        try:
            return told, pathlib.Path(told).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ChatError(f"{told}: the chat template cannot be read: {error}") from error
    beside = pathlib.Path(tokenizer_path).parent
    if (beside / "chat_template.jinja").exists():
        return find_template(tokenizer_path, config, beside / "chat_template.jinja")
    path = beside / "chat_template.json"
    if path.exists():
        try:
            return path, json.loads(path.read_text(encoding="utf-8"))["chat_template"]
        except (OSError, ValueError, KeyError) as error:
            raise ChatError(f"{path}: the chat template cannot be read: {error}") from error
    template = config.get("chat_template")
    if isinstance(template, list):
        template = {each.get("name"): each.get("template") for each in template}.get("default")
    if not isinstance(template, str):
        raise ChatError(
            f"{tokenizer_path}: it comes without a chat template: name one with --chat-template FILE, or take an instruct "
            "model's tokenizer"
        )
    return beside / "tokenizer_config.json", template


def environment():
    try:
        import jinja2
        from jinja2 import nodes
        from jinja2.ext import Extension, loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise ChatError("Python has no package `jinja2`: install it there or name another Python with --python") from error

    class Generation(Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            mark = lambda text: nodes.Output([nodes.TemplateData(text)]).set_lineno(line)
            return [mark(OPENING), *body, mark(CLOSING)]

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    def strftime_now(form):
        # The same input gives the same corpus: builds may say which day it is.
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        now = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc) if epoch else datetime.datetime.now()
        return now.strftime(form)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = strftime_now
    return made


class ChatTemplate:
    def __init__(self, tokenizer_path, config, told):
        path, text = find_template(tokenizer_path, config, told)
        try:
            self._template = environment().from_string(text)
        except ChatError:
            raise
        except Exception as error:
            raise ChatError(
                f"{path}: the chat template is no Jinja: {error}: mend it, or name another with --chat-template"
            ) from error
        self._tokens = {key: token for key in SPECIAL_TOKENS if (token := token_text(config, key)) is not None}

    def render(self, chat):
        """(text, spans of the text that are learnt, whether earlier turns were rewritten). ChatError."""
        messages = messages_of(chat)
        whole = self._render(chat, messages)
        text, spans = cut_marks(whole)
        rewritten = False
        if not text.strip():
            raise ChatError(
                "the chat template renders nothing of it: give it messages that the template knows, or another template"
            )
        if OPENING not in whole:
            spans, rewritten = self._spans_by_difference(chat, messages, text)
        if not any(end > begin for begin, end in spans):
            raise ChatError("nothing of it would be learnt: give it a message of the assistant, or leave it out")
        return text, spans, rewritten

    def render_prompt(self, chat):
        """The text of what came before, with what stands in front of the assistant's answer. ChatError."""
        text, _ = cut_marks(self._render(chat, messages_of(chat), prompt=True))
        if not text.strip():
            raise ChatError(
                "the chat template renders nothing of it: give it messages that the template knows, or another template"
            )
        return text

    def _render(self, chat, messages, prompt=False):
        known = {key: chat[key] for key in ("tools", "documents") if key in chat}
        told = chat.get("chat_template_kwargs", {})
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=prompt, **({"tools": None, "documents": None} | known),
                **self._tokens, **(told if isinstance(told, dict) else {}),
            )
        except Exception as error:
            raise ChatError(
                f"the chat template refuses it: {error}: change its messages, or the template with --chat-template"
            ) from error

    def _spans_by_difference(self, chat, messages, text):
        turns = [i for i, message in enumerate(messages) if message["role"] == LEARNT]
        spans = []
        for i in turns:
            span = self._span_of_turn(chat, messages, i, text)
            if span is None:
                break
            spans.append(span)
        else:
            return spans, False
        last = self._span_of_turn(chat, messages, turns[-1], text)
        if last is None:
            raise ChatError(
                "the chat template renders other text in front of its last turn than without that turn, so what is "
                "learnt cannot be told: mark it in the template with {% generation %} and {% endgeneration %}"
            )
        return [last], True

    def _span_of_turn(self, chat, messages, i, text):
        """Of message i in the text, or None where the text goes on otherwise than the part up to the message."""
        until, _ = cut_marks(self._render(chat, messages[: i + 1]))
        before = "" if i == 0 else self._prefix(chat, messages[:i])
        if before is None or not text.startswith(until) or not until.startswith(before):
            return None
        # The generation prompt may say more than the turn begins with: an empty thought, say.
        prompt = self._prefix(chat, messages[:i], prompt=True) if i > 0 else ""
        shared = os.path.commonprefix([prompt or "", until])
        return (max(len(shared), len(before)), len(until))

    def _prefix(self, chat, messages, prompt=False):
        """The text of the first messages, or None where the template refuses so few."""
        try:
            return cut_marks(self._render(chat, messages, prompt))[0]
        except ChatError:
            return None


def messages_of(chat):
    messages = chat.get("messages") if isinstance(chat, dict) else chat
    if not isinstance(messages, list) or not messages:
        raise ChatError("there are no messages: a line holds {\"messages\": [{\"role\": …, \"content\": …}, …]}")
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ChatError(f"message {i} has no role: give it {{\"role\": …, \"content\": …}}")
        if message["role"] not in ROLES:
            raise ChatError(f"message {i} has the unknown role {message['role']!r}: give it one of {', '.join(ROLES)}")
        if "content" not in message and "tool_calls" not in message:
            raise ChatError(f"message {i} has no content: give it some, or \"\"")
    return messages


def cut_marks(marked):
    """The text without marks, and the spans between them."""
    text, spans, opened = [], [], None
    length = 0
    rest = marked
    while rest:
        at = min((found for mark in (OPENING, CLOSING) if (found := rest.find(mark)) >= 0), default=-1)
        piece = rest if at < 0 else rest[:at]
        text.append(piece)
        length += len(piece)
        if at < 0:
            break
        if rest[at] == OPENING:
            opened = length
        elif opened is not None:
            spans.append((opened, length))
            opened = None
        rest = rest[at + 1 :]
    return "".join(text), spans


def mask_of(offsets, spans):
    """By token, 1 where it begins inside a span. `offsets`: [begin, end) of each token in the text, ascending."""
    mask = bytearray(len(offsets))
    span = 0
    for i, (begin, _) in enumerate(offsets):
        while span < len(spans) and begin >= spans[span][1]:
            span += 1
        if span < len(spans) and begin >= spans[span][0]:
            mask[i] = 1
    return mask
