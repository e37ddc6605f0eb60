"""The paper's data sets: downloaded once with a checksum, or read from the folder named in LSMCMC_DATA."""

from lsmcmc.data._a3a import a3a
from lsmcmc.data._dataset import Dataset
from lsmcmc.data._fetch import ChecksumError
from lsmcmc.data._mnist import mnist

__all__ = ["ChecksumError", "Dataset", "a3a", "mnist"]
