"""What of a rendered conversation is learnt: the assistant's turns, each from the first character of its answer to its end
token, and nothing of another's.

A template says so itself with {% generation %} … {% endgeneration %}. For one that does not, a turn is what the whole has
behind the text that the model sees when it is to answer, the generation prompt included, up to where the conversation that
ends with this turn ends. Three kinds of templates need more than that comparison:

- The generation prompt may say more than an answer of the history begins with (`<think>`). Then the turn begins where
  renderings of the same turn with other answers part from each other.
- Behind the last turn there may be more than behind others (Phi-3's end token), or in front of the last answer (an empty
  thought). Then the turn is the longest ending of the shorter conversation that the whole goes on with. Where words of the
  turn itself are missing in the whole, the template rewrites the turn, and it is not learnt.
- The token that ends a turn may be the marker of the next one (GLM). A token behind a turn that ends generations belongs
  to the turn.
"""

import os
import re

import conversations
from conversations import ChatError, LostError


def cut_marks(marked, marks):
    """The text without marks, and the spans between them."""
    text, spans, opened, length = [], [], None, 0
    for piece in re.split(f"([{marks[0]}{marks[1]}])", marked):
        if piece == marks[0]:
            opened = length
        elif piece == marks[1]:
            if opened is not None:
                spans.append((opened, length))
            opened = None
        else:
            text.append(piece)
            length += len(piece)
    return "".join(text), spans


def merged(spans):
    """The spans, those that follow each other as one."""
    made = []
    for begin, end in spans:
        if made and made[-1][1] == begin:
            made[-1] = (made[-1][0], end)
        elif end > begin:
            made.append((begin, end))
    return made


def without_weightless(drawing, text, spans):
    """The marked spans without those of messages that have no loss: spans that change with such a message."""
    messages = drawing.conversation.messages
    kept = dict.fromkeys(spans)
    for i, message in enumerate(messages):
        if message["role"] != conversations.LEARNT or drawing.conversation.learns[i]:
            continue
        try:
            other = cut_marks(drawing.draw([*messages[:i], probe(drawing, 0), *messages[i + 1 :]]), drawing.marks)
        except ChatError as error:
            raise ChatError(
                f"message {i} has no loss, and what the chat template marks of it cannot be told: leave the message out"
            ) from error
        ours, theirs = [text[b:e] for b, e in spans], [other[0][b:e] for b, e in other[1]]
        same = len(os.path.commonprefix([ours, theirs]))
        behind = len(os.path.commonprefix([ours[same:][::-1], theirs[same:][::-1]]))
        for span in spans[same : len(spans) - behind]:
            kept.pop(span, None)
    return list(kept)


def probe(drawing, which):
    """A message of the assistant whose content no template and nobody else writes."""
    return conversations.Object({"role": conversations.LEARNT, "content": drawing.content(drawing.probes[which])})


def user(drawing):
    return conversations.Object({"role": "user", "content": drawing.content(drawing.probes[0])})


def of_turns(drawing, text):
    """(spans of the turns that are learnt, how many turns with a loss are not because the template rewrites them)."""
    turns = [i for i, each in enumerate(drawing.conversation.learns) if each]
    if not turns:
        return [], 0
    finder = Finder(drawing, text)
    spans = [span for i in turns if (span := finder.span(i)) is not None]
    if not spans and turns[-1] + 1 == len(drawing.conversation.messages):
        spans = [span] if (span := finder.span(turns[-1], anyhow=True)) is not None else []
        drawing.notes.displaced = len(spans)
    if not spans:
        raise ChatError(
            "the chat template renders its turns otherwise once others follow, so what is learnt cannot be told: mark it in the template with {% generation %} and {% endgeneration %}"
        )
    return spans, len(turns) - len(spans)


class Finder:
    """Finds turns in the text of a whole conversation."""

    def __init__(self, drawing, text):
        self._drawing = drawing
        self._messages = drawing.conversation.messages
        self._text = text
        self._added = drawing.added

    def span(self, i, anyhow=False):
        """Of message i; None where the template renders it, or what stands in front of it, otherwise than when it was said.
        `anyhow`: where it stands in the whole, whatever stands in front of it."""
        begin = self._begin_in_place(i) if anyhow else self._begin(i)
        if begin is None:
            return None
        end = len(self._text) if i + 1 == len(self._messages) else self._end(i, begin)
        return None if end is None or end <= begin else (begin, max(begin, self._trimmed(begin, end)))

    def _begin(self, i):
        """Where the answer of message i begins, behind the same text as when it was given."""
        text, draw = self._text, self._drawing.text_of
        before = self._messages[:i]
        prompt = draw(before, prompt=True) if i > 0 else None
        if prompt is None:
            return self._begin_in_place(i)
        prompts = self._drawing.template.prompts
        if prompts and text.startswith(prompt):
            return self._behind_header(i, len(prompt))
        # The turn's header is what all answers begin with, as the last message and in front of another one.
        least = self._common(prompt, draw(before) or "")
        found = []
        for behind in ([], [user(self._drawing)]):
            one, other = (draw([*before, probe(self._drawing, which), *behind]) for which in (0, 1))
            if one is not None and other is not None:
                begin = self._common(one, other, text)
                found.append(min(begin, self._common(prompt, one)) if prompts else begin)
        found = [begin for begin in found if begin > least or begin == least and not prompts]
        header = self._header(answers=True) if found else ""
        if header and text.startswith(header, least):
            found.append(least + len(header))
        return min(found, default=None)

    def _behind_header(self, i, begin):
        """Likewise, where the generation prompt had no header because a tool had answered, and the turn has one."""
        header = self._header()
        token = self._added.at(header, 0)
        if not token or not self._text.startswith(token, begin):
            return begin
        others = [self._drawing.text_of([*self._messages[:i], probe(self._drawing, which)]) for which in (0, 1)]
        return begin if None in others else max(begin, self._common(*others, self._text))

    def _begin_in_place(self, i):
        """Where answers that stand in its place in the whole part from each other."""
        before, behind = self._messages[:i], self._messages[i + 1 :]
        others = [self._drawing.text_of([*before, probe(self._drawing, which), *behind]) for which in (0, 1)]
        if None in others:
            others = [self._drawing.text_of([*before, probe(self._drawing, which)]) for which in (0, 1)]
        if None in others:
            return None
        begin, header = self._common(*others, self._text), self._header()
        at = self._text[:begin].rfind(header) if header else -1
        between = words_in(self._drawing, self._text[at + len(header) : begin])
        if at < 0 or any(between & words_of(self._drawing, message) for message in (*before, *behind)):
            return begin
        return at + len(header)

    def _header(self, answers=False):
        """What the generation prompt adds to a user's message; `answers`: as far as all answers begin with it."""
        asked = user(self._drawing)
        without, prompt = (self._drawing.text_of([asked], prompt=each) for each in (False, True))
        if not prompt or not without:
            return ""
        begin, end = self._common(prompt, without), len(prompt)
        for behind in ([], [asked]) if answers else ():
            answered = self._drawing.text_of([asked, probe(self._drawing, 0), *behind])
            end = end if answered is None else min(end, self._common(prompt, answered))
        return prompt[begin:end]

    def _end(self, i, begin):
        """Where message i ends, its end token included."""
        text = self._text
        until = self._drawing.text_of(self._messages[: i + 1])
        if until is None:
            return self._end_in_place(i)
        if text.startswith(until):
            return len(until)
        if until[:begin] != text[:begin]:
            return None
        turn, tail = until[begin:], ""
        while turn:
            length = overlap(turn, text[begin:])
            if length and not self._says_of(self._messages[i], turn[: len(turn) - length]):
                return self._behind_end(begin, begin + length, tail)
            shorter = self._without_tail(turn)
            if shorter == turn:
                return None
            turn, tail = shorter, turn[len(shorter) :]
        return None

    def _behind_end(self, begin, end, tail):
        """Behind an end token that stands for another one of the last turn's: one with the next turn's behind it."""
        token = self._added.at(self._text, end) if tail else ""
        ended = self._added.end(self._text[begin:end].rstrip())
        return end if ended or not self._added.at(self._text, end + len(token)) else end + len(token)

    def _without_tail(self, turn):
        """Without its last added token, or the white space behind it."""
        stripped = turn.rstrip()
        if stripped != turn:
            return stripped
        last = None
        for last in self._added.find(turn):
            pass
        return turn[: last[0]] if last and last[0] + len(last[1]) == len(turn) else turn

    def _says_of(self, message, text):
        """Whether the text has words of the message that are neither tags nor added tokens."""
        return bool(words_of(self._drawing, message) & words_in(self._drawing, text))

    def _end_in_place(self, i):
        """Likewise for a template that refuses the conversation up to message i: what follows its content is compared with
        what follows the last turn's, and with where the next content begins."""
        text, messages = self._text, self._messages
        ends = []
        for k in (i, i + 1):
            contents = map(self._drawing.content, self._drawing.probes)
            changed = [conversations.Object({**messages[k], "content": content}) for content in contents]
            others = [self._drawing.text_of([*messages[:k], each, *messages[k + 1 :]]) for each in changed]
            if None in others:
                return None
            ends.append(len(text) - self._common(text[::-1], *[each[::-1] for each in others], whole=False))
            begin = self._common(text, *others)
        between = text[ends[0] : begin]
        ended = self._drawing.text_of([messages[i + 1], probe(self._drawing, 0)])
        behind = ended.rpartition(self._drawing.probes[0])[2] if ended else ""
        return ends[0] + self._common(between, behind)

    def _common(self, *texts, whole=True):
        """How long the beginning is that they share; `whole`: without the beginning of an added token."""
        shared = len(os.path.commonprefix(texts))
        if not whole:
            return shared
        for each in texts:
            for at, token in self._added.find(each, shared - 64, shared):
                if at < shared < at + len(token):
                    shared = at
        return shared

    def _trimmed(self, begin, end):
        """Without white space behind an end token."""
        stripped = self._text[begin:end].rstrip()
        return begin + len(stripped) if self._added.end(stripped) else end


def overlap(turn, rest):
    """The length of the longest ending of `turn` that `rest` begins with (Knuth, Morris and Pratt's table)."""
    joined = rest[: len(turn)] + "\ud800" + turn  # half a pair stands in no text
    table = [0] * len(joined)
    for i in range(1, len(joined)):
        k = table[i - 1]
        while k and joined[i] != joined[k]:
            k = table[k - 1]
        table[i] = k + (joined[i] == joined[k])
    return table[-1]


def words_in(drawing, text):
    """Words and signs of the text, those of tags and added tokens left out."""
    bare = re.sub(r"</?\w+>", " ", drawing.added.replaced(text, lambda token: " "))
    return set(re.findall(r"\w+|[^\w\s]+", bare))


def texts_of(message):
    """What the message says: its content, its reasoning, and the calls of tools."""
    return conversations.texts_in([dict.get(message, key) for key in ("content", *conversations.REASONING, "tool_calls")])


def words_of(drawing, message):
    """The words that the message says."""
    return words_in(drawing, " ".join(texts_of(message)))


def is_empty(drawing, text):
    """Whether nothing is left of the text without tags and end tokens. Other added tokens are words of some vocabularies."""
    return not re.sub(r"</?\w+>", " ", drawing.ends.replaced(text, lambda token: " ")).strip()


def refuse_empty(drawing, text, spans):
    """LostError for a turn that is learnt and says nothing: the model would learn to answer with an end."""
    for i, message in enumerate(drawing.conversation.messages):
        if drawing.conversation.learns[i] and is_empty(drawing, " ".join(texts_of(message))):
            raise LostError(
                f"message {i} of the assistant says nothing and has a loss, so the model would learn to say nothing: give it "
                'content, or "weight": 0'
            )
    if any(is_empty(drawing, text[begin:end]) for begin, end in spans):
        raise LostError(
            "a turn of the assistant is empty when the chat template has rendered it, so the model would learn to say "
            'nothing: name another template with --chat-template, or give the message "weight": 0'
        )


def with_ends(drawing, text, spans):
    """(the spans, each with the end token that stands behind it, the end token that the last turn lacks)."""
    made = []
    for begin, end in spans:
        behind = text[end:]
        gap = len(behind) - len(behind.lstrip())
        token = "" if drawing.ends.end(text[begin:end].rstrip()) else drawing.ends.at(behind, gap)
        made.append((begin, end + gap + len(token) if token else end))
    end = made[-1][1]
    if text[end:].strip() or not drawing.conversation.learns[-1] or drawing.ends.end(text[:end].rstrip()):
        return made, ""
    return made, closing(drawing)


def closing(drawing):
    """The end token that the template writes behind a turn like the last one once somebody else speaks; "" where it is none.
    That turn stands alone here: thoughts of others may go where another message follows."""
    calls = dict.get(drawing.conversation.messages[-1], "tool_calls")
    bare = conversations.Object({**probe(drawing, 0), **({"tool_calls": calls} if calls else {})})
    content = drawing.content(drawing.probes[1])
    following = conversations.Object({"role": "tool" if calls else "user", "content": content})
    said = (drawing.text_of([user(drawing), bare]) or "").rstrip()
    more = drawing.text_of([user(drawing), bare, following]) or ""
    behind = more[len(said) :]
    return drawing.ends.at(behind, len(behind) - len(behind.lstrip())) if said and more.startswith(said) else ""


def endless(drawing, text, spans, closed):
    """How many of the turns end without a token that can end them."""
    ended = [drawing.added.end(text[begin:end].rstrip()) for begin, end in spans]
    return len(ended) - sum(ended) - (bool(closed) and not ended[-1])
