"""Tokenizers and models that are small enough to be written by hand, and say what a test wants them to say; small runs."""

import array
import json
import struct


def run_configuration(model, corpus, run, **changes):
    """The text of a run's configuration, a small one of one rank. `model` has the keys of [model]; `changes` are named
    SECTION__KEY."""
    sections = {"model": dict(model),
                "data": {"train": [[str(corpus), 1.0]], "context_length": 128, "tokens_per_step": 512},
                "train": {"steps": 2, "threads": 1}, "parallel": {"strategies": ["<1,1,1>"], "calibration": "analytic"},
                "memory": {"device_gib": 1.0, "margin_gib": 0.1}, "checkpoint": {"every": 2},
                "log": {"dir": str(run), "tensorboard": False}}
    for name, value in changes.items():
        section, key = name.split("__")
        sections.setdefault(section, {})[key] = value
    return "".join(f"[{section}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
                   for section, keys in sections.items())


def letters_of_bytes():
    """The letter that stands for each byte in byte-level vocabularies."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


def tokens_of(contents, first):
    return [{"id": first + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": True} for i, content in enumerate(contents)]


def byte_tokenizer(folder, marks=("<|im_start|>", "<|im_end|>"), configured=None, around=()):
    """A token for each byte, whose id is the byte, and marks; `around`: the marks that are put in front of a text and behind it."""
    folder.mkdir(parents=True, exist_ok=True)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    placed = {"type": "TemplateProcessing", "pair": [],
              "single": [{"SpecialToken": {"id": mark, "type_id": 0}} for mark in around],
              "special_tokens": {mark: {"id": mark, "ids": [256 + marks.index(mark)], "tokens": [mark]} for mark in around}}
    placed["single"].insert(1, {"Sequence": {"id": "A", "type_id": 0}})
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": tokens_of(marks, 256), "pre_tokenizer": level, "decoder": level,
        "post_processor": placed if around else None,
        "model": {"type": "BPE", "vocab": {letter: byte for byte, letter in letters_of_bytes().items()}, "merges": []}}))
    if configured is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(configured))
    return folder


def llama_tokenizer(folder, words=("Hello", "world", "two")):
    """As Llama 2's: words with a block in front of them, bytes for the rest, and a decoder that leaves out a blank in front
    of all. Returns the vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    merges = []
    for word in words:
        pieces = ["\u2581", *word]
        while len(pieces) > 1:
            for piece in pieces:
                vocabulary.setdefault(piece, len(vocabulary))
            merges.append(" ".join(pieces[-2:]))
            pieces[-2:] = ["".join(pieces[-2:])]
        vocabulary.setdefault(pieces[0], len(vocabulary))
    block, blank = {"String": "\u2581"}, {"String": " "}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": tokens_of(("<unk>", "<s>", "</s>"), 0),
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
                                                           {"type": "Replace", "pattern": blank, "content": "\u2581"}]},
        "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": block, "content": " "},
                                                     {"type": "ByteFallback"}, {"type": "Fuse"},
                                                     {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True, "vocab": vocabulary,
                  "merges": list(dict.fromkeys(merges))}}))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}))
    return vocabulary


def chained_model(folder, rows, follows, end, **config):
    """A Llama that says follows[token] behind each token, or `end`: its layer adds nothing to embeddings that are unit
    vectors."""
    folder.mkdir(parents=True, exist_ok=True)
    width = (rows + 7) // 8 * 8
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": rows,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "hidden_act": "silu",
        "rope_theta": 10000.0, "torch_dtype": "float32", "bos_token_id": None, "eos_token_id": end} | config))

    def matrix(height, breadth, entries=()):
        values = array.array("f", bytes(4 * height * breadth))
        for row, column, value in entries:
            values[row * breadth + column] = value
        return [height, breadth], values

    def vector(length):
        return [length], array.array("f", [1.0] * length)
    sharp = 40 / width ** 0.5
    layer = "model.layers.0."
    tensors = {
        "model.embed_tokens.weight": matrix(rows, width, ((i, i, 1.0) for i in range(rows))),
        layer + "input_layernorm.weight": vector(width), layer + "post_attention_layernorm.weight": vector(width),
        **{f"{layer}self_attn.{name}_proj.weight": matrix(16, width) for name in "qkv"},
        layer + "self_attn.o_proj.weight": matrix(width, 16),
        layer + "mlp.gate_proj.weight": matrix(8, width), layer + "mlp.up_proj.weight": matrix(8, width),
        layer + "mlp.down_proj.weight": matrix(width, 8), "model.norm.weight": vector(width),
        "lm_head.weight": matrix(rows, width, ((follows.get(i, end), i, sharp) for i in range(rows)))}
    header, begin = {}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, begin + 4 * len(values)]}
        begin += 4 * len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            file.write(values.tobytes())
    return folder


def chain(ids, end):
    """`follows` of a text that is said token by token, no token twice."""
    assert len(set(ids)) == len(ids), "a token stands twice"
    return dict(zip(ids, [*ids[1:], end]))
