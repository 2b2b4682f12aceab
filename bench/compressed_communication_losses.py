#!/usr/bin/env python3
"""What a model learns with gradients that travel in fewer bits, beside the same as they are: a table in Markdown.

    bench/compressed_communication_losses.py [--steps N] [--folder DIRECTORY]

A model of 20M parameters trains on the quick start's corpus (`make corpora/stdlib/corpus.idx`), two replicas on two ranks that
count as two nodes, so that each gradient crosses "between nodes".
"""

import sys

from loss_runs import Runs, arguments_of, print_table

CONFIG = """
[model]
layers = 12
hidden = 384
heads = 6
kv_heads = 6
ffn_hidden = 1024
vocab = 2048
tie_embeddings = true
[data]
train = [["corpora/stdlib/corpus", 1.0]]
validation_fraction = 0.005
context_length = 256
overflow = "truncate"
tokens_per_step = {tokens}
seed = {seed}
[parallel]
strategies = ["2x<1,1,1>"]
gpus_per_node = 1
calibration = "analytic"
[memory]
device_gib = 4.0
"""
CODECS = {"as they are": (), "push 8 and 4 bits": ("--set", "link.push=['int8', 'int4']")}


def main():
    options = arguments_of(__doc__, "compressed_communication_losses", steps=2000)
    print_table(Runs(CONFIG, CODECS, window=100, ends=(200, 500, 1000, 1500, 2000), warmup=100, every=250, ranks=2), options,
                "what travels")


if __name__ == "__main__":
    sys.exit(main())
