"""What transformers, PEFT, TRL's formula and sentence-transformers say of folders. One process answers all questions of a test
program, because importing these takes longer than a question: a line of JSON in, [function, arguments], a line out.

Runs in an environment with torch; `Oracle` starts it from Python's standard library alone.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings


class Oracle:
    """The process, on the caller's side: oracle.logits(folder, ...) is the function of that name below."""

    def __init__(self, python, env):
        self.log = tempfile.TemporaryFile("w+")
        env = {**env, "OMP_NUM_THREADS": "1"}  # the models are tiny: a team of threads would wait for each other
        self.process = subprocess.Popen([str(python), "-B", os.path.abspath(__file__)], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log)

    def __getattr__(self, name):
        def ask(*arguments):
            self.process.stdin.write(json.dumps([name, arguments], default=str) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            if not answer:
                self.log.seek(0)
                raise AssertionError(f"{name}{arguments}: {self.log.read()[-4000:]}")
            return json.loads(answer)
        return ask

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


def load_classifier(folder, kind):
    import transformers
    cls = transformers.AutoModelForTokenClassification if kind == "tokens" else transformers.AutoModelForSequenceClassification
    return cls.from_pretrained(folder).double().eval()


def label_loss(kind, out, label, count):
    import torch
    from torch.nn import functional
    target = torch.tensor(label if kind != "tokens" else [-100 if each is None else each for each in label])
    if kind == "tokens":
        return functional.cross_entropy(out, target, reduction="sum") / count
    if kind == "regression":
        return functional.mse_loss(out.squeeze(), target.to(out.dtype)) / count
    if kind == "classes":
        return functional.binary_cross_entropy_with_logits(out, target.to(out.dtype)) / count
    return functional.cross_entropy(out[None], target[None]) / count


def reward_loss(outs, documents, center):
    """TRL's RewardTrainer.compute_loss."""
    import torch
    chosen, rejected = torch.cat(outs[0::2]), torch.cat(outs[1::2])
    margin = torch.tensor([label for _, label in documents[0::2]], dtype=chosen.dtype)
    return (-torch.nn.functional.logsigmoid(chosen - rejected - margin).mean()
            + center * torch.mean((chosen + rejected) ** 2))


def gradient_norm(model, loss):
    import torch
    loss.backward()
    return torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters() if p.grad is not None)).item()


def labels(folder, documents, kind, center=0.0):
    """Loss, gradient norm and logits of transformers' class on documents with labels."""
    import torch
    model = load_classifier(folder, kind)
    count = sum(sum(label is not None for label in own) if kind == "tokens" else 1 for _, own in documents)
    outs = [model(torch.tensor([ids])).logits[0] for ids, _ in documents]
    if kind == "reward":
        loss = reward_loss(outs, documents, center)
    else:
        loss = sum(label_loss(kind, out, label, count) for out, (_, label) in zip(outs, documents, strict=True))
    return {"loss": loss.item(), "norm": gradient_norm(model, loss), "logits": [out.tolist() for out in outs],
            "class": type(model).__name__, "labels": model.config.id2label}


def adapted_logits(folder, adapter, documents, number):
    """Logits of PEFT's model: the adapters of a folder on its base, with the head that modules_to_save names."""
    import peft
    import torch
    import transformers
    base = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=number, dtype=torch.float64)
    model = peft.PeftModel.from_pretrained(base, adapter).double().eval()
    with torch.no_grad():
        return [model(input_ids=torch.tensor([ids])).logits[0].tolist() for ids in documents]


def features(texts):
    import torch
    longest = max(map(len, texts))
    return {"input_ids": torch.tensor([text + [0] * (longest - len(text)) for text in texts]),
            "attention_mask": torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in texts])}


def sentence_transformer(folder):
    from sentence_transformers import SentenceTransformer
    return SentenceTransformer(folder, device="cpu", model_kwargs={"attn_implementation": "sdpa"}).double().eval()


def embeddings(folder, sides, widths, temperature):
    """sentence-transformers' loss and gradient norm on texts that belong together, and the first texts' vectors."""
    import torch
    from sentence_transformers import losses
    model = sentence_transformer(folder)
    with torch.no_grad():
        vectors = model(features(sides[0]))["sentence_embedding"]
    loss = losses.MultipleNegativesRankingLoss(model, scale=1 / temperature)
    if widths:
        loss = losses.MatryoshkaLoss(model, loss, matryoshka_dims=[vectors.shape[1], *widths])
    value = loss([features(side) for side in sides], torch.zeros(len(sides[0])))
    return {"loss": value.item(), "norm": gradient_norm(model, value), "vectors": vectors.tolist()}


def encoded(folder, texts):
    """sentence-transformers' vectors of texts, through the folder's tokenizer."""
    return sentence_transformer(folder).encode(texts, convert_to_numpy=True).tolist()


def retrieval(sides):
    """sentence-transformers' evaluator on vectors: of queries, of the document that each looks for, and of others."""
    import numpy
    from sentence_transformers.evaluation import InformationRetrievalEvaluator
    vectors = [numpy.array(side) for side in sides]
    queries = {f"q{i}": f"q{i}" for i in range(len(sides[0]))}
    corpus = {f"d{i}": f"d{i}" for i in range(sum(map(len, sides[1:])))}
    evaluator = InformationRetrievalEvaluator(queries, corpus, {f"q{i}": {f"d{i}"} for i in range(len(queries))},
                                              precision_recall_at_k=[1, 10], mrr_at_k=[10], ndcg_at_k=[10], map_at_k=[10], accuracy_at_k=[10])
    import torch
    from sentence_transformers import util
    embedded = {"q": torch.tensor(vectors[0]), "d": torch.tensor(numpy.concatenate(vectors[1:]))}
    scores = util.cos_sim(embedded["q"], embedded["d"])
    hits = [[{"corpus_id": f"d{j}", "score": row[j].item()} for j in row.argsort(descending=True)[:10].tolist()] for row in scores]
    found = evaluator.compute_metrics(hits)
    return {"recall_at_1": float(found["recall@k"][1]), "recall_at_10": float(found["recall@k"][10]),
            "mrr_at_10": float(found["mrr@k"][10]), "ndcg_at_10": float(found["ndcg@k"][10])}


def label_words(folder, documents):
    """Ids and labels as transformers' examples of token classification align them: a word's first token has its label. What has
    none is null."""
    import transformers
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    aligned = []
    for words, labels_of_words in documents:
        encoded = tokenizer(words, is_split_into_words=True)
        own, before = [], None
        for word in encoded.word_ids():
            own.append(None if word is None or word == before else labels_of_words[word])
            before = word
        aligned.append([encoded["input_ids"], own])
    return aligned


def make_tokenizers(folder, texts):
    """A folder for each kind of tokenizer, trained on the texts."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    blank = "\u2581"
    wordpiece = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    wordpiece.normalizer, wordpiece.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    wordpiece.decoder = decoders.WordPiece()
    wordpiece.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=90, show_progress=False, special_tokens=["[UNK]", "[CLS]", "[SEP]"]))
    wordpiece.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(mark, wordpiece.token_to_id(mark)) for mark in ("[CLS]", "[SEP]")])
    kinds = {"wordpiece": wordpiece}
    for name, prefix in (("bytes_with_blanks", True), ("bytes", False)):
        kinds[name] = Tokenizer(models.BPE())
        kinds[name].pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
        kinds[name].decoder = decoders.ByteLevel()
        kinds[name].train_from_iterator(texts, trainers.BpeTrainer(vocab_size=300, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    llama = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    llama.normalizer = normalizers.Sequence([normalizers.Prepend(blank), normalizers.Replace(" ", blank)])
    llama.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=340, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]))
    llama.decoder = decoders.Sequence([decoders.Replace(blank, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    llama.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", llama.token_to_id("<s>"))])
    kinds["llama"] = llama
    for name, tokenizer in kinds.items():
        path = pathlib.Path(folder) / name
        path.mkdir(parents=True)
        tokenizer.save(str(path / "tokenizer.json"))
        (path / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": name == "bytes_with_blanks"}))
    return list(kinds)


def plain_ids(folder, texts):
    import transformers
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)(texts)["input_ids"]


def make_encoder(folder, vocabulary):
    """A folder of sentence-transformers around a small ModernBERT, which pools by its first token."""
    import torch
    from transformers import AutoConfig, AutoModel
    folder = pathlib.Path(folder)
    torch.manual_seed(5)
    config = AutoConfig.for_model("modernbert", num_hidden_layers=4, hidden_size=32, num_attention_heads=4, intermediate_size=48,
                                  vocab_size=vocabulary, max_position_embeddings=128, local_attention=12, pad_token_id=None)
    model = AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4) if parameter.ndim > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    modules = [("", "models.Transformer"), ("1_Pooling", "sentence_transformer.modules.pooling.Pooling"),
               ("2_Normalize", "sentence_transformer.modules.normalize.Normalize")]
    (folder / "modules.json").write_text(json.dumps([{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{kind}"}
                                                     for i, (path, kind) in enumerate(modules)]))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": True}))


QUESTIONS = {each.__name__: each for each in (labels, adapted_logits, embeddings, encoded, retrieval, label_words, make_tokenizers,
                                                  plain_ids, make_encoder)}


def answer_all():
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries print
    for line in sys.stdin:
        name, arguments = json.loads(line)
        answers.write(json.dumps(QUESTIONS[name](*arguments)) + "\n")
        answers.flush()


if __name__ == "__main__":
    answer_all()
