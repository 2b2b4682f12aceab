"""Sluice in a PyTorch loop with FSDP: ranks that meet in every layer bring micro-batches of about the same time.

    torchrun --nproc-per-node 4 examples/fsdp_training.py
"""

import torch
import torch.distributed as dist
from sluice.integrations.torch import Balancer, BatchSampler, PackedCollate
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

import tiny_model

BATCH_SIZE, EPOCHS = 32, 3


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    data, model = tiny_model.samples(), tiny_model.model()
    times = [tiny_model.measured_times(model) if rank == 0 else None]
    dist.broadcast_object_list(times)  # one description for all ranks, so that all make the same plans

    balancer = Balancer("tp1", times=times[0], max_tokens=2048)
    lengths = [len(sample) for sample in data]
    batches = BatchSampler(lengths, balancer, batch_size=BATCH_SIZE, ranks=ranks, rank=rank)
    loader = DataLoader(data, batch_sampler=batches, collate_fn=PackedCollate())

    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(EPOCHS):
        micro_batches = iter(loader)
        for step in range(batches.steps):
            targets = sum(lengths[step * BATCH_SIZE:(step + 1) * BATCH_SIZE]) - BATCH_SIZE
            total = torch.zeros(())
            for _ in range(batches.num_microbatches(step)):
                loss = tiny_model.loss_sum(model, next(micro_batches)) / targets
                (loss * ranks).backward()  # FSDP averages over ranks
                total += loss.detach()
            optimizer.step()
            optimizer.zero_grad()
            dist.all_reduce(total)
            if rank == 0:
                print(f"epoch {epoch} step {step} loss {total.item():.3f} "
                      f"micro-batches {batches.num_microbatches(step)} a rank", flush=True)
    dist.monitored_barrier()  # gives gloo's threads the time to let go of the last tensors: without, torch 2.11 may abort at exit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
