"""Is a breast tumour malignant? Bayesian logistic regression by Laplacian smoothing SGLD.

The data come with scikit-learn: 569 patients, 30 measurements each. Run it with `make demo`, or

    python examples/demo.py [picture.png]
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import lsmcmc as ls

SIGMA = 0.5
STEP_SIZE = 4e-3
FORMATS = dict.fromkeys(["mean", "sd", "5%", "50%", "95%"], "{:.2f}".format) | {
    "ess_bulk": "{:.0f}".format,
    "ess_tail": "{:.0f}".format,
    "r_hat": "{:.3f}".format,
}


def load():
    """Standardised training and test rows with a column of ones, and the names of the columns; 1 is malignant."""
    cancer = load_breast_cancer()
    split = train_test_split(cancer.data, cancer.target == 0, random_state=0, stratify=cancer.target)
    X_train, X_test, y_train, y_test = (part.astype(np.float32) for part in split)
    scaler = StandardScaler().fit(X_train)

    def with_ones(X):
        return np.column_stack([np.ones_like(X[:, 0]), scaler.transform(X)])

    return (with_ones(X_train), y_train), (with_ones(X_test), y_test), ["intercept", *cancer.feature_names]


def log_likelihood(x, batch):
    """One value per patient: the log probability of the label."""
    X, y = batch
    return jax.nn.log_sigmoid((2 * y - 1) * (X @ x))


def log_prior(x):
    """Every coefficient is N(0, 1)."""
    return -0.5 * jnp.sum(x**2)


def probability(x, X):
    """That each patient of X has a malignant tumour."""
    return jax.nn.sigmoid(X @ x)


def stability_limit(posterior, x):
    """2/λmax(A⁻¹H), H the curvature of U at x: with a step size above it the linearised chain explodes."""
    H = -jax.hessian(posterior.log_density)(x)
    A = ls.theory.laplacian_matrix(len(x), SIGMA)
    return 2 / np.linalg.eigvals(np.linalg.solve(A, H)).real.max()


def main(picture):
    """Sample, summarise, predict, plot."""
    picture.parent.mkdir(parents=True, exist_ok=True)
    train, (X_test, y_test), names = load()
    posterior = ls.Posterior(log_likelihood, log_prior, data=train)

    # The step size. A chain is stable below 2/λmax(A⁻¹H), which is 0.066 at the posterior mean (printed below). That is
    # a bound, not a recommendation: the bias grows with h. At a sixteenth of it ls.theory.stationary_covariance gives
    # standard deviations at most 1 % too wide, minibatch noise included, but 17 % too much variance along the stiffest
    # direction, whose share of each coefficient is small. A larger batch or a smaller step buys less bias.
    #
    # The length. The slowest direction forgets itself in 1/(h λmin(A⁻¹H)) = 700 steps. So burn_in is fourteen times
    # that, every hundredth step is kept, and a chain of 300,000 steps is worth about 200 independent draws of it.
    run = ls.sample(
        ls.ls_sgld(STEP_SIZE, sigma=SIGMA),
        posterior,
        init=lambda key: jax.random.normal(key, (len(names),)),  # each chain starts at its own draw from the prior
        num_draws=3_000,
        batch_size=128,
        burn_in=10_000,
        thin=100,
        chains=4,
        seed=0,
    )
    table = run.summary()
    table.index = names

    limit = stability_limit(posterior, jnp.asarray(run.mean(), float))
    print(f"{posterior.num_examples} patients, {len(names)} coefficients, batches of 128 patients")
    print(f"step size {STEP_SIZE:g}; stable below {limit:.2g} at the posterior mean")
    print(run)
    print()
    print(table.to_string(formatters=FORMATS))
    print()
    print(f"worst R-hat {table.r_hat.max():.3f}, smallest ESS {table.ess_bulk.min():.0f}")

    p = np.asarray(run.predict(probability, X_test))
    accuracy = np.mean((p > 0.5) == y_test)
    log_loss = -np.mean(np.log(np.where(y_test == 1, p, 1 - p)))
    print(f"posterior predictive on {len(y_test)} other patients: accuracy {accuracy:.3f}, log loss {log_loss:.3f}")

    plot(run, table).savefig(picture, dpi=88, pil_kwargs={"optimize": True})
    print(f"picture: {picture}")


def plot(run, table):
    """Intervals of all coefficients beside the trace and the histograms of the one that mixed worst."""
    figure = Figure(figsize=(10, 6), layout="constrained")
    panels = figure.subplot_mosaic([["all", "trace"], ["all", "density"]], width_ratios=[1, 1])

    order = np.argsort(table["50%"].to_numpy())
    rows = np.arange(len(order))
    flat = run.draws.reshape(-1, len(order))[:, order]
    for inner, width in ((90, 1.5), (50, 4.5)):
        low, high = np.percentile(flat, [50 - inner / 2, 50 + inner / 2], axis=0)
        panels["all"].hlines(rows, low, high, color="tab:blue", linewidth=width, label=f"{inner} % interval")
    panels["all"].plot(np.median(flat, axis=0), rows, "o", color="white", markersize=2.5)
    panels["all"].axvline(0, color="grey", linewidth=0.8, zorder=0)
    panels["all"].set_yticks(rows, [table.index[i] for i in order], fontsize=7.5)
    panels["all"].set_ylim(-1, len(order))
    panels["all"].set_xlabel("coefficient (← benign        malignant →)")
    panels["all"].set_title("Posterior of all coefficients")
    panels["all"].legend(loc="lower right", frameon=False, fontsize=8)

    worst = int(np.argmax(table.r_hat))
    bins = np.linspace(*np.percentile(run.draws[..., worst], [0.05, 99.95]), 50)
    for chain, draws in enumerate(run.draws[..., worst]):
        panels["trace"].plot(range(0, len(draws), 10), draws[::10], linewidth=0.7)
        panels["density"].hist(draws, bins, density=True, histtype="step", label=f"chain {chain}")
    panels["trace"].set_title(f"Trace of “{table.index[worst]}”, the worst R-hat ({table.r_hat.iloc[worst]:.3f})")
    panels["trace"].set_xlabel("draw (every tenth is shown)")
    panels["density"].set_title("The same coefficient, chain by chain")
    panels["density"].set_xlabel("coefficient")
    panels["density"].set_yticks([])
    panels["density"].legend(frameon=False, fontsize=8)
    for panel in panels.values():
        panel.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo.png").resolve())
