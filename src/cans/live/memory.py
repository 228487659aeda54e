"""Keep the memory of large messages instead of giving it back after each one.

glibc returns blocks of more than 128 KB to the kernel when they are freed; the next message of
several megabytes then pays for thousands of page faults, which costs more than the transport
itself. Told otherwise, the process keeps the memory of its largest moment, and requests of 3 to 13
MB take half the time (benchmarks/request_path.py).
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_LARGEST = 32 << 20  # glibc takes no more


def keep_memory() -> bool:
    """Whether the C library could be told; one that is not glibc cannot."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, 512 << 20))
