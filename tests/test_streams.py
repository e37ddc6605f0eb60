"""Streamed data give the draws of the same data in memory; what is wrong in a file is said with file and row."""

import os
import re
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lsmcmc as ls

N, DIM = 600, 4
PLANS = {
    "iid": lambda: ls.Minibatch(5),
    "subset": lambda: ls.Minibatch(5, "subset"),
    "epochs": lambda: ls.Minibatch(5, "epochs"),
    "blocks": lambda: ls.Minibatch(5, "blocks", block=32, window=100),
    "shared": lambda: ls.Minibatch(5, shared=True),
}
BLOCKS = PLANS["blocks"]()


def log_likelihood(x, batch):
    X, y = batch
    return jax.nn.log_sigmoid(y * (X @ x))


def log_prior(x):
    return -0.5 * jnp.sum(x**2)


def arrays(num=N):
    """A design matrix and labels that float32 holds exactly."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(num, DIM)).astype(np.float32), np.sign(rng.normal(size=num)).astype(np.float32)


def posterior(data):
    return ls.Posterior(log_likelihood, log_prior, data, chunk_size=250)


def draws(data, plan=BLOCKS, **options):
    start = {"position": jnp.zeros(DIM), "chains": 2, "seed": 3}
    given = {"num_draws": 40, "thin": 3, "gradient": plan, **start, **options}
    return ls.sample(ls.sgld(1e-3), posterior(data), **given)


def npy(folder, X, y):
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    return folder / "X.npy", folder / "y.npy"


def table(X, y):
    columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
    return pa.table({**columns, "y": y, "unread": [f"person {i}" for i in range(len(y))]})


def parquet(folder, X, y, rows=50):
    pq.write_table(table(X, y), folder / "rows.parquet", row_group_size=rows)
    return folder / "rows.parquet"


def arrow(folder, X, y, rows=50, compression=None):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(str(folder / "rows.arrow"), table(X, y).schema, options=options) as file:
        file.write_table(table(X, y), max_chunksize=rows)
    return folder / "rows.arrow"


def libsvm(folder, X, y):
    rows = [
        f"{label:g} " + " ".join(f"{j}:{v:.9g}" for j, v in enumerate(row, 1)) for row, label in zip(X, y, strict=True)
    ]
    (folder / "rows.svm").write_text("\n".join(rows) + "\n")
    return folder / "rows.svm"


class Random:
    """What Grain calls a random-access source."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.X[i], self.y[i]


NAMES = [f"x{j}" for j in range(DIM)]
COLUMNS = {"columns": (NAMES, "y")}
SOURCES = {
    "npy": (npy, {}),
    "memmap": (lambda folder, X, y: tuple(np.load(path, mmap_mode="r") for path in npy(folder, X, y)), {}),
    "parquet": (parquet, COLUMNS),
    "arrow": (arrow, COLUMNS),
    "compressed arrow": (lambda folder, X, y: arrow(folder, X, y, compression="lz4"), COLUMNS),
    "libsvm": (libsvm, {"num_features": DIM}),
    "random access": (lambda folder, X, y: Random(X, y), {}),
}


def streamed(name, folder, X, y, num_examples=None, memory=2**15):
    """The data behind one of the sources."""
    write, options = SOURCES[name]
    return ls.data.stream(write(folder, X, y), num_examples=num_examples or len(y), memory=memory, **options)


@pytest.fixture(scope="module")
def in_memory():
    return draws(arrays()).draws


@pytest.mark.parametrize("name", SOURCES)
def test_a_stream_gives_the_draws_of_the_same_data_in_memory(name, tmp_path, in_memory):
    run = draws(streamed(name, tmp_path, *arrays()))
    np.testing.assert_array_equal(run.draws, in_memory)


def test_draws_differ_when_one_row_of_the_file_does(tmp_path, in_memory):
    X, y = arrays()
    X[17] += 1
    assert not np.array_equal(draws(streamed("npy", tmp_path, X, y)).draws, in_memory)


@pytest.mark.parametrize(("plan", "chains"), [("iid", 3), ("subset", 1), ("epochs", 1), ("shared", 3)])
def test_every_plan_of_rows_reads_the_rows_that_it_would_take_in_memory(plan, chains, tmp_path):
    stream = ls.data.stream(npy(tmp_path, *arrays()), num_examples=N, memory=2**13)
    options = {"plan": PLANS[plan](), "chains": chains, "num_draws": 20}
    np.testing.assert_array_equal(draws(stream, **options).draws, draws(arrays(), **options).draws)


@pytest.mark.parametrize("name", SOURCES)
def test_rows_are_read_in_any_order_and_shape(name, tmp_path):
    X, y = arrays(100)
    stream = streamed(name, tmp_path, X, y)
    rows = np.random.default_rng(1).integers(0, 100, (7, 3))
    rows[0] = 99, 0, 99
    found = stream.read(rows)
    for array, whole in zip(found, (X, y), strict=True):
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, whole[rows])


def test_grain_reads_through_its_own_sources(in_memory):
    import grain.python as grain

    class Source(Random, grain.RandomAccessDataSource):
        pass

    dataset = grain.MapDataset.source(Source(*arrays())).map(lambda record: {"X": record[0], "y": 2 * record[1]})
    stream = ls.data.stream(dataset, num_examples=N)
    halved = ls.Posterior(lambda x, b: log_likelihood(x, (b["X"], b["y"] / 2)), log_prior, stream)
    run = ls.sample(ls.sgld(1e-3), halved, jnp.zeros(DIM), num_draws=40, thin=3, chains=2, seed=3, gradient=BLOCKS)
    np.testing.assert_allclose(run.draws, in_memory, rtol=1e-6)


@pytest.mark.parametrize(("memory", "chunk"), [(1, None), (3_000, 7), (10**6, None)])
def test_draws_depend_neither_on_the_memory_nor_on_the_cut(memory, chunk, tmp_path, in_memory):
    stream = ls.data.stream(npy(tmp_path, *arrays()), num_examples=N, memory=memory)
    np.testing.assert_array_equal(draws(stream, chunk=chunk).draws, in_memory)


def test_a_run_goes_on_from_its_state(tmp_path, in_memory):
    stream = streamed("npy", tmp_path, *arrays())
    first = draws(stream, num_draws=13)
    more = draws(stream, num_draws=27, state=first.state, chains=None, seed=None, position=None)
    np.testing.assert_array_equal(np.concatenate([first.draws, more.draws], axis=1), in_memory)


def test_the_log_density_is_the_sum_over_the_file(tmp_path, x64):
    X, y = (array.astype(np.float64) for array in arrays())
    whole, of_file = posterior((X, y)), posterior(ls.data.stream(npy(tmp_path, X, y), num_examples=N))
    x = jnp.linspace(-1.0, 1.0, DIM)
    assert of_file.num_examples == N
    np.testing.assert_allclose(of_file.log_density(x), whole.log_density(x), rtol=1e-12)
    np.testing.assert_allclose(of_file.pointwise_log_likelihood(x), whole.pointwise_log_likelihood(x), rtol=1e-12)


def test_log_likelihoods_of_all_draws_are_made_in_one_reading(tmp_path):
    stream = streamed("npy", tmp_path, *arrays())
    run, whole = draws(stream, num_draws=3), draws(arrays(), num_draws=3)
    pointwise = run.to_arviz(log_likelihood=True).log_likelihood
    expected = whole.to_arviz(log_likelihood=True).log_likelihood
    for name in expected:
        assert pointwise[name].shape == (2, 3, N)
        np.testing.assert_allclose(pointwise[name], expected[name], rtol=1e-5)


def test_a_streamed_posterior_is_frozen_as_any(tmp_path):
    X, y = arrays()
    stream = streamed("npy", tmp_path, X, y)

    def run(data):
        model = ls.Posterior(
            lambda x, batch: log_likelihood(x["a"] + x["b"], batch), lambda x: log_prior(x["a"]), data, chunk_size=250
        )
        start = {"a": jnp.zeros(DIM), "b": jnp.ones(DIM)}
        options = {"num_draws": 10, "gradient": BLOCKS, "trainable": {"a": True, "b": False}}
        return ls.sample(ls.sgld(1e-3), model, start, **options).draws

    np.testing.assert_array_equal(run(stream)["a"], run((X, y))["a"])
    assert run(stream)["b"] is None


def test_a_step_by_hand_reads_its_batch(tmp_path):
    stream = streamed("npy", tmp_path, *arrays())
    x, key = jnp.ones(DIM), jax.random.key(4)
    oracle = BLOCKS.oracle(posterior(stream), key, x, step=7)
    expected = BLOCKS.oracle(posterior(arrays()), key, x, step=7)
    np.testing.assert_array_equal(oracle.gradient(x), expected.gradient(x))


def test_a_stream_is_no_new_trace_for_other_data_lengths_or_seeds(tmp_path):
    traces = []

    def counted(x, batch):
        traces.append(None)
        return log_likelihood(x, batch)

    def run(seed, num_draws, memory=2**13):
        stream = ls.data.stream((tmp_path / "X.npy", tmp_path / "y.npy"), num_examples=N, memory=memory)
        model = ls.Posterior(counted, log_prior, stream)
        ls.sample(ls.sgld(1e-3), model, jnp.zeros(DIM), num_draws=num_draws, gradient=BLOCKS, seed=seed)

    npy(tmp_path, *arrays())
    run(0, 10)
    before = len(traces)
    run(1, 300)
    assert len(traces) == before
    run(1, 10, memory=2**12)  # another number of steps ahead: the check can fail
    assert len(traces) > before


def test_rows_are_read_while_the_device_works(tmp_path):
    """A slow source costs no more than its reading: reads go on beside steps, by several threads."""
    threads = set()

    class Watched(Random):
        def __getitem__(self, i):
            threads.add(threading.current_thread().name)
            return super().__getitem__(i)

    before = threading.active_count()
    draws(ls.data.stream(Watched(*arrays()), num_examples=N, memory=2**13, threads=3))
    assert len(threads - {"MainThread"}) >= 1
    assert threading.active_count() == before


def test_an_error_of_a_reading_thread_has_the_draws_before(tmp_path):
    class Failing(Random):
        def __getitem__(self, i):
            if i == 300:
                raise OSError("the disk is gone")
            return super().__getitem__(i)

    stream = ls.data.stream(Failing(*arrays()), num_examples=N, memory=2**11)
    with pytest.raises(OSError, match="the disk is gone") as caught:
        draws(stream, thin=1, num_draws=2_000)
    assert 0 < caught.value.run.num_draws < 2_000


def test_a_run_on_disk_whose_source_fails_goes_on_when_it_is_back(tmp_path, in_memory):
    class Failing(Random):
        broken = True

        def __getitem__(self, i):
            if self.broken and len(seen) > 250:
                raise OSError("the disk is gone")
            seen.add(i)
            return super().__getitem__(i)

    seen, source = set(), Failing(*arrays())
    stream = ls.data.stream(source, num_examples=N, memory=2**12)
    with pytest.raises(OSError, match="the disk is gone") as caught:
        draws(stream, path=tmp_path / "run", progress=False)
    assert 0 < caught.value.run.num_draws < 40
    source.broken = False
    np.testing.assert_array_equal(draws(stream, path=tmp_path / "run").draws, in_memory)
    source.y[0] *= -1
    with pytest.raises(ValueError, match=r"data.sha256 of 64 rows: \w+ in the folder, \w+ now"):
        draws(stream, path=tmp_path / "run")


def test_a_divergence_is_traced_to_its_step_in_streamed_data_too(tmp_path):
    stream = streamed("npy", tmp_path, *arrays())

    def diverge(data):
        sampler = ls.sgld(lambda k: jnp.where(k < 33, 1e-3, 1e38))
        with pytest.raises(ls.DivergenceError) as caught:
            ls.sample(sampler, posterior(data), jnp.zeros(DIM), num_draws=100, gradient=BLOCKS)
        return caught.value

    found, whole = diverge(stream), diverge(arrays())
    assert found.step == whole.step
    np.testing.assert_array_equal(found.run.draws, whole.run.draws)


def change(array, *at, to):
    array[at] = to
    return array


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f, X, y: npy(f, change(X, 17, 2, to=np.nan), y), "X.npy, row 17, entry [2]: nan is not a number"),
        (lambda f, X, y: npy(f, X, change(y, 5, to=np.nan)), "y.npy, row 5: nan is not a number"),
        (lambda f, X, y: npy(f, change(X.astype(float), 3, 1, to=1e300), y), "X.npy, row 3, entry [1]: 1e+300 cannot"),
        (
            lambda f, X, y: npy(f, X, change(y.astype(int), 9, to=2**40)),
            "y.npy, row 9: 1099511627776 cannot be held in",
        ),
    ],
)
def test_a_number_that_is_none_is_an_error_with_file_and_row(make, message, tmp_path):
    stream = ls.data.stream(make(tmp_path, *arrays()), num_examples=N)
    with pytest.raises(ValueError, match=re.escape(message)):
        draws(stream)
    with pytest.raises(ValueError, match=re.escape(message)):
        posterior(stream).log_density(jnp.zeros(DIM))


def stream_of(path, num_examples=N, **options):
    """All rows of it read."""
    return ls.data.stream(path, num_examples=num_examples, **options).read(range(num_examples))


def test_null_and_nan_in_columns_are_errors_with_file_and_row(tmp_path):
    X, y = arrays()
    path = parquet(tmp_path, change(X, 120, 2, to=np.nan), y)
    with pytest.raises(ValueError, match=r"rows.parquet, row 120, column 'x2': nan is not a number"):
        stream_of(path, columns=(NAMES, "y"))
    holes = pa.table({"x": pa.array([1.0] * 70 + [None] + [2.0] * 29)})
    pq.write_table(holes, path, row_group_size=30)
    with pytest.raises(ValueError, match=r"rows.parquet, row 70, column 'x' has no value \(null\). Fill it"):
        stream_of(path, 100)
    assert stream_of(path, 70)["x"].shape == (70,)  # rows after N are not looked at


def test_text_in_columns_is_read_as_numbers_or_an_error_with_file_and_row(tmp_path):
    path = tmp_path / "rows.parquet"
    text = [str(i / 4) for i in range(100)]
    pq.write_table(pa.table({"x": text, "c": pa.array(text).dictionary_encode()}), path, row_group_size=30)
    np.testing.assert_array_equal(stream_of(path, 100)["x"], np.arange(100) / 4)
    np.testing.assert_array_equal(stream_of(path, 100)["c"], np.arange(100) / 4)
    pq.write_table(pa.table({"x": change(np.array(text, object), 65, to="n/a")}), path, row_group_size=30)
    with pytest.raises(ValueError, match=r"rows.parquet, row 65, column 'x' is 'n/a', which is not a number"):
        stream_of(path, 100)


def test_lists_in_columns_are_rows_of_a_matrix_and_ragged_ones_an_error_with_file_and_row(tmp_path):
    path, lists = tmp_path / "rows.parquet", np.arange(300.0).reshape(100, 3)
    fixed = pa.FixedSizeListArray.from_arrays(lists.ravel(), 3)
    pq.write_table(pa.table({"x": lists.tolist(), "fixed": fixed}), path, row_group_size=30)
    for name in ("x", "fixed"):
        np.testing.assert_array_equal(stream_of(path, 100)[name], lists)
    pq.write_table(pa.table({"x": [*lists.tolist()[:65], [1.0, 2.0], *lists.tolist()[66:]]}), path, row_group_size=30)
    with pytest.raises(ValueError, match=r"rows.parquet, row 65, column 'x' has 2 entries and row 60 has 3. Pad them"):
        stream_of(path, 100)


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ("age", ValueError, "rows.parquet has no column 'age'. It has 'x0', 'x1', 'x2', 'x3', 'y', 'unread'"),
        ((NAMES, 3), TypeError, "a list of names is a matrix, such as columns=(['x1', 'x2'], 'y'), got 3 in it"),
        ("unread", ValueError, "rows.parquet, row 0, column 'unread' is 'person 0', which is not a number"),
    ],
)
def test_columns_that_are_not_there_or_no_numbers_are_refused(columns, error, message, tmp_path):
    with pytest.raises(error, match=re.escape(message)):
        ls.data.stream(parquet(tmp_path, *arrays()), num_examples=N, columns=columns)


def test_dates_are_no_numbers(tmp_path):
    days = pa.table({"day": np.arange(3).astype("datetime64[D]")})
    pq.write_table(days, tmp_path / "days.parquet")
    with pytest.raises(ValueError, match=r"days.parquet, row 0, column 'day' is date32\[day\], not numbers. Leave it"):
        ls.data.stream(tmp_path / "days.parquet", num_examples=3)


def test_files_of_a_folder_are_one_table_and_errors_name_the_file(tmp_path):
    X, y = arrays()
    for k in range(3):
        part = slice(200 * k, 200 * (k + 1))
        pq.write_table(table(X[part], y[part]), tmp_path / f"part-{k}.parquet", row_group_size=70)
    found = stream_of(tmp_path, columns=(NAMES, "y"))
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], y)
    pq.write_table(table(change(X[400:], 33, 1, to=np.nan), y[400:]), tmp_path / "part-2.parquet", row_group_size=70)
    with pytest.raises(ValueError, match=r"part-2.parquet, row 33, column 'x1': nan is not a number"):
        stream_of([tmp_path / f"part-{k}.parquet" for k in range(3)], columns=(NAMES, "y"))


def test_row_groups_that_would_be_decoded_over_and_over_are_refused(tmp_path):
    stream = ls.data.stream(parquet(tmp_path, *arrays()), num_examples=N, columns=(NAMES, "y"), memory=2**12)
    message = r"row groups of up to 50 rows, and this plan goes to and fro between 12 of them: .* pyarrow.parquet.write"
    with pytest.raises(ValueError, match=message):
        draws(stream, ls.Minibatch(5))
    needed = ls.Minibatch(5, "blocks", block=50, window=50)
    with pytest.raises(ValueError, match="between 6 of them"):
        draws(stream, needed)
    draws(ls.data.stream(tmp_path / "rows.parquet", num_examples=N, columns=(NAMES, "y"), memory=2**14), needed)


@pytest.mark.parametrize("line", ["1 2:a", "1 0:3", "nan 1:2", "1 1:nan", "", "1,2,3", "1 2"])
def test_a_line_that_is_no_row_is_an_error_with_file_and_row(line, tmp_path):
    lines = [f"{i % 2} 1:{i} 3:0.5" for i in range(700)]
    lines[600] = line
    (tmp_path / "rows.svm").write_text("\n".join(lines))
    stream = ls.data.stream(tmp_path / "rows.svm", num_examples=700, num_features=3)
    np.testing.assert_array_equal(stream.read(range(600))[0][:, 0], np.arange(600))
    with pytest.raises(ValueError, match=re.escape(f"rows.svm, row 601: {line!r} is not a LIBSVM row")):
        stream.read([3, 600])


@pytest.mark.parametrize("num", [1, 255, 256, 257, 512, 700])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_lines_are_found_wherever_they_are(num, end, tmp_path):
    newline = end or "\n"
    (tmp_path / "rows.svm").write_bytes((newline.join(f"1 1:{i}" for i in range(num)) + end).encode())
    X, y = stream_of(tmp_path / "rows.svm", num, num_features=2)
    np.testing.assert_array_equal(X, np.stack([np.arange(num), np.zeros(num)], axis=1))
    assert (y == 1).all()
    with pytest.raises(ValueError, match=f"rows.svm has {num} rows, and num_examples={num + 1} were promised"):
        ls.data.stream(tmp_path / "rows.svm", num_examples=num + 1, num_features=2)


def test_features_beyond_the_promised_ones_are_an_error_with_file_and_row(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:2\n0 2:1 7:3\n1 1:1\n")
    with pytest.raises(ValueError, match=r"rows.svm, row 2 has feature 7. Write num_features=7 or more"):
        stream_of(tmp_path / "rows.svm", 3, num_features=6)
    (tmp_path / "rows.svm").write_text("1 1:2\n0 2:1e99\n1 1:1\n")
    with pytest.raises(ValueError, match=r"rows.svm, row 2 has a number beyond float32"):
        stream_of(tmp_path / "rows.svm", 3, num_features=6)


class Odd(Random):
    """With a row of another kind."""

    def __init__(self, row):
        super().__init__(*arrays())
        self.row = row

    def __getitem__(self, i):
        return self.row if i == 21 else super().__getitem__(i)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((np.zeros(3), 1.0), "Odd, row 21[0] has shape (3,) and row 0 has (4,). Pad them"),
        ((["a"] * DIM, 1.0), "Odd, row 21 is PyTreeDef"),
        ((np.zeros(DIM), "yes"), "Odd, row 21[1] is 'yes', which is not a number"),
        (None, "Odd, row 21 is PyTreeDef(None) and row 0 is PyTreeDef((*, *)). All rows need the same structure"),
        ((np.full(DIM, np.nan), 1.0), "Odd, row 21[0], entry [0]: nan is not a number"),
    ],
)
def test_an_odd_record_is_an_error_with_source_and_row(row, message):
    stream = ls.data.stream(Odd(row), num_examples=N)
    with pytest.raises(ValueError, match=re.escape(message)):
        stream.read(range(N))


@pytest.mark.parametrize("name", SOURCES)
def test_fewer_rows_than_promised_are_an_error_with_both_numbers(name, tmp_path):
    with pytest.raises(
        ValueError, match=f"has {N} rows, and num_examples={N + 1} were promised. Write num_examples={N}"
    ):
        streamed(name, tmp_path, *arrays(), num_examples=N + 1)


@pytest.mark.parametrize("name", SOURCES)
def test_rows_after_those_promised_are_not_read(name, tmp_path):
    X, y = arrays()
    part = streamed(name, tmp_path, change(X, 70, to=np.nan) if name != "libsvm" else X, y, num_examples=70)
    np.testing.assert_array_equal(part.read(range(70))[0], X[:70])
    with pytest.raises(IndexError, match=r"rows are 0 … 69, got 0 … 70"):
        part.read([0, 70])


def objects(folder):
    np.save(folder / "X.npy", np.array([{}], object), allow_pickle=True)
    return folder / "X.npy"


def by_column(folder):
    np.save(folder / "X.npy", np.asfortranarray(arrays()[0]))
    return folder / "X.npy"


def truncated(folder):
    path, _ = npy(folder, *arrays())
    os.truncate(path, 1000)
    return path


def uneven(folder):
    X, y = npy(folder, *arrays())
    np.save(y, np.ones(N - 1))
    return X, y


def written(name, content):
    def write(folder):
        (folder / name).write_bytes(content)
        return folder / name

    return write


def saved(array):
    def write(folder):
        np.save(folder / "X.npy", array)
        return folder / "X.npy"

    return write


@pytest.mark.parametrize(
    ("write", "error", "message"),
    [
        (objects, ValueError, "X.npy cannot be memory-mapped: Array can't be memory-mapped: Python objects in dtype"),
        (by_column, ValueError, "X.npy lies column by column (Fortran order), so reading a row would touch the whole"),
        (truncated, ValueError, "X.npy cannot be memory-mapped: mmap length is greater than file size"),
        (uneven, ValueError, f"all arrays of a source need the same number of rows: X.npy has {N}, y.npy has {N - 1}"),
        (saved(np.float64(3)), ValueError, "X.npy is a single number; it needs a leading axis of examples"),
        (saved(np.array(["a", "b"])), TypeError, "X.npy must be an array of real numbers, got dtype <U1"),
        (saved(np.ones(3, complex)), TypeError, "X.npy must be an array of real numbers, got dtype complex128"),
        (
            written("X.npz", b"PK\x03\x04..."),
            ValueError,
            "X.npz is an .npz archive or a zip file; save each array with",
        ),
        (written("a.gz", b"\x1f\x8b..."), ValueError, "a.gz is compressed by gzip; unzip it"),
        (
            written("a.csv", b"a,b\n1,2\n"),
            ValueError,
            "a.csv is no .npy, Parquet, Arrow or LIBSVM file: it starts with",
        ),
        (written("empty", b""), ValueError, "empty is no .npy, Parquet, Arrow or LIBSVM file: it starts with b''"),
        (
            written("a3a", b"1 3:1\n"),
            ValueError,
            "a3a is a LIBSVM file, whose rows do not say how long they are: write",
        ),
        (lambda folder: folder / "none.npy", FileNotFoundError, "there is no file"),
        (lambda folder: folder, ValueError, "has no files in it"),
        (lambda folder: npy(folder, *arrays()) and folder, ValueError, "is a folder; of .npy files write their paths"),
        (
            lambda folder: {"X": parquet(folder, *arrays())},
            ValueError,
            "pytree of files is one of .npy files, and rows",
        ),
        (
            lambda folder: (parquet(folder, *arrays()), npy(folder, *arrays())[0]),
            ValueError,
            "need one format: rows.par",
        ),
        (lambda folder: (), ValueError, "the source has no arrays in it; write ls.data.stream(('X.npy', 'y.npy')"),
        (lambda folder: 3, TypeError, "a source is a path, a pytree of paths or arrays, or an object with rows, got 3"),
    ],
)
def test_sources_that_cannot_be_read_are_refused(write, error, message, tmp_path):
    with pytest.raises(error, match=re.escape(message)):
        ls.data.stream(write(tmp_path), num_examples=1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_examples": 0}, ValueError, "num_examples must be at least 1, got 0"),
        ({"num_examples": 2**31}, ValueError, "num_examples must be at most 2**31 - 1, got 2147483648"),
        ({"columns": "x"}, ValueError, "columns= belongs to Parquet and Arrow files; leave it out"),
        ({"num_features": 3}, ValueError, "num_features= belongs to LIBSVM files; leave it out"),
        ({"memory": 0}, ValueError, "memory must be at least 1, got 0"),
        ({"threads": 0}, ValueError, "threads must be at least 1, got 0"),
        ({"dtype": complex}, TypeError, "dtype must be of real numbers, got complex64"),
        ({"dtype": (float,)}, ValueError, "dtype is no prefix of data"),
    ],
)
def test_options_that_cannot_be_are_refused(options, error, message, tmp_path):
    with pytest.raises(error, match=re.escape(message)):
        ls.data.stream(npy(tmp_path, *arrays()), **{"num_examples": N, **options})


def test_dtypes_are_those_of_arrays_in_memory_or_asked_for(tmp_path):
    X, y = arrays()
    paths = npy(tmp_path, X.astype(float), y.astype(int))
    assert [leaf.dtype for leaf in ls.data.stream(paths, num_examples=N).read([0])] == [np.float32, np.int32]
    asked = ls.data.stream(paths, num_examples=N, dtype=(np.float16, None)).read(range(N))
    assert [leaf.dtype for leaf in asked] == [np.float16, np.int32]
    np.testing.assert_array_equal(asked[0], X.astype(np.float16))
    with pytest.raises(
        ValueError, match=r"X.npy, row 0, entry \[0\]: 0.12\S* cannot be held in int8. Write another dtype="
    ):
        ls.data.stream(paths, num_examples=N, dtype=np.int8).read(range(N))


@pytest.mark.parametrize(
    "call",
    [
        lambda model, x: ls.sample(ls.lmc(1e-3), model, x, num_draws=1),
        lambda model, x: ls.sample(ls.sgld(1e-3), model, x, num_draws=1, gradient=ls.FullBatch()),
        lambda model, x: jax.grad(model.log_density)(x),
        lambda model, x: jax.jit(model.log_density)(x),
    ],
)
def test_what_needs_all_rows_in_compiled_code_is_refused(call, tmp_path):
    model = posterior(streamed("npy", tmp_path, *arrays()))
    with pytest.raises(ValueError, match=r"the data are streamed, read on the host .* Write a sampler .*stream.read"):
        call(model, jnp.zeros(DIM))


def test_a_step_that_asks_for_the_full_potential_is_refused(tmp_path):
    class Energetic(ls.Overdamped):
        def move(self, state, oracle, noise, step_size, temperature):
            oracle.full_potential()
            return super().move(state, oracle, noise, step_size, temperature)

    model = posterior(streamed("npy", tmp_path, *arrays()))
    with pytest.raises(ValueError, match="the data are streamed"):
        ls.sample(ls.Sampler(1e-3, Energetic()), model, jnp.zeros(DIM), num_draws=1, gradient=BLOCKS)


def test_rows_cannot_be_taken_in_compiled_code(tmp_path):
    model = posterior(streamed("npy", tmp_path, *arrays()))
    with pytest.raises(ValueError, match=r"cannot be taken inside jit, vmap or grad. Call estimator.oracle"):
        jax.jit(lambda key: BLOCKS.oracle(model, key, jnp.zeros(DIM)).gradient(jnp.zeros(DIM)))(jax.random.key(0))


def test_a_fingerprint_tells_files_apart_by_size_time_and_rows(tmp_path):
    X, y = arrays()

    def fingerprint(X, y):
        return ls.data.stream(npy(tmp_path, X, y), num_examples=N).fingerprint()

    first = fingerprint(X, y)
    assert first["X.npy, bytes"] == 128 + 4 * N * DIM
    assert ls.data.stream((tmp_path / "X.npy", tmp_path / "y.npy"), num_examples=N).fingerprint() == first
    time.sleep(0.01)
    assert set(_changed(first, fingerprint(X, y))) == {"X.npy, changed", "y.npy, changed"}
    os.utime(tmp_path / "X.npy", ns=(0, 0))
    X[0, 0] += 1
    assert "sha256 of 64 rows" in _changed(first, fingerprint(X, y))


def _changed(one, other):
    return [name for name in one if one[name] != other[name]]
