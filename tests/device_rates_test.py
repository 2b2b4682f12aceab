"""The rates that the library carries are what tools/device_rates.py fits on the measured and published figures."""

import subprocess
import sys

import repository

result = subprocess.run([sys.executable, str(repository.ROOT / "tools" / "device_rates.py"), "--check"],
                        capture_output=True, text=True, check=False)
repository.finish(1, [result.stderr.strip()] if result.returncode else [])
