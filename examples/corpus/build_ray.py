"""Ray: one corpus built in parts by a cluster's nodes, on a file system that they share, and merged.

    python build_ray.py s3://bucket/text/ --tokenizer path/to/tokenizer --out corpora/web --parts 64

A part that fails, or whose node is lost, is begun again by Ray and goes on where it stood.
"""

import argparse
import pathlib
import subprocess

import ray


def build(inputs, tokenizer, out, part, parts, cores):
    subprocess.run(["sluice", "corpus", "build", *inputs, "--tokenizer", tokenizer, "--part", f"{part}/{parts}", "--out",
                    f"{out}/parts/{part}", "--threads", str(cores)], check=True)
    return f"{out}/parts/{part}/corpus"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--parts", type=int, default=64)
    parser.add_argument("--cores", type=int, default=16, help="of a part")
    options = parser.parse_args()
    pathlib.Path(options.out).mkdir(parents=True, exist_ok=True)
    ray.init()
    task = ray.remote(num_cpus=options.cores, max_retries=5, retry_exceptions=True)(build)
    prefixes = ray.get([task.remote(options.inputs, options.tokenizer, options.out, part, options.parts, options.cores)
                        for part in range(1, options.parts + 1)])
    subprocess.run(["sluice", "corpus", "merge", *prefixes, "--out", options.out], check=True)


if __name__ == "__main__":
    main()
