"""A model of gated linear attention (Yang et al., 2023) as flash-linear-attention's GLAForCausalLM stores and computes it, on a
CPU, where that package's own kernels don't run: transformers' Auto classes know it as "gla" once this is imported."""

import torch
from torch import nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

DECAY_RANK = 16
DECAY_DIVISOR = 16


class GLAConfig(PretrainedConfig):
    model_type = "gla"

    def __init__(self, hidden_size=64, num_hidden_layers=2, num_heads=4, expand_k=0.5, expand_v=1.0, intermediate_size=None,
                 hidden_ratio=4, norm_eps=1e-6, vocab_size=320, hidden_act="swish", initializer_range=0.02,
                 tie_word_embeddings=False, **others):
        super().__init__(tie_word_embeddings=tie_word_embeddings, **others)
        self.hidden_size, self.num_hidden_layers, self.num_heads = hidden_size, num_hidden_layers, num_heads
        self.expand_k, self.expand_v = expand_k, expand_v
        self.intermediate_size, self.hidden_ratio = intermediate_size, hidden_ratio
        self.norm_eps, self.vocab_size, self.hidden_act = norm_eps, vocab_size, hidden_act
        self.initializer_range, self.eos_token_id = initializer_range, None


def recurrence(q, k, v, log_decay):
    """Row by row: q, k, log_decay [heads, tokens, K], v [heads, tokens, D]."""
    state = q.new_zeros(q.shape[0], q.shape[2], v.shape[2])
    rows = []
    for token in range(q.shape[1]):
        state = state * log_decay[:, token].exp().unsqueeze(2) + k[:, token].unsqueeze(2) * v[:, token].unsqueeze(1)
        rows.append((q[:, token].unsqueeze(2) * state).sum(1))
    return torch.stack(rows, 1) * q.shape[2] ** -0.5


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, self.heads = config.hidden_size, config.num_heads
        keys, values = round(hidden * config.expand_k), round(hidden * config.expand_v)
        self.q_proj = nn.Linear(hidden, keys, bias=False)
        self.k_proj = nn.Linear(hidden, keys, bias=False)
        self.v_proj = nn.Linear(hidden, values, bias=False)
        self.gk_proj = nn.Sequential(nn.Linear(hidden, DECAY_RANK, bias=False), nn.Linear(DECAY_RANK, keys))
        self.g_proj = nn.Linear(hidden, values, bias=False)
        self.g_norm_swish_gate = nn.RMSNorm(values // self.heads, eps=config.norm_eps)
        self.o_proj = nn.Linear(values, hidden, bias=False)

    def forward(self, x):
        by_head = [rows.unflatten(1, (self.heads, -1)).transpose(0, 1)
                   for rows in (self.q_proj(x), self.k_proj(x), self.v_proj(x),
                                functional.logsigmoid(self.gk_proj(x)) / DECAY_DIVISOR)]
        normed = self.g_norm_swish_gate(recurrence(*by_head)).transpose(0, 1).flatten(1)
        return self.o_proj(normed * functional.silu(self.g_proj(x)))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden = config.hidden_size
        width = config.intermediate_size or -(-int(hidden * config.hidden_ratio * 2 / 3) // 256) * 256
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attn_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.attn = Attention(config)
        self.mlp_norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = MLP(config)

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Trunk(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)


class GLAForCausalLM(PreTrainedModel):
    config_class = GLAConfig
    _tied_weights_keys = {"lm_head.weight": "model.embeddings.weight"}

    def __init__(self, config, **_):
        super().__init__(config)
        self.model = Trunk(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def get_input_embeddings(self):
        return self.model.embeddings

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, input_ids, **_):
        """Of one sequence."""
        x = self.model.embeddings(input_ids[0])
        for layer in self.model.layers:
            x = layer(x)
        return CausalLMOutput(logits=self.lm_head(self.model.norm(x)).unsqueeze(0))


AutoConfig.register("gla", GLAConfig)
AutoModelForCausalLM.register(GLAConfig, GLAForCausalLM)
