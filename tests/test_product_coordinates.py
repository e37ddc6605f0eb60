"""T4 on dynamics × preconditioner × gradient: a preconditioner is a change of coordinates, whatever ∇U is made of.

Every pair of pieces in the fast tier, the full product in the slow one.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import ADAPTIVE, DYNAMICS, ESTIMATORS, PRECONDITIONERS, D, linear_regression
from test_product import PAIRS, WHOLE

import lsmcmc as ls


class Pulled(eqx.Module):
    """An oracle of U in the coordinates y, x = B y: that of U∘B on the very same batch."""

    oracle: ls.Oracle
    root: jax.Array

    @property
    def num_examples(self):
        return self.oracle.num_examples

    @property
    def step(self):
        return self.oracle.step

    def gradient(self, y):
        return self.root.T @ self.oracle.gradient(self.root @ y)

    def potential(self, y):
        return self.oracle.potential(self.root @ y)

    def full_potential(self, y):
        return self.oracle.full_potential(self.root @ y)


def check_coordinates(dynamics, preconditioner, estimator, B=None):
    """A step of U with B from x = B y is a step of U∘B with the identity from y, on one batch and one noise."""
    posterior, _, _ = linear_regression()
    B = PRECONDITIONERS[preconditioner]() if B is None else B
    direct, plain = ls.Sampler(0.05, DYNAMICS[dynamics](), B), ls.Sampler(0.05, DYNAMICS[dynamics]())
    x, h, T = jnp.linspace(-0.5, 0.7, D), jnp.asarray(0.05), jnp.asarray(0.7)
    oracle = ESTIMATORS[estimator]().oracle(posterior, jax.random.key(4), x + 0.1, 1)
    memory = B.observe(B.init(x), 2 * x + 1, posterior.num_examples)
    learned = B.observe(memory, oracle.gradient(x), posterior.num_examples)
    honest = PRECONDITIONERS[preconditioner]()
    root = jnp.stack([honest.apply(learned, e) for e in jnp.eye(D)], axis=1)
    y = jnp.linalg.solve(root, x)
    noise = direct.noise(jax.random.key(5), x)
    ours = eqx.tree_at(lambda s: s.preconditioner, direct.init(x, key=jax.random.key(6)), memory)
    theirs = plain.init(y, key=jax.random.key(6))
    ours, _ = direct.transition(ours, oracle, noise, h, T)
    theirs, _ = plain.transition(theirs, Pulled(oracle, root), noise, h, T)
    np.testing.assert_allclose(ours.position, root @ theirs.position, rtol=1e-8, atol=1e-9)
    for a, b in zip(jax.tree.leaves(ours.dynamics), jax.tree.leaves(theirs.dynamics), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("dynamics", "preconditioner", "estimator"), PAIRS)
def test_on_every_pair_of_pieces_a_preconditioner_is_a_change_of_coordinates(dynamics, preconditioner, estimator):
    check_coordinates(dynamics, preconditioner, estimator)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("dynamics", "preconditioner", "estimator"), [row for row in WHOLE if row not in set(PAIRS)])
def test_on_the_full_product_a_preconditioner_is_a_change_of_coordinates(dynamics, preconditioner, estimator):
    check_coordinates(dynamics, preconditioner, estimator)


class NotTransposed(ls.Laplacian):
    """B for Bᵀ in the drift."""

    def apply_transpose(self, state, v):
        return self.apply(state, v)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("dynamics", ["overdamped", "symmetric", "symmetric sgnht"])
def test_the_check_of_coordinates_fails_for_another_transpose(dynamics):
    with pytest.raises(AssertionError):
        check_coordinates(dynamics, "laplacian", "subset", NotTransposed(1.0))


def test_adaptive_pieces_are_among_those_that_are_checked():
    assert {row[1] for row in PAIRS} == set(PRECONDITIONERS) > ADAPTIVE
