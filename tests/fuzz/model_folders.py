"""Small models of other families for fuzzing, from tests/data/parity: experts, recurrent layers, experts in MXFP4."""

import json
import math
import pathlib
import shutil
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from tensor_files import read_tensors, write_tensors  # noqa: E402

PARITY = TESTS / "data/parity"
# Experts; experts beside recurrent layers; recurrent layers alone; experts that a router's groups choose.
FAMILIES = ("mixtral", "qwen3_next", "mamba2", "deepseek_v3")
BLOCK = 32  # numbers of MXFP4 that share a scale


def copy_family(family, folder):
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(PARITY / family / name, folder / name)
    return folder


def pack_mxfp4(folder):
    """gpt-oss with its experts as they are published: blocks of four-bit numbers and their scales, where rows have blocks."""
    copy_family("gpt_oss", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "mxfp4"}}))
    packed = {}
    for name, (dtype, shape, content) in read_tensors(folder / "model.safetensors")[0].items():
        if not name.endswith("_proj") or len(shape) != 3 or shape[1] % BLOCK:
            packed[name] = (dtype, shape, content)
            continue
        experts, inputs, outputs = shape
        scales = [experts, outputs, inputs // BLOCK]
        blocks = [*scales, BLOCK // 2]
        packed[f"{name}_blocks"] = ("U8", blocks, bytes(37 * i % 256 for i in range(math.prod(blocks))))
        packed[f"{name}_scales"] = ("U8", scales, bytes(118 + i % 10 for i in range(math.prod(scales))))
    assert any(name.endswith("_blocks") for name in packed), "no expert has rows of whole blocks"
    write_tensors(folder / "model.safetensors", packed)
    return folder
