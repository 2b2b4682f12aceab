"""Conversations as people bring them, put in order before any chat template sees them.

A conversation is a JSON object with `messages`. What differs between sources is made one form here, so that `corpus
build`, `serve` and `generate` render the same text for the same conversation:

- keys of messages whose value is null are left out, as transformers does;
- `messages`, `tools`, `tool_calls`, `arguments`, `parameters` and `chat_template_kwargs` may be JSON text;
- reasoning stands under every name that templates read (`reasoning_content`, `thinking`), whichever name it came under;
- content as a list of parts is given as a list to templates that go through it, else as one text, parts joined by "\\n";
- ShareGPT's, Alpaca's and prompt-completion objects become messages (other_forms.py);
- `weight` 0 or `train` false take the loss from a message of the assistant;
- content, reasoning and arguments that are objects or lists print as JSON, never in Python's notation;
- keys of the conversation that the template reads as variables are its arguments, as `chat_template_kwargs` are.

Objects remember which of their keys were read, so that keys that nothing reads can be named.
"""

import collections
import dataclasses
import json
import re

import other_forms
from chat_errors import ChatError, LostError  # noqa: F401  LostError for those who import it from here

ROLES = (
    "system", "developer", "user", "assistant", "tool", "function", "ipython", "observation", "environment", "control",
)  # fmt: skip
LEARNT = "assistant"
REASONING = ("reasoning_content", "thinking", "reasoning")
# What a text part may call itself, and where its text stands then.
TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
HALF_PAIR = re.compile("[\ud800-\udfff]")


class Object(dict):
    """A JSON object that remembers which of its keys were read, and whether it was printed."""

    __slots__ = ("_read", "_printed")

    def __init__(self, value):
        super().__init__(value)
        self._read = set()
        self._printed = False

    def __getitem__(self, key):
        self._read.add(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        self._read.add(key)
        return super().get(key, default)

    def items(self):
        self._read.update(self)
        return super().items()

    def values(self):
        self._read.update(self)
        return super().values()

    def __str__(self):
        self._printed = True
        return super().__str__()


class JsonObject(Object):
    """One that prints as JSON, as content and as the arguments of a call. What lies deeper prints in Python's notation, which
    is what templates mean that write calls as Python's."""

    __slots__ = ()

    def __str__(self):
        self._printed = True
        return json.dumps(self, ensure_ascii=False)

    def __add__(self, other):
        return str(self) + other if isinstance(other, str) else NotImplemented

    def __radd__(self, other):
        return other + str(self) if isinstance(other, str) else NotImplemented


class JsonList(list):
    """Likewise a list, as content."""

    __slots__ = ()

    def __str__(self):
        return json.dumps(self, ensure_ascii=False)

    def __radd__(self, other):
        return other + str(self) if isinstance(other, str) else NotImplemented


class Parts(JsonList):
    """Content in parts, which knows whether the template went through it."""

    __slots__ = ("_visited",)

    def __init__(self, value):
        super().__init__(value)
        self._visited = False

    def __iter__(self):
        for part in super().__iter__():
            self._visited = True
            yield part

    def __getitem__(self, index):
        self._visited = True
        return super().__getitem__(index)

    def __str__(self):
        return joined_texts(self)


def visited(parts):
    """Whether a template went through them, and printed none of them as an object."""
    return parts._visited and not any(isinstance(part, Object) and part._printed for part in list.__iter__(parts))


def plain(value):
    """The value with objects that remember what was read of them."""
    if isinstance(value, dict):
        return Object({key: plain(each) for key, each in value.items()})
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


def printable(value):
    """Likewise, printing as JSON itself."""
    value = plain(value)
    return JsonObject(value) if isinstance(value, dict) else JsonList(value) if isinstance(value, list) else value


def map_texts(value, change):
    """The value with each text in it changed; keys of objects, and its kinds, stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return type(value)({key: map_texts(each, change) for key, each in dict.items(value)})
    if isinstance(value, list):
        return type(value)([map_texts(each, change) for each in list.__iter__(value)])
    return value


def texts_in(value):
    """All texts in the value, those of its keys left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in dict.values(value):
            yield from texts_in(each)
    elif isinstance(value, list):
        for each in list.__iter__(value):
            yield from texts_in(each)


def from_json_text(value, name):
    """The value itself, or what the JSON text holds. ChatError."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        shown = value if len(value) <= 60 else value[:60] + "…"
        place = f" from character {error.pos + 1} on" if isinstance(error, json.JSONDecodeError) else ""
        raise ChatError(f"{name} is the text {shown!r}, which is no JSON{place}: mend it or give an object") from error


@dataclasses.dataclass
class Conversation:
    """A conversation in order."""

    messages: list
    tools: list | None
    documents: list | None
    arguments: dict  # of the template
    learns: list  # of each message, whether it is the assistant's and has a loss
    form: str = ""  # by which the object was recognised, where it has no messages; for people
    rest: dict = dataclasses.field(default_factory=dict)  # keys that may be arguments of the template, or nothing
    unread: list = dataclasses.field(default_factory=list)  # paths of keys that are known to be unread


def conversation_of(chat, answers=None):
    """The Conversation of a JSON value. ChatError. `answers`: {"prompt", "answer", "other"}, the keys of a prompt, of its
    answer, and of what another corpus takes from the same object; then these stand in place of `messages`."""
    if isinstance(chat, list):
        chat = {"messages": chat}
    if not isinstance(chat, dict):
        raise ChatError('it is no JSON object: a line holds {"messages": [{"role": …, "content": …}, …]}')
    refuse_half_pairs(chat)
    chat = dict(chat)
    form = ""
    if answers:
        messages = answered(chat, answers)
    elif (recognised := other_forms.recognised(chat)) is not None:
        form, messages = recognised
    else:
        messages = from_json_text(chat.pop("messages", None), "`messages`")
    messages = ordered_messages(messages)
    arguments = from_json_text(chat.pop("chat_template_kwargs", None), "`chat_template_kwargs`")
    if not isinstance(arguments, dict | None):
        raise ChatError("`chat_template_kwargs` is no object: give the arguments of the template by name")
    return Conversation(
        messages=messages,
        tools=ordered_tools(chat.pop("tools", None)),
        documents=ordered_documents(chat.pop("documents", None)),
        arguments={key: plain(value) for key, value in (arguments or {}).items()},
        learns=[learns(message, i) for i, message in enumerate(messages)],
        form=form,
        rest=chat,
    )


def refuse_half_pairs(chat):
    for text in texts_in(chat):
        if found := HALF_PAIR.search(text):
            shown = text[max(0, found.start() - 20) : found.end() + 20]
            raise ChatError(f"the text {shown!r} has half of a surrogate pair, which is no character: mend it")


def answered(chat, answers):
    """The messages of a prompt and its answer, which leave `chat`."""
    prompt, answer = answers["prompt"], answers["answer"]
    chat.pop(answers.get("other"), None)
    messages = []
    whole = isinstance(chat.get(answer), list) and prompt not in chat
    for key, role in ((answer, LEARNT),) if whole else ((prompt, "user"), (answer, LEARNT)):
        value = chat.pop(key, None)
        if not isinstance(value, str | list):
            kind = "prompts" if role == "user" else "answers"
            raise ChatError(f"there is neither a text nor a list of messages under '{key}': name the key of {kind}")
        messages += [{"role": role, "content": value}] if isinstance(value, str) else value
    return messages


def ordered_messages(messages):
    if not isinstance(messages, list) or not messages:
        raise ChatError(f"there are no messages: a line holds {other_forms.KNOWN}")
    return [ordered_message(message, i) for i, message in enumerate(messages)]


def ordered_message(message, i):
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ChatError(f'message {i} has no role: give it {{"role": …, "content": …}}')
    if message["role"] not in ROLES:
        raise ChatError(f"message {i} has the unknown role {message['role']!r}: give it one of {', '.join(ROLES)}")
    if "content" not in message and "tool_calls" not in message:
        raise ChatError(f'message {i} has no content: give it some, or ""')
    kept = {key: value for key, value in message.items() if value is not None}
    if kept.get("content") == []:
        kept["content"] = ""
    if isinstance(kept.get("content"), bool | int | float):
        raise ChatError(f"message {i} has the content {kept['content']!r}, which is no text: put it in quotes")
    if "tool_calls" in kept:
        kept["tool_calls"] = ordered_calls(kept["tool_calls"], i)
    content = kept.get("content")
    made = Object({key: plain(value) for key, value in with_reasoning(kept, content).items()})
    for key in ("content", *REASONING):
        if key in made:
            made[key] = printable(dict.__getitem__(made, key))
    for call in dict.get(made, "tool_calls", ()):
        for holder in (call, dict.get(call, "function")):
            if isinstance(holder, dict) and "arguments" in holder:
                holder["arguments"] = printable(dict.__getitem__(holder, "arguments"))
    if is_parts(content):
        made["content"] = Parts(plain(part) for part in ordered_parts(content, i))
    return made


def with_reasoning(message, content):
    """The message with its reasoning under each name that templates read."""
    reasoning = next((message[key] for key in REASONING if key in message), None)
    if reasoning is None and is_parts(content):
        # A template that goes through parts finds it there.
        return message
    if is_parts(reasoning):
        reasoning = joined_texts(reasoning)
    return message if reasoning is None else {"thinking": reasoning, **message, "reasoning_content": reasoning}


def ordered_calls(calls, i):
    calls = from_json_text(calls, f"message {i}: `tool_calls`")
    if not isinstance(calls, list):
        raise ChatError(f"message {i}: `tool_calls` is no list: give a list of calls")
    return [ordered_call(from_json_text(call, f"message {i}: a tool call"), i) for call in calls]


def ordered_call(call, i):
    if not isinstance(call, dict):
        raise ChatError(f"message {i}: a tool call is no object: give it a name and arguments")
    call = dict(call)
    if isinstance(call.get("function"), dict):
        call["function"] = with_arguments(call["function"], i)
    return with_arguments(call, i)


def with_arguments(function, i):
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        return function
    name = f"message {i}: `arguments` of a tool call"
    for _ in range(2):  # some logs hold the text of a text
        arguments = from_json_text(arguments, name) if not isinstance(arguments, str) or arguments.strip() else {}
    return {**function, "arguments": arguments}


def ordered_tools(tools):
    tools = from_json_text(tools, "`tools`") if tools != "" else None
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise ChatError("`tools` is no list: give a list of JSON schemas")
    made = []
    for tool in tools:
        tool = from_json_text(tool, "a tool")
        if not isinstance(tool, dict):
            raise ChatError("a tool is no object: give its JSON schema")
        tool = with_parameters(tool)
        if isinstance(tool.get("function"), dict):
            tool["function"] = with_parameters(tool["function"])
        made.append(plain(tool))
    return made


def with_parameters(tool):
    if not isinstance(tool.get("parameters"), str):
        return dict(tool)
    return {**tool, "parameters": from_json_text(tool["parameters"], "`parameters` of a tool")}


def ordered_documents(documents):
    documents = from_json_text(documents, "`documents`") if documents != "" else None
    if documents is None:
        return None
    if not isinstance(documents, list) or not all(isinstance(each, dict) for each in documents):
        raise ChatError("`documents` is no list of objects: give each a title and a text")
    return plain(documents)


def learns(message, i):
    """Whether the message has a loss. OpenAI's and Mistral's formats say so by `weight`, axolotl's by `train`."""
    if message["role"] != LEARNT:
        return False
    for key in ("weight", "train"):
        value = message.get(key, 1)
        if value not in (0, 1):
            raise ChatError(f"message {i} has the {key} {value!r}: give 0 or 1")
        if not value:
            return False
    return True


def is_parts(content):
    """Whether it is a list of parts as chat programs send them; tools answer with other lists, too."""
    if not isinstance(content, list) or not content:
        return False
    return all(isinstance(part, str) or isinstance(part, dict) and ("type" in part or "text" in part) for part in content)


def ordered_parts(parts, i):
    for part in parts:
        if isinstance(part, dict) and part.get("type") != "thinking" and part_text(part) is None:
            raise ChatError(
                f"message {i} has a part of the type {part.get('type')!r}, and models here read text alone: leave it out, "
                "or say in text what it shows"
            )
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]


def part_text(part):
    """The text of a text part; None of any other."""
    if isinstance(part, str):
        return part
    key = TEXT_PARTS.get(part.get("type", "text"))
    text = part.get(key) if key else None
    return text if isinstance(text, str) else None


def joined_texts(parts):
    """One text of all text parts. transformers has no rule for it; vLLM puts line ends between them, too."""
    return "\n".join(text for part in list.__iter__(parts) if (text := part_text(part)) is not None)


def joined(message):
    """The message with its parts as one text, and with what was thought in them as its reasoning."""
    parts = list(list.__iter__(message["content"]))
    thoughts = [part.get("thinking") for part in parts if part.get("type") == "thinking"]
    thoughts = [joined_texts(each) if isinstance(each, list) else each for each in thoughts]
    made = {**message, "content": joined_texts(parts)}
    if thoughts and not any(key in made for key in REASONING):
        made = with_reasoning({**made, "reasoning_content": "\n".join(filter(None, thoughts))}, None)
    return Object(made)


def unread(conversation):
    """The paths of keys in it that nothing read, as "messages.name", each once."""
    found = collections.OrderedDict()

    def look(value, path, exempt=()):
        if isinstance(value, Object):
            for key in value:
                if key not in exempt and key not in value._read:
                    found[f"{path}{key}"] = True
                elif key in value._read:
                    look(dict.__getitem__(value, key), f"{path}{key}.")
        elif isinstance(value, list):
            for each in list.__iter__(value):
                look(each, path)

    for message in conversation.messages:
        look(message, "messages.", ("role", "content", "weight", "train", *REASONING))
        if not any(key in message._read for key in REASONING) and REASONING[0] in message:
            found[f"messages.{REASONING[2] if REASONING[2] in message else REASONING[0]}"] = True
    look(conversation.tools, "tools.")
    look(conversation.documents, "documents.")
    return [*found, *conversation.unread, *conversation.rest]
