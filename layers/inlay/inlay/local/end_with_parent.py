"""Runs a command that ends when whoever started this does, however that ends.

    python end_with_parent.py COMMAND ARGUMENT...

Promise: when standard input reaches its end (the starter closed it, exited or was killed), or the
command ends, every process of this session is killed. The starter keeps the write end of a pipe as
our standard input and starts us in a session of our own.

The session is what has to go, not the process group: a process may give another one a group of its
own. Started as a plain script, so it imports nothing but this.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path


def processes_of(session: int) -> list[int]:
    """The living processes of a session, by Linux's /proc."""
    processes = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue  # it ended meanwhile
        # "pid (command) state ppid pgrp session …"; the command may hold spaces and parentheses.
        state, _, _, its_session = stat.rpartition(")")[2].split()[:4]
        if int(its_session) == session and state != "Z":
            processes.append(int(entry.name))
    return processes


def kill_session(session: int, *, spare: int = 0) -> None:
    """Kill every process of `session` but `spare`, also those that start while this looks."""
    while others := [pid for pid in processes_of(session) if pid != spare]:
        for pid in others:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def main() -> None:
    command = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def watch() -> None:
        code = command.wait()
        kill_session(os.getsid(0), spare=os.getpid())
        os._exit(code if code >= 0 else 128 - code)

    threading.Thread(target=watch, daemon=True).start()
    # Ctrl-C at a terminal is for the starter, which then closes our standard input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    kill_session(os.getsid(0), spare=os.getpid())
    command.wait()
    os._exit(0)


if __name__ == "__main__":
    main()
