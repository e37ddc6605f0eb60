"""The tables of docs/choosing.md: the bias of each linear sampler by step size and batch size, exact, without sampling.

Linear regression, where a step is z' = F z + K g(L z) + noise with g = H_b z − c_b of a random batch b, so that the
covariance at rest solves a linear equation. Run it with `python examples/bias_table.py`; it takes a second.
"""

import numpy as np

import lsmcmc as ls

N, D = 200, 5
BATCHES, FRACTIONS = (5, 20, N), (1 / 64, 1 / 16, 1 / 4)

rng = np.random.default_rng(0)
turned, _ = np.linalg.qr(rng.normal(size=(D, D)))
X, _ = np.linalg.qr(rng.normal(size=(N, D)))
X = X @ np.diag(np.sqrt(np.geomspace(100, 1_000, D))) @ turned
y = X @ rng.normal(size=D) + rng.normal(size=N)
H = X.T @ X
E = y - X @ np.linalg.solve(H, X.T @ y)
CURVATURES, DIRECTIONS = np.linalg.eigh(H)
FRICTION = 2 * np.sqrt(CURVATURES[0])
EYE, Z = np.eye(D), np.zeros((D, D))


def overdamped(h, G):
    """X' = x − hGg + √(2h) Bε."""
    return EYE, -h * G, EYE, 2 * h * G


def kicked(h, before, damping, after, spread):
    """Drift by `before`, r' = damping·r − h·(kick) + noise, drift by `after`: all of z = (x, r)."""
    first = np.block([[EYE, before * EYE], [Z, EYE]])
    last = np.block([[EYE, after * EYE], [Z, EYE]])
    kick, scale = spread[1], spread[0]
    return (
        last @ np.block([[EYE, Z], [Z, damping * EYE]]) @ first,
        last @ np.vstack([Z, -kick * EYE]),
        np.hstack([EYE, before * EYE]),
        last @ np.block([[Z, Z], [Z, scale * EYE]]) @ last.T,
    )


def baoa(h):
    """Kick, half a drift, friction and noise exactly, half a drift."""
    c, half = np.exp(-FRICTION * h), np.block([[EYE, h / 2 * EYE], [Z, EYE]])
    rest = half @ np.block([[EYE, Z], [Z, c * EYE]]) @ half
    noise = half @ np.block([[Z, Z], [Z, (1 - c**2) * EYE]]) @ half.T
    return rest, rest @ np.vstack([Z, -h * EYE]), np.hstack([EYE, Z]), noise


def symmetric(h):
    """Half a drift, half the friction, the kick, half the friction, half a drift."""
    c = np.exp(-FRICTION * h / 2)
    return kicked(h, h / 2, c**2, h / 2, (c**2 * 2 * h * FRICTION, c * h))


SMOOTH = np.linalg.inv(ls.theory.laplacian_matrix(D, 1.0))
LIMIT, MOMENTUM = 2 / CURVATURES[-1], 2 / np.sqrt(CURVATURES[-1])
SAMPLERS = {
    "`sgld`": lambda f: overdamped(f * LIMIT, EYE),
    "`ls_sgld`, σ = 1": lambda f: overdamped(f * ls.theory.stability_limit(H, sigma=1.0), SMOOTH),
    "`sghmc`": lambda f: kicked(
        f * MOMENTUM, 0.0, 1 - f * MOMENTUM * FRICTION, f * MOMENTUM, (2 * f * MOMENTUM * FRICTION, f * MOMENTUM)
    ),
    "`sghmc`, symmetric": lambda f: symmetric(f * MOMENTUM),
    "`baoab`": lambda f: baoa(f * MOMENTUM),
}


def second_moment(C, size):
    """E[H_b C H_b] over batches drawn with replacement."""
    if size == N:
        return H @ C @ H
    return N / size * (X.T * np.einsum("ij,jk,ik->i", X, C, X)) @ X + (1 - 1 / size) * H @ C @ H


def at_rest(step, size):
    """The covariance of x at rest, or None, and 1 − ρ of the mean step."""
    F, K, L, Q = step
    S = np.zeros((D, D)) if size == N else N / size * (X.T * E**2) @ X

    def after(C):
        cross = F @ C @ L.T @ H @ K.T
        return F @ C @ F.T + cross + cross.T + K @ second_moment(L @ C @ L.T, size) @ K.T

    d = len(F)
    basis = np.eye(d * d).reshape(-1, d, d)
    operator = np.stack([after((e + e.T) / 2).ravel() for e in basis], axis=1)
    gap = 1 - np.abs(np.linalg.eigvals(F + K @ H @ L)).max()
    if np.abs(np.linalg.eigvals(operator)).max() >= 1:
        return None, gap
    rest = np.linalg.solve(np.eye(d * d) - operator, (K @ S @ K.T + Q).ravel())
    return rest.reshape(d, d)[:D, :D], gap


def cells(name, size, f):
    """Bias of the variance in the worst direction, in percent, and passes over the data for a draw that is new."""
    C, gap = at_rest(SAMPLERS[name](f), size)
    if C is None:
        return "—", "—"
    ratio = np.diag(DIRECTIONS.T @ C @ DIRECTIONS) * CURVATURES - 1
    worst = 100 * ratio[np.argmax(np.abs(ratio))]
    return f"{worst:+.1f}" if abs(worst) < 10 else f"{worst:+.0f}", _plain(2 / gap * size / N)


def _plain(number):
    return f"{number:.0f}" if number >= 10 else f"{number:.1f}"


columns = [(size, f) for size in BATCHES for f in FRACTIONS]
for which in range(2):
    print("| | " + " | ".join(f"B = {size}, 1/{round(1 / f)}" for size, f in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for name in SAMPLERS:
        print(f"| {name} | " + " | ".join(cells(name, size, f)[which] for size, f in columns) + " |")
    print()
