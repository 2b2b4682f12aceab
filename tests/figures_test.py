#!/usr/bin/env python3
"""Figures that pages quote are those of the files of results."""

import pathlib
import runpy
import sys

if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    runpy.run_path(str(pathlib.Path(__file__).resolve().parent.parent / "bench" / "figures.py"), run_name="__main__")
