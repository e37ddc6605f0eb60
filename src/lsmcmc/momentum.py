"""Dynamics with momentum: the underdamped Langevin equation in y, and four ways to step it.

    dy = r dt,   dr = −∇ dt − γ r dt + √(2γT) dW,   ∇ = Bᵀ∇Û(By)

r has unit mass, so at rest r ~ N(0, T I) and h is time. A step writes r' and the displacement m.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree
from numpy.typing import NDArray

from lsmcmc import _checks, _trees
from lsmcmc._trees import linear
from lsmcmc.dynamics import Dynamics


class Momentum(Dynamics):
    """What they share: the friction γ, and r ~ N(0, T I) at the start, one copy of the position."""

    friction: Float[Array, ""]

    def __init__(self, friction: Any):
        self.friction = _checks.hyper("friction", friction)

    def init(self, position: PyTree, key: Array, temperature: Float[Array, ""]) -> PyTree:
        """R ~ N(0, T I)."""
        return _trees.scale(jnp.sqrt(temperature), _trees.normal_like(key, position))

    def swapped(self, own: PyTree, other: PyTree, ratio: Float[Array, ""]) -> PyTree:
        """√(T/T') r: the direction stays, and r²/T too."""
        del own  # the momentum goes with its particle
        return _trees.scale(jnp.sqrt(ratio), other)


class SGHMC(Momentum):
    """r' = (1 − hγ)r − h∇ + √(2hγT − h²V̂) ε, m = h r' (Chen, Fox and Guestrin 2014, Eq. 15), Euler.

    V̂, the `noise_estimate`, is the variance of a coordinate of Bᵀ(∇Û − ∇U), one number or one for
    each branch of the position: the noise that the gradient brings is left out of what is added.
    """

    noise_estimate: PyTree

    def __init__(self, friction: Any, noise_estimate: Any = 0.0):
        super().__init__(friction)
        self.noise_estimate = jax.tree.map(lambda v: _checks.hyper("noise_estimate", v), noise_estimate)

    def check_schedules(self, step_sizes: NDArray[np.float64], temperatures: NDArray[np.float64]) -> None:
        """Refuse a V̂ that is more noise than the friction takes out."""
        most = max(float(v) for v in jax.tree.leaves(self.noise_estimate))
        friction = float(self.friction)
        excess = np.where(temperatures > 0, step_sizes * most - 2 * friction * temperatures, 0)  # at 0 none is added
        if excess[worst := int(np.argmax(excess))] > 1e-6 * step_sizes[worst] * most:
            h, temperature = step_sizes[worst], temperatures[worst]
            raise ValueError(
                f"noise_estimate is {most:g}, but at step size {h:g} and temperature {temperature:g} a friction of "
                f"{friction:g} takes out no more than 2·friction·temperature/step_size = "
                f"{2 * friction * temperature / h:g}. Write a larger friction, a smaller step_size or a larger batch."
            )

    def spread(self, noise: PyTree, h: Array, temperature: Array) -> PyTree:
        """√(2hγT − h²V̂) ε."""

        def branch(v: Array, part: PyTree) -> PyTree:
            left = jnp.maximum(2 * h * self.friction * temperature - h**2 * v, 0)
            return _trees.scale(jnp.sqrt(left), part)

        return _checks.map_prefix("noise_estimate", branch, self.noise_estimate, noise)

    def move(
        self, state: PyTree, oracle: Any, noise: PyTree, step_size: Float[Array, ""], temperature: Float[Array, ""]
    ) -> tuple[PyTree, PyTree]:
        """Momentum first."""
        h = step_size
        kicked = linear((1 - h * self.friction, state), (-h, oracle.gradient()))
        r = _trees.add(kicked, self.spread(noise, h, temperature))
        return _trees.scale(h, r), r


class SymmetricSGHMC(SGHMC):
    """Half a drift, half the friction, a kick with noise at the middle, and back (Chen, Ding and Carin 2015, Eq. 8).

    y½ = y + (h/2)r,  r' = c(c r − h∇(y½) + √(2hγT − h²V̂) ε),  y' = y½ + (h/2)r',  c = e^{−γh/2}.
    """

    def move(
        self, state: PyTree, oracle: Any, noise: PyTree, step_size: Float[Array, ""], temperature: Float[Array, ""]
    ) -> tuple[PyTree, PyTree]:
        """One gradient, at the middle."""
        h, c = step_size, jnp.exp(-self.friction * step_size / 2)
        half = _trees.scale(h / 2, state)
        kicked = linear((c, state), (-h, oracle.gradient(half)))
        r = _trees.scale(c, _trees.add(kicked, self.spread(noise, h, temperature)))
        return linear((1, half), (h / 2, r)), r


class BAOAB(Momentum):
    """Kick, half a drift, friction and noise exactly, half a drift, kick (Leimkuhler and Matthews 2013).

    B: r ← r − (h/2)∇,  A: y ← y + (h/2)r,  O: r ← c r + √(T(1 − c²)) ε,  c = e^{−γh}.
    With `full=False` the two neighbouring kicks are one at the beginning, BAOA: one gradient a step
    and, where ∇ has no noise, the same law of y. With `full=True` both kicks use the step's batch.
    """

    full: bool = eqx.field(static=True)

    def __init__(self, friction: Any, *, full: bool = False):
        super().__init__(friction)
        self.full = bool(full)

    def move(
        self, state: PyTree, oracle: Any, noise: PyTree, step_size: Float[Array, ""], temperature: Float[Array, ""]
    ) -> tuple[PyTree, PyTree]:
        """B A O A, and the last B."""
        h, kick = step_size, step_size / 2 if self.full else step_size
        z = self.friction * h
        r = linear((1, state), (-kick, oracle.gradient()))
        half = _trees.scale(h / 2, r)
        r = linear((jnp.exp(-z), r), (jnp.sqrt(-temperature * jnp.expm1(-2 * z)), noise))
        m = linear((1, half), (h / 2, r))
        return m, linear((1, r), (-kick, oracle.gradient(m))) if self.full else r


class UnderdampedExact(Momentum):
    """The equation itself with ∇ held still over the step (Cheng, Chatterji, Bartlett and Jordan 2018, §2).

    With z = γh: r' = e^{−z}r − hφ₁∇ + ξ,  m = hφ₁r − h²φ₂∇ + (h/2)(tanh(z/2)/(z/2)) ξ + √(2Tγh³ψ) ε₂,
    ξ = √(T(1 − e^{−2z})) ε₁, φ₁ = (1 − e^{−z})/z, φ₂ = (z − 1 + e^{−z})/z², ψ = (z − 2 tanh(z/2))/z³.
    """

    def noise(self, key: Array, like: PyTree) -> PyTree:
        """ε₁, ε₂, of which r' and m make two correlated normals."""
        first, second = jax.random.split(key)
        return _trees.normal_like(first, like), _trees.normal_like(second, like)

    def move(
        self, state: PyTree, oracle: Any, noise: PyTree, step_size: Float[Array, ""], temperature: Float[Array, ""]
    ) -> tuple[PyTree, PyTree]:
        """Exact for a constant gradient."""
        h, z, g = step_size, self.friction * step_size, oracle.gradient()
        phi1, phi2, tanh, psi = _phi1(z), _phi2(z), _tanh_over(z / 2), _psi(z)
        xi = _trees.scale(jnp.sqrt(-temperature * jnp.expm1(-2 * z)), noise[0])
        r = linear((jnp.exp(-z), state), (-h * phi1, g), (1, xi))
        rest = jnp.sqrt(2 * temperature * self.friction * h**3 * psi)
        return linear((h * phi1, state), (-(h**2) * phi2, g), (h / 2 * tanh, xi), (rest, noise[1])), r


class NoseHoover(Momentum):
    """r' = (1 − hξ)r − h∇ + √(2hAT) ε, m = h r', ξ' = ξ + h(‖r'‖²/d − T) (Ding et al. 2014, Alg. 2), A = `friction`.

    The thermostat ξ starts at A and finds the friction that the noise of the gradient calls for;
    it absorbs noise that is the same in every coordinate. With `per_leaf` each leaf has its own ξ.
    At T = 0 there is no temperature to hold, and ξ rests.
    """

    per_leaf: bool = eqx.field(static=True)

    def __init__(self, friction: Any, *, per_leaf: bool = False):
        super().__init__(friction)
        self.per_leaf = bool(per_leaf)

    def init(self, position: PyTree, key: Array, temperature: Float[Array, ""]) -> PyTree:
        """R ~ N(0, T I), ξ = A: one number, or one for each leaf."""
        r = super().init(position, key, temperature)
        return r, jax.tree.map(lambda _: self.friction, r) if self.per_leaf else self.friction

    def swapped(self, own: PyTree, other: PyTree, ratio: Float[Array, ""]) -> PyTree:
        """√(T/T') r, and the ξ that was here: it is the thermostat of this temperature."""
        return super().swapped(own[0], other[0], ratio), own[1]

    def warmer(self, xi: PyTree, r: PyTree, h: Array, temperature: Array) -> PyTree:
        """ξ + h(‖r‖²/d − T), ξ at T = 0."""
        h = jnp.where(temperature > 0, h, 0)
        energies = jax.tree.map(lambda leaf: jnp.sum(jnp.square(leaf.astype(_trees.wide(leaf.dtype)))), r)
        if self.per_leaf:
            return jax.tree.map(
                lambda x, e, leaf: x + h * (e.astype(x.dtype) / leaf.size - temperature), xi, energies, r
            )
        total = sum(e.astype(xi.dtype) for e in jax.tree.leaves(energies))
        return xi + h * (total / sum(leaf.size for leaf in jax.tree.leaves(r)) - temperature)

    def slowed(self, r: PyTree, xi: PyTree, by: Any) -> PyTree:
        """R times `by(ξ)`."""
        each = xi if self.per_leaf else jax.tree.map(lambda _: xi, r)
        return jax.tree.map(lambda x, leaf: by(x).astype(leaf.dtype) * leaf, each, r)

    def move(
        self, state: PyTree, oracle: Any, noise: PyTree, step_size: Float[Array, ""], temperature: Float[Array, ""]
    ) -> tuple[PyTree, PyTree]:
        """Momentum, drift, thermostat."""
        h, (r, xi) = step_size, state
        added = jnp.sqrt(2 * h * self.friction * temperature)
        r = linear((1, self.slowed(r, xi, lambda x: 1 - h * x)), (-h, oracle.gradient()), (added, noise))
        return _trees.scale(h, r), (r, self.warmer(xi, r, h, temperature))


class SymmetricNoseHoover(NoseHoover):
    """The same equations, each half a step there and back around the kick (Chen, Ding and Carin 2015, Eq. 8).

    y½ = y + (h/2)r, ξ½ = ξ + (h/2)(‖r‖²/d − T);  r' = c(c r − h∇(y½) + √(2hAT) ε), c = e^{−ξ½h/2};
    then the first two again with r'.
    """

    def move(
        self, state: PyTree, oracle: Any, noise: PyTree, step_size: Float[Array, ""], temperature: Float[Array, ""]
    ) -> tuple[PyTree, PyTree]:
        """One gradient, at the middle."""
        h, (r, xi) = step_size, state
        half, xi = _trees.scale(h / 2, r), self.warmer(xi, r, h / 2, temperature)

        def damped(r: PyTree) -> PyTree:
            return self.slowed(r, xi, lambda x: jnp.exp(-h * x / 2))

        added = jnp.sqrt(2 * h * self.friction * temperature)
        r = damped(linear((1, damped(r)), (-h, oracle.gradient(half)), (added, noise)))
        return linear((1, half), (h / 2, r)), (r, self.warmer(xi, r, h / 2, temperature))


class Resampled(Dynamics):
    """A dynamics whose momentum is drawn anew, r ~ N(0, T I), before every `every`-th step, the first included."""

    inner: Momentum
    every: Int[Array, ""]

    def __init__(self, inner: Momentum, every: Any):
        self.inner = inner
        self.every = jnp.asarray(_checks.count("resample_every", every), jnp.int32)

    def init(self, position: PyTree, key: Array, temperature: Float[Array, ""]) -> PyTree:
        """That of the inner dynamics."""
        return self.inner.init(position, key, temperature)

    def swapped(self, own: PyTree, other: PyTree, ratio: Float[Array, ""]) -> PyTree:
        """That of the inner dynamics."""
        return self.inner.swapped(own, other, ratio)

    def check_schedules(self, step_sizes: NDArray[np.float64], temperatures: NDArray[np.float64]) -> None:
        """That of the inner dynamics."""
        self.inner.check_schedules(step_sizes, temperatures)

    def noise(self, key: Array, like: PyTree) -> PyTree:
        """The inner noise, and a momentum."""
        first, second = jax.random.split(key)
        return self.inner.noise(first, like), _trees.normal_like(second, like)

    def move(
        self, state: PyTree, oracle: Any, noise: PyTree, step_size: Float[Array, ""], temperature: Float[Array, ""]
    ) -> tuple[PyTree, PyTree]:
        """The inner step from the momentum that is due."""
        is_due = oracle.step % self.every == 0
        fresh = _trees.scale(jnp.sqrt(temperature), noise[1])
        r = jax.tree.map(lambda new, old: jnp.where(is_due, new, old), fresh, state)
        return self.inner.move(r, oracle, noise[0], step_size, temperature)


_SMALL = 0.2  # below which the differences below lose digits and their series do not


def _series(z: Array, *coefficients: float) -> Array:
    """Σ cₖ zᵏ."""
    total = jnp.zeros_like(z)
    for c in reversed(coefficients):
        total = c + z * total
    return total


def _either(z: Array, small: Array, fn: Any) -> Array:
    """A series near 0, `fn` away from it."""
    return jnp.where(z < _SMALL, small, fn(jnp.where(z < _SMALL, 1.0, z).astype(z.dtype)))


def _phi1(z: Array) -> Array:
    """(1 − e^{−z})/z."""
    return _either(
        z,
        _series(z, 1.0, -1 / 2, 1 / 6, -1 / 24, 1 / 120, -1 / 720, 1 / 5040, -1 / 40320),
        lambda z: -jnp.expm1(-z) / z,
    )


def _phi2(z: Array) -> Array:
    """(z − 1 + e^{−z})/z²."""
    small = _series(z, 1 / 2, -1 / 6, 1 / 24, -1 / 120, 1 / 720, -1 / 5040, 1 / 40320, -1 / 362880, 1 / 3628800)
    return _either(z, small, lambda z: (z + jnp.expm1(-z)) / z**2)


def _tanh_over(z: Array) -> Array:
    """tanh(z)/z."""
    return _either(
        z, _series(z**2, 1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925), lambda z: jnp.tanh(z) / z
    )


def _psi(z: Array) -> Array:
    """(z − 2 tanh(z/2))/z³."""
    small = _series(z**2, 1 / 12, -1 / 120, 17 / 20160, -31 / 362880, 691 / 79833600)
    return _either(z, small, lambda z: (z - 2 * jnp.tanh(z / 2)) / z**3)
