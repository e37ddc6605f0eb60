"""Dynamics × preconditioner × gradient × replicas: every pair of pieces in the fast tier, the full product in the slow.

T7 on each: the loop is clean. T4 on each is test_product_coordinates.py.
"""

import itertools

import jax
import numpy as np
import pytest
from registry import DYNAMICS, ESTIMATORS, PRECONDITIONERS, WRAPPED, covering, is_allowed, sampler
from test_sampling import START, counting_posterior, equal

import lsmcmc as ls

PIECES = DYNAMICS, PRECONDITIONERS, ESTIMATORS
WHOLE = [row for row in itertools.product(*PIECES) if is_allowed(*row)]
PAIRS = covering(*PIECES)
WRAPPED_PAIRS = covering(*PIECES, WRAPPED)
SEEN_FAST = {row[:3] for row in WRAPPED_PAIRS if row[3] == "alone"}


def all_pairs(rows):
    return {pair for row in rows for pair in itertools.combinations(enumerate(row), 2)}


def test_the_fast_tier_holds_every_pair_of_pieces():
    assert all_pairs(PAIRS) == all_pairs(WHOLE)
    assert all_pairs(row[:3] for row in WRAPPED_PAIRS) == all_pairs(WHOLE)
    assert len(PAIRS) < 1.3 * len(DYNAMICS) * len(PRECONDITIONERS)
    assert all_pairs(PAIRS[:-1]) < all_pairs(WHOLE)  # the control: none is there for nothing


def check_hygiene(dynamics, preconditioner, estimator, wrap="alone"):
    """Chunked and resumed runs are the whole one to the last bit, and none of them traces again."""
    posterior, traced = counting_posterior()
    s = WRAPPED[wrap](sampler(dynamics, preconditioner, 1e-2))
    options = {"gradient": ESTIMATORS[estimator](), "chains": 2}
    whole = ls.sample(s, posterior, START, num_draws=12, **options)
    before = len(traced)
    first = ls.sample(s, posterior, START, num_draws=5, chunk=2, **options)
    rest = ls.sample(s, posterior, state=first.state, num_draws=7, **{**options, "chains": None})
    assert equal(whole.draws, jax.tree.map(lambda a, b: np.concatenate([a, b], axis=1), first.draws, rest.draws))
    assert len(traced) == before
    assert not np.array_equal(whole.draws[0][0], whole.draws[0][1])


@pytest.mark.parametrize(("dynamics", "preconditioner", "estimator", "wrap"), WRAPPED_PAIRS)
def test_every_pair_of_pieces_is_chunked_resumed_and_traced_once(dynamics, preconditioner, estimator, wrap):
    check_hygiene(dynamics, preconditioner, estimator, wrap)


@pytest.fixture
def compiled_quickly():
    """Without most of the compiler's passes, a third less time; the pairs above are compiled as users' programs are."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
@pytest.mark.parametrize(("dynamics", "preconditioner", "estimator"), [row for row in WHOLE if row not in SEEN_FAST])
def test_the_full_product_is_chunked_resumed_and_traced_once(dynamics, preconditioner, estimator):
    check_hygiene(dynamics, preconditioner, estimator)
