"""Runs survive what machines do to them: each fault is done for real, and the run ends as the one that met none."""

import errno
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import xarray
from fault_worker import NUM_DRAWS, run
from test_runs_on_disk import equal, same

import lsmcmc as ls
from lsmcmc.runs import checkpoint, saving

_SECONDS = 120  # after which a process is taken to hang


@pytest.fixture(scope="module")
def whole():
    """The run that met no fault."""
    return run()


@pytest.fixture(scope="module")
def processes():
    """Processes of their own, from one that has imported everything and computed nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fault_worker"])
    return context


def wait_until(what, process):
    began = time.monotonic()
    while not what():
        assert process.exitcode is None, f"it ended with {process.exitcode}"
        assert time.monotonic() - began < _SECONDS
        time.sleep(0.002)


def newest(path):
    return [found.name for found in checkpoint.names(path / "checkpoints")][-1:]


def killed_often(path, processes, times):
    """Half of the kills at any moment since the process began, half when it has just begun to save."""
    rng = np.random.default_rng(0)
    for i in range(times):
        before = newest(path)
        process = processes.Process(target=run, args=(path, NUM_DRAWS, 0.0))
        process.start()
        if i % 2:
            wait_until(lambda before=before: newest(path) != before, process)
            time.sleep(rng.uniform(0, 0.1))
        else:
            time.sleep(rng.uniform(0, 2.0))
        assert process.exitcode is None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("times", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_kill_9_at_random_moments_changes_nothing(tmp_path, processes, whole, times):
    killed_often(tmp_path, processes, times)
    made = ls.load(tmp_path)
    assert 0 < made.num_draws < NUM_DRAWS
    assert equal(made.draws, whole.draws[:, : made.num_draws])
    assert same(run(tmp_path), whole)
    assert same(ls.load(tmp_path), whole)
    np.testing.assert_array_equal(xarray.open_zarr(tmp_path / "draws.zarr/posterior")["x"], whole.draws)
    assert not list(tmp_path.glob("checkpoints/.*")), "nothing that was half written is left"


def test_a_run_is_read_while_another_process_makes_it(tmp_path, processes, whole):
    process = processes.Process(target=run, args=(tmp_path, NUM_DRAWS, 0.0))
    process.start()
    wait_until(lambda: newest(tmp_path), process)
    seen = set()
    while process.exitcode is None and len(seen) < 20:
        loaded, opened = ls.load(tmp_path), xarray.open_datatree(tmp_path / "draws.zarr", engine="zarr", chunks=None)
        for draws in (loaded.draws, opened["posterior"]["x"].to_numpy()):
            assert equal(draws, whole.draws[:, : draws.shape[1]])
        assert opened["posterior"].sizes["draw"] == opened["sample_stats"]["step_size"].size
        seen.add(loaded.num_draws)
    process.join()
    assert len(seen) > 2
    assert process.exitcode == 0
    assert same(ls.load(tmp_path), whole)


def test_a_second_process_is_refused_and_the_first_goes_on(tmp_path, processes, whole):
    process = processes.Process(target=run, args=(tmp_path, NUM_DRAWS, 0.0))
    process.start()
    wait_until(lambda: newest(tmp_path), process)
    os.kill(process.pid, signal.SIGSTOP)  # so that it is not done before it is looked at
    with pytest.raises(RuntimeError, match=rf"is being written by process {process.pid} on .*ls\.load\("):
        run(tmp_path)
    assert ls.load(tmp_path).num_draws > 0
    os.kill(process.pid, signal.SIGCONT)
    process.join()
    assert process.exitcode == 0
    assert same(run(tmp_path), whole)


@contextmanager
def mounted(path, size):
    """A small file system in memory."""
    path.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"a small file system needs the right to mount: {made.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def test_a_full_disk_is_a_clear_error_and_loses_nothing(tmp_path, whole, monkeypatch):
    monkeypatch.setattr(saving, "_EVERY", (0.0, 0.0))
    with mounted(tmp_path / "small", "4m") as small:
        run(small / "run", 100)
        ballast = small / "ballast"
        ballast.write_bytes(bytes(os.statvfs(small).f_bavail * os.statvfs(small).f_frsize - 8192))
        with pytest.raises(OSError, match=r"No space left on device: draw \d+ could not be saved in .*Free some") as e:
            run(small / "run")
        assert e.value.errno == errno.ENOSPC
        left = ls.load(small / "run")
        assert 100 <= left.num_draws < NUM_DRAWS
        assert equal(left.draws, whole.draws[:, : left.num_draws])
        opened = xarray.open_zarr(small / "run/draws.zarr/posterior")["x"].to_numpy()
        assert equal(opened, whole.draws[:, : opened.shape[1]])
        assert any(f"{left.num_draws} draws are saved in" in note for note in e.value.__notes__)
        ballast.unlink()
        assert same(run(small / "run"), whole)


def test_a_disk_that_fills_before_the_first_save_is_a_clear_error(tmp_path, whole, monkeypatch):
    monkeypatch.setattr(saving, "_EVERY", (0.0, 0.0))
    with mounted(tmp_path / "small", "64k") as small:
        with pytest.raises(OSError, match=r"No space left on device") as e:
            run(small / "run")
        assert e.value.errno == errno.ENOSPC
        subprocess.run(["mount", "-o", "remount,size=8m", small], check=True)
        assert same(run(small / "run"), whole)


def test_a_read_only_folder_is_read_and_not_written(tmp_path):
    with mounted(tmp_path / "small", "8m") as small:
        kept = run(small / "run", 20)
        subprocess.run(["mount", "-o", "remount,ro", small], check=True)
        assert same(ls.load(small / "run"), kept)
        for path in (small / "run", small / "other"):
            with pytest.raises(OSError, match=r"cannot be written \(Read-only file system\)\. ls\.load\(") as e:
                run(path, 40)
            assert e.value.errno == errno.EROFS


def test_a_path_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("…", encoding="utf-8")
    with pytest.raises(NotADirectoryError, match=r"is a file, and a run needs a folder of its own"):
        run(tmp_path / "file", 20)


def test_a_system_without_locks_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("lsmcmc.runs.lock.fcntl", None)
    with pytest.raises(RuntimeError, match=r"path= needs the file locks of Linux and macOS"):
        run(tmp_path, 20)


STOPPED = """
import os, sys
sys.path.insert(0, sys.argv[2])
from fault_worker import run
print(os.getpid(), flush=True)
run(sys.argv[1], 10**7)
"""


def stopped_by(number, path):
    """What a shell says of a script that gets a signal after its first save: exit code and error stream."""
    script = [sys.executable, "-c", STOPPED, path, Path(__file__).parent]
    shell = subprocess.Popen(
        ["sh", "-c", '"$@"; echo "exit code $?"', "sh", *script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process = int(shell.stdout.readline())
    began = time.monotonic()
    while not newest(path):
        assert shell.poll() is None, shell.stderr.read()
        assert time.monotonic() - began < _SECONDS
        time.sleep(0.01)
    os.kill(process, number)
    out, err = shell.communicate(timeout=_SECONDS)
    return int(re.search(r"exit code (\d+)", out)[1]), err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path, number, code, whole):
    found, said = stopped_by(number, tmp_path)
    assert found == code
    left = ls.load(tmp_path)
    assert f"{left.num_draws} draws are saved in {tmp_path}. The same call goes on from there" in said
    together = min(left.num_draws, NUM_DRAWS)
    assert equal(left.draws[:, :together], whole.draws[:, :together])
    longer = left.num_draws + 5
    assert same(run(tmp_path, longer), run(num_draws=longer))


def test_a_handler_of_ones_own_stays(tmp_path):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("mine"))
    try:
        run(tmp_path, 5)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == ["mine"]
    run(tmp_path, 6)
    assert signal.getsignal(signal.SIGTERM) is before
