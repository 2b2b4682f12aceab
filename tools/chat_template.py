"""Conversations as text by a tokenizer's chat template, with what of the text the model is to learn.

Templates run as transformers runs them: Jinja2 in an immutable sandbox, blocks trimmed, with the tokenizer's special
tokens, `raise_exception`, `strftime_now` and a `tojson` that keeps Unicode as it is. `conversations` puts what they see in
order, `chat_spans` finds what is learnt.
"""

import dataclasses
import datetime
import json
import os
import pathlib
import re
import typing

import chat_spans
import conversations
from added_tokens import AddedTokens
from conversations import ChatError, LostError

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
# Names that a conversation's other keys may not give to the template.
OWN_NAMES = ("messages", "tools", "documents", "add_generation_prompt", *SPECIAL_TOKENS)
# Where marks around spans, and what stands for control tokens, are taken from: Unicode gives none of them to text.
FREE = [chr(code) for code in (*range(0xFDD0, 0xFDF0), *range(0xF0000, 0xF4000))]
MARKS = frozenset(FREE)
SANITIZE = ("users", "all", "none")


@dataclasses.dataclass
class Options:
    """How conversations are rendered."""

    template: str = ""  # a file, or the name of one of the tokenizer's templates; "": the tokenizer's own
    sanitize: str = "users"  # whose control tokens are read as text: all but the assistant's, everybody's, nobody's
    date: str = ""  # what strftime_now says, as YYYY-MM-DD; "": SOURCE_DATE_EPOCH, or now
    arguments: dict = dataclasses.field(default_factory=dict)  # of the template
    answers: dict | None = None  # as conversations.conversation_of takes it


@dataclasses.dataclass
class Notes:
    """What else a rendering found, most of it to be counted and said."""

    turns: int = 0  # of the assistant that have a loss
    unlearnt: int = 0  # of these: rendered otherwise than when they were said, so nothing of them is learnt
    displaced: int = 0  # of these: behind other text than stands in front of an answer when it is given
    endless: int = 0  # of these: without an end token
    control_tokens: int = 0  # that somebody wrote, and that are read as text
    dated: bool = False  # the template asked for the date
    unread: list = dataclasses.field(default_factory=list)  # keys that nobody read
    form: str = ""  # by which the conversation was recognised, where it has no messages
    closing: str = ""  # the end token behind the last turn, where the template leaves it to the next one
    # What each character that stands for a control token stands for: somebody wrote that token, so it is text.
    written: dict = dataclasses.field(default_factory=dict)


class Rendered(typing.NamedTuple):
    text: str
    spans: list  # [begin, end) of what is learnt
    notes: Notes

    def plain_text(self):
        return restored(self.text, self.notes.written)


def restored(text, written):
    return text.translate({ord(mark): token for mark, token in written.items()}) if written else text


def token_text(config, key):
    token = config.get(key)
    return token.get("content") if isinstance(token, dict) else token


def read_text(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ChatError(f"{path}: the chat template cannot be read: {error}") from error


def find_templates(tokenizer_path, config, told):
    """{name: (path, text)} of the templates: the file `told`, or those that go with the tokenizer, or the one of these that
    has that name."""
    if told and pathlib.Path(told).exists():
        return {"default": (told, read_text(told))}
    found = own_templates(tokenizer_path, config)
    if told and str(told) not in found:
        names = f"; the tokenizer's own are called {', '.join(found)}" if found else ""
        raise ChatError(f"{told}: the chat template cannot be read: there is no such file{names}")
    if not found:
        raise ChatError(
            f"{tokenizer_path}: it comes without a chat template: name one with --chat-template FILE, or take an instruct "
            "model's tokenizer"
        )
    return {"default": found[str(told)]} if told else found


def own_templates(tokenizer_path, config):
    beside = pathlib.Path(tokenizer_path).parent
    files = {"default": beside / "chat_template.jinja"} if (beside / "chat_template.jinja").exists() else {}
    files |= {path.stem: path for path in sorted((beside / "additional_chat_templates").glob("*.jinja"))}
    if files:
        return {name: (path, read_text(path)) for name, path in files.items()}
    path = beside / "chat_template.json"
    if path.exists():
        try:
            return {"default": (path, json.loads(read_text(path))["chat_template"])}
        except (ValueError, KeyError, TypeError) as error:
            raise ChatError(f'{path}: the chat template cannot be read: it is no object with "chat_template"') from error
    path, template = beside / "tokenizer_config.json", config.get("chat_template")
    listed = template if isinstance(template, list) else [{"name": "default", "template": template}]
    return {
        each["name"]: (path, each["template"])
        for each in listed
        if isinstance(each, dict) and isinstance(each.get("name"), str) and isinstance(each.get("template"), str)
    }


class Environment:
    """Jinja as transformers sets it up. `marks` stand around what {% generation %} marks."""

    def __init__(self, date):
        try:
            import jinja2
            from jinja2.ext import loopcontrols
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError as error:
            raise ChatError(
                "Python has no package `jinja2`: install it there or name another Python with --python"
            ) from error
        self.marks = ("", "")
        self.dated = False
        self._date = date
        self.jinja = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[self._generation(), loopcontrols]
        )
        self.jinja.filters["tojson"] = tojson
        self.jinja.globals["raise_exception"] = self._raise
        self.jinja.globals["strftime_now"] = self._now
        self._refused = jinja2.exceptions.TemplateError

    def _generation(self):
        from jinja2 import nodes
        from jinja2.ext import Extension

        outer = self

        class Generation(Extension):
            tags = {"generation"}

            def parse(self, parser):
                line = next(parser.stream).lineno
                body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
                return nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

            def _marked(self, caller):
                return outer.marks[0] + caller() + outer.marks[1]

        return Generation

    def _raise(self, message):
        raise self._refused(message)

    def _now(self, form):
        self.dated = True
        return moment(self._date).strftime(form)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def moment(date):
    if date:
        return datetime.datetime.fromisoformat(date)
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc) if epoch else datetime.datetime.now()


class Template:
    """One compiled template, and what its text says of it."""

    def __init__(self, path, text, environment):
        from jinja2 import meta, nodes

        try:
            tree = environment.jinja.parse(text)
            self.compiled = environment.jinja.from_string(text)
        except Exception as error:
            raise ChatError(
                f"{path}: the chat template is no Jinja: {error}: mend it, or name another with --chat-template"
            ) from error
        self.variables = meta.find_undeclared_variables(tree) - set(environment.jinja.globals) - set(OWN_NAMES)
        self.prompts = "add_generation_prompt" in text
        self.literals = "\0".join(
            [node.data for node in tree.find_all(nodes.TemplateData)]
            + [node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)]
        )


class ChatTemplate:
    def __init__(self, tokenizer_path, config, told=None, added=(), ends=()):
        """`told`: Options. `added`: (text, whether it is special) of the tokenizer's added tokens. `ends`: texts of the tokens
        that end a generation. ChatError."""
        self._options = told or Options()
        self._environment = Environment(self._options.date)
        self._templates = {
            name: Template(path, text, self._environment)
            for name, (path, text) in find_templates(tokenizer_path, config, self._options.template).items()
        }
        self._tokens = {key: token for key in SPECIAL_TOKENS if (token := token_text(config, key)) is not None}
        self._added = [(text, special) for text, special in added if text]
        self._all_added = AddedTokens(text for text, _ in self._added)
        self._ends = AddedTokens({*ends, self._tokens.get("eos_token")} - {None, ""})
        read = {*SPECIAL_TOKENS}.union(*(template.variables for template in self._templates.values()))
        if unknown := set(self._options.arguments) - read:
            raise ChatError(
                f"--template-argument {sorted(unknown)[0]}: the chat template reads no such name: give one of "
                f"{', '.join(sorted(read - {*SPECIAL_TOKENS})) or 'none'}"
            )
        self._control = {name: self._control_tokens(template) for name, template in self._templates.items()}

    def _control_tokens(self, template):
        """The tokens that only the template may write: special ones, and others that stand in it."""
        return AddedTokens(text for text, special in self._added if special or text in template.literals)

    def _choose(self, conversation):
        """The name of the template: as transformers chooses for tools, and likewise for documents."""
        for wanted, name in ((conversation.tools, "tool_use"), (conversation.documents, "rag")):
            if wanted is not None and name in self._templates:
                return name
        if "default" not in self._templates:
            raise ChatError(
                f"the tokenizer has the chat templates {', '.join(self._templates)} and none called default: name one with "
                "--chat-template NAME"
            )
        return "default"

    def render(self, chat):
        """The whole of it as a Rendered. ChatError; LostError where something in it would be lost."""
        drawing, text = self._drawn(chat, prompt=False)
        notes, marks = drawing.notes, drawing.marks
        if marks[0] in text:
            text, spans = chat_spans.cut_marks(text, marks)
            spans = chat_spans.without_weightless(drawing, text, spans)
            notes.turns = sum(drawing.conversation.learns)
            spans = chat_spans.merged(spans)
        else:
            spans, notes.unlearnt = chat_spans.of_turns(drawing, text)
            notes.turns = len(spans) + notes.unlearnt
        if not any(end > begin for begin, end in spans):
            raise ChatError("nothing of it would be learnt: give it a message of the assistant, or leave it out")
        self._refuse_lost(drawing.conversation, text)
        chat_spans.refuse_empty(drawing, text, spans)
        spans, notes.closing = chat_spans.with_ends(drawing, text, spans)
        notes.endless = chat_spans.endless(drawing, text, spans, notes.closing)
        return Rendered(text, spans, notes)

    def render_prompt(self, chat):
        """What came before, with what stands in front of the assistant's answer, as a Rendered. ChatError."""
        drawing, text = self._drawn(chat, prompt=True)
        self._refuse_lost(drawing.conversation, text)
        return Rendered(drawing.without_marks(text), [], drawing.notes)

    def _drawn(self, chat, prompt):
        """A Drawing of the conversation that the template accepts, and its text."""
        self._environment.dated = False
        conversation = conversations.conversation_of(chat, self._options.answers)
        name = self._choose(conversation)
        template = self._templates[name]
        arguments = {key: conversations.plain(value) for key, value in self._options.arguments.items()}
        for key in [key for key in conversation.rest if key in template.variables]:
            arguments[key] = conversations.plain(conversation.rest.pop(key))
        read = template.variables.union(SPECIAL_TOKENS)
        conversation.unread = [f"chat_template_kwargs.{key}" for key in conversation.arguments if key not in read]
        conversation.arguments = arguments | conversation.arguments
        if clash := set(conversation.arguments) & {"messages", "tools", "documents", "add_generation_prompt"}:
            raise ChatError(f"`{clash.pop()}` is no argument of a template: leave it out of its arguments")
        drawing = Drawing(template, self._environment, self._tokens, conversation, self._all_added, self._ends)
        text = drawing.settled(prompt)
        if self._options.sanitize != "none" and drawing.sanitize(self._control[name], self._options.sanitize):
            sanitized = drawing.whole(prompt)
            if restored(drawing.without_marks(sanitized), drawing.notes.written) != drawing.without_marks(text):
                raise ChatError(
                    "a control token that somebody wrote changes what the chat template does: leave it out, or let it be "
                    "one with --sanitize none"
                )
            text = sanitized
        if not text.strip():
            raise ChatError(
                "the chat template renders nothing of it: give it messages that the template knows, or another template"
            )
        drawing.notes.dated = self._environment.dated
        return drawing, text

    def _refuse_lost(self, conversation, text):
        """LostError where the template leaves out a tool or a call of one."""
        calls = [call for message in conversation.messages for call in dict.get(message, "tool_calls") or ()]
        for kind, values in (("tool", conversation.tools or ()), ("tool call", calls)):
            for value in values:
                function = dict.get(value, "function", value)
                name = dict.get(function, "name") if isinstance(function, dict) else None
                if isinstance(name, str) and not ("name" in function._read and name in text):
                    raise LostError(
                        f"the chat template leaves out the {kind} {name!r}: name a template that has it with "
                        "--chat-template, or take it out of the input"
                    )


class Drawing:
    """A conversation with the template that renders it."""

    def __init__(self, template, environment, tokens, conversation, added, ends):
        self.template = template
        self.conversation = conversation
        self.notes = Notes()
        self.ends = ends
        self.added = added
        self._environment = environment
        self._tokens = tokens
        taken = MARKS & set("".join(conversations.texts_in(vars_of(conversation))))
        self._free = (mark for mark in sorted(MARKS) if mark not in taken) if taken else iter(FREE)
        self.marks = (next(self._free), next(self._free))
        self.probes = (next(self._free) + "A", next(self._free) + "B")

    def draw(self, messages, prompt=False):
        """The text of these messages, marks around marked spans. ChatError."""
        conversation = self.conversation
        self._environment.marks = self.marks
        try:
            return self.template.compiled.render(
                messages=messages, tools=conversation.tools, documents=conversation.documents,
                add_generation_prompt=prompt, **(self._tokens | conversation.arguments),
            )  # fmt: skip
        except Exception as error:
            raise ChatError(
                f"the chat template refuses it: {error}: change its messages, or the template with --chat-template"
            ) from error

    def text_of(self, messages, prompt=False):
        """Likewise without marks; None where the template refuses these messages."""
        try:
            return self.without_marks(self.draw(messages, prompt))
        except ChatError:
            return None

    def content(self, text):
        """The text as this conversation has content: as a part where others are in parts."""
        contents = (dict.get(message, "content") for message in self.conversation.messages)
        return in_parts(text) if any(isinstance(each, conversations.Parts) for each in contents) else text

    def whole(self, prompt=False):
        return self.draw(self.conversation.messages, prompt)

    def without_marks(self, text):
        return text.replace(self.marks[0], "").replace(self.marks[1], "")

    def settled(self, prompt):
        """The text of the whole, with messages in the form that the template reads: content in parts or as one text, and an
        absent content as null where the template wants that."""
        conversation = self.conversation
        text, fault = self._tried(prompt)
        for turn in (as_text, as_parts, with_null):
            given = conversation.messages
            turned = turn(given, text)
            if turned is given or (fault is None and turn is with_null):
                continue
            conversation.messages = turned
            other, again = self._tried(prompt)
            if again is None or turn is as_text:
                text, fault = other, again
            else:
                conversation.messages = given
        if fault is not None:
            raise fault
        self.notes.unread = conversations.unread(conversation)
        self.notes.form = conversation.form
        return text

    def _tried(self, prompt):
        try:
            return self.draw(self.conversation.messages, prompt), None
        except ChatError as error:
            return "", error

    def sanitize(self, control, whose):
        """Puts characters in place of control tokens that somebody wrote; how many there were."""
        marks = {}

        def mark(token):
            self.notes.control_tokens += 1
            if token not in marks:
                marks[token] = next(self._free)
            return marks[token]

        def change(value):
            return conversations.map_texts(value, lambda text: control.replaced(text, mark))

        conversation = self.conversation
        own = whose == "all"
        changed = [
            change(message) if own or message["role"] != conversations.LEARNT else message
            for message in conversation.messages
        ]
        others = [change(each) for each in (conversation.tools, conversation.documents, conversation.arguments)]
        if marks:
            conversation.messages = changed
            conversation.tools, conversation.documents, conversation.arguments = others
        self.notes.written = {mark: token for token, mark in marks.items()}
        return self.notes.control_tokens


def vars_of(conversation):
    return [conversation.messages, conversation.tools, conversation.documents, conversation.arguments]


def as_text(messages, text):
    """The messages, content in parts as one text where the template does not go through the parts, or leaves out one."""

    def shown(parts):
        texts = [conversations.part_text(part) or "" for part in list.__iter__(parts)]
        return conversations.visited(parts) and all(each.strip() in text for each in texts)

    hidden = [isinstance(part := dict.get(each, "content"), conversations.Parts) and not shown(part) for each in messages]
    if not any(hidden):
        return messages
    return [conversations.joined(each) if hide else each for each, hide in zip(messages, hidden, strict=True)]


def as_parts(messages, text):
    """The messages, each content as a part, where the template shows nothing of any that is a text."""
    contents = [content for each in messages if isinstance(content := dict.get(each, "content"), str) and content.strip()]
    if not contents or any(max(re.split(r"\W+", content), key=len) in text for content in contents):
        return messages
    return [
        conversations.Object({**each, "content": in_parts(each["content"])}) if isinstance(each.get("content"), str) else each
        for each in messages
    ]


def with_null(messages, _):
    """The messages, with content null where there is none: templates from before transformers took that out test for it."""
    if all("content" in message for message in messages):
        return messages
    return [conversations.Object({"content": None, **message}) for message in messages]


def in_parts(text):
    return conversations.Parts([conversations.Object({"type": "text", "text": text})])
