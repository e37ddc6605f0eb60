"""The claims of the text about Figure 4, and what it lacks: stability limits and the distance to the posterior."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

import lsmcmc as ls
from lsmcmc.experiments import blr
from lsmcmc.experiments.blr_chains import PARTS, SETTINGS, Found, Setting
from lsmcmc.experiments.parts import Arrays
from lsmcmc.experiments.result import Claim, interval_of_mean, judge_higher, judge_smaller
from lsmcmc.experiments.stability import weighted_gram

EARLY = 100  # steps
DISTANCES = {"mean": "mean", "sd": "sd", "predictive": "p"}
JUDGED_SIGMA = 0.5  # of the distances, the paper's in Figure 5; the table has all


def claims(found: Found, references: dict[str, Arrays], counts: tuple[int, ...]) -> list[Claim]:
    """Those of the figure under the paper's prior; distances under both."""
    smoothed = [setting for setting in SETTINGS if setting.sigma]
    preconditioned = [setting for setting in SETTINGS if setting.gradient and not setting.sigma]
    judged = [setting for setting in smoothed if setting.sigma == JUDGED_SIGMA]
    return [
        *[claim for setting in smoothed for claim in _scores(found, setting, counts)],
        *[claim for setting in preconditioned for claim in _preconditioning(found, setting, counts)],
        *[claim for s in SETTINGS if s.sigma in (0.0, JUDGED_SIGMA) for claim in _stable(found, s)],
        *[claim for prior in references for setting in judged for claim in _closer(found, references, setting, prior)],
    ]


def _scores(found: Found, ours: Setting, counts: tuple[int, ...]) -> list[Claim]:
    """The four panels at the last step."""
    mine, others = (found[setting, "Γ"]["scores"][:, -1] for setting in (ours, ours.base))
    when = f"running average after {counts[-1]:,} steps"
    judged = []
    for q, part in enumerate(PARTS):
        nll = f"{ours.label} has a smaller negative log-likelihood than {ours.base.sampler}: {part}, {when}"
        accuracy = f"{ours.label} has a higher accuracy than {ours.base.sampler}: {part}, {when}"
        judged += [
            judge_smaller(nll, "smaller (Figure 4)", mine[:, q, 0], others[:, q, 0]),
            judge_higher(accuracy, "higher (Figure 4)", mine[:, q, 1], others[:, q, 1]),
        ]
    return judged


def _preconditioning(found: Found, ours: Setting, counts: tuple[int, ...]) -> list[Claim]:
    """Faster at first, worse at last."""
    mine, others = (found[setting, "Γ"]["scores"][..., 0] for setting in (ours, Setting("SGLD")))
    early, train, test = counts.index(EARLY), PARTS.index("train"), PARTS.index("test")
    return [
        judge_smaller(
            f"preconditioning accelerates mixing initially, {ours.label} against SGLD: negative log-likelihood, train, "
            f"after {EARLY} steps",
            "accelerates",
            mine[:, early, train],
            others[:, early, train],
        ),
        judge_smaller(
            f"the gap to the target is larger with preconditioning, SGLD against {ours.label}: negative log-likelihood "
            f"on the test part, running average after {counts[-1]:,} steps",
            "remarkably larger",
            others[:, -1, test],
            mine[:, -1, test],
        ),
    ]


def _stable(found: Found, setting: Setting) -> list[Claim]:
    """At the start, where G is known before the chain runs, and at the running average."""
    arrays = found[setting, "Γ"]
    places = {"running average": arrays["mean"]} | ({} if setting.gradient else {"start": arrays["start"]})
    judged = []
    for place, positions in places.items():
        own = limit(setting, arrays, positions)
        judged.append(
            judge_smaller(
                f"the step of {setting.label} is below its linear stability limit: step ÷ limit at the {place}",
                "found by grid search",
                np.full_like(own, setting.step),
                own,
                f"Step {setting.step:.3g}, limit {np.mean(own):.3g}.",
            )
        )
    return judged


def _closer(found: Found, references: dict[str, Arrays], ours: Setting, prior: str) -> list[Claim]:
    held = references[prior]
    mine, others = (apart(found[setting, prior], held) for setting in (ours, ours.base))
    floor = between_halves(held)
    return [
        judge_smaller(
            f"smoothing reduces the distance of the draws to the posterior, {ours.label} against {ours.base.sampler}: "
            f"{what}, prior {prior}",
            "reduces the gap (Conclusions)",
            mine[what],
            others[what],
            f"{np.mean(mine[what]):.3g} against {np.mean(others[what]):.3g}; NUTS against NUTS {floor[what]:.2g}.",
        )
        for what in DISTANCES
    ]


def apart(ours: Any, held: Arrays) -> dict[str, NDArray[np.float64]]:
    """Distances of mean, sd and predictive from a reference, for each seed."""
    return {
        "mean": np.sqrt(np.mean(((ours["mean"] - held["mean"]) / held["sd"]) ** 2, axis=-1)),
        "sd": np.sqrt(np.mean(np.log(ours["sd"] / held["sd"]) ** 2, axis=-1)),
        "predictive": np.sqrt(np.mean((ours["p"] - held["p"]) ** 2, axis=-1)),
    }


def between_halves(held: Arrays) -> dict[str, float]:
    """Of a reference's first half from its second: how far the reference itself can be trusted."""
    names = DISTANCES.values()
    first, second = (
        {name: held[f"half_{name}"][:1] for name in names},
        {name: held[f"half_{name}"][1] for name in names},
    )
    return {what: float(value[0]) for what, value in apart(first, second).items()}


def distances(found: Found, references: dict[str, Arrays]) -> list[dict[str, Any]]:
    """Of every sampler under both priors, with 95 % intervals over seeds, and of the references' halves."""
    rows = []
    for prior, held in references.items():
        for setting in SETTINGS:
            row: dict[str, Any] = {"prior": prior, "sampler": setting.label}
            for what, values in apart(found[setting, prior], held).items():
                mean, low, high = interval_of_mean(values)
                row |= {what: mean, f"{what}_low": low, f"{what}_high": high}
            rows.append(row)
        halves: dict[str, Any] = {"prior": prior, "sampler": "NUTS against NUTS"}
        for what, value in between_halves(held).items():
            halves |= {what: value, f"{what}_low": None, f"{what}_high": None}
        rows.append(halves)
    return rows


def limits(found: Found, centre: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Step and linear stability limits of every sampler, in the sampler's own unit; `centre` is a posterior mean."""
    rows = []
    for (setting, prior), arrays in found.items():
        mean, low, high = interval_of_mean(limit(setting, arrays, arrays["mean"], prior))
        row: dict[str, Any] = {"prior": prior, "sampler": setting.label, "step": setting.step}
        row |= {"at_average": mean, "at_average_low": low, "at_average_high": high}
        for place, positions in (("at_start", arrays["start"]), ("at_nuts_mean", centre[np.newaxis])):
            known = not setting.gradient  # G before the chain runs
            row[place] = float(limit(setting, arrays, positions, prior).mean()) if known else None
        rows.append(row)
    return rows


def limit(setting: Setting, arrays: Arrays, positions: Any, prior: str = "Γ") -> NDArray[np.float64]:
    """2/λmax(GH) at each position, with the G that the chain of the same seed had at the end."""
    X = blr.data().train[0]
    found = []
    for i, x in enumerate(np.asarray(positions, np.float64)):
        H = weighted_gram(X, blr.curvatures(x[np.newaxis], X)[0])
        H -= np.asarray(_bend(blr.PRIORS[prior], jnp.asarray(x, float)), np.float64)
        B = np.linalg.cholesky(_preconditioner(setting, arrays["V"][i] if setting.gradient else None))
        found.append(2 / np.linalg.eigvalsh(B.T @ H @ B)[-1])
    return np.array(found)


@eqx.filter_jit
def _bend(log_prior: Any, x: Array) -> Array:
    """The Hessian of a log prior."""
    return jax.hessian(log_prior)(x)


def _preconditioner(setting: Setting, V: Any) -> NDArray[np.float64]:
    """G of the step η, which multiplies ∇U."""
    G = np.linalg.inv(ls.theory.laplacian_matrix(blr.DIM, setting.sigma))
    if V is None:
        return np.asarray(G)
    scale = blr.posterior().num_examples if setting.gradient == "∇U" else 1
    root = np.sqrt(1 / scale / (1e-5 / scale + np.sqrt(np.asarray(V, np.float64))))
    return np.asarray(root[:, np.newaxis] * G * root)
