"""The build backend of `pip install ./python`: scikit-build-core, run in the repository's root."""

import os
import pathlib

from scikit_build_core.build import *  # noqa: F403  what pip calls

os.chdir(pathlib.Path(__file__).resolve().parents[1])
