"""The real `relatum` command for grids of many tiny runs, without importing torch anew for each of them.

`serve` is a process that has imported everything and forks for every command; this file, as a script, is the command:
it hands its arguments and its output to that process, and ends with the exit code that comes back.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path


def serve(place: str) -> None:
    """Fork for every command that arrives at the socket `place`, until the process is ended."""
    import relatum.api
    import relatum.evaluation.finetune
    import relatum.training.run  # noqa: F401 (what a command would spend its time on)

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place + ".new")
    listener.listen()
    Path(place + ".new").rename(place)  # whoever sees the name can connect
    while True:
        connection = listener.accept()[0]
        message, outputs, *_ = socket.recv_fds(connection, 2**20, 2)
        child = os.fork()
        if child == 0:
            listener.close()
            os._exit(_run(json.loads(message), outputs))
        status = os.waitpid(child, 0)[1]
        connection.sendall(bytes([os.waitstatus_to_exitcode(status) % 256]))
        connection.close()
        for output in outputs:
            os.close(output)


def _run(arguments: list[str], outputs: list[int]) -> int:
    from relatum.cli import main

    os.dup2(outputs[0], 1)
    os.dup2(outputs[1], 2)
    code = 1
    try:
        main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    return code


if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(sys.argv[1])
        socket.send_fds(line, [json.dumps(sys.argv[2:]).encode()], [1, 2])
        answer = line.recv(1)
    sys.exit(answer[0] if answer else 1)
