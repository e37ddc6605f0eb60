"""Figure 3: does smoothing slow down mixing? Errors of the mean by LD and LS-LD, on a Gaussian and on the mixture."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import lsmcmc as ls
from lsmcmc.experiments import mixture
from lsmcmc.experiments.parts import Arrays, Parts
from lsmcmc.experiments.result import Claim, Result, Verdict, errors_off, interval_of_mean, judge_similar
from lsmcmc.progress import Progress

NAME = "figure3"
TITLE = "Figure 3: the mixing of LD and LS-LD"
BATCHES, QUICK_BATCHES, RUNS = 10, 2, 100  # runs in a batch
NUM_DRAWS, QUICK_DRAWS = 200_000, 100_000
QUICK = f"{QUICK_BATCHES * RUNS} runs of {QUICK_DRAWS:,} draws instead of {BATCHES * RUNS:,} of {NUM_DRAWS:,}"

ETA = 0.02
SHOWN = 10  # runs, as in the paper's figure
ALIKE = 1.5  # the factor up to which two errors count as similar
MEAN, VARIANCE = np.array([1.0, 2.0]), 4.5
COUNTS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 200_000)
JUDGED = (1_000, 10_000, 100_000)
SAMPLERS = ("LD", "LS-LD")
TARGETS = ("Gaussian", "mixture")


@dataclass(frozen=True)
class Curve:
    """One sampler on one target: squared errors of the running mean, axes (run, count)."""

    target: str
    sampler: str
    counts: tuple[int, ...]
    errors: NDArray[np.float64]

    def rows(self) -> list[dict[str, Any]]:
        """For the table: a row per number of draws."""
        exactly = exact(self.sampler, self.counts) if self.target == "Gaussian" else [None] * len(self.counts)
        rows = []
        for n, errors, value in zip(self.counts, self.errors.T, exactly, strict=True):
            mean, low, high = interval_of_mean(errors)
            row = {"target": self.target, "sampler": self.sampler, "num_draws": n, "mse": mean, "mse_low": low}
            rows.append(row | {"mse_high": high, "mse_exact": value, f"mse_first_{SHOWN}": errors[:SHOWN].mean()})
        return rows


def run(*, quick: bool, seed: int, parts: Parts = Parts()) -> Result:
    """Both samplers on both targets."""
    num_draws, batches = (QUICK_DRAWS, QUICK_BATCHES) if quick else (NUM_DRAWS, BATCHES)
    counts = tuple(n for n in COUNTS if n <= num_draws)
    curves = _curves(counts, batches, seed, parts)
    return Result(
        NAME,
        TITLE,
        {
            "quick": quick,
            "seed": seed,
            "runs": batches * RUNS,
            "runs_shown": SHOWN,
            "num_draws": num_draws,
            "step": ETA,
            "sigma": mixture.SIGMA,
            "similar_up_to": ALIKE,
        },
        [_on_the_curve(curves), *_claims(curves)],
        {"errors": [row for curve in curves for row in curve.rows()]},
        {"errors": _plot(curves)},
        [
            f"Neither σ nor the step is printed: σ = {mixture.SIGMA:g} as in Figure 2, and η = {ETA} for all. Runs "
            "start at 0, as in Algorithm 1, and every draw counts. The error is the squared error of the mean of the "
            "draws so far, averaged over both coordinates.",
            "The true mean is (1, 2) for the Gaussian and that by quadrature for the mixture. On the Gaussian both "
            "chains are linear, so the expected error is known exactly at every length: the dashed curves.",
            "In two dimensions A_σ⁻¹ leaves the direction (1, 1) as it is and slows (1, −1) down by 1 + 2σ. The modes "
            "of the mixture lie along (1, 1), so moving between them, which decides its error, is not slowed; on the "
            "Gaussian one of two equal directions is, and the error of a long run doubles at σ = 1 (a factor 1 + σ).",
            f"“Similar” is read as: within a factor {ALIKE:g}.",
        ],
        f"95 % intervals over {batches * RUNS} runs, paired by seed. Where LD and LS-LD are compared the number is the "
        "ratio of their mean squared errors, with an interval by the delta method on the log scale.",
    )


def _curves(counts: tuple[int, ...], batches: int, seed: int, parts: Parts) -> list[Curve]:
    """A batch of runs is a part of its own, with its own seed."""
    curves = []
    with Progress(len(TARGETS) * len(SAMPLERS) * batches, label=NAME) as bar:
        for target in TARGETS:
            for sampler in SAMPLERS:
                found = []
                for batch in range(batches):
                    name = f"{target}-{sampler}-{batch}"
                    part = parts.get(name, lambda: _errors(target, sampler, counts, seed, batch))  # noqa: B023
                    found.append(part["errors"])
                    bar.advance(1)
                curves.append(Curve(target, sampler, counts, np.concatenate(found)))
    return curves


def _errors(target: str, sampler: str, counts: tuple[int, ...], seed: int, batch: int) -> Arrays:
    """Squared errors of the running mean, both coordinates averaged, axes (run, count)."""
    smoothing = ls.Laplacian(mixture.SIGMA) if sampler == "LS-LD" else ls.Identity()
    posterior, scale, true = _target(target, seed)
    run = ls.sample(
        ls.lmc(ETA / scale, preconditioner=smoothing, temperature=scale),
        posterior,
        jnp.zeros(2),
        num_draws=counts[-1],
        chains=RUNS,
        seed=seed * BATCHES + batch,
        progress=False,
    )
    means = np.stack([run.draws[:, :n].mean(1, dtype=np.float64) for n in counts], axis=1)
    return {"errors": ((means - true) ** 2).mean(-1)}


def _target(name: str, seed: int) -> tuple[ls.Target | ls.Posterior, int, NDArray[np.float64]]:
    """What is sampled, how often it counts in U, and its true mean."""
    if name == "Gaussian":
        return ls.Target(_log_gaussian), 1, MEAN
    return mixture.posterior("density", seed), mixture.NUM, mixture.quadrature("density", seed).mean


def _log_gaussian(x: Any) -> Any:
    return -jnp.sum((x - jnp.asarray(MEAN, x.dtype)) ** 2) / (2 * VARIANCE)


def exact(sampler: str, counts: tuple[int, ...]) -> list[float]:
    """The expected error on the Gaussian."""
    sigma = mixture.SIGMA if sampler == "LS-LD" else 0.0
    chain = ls.theory.linear_chain(np.eye(2) / VARIANCE, ETA, sigma=sigma)
    return [chain.mean_mse(n, -MEAN) for n in counts]


def _claims(curves: list[Curve]) -> list[Claim]:
    return [
        _similar(next(c for c in curves if (c.target, c.sampler) == (target, "LS-LD")), curves, n)
        for target in TARGETS
        for n in JUDGED
        if n in curves[0].counts
    ]


def _similar(ours: Curve, curves: list[Curve], n: int) -> Claim:
    other = next(c for c in curves if (c.target, c.sampler) == (ours.target, "LD"))
    i = ours.counts.index(n)
    note = ""
    if ours.target == "Gaussian":
        note = f"Exact ratio of the expected errors: {exact('LS-LD', (n,))[0] / exact('LD', (n,))[0]:.3g}."
    claim = f"LD and LS-LD perform similarly in the mean of the {ours.target}, after {n:,} draws"
    return judge_similar(claim, "similar", ours.errors[:, i], other.errors[:, i], ALIKE, note)


def _on_the_curve(curves: list[Curve]) -> Claim:
    """Measured ÷ exact on the Gaussian, judged by the point furthest from its value, as in Figure 1."""
    linear = [c for c in curves if c.target == "Gaussian"]
    values = np.concatenate([c.errors.T for c in linear])  # (point, run)
    exactly = np.concatenate([exact(c.sampler, c.counts) for c in linear])
    furthest, allowed = errors_off(values, exactly)
    mean, low, high = interval_of_mean((values / exactly[:, np.newaxis]).mean(0))
    return Claim(
        "the error of LD and LS-LD on the Gaussian is that of the exact curve (a check of this library, not of the "
        "paper): measured ÷ exact",
        "no curve in the paper",
        mean,
        (low, high),
        Verdict.REPRODUCED if furthest < allowed else Verdict.NOT_REPRODUCED,
        f"The furthest of {len(values)} points is {furthest:.1f} standard errors from its exact value; "
        f"more than {allowed:.1f} would happen by chance about once in a hundred.",
    )


def _plot(curves: list[Curve]) -> Any:
    """The two panels: lines are the mean of the first runs, bands the interval of the mean over all of them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    for panel, target in zip(figure.subplots(1, 2), TARGETS, strict=True):
        for i, sampler in enumerate(SAMPLERS):
            curve = next(c for c in curves if (c.target, c.sampler) == (target, sampler))
            n, rows = np.array(curve.counts), curve.rows()
            low, high = ([row[f"mse_{end}"] for row in rows] for end in ("low", "high"))
            panel.fill_between(n, low, high, alpha=0.35, color=f"C{i}", label=f"{sampler}, {len(curve.errors)} runs")
            panel.plot(n, curve.errors[:SHOWN].mean(0), ".-", color=f"C{i}", label=f"{sampler}, {SHOWN} of them")
            if target == "Gaussian":
                fine = tuple(int(v) for v in np.geomspace(n[0], n[-1], 60))
                panel.plot(fine, exact(sampler, fine), "--", color=f"C{i}", linewidth=1, label=f"{sampler}, exact")
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("number of draws")
        panel.set_title({"Gaussian": "N((1, 2), 4.5 I)", "mixture": "the mixture"}[target])
        panel.legend(fontsize=8, frameon=False)
    figure.axes[0].set_ylabel("mean squared error of the mean")
    return figure
