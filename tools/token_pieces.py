"""What tokens decode to where a decoder does no more than join their bytes: whether ids decode to a text is then seen without decoding.

Most tokenizers' decoders are such: ByteLevel (GPT-2, Llama 3, Qwen), Metaspace (T5), and the sequence of Replace, ByteFallback, Fuse
and perhaps Strip (Llama 2, Gemma).
"""

import json
import re

BYTE = re.compile(r"<0x(..)>", re.DOTALL)


def byte_of_letter():
    """Byte-level BPE writes each byte as a letter: printable ones as themselves, the others as those from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


class ByteLevel:
    def __init__(self):
        self._bytes = byte_of_letter()

    def piece(self, token):
        try:
            return bytes([self._bytes[letter] for letter in token])
        except KeyError:
            return token.encode()

    def first(self, token):
        return self.piece(token)


class Metaspace:
    def __init__(self, replacement, prepends):
        self._replacement, self._prepends = replacement, prepends

    def piece(self, token):
        return token.replace(self._replacement, " ").encode()

    def first(self, token):
        return token.replace(self._replacement, "").encode() if self._prepends else self.piece(token)


class Joined:
    """`stripped` of `strip` stand in front of the whole and are left out."""

    def __init__(self, replacements, has_bytes, stripped):
        self._replacements, self._has_bytes, self._stripped = replacements, has_bytes, stripped

    def piece(self, token):
        for old, new in self._replacements:
            token = token.replace(old, new)
        byte = BYTE.fullmatch(token) if self._has_bytes else None
        if not byte:
            return token.encode()
        return bytes.fromhex(byte.group(1)) if re.fullmatch("[0-9A-Fa-f]{2}", byte.group(1)) else None

    def first(self, token):
        piece = self.piece(token)
        return piece.removeprefix(self._stripped) if piece else None


def form_of(decoder):
    """How a decoder, as tokenizer.json has it, makes bytes of tokens; None where it does more than to join them."""
    kind = decoder.get("type") if isinstance(decoder, dict) else None
    if kind == "ByteLevel":
        return ByteLevel()
    if kind == "Metaspace":
        return Metaspace(decoder["replacement"], decoder.get("prepend_scheme", "always") != "never")
    if kind != "Sequence":
        return None
    rest = list(decoder["decoders"])
    if len(rest) == 1:
        return form_of(rest[0])

    def take(*kinds):
        return rest.pop(0) if rest and rest[0].get("type") in kinds else None

    replacements = []
    while replace := take("Replace"):
        replacements.append((replace["pattern"].get("String"), replace["content"]))
    has_bytes, fuses, strip = take("ByteFallback"), take("Fuse"), take("Strip")
    simple = fuses and not rest and all(old for old, _ in replacements)
    if not simple or (strip and (strip["stop"] != 0 or strip["start"] > 1)):
        return None
    return Joined(replacements, bool(has_bytes), strip["content"].encode() if strip and strip["start"] else b"")


class TokenPieces:
    """Says whether ids decode to a text. Where the pieces do not join to it, the tokenizer itself decodes."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer
        self._pieces = self._firsts = None

    def _load(self):
        decoder = getattr(self._tokenizer, "decoder", None)
        form = None if decoder is None else form_of(json.loads(decoder.__getstate__()))
        self._pieces = self._firsts = []
        if form is None:
            return
        size = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        tokens = [self._tokenizer.id_to_token(i) for i in range(size)]
        self._pieces = [None if token is None else form.piece(token) for token in tokens]
        self._firsts = [None if token is None else form.first(token) for token in tokens]
        # Whether a decoder sees these differs from version to version.
        for i, token in self._tokenizer.get_added_tokens_decoder().items():
            if i < len(tokens) and not self._pieces[i] == self._firsts[i] == token.content.encode():
                self._pieces[i] = self._firsts[i] = None

    def _join_to(self, text, ids):
        if not ids:
            return not text
        try:
            return b"".join([self._firsts[ids[0]], *map(self._pieces.__getitem__, ids[1:])]) == text
        except (IndexError, TypeError):  # a token of which nothing is known
            return False

    def changed(self, texts, ids):
        """A byte each: 1 where the ids (lists) decode to another text (in UTF-8), else 0."""
        if self._pieces is None:
            self._load()
        open_ones = [i for i, text in enumerate(texts) if not self._join_to(text, ids[i])]
        flags = bytearray(len(texts))
        decoded = self._tokenizer.decode_batch([ids[i] for i in open_ones], skip_special_tokens=False)
        for i, text in zip(open_ones, decoded):
            flags[i] = text.encode("utf-8", "replace") != texts[i]
        return bytes(flags)
