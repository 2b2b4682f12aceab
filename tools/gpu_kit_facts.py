"""One line of JSON about this machine: GPU, driver, PyTorch, compiler. Ends 1 where PyTorch sees no GPU."""

import json
import os
import platform
import subprocess
import sys


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"none ({error})"
    lines = (done.stdout.strip() or done.stderr.strip() or "no output").splitlines()
    return lines[-1] if command[0] == "nvcc" else lines[0]


def main():
    import torch

    seen = torch.cuda.is_available()
    print(json.dumps({
        "gpu": torch.cuda.get_device_name(0) if seen else None,
        "multiprocessors": torch.cuda.get_device_properties(0).multi_processor_count if seen else None,
        "driver": first_line("nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,memory.total",
                             "--format=csv,noheader"),
        "torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()), "cores": os.cpu_count(), "nvcc": first_line("nvcc", "--version"),
        "cxx": first_line("c++", "--version"), "cmake": first_line("cmake", "--version"),
        "ninja": first_line("ninja", "--version"), "sanitizer": first_line("compute-sanitizer", "--version")}))
    return 0 if seen else 1


if __name__ == "__main__":
    sys.exit(main())
