"""The constants and the Wasserstein bounds of Theorems 1 and 2."""

import math
from typing import Any, NamedTuple

import numpy as np

from lsmcmc import _checks


def gamma2(d: int | None, sigma: Any) -> Any:
    """γ₂ = (1/d) Σⱼ 1/λⱼ(A_σ) of Theorem 1; d = None is its limit 1/√(1 + 4σ).

    Closed form for d ≥ 3: coth(dθ/2)/√(1 + 4σ), θ = 2 asinh(1/(2√σ)). The values printed in the paper's
    Table 1 are not this but mean(1/λ²) = (1 + 2σ)/(1 + 4σ)^{3/2}.

    >>> round(gamma2(1000, 1.0), 3), round(gamma2(None, 1.0), 3), round(gamma2(2, 1.0), 3)
    (0.447, 0.447, 0.667)
    """
    s = np.asarray(sigma, np.float64)
    if not (np.isfinite(s) & (s >= 0)).all():
        raise ValueError(f"sigma must be finite numbers, zero or above, got {sigma!r}.")
    if d is None:
        value = 1 / np.sqrt(1 + 4 * s)
    elif _checks.count("d", d) == 1:
        value = np.ones_like(s)
    elif d == 2:
        value = (1 + 1 / (1 + 2 * s)) / 2
    else:
        with np.errstate(divide="ignore"):
            theta = 2 * np.arcsinh(0.5 / np.sqrt(s))
        value = 1 / np.sqrt(1 + 4 * s) / np.tanh(d * theta / 2)
    return float(value) if value.ndim == 0 else value


class Bound(NamedTuple):
    """A bound on W₂(P(x_K), π) by its terms: γ₁ and γ₂ shrink the `discretization`, c₀ slows the `ergodicity`."""

    gradient_noise: float
    integrator: float
    ergodicity: float

    @property
    def discretization(self) -> float:
        """From the stochastic gradient and from the integrator."""
        return self.gradient_noise + self.integrator

    @property
    def total(self) -> float:
        """The bound."""
        return self.discretization + self.ergodicity


def w2_bound_convex(
    num_steps: int,
    step_size: float,
    d: int,
    *,
    omega: float,
    batch_size: int,
    smoothness: float,
    log_sobolev: float,
    f0: float,
    log_normalizer: float,
    beta: float = 1.0,
    sigma: float = 0.0,
    gamma1: float = 1.0,
    c0: float | None = None,
    form: str = "proof",
) -> Bound:
    """Theorem 1: the bound for log-concave densities, as a function of its constants.

        √(2γ₁Kη²dω²/B) + √(8γ₂K(K+1)η³M²d/β) + √(2λ(βf(0) + log Λ)) exp(−c₀Kη/(2βλ))

    in the paper's own convention, f = U/N at inverse temperature β, K steps of size η. M is the
    `smoothness`, λ the `log_sobolev` constant, Λ = ∫exp(−βf), dω² bounds the gradient's variance. γ₂
    follows from σ and d (`gamma2`). γ₁ ∈ [1/‖A‖², 1] and c₀ ∈ [1/‖A‖, 1] are only known to lie
    there: the worst case is the default, γ₁ = 1 and c₀ = 1/λmax(A_σ).

    The paper states the bound in ways that disagree. Its proof (Lemma discretization_error_lmc)
    gives the factors M² and 1/β above: form="proof". The theorem as printed has β in place of 1/β, a
    factor β in the first term, and no M: form="stated". (The corollary for SGLD has the proof's β, and no
    M.) They agree at β = M = 1. Both need a step size below C·m/(βM²). For noise of equal variance in every
    coordinate the proof's γ₁ is γ₂.

    λ is that of ∫g² log g² − … ≤ λ∫|∇g|², as the paper writes it: 2/(βm) where the curvature is m. The
    last term takes the relative entropy of the start x₀ = 0 as −log π(0), which is that of no law: a
    point's is infinite. So it depends on the unit of length, and the bound fails for densities that are
    high at 0, such as N(0, I/5): docs/paper.md has the numbers.

    >>> constants = dict(omega=1.0, batch_size=10, smoothness=1.0, log_sobolev=1.0, f0=1.0, log_normalizer=1.0)
    >>> rough = w2_bound_convex(100, 1e-3, 1000, **constants)
    >>> smooth = w2_bound_convex(100, 1e-3, 1000, sigma=1.0, **constants)
    >>> smooth.integrator < rough.integrator, smooth.ergodicity > rough.ergodicity
    (True, True)
    """
    _checks.choice("form", form, ("proof", "stated"))
    gamma1, c0 = _constants(d, sigma, gamma1, c0)
    K, eta, gamma = num_steps, step_size, gamma2(d, sigma)
    noise = 2 * gamma1 * K * eta**2 * d * omega**2 / batch_size
    integrator = 8 * gamma * K * (K + 1) * eta**3 * d
    if form == "proof":
        integrator *= smoothness**2 / beta
    else:
        noise, integrator = noise * beta, integrator * beta
    return Bound(
        math.sqrt(noise),
        math.sqrt(integrator),
        _ergodicity(K * eta, c0, beta, log_sobolev, f0, log_normalizer),
    )


def w2_bound_nonconvex(
    num_steps: int,
    step_size: float,
    d: int,
    *,
    omega: float,
    batch_size: int,
    smoothness: float,
    dissipativity: float,
    log_sobolev: float,
    f0: float,
    log_normalizer: float,
    beta: float = 1.0,
    sigma: float = 0.0,
    gamma1: float = 1.0,
    c0: float | None = None,
    form: str = "proof",
) -> Bound:
    """Theorem 2: the bound for dissipative densities, as a function of its constants.

        Γ̄ √(Kη) (D^{1/2} + D^{1/4}) + √(2λ(βf(0) + log Λ)) exp(−c₀Kη/(2βλ)),   Γ̄² = 3/2 + 2(b + d/β)
        D = γ₁βdω²Kη/(2B) + 2γ₂M²dKη²

    b is the `dissipativity` constant; the other symbols are those of `w2_bound_convex`. The terms of
    the result split √D and D^{1/4} in proportion to the two parts of D, so that they add up.

    The paper writes D in three ways. The end of its proof gives the one above: form="proof". The
    theorem has no 2 under the first part: form="stated". The lemma in between has a factor β in the
    second: form="lemma". It assumes Kη > 1 and a step size below C·m/(βM²), and its proof a β of 2‖A‖/m at
    least. For noise of equal variance in every coordinate γ₁ is mean(1/λ²) here. The last term is that of
    Theorem 1, with its defect.

    >>> constants = dict(omega=1.0, batch_size=10, smoothness=1.0, log_sobolev=1.0, f0=1.0, log_normalizer=1.0)
    >>> w2_bound_nonconvex(2000, 1e-3, 10, dissipativity=1.0, **constants).total > 0
    True
    """
    _checks.choice("form", form, ("proof", "stated", "lemma"))
    gamma1, c0 = _constants(d, sigma, gamma1, c0)
    time = num_steps * step_size
    noise = gamma1 * beta * d * omega**2 * time / batch_size / (1 if form == "stated" else 2)
    integrator = 2 * gamma2(d, sigma) * smoothness**2 * d * time * step_size * (beta if form == "lemma" else 1)
    divergence = noise + integrator
    size = math.sqrt((1.5 + 2 * (dissipativity + d / beta)) * time) * (divergence**0.5 + divergence**0.25)
    share = noise / divergence if divergence > 0 else 0.0
    return Bound(size * share, size * (1 - share), _ergodicity(time, c0, beta, log_sobolev, f0, log_normalizer))


def _constants(d: int, sigma: float, gamma1: float, c0: float | None) -> tuple[float, float]:
    """γ₁ and c₀, each within the interval that the theorems give."""
    largest = float(_largest_eigenvalue(d, sigma))
    c0 = 1 / largest if c0 is None else c0
    for name, value, low in (("gamma1", gamma1, largest**-2), ("c0", c0, 1 / largest)):
        if not low * (1 - 1e-12) <= value <= 1:
            raise ValueError(f"{name} lies between {low:g} and 1 for d = {d} and sigma = {sigma:g}, got {value:g}.")
    return gamma1, c0


def _largest_eigenvalue(d: int, sigma: float) -> float:
    """λmax(A_σ): 1 + 4σ for even d > 2, 1 + 2σ for d = 2."""
    if d == 1:
        return 1.0
    if d == 2:
        return 1 + 2 * sigma
    return 1 + 2 * sigma * (1 - math.cos(2 * math.pi * (d // 2) / d))


def _ergodicity(time: float, c0: float, beta: float, log_sobolev: float, f0: float, log_normalizer: float) -> float:
    entropy = beta * f0 + log_normalizer
    if entropy < 0:
        raise ValueError(
            f"beta·f0 + log_normalizer must not be negative, got {entropy:g}: the theorems take it, −log π(0), as the "
            f"relative entropy of the start. log_normalizer is log ∫exp(−βf), in nats; where it is right, π(0) is "
            f"above 1 and the theorems say nothing."
        )
    return math.sqrt(2 * log_sobolev * entropy) * math.exp(-c0 * time / (2 * beta * log_sobolev))
