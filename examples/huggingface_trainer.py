"""Sluice in Hugging Face Trainer: packed micro-batches whose time is even over the ranks.

TrainingArguments(accelerator_config={"even_batches": False}, gradient_accumulation_steps=...) says how many
micro-batches each rank runs in every step; a step that needs more ends in an error naming the number.
"""

import torch
import transformers
from sluice.integrations.torch import BatchSampler, PackedCollate


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
