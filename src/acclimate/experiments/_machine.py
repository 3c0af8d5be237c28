"""What a job ran on: device, versions, memory at its peak, and whether that ran out."""

from __future__ import annotations

import gc
import platform
import sys
from typing import Any

import numpy
import torch

from acclimate._version import __version__

__all__ = [
    "OUT_OF_MEMORY",
    "breaks_device",
    "forget_peak",
    "free_memory",
    "machine",
    "out_of_memory",
    "peak",
]

OUT_OF_MEMORY = "out of memory"
"""How the note of a result begins that had to do with smaller batches."""


def machine(device: torch.device) -> dict[str, Any]:
    """Device and versions, for the record."""
    versions = {
        "acclimate": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
    name = device.type
    if device.type == "cuda":
        name = f"cuda: {torch.cuda.get_device_name(device)}"
        versions["cuda"] = str(torch.version.cuda)
    return {"device": name, "threads": torch.get_num_threads(), "versions": versions}


def forget_peak(device: torch.device) -> None:
    """Begin to measure anew, where that can be done."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak(device: torch.device) -> dict[str, Any]:
    """Bytes at the peak, and of what: on the CPU only the process as a whole is known."""
    if device.type == "cuda":
        bytes_ = torch.cuda.max_memory_allocated(device)
        return {"memory": bytes_, "memory_of": "this job's tensors on the GPU"}
    if sys.platform == "win32":
        return {"memory": None}
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    bytes_ = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {"memory": bytes_, "memory_of": "the process since it began, with jobs before this one"}


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on a GPU or not.

    >>> out_of_memory(MemoryError()), out_of_memory(RuntimeError("shapes differ"))
    (True, False)
    """
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    words = str(error)
    return isinstance(error, RuntimeError) and (
        "out of memory" in words or "can't allocate memory" in words
    )


def breaks_device(error: BaseException) -> bool:
    """Whether nothing more can be run in this process: CUDA does not recover from such errors."""
    return isinstance(error, RuntimeError) and "CUDA error" in str(error)


def free_memory() -> None:
    """Give back what a failed attempt has left."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
