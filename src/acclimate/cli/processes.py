"""The process a command runs in, and those torchrun launched, as one group."""

from __future__ import annotations

import argparse
import ctypes
import io
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta

from acclimate.errors import AcclimateError, AcclimateWarning

__all__ = ["keep_freed_memory", "launched_processes", "refuse_launched"]

PATIENCE = timedelta(minutes=10)
"""How long the others wait for a process that does not respond."""

HEARD = 10
"""Seconds that a process waits for another that failed to say so, and for torchrun to end both."""

LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""The names of glibc's ``mallopt`` for when freed memory goes back to the system."""


def keep_freed_memory() -> bool:
    """Keep large blocks of memory once they are freed; False where the C library is not glibc.

    Each layer on a CPU allocates its output anew. By default glibc returns such blocks to the
    system at once and asks for them again, and clearing their pages took up to 40 % of a step.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))


@contextmanager
def launched_processes(args: argparse.Namespace) -> Iterator[None]:
    """Join the group torchrun's environment variables describe; without them, do nothing.

    Each process gets the CUDA device of its rank on the machine, unless ``--device`` names one;
    all but the first print only errors.
    """
    if not _launched():
        yield
        return
    import torch
    import torch.distributed as dist
    import torch.distributed.nn.functional

    from acclimate.parallel import PeerError

    # Were torch.distributed.nn imported later, as optimisers do it, its functions would hold on to
    # the group as a default value, and its threads would outlive their process: now and then that
    # ends in an abort.

    args.device = device = _device(args.device, int(os.environ["LOCAL_RANK"]))
    on_cuda = device.startswith("cuda")
    if on_cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_cuda else "gloo", timeout=PATIENCE)
    try:
        if dist.get_rank() == 0:
            yield
        else:
            warnings.simplefilter("ignore", AcclimateWarning)  # until the command ends
            with redirect_stdout(io.StringIO()):
                yield
    except PeerError:
        time.sleep(HEARD)  # torchrun ends all as soon as one has ended: not before it is heard
        raise
    finally:
        dist.destroy_process_group()


def refuse_launched(instead: str) -> None:
    """For commands whose processes would not share the work, but each do all of it."""
    if _launched():
        raise AcclimateError(
            f"torchrun started {os.environ['WORLD_SIZE']} processes, each of which would do all of "
            f"this; run the command without torchrun, with {instead}"
        )


def _launched() -> bool:
    return all(name in os.environ for name in LAUNCHED) and os.environ["WORLD_SIZE"] != "1"


def _device(asked: str | None, local_rank: int) -> str:
    """The device of one process on its machine."""
    import torch

    if asked not in (None, "cuda"):
        if asked.startswith("cuda"):
            raise AcclimateError(
                f"every process needs a device of its own, got --device {asked}; leave it out"
            )
        return asked
    count = torch.cuda.device_count()
    if asked is None and count == 0:
        return "cpu"
    if local_rank >= count:
        raise AcclimateError(
            f"expected at most one process per CUDA device, got process {local_rank + 1} and "
            f"{count} device(s); lower --nproc-per-node, or --device cpu"
        )
    return f"cuda:{local_rank}"
