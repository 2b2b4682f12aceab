"""Writes tests/data/default_configs.json: the config.json that transformers' class of each model type has by default.

    ~/.cache/sluice/parity/bin/python tests/parity/make_default_configs.py

The types are those of decoders, and of multimodal models around one, that people download; `tools/family_count` counts how
many of them open.
"""

import json
import tempfile
from pathlib import Path

from transformers import CONFIG_MAPPING

OUT = Path(__file__).resolve().parent.parent / "data" / "default_configs.json"
TYPES = """
afmoe apertus arcee bailing_hybrid bamba cohere2 deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 dots1 ernie4_5 ernie4_5_moe
exaone4 exaone_moe falcon_h1 gemma2 gemma3 gemma3_text gemma3n gemma4 gemma4_text glm4 glm4_moe glm4_moe_lite glm5_next
glm_moe_dsa gpt_oss granite granite_swa granitemoe granitemoe_swa granitemoehybrid hunyuan_v1_dense hunyuan_v1_moe hy_v3 hy_v4
internlm3 internvl jamba kimi_linear laguna lfm2 lfm2_moe lfm3 llama llama4 llama4_text longcat_flash mamba2 mellum
mimo_v2_flash minimax_m2 minimax_m3_vl ministral ministral3 mistral mistral3 mistral4 mistral_large4 mixtral nanochat nemotron
nemotron_h olmo2 olmo3 olmo_hybrid olmoe phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text
qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe qwen3_vl_text qwen4_exp qwen4_exp_text seed_oss smollm3 solar_open stablelm
starcoder2 step3p7 zamba2
""".split()


def main():
    lines = []
    for name in TYPES:
        with tempfile.TemporaryDirectory() as folder:
            CONFIG_MAPPING[name]().save_pretrained(folder)
            config = json.loads((Path(folder) / "config.json").read_text())
        lines.append(f"{json.dumps(name)}: {json.dumps(config, sort_keys=True)}")
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
