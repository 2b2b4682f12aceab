#!/usr/bin/env python3
"""Random conversations by real chat templates: Sluice's text beside that of transformers' apply_chat_template.

    chat_fuzz.py [--count N] [--seed S] [--templates NAME,...]

The text is equal, with the generation prompt and without. Sluice refuses a conversation only where transformers raises, or
for one of the kinds below (docs/fine_tuning.md lists them), which stay under 1 %. Where Sluice puts a conversation in order (parts
of content for templates that know none, JSON text in place of objects), transformers is given the ordered one. What is
learnt has words of learnt turns alone: each message has a word that stands nowhere else.

The templates come with the wheels of trl and axolotl that `tools/bootstrap --test` installs. Exit status: 0 all well, 1 not.
"""

import argparse
import collections
import copy
import glob
import json
import os
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from dependencies import DEPENDENCIES  # noqa: E402

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
WHEELS = {"trl": "trl/chat_templates", "axolotl": "axolotl/utils/chat_templates/templates"}
TEMPLATES = ("trl/qwen2_5", "trl/qwen3", "trl/qwen3_5_think", "trl/llama3_1", "trl/phi3", "trl/gemma3", "trl/gemma4", "trl/glm4moe",
             "trl/gptoss", "axolotl/mistral_v7_tekken")  # fmt: skip
# What refusals of a listed kind say.
LISTED = ("leaves out the tool", "says nothing and has a loss", "is empty when the chat template has rendered",
          "is no JSON", "changes what the chat template does", "nothing of it would be learnt",
          "renders its turns otherwise once others follow", "of the type", "has the unknown role")  # fmt: skip
TOKENS = ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|end|>", "<|user|>", "<|assistant|>", "<|eot_id|>", "<end_of_turn>",
          "<start_of_turn>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<|endoftext|>", "<|return|>", "<|channel|>",
          "<|message|>", "<|start|>", "<|call|>", "<turn|>", "<|turn>", "<|observation|>", "[INST]", "[/INST]")  # fmt: skip
PIECES = ("plain words", "é", "\U0001f600", " ", "  ", "\n", "\n\n", "\t", "<b>bold</b>", "{{ braces }}", "{% if %}", '"quoted"',
          "\\", "</think>", "<think>\nwell\n</think>\n", "a\u2028b", "\ufeff", "日本語", "x" * 40, "'", "<tool_call>", "|",
          "\ufdd0", "\ufdd1", "0")  # fmt: skip
TOOL = {"type": "function", "function": {"name": "look_up", "description": "Looks é up.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "where"}, "days": {"type": "integer", "description": "d"}},
    "required": ["city"]}}}  # fmt: skip


def python_with_transformers():
    """Runs this program by the Python that has transformers, where it is another; says why where there is none."""
    python = DEPENDENCIES / "parity" / "bin" / "python"
    templates = sorted(glob.glob(str(DEPENDENCIES / "templates" / "lib" / "python3*" / "site-packages")))
    if not python.exists() or not templates:
        print("skipped: no transformers, or no templates of trl and axolotl: run tools/bootstrap --test")
        sys.exit(SKIPPED)
    if "CHAT_FUZZ_STARTED" not in os.environ:
        os.environ |= {"CHAT_FUZZ_STARTED": "1", "USE_TORCH": "0", "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        os.execv(python, [str(python), *sys.argv])
    return pathlib.Path(templates[-1])


class Generator:
    """Draws conversations. `ordered` of one is what transformers is given."""

    def __init__(self, draw):
        self.draw = draw
        self._words = 0

    def word(self):
        self._words += 1
        return f"w{self._words}q"

    def text(self, hostile=True):
        draw = self.draw
        pieces = [self.word(), *draw.choices(PIECES, k=draw.randrange(4))]
        if hostile and draw.random() < 0.05:
            pieces.append(draw.choice(TOKENS))
        draw.shuffle(pieces)
        return "".join(pieces)

    def value(self, depth=0):
        draw = self.draw
        kinds = [lambda: draw.choice(["Oslo", "é\n", "a\"b"]), lambda: draw.randrange(-9, 99), lambda: draw.random(),
                 lambda: draw.random() < 0.5, lambda: None]  # fmt: skip
        if depth < 2:
            kinds += [lambda: [self.value(depth + 1) for _ in range(draw.randrange(3))],
                      lambda: {"k": self.value(depth + 1), "city": "Bergen"}]  # fmt: skip
        return draw.choice(kinds)()

    def call(self):
        return {"id": "abcdefghi", "type": "function",
                "function": {"name": "look_up", "arguments": {"city": self.text(False), "days": self.value()}}}  # fmt: skip

    def assistant(self):
        draw = self.draw
        message = {"role": "assistant", "content": self.text(False)}
        if draw.random() < 0.3:
            message[draw.choice(["reasoning_content", "thinking", "reasoning"])] = self.text(False)
        if draw.random() < 0.05:
            message["weight"] = draw.randrange(2)
        if draw.random() < 0.1:
            message[draw.choice(["name", "refusal", "audio"])] = None
        return message

    def rounds(self, tools):
        """A user's message, and what it leads to."""
        draw = self.draw
        made = [{"role": "user", "content": self.text()}]
        if tools:
            for _ in range(draw.randrange(3)):
                call = self.assistant() | {"content": draw.choice([None, "", self.text(False)]), "tool_calls": [self.call()]}
                made += [call, {"role": "tool", "tool_call_id": "abcdefghi", "name": "look_up", "content": self.text()}]
        return [*made, self.assistant()]

    def conversation(self, takes_tools):
        draw = self.draw
        tools = draw.random() < (0.4 if takes_tools else 0.002)
        messages = [{"role": "system", "content": self.text()}] if draw.random() < 0.3 else []
        if draw.random() < 0.05:
            messages.append(self.assistant())
        for _ in range(draw.randrange(1, 5)):
            messages += self.rounds(tools)
        chat = {"messages": messages}
        if tools:
            chat["tools"] = [TOOL]
        if draw.random() < 0.1:
            chat["chat_template_kwargs"] = {"enable_thinking": draw.random() < 0.5}
        return chat

    def dressed(self, chat):
        """The conversation in another of the forms in which people have it."""
        draw, chat = self.draw, copy.deepcopy(chat)
        message = draw.choice(chat["messages"])
        if message.get("content") and draw.random() < 0.2:
            message["content"] = [{"type": "text", "text": message["content"]}]
        for message in chat["messages"]:
            for call in message.get("tool_calls", ()):
                if draw.random() < 0.2:
                    call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=draw.random() < 0.5)
        if "tools" in chat and draw.random() < 0.2:
            chat["tools"] = json.dumps(chat["tools"])
        return chat


class Theirs:
    """transformers with one template."""

    def __init__(self, text):
        from tokenizers import AddedToken, Tokenizer, models
        from transformers import PreTrainedTokenizerFast

        bare = Tokenizer(models.BPE({}, []))
        bare.add_special_tokens([AddedToken(token, special=True) for token in TOKENS])
        self._tokenizer = PreTrainedTokenizerFast(tokenizer_object=bare, bos_token="<s>", eos_token="</s>", chat_template=text)

    def text(self, chat, prompt):
        """The text, or None where it raises."""
        try:
            return self._tokenizer.apply_chat_template(
                copy.deepcopy(chat["messages"]), tools=chat.get("tools"), tokenize=False, add_generation_prompt=prompt,
                **chat.get("chat_template_kwargs", {}),
            )  # fmt: skip
        except Exception:
            return None

    def texts(self, plain, dressed, prompt):
        """Texts of which ours has to be one: of the conversation with its parts, where the template goes through them, or as
        one text each; with arguments as objects, or as texts where the template wants these."""
        parts = copy.deepcopy(plain)
        for message, given in zip(parts["messages"], dressed["messages"], strict=True):
            message["content"] = given["content"]
        shown = self.text(parts, prompt)
        written = [part["text"].strip() for message in parts["messages"] if isinstance(message["content"], list)
                   for part in message["content"]]  # fmt: skip
        if shown is not None and all(each in shown for each in written) and "{'type'" not in shown:
            return shown
        shown = self.text(plain, prompt)
        if shown is None and "tools" in plain:
            texts = copy.deepcopy(plain)
            for message in texts["messages"]:
                for call in message.get("tool_calls", ()):
                    call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
            shown = self.text(texts, prompt)
        return shown


class Comparison:
    def __init__(self, name, text, draw):
        import chat_template

        self.name = name
        self.generator = Generator(draw)
        self.takes_tools = "tools" in text
        self.theirs = Theirs(text)
        ends = ["</s>", "<|user|>", "<|observation|>"] if "glm" in name else ["</s>"]
        self.ours = chat_template.ChatTemplate(
            "tokenizer.json", {"chat_template": text, "bos_token": "<s>", "eos_token": "</s>"}, None,
            [(token, True) for token in TOKENS], ends,
        )  # fmt: skip
        self.counts = collections.Counter()
        self.faults = []

    def step(self):
        import chat_template

        plain = self.generator.conversation(self.takes_tools)
        dressed = self.generator.dressed(plain)
        for prompt in (False, True):
            render = self.ours.render_prompt if prompt else self.ours.render
            expected = self.theirs.texts(plain, dressed, prompt)
            try:
                rendered = render(json.loads(json.dumps(dressed)))
            except chat_template.ChatError as error:
                self._refused(dressed, error, expected)
                continue
            if expected is None:
                self.counts["transformers raises, Sluice does not"] += 1
            elif rendered.plain_text() != expected:
                self._fault("another text", dressed, f"ours   {rendered.plain_text()!r}\ntheirs {expected!r}")
            else:
                self.counts["equal"] += 1
            if not prompt:
                self._look_at_learnt(plain, rendered)

    def _refused(self, chat, error, expected):
        if expected is None:
            self.counts["both refuse"] += 1
        elif any(kind in str(error) for kind in LISTED):
            self.counts["refusals of a listed kind"] += 1
        else:
            self._fault("a refusal that is not listed", chat, str(error))

    def _look_at_learnt(self, chat, rendered):
        import re

        learnt = " ".join(rendered.text[begin:end] for begin, end in rendered.spans)
        said, others = set(), set()
        for message in chat["messages"]:
            is_learnt = message["role"] == "assistant" and message.get("weight", 1)
            (said if is_learnt else others).update(re.findall(r"w\d+q", json.dumps(message)))
        words = set(re.findall(r"w\d+q", learnt))
        if words & others:
            self._fault("words of others are learnt", chat, f"{sorted(words & others)} in {learnt!r}")
        if not rendered.notes.unlearnt and rendered.spans:
            contents = {word for message in chat["messages"] if message["role"] == "assistant" and message.get("weight", 1)
                        for word in re.findall(r"w\d+q", str(message.get("content")))}  # fmt: skip
            if missing := {word for word in contents if word in rendered.text} - words:
                self._fault("words of a turn are not learnt", chat, f"{sorted(missing)}: {learnt!r} of {rendered.text!r}")
        self.counts["turns learnt"] += len(rendered.spans)
        self.counts["turns rewritten"] += rendered.notes.unlearnt

    def _fault(self, kind, chat, what):
        self.counts["faults"] += 1
        if len(self.faults) < 3:
            self.faults.append(f"{self.name}: {kind}:\n{json.dumps(chat, ensure_ascii=False)}\n{what}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="conversations, over all templates")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--templates", default=",".join(TEMPLATES))
    arguments = parser.parse_args()
    packages = python_with_transformers()
    sys.path.insert(0, str(ROOT / "tools"))
    names = arguments.templates.split(",")
    print(f"seed {arguments.seed}: {arguments.count} conversations by {len(names)} templates", flush=True)
    total = collections.Counter()
    faults = []
    for i, name in enumerate(names):
        wheel, _, stem = name.partition("/")
        path = packages / WHEELS[wheel] / f"{stem}.jinja"
        compared = Comparison(name, path.read_text(encoding="utf-8"), random.Random(f"{arguments.seed} {name}"))
        for _ in range(arguments.count * (i + 1) // len(names) - arguments.count * i // len(names)):
            compared.step()
        print(f"{name}: {', '.join(f'{count} {kind}' for kind, count in sorted(compared.counts.items()))}", flush=True)
        total += compared.counts
        faults += compared.faults
    listed = total["refusals of a listed kind"] / max(1, arguments.count)
    print(f"all: {', '.join(f'{count} {kind}' for kind, count in sorted(total.items()))}; listed {100 * listed:.2f} %")
    for fault in faults:
        print(f"\n{fault}")
    # A sample of some hundreds may have a few more than all conversations have.
    if total["faults"] or listed >= 0.02:
        print(f"\nFAILED: run with --seed {arguments.seed} again")
        sys.exit(1)


if __name__ == "__main__":
    main()
