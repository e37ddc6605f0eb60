"""The paper's data sets: downloaded once with a checksum, or read from the folder named in LSMCMC_DATA."""

from lsmcmc.data._a3a import Dataset, a3a

__all__ = ["Dataset", "a3a"]
