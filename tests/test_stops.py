"""Runs that stop early, by Ctrl-C or by numbers that are not finite, hold what was drawn before and say so."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lsmcmc as ls
from lsmcmc import driver

GAUSSIAN = ls.Target(lambda x: -0.5 * jnp.sum(x**2))

INTERRUPTED = """
import os, signal, threading
import jax.numpy as jnp
import lsmcmc as ls
from lsmcmc import driver

target = ls.Target(lambda x: -0.5 * jnp.sum(x**2))
honest, seconds = driver.Cut.took, []

def took(cut, of_a_call):
    honest(cut, of_a_call)
    if sum(seconds) < 0.5 <= sum(seconds) + of_a_call:  # once, and to strike within a call
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    seconds.append(of_a_call)

driver.Cut.took = took
try:
    ls.sample(ls.sgld(0.1), target, jnp.zeros(3), num_draws=2_000_000_000, chains=2, keep="moments", burn_in=7)
except KeyboardInterrupt as error:
    run = error.run
    print(run.num_draws, run.num_steps, error.__notes__)
    print(*run.variance())
    print(int(run.state.step), run._totals.count.tolist())
"""


def test_an_interrupt_by_the_keyboard_loses_no_draw():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False, timeout=60)
    first, variance, last = done.stdout.splitlines()
    num_made, num_steps = map(int, first.split()[:2])
    assert num_made > 10_000
    assert num_steps == 7 + num_made
    assert f"{num_made} draws were made before" in first
    assert last == f"{num_steps} [{num_made}, {num_made}]"
    np.testing.assert_allclose(np.fromstring(variance, sep=" "), 1 / (1 - 0.1 / 2), rtol=0.1)


def test_an_interrupt_while_compiling_has_a_run_to_go_on_from(monkeypatch):
    def interrupted(given, sums):
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt) as e:
        ls.sample(ls.sgld(0.1), GAUSSIAN, jnp.ones(2), num_draws=5, keep="moments", chains=2)
    monkeypatch.undo()
    assert (e.value.run.num_draws, e.value.run.num_steps) == (0, 0)
    with pytest.raises(ValueError, match="stopped before its first draw"):
        e.value.run.mean()
    resumed = ls.sample(ls.sgld(0.1), GAUSSIAN, state=e.value.run.state, num_draws=5)
    np.testing.assert_array_equal(
        resumed.draws, ls.sample(ls.sgld(0.1), GAUSSIAN, jnp.ones(2), num_draws=5, chains=2).draws
    )


def test_a_schedule_that_fails_on_the_way_leaves_what_was_drawn():
    def table(step):
        return [0.1, 0.2, 0.3][int(step)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "_MOST_LOOKED_AT", 1)  # as for a run too long to look at every step before
        with pytest.raises(Exception, match="list index out of range") as e:
            ls.sample(ls.sgld(table), GAUSSIAN, jnp.ones(2), num_draws=5, chunk=1)
    assert e.value.run.step_sizes.tolist() == [0.1, 0.2, 0.3]


def wall():
    """A Gaussian but for a wall at x₀ = 1, beyond which the gradient is not a number."""
    return ls.Target(lambda x: -0.5 * jnp.sum(x**2) + 1e-9 * jnp.sqrt(1.0 - x[0]))


@pytest.mark.parametrize("chunk", [None, 10])
@pytest.mark.parametrize("thin", [1, 3])
def test_moments_of_a_diverged_run_are_those_of_its_draws(chunk, thin):
    options = {"num_draws": 5_000, "chains": 3, "burn_in": 3, "thin": thin, "chunk": chunk}
    runs = []
    for keep in (None, "moments"):
        with pytest.raises(ls.DivergenceError) as e:
            ls.sample(ls.sgld(0.05), wall(), jnp.zeros(2), keep=keep, **options)
        runs.append(e.value.run)
    stored, running = runs
    assert running.num_draws == stored.num_draws > 0
    assert f"The {stored.num_draws} draws before" in str(e.value)
    assert running._totals.count.tolist() == [stored.num_draws] * 3
    np.testing.assert_allclose(running.mean(), stored.mean(), atol=1e-6)
    np.testing.assert_allclose(running.variance(), stored.variance(), rtol=1e-5)


def test_numbers_beyond_the_finite_in_what_a_sampler_remembers_stop_the_run():
    """RMSprop's V overflows, G is 0 and the chain stands still: finite, and wrong."""
    steep = ls.Target(lambda x: -1e20 * jnp.sum(x))
    with pytest.raises(ls.DivergenceError, match=r"chain 0 left the finite numbers at step 1,"):
        ls.sample(ls.psgld(1e-3), steep, jnp.zeros(2), num_draws=10)
    assert np.isfinite(ls.sample(ls.sgld(1e-30), steep, jnp.zeros(2), num_draws=10).draws).all()  # the control


class Waiting(ls.Overdamped):
    """Remembers the least energy so far: infinite before it has seen one."""

    placeholder: bool = False

    def init(self, position, key, temperature):
        return jnp.asarray(jnp.inf)

    def is_finite(self, state):
        return jnp.asarray(True) if self.placeholder else super().is_finite(state)


def test_a_dynamics_may_say_that_its_placeholders_are_no_divergence():
    assert ls.sample(ls.Sampler(0.1, Waiting(True)), GAUSSIAN, jnp.zeros(2), num_draws=3).draws.shape == (1, 3, 2)
    with pytest.raises(ls.DivergenceError):
        ls.sample(ls.Sampler(0.1, Waiting(False)), GAUSSIAN, jnp.zeros(2), num_draws=3)


def test_what_a_sampler_remembers_may_be_no_numbers():
    class Counting(ls.Overdamped):
        def init(self, position, key, temperature):
            return {"steps": jnp.zeros((), jnp.int32), "key": key}

    run = ls.sample(ls.Sampler(0.1, Counting()), GAUSSIAN, jnp.zeros(2), num_draws=3, seed=jax.random.key(1))
    assert np.isfinite(run.draws).all()
