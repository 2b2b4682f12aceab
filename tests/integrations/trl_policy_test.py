"""Steps of reinforcement and preference learning beside the released TRL's trainers on transformers' model: the loss and the
gradient norm of a run's second step are computed again by theirs, on the very answers of the run."""

import json
import unittest

import torch
import transformers
import trl
from datasets import Dataset
from policy import MAX_RESPONSE, PolicyTest, gradient_norm, padded

ANSWERS = 8


def left_padded(rows, width, pad):
    return torch.tensor([[pad] * (width - len(row)) + list(row) for row in rows])


def right_padded(rows, width, pad):
    return torch.tensor([list(row) + [pad] * (width - len(row)) for row in rows])


class TrlTest(PolicyTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        text = (cls.folder / "run.toml").read_text()
        (cls.folder / "begun.toml").write_text(text[text.index("[data]"):])
        cls.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(cls.folder / "tokenizer.json"), eos_token="<end>",
                                                             pad_token="<pad>", unk_token="<pad>")

    def options(self, config, **options):
        return config(output_dir=str(self.folder / "trl"), use_cpu=True, report_to=[], bf16=False, fp16=False,
                      gradient_checkpointing=False, gradient_accumulation_steps=1, **options)

    # Rollouts: grpo, dapo, dr_grpo.

    def check(self, algorithm, kl):
        batch, model, line = self.step(algorithm, kl)
        prompts = [episode["tokens"][:episode["prompt_tokens"]] for episode in batch]
        answers = [episode["tokens"][episode["prompt_tokens"]:] for episode in batch]
        given, said = max(map(len, prompts)), max(map(len, answers))
        pad = self.tokenizer.pad_token_id
        options = self.options(trl.GRPOConfig, loss_type=algorithm, beta=kl, epsilon=0.2, delta=3.0, num_generations=4,
                               use_bias_correction_kl=False, epsilon_high=0.28 if algorithm == "dapo" else 0.2, per_device_train_batch_size=len(batch),
                               max_completion_length=MAX_RESPONSE)
        trainer = trl.GRPOTrainer(model, reward_funcs=lambda completions, **_: [0.0] * len(completions), args=options,
                                  train_dataset=Dataset.from_list([{"prompt": "1 ="}]), processing_class=self.tokenizer)
        trainer.current_gradient_accumulation_steps = 1
        trainer.model.train()
        inputs = {
            "prompt_ids": left_padded(prompts, given, pad),
            "prompt_mask": left_padded([[1] * len(row) for row in prompts], given, 0),
            "completion_ids": right_padded(answers, said, pad),
            "completion_mask": right_padded([[1] * len(row) for row in answers], said, 0),
            "advantages": torch.tensor([episode["advantage"] for episode in batch], dtype=torch.float64),
            "old_per_token_logps": padded([episode["old"] for episode in batch], said),
            "num_items_in_batch": torch.tensor(float(sum(map(len, answers)))),
        }
        if kl > 0:
            inputs["ref_per_token_logps"] = padded([episode["reference"] for episode in batch], said)
        loss = trainer._compute_loss(trainer.model, inputs)
        loss.backward()
        self.assert_step(line, loss.item(), gradient_norm(model))

    def test_rollouts(self):
        for algorithm in ("grpo", "dapo", "dr_grpo"):
            for kl in (0.0, 0.3):
                with self.subTest(f"{algorithm}, kl {kl}"):
                    self.check(algorithm, kl)

    # Preferences: the reference is the model that a run began with.

    def pairs(self, count):
        """Prompts with their better and worse answers, as tokens."""
        pairs = []
        for line in self.lines[:count]:
            question, answer = (message["content"] for message in json.loads(line)["messages"])
            ids = [self.tokenizer.convert_tokens_to_ids(text.split()) for text in
                   (question + " =", answer + " <end>", " ".join(reversed(answer.split())) + " <end>")]
            pairs.append(ids)
        return pairs

    def corpora(self, count):
        self.build(f"better-{count}", self.lines[:count])
        worse = []
        for line in self.lines[:count]:
            conversation = json.loads(line)
            answer = conversation["messages"][1]
            answer["content"] = " ".join(reversed(answer["content"].split()))
            worse.append(json.dumps(conversation) + "\n")
        self.build(f"worse-{count}", worse)
        return {"data__train": f'[["{self.folder}/better-{count}/corpus", 1.0]]',
                "rl__rejected": f'["{self.folder}/worse-{count}/corpus"]', "rl__prompts_per_step": count}

    def preference_step(self, algorithm, count, **settings):
        """The models before training and before the second step, and that step's line."""
        settings = {"rl__algorithm": f'"{algorithm}"', "rl__reward": "[]", **self.corpora(count), **settings}
        begin = self.run_of(f"begin-{algorithm}", 1, **settings, optimizer__lr=0)
        reference = self.model_after(begin, 1)
        run = self.run_of(algorithm, 2, "begun.toml", **settings, model__hf=f'"{begin}/model-1"', optimizer__lr="3e-2")
        return reference, self.model_after(run, 1), self.line_of(run, 1)

    def ids(self, rows):
        """Of prompts with answers: what models are given."""
        width = max(len(prompt) + len(answer) for prompt, answer in rows)
        return {
            "input_ids": right_padded([prompt + answer for prompt, answer in rows], width, self.tokenizer.pad_token_id),
            "attention_mask": right_padded([[1] * len(prompt + answer) for prompt, answer in rows], width, 0),
            "completion_mask": right_padded([[0] * len(prompt) + [1] * len(answer) for prompt, answer in rows], width, 0),
        }

    def test_dpo(self):
        reference, model, line = self.preference_step("dpo", ANSWERS)
        dataset = Dataset.from_list([{"prompt": "1 =", "chosen": "1 <end>", "rejected": "2 <end>"}])
        trainer = trl.DPOTrainer(model, ref_model=reference, args=self.options(trl.DPOConfig, beta=0.1),
                                 train_dataset=dataset, processing_class=self.tokenizer)
        pairs = self.pairs(ANSWERS)
        rows = [(prompt, better) for prompt, better, _ in pairs] + [(prompt, worse) for prompt, _, worse in pairs]
        loss = trainer._compute_loss(trainer.model, self.ids(rows), return_outputs=False)
        loss.backward()
        self.assert_step(line, loss.item(), gradient_norm(model))

    def test_kto(self):
        reference, model, line = self.preference_step("kto", 1, rl__desirable_weight=1.5, rl__undesirable_weight=0.7)
        dataset = Dataset.from_list([{"prompt": "1 =", "completion": "1 <end>", "label": True},
                                     {"prompt": "2 =", "completion": "1 <end>", "label": False}])
        options = self.options(trl.KTOConfig, beta=0.1, desirable_weight=1.5, undesirable_weight=0.7,
                               per_device_train_batch_size=2)
        trainer = trl.KTOTrainer(model, ref_model=reference, args=options, train_dataset=dataset,
                                 processing_class=self.tokenizer)
        (prompt, better, worse), = self.pairs(1)
        inputs = self.ids([(prompt, better), (prompt, worse)])
        elsewhere = self.ids([(prompt, worse), (prompt, better)])
        inputs |= {f"KL_{name}": value for name, value in elsewhere.items()}
        inputs["label"] = torch.tensor([True, False])
        loss = trainer._compute_loss(trainer.model, inputs, return_outputs=False)
        loss.backward()
        self.assert_step(line, loss.item(), gradient_norm(model))


if __name__ == "__main__":
    unittest.main()
