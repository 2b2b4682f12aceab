"""The shipped calibrations are what tools/published_calibrations.py makes of the published figures."""

import subprocess
import sys

import repository

result = subprocess.run([sys.executable, str(repository.ROOT / "tools" / "published_calibrations.py"), "--check"],
                        capture_output=True, text=True, check=False)
repository.finish(1, [result.stderr.strip()] if result.returncode else [])
