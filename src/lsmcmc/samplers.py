"""Named samplers: each a composition of a dynamics and a preconditioner."""

from typing import Any

from lsmcmc import _checks
from lsmcmc.amagold import AMAGOLD
from lsmcmc.dynamics import Overdamped
from lsmcmc.equation import Sampler
from lsmcmc.exact import HMC, MALA, RWM
from lsmcmc.momentum import BAOAB, SGHMC, NoseHoover, Resampled, SymmetricNoseHoover, SymmetricSGHMC, UnderdampedExact
from lsmcmc.nuts import NUTS
from lsmcmc.preconditioners import Identity, Laplacian, RMSprop
from lsmcmc.recipe import Recipe, as_map, half_square


def sgld(step_size: Any, *, preconditioner: Any = Identity(), temperature: Any = 1.0) -> Sampler:
    """Stochastic gradient Langevin dynamics, x' = x − h B Bᵀg + √(2hT) B ε (Welling and Teh 2011; their ε is 2h).

    B is the identity unless a preconditioner is given. Biased by O(h) and by the minibatch noise, O(h).
    Cost: one gradient estimate, one normal draw.

    >>> sgld(1e-3).preconditioner
    Identity()
    """
    return Sampler(step_size, Overdamped(), preconditioner, temperature)


def lmc(step_size: Any, *, preconditioner: Any = Identity(), temperature: Any = 1.0) -> Sampler:
    """Langevin Monte Carlo: `sgld` on the full gradient (the paper's Eq. lmc); with a Laplacian, LS-LD (Eq. LS-LD).

    Reads all data at every step. Biased by O(h).

    >>> lmc(1e-3, preconditioner=Laplacian(1.0)).reads_all_data
    True
    """
    return Sampler(step_size, Overdamped(), preconditioner, temperature, reads_all_data=True)


def psgld(
    step_size: Any, *, decay: Any = 0.99, eps: Any = 1e-5, gamma: bool = False, temperature: Any = 1.0
) -> Sampler:
    """Preconditioned SGLD, x' = x − h G g + √(2hT) G^{1/2} ε, G by `RMSprop` (Li et al. 2016, Eq. 10).

    Γ is dropped as published unless gamma=True, which costs d more gradients a step; see `RMSprop`.
    Their step ε is 2h, and 1/N is in their gradients.

    >>> psgld(1e-3).preconditioner.gamma
    False
    """
    return Sampler(step_size, Overdamped(), RMSprop(decay, eps, gamma=gamma), temperature)


def ls_sgld(
    step_size: Any,
    *,
    sigma: Any = 1.0,
    scope: str = "leaf",
    axes: Any = None,
    order: int = 1,
    temperature: Any = 1.0,
) -> Sampler:
    """Laplacian smoothing SGLD, x' = x − h A_σ⁻¹g + √(2hT) A_σ^{-1/2} ε (the paper's Eq. LS-SGLD).

    With h = η/N and T = N/β in the paper's η and β. σ = 0 is `sgld`. The options are those of `Laplacian`.

    >>> ls_sgld(1e-3, sigma=0.5).preconditioner.scope
    'leaf'
    """
    return Sampler(step_size, Overdamped(), Laplacian(sigma, scope, axes=axes, order=order), temperature)


def ls_psgld(
    step_size: Any,
    *,
    sigma: Any = 1.0,
    decay: Any = 0.99,
    eps: Any = 1e-5,
    scope: str = "leaf",
    axes: Any = None,
    order: int = 1,
    temperature: Any = 1.0,
) -> Sampler:
    """Laplacian smoothing pSGLD: B = G^{1/2} A_σ^{-1/2} (§4 of the paper), drift and noise consistent.

    The authors' code smooths before V is accumulated and its drift and noise do not match; here V is
    of the raw gradient and B Bᵀ is in both. Γ is dropped, see `RMSprop`.

    >>> ls_psgld(1e-3, sigma=0.5).preconditioner.first.gamma
    False
    """
    preconditioner = RMSprop(decay, eps) @ Laplacian(sigma, scope, axes=axes, order=order)
    return Sampler(step_size, Overdamped(), preconditioner, temperature)


def sghmc(
    step_size: Any,
    *,
    friction: Any,
    noise_estimate: Any = 0.0,
    resample_every: int | None = None,
    integrator: str = "euler",
    preconditioner: Any = Identity(),
    temperature: Any = 1.0,
) -> Sampler:
    """Stochastic gradient HMC, r' = (1 − hγ)r − h Bᵀg + √(2hγT − h²V̂) ε, x' = x + h B r' (Chen et al. 2014, Eq. 15).

    Their η is h², their α is hγ, their β̂ is h²V̂/2 with V̂ = `noise_estimate`, the variance of a coordinate
    of Bᵀg. `resample_every` draws r ~ N(0, T I) anew every so many steps (their Alg. 2). The "symmetric"
    `integrator` is the second-order splitting of Chen, Ding and Carin (2015, Eq. 8), with ∇Û at half a drift.
    With a `Laplacian` this is LS-SGHMC. Biased by O(h), symmetric O(h²), and by the gradient's
    noise beyond V̂, O(h). Cost: one gradient estimate, one normal draw; one more vector, r.

    >>> sghmc(0.01, friction=1.0, integrator="symmetric").dynamics.friction.item()
    1.0
    """
    form = {"euler": SGHMC, "symmetric": SymmetricSGHMC}[_integrator(integrator)]
    dynamics = form(friction, noise_estimate)
    return Sampler(
        step_size,
        dynamics if resample_every is None else Resampled(dynamics, resample_every),
        preconditioner,
        temperature,
    )


def baoab(
    step_size: Any, *, friction: Any, full: bool = False, preconditioner: Any = Identity(), temperature: Any = 1.0
) -> Sampler:
    """Langevin dynamics by the BAOAB splitting (Leimkuhler and Matthews 2013), r exact between kicks.

    The default is the one-gradient form BAOA: kick by h, half a drift, r ← e^{−γh}r + √(T(1 − e^{−2γh})) ε,
    half a drift. `full=True` is B A O A B, two gradients a step on one batch, whose r is right at the end
    of the step too. Biased by O(h²); on a Gaussian its position has no bias at all without gradient noise.

    >>> baoab(0.1, friction=1.0).dynamics.full
    False
    """
    return Sampler(step_size, BAOAB(friction, full=full), preconditioner, temperature)


def umcmc(step_size: Any, *, friction: Any = 2.0, preconditioner: Any = Identity(), temperature: Any = 1.0) -> Sampler:
    """Underdamped Langevin MCMC, its linear part integrated exactly (Cheng et al. 2018, Alg. 1).

    Their γ is 2, and their time is √u ours with u = 1/L. A step is the law of dr = −∇dt − γr dt + √(2γT)dW,
    dy = r dt with ∇ held at its start: two correlated normals per coordinate. Biased by O(h).
    Cost: one gradient estimate, two normal draws; one more vector, r.

    >>> umcmc(0.1).dynamics.friction.item()
    2.0
    """
    return Sampler(step_size, UnderdampedExact(friction), preconditioner, temperature)


def sgnht(
    step_size: Any,
    *,
    friction: Any,
    per_leaf: bool = False,
    integrator: str = "symmetric",
    preconditioner: Any = Identity(),
    temperature: Any = 1.0,
) -> Sampler:
    """Stochastic gradient Nosé–Hoover thermostat: ξ finds the friction that balances the noise of the gradient.

    dy = r dt,  dr = −Bᵀg dt − ξr dt + √(2AT) dW,  dξ = (‖r‖²/d − T) dt, A = `friction` (Ding et al. 2014, Eq. 9).
    The noise may be unknown, but must be alike in all coordinates of y; `per_leaf` has a ξ for each array. The
    "symmetric" `integrator` is that of Chen, Ding and Carin (2015), bias O(h²); "euler" is Alg. 2 of Ding et al., which
    holds the momentum at T and so leaves the position's variance too small by a share of hξ/2.
    Cost: one gradient estimate, one normal draw; r and one number more.

    >>> sgnht(0.01, friction=1.0, per_leaf=True).dynamics.per_leaf
    True
    """
    form = {"euler": NoseHoover, "symmetric": SymmetricNoseHoover}[_integrator(integrator)]
    return Sampler(step_size, form(friction, per_leaf=per_leaf), preconditioner, temperature)


def amagold(
    step_size: Any, *, friction: Any, num_steps: Any, preconditioner: Any = Identity(), temperature: Any = 1.0
) -> Sampler:
    """Amortised Metropolis: `num_steps` steps of symmetric SGHMC on minibatches, then one test on all data.

    Exact at any step size, minibatch noise included (Zhang, Cooper and De Sa 2020, Alg. 1; at their σ = 1 their ε is h
    and their β is γ/2). The position moves at tests alone, so take a multiple of `num_steps` for `thin`. Larger h,
    noisier gradients and more steps are refused more often: see `run.statistics["acceptance_rate"]`. Batches must be
    independent, "iid" or "subset". Cost: one gradient estimate, one normal draw, and U on all data once in `num_steps`
    steps; three more vectors.

    >>> import jax.numpy as jnp, lsmcmc as ls
    >>> target = ls.Target(lambda x: -0.5 * jnp.sum(x**2), noise_scale=1.0)
    >>> sampler = amagold(0.3, friction=1.0, num_steps=5)
    >>> run = ls.sample(sampler, target, jnp.zeros(2), num_draws=20_000, thin=5, burn_in=100)
    >>> run.variance().round(1).tolist()  # sghmc has 1.2
    [1.0, 1.0]
    """
    return Sampler(step_size, AMAGOLD(friction, num_steps), preconditioner, temperature)


def rwm(step_size: Any, *, preconditioner: Any = Identity(), temperature: Any = 1.0) -> Sampler:
    """Random-walk Metropolis, x' = x + s B ε or x, s = `step_size` the proposal's standard deviation: exact.

    By blackjax (`blackjax.additive_step_random_walk`), whose σ is s. Metropolis et al. 1953; best at a step size that
    has 0.234 accepted where dimensions are many (Roberts, Gelman and Gilks 1997). Cost: U on all data, no gradient.

    >>> rwm(2.4).reads_all_data
    True
    """
    return Sampler(step_size, RWM(), preconditioner, temperature)


def mala(step_size: Any, *, preconditioner: Any = Identity(), temperature: Any = 1.0) -> Sampler:
    """Metropolis-adjusted Langevin: a step of `lmc`, x − h B Bᵀ∇U + √(2hT) B ε, that is accepted or refused: exact.

    By blackjax (`blackjax.mala`), with the same h; that of Roberts and Tweedie 1996, §1.4, is 2h. Best at a step size
    that has 0.574 accepted where dimensions are many (Roberts and Rosenthal 1998). With a `Laplacian` the proposal is
    that of LS-LD. Cost: U and ∇U on all data, once.

    >>> mala(0.1, preconditioner=Laplacian(1.0)).preconditioner.scope
    'leaf'
    """
    return Sampler(step_size, MALA(), preconditioner, temperature)


def hmc(step_size: Any, num_steps: Any, *, preconditioner: Any = Identity(), temperature: Any = 1.0) -> Sampler:
    """Hamiltonian Monte Carlo: r ~ N(0, T I), `num_steps` leapfrog steps of length h, accepted or refused: exact.

    By blackjax (`blackjax.hmc` with unit masses; its step is h√T, on U/T). Neal 2011, §5.3; BBᵀ is an inverse mass
    matrix. Best at a step size that has 0.651 accepted where dimensions are many (Beskos et al. 2013). Cost of a step:
    U and ∇U on all data `num_steps` times.

    >>> hmc(0.1, 10).dynamics.num_steps.item()
    10
    """
    return Sampler(step_size, HMC(num_steps), preconditioner, temperature)


def nuts(
    step_size: Any = None, *, target_acceptance: Any = 0.8, max_doublings: int = 10, temperature: Any = 1.0
) -> Sampler:
    """The no-U-turn sampler, exact, whose warm-up is `burn_in`: it finds its step size and a diagonal of masses in it.

    By blackjax (`blackjax.nuts`, with the parts of its window adaptation, Stan's): Hoffman and Gelman 2014, Alg. 3, a
    point drawn from the whole trajectory (Betancourt 2017). `step_size` is where the search begins, 1 by default; a run
    may do without burn_in where it is given, and keeps it, with unit masses. `run.statistics` has the field's numbers:
    acceptance_rate, diverging, energy, n_steps, tree_depth, step_size, lp. Cost of a draw: U and ∇U on all data
    `n_steps` times, at most 2^max_doublings − 1; chains wait for the longest.

    >>> import jax.numpy as jnp, lsmcmc as ls
    >>> target = ls.Target(lambda x: -0.5 * jnp.sum((x / jnp.array([1.0, 100.0])) ** 2))
    >>> run = ls.sample(nuts(), target, jnp.zeros(2), num_draws=1_000, burn_in=500)
    >>> bool(90 < run.draws[..., 1].std() < 110), sorted(run.statistics)[:3]
    (True, ['acceptance_rate', 'diverging', 'energy'])
    """
    dynamics = NUTS(target_acceptance, max_doublings, needs_burn_in=step_size is None)
    return Sampler(1.0 if step_size is None else step_size, dynamics, temperature=temperature)


def recipe(
    D: Any,
    Q: Any = None,
    *,
    step_size: Any,
    auxiliary: Any = None,
    energy: Any = None,
    preconditioner: Any = Identity(),
    temperature: Any = 1.0,
) -> Sampler:
    """A dynamics of your own by the complete recipe (Ma, Chen and Fox 2015, Eq. 3), stepped by Euler–Maruyama.

        z' = z + h(−(D + Q)∇H(z) + TΓ(z)) + √(2hT) √D ε,   Γᵢ = Σⱼ ∂(D + Q)ᵢⱼ/∂zⱼ

    z is the position x, or (x, a) with an `auxiliary(x)` that makes the first a; H = U(x) + `energy(x, a)`, by default
    ½‖a‖². D, positive semi-definite, and Q, skew-symmetric, are arrays or functions of x, or of x and a: matrices over
    the numbers of z in order, or in short form D's diagonal, and q for Q = [[0, −diag q], [diag q, 0]].
    p ∝ exp(−H/T) is at rest as h → 0, whatever D and Q are: Γ comes by automatic differentiation. Biased by O(h).
    Cost: one gradient, as many forward derivatives of D and Q as z has numbers; in matrix form also an
    eigendecomposition. The examples are Riemannian Langevin dynamics and Riemannian HMC (their §4).

    >>> import jax.numpy as jnp
    >>> def metric(x):  # the diagonal of G(x)
    ...     return 1 / (1 + x**2)
    >>> sgrld = recipe(metric, step_size=0.01)
    >>> sgrhmc = recipe(
    ...     lambda x, r: jnp.concatenate([0 * x, metric(x)]),
    ...     lambda x, r: jnp.sqrt(metric(x)),
    ...     step_size=0.01,
    ...     auxiliary=jnp.zeros_like,
    ... )
    """
    if energy is not None and auxiliary is None:
        raise ValueError("energy= is a function of (position, auxiliary): give auxiliary= too, such as jnp.zeros_like.")
    dynamics = Recipe(
        as_map("D", D),
        None if Q is None else as_map("Q", Q),
        None if auxiliary is None else _checks.function("auxiliary", auxiliary, "(position)"),
        None if auxiliary is None else _checks.function("energy", energy or half_square, "(position, auxiliary)"),
    )
    return Sampler(step_size, dynamics, preconditioner, temperature)


def _integrator(name: str) -> str:
    return _checks.choice("integrator", name, ("euler", "symmetric"))
