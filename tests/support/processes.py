"""Run a function in several processes that form a group, and get what each of them gave."""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch.distributed as dist

PATIENCE = 60.0


class Failed(str):
    """What a process raised, by type and message."""


def _work(rank: int, world: int, store: str, sender: Connection, work: Callable, args: Any) -> None:
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}/group",
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=PATIENCE / 2),
        )
        answer = work(*args)
    except Exception as error:
        answer = Failed(f"{type(error).__name__}: {error}")
    sender.send_bytes(pickle.dumps(answer))


def in_processes(world: int, work: Callable, *args: Any) -> list[Any]:
    """Each process's answer: what ``work`` returned, a :class:`Failed`, or None if it was killed.

    The processes are forked, so ``work`` may be any function, and nothing is imported anew.
    """
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as store:
        processes, pipes = [], []
        for rank in range(world):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(
                target=_work, args=(rank, world, store, sender, work, args), daemon=True
            )
            process.start()
            sender.close()  # ours: once the child is gone, the pipe ends
            processes.append(process)
            pipes.append(receiver)
        deadline = time.monotonic() + PATIENCE
        answers = [_answer(pipe, deadline) for pipe in pipes]
        for process in processes:
            process.kill()
            process.join()
    return answers


def _answer(pipe: Connection, deadline: float) -> Any:
    if not pipe.poll(max(0.0, deadline - time.monotonic())):
        raise TimeoutError("the processes wait for each other")
    try:
        return pickle.loads(pipe.recv_bytes())
    except EOFError:
        return None


def succeed(world: int, work: Callable, *args: Any) -> list[Any]:
    """The same where every process must get to its end."""
    answers = in_processes(world, work, *args)
    for answer in answers:
        if answer is None or isinstance(answer, Failed):
            raise AssertionError(f"a process failed: {answer}")
    return answers
