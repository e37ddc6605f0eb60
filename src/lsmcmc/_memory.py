"""How much memory there is."""

import os

import jax


def available() -> int:
    """Bytes where arrays live: of the accelerator, or of this machine; 0 where nobody says."""
    stats = jax.local_devices()[0].memory_stats() or {}
    return int(stats.get("bytes_limit", 0)) or physical()


def physical() -> int:
    """Bytes of this machine, 0 where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0
