"""Folders in bitsandbytes' formats beside bitsandbytes: transformers loads what export --quantize wrote, and bitsandbytes expands
each matrix to the numbers that Sluice reads. Rows have whole blocks of 64: on CPUs bitsandbytes 0.50.2 expands others wrongly, its
own, too.

    python tests/parity/quantized_parity.py build/sluice
"""

import argparse
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

import program
import reference

try:
    import bitsandbytes
except ImportError as error:
    print(f"skipped: bitsandbytes cannot be imported: {error}")
    sys.exit(77)

KINDS = ("nf4", "nf4-double", "int8")


def expanded(module):
    """The matrix of a module in float32."""
    if isinstance(module, bitsandbytes.nn.Linear4bit):
        return bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state).float()
    maxima = module.weight.SCB if module.weight.SCB is not None else module.state.SCB
    return bitsandbytes.functional.int8_vectorwise_dequant(module.weight.data, maxima).float()


def compare(sluice, scratch, comparison):
    model = scratch / "model"
    reference.random_model(reference.model_config(layers=2, hidden=128, heads=4, kv_heads=2, ffn_hidden=192, vocab=128, positions=64),
                           seed=4, scale=4).save_pretrained(model)
    program.run(sluice, "import", model, "--out", scratch / "run")
    for kind in KINDS:
        out, again = scratch / kind, scratch / f"{kind}-again"
        program.run(sluice, "export", scratch / "run", "--out", out, "--quantize", kind, "--dtype", "float32")
        program.run(sluice, "import", out, "--out", again)
        program.run(sluice, "export", again, "--out", scratch / f"{kind}-wide")
        ours = load_file(scratch / f"{kind}-wide/model.safetensors")
        theirs = transformers.AutoModelForCausalLM.from_pretrained(out)
        found = {name: module for name, module in theirs.named_modules() if isinstance(module, (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt))}
        comparison.equal(f"{kind}: modules", len(found), 2 * 7)
        for name, module in found.items():
            if kind != "int8":
                comparison.equal(f"{kind}: {name} is nested", module.weight.quant_state.nested, kind == "nf4-double")
            comparison.equal(f"{kind}: {name}", torch.equal(expanded(module), ours[f"{name}.weight"]), True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice", type=Path)
    told = parser.parse_args()
    comparison = program.Comparison()
    with tempfile.TemporaryDirectory() as directory:
        compare(told.sluice, Path(directory), comparison)
    comparison.finish()


if __name__ == "__main__":
    main()
