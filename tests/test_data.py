"""The data sets and the files below them: exact content, every way a file can be missing or wrong, real downloads."""

import gzip
import hashlib
import io
import logging
import re
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pooch
import pytest

import lsmcmc as ls
from lsmcmc import progress
from lsmcmc.data import _mnist
from lsmcmc.data._a3a import _CHECKSUMS, _HOME
from lsmcmc.data._fetch import PublishedFile, fetch
from lsmcmc.data._idx import parse_idx
from lsmcmc.data._libsvm import parse_libsvm

CONTENT = b"-1 3:1 11:1\n+1 4:1 122:0.5\n" * 20_000  # several network packets long
ZIPPED = gzip.compress(np.random.default_rng(0).bytes(300_000) + CONTENT, mtime=0)  # long when zipped, too


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def published(*urls: str) -> PublishedFile:
    return PublishedFile("small/rows", sha256(CONTENT), urls)


def published_zipped(*urls: str) -> PublishedFile:
    return PublishedFile("small/rows.gz", sha256(gzip.decompress(ZIPPED)), urls)


@pytest.fixture(scope="module")
def a3a_folder(tmp_path_factory) -> Path:
    """A folder with a3a/a3a and a3a/a3a.t as published: from LSMCMC_DATA, or downloaded where that is not set."""
    folder = tmp_path_factory.mktemp("published")
    (folder / "a3a").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LSMCMC_CACHE", str(tmp_path_factory.mktemp("cache")))
        for name, checksum in _CHECKSUMS.items():
            content = fetch(PublishedFile(f"a3a/{name}", checksum, (f"{_HOME}/{name}",)))
            (folder / "a3a" / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def a3a(a3a_folder) -> ls.data.Dataset:
    """The loaded data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LSMCMC_DATA", str(a3a_folder))
        return ls.data.a3a()


@pytest.fixture(scope="module")
def mnist_folder(tmp_path_factory) -> Path:
    """A folder with the four files of MNIST, gzipped: from LSMCMC_DATA, or downloaded where that is not set."""
    folder = tmp_path_factory.mktemp("published")
    (folder / "mnist").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LSMCMC_CACHE", str(tmp_path_factory.mktemp("cache")))
        for name, checksum in _mnist._CHECKSUMS.items():
            content = fetch(PublishedFile.at(_mnist._MIRRORS, f"mnist/{name}.gz", checksum))
            (folder / "mnist" / f"{name}.gz").write_bytes(gzip.compress(content, 1))
    return folder


@pytest.fixture(scope="module")
def mnist(mnist_folder) -> ls.data.Dataset:
    """The loaded data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LSMCMC_DATA", str(mnist_folder))
        return ls.data.mnist()


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder, named by LSMCMC_DATA."""
    path = tmp_path / "data"
    path.mkdir()
    monkeypatch.setenv("LSMCMC_DATA", str(path))
    return path


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """A cache of this test's own, not there yet, and no LSMCMC_DATA: what a new user's machine has."""
    monkeypatch.delenv("LSMCMC_DATA", raising=False)
    monkeypatch.setenv("LSMCMC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache"


class Server(ThreadingHTTPServer):
    """Serves `root` on a free local port and remembers the paths that were asked for."""

    def __init__(self, root: Path, handler: type[SimpleHTTPRequestHandler]):
        super().__init__(("127.0.0.1", 0), partial(handler, directory=str(root)))
        self.root, self.requests = root, []
        self.half_sent, self.go_on = threading.Event(), threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def publish(self, content: bytes, name: str = "rows") -> str:
        (self.root / name).write_bytes(content)
        return f"{self.url}/{name}"


class Files(SimpleHTTPRequestHandler):
    """The standard library's file server, its log kept instead of printed."""

    def log_request(self, *_):
        self.server.requests.append(self.path)

    def log_error(self, *_):
        pass


class CutOff(Files):
    """Announces a whole file and hangs up half-way."""

    def copyfile(self, source, outputfile):
        outputfile.write(source.read()[: len(CONTENT) // 2])


class Transparent(Files):
    """Says that the file is an encoding of its content, which the client undoes: it arrives unzipped."""

    def end_headers(self):
        self.send_header("Content-Encoding", "gzip")
        super().end_headers()


class Halting(Files):
    """Sends half a file, then waits to be told to go on."""

    def copyfile(self, source, outputfile):
        content = source.read()
        outputfile.write(content[: len(content) // 2])
        outputfile.flush()
        self.server.half_sent.set()
        assert self.server.go_on.wait(30)
        outputfile.write(content[len(content) // 2 :])


@pytest.fixture
def serve(tmp_path) -> Iterator:
    """Starts servers: `serve()`, or with another handler."""
    servers = []

    def start(handler: type[SimpleHTTPRequestHandler] = Files) -> Server:
        root = tmp_path / f"server{len(servers)}"
        root.mkdir()
        servers.append(Server(root, handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def unreachable() -> Iterator[str]:
    """An address that refuses connections: the port is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/rows"


def files_below(path: Path) -> list[Path]:
    return sorted(p.relative_to(path) for p in path.rglob("*"))


# What a3a is


def test_a3a_has_the_published_shapes_in_float32(a3a):
    assert [part.shape for part in a3a.train] == [(3185, 122), (3185,)]
    assert [part.shape for part in a3a.test] == [(29376, 122), (29376,)]
    assert {part.dtype for rows in a3a for part in rows} == {np.dtype("float32")}


def test_a3a_labels_are_minus_one_and_one_with_the_published_counts(a3a):
    for (_, y), counts in zip(a3a, ([2412, 773], [22308, 7068]), strict=True):
        values, found = np.unique(y, return_counts=True)
        assert values.tolist() == [-1, 1]
        assert found.tolist() == counts


def test_a3a_features_are_binary_with_the_published_number_of_ones(a3a):
    for (X, _), ones, most in zip(a3a, (44_162, 407_430 - 1), (14, 14), strict=True):
        assert np.unique(X).tolist() == [0, 1]
        assert np.count_nonzero(X) == ones
        assert X.sum(axis=1).max() == most


def test_a3a_keeps_feature_122_and_drops_feature_123(a3a, a3a_folder):
    assert [X[:, 121].sum() for X, _ in a3a] == [1, 19]
    whole, _ = parse_libsvm((a3a_folder / "a3a" / "a3a.t").read_bytes(), 123, "a3a.t")
    assert whole[:, 122].sum() == 1
    np.testing.assert_array_equal(whole[:, :122], a3a.test[0])


def test_a3a_rows_are_those_of_the_file_read_one_entry_at_a_time(a3a, a3a_folder):
    for name, (X, y) in zip(_CHECKSUMS, a3a, strict=True):
        lines = (a3a_folder / "a3a" / name).read_text().splitlines()
        for i in range(0, len(lines), 97):
            label, *entries = lines[i].split()
            expected = {int(entry.split(":")[0]) - 1 for entry in entries} - {122}
            assert (int(label), set(np.flatnonzero(X[i]).tolist())) == (y[i], expected)


# What MNIST is


def test_mnist_has_the_published_shapes_images_in_float32_and_labels_in_int32(mnist):
    assert [part.shape for part in mnist.train] == [(60000, 28, 28, 1), (60000,)]
    assert [part.shape for part in mnist.test] == [(10000, 28, 28, 1), (10000,)]
    assert [[part.dtype for part in rows] for rows in mnist] == [[np.float32, np.int32]] * 2


def test_mnist_has_the_published_number_of_each_digit(mnist):
    (_, y), (_, y_test) = mnist
    assert np.bincount(y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]


def test_mnist_images_are_normalised_as_in_pytorch(mnist, mnist_folder):
    content = gzip.decompress((mnist_folder / "mnist" / "t10k-images-idx3-ubyte.gz").read_bytes())
    pixels = np.frombuffer(content[16:], np.uint8).reshape(10000, 28, 28, 1)
    np.testing.assert_allclose(mnist.test[0], (pixels / 255 - 0.1307) / 0.3081, rtol=0, atol=5e-7)
    X = mnist.train[0]
    assert X.mean(dtype=float) == pytest.approx(0, abs=2e-4)
    assert X.std(dtype=float) == pytest.approx(1, abs=2e-4)


def test_mnist_digits_stand_upright_and_are_light_on_dark(mnist):
    seven = mnist.test[0][0, :, :, 0]
    assert seven[0].max() == seven.min() == pytest.approx(-0.1307 / 0.3081)
    assert np.flatnonzero(seven[8] > 0).tolist() == list(range(6, 22))  # its bar, on top
    assert np.flatnonzero(seven[25] > 0).tolist() == list(range(10, 15))  # its foot, to the left


def test_mnist_is_the_users_to_change(mnist):
    assert all(part.flags.writeable for rows in mnist for part in rows)


# The folder in LSMCMC_DATA


def test_a3a_is_read_from_the_folder_in_LSMCMC_DATA(a3a, a3a_folder, cache, monkeypatch):
    monkeypatch.setenv("LSMCMC_DATA", str(a3a_folder))
    again = ls.data.a3a(mirrors=())
    for found, expected in zip([*again.train, *again.test], [*a3a.train, *a3a.test], strict=True):
        np.testing.assert_array_equal(found, expected)
    assert not cache.exists()


def test_the_folder_in_LSMCMC_DATA_may_start_at_the_home_directory(tmp_path, cache, monkeypatch):
    (tmp_path / "data" / "small").mkdir(parents=True)
    (tmp_path / "data" / "small" / "rows").write_bytes(CONTENT)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("LSMCMC_DATA", "~/data")
    assert fetch(published()) == CONTENT


def test_a_file_missing_from_the_folder_is_an_error_that_says_which_file_goes_where(folder, serve):
    server = serve()
    with pytest.raises(FileNotFoundError) as caught:
        ls.data.a3a(mirrors=(server.url,))
    message = str(caught.value)
    assert f"there is no file {folder / 'a3a' / 'a3a'}" in message
    assert f"Put a3a/a3a there ({_CHECKSUMS['a3a']}, from {server.url}/a3a)" in message
    assert "unset LSMCMC_DATA to download it" in message
    assert server.requests == []


@pytest.mark.parametrize("wrong", [CONTENT[:-1], b"", CONTENT[:-1] + b"X"], ids=["truncated", "empty", "corrupted"])
def test_a_wrong_file_in_the_folder_is_an_error_with_both_checksums(folder, serve, wrong):
    server = serve()
    (folder / "small").mkdir()
    (folder / "small" / "rows").write_bytes(wrong)
    with pytest.raises(ValueError, match="is not the published small/rows") as caught:
        fetch(published(server.publish(CONTENT)))
    message = str(caught.value)
    assert message.startswith(str(folder / "small" / "rows"))
    assert f"{len(wrong):,} bytes with checksum {sha256(wrong)}, it should be {sha256(CONTENT)}" in message
    assert f"Replace it by the file from {server.url}/rows" in message
    assert server.requests == []
    assert (folder / "small" / "rows").read_bytes() == wrong  # the user's file is left alone


def test_mnist_unzipped_by_the_user_is_the_same(mnist, mnist_folder, folder):
    (folder / "mnist").mkdir()
    for name in _mnist._CHECKSUMS:
        content = gzip.decompress((mnist_folder / "mnist" / f"{name}.gz").read_bytes())
        (folder / "mnist" / name).write_bytes(content)
    again = ls.data.mnist(mirrors=())
    for found, expected in zip([*again.train, *again.test], [*mnist.train, *mnist.test], strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["rows.gz", "rows"])
@pytest.mark.parametrize("level", [0, 9])
def test_a_zipped_file_is_known_by_its_content_however_it_was_zipped_or_unzipped(folder, name, level):
    content = gzip.decompress(ZIPPED)
    (folder / "small").mkdir()
    for stored in (content, gzip.compress(content, level)):
        (folder / "small" / name).write_bytes(stored)
        assert fetch(published_zipped()) == content


def test_a_missing_mnist_file_is_an_error_that_says_which_file_goes_where(folder):
    with pytest.raises(FileNotFoundError) as caught:
        ls.data.mnist()
    message, name = str(caught.value), "train-images-idx3-ubyte"
    assert f"there is no file {folder / 'mnist' / name}.gz. " in message
    assert f"Put mnist/{name}.gz or, unzipped, mnist/{name} there ({_mnist._CHECKSUMS[name]} of the unzipped" in message
    assert f"from {' or '.join(f'{mirror}/{name}.gz' for mirror in _mnist._MIRRORS)})" in message


@pytest.mark.parametrize(
    "wrong",
    [
        ZIPPED[: len(ZIPPED) // 2],
        ZIPPED[: len(ZIPPED) // 2] + b"\x55" * 1000 + ZIPPED[len(ZIPPED) // 2 + 1000 :],
        ZIPPED[:5],
        gzip.compress(CONTENT),
    ],
    ids=["truncated", "corrupted", "a header alone", "another content"],
)
def test_a_wrong_zipped_file_is_an_error_with_both_checksums(folder, wrong):
    (folder / "small").mkdir()
    (folder / "small" / "rows.gz").write_bytes(wrong)
    with pytest.raises(ValueError, match=r"is not the published small/rows\.gz") as caught:
        fetch(published_zipped())
    found = re.search(
        r"([\d,]+) unzipped bytes with checksum (sha256:\w+), it should be (sha256:\w+)", str(caught.value)
    )
    content = gzip.decompress(ZIPPED)
    assert found
    assert found[3] == sha256(content) != found[2]
    assert int(found[1].replace(",", "")) <= max(len(content), len(CONTENT))


def test_a_zipped_file_that_lacks_its_last_bytes_alone_has_the_right_content(folder):
    (folder / "small").mkdir()
    (folder / "small" / "rows.gz").write_bytes(ZIPPED[:-8])  # gzip's own checksum and length
    assert fetch(published_zipped()) == gzip.decompress(ZIPPED)


# The download


def test_mnist_is_downloaded_from_a_mirror_and_then_read_from_the_cache(mnist, mnist_folder, cache, serve):
    server = serve()
    for name in _mnist._CHECKSUMS:
        server.publish((mnist_folder / "mnist" / f"{name}.gz").read_bytes(), f"{name}.gz")
    for _ in range(2):
        data = ls.data.mnist(mirrors=[server.url])
        np.testing.assert_array_equal(data.test[0], mnist.test[0])
        np.testing.assert_array_equal(data.train[1], mnist.train[1])
    assert sorted(server.requests) == sorted(f"/{name}.gz" for name in _mnist._CHECKSUMS)
    assert files_below(cache / "mnist") == sorted(Path(f"{name}.gz") for name in _mnist._CHECKSUMS)


@pytest.mark.parametrize("handler", [Files, Transparent], ids=["zipped", "unzipped on the way"])
def test_a_zipped_file_is_downloaded_whether_or_not_it_is_unzipped_on_the_way(cache, serve, handler):
    server = serve(handler)
    file = published_zipped(server.publish(ZIPPED, "rows.gz"))
    for _ in range(2):
        assert fetch(file) == gzip.decompress(ZIPPED)
    assert server.requests == ["/rows.gz"]
    assert files_below(cache) == [Path("small"), Path("small/rows.gz")]


def test_the_second_mirror_serves_where_the_first_sends_a_truncated_or_wrong_zipped_file(cache, serve):
    half, other, right = serve(), serve(), serve()
    file = published_zipped(
        half.publish(ZIPPED[: len(ZIPPED) // 2], "rows.gz"),
        other.publish(gzip.compress(CONTENT), "rows.gz"),
        right.publish(ZIPPED, "rows.gz"),
    )
    assert fetch(file) == gzip.decompress(ZIPPED)
    assert [server.requests for server in (half, other, right)] == [["/rows.gz"]] * 3


def test_an_unzipped_copy_in_the_cache_is_read_without_touching_the_server(cache, serve):
    server = serve()
    (cache / "small").mkdir(parents=True)
    (cache / "small" / "rows").write_bytes(gzip.decompress(ZIPPED))
    assert fetch(published_zipped(f"{server.url}/rows.gz")) == gzip.decompress(ZIPPED)
    assert server.requests == []


def test_without_a_network_mnist_names_its_first_file_and_where_to_put_it(cache, unreachable):
    with pytest.raises(ConnectionError) as caught:
        ls.data.mnist(mirrors=(unreachable, unreachable))
    message, name = str(caught.value), "train-images-idx3-ubyte"
    assert message.startswith(f"Could not download mnist/{name}.gz:\n  {unreachable}/{name}.gz: ")
    assert f"put the file at {cache / 'mnist' / name}.gz, or put it at mnist/{name}.gz or, unzipped, mnist/" in message
    assert f"({_mnist._CHECKSUMS[name]} of the unzipped content)" in message


class Terminal(io.StringIO):
    """Somebody is watching."""

    def isatty(self):
        return True


@pytest.mark.parametrize("handler", [Files, Transparent], ids=["zipped", "unzipped on the way"])
def test_a_long_download_shows_a_bar_on_a_terminal(cache, serve, monkeypatch, handler):
    monkeypatch.setattr(progress, "_QUIET_SECONDS", -1.0)
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "100")
    fetch(published_zipped(serve(handler).publish(ZIPPED, "rows.gz")))
    shown = sys.stderr.getvalue()
    assert "downloading small/rows.gz" in shown
    assert f"{len(ZIPPED) / 1000:.1f}" in shown
    assert "kB" in shown


def test_a_short_download_shows_no_bar_on_a_terminal(cache, serve, monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    fetch(published(serve().publish(CONTENT)))
    assert sys.stderr.getvalue() == ""


def test_a3a_is_downloaded_from_a_mirror_and_then_read_from_the_cache(a3a, a3a_folder, cache, serve):
    server = serve()
    for name in _CHECKSUMS:
        server.publish((a3a_folder / "a3a" / name).read_bytes(), name)
    for _ in range(2):
        data = ls.data.a3a(mirrors=(f"{server.url}/",))
        np.testing.assert_array_equal(data.train[0], a3a.train[0])
        np.testing.assert_array_equal(data.test[1], a3a.test[1])
    assert server.requests == ["/a3a", "/a3a.t"]
    assert files_below(cache) == [Path("a3a"), Path("a3a/a3a"), Path("a3a/a3a.t")]


def test_a_download_is_cached_under_its_name_and_nothing_else_is_left(cache, serve):
    assert fetch(published(serve().publish(CONTENT))) == CONTENT
    assert files_below(cache) == [Path("small"), Path("small/rows")]
    assert (cache / "small" / "rows").read_bytes() == CONTENT


def test_a_cached_file_is_read_without_touching_the_server(cache, serve):
    server = serve()
    file = published(server.publish(CONTENT))
    fetch(file)
    assert fetch(file) == CONTENT
    assert server.requests == ["/rows"]


def test_an_empty_LSMCMC_DATA_counts_as_unset(cache, serve, monkeypatch):
    monkeypatch.setenv("LSMCMC_DATA", "")
    assert fetch(published(serve().publish(CONTENT))) == CONTENT


def test_without_LSMCMC_CACHE_the_cache_is_the_one_of_the_system(tmp_path, cache, serve, monkeypatch):
    monkeypatch.delenv("LSMCMC_CACHE")
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "system" / project)
    fetch(published(serve().publish(CONTENT)))
    assert (tmp_path / "system" / "lsmcmc" / "small" / "rows").read_bytes() == CONTENT


def test_mirrors_are_tried_in_order_until_one_has_the_right_content(cache, serve, unreachable):
    wrong, right, spare = serve(), serve(), serve()
    missing = f"{right.url}/nowhere"
    file = published(unreachable, wrong.publish(b"a page in the way"), missing, right.publish(CONTENT), spare.url)
    assert fetch(file) == CONTENT
    assert (wrong.requests, right.requests, spare.requests) == (["/rows"], ["/nowhere", "/rows"], [])


def test_when_every_mirror_fails_the_error_has_each_reason_and_says_where_to_put_the_file(cache, serve, unreachable):
    wrong = serve().publish(CONTENT[:-1])
    missing = f"{serve().url}/nowhere"
    cut_off = serve(CutOff).publish(CONTENT)
    with pytest.raises(ConnectionError) as caught:
        fetch(published(unreachable, missing, wrong, cut_off))
    first, *reasons, advice = str(caught.value).splitlines()
    assert first == "Could not download small/rows:"
    for reason, url, words in zip(
        reasons,
        [unreachable, missing, wrong, cut_off],
        ["refused", "404", f"checksum {sha256(CONTENT[:-1])}, it should be {sha256(CONTENT)}", "IncompleteRead"],
        strict=True,
    ):
        assert reason.startswith(f"  {url}: ")
        assert words in reason
    assert f"put the file at {cache / 'small' / 'rows'}, or put it at small/rows in a folder of your own" in advice
    assert f"set LSMCMC_DATA to that folder ({sha256(CONTENT)})" in advice


def test_a_failed_download_leaves_no_file_behind(cache, serve, unreachable):
    file = published(unreachable, serve().publish(CONTENT[:-1]), serve(CutOff).publish(CONTENT))
    with pytest.raises(ConnectionError):
        fetch(file)
    assert files_below(cache) == [Path("small")]


def test_the_file_put_where_the_error_says_is_read(cache, unreachable):
    with pytest.raises(ConnectionError, match="Without a network put the file at"):
        fetch(published(unreachable))
    (cache / "small" / "rows").write_bytes(CONTENT)
    assert fetch(published(unreachable)) == CONTENT


def test_without_a_network_a3a_names_its_first_file_and_where_to_put_it(cache, unreachable):
    with pytest.raises(ConnectionError) as caught:
        ls.data.a3a(mirrors=(unreachable,))
    message = str(caught.value)
    assert "Could not download a3a/a3a:" in message
    assert f"put the file at {cache / 'a3a' / 'a3a'}, " in message
    assert _CHECKSUMS["a3a"] in message


def test_a_corrupt_file_in_the_cache_is_downloaded_again(cache, serve):
    server = serve()
    (cache / "small").mkdir(parents=True)
    (cache / "small" / "rows").write_bytes(CONTENT[:1000])
    assert fetch(published(server.publish(CONTENT))) == CONTENT
    assert (cache / "small" / "rows").read_bytes() == CONTENT
    assert server.requests == ["/rows"]


def test_a_corrupt_file_in_the_cache_that_cannot_be_replaced_is_an_error_with_both_checksums(cache, unreachable):
    (cache / "small").mkdir(parents=True)
    path = cache / "small" / "rows"
    path.write_bytes(CONTENT[:1000])
    with pytest.raises(ConnectionError) as caught:
        fetch(published(unreachable))
    assert f"{path} is not the published small/rows" in str(caught.value)
    assert f"checksum {sha256(CONTENT[:1000])}, it should be {sha256(CONTENT)}" in str(caught.value)


def test_a_cache_that_cannot_be_written_is_an_error_that_names_the_variable_that_moves_it(cache, serve):
    cache.write_text("a file where the folder should be")
    with pytest.raises(ConnectionError, match="LSMCMC_CACHE moves the cache") as caught:
        fetch(published(serve().publish(CONTENT)))
    assert str(cache) in str(caught.value).splitlines()[1]


def test_a_file_has_its_name_only_when_it_is_complete(cache, serve):
    server = serve(Halting)
    with ThreadPoolExecutor(1) as pool:
        download = pool.submit(fetch, published(server.publish(CONTENT)))
        assert server.half_sent.wait(30)
        halfway = (cache / "small" / "rows").exists()
        server.go_on.set()
        assert download.result(30) == CONTENT
    assert not halfway
    assert (cache / "small" / "rows").read_bytes() == CONTENT


def test_downloads_at_the_same_time_do_not_disturb_each_other(cache, serve):
    file = published(serve().publish(CONTENT))
    with ThreadPoolExecutor(8) as pool:
        contents = list(pool.map(lambda _: fetch(file), range(8)))
    assert contents == [CONTENT] * 8
    assert files_below(cache) == [Path("small"), Path("small/rows")]


def test_a_download_prints_and_logs_nothing(cache, serve, monkeypatch, capfd, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(pooch.get_logger(), "handlers", [caplog.handler])  # this logger stands outside the root's
    fetch(published(serve().publish(CONTENT)))
    assert tuple(capfd.readouterr()) == ("", "")
    assert caplog.records == []


@pytest.mark.parametrize("load", [ls.data.a3a, ls.data.mnist])
def test_mirrors_given_as_one_string_are_refused(cache, load):
    with pytest.raises(TypeError, match=r"mirrors must be a tuple .* Write \('http://127.0.0.1/',\)"):
        load(mirrors="http://127.0.0.1/")


# The format


def test_libsvm_rows_become_dense_features_and_labels():
    X, y = parse_libsvm(b"-1 1:1 3:.5 \n+1\t4:1e2  2:-3.\r\n0.25\n", 3, "rows")
    np.testing.assert_array_equal(X, np.array([[1, 0, 0.5], [0, -3, 0], [0, 0, 0]], np.float32))
    np.testing.assert_array_equal(y, np.array([-1, 1, 0.25], np.float32))
    assert X.dtype == y.dtype == np.float32


def test_an_empty_libsvm_file_has_no_rows():
    X, y = parse_libsvm(b"", 3, "rows")
    assert (X.shape, y.shape) == ((0, 3), (0,))


@pytest.mark.parametrize(
    "row",
    [
        "",
        "1:1 2:1",
        "-1 0:1",
        "-1 -2:1",
        "-1 1.5:1",
        "-1 2",
        "-1 2:",
        "-1 2:x",
        "-1 2:1:1",
        "-1 2: 1",
        "-1,2:1",
        "one 2:1",
    ],
)
def test_a_malformed_libsvm_row_is_an_error_that_names_the_file_and_the_row(row):
    content = f"-1 3:1 11:1\n+1 4:1\n{row}\n-1 1:1\n"
    with pytest.raises(ValueError, match="is not a LIBSVM row") as caught:
        parse_libsvm(content.encode(), 122, "a3a/a3a")
    assert str(caught.value).startswith(f"a3a/a3a, row 3: {row!r} is not")
    assert "'-1 3:1 11:0.5'" in str(caught.value)


HEADER = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3])  # unsigned bytes, 2 × 1 × 3


def test_idx_bytes_become_an_array_of_the_shape_in_the_header():
    array = parse_idx(HEADER + bytes([1, 2, 3, 253, 254, 255]), 3, "images")
    np.testing.assert_array_equal(array, np.array([[[1, 2, 3]], [[253, 254, 255]]], np.uint8), strict=True)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "nothing"),
        (HEADER[:10], "00 00 08 03 00 00 00 02 00 00"),
        (HEADER[:2] + b"\x0d" + HEADER[3:], "00 00 0d 03 00 00 00 02"),  # floats
        (HEADER[:3] + b"\x01" + HEADER[4:], "00 00 08 01 00 00 00 02"),  # another number of axes
        (b"<!DOCTYPE html>", "3c 21 44 4f"),
    ],
    ids=["empty", "cut off", "floats", "labels", "a web page"],
)
def test_a_wrong_idx_header_is_an_error_that_names_the_file_and_shows_both(content, found):
    with pytest.raises(ValueError, match="images is not an IDX file of unsigned bytes with 3 axes") as caught:
        parse_idx(content, 3, "images")
    assert "it should start with 00 00 08 03 and 3 lengths of 4 bytes" in str(caught.value)
    assert f"and starts with {found}" in str(caught.value)


@pytest.mark.parametrize("num_bytes", [5, 7])
def test_an_idx_file_of_another_length_than_its_header_says_is_an_error(num_bytes):
    with pytest.raises(ValueError, match=rf"images is an IDX file of shape \(2, 1, 3\), .* 6 bytes .* has {num_bytes}"):
        parse_idx(HEADER + bytes(num_bytes), 3, "images")
