"""Runs with a folder go on where they stopped to the last bit, are read by others, and refuse to be another run."""

import json
import shutil
import signal
import warnings
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray
from registry import SAMPLERS, logistic_regression

import lsmcmc as ls
from lsmcmc.runs import checkpoint, files, saving
from lsmcmc.runs.structure import to_host

START = {"w": jnp.zeros((2, 2)), "b": jnp.array(0.5)}
TARGET = ls.Target(lambda x: -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(x)))
OPTIONS = {"chains": 2, "seed": 3, "burn_in": 3, "thin": 2}
POSTERIOR, ROWS, LABELS = logistic_regression()


def run(path=None, num_draws=12, target=TARGET, start=START, sampler=ls.sgld(0.1), **options):
    return ls.sample(sampler, target, start, num_draws=num_draws, path=path, **{**OPTIONS, **options})


def equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def same(a, b):
    """Two runs, in everything that a run is but time."""
    states = (jax.tree.map(lambda leaf: to_host(leaf)[1], r.state) for r in (a, b))
    assert (a.num_draws, a.num_steps, a.thin, a.num_chains) == (b.num_draws, b.num_steps, b.thin, b.num_chains)
    return equal(*states) and equal(
        *((r.draws, r.step_sizes, r.statistics, *([] if r.draws is not None else r._moments(False))) for r in (a, b))
    )


@pytest.mark.parametrize("name", ["ls_psgld", "sgnht per leaf", "resampled sghmc", "replicas"])
@pytest.mark.parametrize("keep", [None, "moments"])
def test_a_run_that_is_extended_is_the_run_that_was_longer(tmp_path, name, keep):
    options = {"target": POSTERIOR, "start": jnp.zeros(6), "sampler": SAMPLERS[name](), "batch_size": 4, "keep": keep}
    whole = run(num_draws=20, **options)
    for num_draws in (1, 7, 20):
        longer = run(tmp_path / "run", num_draws, **options)
    assert same(longer, whole)
    assert same(run(tmp_path / "run", 20, **options), whole)  # it is there already
    assert same(ls.load(tmp_path / "run"), whole)


@pytest.mark.parametrize("keep", ["last", ls.Moments(lambda x, a: a * x["b"], 2.0, weighted=True), ls.Moments(rank=3)])
def test_every_kind_of_keeping_goes_on(tmp_path, keep):
    whole = run(num_draws=20, keep=keep)
    for num_draws in (1, 9, 20):
        longer = run(tmp_path, num_draws, keep=keep)
    loaded = ls.load(tmp_path)
    for kept in (longer, loaded):
        assert equal((kept.draws, kept.step_sizes), (whole.draws, whole.step_sizes))
        if keep != "last":
            weighted = keep.weighted
            assert equal(
                (kept.mean(weighted), kept.variance(weighted)), (whole.mean(weighted), whole.variance(weighted))
            )
    if keep != "last" and keep.rank:
        assert equal(longer.covariance(), whole.covariance())
        assert equal(loaded.covariance(), whole.covariance())


def test_a_run_longer_than_a_chunk_is_the_same_in_memory_and_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("lsmcmc.runs.store._MOST_DRAWS", 16)
    sampler = ls.sgld(optax.exponential_decay(0.2, 100, 0.5))
    whole = run(num_draws=100, sampler=sampler, chunk=37)
    for num_draws in (16, 17, 50, 100):
        kept = run(tmp_path / "run", num_draws, sampler=sampler, chunk=37)
    assert same(kept, whole)
    assert len(list((tmp_path / "run/draws.zarr/posterior/b/c/0").iterdir())) == 7
    opened = xarray.open_zarr(kept.store)
    assert opened["w"].dims == ("chain", "draw", "w_dim_0", "w_dim_1")
    np.testing.assert_array_equal(opened["w"], whole.draws["w"])
    np.testing.assert_array_equal(opened["draw"], np.arange(100))
    np.testing.assert_array_equal(opened["chain"], [0, 1])


class Counted(ls.Overdamped):
    """With statistics of every type that draws may have."""

    def init(self, position, key, temperature):
        return jnp.zeros((), jnp.int32), key

    def move(self, state, oracle, noise, step_size, temperature):
        return super().move((), oracle, noise, step_size, temperature)[0], (state[0] + 1, state[1])

    def statistics(self, state):
        return {"odd": state[0] % 2 == 1, "count": state[0], "half": state[0].astype(jnp.bfloat16) / 4}


def test_statistics_and_what_a_function_keeps_are_on_disk_in_their_dtypes(tmp_path):
    def keep(x):
        return {"a/b": x["b"] > 0, "chain": [x["w"].astype(jnp.bfloat16), (x["b"].astype(jnp.float16),)], "none": None}

    options = {"sampler": ls.Sampler(0.1, Counted()), "keep": keep}
    whole, kept = run(**options), run(tmp_path, **options)
    assert same(kept, whole)
    assert same(ls.load(tmp_path), whole)
    assert ls.load(tmp_path).draws["chain"][0].dtype == jnp.bfloat16
    opened = xarray.open_zarr(kept.store)
    assert sorted(opened.data_vars) == ["a_b", "chain.0", "chain.1.0"]
    np.testing.assert_array_equal(opened["chain.0"], whole.draws["chain"][0].astype(np.float32))
    statistics = xarray.open_datatree(tmp_path / "draws.zarr", engine="zarr", chunks=None)["sample_stats"]
    np.testing.assert_array_equal(statistics["odd"], whole.statistics["odd"])
    np.testing.assert_array_equal(statistics["step_size"], whole.step_sizes)


def test_any_names_have_arrays_of_their_own(tmp_path):
    names = ["chain", "draw", "zarr.json", "", "..", "__x", "a/b", "a_b", "σ", "x" * 300]
    start = {name: jnp.full(2, float(i)) for i, name in enumerate(names)}
    whole, kept = run(start=start), run(tmp_path, start=start)
    assert equal(kept.draws, whole.draws)
    assert equal(ls.load(tmp_path).draws, whole.draws)
    opened = xarray.open_zarr(kept.store)
    assert len(opened.data_vars) == len(names)
    np.testing.assert_array_equal(opened["chain_"], whole.draws["chain"])
    np.testing.assert_array_equal(opened["σ"], whole.draws["σ"])


def test_arviz_reads_the_store(tmp_path):
    from lsmcmc.diagnostics._arrays import load_arviz

    kept = run(tmp_path)
    tree = xarray.open_datatree(tmp_path / "draws.zarr", engine="zarr", chunks=None)
    data = load_arviz().InferenceData.from_datatree(tree)
    np.testing.assert_array_equal(data.posterior["w"], kept.draws["w"])


class Table(NamedTuple):
    """What a dynamics may carry."""

    rows: dict
    seen: list


class Remembering(ls.Overdamped):
    """With a state of several kinds of nodes and dtypes, on which the next step depends."""

    def init(self, position, key, temperature):
        half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), position)
        return Table({"half": half, "count": jnp.arange(4, dtype=jnp.uint8)}, [key, None, ls.Info(jnp.array(True), ())])

    def move(self, state, oracle, noise, step_size, temperature):
        displacement, _ = super().move((), oracle, noise, step_size, temperature)
        key, _, info = state.seen
        key = jax.random.fold_in(key, jnp.sum(state.rows["count"]))
        kick = jax.random.normal(key) * 0.1
        half = jax.tree.map(lambda h, d: (h + d.astype(h.dtype)) / 2, state.rows["half"], displacement)
        moved = jax.tree.map(lambda d, h: d + kick.astype(d.dtype) + h.astype(d.dtype), displacement, half)
        return moved, Table({"half": half, "count": state.rows["count"] + 1}, [key, None, ls.Info(~info.gradient, ())])


class Averaged(ls.Minibatch):
    """With a table of a gradient for each row, as SAGA has, and the mean of it as the estimate."""

    def init(self, target, position):
        return {"table": jax.tree.map(lambda leaf: jnp.zeros((target.num_examples, *leaf.shape)), position)}

    def estimate(self, target, state, batch, position):
        new = jax.grad(lambda x: self.potential(target, state, batch, x))(position)
        row = (jnp.sum(jnp.abs(position)) * 7).astype(jnp.int32) % target.num_examples
        table = jax.tree.map(lambda t, g: t.at[row].set(g), state["table"], new)
        return jax.tree.map(lambda t, g: (t.mean(0) + g) / 2, table, new), {"table": table}


def test_any_pytree_that_pieces_remember_goes_on(tmp_path):
    """And what depends on it too: the control starts again with the memory that it had at first."""
    options = {"target": POSTERIOR, "start": jnp.zeros(6), "gradient": Averaged(4), "burn_in": 0}
    options["sampler"] = ls.Sampler(0.01, Remembering())
    whole = run(num_draws=12, **options)
    for num_draws in (1, 5, 12):
        longer = run(tmp_path, num_draws, **options)
    assert same(longer, whole)
    first = run(num_draws=5, **options)
    fresh = run(num_draws=1, **options).state
    for forgotten in (lambda carry: carry.estimator, lambda carry: carry.sampler.dynamics):
        begun = eqx.tree_at(forgotten, first.state, forgotten(fresh))
        rest = ls.sample(options["sampler"], POSTERIOR, state=begun, gradient=Averaged(4), num_draws=7, thin=2)
        assert not equal(rest.draws, whole.draws[:, 5:])


class Line(eqx.Module):
    """A position of a class of one's own."""

    slope: jax.Array
    at_zero: jax.Array


@pytest.mark.parametrize("keep", [None, "last", ls.Moments(rank=2)])
def test_a_position_of_ones_own_class_stays_one_and_is_loaded_as_a_dict(tmp_path, keep):
    options = {"start": Line(jnp.zeros(3), jnp.ones(())), "keep": keep}
    whole = run(num_draws=12, **options)
    run(tmp_path, 5, **options)
    longer, loaded = run(tmp_path, 12, **options), ls.load(tmp_path)
    assert equal(longer.state.sampler.position, whole.state.sampler.position)
    assert set(loaded.state.sampler.position) == {"slope", "at_zero"}
    if keep in (None, "last"):
        assert equal(longer.draws, whole.draws)
        np.testing.assert_array_equal(loaded.draws["slope"], whole.draws.slope)
    else:
        assert equal(longer.covariance(), whole.covariance())
        np.testing.assert_array_equal(loaded.covariance().variance["slope"], whole.covariance().variance.slope)


def test_a_loaded_state_has_the_classes_of_the_library_and_dicts_for_others(tmp_path):
    run(tmp_path, 2, sampler=ls.Sampler(0.1, Remembering()), start={"b": jnp.zeros(2)})
    state = ls.load(tmp_path).state
    assert type(state.sampler) is ls.State
    assert type(state.sampler.dynamics) is dict
    assert set(state.sampler.dynamics) == {"rows", "seen"}
    assert type(state.sampler.dynamics["seen"][2]) is ls.Info
    assert jnp.issubdtype(state.sampler.dynamics["seen"][0].dtype, jax.dtypes.prng_key)


def interrupted(monkeypatch, after):
    """Ctrl-C after so many compiled calls."""
    honest, calls = saving._Saved.called, []

    def called(self, chains):
        honest(self, chains)
        calls.append(1)
        if len(calls) == after:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(saving._Saved, "called", called)


def test_a_run_in_cycles_goes_on_within_one_and_cannot_be_made_longer(tmp_path, monkeypatch):
    options = {"sampler": ls.cyclical(ls.sgld(0.5), num_cycles=3, exploration=0.5), "chunk": 7}
    whole = run(num_draws=12, **options)
    with monkeypatch.context() as patch:
        interrupted(patch, after=3)
        with pytest.raises(KeyboardInterrupt) as e:
            run(tmp_path, 12, **options)
    assert e.value.run.num_steps == 21
    assert any(f"{e.value.run.num_draws} draws are saved in {tmp_path}" in note for note in e.value.__notes__)
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["status"] == "stopped"
    assert same(run(tmp_path, 12, **options), whole)
    with pytest.raises(
        ValueError, match=r"num_draws: 12 in the folder, 24 now\n  \(the cycles of ls\.cyclical are as long"
    ):
        run(tmp_path, 24, **options)
    other = {**options, "sampler": ls.cyclical(ls.sgld(0.5), num_cycles=2, exploration=0.5)}
    with pytest.raises(ValueError, match=r"timetable\.num_cycles: 3 in the folder, 2 now"):
        run(tmp_path, 12, **other)


def streamed(path, scale=1.0):
    """The rows of POSTERIOR, read from files while the run is made."""
    rows = {"X": np.asarray(scale * ROWS, np.float32), "y": np.asarray(LABELS, np.float32)}
    for name, array in rows.items():
        np.save(path / f"{name}.npy", array)
    stream = ls.data.stream((path / "X.npy", path / "y.npy"), num_examples=40)
    return ls.Posterior(POSTERIOR.log_likelihood, POSTERIOR.log_prior, stream)


def test_streamed_data_go_on_where_they_were_read_and_are_told_from_others(tmp_path):
    options = {"start": jnp.zeros(6), "gradient": ls.Minibatch(4, "blocks", block=8, window=16)}
    target, path = streamed(tmp_path), tmp_path / "run"
    whole = run(num_draws=20, target=POSTERIOR, **options)
    for num_draws in (3, 11, 20):
        longer = run(path, num_draws, target=target, **options)
    assert same(longer, whole)
    with pytest.raises(ValueError, match=r"data\.sha256 of 40 rows: \w+ in the folder, \w+ now"):
        run(path, 20, target=streamed(tmp_path, 2.0), **options)


def test_a_run_in_64_bits_is_one_in_64_bits(tmp_path, x64):
    start = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), START)
    whole = run(num_draws=9, start=start)
    run(tmp_path, 4, start=start)
    assert same(run(tmp_path, 9, start=start), whole)
    with jax.enable_x64(False):
        loaded = ls.load(tmp_path)
        assert loaded.draws["w"].dtype == np.float64
        assert equal(loaded.draws, whole.draws)
        with pytest.raises(ValueError, match="float: float64 in the folder, float32 now"):
            run(tmp_path, 9)


def test_a_run_from_a_state_goes_on_in_its_own_folder(tmp_path):
    whole, first = run(num_draws=10, burn_in=0), run(tmp_path / "a", 4, burn_in=0)
    options = {"num_draws": 6, "thin": 2}
    second = ls.sample(ls.sgld(0.1), TARGET, state=ls.load(tmp_path / "a").state, path=tmp_path / "b", **options)
    assert equal(whole.draws, jax.tree.map(lambda a, b: np.concatenate([a, b], 1), first.draws, second.draws))
    again = ls.sample(ls.sgld(0.1), TARGET, state=first.state, path=tmp_path / "b", **options)
    assert same(again, second)


def test_a_run_of_a_part_of_a_position_predicts_with_the_whole_after_loading(tmp_path):
    options = {"trainable": {"w": False, "b": True}, "start": {**START, "w": jnp.ones((2, 2))}}
    kept = run(tmp_path, **options)
    loaded = ls.load(tmp_path)
    assert loaded.draws["w"] is None
    for r in (kept, loaded):
        np.testing.assert_allclose(r.predict(lambda x: x["w"].sum() + x["b"]), 4 + kept.draws["b"].mean(), rtol=1e-6)


def test_a_loaded_run_does_what_needs_no_model_and_says_what_does(tmp_path):
    data = {"target": POSTERIOR, "start": jnp.zeros(6), "batch_size": 4}
    kept = run(tmp_path, **data)
    loaded = ls.load(tmp_path)
    assert loaded.summary().equals(kept.summary())
    np.testing.assert_array_equal(loaded.mean(), kept.mean())
    np.testing.assert_array_equal(loaded.predict(lambda x: x**2), kept.predict(lambda x: x**2))
    np.testing.assert_array_equal(loaded.to_arviz()["posterior"]["x"], kept.draws)
    with pytest.raises(ValueError, match=r"needs the model, and this run was loaded without it\. The ls\.sample"):
        loaded.to_arviz(log_likelihood=True)
    again = run(tmp_path, **data)
    assert again.to_arviz(log_likelihood=True)["log_likelihood"]["y"].shape == (2, 12, 40)


def posterior(scale=1.0, rows=ROWS):
    def log_likelihood(x, batch):
        return scale * jax.nn.log_sigmoid(batch[1] * (batch[0] @ x))

    return ls.Posterior(log_likelihood, lambda x: -0.5 * jnp.sum(x**2), (rows, LABELS))


DIFFERENT = {
    r"sampler\.preconditioner\.smoothers\.sigma: 1\.0 in the folder, 2\.0 now": {"sampler": ls.ls_sgld(0.1, sigma=2.0)},
    r"sampler\.preconditioner: Laplacian in the folder, Identity now": {"sampler": ls.sgld(0.1)},
    r"sampler\.dynamics: Overdamped in the folder, BAOAB now": {"sampler": ls.baoab(0.1, friction=1.0)},
    r"step_size: 0\.1 in the folder, 0\.2 now": {"sampler": ls.ls_sgld(0.2)},
    r"step_size: 0\.1 in the folder, a schedule from 0\.1 to 0\.0\d* \[": {
        "sampler": ls.ls_sgld(optax.exponential_decay(0.1, 10, 0.5))
    },
    r"temperature: 1\.0 in the folder, 0\.5 now": {"sampler": ls.ls_sgld(0.1, temperature=0.5)},
    r"model: \w+ in the folder, \w+ now": {"target": posterior(0.5)},
    r"data\[0\]: float32\[40, 6\] \w+ in the folder": {"target": posterior(rows=ROWS + np.eye(40, 6))},
    r"seed: 3 in the folder, 4 now": {"seed": 4},
    r"chains: 2 in the folder, 3 now": {"chains": 3},
    r"thin: 2 in the folder, 1 now": {"thin": 1},
    r"burn_in: 3 in the folder, 2 now": {"burn_in": 2},
    r"position: float32\[6\] \w+ in the folder": {"start": jnp.ones(6)},
    r"position: .* in the folder, nothing now\n.*init: nothing in the folder": {
        "start": None,
        "init": lambda key: jax.random.normal(key, (6,)),
    },
    r"keep\.fn: ": {"keep": lambda x: 2 * x},
    r"keep: draws in the folder, moments now": {"keep": "moments"},
    r"gradient\.batch_size: 4 in the folder, 5 now": {"batch_size": 5},
    r"gradient\.scheme: iid in the folder, epochs now": {"batch_size": None, "gradient": ls.Minibatch(4, "epochs")},
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    path = tmp_path_factory.mktemp("begun")
    run(path, 4, **BEGUN)
    return path


BEGUN = {"target": posterior(), "start": jnp.zeros(6), "sampler": ls.ls_sgld(0.1), "batch_size": 4}


@pytest.mark.parametrize("what", DIFFERENT)
def test_another_configuration_is_refused_with_the_difference_named(begun, what):
    before = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=f"holds a run of other settings:\n(.*\n)*  ({what})"):
        run(begun, 4, **{**BEGUN, **DIFFERENT[what]})
    assert before == {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}


def test_the_same_settings_by_other_objects_are_the_same(begun):
    renamed = posterior()
    assert renamed.log_likelihood is not BEGUN["target"].log_likelihood
    run(begun, 4, **{**BEGUN, "target": renamed, "sampler": ls.ls_sgld(0.1), "start": np.zeros(6)})


def test_fewer_draws_than_there_are_is_refused(begun):
    with pytest.raises(ValueError, match=r"has 4 draws already, num_draws=3 is fewer\. Write num_draws=4 or more"):
        run(begun, 3, **BEGUN)


def test_a_version_that_draws_otherwise_is_refused(begun, monkeypatch):
    monkeypatch.setattr("lsmcmc.runs.identity.BITS", 0)
    with pytest.raises(ValueError, match="draws version: 1 in the folder, 0 now"):
        run(begun, 4, **BEGUN)


def test_a_dynamics_of_ones_own_is_told_apart_by_its_code(tmp_path):
    def made(factor):
        class Own(ls.Dynamics):
            def move(self, state, oracle, noise, step_size, temperature):
                return jax.tree.map(lambda e: factor * step_size * e, noise), state

        return ls.Sampler(0.1, Own())

    run(tmp_path, 3, sampler=made(1.0))
    run(tmp_path, 3, sampler=made(1.0))
    with pytest.raises(ValueError, match="code of a step: "):
        run(tmp_path, 3, sampler=made(2.0))


def test_a_table_of_step_sizes_is_compared_by_its_values(tmp_path):
    def table(last):
        return ls.sgld(lambda step: [0.1, 0.2, last][min(int(step), 2)])

    run(tmp_path, 3, sampler=table(0.3))
    run(tmp_path, 5, sampler=table(0.3))
    with pytest.raises(ValueError, match=r"step_size: a schedule from 0\.1 to 0\.3 .* in the folder, .* to 0\.4"):
        run(tmp_path, 5, sampler=table(0.4))


def test_what_was_run_is_written_down(begun):
    record = json.loads((begun / "run.json").read_text(encoding="utf-8"))
    assert record["format"] == 1
    assert record["lsmcmc"] == ls.__version__
    assert record["status"] == "finished"
    assert record["num_draws"] == 4
    assert record["num_steps"] == 11
    assert record["settings"]["gradient.batch_size"] == 4
    assert record["settings"]["step_size"] == 0.1
    assert record["settings"]["jax"] == jax.__version__
    assert record["seconds"] > 0
    assert {"began", "ended", "host", "python", "numpy", "devices", "git"} <= set(record["sessions"][0])


def test_a_newer_format_is_refused_with_its_version(tmp_path):
    run(tmp_path, 3)
    record = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    (tmp_path / "run.json").write_text(json.dumps({**record, "format": 2, "lsmcmc": "7.5"}), encoding="utf-8")
    for call in (lambda: run(tmp_path, 3), lambda: ls.load(tmp_path)):
        with pytest.raises(ValueError, match=r"was written by lsmcmc 7\.5 in format 2, and this version reads formats"):
            call()


def test_a_folder_without_a_run_is_not_taken_and_not_loaded(tmp_path):
    (tmp_path / "thesis.tex").write_text("…", encoding="utf-8")
    with pytest.raises(ValueError, match=r"has thesis\.tex in it and no run of lsmcmc"):
        run(tmp_path, 3)
    with pytest.raises(FileNotFoundError, match=r"there is no run in .*: it has no run\.json"):
        ls.load(tmp_path)


@pytest.fixture
def stopped(tmp_path):
    """A folder with two checkpoints, at 5 and at 12 draws."""
    run(tmp_path / "run", 5)
    run(tmp_path / "run", 12)
    first, second = checkpoint.names(tmp_path / "run/checkpoints")
    return tmp_path / "run", first, second


def truncate(path):
    path.write_bytes(path.read_bytes()[:-9])


def flip(path, place=None):
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 4
    path.write_bytes(bytes(content))


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("tear", [truncate, flip, empty])
def test_a_torn_checkpoint_falls_back_to_the_one_before_and_says_so(stopped, tear):
    path, first, second = stopped
    tear(second)
    with pytest.warns(ls.RunWarning, match=rf"{second.name} is torn.* Took the one before, {first.name}"):
        assert ls.load(path).num_draws == 5
    with pytest.warns(ls.RunWarning, match=rf"{second.name} is torn.* Took the one before, {first.name}"):
        assert same(run(path, 12), run(num_draws=12))
    assert same(ls.load(path), run(num_draws=12))


def why_refused(make, whole):
    """Nothing, when the draws that come are right."""
    try:
        draws = make().draws
    except ValueError as error:
        return str(error)
    assert equal(draws, jax.tree.map(lambda leaf: leaf[:, : len(draws["b"][0])], whole.draws))
    return ""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::lsmcmc.RunWarning")
def test_whichever_file_is_torn_a_run_is_right_or_refused(stopped, tmp_path):
    """Every file there is, in four ways each; numbers that are changed in `run.json` are other settings."""
    path, *_ = stopped
    whole, rng, torn = run(num_draws=12), np.random.default_rng(0), tmp_path / "torn"
    for file in sorted(found.relative_to(path) for found in path.rglob("*") if found.is_file()):
        for tear in (truncate, empty, Path.unlink, lambda name: flip(name, rng.integers(name.stat().st_size))):
            shutil.copytree(path, torn)
            tear(torn / file)
            for why in (why_refused(lambda: ls.load(torn), whole), why_refused(lambda: run(torn, 12), whole)):
                assert not why or (file.name == "run.json" and ("of other settings" in why or "in format" in why))
            shutil.rmtree(torn)


@pytest.mark.parametrize("tear", [truncate, empty, lambda path: path.unlink()])
def test_a_torn_record_is_taken_from_the_checkpoint(stopped, tear):
    path, *_ = stopped
    before = json.loads((path / "run.json").read_text(encoding="utf-8"))
    tear(path / "run.json")
    with pytest.warns(ls.RunWarning, match=r"run\.json is .*\. Took what the last checkpoint says of it"):
        assert same(ls.load(path), run(num_draws=12))
    with (
        pytest.warns(ls.RunWarning, match=r"run\.json is"),
        pytest.raises(ValueError, match=r"seed: 3 in the folder, 4 now"),
    ):
        run(path, 12, seed=4)
    with pytest.warns(ls.RunWarning, match=r"run\.json is"):
        assert same(run(path, 13), run(num_draws=13))
    after = json.loads((path / "run.json").read_text(encoding="utf-8"))
    assert after["settings"] == before["settings"]
    assert len(after["sessions"]) == 3


def test_without_a_record_and_a_checkpoint_the_run_is_refused(stopped):
    path, first, second = stopped
    for torn in (first, second, path / "run.json"):
        truncate(torn)
    for call in (lambda: run(path, 12), lambda: ls.load(path)):
        with pytest.raises(ValueError, match=r"run\.json is torn .* no whole checkpoint is there to say what was run"):
            call()


def test_without_a_whole_checkpoint_the_run_starts_again(stopped):
    path, first, second = stopped
    truncate(first)
    flip(second)
    with pytest.warns(ls.RunWarning, match="There is none before: the run starts again"):
        assert same(run(path, 12), run(num_draws=12))


@pytest.mark.parametrize("tear", [truncate, flip, empty, lambda path: path.unlink()])
def test_a_torn_last_chunk_is_written_again_from_the_checkpoint(stopped, tear):
    path, *_ = stopped
    chunk = path / "draws.zarr/posterior/w/c/0/0/0/0"
    tear(chunk)
    assert equal(ls.load(path).draws, run(num_draws=12).draws)
    with pytest.warns(ls.RunWarning, match=r"w/c/0/0/0/0 is .*\. Written again from the checkpoint: no draw is lost"):
        assert same(run(path, 12), run(num_draws=12))
    np.testing.assert_array_equal(xarray.open_zarr(path / "draws.zarr/posterior")["w"], run(num_draws=12).draws["w"])


def test_a_torn_chunk_and_a_torn_checkpoint_at_once_lose_nothing_but_time(stopped):
    path, _, second = stopped
    flip(second)
    truncate(path / "draws.zarr/posterior/b/c/0/0")
    with pytest.warns(ls.RunWarning) as said:
        assert same(run(path, 12), run(num_draws=12))
    assert len(said) == 2


def test_a_chunk_that_was_torn_long_ago_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("lsmcmc.runs.store._MOST_DRAWS", 4)
    kept = run(tmp_path, 12)
    flip(tmp_path / "draws.zarr/posterior/b/c/0/1")
    with pytest.raises(ValueError, match=r"b/c/0/1 is torn.* These are draws 4 to 7 of b; the others are whole"):
        _ = ls.load(tmp_path).draws
    np.testing.assert_array_equal(xarray.open_zarr(kept.store)["w"], run(num_draws=12).draws["w"])
    truncate(tmp_path / "draws.zarr/posterior/b/c/0/1")
    with pytest.raises(ValueError, match=r"b/c/0/1 is torn.*, so draws 4 to 7 are lost"):
        run(tmp_path, 20)


LARGE = {"start": jnp.zeros(1_100_000), "chains": 1, "burn_in": 0, "thin": 1, "target": TARGET}


def test_draws_larger_than_a_chunk_are_in_files_of_their_own_and_not_in_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "_MOST_WAITING", 2**23)  # so that draws are written between saves too
    whole = run(num_draws=5, **LARGE)
    kept = run(tmp_path, 5, chunk=1, **LARGE)
    assert same(kept, whole)
    assert same(ls.load(tmp_path), whole)
    assert len(list((tmp_path / "draws.zarr/posterior/x/c/0").rglob("0"))) >= 5
    state = sum(leaf.nbytes for leaf in jax.tree.leaves(whole.state.sampler))
    assert checkpoint.names(tmp_path / "checkpoints")[-1].stat().st_size < state + 10_000


@pytest.mark.parametrize("tear", [truncate, flip, lambda path: path.unlink()])
def test_a_torn_last_chunk_of_large_draws_falls_back_to_the_checkpoint_before(tmp_path, tear):
    for num_draws in (2, 4):
        run(tmp_path, num_draws, **LARGE)
    first, _ = checkpoint.names(tmp_path / "checkpoints")
    tear(tmp_path / "draws.zarr/posterior/x/c/0/3/0")
    with pytest.warns(
        ls.RunWarning, match=rf"c/0/3/0 is .*; draws 3 to 3 are made again\. Took the one before, {first.name}"
    ):
        assert same(run(tmp_path, 5, **LARGE), run(num_draws=5, **LARGE))


def test_no_pickle_is_ever_loaded(stopped):
    path, _, second = stopped

    class Bomb:
        def __reduce__(self):
            return print, ("executed",)

    import pickle

    for name in ("run.pkl", "checkpoints/000000009.pkl", "draws.zarr/posterior/.pkl"):
        (path / name).write_bytes(pickle.dumps(Bomb()))
    assert same(run(path, 12), run(num_draws=12))
    (path / "checkpoints/000000009.checkpoint").write_bytes(pickle.dumps(Bomb()))
    with pytest.warns(ls.RunWarning, match=r"000000009\.checkpoint is torn"):
        ls.load(path)
    objects = {"kind": "array", "dtype": "object", "shape": [1]}
    text = json.dumps({"parts": {"tail": {"tree": {"list": [0]}, "arrays": [objects]}}}).encode()
    parts = [b"lsmcmc checkpoint 1\n", len(text).to_bytes(8, "little"), text, bytes(8)]
    second.write_bytes(b"".join([*parts, files.checksum(*parts)]))
    (path / "checkpoints/000000009.checkpoint").unlink()
    with pytest.raises(ValueError, match=r"an array of Python objects .* is a pickle, and none is ever read"):
        ls.load(path)


def test_what_a_store_says_of_itself_is_never_followed(stopped):
    path, *_ = stopped
    described = path / "draws.zarr/posterior/w/zarr.json"
    array = json.loads(described.read_text(encoding="utf-8"))
    array["codecs"] = [{"name": "numcodecs.pickle", "configuration": {}}]
    described.write_text(json.dumps(array), encoding="utf-8")
    assert same(ls.load(path), run(num_draws=12))
    assert same(run(path, 13), run(num_draws=13))
    assert [codec["name"] for codec in json.loads(described.read_text(encoding="utf-8"))["codecs"]] == [
        "bytes",
        "crc32c",
    ]


def test_a_chain_that_diverges_leaves_the_moment_before(tmp_path):
    wall = ls.Target(lambda x: -0.5 * jnp.sum(x**2) + 1e-9 * jnp.sqrt(1.0 - x[0]))
    options = {"target": wall, "start": jnp.zeros(2), "sampler": ls.sgld(0.05), "chains": 3, "num_draws": 5_000}
    with pytest.raises(ls.DivergenceError) as memory:
        run(**options)
    with pytest.raises(ls.DivergenceError) as e:
        run(tmp_path, **options)
    assert any("draws are saved in" in note for note in e.value.__notes__)
    assert same(e.value.run, memory.value.run)
    assert same(ls.load(tmp_path), memory.value.run)
    assert np.isfinite(ls.load(tmp_path).draws).all()
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["status"] == "diverged"
    with pytest.raises(ls.DivergenceError, match=f"at step {e.value.step},"):
        run(tmp_path, **options)


def test_a_folder_can_be_moved_and_deleted(tmp_path):
    whole = run(tmp_path / "a", 5)
    shutil.move(tmp_path / "a", tmp_path / "b")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(run(tmp_path / "b", 9), run(num_draws=9))
    shutil.rmtree(tmp_path / "b")
    assert whole.num_draws == 5
