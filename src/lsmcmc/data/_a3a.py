"""a3a: census rows as binary features, the paper's logistic regression data (LIBSVM's preparation of UCI Adult)."""

from collections.abc import Sequence

from lsmcmc.data._dataset import Dataset, Rows
from lsmcmc.data._fetch import PublishedFile, fetch
from lsmcmc.data._libsvm import parse_libsvm

_HOME = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_NUM_FEATURES = 122  # the 123rd occurs in one row of the test part
_CHECKSUMS = {
    "a3a": "sha256:2d513572f103d25e84bebe4b9f2f52ee9445764b5a393caff7db9c482cfc1ee4",
    "a3a.t": "sha256:c46c9ea67e06f38e81d59c4883e3d670cbe55de6a5c32564b38fc89dcda3adac",
}


def a3a(*, mirrors: Sequence[str] = (_HOME,)) -> Dataset:
    """a3a: X float32 (3185, 122) and (29376, 122) of zeros and ones, y float32 in {−1, +1}.

    Feature 123, which occurs in one test row and never in training, is dropped from the test part. Read from
    the folder in LSMCMC_DATA if that is set, else downloaded once into the user's cache (LSMCMC_CACHE
    moves it); the sha256 of the content is checked on every call. `mirrors` are web folders that hold
    the files a3a and a3a.t, tried in order; the checksum makes any mirror as good as the original.
    """
    return Dataset(train=_part("a3a", mirrors), test=_part("a3a.t", mirrors))


def _part(name: str, mirrors: Sequence[str]) -> Rows:
    file = PublishedFile.at(mirrors, f"a3a/{name}", _CHECKSUMS[name])
    return parse_libsvm(fetch(file), _NUM_FEATURES, source=file.name)
