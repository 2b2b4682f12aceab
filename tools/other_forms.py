"""Conversations of data sets that have no `messages`: ShareGPT's, Alpaca's, and prompts with completions."""

import json

from chat_errors import ChatError

KNOWN = (
    '{"messages": [{"role": …, "content": …}, …]}, ShareGPT\'s {"conversations": [{"from": …, "value": …}, …]}, Alpaca\'s '
    '{"instruction": …, "input": …, "output": …}, or {"prompt": …, "completion": …}'
)
# Speakers in ShareGPT's form, by the names that data sets of the hub use, and their roles.
SPEAKERS = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant", "bot": "assistant",
    "model": "assistant", "bing": "assistant", "bard": "assistant", "system": "system", "developer": "developer",
    "tool": "tool", "observation": "tool", "function_response": "tool", "function_call": "assistant",
}  # fmt: skip


def recognised(chat):
    """(the form's name for people, messages), whose keys leave `chat`; None where it has messages, or no known form. ChatError."""
    if chat.get("messages") is not None:
        return None
    if isinstance(chat.get("conversations"), list | str):
        return sharegpt(chat)
    if "instruction" in chat and "output" in chat:
        return "Alpaca's form (instruction, input, output)", alpaca(chat)
    for answer in ("completion", "response"):
        if "prompt" in chat and answer in chat:
            return f"prompts and answers (prompt, {answer})", prompted(chat, answer)
    return None


def sharegpt(chat):
    turns = chat.pop("conversations")
    if isinstance(turns, str):
        try:
            turns = json.loads(turns)
        except ValueError as error:
            raise ChatError("`conversations` is a text that is no JSON: mend it or give a list") from error
    if isinstance(turns, list) and all(isinstance(turn, dict) and "role" in turn for turn in turns):
        return "messages under the key conversations", [*system_message(chat), *turns]
    if not isinstance(turns, list):
        raise ChatError('`conversations` is no list: give [{"from": …, "value": …}, …]')
    name = "ShareGPT's form (conversations, from, value)"
    return name, [*system_message(chat), *(turn_message(turn, i) for i, turn in enumerate(turns))]


def turn_message(turn, i):
    """The message of a turn; its other keys stay."""
    if not isinstance(turn, dict) or not isinstance(turn.get("from"), str) or "value" not in turn:
        raise ChatError(f'turn {i} of `conversations` has no `from` or no `value`: give {{"from": "human", "value": …}}')
    role = SPEAKERS.get(turn["from"].strip().lower())
    if role is None:
        raise ChatError(f"turn {i} of `conversations` is from {turn['from']!r}: give one of {', '.join(SPEAKERS)}")
    rest = {key: value for key, value in turn.items() if key not in ("from", "value")}
    if turn["from"].strip().lower() == "function_call":
        return {**rest, "role": role, "content": "", "tool_calls": [{"type": "function", "function": call_of(turn["value"], i)}]}
    return {**rest, "role": role, "content": turn["value"]}


def call_of(value, i):
    try:
        call = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        call = None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise ChatError(f'turn {i} of `conversations` is a function_call without a name: give {{"name": …, "arguments": {{…}}}}')
    return {"name": call["name"], "arguments": call.get("arguments", {})}


def alpaca(chat):
    """The input follows its instruction in a line of its own; `history` has earlier pairs."""
    messages = system_message(chat)
    for pair in chat.pop("history", None) or []:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ChatError("`history` has something else than pairs: give [[instruction, output], …]")
        messages += [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]
    asked = [chat.pop("instruction"), chat.pop("input", None)]
    answer = chat.pop("output")
    if not isinstance(asked[0], str) or not isinstance(asked[1], str | None) or not isinstance(answer, str):
        raise ChatError("`instruction`, `input` and `output` have to be texts")
    return [*messages, {"role": "user", "content": "\n".join(filter(None, asked))}, {"role": "assistant", "content": answer}]


def prompted(chat, answer):
    messages = system_message(chat)
    for key, role in (("prompt", "user"), (answer, "assistant")):
        value = chat.pop(key)
        if not isinstance(value, str | list):
            raise ChatError(f"there is neither a text nor a list of messages under '{key}'")
        messages += [{"role": role, "content": value}] if isinstance(value, str) else value
    return messages


def system_message(chat):
    """The text of `system` or `system_prompt`, as a message in front."""
    for key in ("system", "system_prompt"):
        if isinstance(chat.get(key), str):
            told = chat.pop(key)
            return [{"role": "system", "content": told}] if told else []
    return []
