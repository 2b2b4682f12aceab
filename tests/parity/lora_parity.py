"""LoRA on conversations beside PEFT: the same model, batches and first adapters, and after each step the loss, the adapters'
values and what the tuned models answer.

    python tests/parity/lora_parity.py build/sluice [MODEL] [--steps N] [--lr RATE] [--dora]

Without a model folder the model is small and random, with tied embeddings, as small chat models have. --dora: DoRA's adapters.

AdamW divides a gradient by its own size, so a number whose gradient is mere rounding moves by a whole learning rate, up or
down. In a real model many do. So PEFT trains in FP32 and in FP64, where transformers' norms and angles of positions are made
FP64, too, and Sluice's FP32 may be about as far from FP64 as PEFT's is.
"""

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import peft
import torch
import transformers
from safetensors.torch import load_file

import program
import reference
from train_parity import settings

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))
from chat_corpora_test import PLAIN, TOOLS, WRITER  # noqa: E402

LORA = {"rank": 8, "alpha": 32.0, "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}
OPTIMIZER = dict(lr=5e-4, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.0, clip=1.0, warmup_steps=2, decay="cosine", min_lr=5e-5)
CONTEXT, TOKENS = 256, 1000
ANSWER = 24  # tokens at most
LOSSES, ADAPTERS = 1e-6, 1e-5  # how far from FP64 any model may be
MORE = 3  # times as far from FP64 as PEFT in FP32
QUESTIONS = ["What is the capital of France?", "Name a colour.", "How are you?", "2 and 3?"]


def conversations():
    """Short and long answers, some of several turns."""
    lines = []
    for i in range(160):
        messages = [{"role": "user", "content": f"What is {i} plus {i % 7}?"},
                    {"role": "assistant", "content": f"It is {i + i % 7}." if i % 3 else f"Let me see: {i} and {i % 7} make {i + i % 7}."}]
        if i % 4 == 0:
            messages += [{"role": "user", "content": "Are you sure?"}, {"role": "assistant", "content": "Yes, I am sure of it."}]
        lines.append(json.dumps({"messages": messages}) + "\n")
    return "".join(lines)


def small_model(folder):
    """Tied, with a token a byte."""
    reference.random_model(reference.model_config(layers=3, hidden=48, heads=4, kv_heads=2, ffn_hidden=96, vocab=258, positions=CONTEXT,
                                                  tie_word_embeddings=True), seed=4, scale=4).save_pretrained(folder)
    subprocess.run([TOOLS, "-c", WRITER, folder / "tokenizer.json"], check=True)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": PLAIN}))
    return folder


def read_corpus(prefix):
    """[(tokens, mask)] of a masked corpus of uint16 tokens."""
    index = Path(f"{prefix}.idx").read_bytes()
    count = struct.unpack_from("<Q", index, 18)[0]
    lengths = struct.unpack_from(f"<{count}i", index, 34)
    data, mask = Path(f"{prefix}.bin").read_bytes(), Path(f"{prefix}.mask").read_bytes()
    documents, at = [], 0
    for length in lengths:
        documents.append((list(struct.unpack_from(f"<{length}H", data, 2 * at)), list(mask[at:at + length])))
        at += length
    return documents


def step_of(model, batch):
    """Mean loss over the batch's learnt tokens; its gradient is left in the adapters."""
    targets = sum(sum(mask[1:]) for _, mask in batch)
    total = 0.0
    for tokens, mask in batch:
        counts = torch.tensor(mask[1:], dtype=torch.float32)
        loss = (reference.token_losses(model, tokens) * counts).sum() / targets
        loss.backward()
        total += loss.item()
    return total


def greedy(model, prompt, end):
    """An answer without the token that ends it."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(ANSWER):
            token = int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())
            if token == end:
                break
            ids.append(token)
    return ids[len(prompt):]


def answers_behind(step, steps):
    """Whether both programs' answers are compared behind a step: early ones, and the last."""
    return (step + 1) & step == 0 or step + 1 == steps


def exact(base):
    """The model in FP64, with norms and angles that transformers computes in FP32 whatever the type."""
    def norm(self, rows):
        return self.weight * rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + self.variance_epsilon)

    def angles(self, rows, position_ids):
        width = self.inv_freq.numel() * 2
        frequency = self.config.rope_parameters["rope_theta"] ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angle = position_ids.double()[..., None] * frequency
        return torch.cat((angle, angle), dim=-1).cos(), torch.cat((angle, angle), dim=-1).sin()
    assert base.config.rope_parameters["rope_type"] == "default", "angles of another kind"
    for module in base.modules():
        for kind, forward in (("RMSNorm", norm), ("RotaryEmbedding", angles)):
            if type(module).__name__.endswith(kind):
                module.forward = types.MethodType(forward, module)
    return base.double()


def in_files(parameter):
    """The name that PEFT's files have for a parameter."""
    name = parameter.replace(".default", "")
    return name.removesuffix(".weight") if name.endswith("lora_magnitude_vector.weight") else name


class Peft:
    """A run of PEFT, step by step."""

    def __init__(self, base, adapter, optimizer, steps):
        self.model = peft.PeftModel.from_pretrained(base, adapter, is_trainable=True).to(base.dtype)
        self.optimizer, self.steps = optimizer, steps
        self.trained = {in_files(name): parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        self.adam = torch.optim.AdamW(self.trained.values(), lr=optimizer["lr"], betas=tuple(optimizer["betas"]),
                                      eps=optimizer["eps"], weight_decay=optimizer["weight_decay"])

    def train(self, step, batch):
        """The loss; its adapters are `trained` then."""
        self.model.train()
        self.adam.zero_grad()
        loss = step_of(self.model, batch)
        torch.nn.utils.clip_grad_norm_(self.trained.values(), self.optimizer["clip"])
        for group in self.adam.param_groups:
            group["lr"] = reference.learning_rate(self.optimizer, step, self.steps)
        self.adam.step()
        return loss

    def answers(self, prompts, end):
        self.model.eval()
        return [greedy(self.model, prompt, end) for prompt in prompts]


def apart(adapters, exact):
    """The distance of a run's adapters from FP64's, over the length of these."""
    square = lambda values: sum(float(value.detach().double().square().sum()) for value in values)
    return (square(adapters[name] - value for name, value in exact.items()) / square(exact.values())) ** 0.5


def configuration(scratch, model_folder, steps, optimizer):
    told = settings(scratch, model_folder, ["<1,1,1>"], optimizer)
    told |= {"lora": LORA, "checkpoint": {"every": 1, "async": False, "keep": steps + 1}, "memory": {"device_gib": 8, "margin_gib": 0.125}}
    told["model"] = {"hf": str(model_folder)}
    told["data"] |= {"train": [[str(scratch / "corpus/corpus"), 1.0]], "context_length": CONTEXT, "tokens_per_step": TOKENS}
    told["train"] |= {"steps": steps}
    return program.write_config(scratch / "run.toml", told)


def prompts_of(model_folder):
    """Questions as tokens, and the token that ends an answer."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    render = lambda question: tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False,
                                                            add_generation_prompt=True)
    return [tokenizer(render(question), add_special_tokens=False).input_ids for question in QUESTIONS], tokenizer.eos_token_id


def answers_of(sluice, scratch, checkpoint, prompts):
    (scratch / "prompts.jsonl").write_text("".join(json.dumps({"ids": prompt}) + "\n" for prompt in prompts))
    program.run(sluice, "generate", "--model", checkpoint, "--prompts", scratch / "prompts.jsonl", "--tokens", ANSWER,
                "--temperature", 0, "--out", scratch / "answers.jsonl")
    return [json.loads(line) for line in (scratch / "answers.jsonl").read_text().splitlines()]


def first_adapters(sluice, scratch, model_folder):
    """Those of a step that moves nothing."""
    still = configuration(scratch, model_folder, 1, OPTIMIZER | {"lr": 0.0, "min_lr": 0.0, "warmup_steps": 0})
    program.train(sluice, still, scratch / "still")
    program.run(sluice, "export", scratch / "still", "--out", scratch / "adapter", "--adapters")
    return scratch / "adapter"


def compare(sluice, scratch, model_folder, steps, optimizer):
    """The comparison of all steps."""
    (scratch / "chats.jsonl").write_text(conversations())
    program.run(sluice, "corpus", "build", scratch / "chats.jsonl", "--chat", "--tokenizer", model_folder, "--out", scratch / "corpus")
    documents = read_corpus(scratch / "corpus/corpus")
    adapter = first_adapters(sluice, scratch, model_folder)
    config = configuration(scratch, model_folder, steps, optimizer)
    lines = program.train(sluice, config, scratch / "run")
    prompts, end = prompts_of(model_folder)
    theirs, wide = (Peft(base, adapter, optimizer, steps)
                    for base in (reference.load_model(model_folder), exact(reference.load_model(model_folder))))
    comparison = program.Comparison()
    for step in range(steps):
        batch = program.batch(sluice, config, step, documents)
        loss, exact_loss = theirs.train(step, batch), wide.train(step, batch)
        found, allowed = (abs(each - exact_loss) / exact_loss for each in (lines[step]["loss"], loss))
        comparison.within(f"step {step}: loss", [found], max(LOSSES, MORE * allowed))
        print(f"step {step}: loss {exact_loss:.6f}, Sluice {found:.1e} from it, PEFT {allowed:.1e}; ", end="")
        checkpoint, out = scratch / f"run/checkpoints/step-{step + 1}", scratch / f"adapter-{step}"
        program.run(sluice, "export", checkpoint, "--out", out, "--adapters")
        ours = load_file(out / "adapter_model.safetensors")
        comparison.equal(f"step {step}: adapters", sorted(ours), sorted(wide.trained))
        found, allowed = apart(ours, wide.trained), apart(theirs.trained, wide.trained)
        comparison.within(f"step {step}: adapters", [found], max(ADAPTERS, MORE * allowed))
        print(f"adapters {found:.1e} from FP64's, PEFT's {allowed:.1e}", flush=True)
        if answers_behind(step, steps):
            said = answers_of(sluice, scratch, checkpoint, prompts)
            comparison.equal(f"step {step}: answers", [line["ids"] for line in said], theirs.answers(prompts, end))
            print(f"step {step}: {[line['text'] for line in said]}", flush=True)
    return comparison


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice", type=Path)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--lr", type=float, default=OPTIMIZER["lr"])
    parser.add_argument("--dora", action="store_true")
    told = parser.parse_args()
    LORA["dora"] = told.dora
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        model_folder = told.model or small_model(scratch / "model")
        optimizer = OPTIMIZER | {"lr": told.lr, "min_lr": told.lr / 10}
        compare(told.sluice, scratch, model_folder, told.steps, optimizer).finish()


if __name__ == "__main__":
    main()
