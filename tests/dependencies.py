"""Where tools/bootstrap keeps what it installs."""

import os
import pathlib

DEPENDENCIES = pathlib.Path(os.environ.get("SLUICE_DEPS") or pathlib.Path.home() / ".cache" / "sluice")
