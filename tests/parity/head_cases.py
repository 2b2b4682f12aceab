"""Models that end in classes, for fixtures beside transformers' own classes (make_head_fixtures.py)."""

from pathlib import Path

FIXTURES = Path(__file__).resolve().parent.parent / "data" / "parity_heads"
POSITIONS = 64
STEPS = 20

_MODERNBERT = {"num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 120,
               "max_position_embeddings": POSITIONS, "local_attention": 12, "num_labels": 3, "pad_token_id": None,
               "bos_token_id": None, "eos_token_id": None, "cls_token_id": None, "sep_token_id": None}

_BERT = {"num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 120,
         "max_position_embeddings": POSITIONS, "num_labels": 3, "pad_token_id": None, "hidden_dropout_prob": 0.0,
         "attention_probs_dropout_prob": 0.0}

CASES = {
    "modernbert_mean": {"kind": "classify", "model_type": "modernbert", "config": _MODERNBERT | {"classifier_pooling": "mean"}},
    "modernbert_cls": {"kind": "classify", "model_type": "modernbert",
                       "config": _MODERNBERT | {"classifier_pooling": "cls", "classifier_bias": True, "norm_bias": True,
                                                "attention_bias": True, "mlp_bias": True}},
    "modernbert_tokens": {"kind": "tokens", "model_type": "modernbert", "config": _MODERNBERT},
    "bert_cls": {"kind": "classify", "model_type": "bert", "config": _BERT},
    "bert_tokens": {"kind": "tokens", "model_type": "bert", "config": _BERT},
}
