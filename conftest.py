"""What every test runs under: annotations executed, strict dtype promotion, the data beside the checkout."""

import os
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

install_import_hook("lsmcmc", "beartype.beartype")
jax.config.update("jax_numpy_dtype_promotion", "strict")

_MOST_MAPS = 20_000  # memory maps of a process; Linux allows 65,530, and every compiled program takes several

_BESIDE = Path(__file__).resolve().parents[1] / "shared" / "data"
if "LSMCMC_DATA" not in os.environ and _BESIDE.is_dir():
    os.environ["LSMCMC_DATA"] = str(_BESIDE)


@pytest.fixture
def x64():
    """float64 for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def _few_programs():
    """A long suite compiles thousands of programs: they are let go before the process runs out of memory maps."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > _MOST_MAPS:
        jax.clear_caches()
