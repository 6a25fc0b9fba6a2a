"""What the numbers were made with: versions and hardware."""

from __future__ import annotations

import os
import platform
from typing import Any

import numpy as np
import scipy
import torch

import engram


def environment(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Versions and hardware, as stored with every run."""
    device = torch.device(device)
    return {
        "engram": engram.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as f:
            return next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
