"""The independent program: transformers' own classes and torch.optim.AdamW on unpacked sequences."""

import math
import re

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

import gla  # noqa: F401: it registers its classes

torch.set_num_threads(1)  # tiny models: more threads only wait for each other
transformers.utils.logging.disable_progress_bar()


# What families call figures that all have, where they call them otherwise; None: they have none.
OWN_KEYS = {"bamba": {"head_dim": None},
            "cohere2": {"rms_norm_eps": "layer_norm_eps", "head_dim": None},
            "ernie4_5_moe": {"head_dim": None},
            "falcon_h1": {"head_dim": None},
            "lfm2": {"rms_norm_eps": "norm_eps", "head_dim": None},
            "lfm3": {"rms_norm_eps": "norm_eps"},
            "lfm2_moe": {"rms_norm_eps": "norm_eps", "head_dim": None},
            "gla": {"num_attention_heads": "num_heads", "num_key_value_heads": None, "rms_norm_eps": "norm_eps", "head_dim": None},
            "mamba2": {"num_attention_heads": None, "num_key_value_heads": None, "intermediate_size": None,
                       "rms_norm_eps": "layer_norm_epsilon", "max_position_embeddings": None},
            "nemotron": {"rms_norm_eps": "norm_eps"},
            "nemotron_h": {"num_hidden_layers": None, "rms_norm_eps": "layer_norm_epsilon"},
            "stablelm": {"rms_norm_eps": "layer_norm_eps", "head_dim": None},
            "starcoder2": {"rms_norm_eps": "norm_epsilon", "head_dim": None}}

# transformers 5.23 keeps Nemotron-H's steps above time_step_min where it sees whole sequences, and not where it generates;
# its files say no such bound (time_step_limit). With this the bound is far below all steps.
FREE_STEPS = {"time_step_min": 1e-9, "time_step_floor": 0.01}

# Of multimodal models the smallest parts beside the text, and what says which of its tokens are images.
QWEN_VISION = dict(depth=2, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, out_hidden_size=32,
                   num_position_embeddings=16)
TOWER = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=4)
QWEN_TOKENS = dict(image_token_id=180, video_token_id=181, vision_start_token_id=182, vision_end_token_id=183)
WRAPPERS = {"qwen3_5": dict(vision_config=QWEN_VISION, **QWEN_TOKENS),
            "qwen3_5_moe": dict(vision_config=QWEN_VISION, **QWEN_TOKENS),
            "qwen3_vl": dict(vision_config=QWEN_VISION | {"deepstack_visual_indexes": [0]}, **QWEN_TOKENS),
            "qwen3_vl_moe": dict(vision_config=QWEN_VISION | {"deepstack_visual_indexes": [0]}, **QWEN_TOKENS),
            "gemma4": dict(vision_config=TOWER | {"num_key_value_heads": 2, "head_dim": 8, "pooling_kernel_size": 2, "position_embedding_size": 64},
                           image_token_id=180,
                           boi_token_id=181, eoi_token_id=182, audio_config=None),
            "llama4": dict(vision_config=TOWER | {"vision_output_dim": 16, "projector_input_dim": 16, "projector_output_dim": 16},
                           image_token_index=180, boi_token_index=181, eoi_token_index=182),
            "gemma3": dict(vision_config=TOWER, mm_tokens_per_image=4, image_token_index=180, boi_token_index=181,
                           eoi_token_index=182),
            "mistral3": dict(vision_config=TOWER | {"model_type": "pixtral", "head_dim": 8}, image_token_index=180,
                             spatial_merge_size=2),
            "internvl": dict(vision_config=TOWER | {"image_size": [16, 16], "patch_size": [4, 4]}, image_token_id=180)}


def wrapped_config(family, tied=False, **text):
    """Of a multimodal model, by its text's figures."""
    return AutoConfig.for_model(family, text_config=text, tie_word_embeddings=tied, **WRAPPERS[family])


def auto_class(config):
    with_images = config.model_type in {*WRAPPERS, "mistral4"}  # whose class transformers 5.23 lists there
    return AutoModelForImageTextToText if with_images else AutoModelForCausalLM


def model_config(layers, hidden, heads, kv_heads, ffn_hidden, vocab, positions, family="llama", **others):
    """The configuration of transformers' class of a family (its model_type)."""
    figures = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
               "intermediate_size": ffn_hidden, "vocab_size": vocab, "max_position_embeddings": positions,
               "rms_norm_eps": 1e-5, "head_dim": hidden // heads, **others}
    if family in WRAPPERS:
        return wrapped_config(family, **figures)
    own = OWN_KEYS.get(family, {})
    return AutoConfig.for_model(family, **{own.get(key, key): value for key, value in figures.items()
                                           if own.get(key, key) is not None})


def attention_of(config):
    """PyTorch's kernel, which takes neither caps nor sinks; and where there is none at all."""
    without = getattr(config, "attn_logit_softcapping", None) or config.model_type in ("gpt_oss", "mamba2", "gla", "granite_swa", "granitemoe_swa")
    return "eager" if without else "sdpa"


def experts_of_token(text):
    return getattr(text, "num_experts_per_tok", None) or getattr(text, "top_k_experts", None)


def implementations(config):
    """What a class is told to compute with: experts one by one, by the rule as it is written."""
    text = getattr(config, "text_config", config)
    experts = {"experts_implementation": "eager"} if experts_of_token(text) else {}
    return {"attn_implementation": attention_of(config), **experts}


def random_model(config, seed, scale=2.0):
    """transformers' initial weights, matrices times `scale`, and norms and biases that are not all alike: they must
    matter."""
    torch.manual_seed(seed)
    model = auto_class(config).from_config(config, **implementations(config))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_vector(name, parameter):
                parameter.add_(0.1 * torch.randn_like(parameter))
                if name.endswith("router.scale"):  # which is divided by a root of the width
                    parameter.mul_(8)
                if config.model_type.startswith("gemma4") and name.endswith("q_norm.weight"):  # whose scores have no other factor
                    parameter.mul_(0.25)
            else:
                parameter.mul_(scale)
        for name, buffer in model.named_buffers():
            if name.endswith(("correction_bias", "expert_bias", "layer_scalar")):
                buffer.add_(0.1 * torch.randn_like(buffer))
    return model


def add_unused_keys(folder, text):
    """Published files have keys and values of layers that attend to another layer's, which transformers leaves out."""
    shared = getattr(text, "num_kv_shared_layers", 0) or 0
    if shared == 0:
        return
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in list(tensors.items()):
        found = re.fullmatch(r"(.*layers\.)(\d+)(\.self_attn\.[kv]_.*)", name)
        if found and int(found[2]) < shared and not name.startswith(("model.vision", "vision")):
            copy = f"{found[1]}{int(found[2]) + text.num_hidden_layers - shared}{found[3]}"
            tensors[copy] = tensor + 1
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def save(model, folder, **options):
    """As published folders are. Of OLMo's hybrid transformers 5.23 cuts the convolution's rows in three like parts, however wide
    queries, keys and values are, and takes the attention layers' norms for the recurrent ones'. Of Kimi Linear it names MLPs
    as if they were experts."""
    model.save_pretrained(folder, **options)
    config = model.config
    add_unused_keys(folder, getattr(config, "text_config", config))
    if config.model_type not in ("olmo_hybrid", "kimi_linear"):
        return
    path = folder / "model.safetensors"
    tensors = load_file(path)
    if config.model_type == "kimi_linear":
        tensors = {re.sub(r"block_sparse_moe(?=\.\w+_proj\.)", "mlp", name): tensor for name, tensor in tensors.items()}
        save_file(tensors, path, metadata={"format": "pt"})
        return
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    for layer, kind in enumerate(config.layer_types):
        prefix = f"model.layers.{layer}."
        if kind == "full_attention":
            tensors[f"{prefix}post_attention_layernorm.weight"] = tensors.pop(f"{prefix}feedforward_layer_norm.weight")
            continue
        names = [f"{prefix}linear_attn.{part}_conv1d.weight" for part in "qkv"]
        rows = torch.cat([tensors[name] for name in names])
        cut = rows.split([keys, keys, rows.shape[0] - 2 * keys])
        tensors.update({name: part.clone() for name, part in zip(names, cut, strict=True)})
    save_file(tensors, path, metadata={"format": "pt"})


def is_vector(name, parameter):
    """Biases of stacked experts are a row each; decays of Kimi Linear have one dimension beside those of size one."""
    return parameter.ndim == 1 or name.endswith(("bias", "A_log"))


def load_model(folder, dtype=torch.float32):
    config = AutoConfig.from_pretrained(folder)
    return auto_class(config).from_pretrained(folder, dtype=dtype, **implementations(config))


def adamw(model, optimizer):
    """AdamW of a configuration's [optimizer] section; the learning rate is set step by step."""
    matrices = [p for name, p in model.named_parameters() if not is_vector(name, p)]
    vectors = [p for name, p in model.named_parameters() if is_vector(name, p)]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": optimizer["weight_decay"]},
                              {"params": vectors, "weight_decay": 0.0}],
                             lr=optimizer["lr"], betas=tuple(optimizer["betas"]), eps=optimizer["eps"])


def learning_rate(optimizer, step, steps):
    """Linear warm-up, then half a cosine that ends on the last step."""
    warmup = optimizer["warmup_steps"]
    if step < warmup:
        return optimizer["lr"] * (step + 1) / warmup
    progress = (step - warmup + 1) / (steps - warmup)
    return optimizer["min_lr"] + (optimizer["lr"] - optimizer["min_lr"]) * (1 + math.cos(math.pi * progress)) / 2


def token_losses(model, tokens):
    """Losses of the targets of one sequence."""
    ids = torch.tensor([tokens])
    images = {"token_type_ids": torch.zeros_like(ids)} if model.config.model_type in ("gemma3", "gemma4") else {}  # there are none
    logits = model(input_ids=ids, use_cache=False, **images).logits
    return torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none")


def backward(model, batch):
    """Mean loss over the batch's targets, one sequence at a time; its gradient is left in the parameters."""
    targets = sum(len(tokens) - 1 for tokens in batch)
    total = 0.0
    for tokens in batch:
        loss = token_losses(model, tokens).sum() / targets
        loss.backward()
        total += loss.item()
    return total


def train(model, batches, optimizer, groups=None):
    """Losses and gradient norms (before clipping) of one step a batch. `groups`: torch.optim's, in place of all parameters,
    each with its learning rate's ratio to the configured one.
    """
    model.train()
    for module in model.modules():
        if type(module).__name__ == "PhimoeTopKRouter":  # which draws experts at random where it trains
            module.eval()
    adam = adamw(model, optimizer)
    if groups:
        adam = torch.optim.AdamW(groups, lr=optimizer["lr"], betas=tuple(optimizer["betas"]), eps=optimizer["eps"])
    losses, norms = [], []
    for step, batch in enumerate(batches):
        adam.zero_grad()
        losses.append(backward(model, batch))
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), optimizer["clip"]).item())
        for group in adam.param_groups:
            group["lr"] = learning_rate(optimizer, step, len(batches)) * group.get("ratio", 1.0)
        adam.step()
    return losses, norms


class RoutingMargin:
    """While it is there: the least that a chosen expert's score was above one that was not chosen, relative to it. Where
    two programs round otherwise by more than that, tokens go to other experts, and losses part."""

    def __init__(self, model):
        self.least = math.inf
        self._experts = experts_of_token(getattr(model.config, "text_config", model.config))
        routers = [m for m in model.modules()
                   if type(m).__name__.lower().endswith(("topkrouter", "tokenchoicerouter", "moev1gate", "gemma4textrouter", "llama4router"))]
        self._hooks = [router.register_forward_hook(self._look) for router in routers]

    def _look(self, router, inputs, outputs):
        logits = outputs[type(router).__name__ == "Llama4Router"].float()
        if hasattr(router, "per_expert_scale"):  # whose first output is a softmax
            self._see(logits, self._experts)
            return
        if hasattr(router, "moe_statics"):
            self._see(router.moe_statics(logits.softmax(-1)), self._experts)
            return
        correction = getattr(router, "e_score_correction_bias", inputs[1] if len(inputs) > 1 else None)
        if correction is None:
            self._see(logits.softmax(-1), self._experts)
            return
        scores = logits.sigmoid() + correction
        if getattr(router, "num_group", 1) > 1:
            by_group = scores.view(len(scores), router.num_group, -1)
            best = by_group.topk(2, dim=-1).values.sum(-1)
            self._see(best, router.topk_group)
            left_out = torch.ones_like(best).scatter_(1, best.topk(router.topk_group).indices, 0).bool()
            scores = by_group.masked_fill(left_out.unsqueeze(-1), -math.inf).flatten(1)
        self._see(scores, self._experts)

    def _see(self, scores, count):
        ordered = scores.sort(descending=True).values
        chosen, left = ordered[:, count - 1], ordered[:, count]
        self.least = min(self.least, ((chosen - left) / chosen.abs()).min().item())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for hook in self._hooks:
            hook.remove()
