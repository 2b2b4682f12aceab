"""Makes tests/data/parity/CASE/tuned.json: what PEFT makes of a fixture's model with adapters, of whose tokens a part is learnt.
The adapters begin as Sluice draws them.

    python tests/parity/make_tuned.py build/sluice [CASE]
"""

import json
import sys
import tempfile
from pathlib import Path

import peft
import torch

import fixtures_test
import lora_parity
import program
import reference
from make_fixtures import FOLDER, rounded

LORA = {"rank": 4, "alpha": 16.0, "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}
OPTIMIZER = dict(lr=1e-2, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.0, clip=1.0, warmup_steps=2, decay="cosine", min_lr=1e-3)
STEPS = 8


def main():
    sluice, case = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "tied_llama3"
    fixture = FOLDER / case
    expected = json.loads((fixture / "expected.json").read_text())
    # The first tokens are asked, the last answer; of some sequences every other token is learnt.
    masks = [[int(i > len(tokens) // 2 or (n % 3 == 0 and i % 2)) for i in range(len(tokens))]
             for n, tokens in enumerate(expected["sequences"])]
    tuned = {"lora": LORA, "optimizer": OPTIMIZER, "masks": masks, "losses": [0.0] * STEPS}
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        still = tuned | {"losses": [0.0], "optimizer": OPTIMIZER | {"lr": 0.0, "min_lr": 0.0, "warmup_steps": 0}}
        fixtures_test.train_tuned(sluice, fixture, expected, still, scratch, checkpoint={"every": 1})
        program.run(sluice, "export", scratch / "run", "--out", scratch / "adapter", "--adapters")
        base = reference.load_model(fixture, torch.float64)
        model = peft.PeftModel.from_pretrained(base, scratch / "adapter", is_trainable=True).double()
    batch = list(zip(expected["sequences"], masks, strict=True))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    adam = torch.optim.AdamW(trained, betas=tuple(OPTIMIZER["betas"]), eps=OPTIMIZER["eps"], weight_decay=0.0)
    losses, norms = [], []
    for step in range(STEPS):
        adam.zero_grad()
        losses.append(lora_parity.step_of(model, batch))
        norms.append(torch.nn.utils.clip_grad_norm_(trained, OPTIMIZER["clip"]).item())
        for group in adam.param_groups:
            group["lr"] = reference.learning_rate(OPTIMIZER, step, STEPS)
        adam.step()
    tuned |= {"losses": rounded(losses), "grad_norms": rounded(norms)}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in tuned.items()]
    (fixture / "tuned.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
