"""The tables of docs/choosing.md: bias against step size and batch size, error at equal gradients, every sampler.

Linear regression with known noise, whose posterior is Gaussian and known. Run it with

    python examples/bias_table.py

A few minutes on two cores; it prints Markdown.
"""

import jax.numpy as jnp
import numpy as np

import lsmcmc as ls

N, D = 200, 5
BATCHES = (5, 20, N)
FRACTIONS = (1 / 64, 1 / 16, 1 / 4)  # of the step size from which on a chain of full gradients explodes
PASSES = 1_000  # over the data, in gradients of single rows, that each chain may spend
CHAINS = {5: 128, 20: 512, N: 2_048}
MOST_DRAWS = 2_000
TEST_EVERY = 5


def model():
    """The posterior, its mean and its covariance: correlated columns, curvatures from 100 to 1,000."""
    rng = np.random.default_rng(0)
    turned, _ = np.linalg.qr(rng.normal(size=(D, D)))
    X, _ = np.linalg.qr(rng.normal(size=(N, D)))
    X = X @ np.diag(np.sqrt(np.geomspace(100, 1_000, D))) @ turned
    y = X @ rng.normal(size=D) + rng.normal(size=N)
    C = np.linalg.inv(X.T @ X)

    def log_likelihood(x, batch):
        X, y = batch
        return -0.5 * (y - X @ x) ** 2

    data = X.astype(np.float32), y.astype(np.float32)
    return ls.Posterior(log_likelihood, lambda x: 0.0 * x.sum(), data), C @ X.T @ y, C, X, y


POSTERIOR, MEAN, C, X, Y = model()
H = np.linalg.inv(C)
CURVATURES, DIRECTIONS = np.linalg.eigh(H)
FIRST, LAST = CURVATURES[[0, -1]]
FRICTION = 2 * np.sqrt(FIRST)  # critical for the slowest direction


def psgld_limit(batch_size):
    """2/λmax(G H), G from the mean square of a coordinate of the gradient at rest."""
    rows = X * (Y - X @ MEAN)[:, None]
    square = np.diag(H) + (N**2 / batch_size * np.diag(rows.T @ rows / N) if batch_size < N else 0)
    G = N / np.sqrt(square)
    return 2 / np.linalg.eigvals(G[:, None] * H).real.max()


LIMIT, SMOOTHED = 2 / LAST, ls.theory.stability_limit(H, sigma=1.0)
MOMENTUM = 2 / np.sqrt(LAST)
SAMPLERS = {
    "`sgld` (`lmc`)": lambda f, size: ls.sgld(f * LIMIT),
    "`ls_sgld`, σ = 1": lambda f, size: ls.ls_sgld(f * SMOOTHED, sigma=1.0),
    "`psgld`": lambda f, size: ls.psgld(f * psgld_limit(size)),
    "`sghmc`": lambda f, size: ls.sghmc(f * MOMENTUM, friction=FRICTION),
    "`sghmc`, symmetric": lambda f, size: ls.sghmc(f * MOMENTUM, friction=FRICTION, integrator="symmetric"),
    "`baoab`": lambda f, size: ls.baoab(f * MOMENTUM, friction=FRICTION),
    "`umcmc`": lambda f, size: ls.umcmc(f * MOMENTUM, friction=FRICTION),
    "`sgnht`": lambda f, size: ls.sgnht(f * MOMENTUM, friction=FRICTION),
    "`amagold`": lambda f, size: ls.amagold(f * MOMENTUM, friction=FRICTION, num_steps=TEST_EVERY),
}
EXACT = {
    "`mala`": lambda f: ls.mala(f * LIMIT),
    "`hmc`, 5 steps": lambda f: ls.hmc(f * MOMENTUM, 5),
}


def starts(chains):
    """Independent draws of the posterior itself."""
    rng = np.random.default_rng(1)
    return jnp.asarray(MEAN + rng.normal(size=(chains, D)) @ np.linalg.cholesky(C).T, float)


def variances(draws):
    """Of each chain, about the known mean, along the principal directions, over the exact ones."""
    return np.mean(((draws - MEAN) @ DIRECTIONS) ** 2, axis=1) * CURVATURES


def measure(sampler, cost, batch_size=None):
    """Bias of the variance in the worst direction, and the rms error of one chain after PASSES passes, in percent."""
    steps = round(PASSES * N / cost)
    draws = min(MOST_DRAWS, steps)
    size = N if batch_size is None else batch_size
    options = {"num_draws": draws, "thin": steps // draws, "burn_in": steps // 2, "init": starts(CHAINS[size])}
    gradient = None if batch_size is None else ls.FullBatch() if batch_size == N else ls.Minibatch(batch_size)
    try:
        run = ls.sample(sampler, POSTERIOR, gradient=gradient, **options)
    except ls.DivergenceError:
        return None
    return errors(run.draws)


def errors(draws):
    """Both, in percent: the first signed."""
    found = variances(np.asarray(draws, np.float64))
    bias = found.mean(0) - 1
    return 100 * bias[np.argmax(np.abs(bias))], 100 * np.sqrt(np.mean((found - 1) ** 2))


def nuts():
    """The draws that PASSES gradients on all data pay for, after a warm-up."""
    run = ls.sample(ls.nuts(), POSTERIOR, num_draws=600, burn_in=300, init=starts(256))
    paid = np.cumsum(run.statistics["n_steps"], axis=1) <= PASSES
    assert not paid[:, -1].any()
    found = np.stack([variances(chain[None, mask])[0] for chain, mask in zip(run.draws, paid, strict=True)])
    bias = found.mean(0) - 1
    return 100 * bias[np.argmax(np.abs(bias))], 100 * np.sqrt(np.mean((found - 1) ** 2)), paid.sum(1).mean()


def cell(result, which, form):
    """A number, or a dash for a chain that explodes."""
    return "—" if result is None or not abs(result[which]) < 1e4 else form.format(result[which])


def main():
    """Both tables."""
    table = {}
    for name, form in SAMPLERS.items():
        for size in BATCHES:
            cost = size + N / TEST_EVERY if "amagold" in name else size
            for f in FRACTIONS:
                table[name, size, f] = measure(form(f, size), cost, size)
    for name, form in EXACT.items():
        for f in FRACTIONS:
            table[name, N, f] = measure(form(f), 5 * N if "hmc" in name else N)
    turn = nuts()
    columns = [(size, f) for size in BATCHES for f in FRACTIONS]
    head = " | ".join(f"B = {size}, 1/{round(1 / f)}" for size, f in columns)
    for which, form in ((0, "{:+.0f}"), (1, "{:.0f}")):
        print(f"\n| | {head} |\n|---|{'---|' * len(columns)}")
        for name in (*SAMPLERS, *EXACT):
            print(f"| {name} | " + " | ".join(cell(table.get((name, *c)), which, form) for c in columns) + " |")
        print("| `nuts` | " + " | ".join([""] * (len(columns) - 1) + [form.format(turn[which])]) + " |")
    print(f"\nNUTS: {turn[2]:.0f} draws from {PASSES} gradients.")


if __name__ == "__main__":
    main()
