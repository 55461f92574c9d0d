"""What floods standard output and ends its process while it is imported."""

from __future__ import annotations

import os
import signal

for _ in range(2**12):
    os.write(1, b"x" * 1024)
os.kill(os.getpid(), signal.SIGRTMIN + 6)
