"""The tokens of a tokenizer that are found in a text before its words are: control tokens above all."""

import re


class AddedTokens:
    """Texts of such tokens; white space is left out. Some tokenizers have thousands, so none is looked for one by one."""

    def __init__(self, texts):
        self.texts = frozenset(text for text in texts if not text.isspace())
        self._lengths = sorted({len(text) for text in self.texts}, reverse=True)
        firsts = "".join(map(re.escape, sorted({text[0] for text in self.texts})))
        self._first = re.compile(f"[{firsts}]" if firsts else "(?!)")

    def at(self, text, begin):
        """The longest one that begins there; "" where none does."""
        return next((text[begin : begin + n] for n in self._lengths if text[begin : begin + n] in self.texts), "")

    def find(self, text, begin=0, end=None):
        """(begin, token) of each, from the left, none over another."""
        at, end = max(0, begin), len(text) if end is None else end
        while found := self._first.search(text, at, end):
            at = found.start()
            token = self.at(text, at)
            if token:
                yield at, token
            at += max(1, len(token))

    def replaced(self, text, change):
        """The text with change(token) in place of each."""
        parts, last = [], 0
        for at, token in self.find(text):
            parts += [text[last:at], change(token)]
            last = at + len(token)
        return "".join([*parts, text[last:]]) if parts else text

    def end(self, text):
        """Whether the text ends with one."""
        return any(text[-n:] in self.texts for n in self._lengths) if text else False
