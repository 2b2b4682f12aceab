"""Command lines of benches that try variants, each with several seeds."""

import argparse
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def arguments_of(variants):
    """The options of a command line; `only`: names of variants."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sluice", default=ROOT / "build" / "sluice")
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(variants))
    parser.add_argument("--out", help="a .json, beside which a .md is written")
    arguments = parser.parse_args()
    arguments.sluice = os.path.abspath(arguments.sluice)
    return arguments
