"""Data: the paper's sets, downloaded with a checksum or read from LSMCMC_DATA; and data that do not fit in memory."""

from lsmcmc.data._a3a import a3a
from lsmcmc.data._dataset import Dataset
from lsmcmc.data._fetch import ChecksumError
from lsmcmc.data._mnist import mnist
from lsmcmc.data._stream import stream

__all__ = ["ChecksumError", "Dataset", "a3a", "mnist", "stream"]
