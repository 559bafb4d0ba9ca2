"""Workers for trying engines: each does what its first message tells it to, in words."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

from holdfast.wire import Assigned, Channel, LastWords, Meeting, Message, Met, Reported


def obey(handle: int) -> None:
    """Do what the first message says and end as it says; the entry point of a worker."""
    channel = Channel(socket.socket(fileno=handle))
    [first, *others] = channel.wait()
    assert isinstance(first, Assigned)
    for word in first.job.decode().split():
        _do(channel, word, others)
    channel.send(LastWords(value=b"done"))
    channel.flush(10.0)


def _do(channel: Channel, word: str, waiting: list[Message]) -> None:
    verb, _, value = word.partition("=")
    match verb:
        case "report":
            for index in range(int(value)):
                channel.send(Reported(index, {"pid": os.getpid()}))
            channel.flush(10.0)
        case "print":
            sys.stdout.write(f"{value}\n")
        case "environment":
            channel.send(Reported(0, {"value": subprocess.getoutput(f"echo ${value}")}))
        case "raise":
            channel.send(LastWords(error=value, trace=f"trace of {value}"))
            channel.flush(10.0)
            os._exit(1)
        case "exit":
            os._exit(int(value))
        case "signal":
            os.kill(os.getpid(), int(value))
        case "echo":
            while messages := waiting or channel.wait():
                waiting = []
                for message in messages:
                    assert isinstance(message, Met)
                    channel.send(Meeting(message.index, message.data))
                channel.flush(10.0)
        case "child":
            child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
            channel.send(Reported(0, {"child": child.pid}))
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            channel.send(Reported(0, {"deaf": True}))
        case "hang":
            while True:
                time.sleep(60)
        case _:
            raise ValueError(word)
