"""What a measurement depends on: the machine, the versions, the commit."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_PACKAGES = ("lsmcmc", "jax", "jaxlib", "blackjax", "numpy")


def describe() -> dict[str, Any]:
    """Host, cores, versions, commit."""
    return {
        "machine": _model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "commit": _commit(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _model() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "source"


def _commit() -> str:
    found = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    return found.stdout.strip() or "unknown"
