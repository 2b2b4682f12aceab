"""sluice.integrations.torch with released transformers and accelerate: two ranks train as one does."""

import os
import pathlib
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import torch
import torch.distributed as dist
import transformers
from accelerate.data_loader import BatchSamplerShard
from huggingface_trainer import BalancedTrainer
from lengths import lengths_of
from sluice import StageTimes
from sluice.integrations.torch import Balancer, BatchSampler, PackedCollate
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
RANKS, BATCH_SIZE, SAMPLES, STEPS, RATE = 2, 8, 16, 2, 0.1
VOCABULARY = 50


def balancer():
    return Balancer("<1,1,1>", times=StageTimes(a=1.0, b=20_000.0, c=1_000_000), max_tokens=1000)


def samples():
    generator = np.random.default_rng(3)
    return [generator.integers(VOCABULARY, size=length).tolist() for length in lengths_of(SAMPLES, most=300)]


def model_of(seed=0):
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, attn_implementation="sdpa")
    return transformers.LlamaForCausalLM(config).double()


def loss_sum(model, batch):
    """Of all targets of a packed micro-batch."""
    logits = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits[0, :-1], batch["labels"][0, 1:], reduction="sum")


def targets_of(sequences):
    return sum(len(sequence) - 1 for sequence in sequences)


def trained_alone():
    """Parameters after STEPS of plain descent, one whole batch a step, a sequence at a time."""
    model, data = model_of(), samples()
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for step in range(STEPS):
        batch = data[step * BATCH_SIZE:(step + 1) * BATCH_SIZE]
        for sequence in batch:
            (loss_sum(model, PackedCollate()([sequence])) / targets_of(batch)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [parameter.detach() for parameter in model.parameters()]


def in_ranks(work, folder):
    """Runs work(rank, folder) in RANKS processes joined by Gloo."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(_rank, args=(work, folder, port), nprocs=RANKS)


def _rank(rank, work, folder, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    work(rank, folder)
    dist.destroy_process_group()


def train_sharded(rank, folder):
    model, data = model_of(), samples()
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    batches = BatchSampler([len(each) for each in data], balancer(), BATCH_SIZE, RANKS, rank)
    loader = iter(DataLoader(data, batch_sampler=batches, collate_fn=PackedCollate()))
    for step in range(batches.steps):
        targets = targets_of(data[step * BATCH_SIZE:(step + 1) * BATCH_SIZE])
        for _ in range(batches.num_microbatches(step)):
            (loss_sum(model, next(loader)) * RANKS / targets).backward()  # FSDP averages over ranks
        optimizer.step()
        optimizer.zero_grad()
    parameters = [parameter.full_tensor().detach() for parameter in model.parameters()]
    if rank == 0:
        torch.save(parameters, os.path.join(folder, "parameters.pt"))


def train_with_trainer(rank, folder):
    arguments = transformers.TrainingArguments(
        folder, max_steps=STEPS, gradient_accumulation_steps=3, learning_rate=RATE, lr_scheduler_type="constant",
        optim="sgd", max_grad_norm=0, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True,
        accelerator_config={"even_batches": False}, average_tokens_across_devices=True, ddp_backend="gloo")
    trainer = BalancedTrainer(model_of(), arguments, train_dataset=[{"input_ids": each} for each in samples()],
                              balancer=balancer(), batch_size=BATCH_SIZE)
    trainer.train()
    if rank == 0:
        parameters = [parameter.detach() for parameter in trainer.accelerator.unwrap_model(trainer.model).parameters()]
        torch.save(parameters, os.path.join(folder, "parameters.pt"))


class TrainingTest(unittest.TestCase):
    def check(self, work, rtol=1e-9, atol=1e-11):
        with tempfile.TemporaryDirectory() as folder:
            in_ranks(work, folder)
            found = torch.load(os.path.join(folder, "parameters.pt"))
        for parameter, expected in zip(found, trained_alone(), strict=True):
            torch.testing.assert_close(parameter, expected, rtol=rtol, atol=atol)

    def test_sharded_ranks_train_as_one(self):
        self.check(train_sharded)

    def test_trainer_trains_as_one(self):
        self.check(train_with_trainer, rtol=1e-5, atol=1e-8)  # transformers computes the loss in FP32


class PrintedCommandsTest(unittest.TestCase):
    """The commands of docs/integrations.md train, as they stand there."""

    def commands(self):
        page = (REPOSITORY / "docs/integrations.md").read_text()
        return [shlex.split(line) for line in page.splitlines() if line.startswith(("torchrun ", "accelerate "))]

    def test_their_losses_fall(self):
        programs = {"torchrun": [sys.executable, "-m", "torch.distributed.run"],
                    "accelerate": [sys.executable, "-m", "accelerate.commands.accelerate_cli"]}
        self.assertEqual(len(self.commands()), 3)
        for name, *arguments in self.commands():
            with self.subTest(arguments=arguments):
                done = subprocess.run([*programs[name], *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False,
                                      env={**os.environ, "OMP_NUM_THREADS": "1"})
                self.assertEqual(done.returncode, 0, done.stderr[-3000:])
                found = [float(loss) for loss in re.findall(r"\bloss'?:? '?(\d+\.\d+)", done.stdout)]
                self.assertEqual(len(found), 9)  # three epochs of three steps
                self.assertLess(found[-1], found[0] - 0.5)


class CollateTest(unittest.TestCase):
    def test_equals_the_flattening_collator(self):
        data = [{"input_ids": [5, 6, 7]}, {"input_ids": [8]}, {"input_ids": [9, 10]}]
        labelled = [{**each, "labels": [token + 1 for token in each["input_ids"]]} for each in data]
        for features in (data, labelled):
            expected = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=True)(features)
            found = PackedCollate()(features)
            self.assertEqual(set(found), set(expected))
            for name, value in expected.items():
                if isinstance(value, torch.Tensor):
                    self.assertEqual(found[name].dtype, value.dtype)
                    torch.testing.assert_close(found[name], value)
                else:
                    self.assertEqual(found[name], value)

    def test_arrays_and_tensors_serve_as_lists_do(self):
        for kind in (np.array, torch.tensor):
            torch.testing.assert_close(PackedCollate()([kind([1, 2])])["input_ids"], torch.tensor([[1, 2]]))

    def test_an_empty_micro_batch_has_no_loss(self):
        self.assertEqual(loss_sum(model_of(), PackedCollate()([])).item(), 0)


class SamplerTest(unittest.TestCase):
    def sampler(self, rank=None, **arguments):
        return BatchSampler(lengths_of(40, most=900), balancer(), 10, 3, rank, **arguments)

    def test_accelerate_takes_each_ranks_own(self):
        for rank in range(3):
            shard = BatchSamplerShard(self.sampler(), num_processes=3, process_index=rank, even_batches=False)
            self.assertEqual(list(shard), list(self.sampler(rank)))

    def test_ranks_run_equally_many_and_share_each_batch(self):
        of_rank = [self.sampler(rank, seed=5) for rank in range(3)]
        for epoch in range(2):
            for sampler in of_rank:
                sampler.set_epoch(epoch)
            lists = [list(sampler) for sampler in of_rank]
            for step in range(4):
                count = of_rank[0].num_microbatches(step)
                self.assertEqual([sampler.num_microbatches(step) for sampler in of_rank], [count] * 3)
            self.assertEqual({len(each) for each in lists}, {sum(map(of_rank[0].num_microbatches, range(4)))})
            seen = sorted(sample for each in lists for micro_batch in each for sample in micro_batch)
            self.assertEqual(seen, list(range(40)))

    def test_the_seed_and_the_epoch_decide_the_order(self):
        first, again, other = self.sampler(0, seed=5), self.sampler(0, seed=5), self.sampler(0, seed=6)
        self.assertEqual(list(first), list(again))
        self.assertNotEqual(list(first), list(other))
        again.set_epoch(1)
        self.assertNotEqual(list(first), list(again))

    def test_a_continued_epoch_goes_on_with_the_same(self):
        whole = self.sampler(1, seed=5)
        behind = sum(map(whole.num_microbatches, range(2)))
        self.assertEqual(list(self.sampler(1, seed=5, first_step=2)), list(whole)[behind:])

    def test_a_length_is_known_where_the_number_is_fixed(self):
        for rank in (None, 0):
            fixed = self.sampler(rank, micro_batches=4)
            self.assertEqual(len(fixed), len(list(fixed)))
        with self.assertRaisesRegex(TypeError, "set micro_batches"):
            len(self.sampler())


if __name__ == "__main__":
    unittest.main()
