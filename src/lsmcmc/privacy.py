"""Differential privacy: what a run of clipped, noisy gradients gives away, by the accountant of dp-accounting."""

import contextlib
from collections.abc import Iterator
from typing import Any

from lsmcmc import _checks

_LEAST = 0.1  # noise with which ε is in the hundreds
_SCHEMES = ("subset", "epochs")  # those whose batches have no row twice


def epsilon(
    noise_multiplier: float,
    *,
    batch_size: int,
    num_examples: int,
    num_steps: int,
    delta: float,
    scheme: str = "subset",
) -> float:
    """The ε of (ε, δ)-differential privacy after so many steps of `ls.dp_lssgd`, or of any such gradients.

    Neighbours are data sets with one row replaced by another, N being public. Each step releases Σ clip(gᵢ) over a
    batch plus N(0, (z·clip)² I), z = `noise_multiplier`; a replaced row moves the sum by 2·clip at most. The batches
    are those of `ls.Minibatch(batch_size, scheme)`: "subset", with amplification by sampling without replacement (Wang,
    Balle and Kasiviswanathan 2019, Theorem 27), or "epochs", where a row is in one batch of a pass at most. An upper
    bound, through Rényi differential privacy. What is done to a released gradient afterwards costs nothing.

    >>> round(epsilon(4.0, batch_size=50, num_examples=3185, num_steps=500, delta=1e-5), 1)
    1.6
    """
    event = _run(_positive("noise_multiplier", noise_multiplier), batch_size, num_examples, num_steps, scheme)
    delta = _probability(delta)
    with _within_reach(f"noise_multiplier={noise_multiplier:g}"):
        return float(_accountant().compose(event).get_epsilon(delta))


def noise_multiplier(
    epsilon: float, *, batch_size: int, num_examples: int, num_steps: int, delta: float, scheme: str = "subset"
) -> float:
    """The least `noise_multiplier` whose `epsilon` is at most this one, up to 1e-4.

    >>> import lsmcmc as ls
    >>> plan = {"batch_size": 50, "num_examples": 3185, "num_steps": 500, "delta": 1e-5}
    >>> z = noise_multiplier(2.0, **plan)
    >>> bool(1.99 < ls.privacy.epsilon(z, **plan) <= 2.0)
    True
    """
    accounting = _accounting()
    _run(1.0, batch_size, num_examples, num_steps, scheme)  # bad counts should be met now
    target, delta = _positive("epsilon", epsilon), _probability(delta)

    def events(z: float) -> Any:
        return _run(z, batch_size, num_examples, num_steps, scheme)

    with _within_reach(f"epsilon={epsilon:g}"):
        around = accounting.LowerEndpointAndGuess(_LEAST, 1.0)
        return float(accounting.calibrate_dp_mechanism(_accountant, events, target, delta, around, tol=1e-4))


@contextlib.contextmanager
def _within_reach(what: str) -> Iterator[None]:
    """The accountant's sums overflow far from anything private, or far from anything useful."""
    try:
        yield
    except (ValueError, ArithmeticError, RuntimeError) as error:
        raise ValueError(
            f"the accountant cannot work with {what} for this run. Write a noise_multiplier between 0.1 and 1e6, "
            "or an epsilon between 1e-3 and 100."
        ) from error


def _run(z: float, batch_size: Any, num_examples: Any, num_steps: Any, scheme: str) -> Any:
    """The steps of a run, as the accountant's events."""
    accounting = _accounting()
    size, num = _checks.count("batch_size", batch_size), _checks.count("num_examples", num_examples)
    steps = _checks.count("num_steps", num_steps)
    if size > num:
        raise ValueError(f"batch_size is {size} but the data have {num} rows.")
    if _checks.choice("scheme", scheme, _SCHEMES) == "epochs":
        release, count = accounting.GaussianDpEvent(z / 2), -(-steps // (num // size))
    else:
        release = accounting.SampledWithoutReplacementDpEvent(num, size, accounting.GaussianDpEvent(z / 2))
        count = steps
    return accounting.SelfComposedDpEvent(release, count)


def _accountant() -> Any:
    """By Rényi differential privacy, for rows replaced by others."""
    from dp_accounting import rdp

    return rdp.RdpAccountant(neighboring_relation=_accounting().NeighboringRelation.REPLACE_ONE)


def _accounting() -> Any:
    try:
        import dp_accounting
    except ImportError as error:
        raise ImportError("ls.privacy needs dp-accounting. Write pip install 'lsmcmc[privacy]'.") from error
    return dp_accounting


def _positive(name: str, value: Any) -> float:
    number = float(_checks.hyper(name, value))
    if number == 0:
        raise ValueError(f"{name} must be above zero, got 0: without noise nothing is private.")
    return float(value)


def _probability(delta: Any) -> float:
    number = float(delta)
    if not 0 < number < 1:
        raise ValueError(f"delta must be between 0 and 1, and well below 1/N, got {number:g}.")
    return number
