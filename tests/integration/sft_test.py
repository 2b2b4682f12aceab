"""Fine-tuning as its user does it: examples/sft.toml takes a chat model's folder and a file of conversations to a folder
that transformers loads. The model is a small one that a short run made, the tokenizer has a token a byte."""

import json
import pathlib
import random
import shutil
import subprocess

from harness import (PEFT_PYTHON, SLUICE, TRANSFORMERS_PYTHON, TestCase, base_settings, environment, losses, main, missing,
                     to_toml)

EXAMPLE = pathlib.Path(__file__).resolve().parent.parent.parent / "examples" / "sft.toml"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ message.content }}<|im_end|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATS = 100
MARKS = ["<|im_start|>", "<|im_end|>"]
# Loads the folder as people do and prints the mean loss of the corpus' tokens that its mask lets count.
LOADS = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
folder, documents = sys.argv[1], json.loads(sys.argv[2])
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).float().eval()
chat = [{"role": "user", "content": "hi"}]
text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
loss = count = 0
for ids, mask in documents:
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1]
    each = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none")
    loss += float((each * torch.tensor(mask[1:])).sum())
    count += sum(mask[1:])
print(json.dumps({"loss": loss / count, "text": text, "eos": GenerationConfig.from_pretrained(folder).eos_token_id}))
"""


PEFT = """
import json, sys
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
base, adapter, merged = sys.argv[1:]
load = lambda folder: AutoModelForCausalLM.from_pretrained(folder).float().eval()
ids = torch.arange(200)[None] % 256
with torch.no_grad():
    plain, whole = load(base)(ids).logits, load(merged)(ids).logits
    adapted = PeftModel.from_pretrained(load(base), adapter)(ids).logits
print(json.dumps({"apart": float((adapted - whole).abs().max()), "moved": float((plain - whole).abs().max())}))
"""


def tensors(path):
    """The bytes of each tensor of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    return {name: data[8 + size + tensor["data_offsets"][0]:8 + size + tensor["data_offsets"][1]]
            for name, tensor in header.items() if name != "__metadata__"}


def byte_alphabet():
    """The characters that stand for bytes in byte-level tokenizers, by byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def write_tokenizer(folder):
    letters = sorted(byte_alphabet().values())
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    marks = [{"id": len(letters) + i, "content": mark, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, mark in enumerate(MARKS)]
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": marks, "normalizer": None,
                 "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
                 "model": {"type": "BPE", "vocab": {letter: i for i, letter in enumerate(letters)}, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": len(letters) + 1}))
    return len(letters) + len(MARKS)


def write_chats(path):
    """Questions that differ and answers that repeat them: what the assistant says can be learnt."""
    chance = random.Random(3)
    lines = []
    for _ in range(CHATS):
        turns = []
        for _ in range(chance.randint(1, 3)):
            word = chance.choice("abcdefgh") * chance.randint(1, 12)
            turns += [{"role": "user", "content": f"Say {word}!"}, {"role": "assistant", "content": word}]
        lines.append(json.dumps({"messages": turns}))
    path.write_text("\n".join(lines) + "\n")


class FineTuning(TestCase):
    elastic = False

    def done(self, *arguments):
        result = subprocess.run([SLUICE, *map(str, arguments)], cwd=self.directory, env=environment(), text=True,
                                capture_output=True, timeout=300, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def make_model(self, folder):
        """A chat model that has learnt nothing yet, with all that goes with it."""
        folder.mkdir(parents=True)
        vocabulary = write_tokenizer(folder)
        (self.directory / "text.txt").write_text("Say a word, and it is said again.\n" * 200)
        self.done("corpus", "build", "text.txt", "--out", "text", "--tokenizer", folder, "--delimiter", "\\n")
        settings = base_settings()
        settings["model"]["vocab"] = vocabulary
        settings["data"]["train"] = [["text/corpus", 1.0]]
        settings["train"]["steps"] = 1
        settings["parallel"]["strategies"] = ["<1,1,1>"]
        settings["checkpoint"]["every"] = 1
        (self.directory / "first.toml").write_text(to_toml(settings))
        self.done("train", "--config", "first.toml")
        self.done("export", "run", "--out", "made")
        for name in ("config.json", "model.safetensors"):
            shutil.copy(self.directory / "made" / name, folder / name)

    def prepare(self):
        model = self.directory / "models" / "chat"
        self.make_model(model)
        write_chats(self.directory / "chats.jsonl")
        self.done("corpus", "build", "chats.jsonl", "--chat", "--tokenizer", "models/chat", "--out", "corpora/chats")
        return model

    def train(self, *more, **told):
        settings = {"data.context_length": 256, "data.tokens_per_step": 2048, "train.steps": 30, "train.eval_every": 15,
                    "train.dtype": '"float32"', "train.threads": 1, "optimizer.lr": 1e-2, "optimizer.warmup_steps": 2,
                    "parallel.strategies": '["<2,1,1>", "2x<1,1,1>", "<1,2,1>", "<1,1,2,2>"]',
                    "parallel.select": '"cycle"', "parallel.calibration": '"analytic"', "memory.device_gib": 1.0,
                    "memory.margin_gib": 0.1, "checkpoint.every": 15, "checkpoint.keep": 3, "log.tensorboard": "false"}
        settings |= {key.replace("__", "."): value for key, value in told.items()}
        told = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return self.done("train", "--config", EXAMPLE, "--nproc", 2, *told, *more)

    def test_a_chat_model_is_fine_tuned_and_exported(self):
        model = self.prepare()
        self.train()
        found = losses(self.directory / "runs" / "sft")
        self.assertLess(found[29][0], 0.6 * found[0][0])

        self.done("export", "runs/sft", "--out", "models/tuned")
        tuned = self.directory / "models" / "tuned"
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            self.assertEqual((tuned / name).read_bytes(), (model / name).read_bytes(), name)
        self.check_with_transformers(tuned)

    def test_adapters_are_trained_resumed_merged_and_exported(self):
        model = self.prepare()
        lora = {"lora__rank": 8, "lora__alpha": 32, "lora__targets": '["all-linear"]', "optimizer__lr": 3e-2}
        self.train(**lora)
        found = losses(self.directory / "runs" / "sft")
        # Little: embedding and head stay those of a model that has learned next to nothing.
        self.assertLess(sum(found[step][0] for step in range(25, 30)), 0.98 * sum(found[step][0] for step in range(5)))
        # From the middle on one rank: the same losses.
        checkpoints = self.directory / "runs" / "sft" / "checkpoints"
        self.train("--resume", checkpoints / "step-15", log__dir='"runs/again"', **lora)
        again = losses(self.directory / "runs" / "again")
        self.assertAlmostEqual(again[29][0], found[29][0], delta=1e-4)

        self.done("export", "runs/sft", "--out", "models/tuned")
        tuned = self.directory / "models" / "tuned"
        self.check_with_transformers(tuned)
        self.done("export", "runs/sft", "--out", "models/adapter", "--adapters")
        self.check_with_peft(model, self.directory / "models" / "adapter", tuned)

    def test_a_frozen_model_is_resumed_with_less_of_it_frozen(self):
        model = self.prepare()
        self.train(train__steps=15, train__freeze='["model.embed_tokens", "model.layers.[01].mlp"]')
        groups = '[{parameters = ["lm_head"], lr = 0.0, weight_decay = 0.0}]'
        self.train("--resume", "auto", train__freeze='["model.embed_tokens"]', optimizer__groups=groups)
        log = (self.directory / "runs" / "sft" / "rank-0.log").read_text()
        self.assertIn('train.freeze is ["model.embed_tokens"], was', log)
        self.assertIn("optimizer.groups is [{lr = 0, parameters = [\"lm_head\"], weight_decay = 0}], was []", log)
        self.done("export", "runs/sft", "--out", "models/tuned")
        before, after = (tensors(folder / "model.safetensors") for folder in (model, self.directory / "models/tuned"))
        same = {name for name in before if before[name] == after[name]}
        self.assertEqual(same & {"model.embed_tokens.weight", "model.layers.0.mlp.down_proj.weight"},
                         {"model.embed_tokens.weight"})

    def check_with_peft(self, model, adapter, merged):
        """PEFT's model of the base and the adapters says what the merged folder's does."""
        if missing(PEFT_PYTHON):
            self.skipTest(missing(PEFT_PYTHON))
        compared = subprocess.run([PEFT_PYTHON, "-c", PEFT, model, adapter, merged], text=True, check=False,
                                  capture_output=True, timeout=300)
        self.assertEqual(compared.returncode, 0, compared.stderr)
        found = json.loads(compared.stdout)
        # float32: processors without fused products round further apart, 1.9e-5 where only SSE is used.
        self.assertLess(found["apart"], 1e-4)
        self.assertGreater(found["moved"], 1e-2)

    def check_with_transformers(self, tuned):
        evaluated = json.loads(self.done("eval", "--model", tuned, "--corpus", "corpora/chats/corpus", "--context-length",
                                         256, "--threads", 1, "--json"))
        if missing(TRANSFORMERS_PYTHON):
            self.skipTest(missing(TRANSFORMERS_PYTHON))
        shown = self.done("corpus", "show", "corpora/chats/corpus", *range(CHATS), "--json").splitlines()
        documents = [(document["ids"], document["mask"]) for document in map(json.loads, shown)]
        loaded = subprocess.run([TRANSFORMERS_PYTHON, "-c", LOADS, tuned, json.dumps(documents)], text=True, check=False,
                                capture_output=True, timeout=300)
        self.assertEqual(loaded.returncode, 0, loaded.stderr)
        found = json.loads(loaded.stdout)
        self.assertAlmostEqual(found["loss"], evaluated["loss"], delta=1e-4)
        self.assertEqual(found["text"], "<|im_start|>user\nhi<|im_end|><|im_start|>assistant\n")
        self.assertEqual(found["eos"], 257)


if __name__ == "__main__":
    main()
