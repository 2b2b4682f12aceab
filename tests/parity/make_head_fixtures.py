"""Makes tests/data/parity_heads: small models that end in classes, and what transformers' own classes and torch.optim.AdamW
make of them. Run it when a case is added:

    python tests/parity/make_head_fixtures.py [CASE…]
"""

import json
import random
import shutil
import sys

import program
import reference
import torch
from head_cases import CASES, FIXTURES, POSITIONS, STEPS
from make_fixtures import OPTIMIZER as OF_VOCABULARIES
from make_fixtures import rounded
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoModelForTokenClassification

LENGTHS = [6, 17, 40, 2, 33, 25]
# Six texts a step: at a tenth of the usual rate a last digit stays one.
OPTIMIZER = OF_VOCABULARIES | {"lr": 5e-4, "min_lr": 5e-5}


def random_model(case, seed=7):
    config = AutoConfig.for_model(case["model_type"], **case["config"])
    auto = AutoModelForTokenClassification if case["kind"] == "tokens" else AutoModelForSequenceClassification
    torch.manual_seed(seed)
    model = auto.from_config(config, attn_implementation="sdpa")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if reference.is_vector(name, parameter):
                parameter.add_(0.1 * torch.randn_like(parameter))
            else:
                parameter.mul_(4)
    return model


def labels_of(case, documents, seed=3):
    chance = random.Random(seed)
    classes = case["config"]["num_labels"]
    if case["kind"] == "tokens":
        return [[None if chance.random() < 0.3 else chance.randrange(classes) for _ in document] for document in documents]
    return [chance.randrange(classes) for _ in documents]


def losses_of(model, case, tokens, label):
    """The losses of what is labelled, and the logits."""
    logits = model(input_ids=torch.tensor([tokens])).logits[0]
    if case["kind"] == "tokens":
        target = torch.tensor([-100 if each is None else each for each in label])
        return torch.nn.functional.cross_entropy(logits, target, reduction="sum"), logits
    return torch.nn.functional.cross_entropy(logits[None], torch.tensor([label])), logits


def train(model, case, documents, labels):
    adam = reference.adamw(model, OPTIMIZER)
    count = sum(sum(each is not None for each in label) if case["kind"] == "tokens" else 1 for label in labels)
    losses, norms = [], []
    for step in range(STEPS):
        adam.zero_grad()
        total = 0.0
        for tokens, label in zip(documents, labels, strict=True):
            loss = losses_of(model, case, tokens, label)[0] / count
            loss.backward()
            total += loss.item()
        losses.append(total)
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip"]).item())
        for group in adam.param_groups:
            group["lr"] = reference.learning_rate(OPTIMIZER, step, STEPS)
        adam.step()
    return losses, norms


def make(name, case):
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    model = random_model(case)
    model.save_pretrained(folder)
    # Token 13 alone would make a text file of the corpus with a carriage return in it.
    documents = [[14 if token == 13 else token for token in document]
                 for document in program.zipf_documents(LENGTHS, case["config"]["vocab_size"], seed=5)]
    labels = labels_of(case, documents)
    program.write_corpus(folder / "corpus", documents)
    (folder / "corpus.labels").write_text("".join(json.dumps(label) + "\n" for label in labels))
    model = type(model).from_pretrained(folder, attn_implementation="sdpa").eval()  # no dropout
    with torch.no_grad():
        logits = [losses_of(model, case, tokens, label)[1] for tokens, label in zip(documents, labels, strict=True)]
    losses, norms = train(model, case, documents, labels)
    expected = {"context_length": POSITIONS, "optimizer": OPTIMIZER, "kind": case["kind"],
                "logits": [rounded(each.flatten().tolist()) for each in logits],
                "losses": rounded(losses), "grad_norms": rounded(norms)}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in expected.items()]
    (folder / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        make(case, CASES[case])
