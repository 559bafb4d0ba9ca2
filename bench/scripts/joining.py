"""How processes that nobody joins become a process group."""

from __future__ import annotations

import socket

import torch.distributed as dist


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def join(rank: int, workers: int, port: int) -> None:
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=workers)
