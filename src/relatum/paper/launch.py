"""Start a command that Linux ends with SIGTERM when its parent process dies: `python launch.py PARENT_PID COMMAND…`.

A process can only ask for this itself. It is asked here, in a separate process, because code that runs between fork
and exec (`preexec_fn`) can deadlock in a program with threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h; kept across exec

if __name__ == "__main__":
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the request
        sys.exit(128 + signal.SIGTERM)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"error: cannot start {command[0]}: {error.strerror}")
