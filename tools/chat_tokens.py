"""Conversations as tokens: what a chat template renders, with a mask of what is learnt.

Control tokens that somebody wrote are text: they are encoded as the characters that they are, while those that the template
wrote are tokens. A tokenizer finds both alike, so the text is encoded by a copy of the tokenizer in which each control token
has another name, a character that no text has, and the template's are renamed in the text, too.
"""

import array
import dataclasses
import json
import pathlib
import struct
import sys

import chat_template
from chat_template import ChatError, LostError

# Characters that rename control tokens: private ones of Unicode's last plane.
FIRST_NAME = 0x100000


def read_json(path):
    """{} where there is no such file. ChatError."""
    try:
        found = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ChatError(f"{path}: it cannot be read: {error}") from error
    return found if isinstance(found, dict) else {}


def generation_ends(path):
    """Ids that end a generation, as generation_config.json beside the tokenizer lists them."""
    ends = read_json(pathlib.Path(path).parent / "generation_config.json").get("eos_token_id")
    return [each for each in (ends if isinstance(ends, list) else [ends]) if isinstance(each, int)]


class ChatTokens:
    def __init__(self, tokenizer, path, config, told, end_id):
        """`told`: the fields of chat_template.Options that differ, as JSON. ChatError."""
        self._tokenizer = tokenizer
        self._renamed = None
        self._forms = set()  # that were said
        decoder = tokenizer.get_added_tokens_decoder()
        self._added = frozenset(decoder)
        added = [(token.content, token.special) for token in decoder.values()]
        ends = [text for id in (*generation_ends(path), end_id) if id >= 0 and (text := tokenizer.id_to_token(id))]
        options = chat_template.Options(**json.loads(told))
        self._template = chat_template.ChatTemplate(path, config, options, added, ends)

    def chats(self, questions):
        """An answer to each conversation, as hf_tokenize.py sends it."""
        return self._answers(questions, self._template.render)

    def prompts(self, questions):
        """Likewise of what stands in front of an answer."""
        return self._answers(questions, self._template.render_prompt)

    def _answers(self, questions, render):
        found = [rendering(render, data) for data in questions]
        plain = [each.text for each in found if isinstance(each, tuple) and not each.notes.written]
        encodings = iter(self._tokenizer.encode_batch(plain, add_special_tokens=False))
        for each in found:
            if isinstance(each, ChatError):
                yield refusal(each)
                continue
            try:
                encoding, spans = self._written(each) if each.notes.written else (next(encodings), each.spans)
                yield self._answer(each, encoding, spans)
            except ChatError as error:
                yield refusal(error)

    def _answer(self, rendered, encoding, spans):
        ids, mask = encoding.ids, mask_of(encoding, spans, self._added)
        if rendered.spans and not any(mask):
            raise ChatError("no token begins in what would be learnt of it: leave it out")
        if rendered.notes.closing:
            ids, mask = [*ids, self._tokenizer.token_to_id(rendered.notes.closing)], mask + b"\1"
        self._say_form(rendered.notes.form)
        notes = json.dumps(noted(rendered.notes)).encode()
        head = b"K" + struct.pack("<Q", len(notes)) + notes + struct.pack("<Q", len(ids))
        return head + array.array("i", ids).tobytes() + bytes(mask)

    def _say_form(self, form):
        """Says once, on the terminal of the build, by which form conversations without messages were recognised."""
        if form and form not in self._forms:
            self._forms.add(form)
            print(f"conversations are read by {form}", file=sys.stderr, flush=True)

    def _written(self, rendered):
        """The encoding of a text in which control tokens stand that somebody wrote, and the spans in it."""
        written = set(rendered.notes.written.values())
        if self._renamed is None or not written <= self._renamed.names.keys():
            known = set() if self._renamed is None else self._renamed.names.keys()
            self._renamed = Renamed(self._tokenizer, sorted(written | known))
        text, spans = self._renamed.text_and_spans(rendered)
        return self._renamed.tokenizer.encode(text, add_special_tokens=False), spans


class Renamed:
    """A copy of a tokenizer in which these control tokens have other names."""

    def __init__(self, tokenizer, tokens):
        from tokenizers import Tokenizer

        self.names = {token: chr(FIRST_NAME + i) for i, token in enumerate(tokens)}
        state = json.loads(tokenizer.to_str())
        for token in state["added_tokens"]:
            token["content"] = self.names.get(token["content"], token["content"])
        model = state["model"]
        if isinstance(model["vocab"], dict):
            model["vocab"] = {self.names.get(text, text): id for text, id in model["vocab"].items()}
        else:
            model["vocab"] = [[self.names.get(text, text), score] for text, score in model["vocab"]]
        if model.get("unk_token") in self.names:
            model["unk_token"] = self.names[model["unk_token"]]
        refused = ChatError(
            f"{', '.join(tokens)}: somebody wrote control tokens, and this tokenizer cannot read them as text: leave them out, "
            "or let them be tokens with --sanitize none"
        )
        try:
            self.tokenizer = Tokenizer.from_str(json.dumps(state))
        except Exception as error:
            raise refused from error
        if any(self.tokenizer.token_to_id(name) != tokenizer.token_to_id(token) for token, name in self.names.items()):
            raise refused

    def text_and_spans(self, rendered):
        """The text with the template's control tokens renamed and everybody else's as they wrote them; spans in it."""
        written, names = rendered.notes.written, chat_template.AddedTokens(self.names)
        parts, cuts, last, shift = [], [], 0, 0
        places = [(at, written[mark], mark) for at, mark in enumerate(rendered.text) if mark in written]
        places += [(at, self.names[token], token) for at, token in names.find(rendered.text)]
        for at, instead, was in sorted(places):
            parts += [rendered.text[last:at], instead]
            last = at + len(was)
            shift += len(instead) - len(was)
            cuts.append((last, shift))
        moved = [tuple(edge + shift_at(cuts, edge) for edge in span) for span in rendered.spans]
        return "".join([*parts, rendered.text[last:]]), moved


def shift_at(cuts, edge):
    return next((shift for at, shift in reversed(cuts) if at <= edge), 0)


def rendering(render, data):
    """What `render` makes of the JSON text, or the ChatError."""
    try:
        return render(json.loads(data))
    except ChatError as error:
        return error
    except (ValueError, RecursionError) as error:
        return ChatError(f"it is no JSON that can be read: {error}: mend it")


def refusal(error):
    data = str(error).encode("utf-8", "replace")
    return (b"L" if isinstance(error, LostError) else b"X") + struct.pack("<Q", len(data)) + data


def noted(notes):
    """The notes that say something."""
    values = dataclasses.asdict(notes)
    return {key: value for key, value in values.items() if value and key not in ("closing", "written")}


def mask_of(encoding, spans, added):
    """By token, 1 where it has a character of a span, or begins inside one. White space that an added token takes along does
    not make it one of the span behind it. `added`: the ids of such tokens."""
    mask = bytearray(len(encoding.ids))
    span = 0
    for i, (begin, end) in enumerate(encoding.offsets):
        while span < len(spans) and begin >= spans[span][1]:
            span += 1
        if span == len(spans):
            break
        first = spans[span][0]
        mask[i] = begin >= first or end > first and encoding.ids[i] not in added
    return mask
