"""LoRA on conversations beside PEFT: the same model, batches and first adapters, and after each step the loss, the adapters'
values and what the tuned models answer.

    python tests/parity/lora_parity.py build/sluice [MODEL [STEPS]]

Without a model folder the model is small and random, with tied embeddings, as small chat models have.
"""

import json
import struct
import subprocess
import sys
import tempfile
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


def greedy(model, prompt, ends):
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(ANSWER):
            ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
            if ids[-1] in ends:
                break
    return ids[len(prompt):]


def answers_behind(step, steps):
    """Whether both programs' answers are compared behind a step: early ones, and the last."""
    return (step + 1) & step == 0 or step + 1 == steps


def train_peft(adapter, model_folder, batches, prompts, ends):
    """Losses, adapters and answers after each step; no answers where they are not compared."""
    base = reference.load_model(model_folder)
    model = peft.PeftModel.from_pretrained(base, adapter, is_trainable=True)
    model.train()
    trained = {name.replace(".default", ""): parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    adam = torch.optim.AdamW(trained.values(), lr=OPTIMIZER["lr"], betas=tuple(OPTIMIZER["betas"]), eps=OPTIMIZER["eps"],
                             weight_decay=OPTIMIZER["weight_decay"])
    for step, batch in enumerate(batches):
        adam.zero_grad()
        loss = step_of(model, batch)
        torch.nn.utils.clip_grad_norm_(trained.values(), OPTIMIZER["clip"])
        for group in adam.param_groups:
            group["lr"] = reference.learning_rate(OPTIMIZER, step, len(batches))
        adam.step()
        model.eval()
        asked = prompts if answers_behind(step, len(batches)) else []
        answers = [greedy(model, prompt, ends) for prompt in asked]
        model.train()
        yield loss, {name: parameter.detach().clone() for name, parameter in trained.items()}, answers


def configuration(scratch, model_folder, steps, **changes):
    told = settings(scratch, model_folder, ["<1,1,1>"], OPTIMIZER)
    told |= {"lora": LORA, "checkpoint": {"every": 1, "async": False, "keep": steps + 1}, "memory": {"device_gib": 8, "margin_gib": 0.125}}
    told["model"] = {"hf": str(model_folder)}
    told["data"] |= {"train": [[str(scratch / "corpus/corpus"), 1.0]], "context_length": CONTEXT, "tokens_per_step": TOKENS}
    told["train"] |= {"steps": steps}
    for section, values in changes.items():
        told[section] = told[section] | values
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
    still = configuration(scratch, model_folder, 1, optimizer={"lr": 0.0, "min_lr": 0.0, "warmup_steps": 0})
    program.train(sluice, still, scratch / "still")
    program.run(sluice, "export", scratch / "still", "--out", scratch / "adapter", "--adapters")
    return scratch / "adapter"


def main():
    comparison = program.Comparison()
    sluice, steps = sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 3 else 16
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        model_folder = Path(sys.argv[2]) if len(sys.argv) > 2 else small_model(scratch / "model")
        (scratch / "chats.jsonl").write_text(conversations())
        program.run(sluice, "corpus", "build", scratch / "chats.jsonl", "--chat", "--tokenizer", model_folder, "--out", scratch / "corpus")
        documents = read_corpus(scratch / "corpus/corpus")
        adapter = first_adapters(sluice, scratch, model_folder)
        config = configuration(scratch, model_folder, steps)
        batches = [program.batch(sluice, config, step, documents) for step in range(steps)]
        lines = program.train(sluice, config, scratch / "run")
        prompts, end = prompts_of(model_folder)
        theirs = train_peft(adapter, model_folder, batches, prompts, [end])
        for step, (loss, parameters, answers) in enumerate(theirs):
            checkpoint = scratch / f"run/checkpoints/step-{step + 1}"
            said = answers_of(sluice, scratch, checkpoint, prompts) if answers else []
            comparison.close(f"step {step}: loss", lines[step]["loss"], loss, 1e-5)
            out = scratch / f"adapter-{step}"
            program.run(sluice, "export", checkpoint, "--out", out, "--adapters")
            ours = load_file(out / "adapter_model.safetensors")
            comparison.equal(f"step {step}: adapters", sorted(ours), sorted(parameters))
            apart = [float((ours[name] - value).abs().max() / max(float(value.abs().max()), OPTIMIZER["lr"])) for name, value in parameters.items()]
            comparison.within(f"step {step}: adapters", apart, 1e-2)
            comparison.equal(f"step {step}: answers", [line["ids"] for line in said], answers)
            print(f"step {step}: loss {loss:.4f}; {[line['text'] for line in said]}", flush=True)
    comparison.finish()


if __name__ == "__main__":
    main()
