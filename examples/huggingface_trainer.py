"""Sluice in Hugging Face Trainer: packed micro-batches whose time is even over the ranks.

TrainingArguments(accelerator_config={"even_batches": False}, gradient_accumulation_steps=...) says how many
micro-batches each rank runs in every step; a step that needs more ends in an error naming the number.

    torchrun --nproc-per-node 2 examples/huggingface_trainer.py
    accelerate launch --cpu --num_processes 2 examples/huggingface_trainer.py
"""

import os
import tempfile

import sluice
import torch
import transformers
from sluice.integrations.torch import Balancer, BatchSampler, PackedCollate


class BalancedTrainer(transformers.Trainer):
    def __init__(self, *arguments, balancer, batch_size, **options):
        """balancer: a sluice.integrations.torch.Balancer; batch_size: sequences of a step, over all ranks."""
        super().__init__(*arguments, **options)
        self.balancer, self.batch_size = balancer, batch_size

    def get_train_dataloader(self):
        lengths = [len(sample["input_ids"]) for sample in self.train_dataset]
        batches = BatchSampler(lengths, self.balancer, self.batch_size, self.args.world_size,
                               micro_batches=self.args.gradient_accumulation_steps)
        loader = torch.utils.data.DataLoader(self.train_dataset, batch_sampler=batches, collate_fn=PackedCollate())
        return self.accelerator.prepare(loader)


def main():
    import tiny_model

    torch.set_num_threads(1)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, num_train_epochs=3, gradient_accumulation_steps=8 // ranks, learning_rate=3e-3, use_cpu=True,
            report_to=[], save_strategy="no", disable_tqdm=True, logging_steps=1,
            ddp_backend="gloo" if ranks > 1 else None,
            accelerator_config={"even_batches": False}, average_tokens_across_devices=True)
        model = tiny_model.model()
        # Ranks must balance alike: times that were measured once, on one of them.
        balancer = Balancer("tp1", times=sluice.StageTimes(a=20.0, b=30_000.0, c=2_000_000), max_tokens=2048)
        data = [{"input_ids": sample} for sample in tiny_model.samples()]
        BalancedTrainer(model, arguments, train_dataset=data, balancer=balancer, batch_size=32).train()


if __name__ == "__main__":
    main()
