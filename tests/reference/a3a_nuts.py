"""Make tests/reference/a3a_nuts.json: the a3a posterior under a standard normal prior by a long NUTS run.

python tests/reference/a3a_nuts.py
"""

import json
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

import lsmcmc as ls

WARM_UP, DRAWS, CHAINS = 1_000, 5_000, 4


def main() -> None:
    (X, y), (X_test, y_test) = ls.data.a3a()
    data = (jnp.asarray(X, jnp.float64), jnp.asarray(y, jnp.float64))

    def log_density(x, data):
        rows, labels = data
        return jax.nn.log_sigmoid(labels * (rows @ x)).sum() - 0.5 * jnp.sum(x**2)

    @jax.jit
    def chain(key, data):
        warm_up_key, key = jax.random.split(key)
        adaptation = blackjax.window_adaptation(blackjax.nuts, lambda x: log_density(x, data))
        (state, parameters), _ = adaptation.run(warm_up_key, jnp.zeros(X.shape[1], jnp.float64), WARM_UP)
        step = blackjax.nuts(lambda x: log_density(x, data), **parameters).step

        def one(state, key):
            state, info = step(key, state)
            return state, (state.position, info.is_divergent)

        return jax.lax.scan(one, state, jax.random.split(key, DRAWS))[1]

    runs = [chain(key, data) for key in jax.random.split(jax.random.key(2026), CHAINS)]
    draws = np.stack([np.asarray(positions) for positions, _ in runs])
    predicted = np.mean([1 / (1 + np.exp(-(X_test @ x))) for x in draws[:, ::10].reshape(-1, X.shape[1])], axis=0)
    result = {
        "what": f"NUTS, {CHAINS} chains x {DRAWS} draws after {WARM_UP} of warm-up, float64, prior N(0, I)",
        "blackjax": blackjax.__version__,
        "divergences": int(sum(np.asarray(divergent).sum() for _, divergent in runs)),
        "max_rhat": float(np.max(ls.diagnostics.rhat(draws))),
        "min_ess": float(np.min(ls.diagnostics.ess(draws))),
        "test_nll": float(-np.log(np.where(y_test > 0, predicted, 1 - predicted)).mean()),
        "mean": draws.mean((0, 1)).round(6).tolist(),
        "sd": draws.std((0, 1)).round(6).tolist(),
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    print({key: value for key, value in result.items() if key not in ("mean", "sd")})


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
