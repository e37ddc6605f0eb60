"""`ls.data.stream`: which source a path, a pytree of paths or an object with rows is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lsmcmc import _checks
from lsmcmc.data._files import format_of
from lsmcmc.data._lines import Lines
from lsmcmc.data._npy import Arrays
from lsmcmc.data._records import Records
from lsmcmc.data._tables import Tables
from lsmcmc.streams import Source, Stream

_MOST_ROWS = 2**31 - 1


def stream(
    source: Any,
    *,
    num_examples: int,
    columns: Any = None,
    num_features: int | None = None,
    dtype: Any = None,
    memory: int = 2**28,
    threads: int | None = None,
) -> Stream:
    """Data that stay where they are, for `ls.Posterior(data=)`: rows are read while the device works on those before.

    `source` is one of

    - a path of a `.npy` file, or a pytree of them such as `("X.npy", "y.npy")`: memory-mapped; arrays (`numpy.memmap`)
      may stand for paths;
    - a path of a Parquet or Arrow file, a list of them or a folder: `columns` is a pytree of column names in which a
      list of names is a matrix, such as `(["x1", "x2"], "y")`; without it data are a dict of all columns. Lists of one
      length and text that is numbers are read too. Needs pyarrow (`pip install lsmcmc[data]`);
    - a path of a LIBSVM file: data are (X, y) in float32, X dense with `num_features` columns;
    - any object with a length whose `source[i]` is row i, a pytree of numbers: the random-access sources of Grain.

    A file is known by its first bytes. `num_examples` is N: a source with fewer rows is refused, and rows after N
    are not read. `dtype` is a pytree prefix of data; without it rows have the dtypes that arrays in memory would
    have. `memory` bounds the bytes of rows that are held on the host (two steps' batches at least), and `threads`
    read. Give `ls.sample` `gradient=ls.Minibatch(B, "blocks")`, or a disk has to find B places a step. Draws are
    those of the same data in memory.

    >>> import numpy as np, tempfile
    >>> path = tempfile.mkdtemp() + "/X.npy"
    >>> np.save(path, np.arange(12.0).reshape(6, 2))
    >>> data = stream(path, num_examples=6)
    >>> data
    Stream(6 rows of float32[2])
    >>> data.read([4, 0])
    array([[8., 9.],
           [0., 1.]], dtype=float32)
    """
    num_examples = _checks.count("num_examples", num_examples)
    if num_examples > _MOST_ROWS:
        raise ValueError(f"num_examples must be at most 2**31 - 1, got {num_examples}; rows are counted in 32 bits.")
    found = _source(source, num_examples, columns, num_features)
    if found.num_rows < num_examples:
        raise ValueError(
            f"{found.name} has {found.num_rows} rows, and num_examples={num_examples} were promised. "
            f"Write num_examples={found.num_rows}, or complete the file."
        )
    threads = 0 if threads is None else _checks.count("threads", threads)
    made = Stream(found, num_examples, dtype, _checks.count("memory", memory), threads)
    made.read([0, num_examples - 1])  # what is wrong everywhere should be met now
    return made


def _source(source: Any, num_examples: int, columns: Any, num_features: int | None) -> Source:
    paths = _paths(source)
    kinds = {format_of(path) for path in paths}
    kind = next(iter(kinds), None)
    if len(kinds) > 1:
        raise ValueError(f"files of one source need one format: {', '.join(path.name for path in paths)} have several.")
    if columns is not None and kind not in ("parquet", "arrow"):
        raise ValueError("columns= belongs to Parquet and Arrow files; leave it out.")
    if num_features is not None and kind != "libsvm":
        raise ValueError("num_features= belongs to LIBSVM files; leave it out.")
    if kind in ("parquet", "arrow"):
        return Tables(paths, str(kind), columns, num_examples)
    if kind == "libsvm":
        return _lines(paths, num_features, num_examples)
    return Records(source) if _is_random_access(source) else Arrays(source)


def _paths(source: Any) -> list[Path]:
    """The files that a source is, if it is files of a table: one, several in order, or those of a folder."""
    one = [source] if isinstance(source, str | Path) else source
    if not isinstance(one, list | tuple) or not one or not all(isinstance(path, str | Path) for path in one):
        return []
    paths = [Path(path).expanduser() for path in one]
    if len(paths) == 1 and paths[0].is_dir():
        paths = sorted(path for path in paths[0].iterdir() if path.is_file() and not path.name.startswith((".", "_")))
        if not paths:
            raise ValueError(f"the folder {one[0]} has no files in it.")
    return paths


def _lines(paths: list[Path], num_features: int | None, num_examples: int) -> Lines:
    if len(paths) > 1:
        raise ValueError("a LIBSVM source is one file; write the files one after the other into one.")
    if num_features is None:
        raise ValueError(
            f"{paths[0].name} is a LIBSVM file, whose rows do not say how long they are: write num_features=."
        )
    return Lines(paths[0], _checks.count("num_features", num_features), num_examples)


def _is_random_access(source: Any) -> bool:
    """Something with rows; a container of arrays is a pytree of them."""
    is_pytree = isinstance(source, np.ndarray | Mapping | list | tuple | str | Path)
    return not is_pytree and hasattr(source, "__len__") and hasattr(source, "__getitem__")
