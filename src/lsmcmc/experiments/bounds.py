"""Theorems 1 and 2 on Gaussians, where every distance in them is known: truth against bound over K and σ."""

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

import lsmcmc as ls
from lsmcmc import theory
from lsmcmc.experiments.bounds_claims import claims
from lsmcmc.experiments.gaussian_distances import (
    BATCH,
    CASES,
    COUNTS,
    DIM,
    ETA,
    JUDGED,
    OMEGA,
    SIGMAS,
    WHAT,
    Found,
    measure,
    of,
    turned,
)
from lsmcmc.experiments.parts import Arrays, Parts
from lsmcmc.experiments.result import Result
from lsmcmc.progress import Progress

NAME = "bounds"
TITLE = "Theorems 1 and 2: the bounds against the exact distances on Gaussians"
REPLICATIONS, QUICK_REPLICATIONS = 100, 10
QUICK = f"{QUICK_REPLICATIONS} random Gaussians instead of {REPLICATIONS}; every distance is exact in both"


def run(*, quick: bool, seed: int, parts: Parts = Parts()) -> Result:
    """All cases, every σ and K."""
    replications = QUICK_REPLICATIONS if quick else REPLICATIONS
    found = _measure_all(replications, seed, parts)
    simulated = parts.get("simulated", partial(_simulate, seed))["ratio"]
    return Result(
        NAME,
        TITLE,
        {"quick": quick, "seed": seed, "replications": replications, "dim": DIM, "sigmas": SIGMAS, "counts": COUNTS}
        | {"omega": OMEGA, "batch_size": BATCH, "step_over_m_M2": ETA},
        claims(found, simulated),
        {"distances": _rows(found)},
        {"bounds": _plot_bounds(found), "terms": _plot_terms(found)},
        [
            "f(x) = ½(x − μ)ᵀP(x − μ), β = 1, x₀ = 0, full-gradient noise N(0, (ω²/B) I), η = 0.02 m/M². LS-SGLD is a "
            "linear chain and LS-LD an Ornstein–Uhlenbeck process, so W₂(P(x_K), π), the discretisation "
            "W₂(P(x_K), P(X_Kη)) and the ergodicity W₂(P(X_Kη), π) are distances of Gaussians, known exactly.",
            "Constants: m and M the least and largest curvature, λ = 2/m (the paper's inequality ∫g² log g² … ≤ "
            "λ∫|∇g|²), Λ = ∫exp(−f); γ₁ = 1 and c₀ = 1/λmax(A_σ), the worst case, as nothing else is known of them in "
            "general.",
            "Proof and stated are the two forms of Theorem 1 in the paper (β = 1 here, so they differ in M² alone). "
            "Theorem 2 is evaluated where Kη > 1, as its proof has it.",
            "The proof of the ergodicity takes the relative entropy of the start, a point mass, as −log π(0). It is "
            "infinite. The number in its place depends on the unit of length, is negative where π(0) > 1, and is too "
            "small before that: the bound fails for N(0, I/5). A start with a density would repair it.",
        ],
        f"Of the random Gaussians: 95 % by Student's t over {replications} of them, or, where the claim is of all, "
        "their range. Of the others nothing is random, and the interval is the number itself.",
    )


# Measuring


def _measure_all(replications: int, seed: int, parts: Parts) -> Found:
    found = {}
    with Progress(len(CASES), label=NAME) as bar:
        for number, (case, (make, random)) in enumerate(CASES.items()):
            rng = np.random.default_rng([seed, number])
            gaussians = [make(rng) for _ in range(replications if random else 1)]
            part = parts.get(f"case{number}", partial(lambda g: {"distances": measure(g)}, gaussians))
            found[case] = part["distances"]
            bar.advance(1)
    return found


def _simulate(seed: int, seeds: int = 20, chains: int = 500, steps: int = 300) -> Arrays:
    """E|x_K − μ|² by chains of `ls.sample` over its exact value, axes (σ, seed)."""
    gaussian = turned(np.random.default_rng([seed, 99]))
    P = jnp.asarray(gaussian.precision, float)
    target = ls.Target(partial(_log_density, P), noise_scale=np.sqrt(OMEGA**2 / BATCH))
    h = 10 * gaussian.step
    ratios = []
    for sigma in (0.0, JUDGED):
        sampler = ls.ls_sgld(h, sigma=sigma) if sigma else ls.sgld(h)
        mean, C = theory.linear_chain(gaussian.precision, h, sigma=sigma, gradient_noise=OMEGA**2 / BATCH).law_after(
            steps, -gaussian.mean
        )
        start = -jnp.asarray(gaussian.mean, float)
        run = ls.sample(
            sampler, target, start, num_draws=1, burn_in=steps - 1, chains=seeds * chains, seed=seed, progress=False
        )
        squares = (run.draws[:, 0].astype(np.float64) ** 2).sum(1).reshape(seeds, chains).mean(1)
        ratios.append(squares / (np.trace(C) + mean @ mean))
    return {"ratio": np.array(ratios)}


def _log_density(P: Any, x: Any) -> Any:
    return -0.5 * x @ P.astype(x.dtype) @ x


# Writing


def _rows(found: Found) -> list[dict[str, Any]]:
    """Means over the Gaussians of a case."""
    return [
        {"case": case, "sigma": sigma, "K": K} | dict(zip(WHAT, values[:, s, k].mean(0).tolist(), strict=True))
        for case, values in found.items()
        for s, sigma in enumerate(SIGMAS)
        for k, K in enumerate(COUNTS)
    ]


def _figure() -> tuple[Any, dict[str, Any]]:
    """A panel for each case, over K."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    panels = dict(zip(CASES, figure.subplots(1, len(CASES), sharex=True), strict=True))
    for case, panel in panels.items():
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("K")
        panel.set_title(case, fontsize=9)
    return figure, panels


def _plot_bounds(found: Found) -> Any:
    """Truth against bound: the distance and the theorems at σ = 0 and 1, the first Gaussian of each case."""
    lines = {
        "total": ("exact", "-"),
        "proof": ("Theorem 1, proof", "--"),
        "stated": ("Theorem 1, stated", "-."),
        "nonconvex": ("Theorem 2", ":"),
    }
    return _curves(found, (0.0, JUDGED), lines, (1e-5, 1e4), "W₂(P(x_K), π)")


def _plot_terms(found: Found) -> Any:
    """Discretisation against ergodicity, exactly, at every σ."""
    lines = {"discretisation": ("discretisation", "-"), "ergodicity": ("ergodicity", "--")}
    return _curves(found, SIGMAS, lines, (1e-5, 20.0), "W₂")


def _curves(
    found: Found,
    sigmas: tuple[float, ...],
    lines: dict[str, tuple[str, str]],
    limits: tuple[float, float],
    label: str,
) -> Any:
    figure, panels = _figure()
    for case, panel in panels.items():
        for color, sigma in enumerate(sigmas):
            for what, (name, style) in lines.items():
                values = of(found, case, what)[0, SIGMAS.index(sigma)]
                panel.plot(COUNTS, values, style, color=f"C{color}", lw=1.2, label=f"{name}, σ = {sigma:g}")
        panel.set_ylim(*limits)
    figure.axes[0].legend(fontsize=6, frameon=False)
    figure.axes[0].set_ylabel(label)
    return figure
