"""The text's claim of a negligible overhead: time and memory of a step with smoothing and without."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

import lsmcmc as ls
from lsmcmc import smoothing
from lsmcmc.experiments.parts import Parts
from lsmcmc.experiments.result import Claim, Result, Verdict, interval_of_mean
from lsmcmc.layout import Axes, along
from lsmcmc.progress import Progress

NAME = "overhead"
TITLE = "Overhead: time and memory of a smoothed step"
ALLOWED = 1.1  # the whole interval of a ratio below it is called negligible
SIGMA = 0.5
_TRIES, _MOST = 3, 30_000  # timings of a method in a round; steps of one timing


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int
    seconds: float  # of one timing, at least
    dimensions: tuple[int, ...]


FULL = Size(20, 0.1, (1_000, 10_000, 100_000, 1_000_000, 1_000_003, 10_000_000))
SHORT = Size(5, 0.02, (1_000, 100_000, 100_003))
QUICK = (
    f"{SHORT.rounds} rounds of {SHORT.seconds} s instead of {FULL.rounds} of {FULL.seconds} s, and vectors of "
    f"{len(SHORT.dimensions)} lengths instead of {len(FULL.dimensions)}, up to {max(SHORT.dimensions):,}"
)


class Fourier(ls.Preconditioner):
    """The paper's A^{-1/2} by Fourier transform, in place of the filter: there and back for B and again for Bᵀ."""

    axes: Axes = eqx.field(static=True)

    def apply(self, state: PyTree, v: PyTree) -> PyTree:
        """A^{-1/2} v."""
        del state
        axes = iter(self.axes.broadcast(v))
        return jax.tree.map(lambda leaf: along(leaf, next(axes), lambda w: smoothing.sqrt_solve(w, SIGMA)), v)

    apply_transpose = apply


METHODS: dict[str, Callable[[Any], ls.Preconditioner]] = {
    "none": lambda axes: ls.Identity(),
    "filter": lambda axes: ls.Laplacian(SIGMA, axes=axes),
    "Fourier": lambda axes: Fourier(Axes(axes)),
}


@dataclass(frozen=True)
class Case:
    """Something to sample: `oracle(data, step, position)` is that of a step."""

    name: str
    position: PyTree
    data: Any
    oracle: Callable[[Any, Array, PyTree], Any]
    step_size: float
    axes: Any = None
    batch_size: int | None = None  # where the whole loop of `ls.sample` is timed


def run(*, quick: bool, seed: int, parts: Parts = Parts()) -> Result:
    """Every case, with both forms of smoothing and without, in turn."""
    del parts  # a few minutes' work
    size = SHORT if quick else FULL
    rows = []
    with Progress(2 + len(size.dimensions), label=NAME) as bar:
        for case in _cases(size, seed):
            rows += _measure(case, size)
            bar.advance(1)
    return Result(
        NAME,
        TITLE,
        {"quick": quick, "seed": seed, "sigma": SIGMA, "allowed": ALLOWED, **asdict(size)},
        [claim for row in rows if row["method"] != "none" for claim in (_time_claim(row), _memory_claim(row))],
        {"steps": rows},
        {"ratios": _plot(rows)},
        [
            f"The rule, fixed before anything was measured: negligible is at most {ALLOWED} times the step without "
            "smoothing, by the upper end of the interval.",
            "Filter is this library's B, Fourier the paper's formula, the symmetric root by real transforms. Both make "
            "chains of the same law.",
            "A vector is the worst case: noise is drawn and the gradient costs one multiplication, so all there is to "
            "hide smoothing behind is the noise. Steps run in a compiled loop. a3a is timed in the loop of ls.sample, "
            "which draws noise and rows ahead.",
            "Memory is what the compiler plans for the loop: arguments (the data left out), results and temporaries. "
            "Work space that a Fourier library takes for itself is not in it.",
            "All of this depends on the machine, its load and the version of the compiler.",
        ],
        f"95 % by Student's t over {size.rounds} rounds, of the mean log ratio. In a round all are timed in turn, "
        f"the order reversed every other round, each by the fastest of {_TRIES} timings. Rounds are repeated in one "
        "process: the interval is of the noise of measurement here and not of other machines. Memory is not random.",
    )


def _cases(size: Size, seed: int) -> Iterator[Case]:
    key = jax.random.key(seed)
    model = ls.models.logistic(122, prior=ls.models.gamma_prior(rate=1.0, scale=1e-2))
    yield _with_data("a3a, batch 5", model, ls.data.a3a().train, 5, 1e-3, key)
    network = ls.models.mnist_cnn()
    yield _with_data("the network, batch 100", network, ls.data.mnist().train, 100, 0.02 / 60_000, key, network.axes)
    for d in size.dimensions:
        yield Case(f"a vector of {d:,}", jnp.zeros(d), jnp.ones(d), _quadratic, 1e-3)


def _with_data(
    name: str, model: Any, data: Any, batch_size: int, step_size: float, key: Array, axes: Any = None
) -> Case:
    posterior = ls.Posterior(model.log_likelihood, model.log_prior, data=data)
    estimator = ls.Minibatch(batch_size)

    def oracle(posterior: Any, step: Array, position: PyTree) -> Any:
        return estimator.oracle(posterior, key, position, step)

    in_the_loop = batch_size if axes is None else None  # of the network the loop of ls.sample is this one
    return Case(name, model.init(key), posterior, oracle, step_size, axes, in_the_loop)


def _quadratic(curvature: Array, step: Array, position: PyTree) -> Any:
    del step
    return lambda x: curvature * x  # of the position, or the compiler smooths it once for all steps


def _measure(case: Case, size: Size) -> list[dict[str, Any]]:
    """A row for each method: seconds and memory of a step, and the ratios to that without smoothing."""
    samplers = {name: ls.sgld(case.step_size, preconditioner=make(case.axes)) for name, make in METHODS.items()}
    with ThreadPoolExecutor() as pool:
        compiled = dict(
            zip(samplers, pool.map(lambda sampler: _compile(case, sampler), samplers.values()), strict=True)
        )
    memory = {name: _memory(case, program) for name, (_, program) in compiled.items()}
    if case.batch_size is None:
        timers = {name: timer for name, (timer, _) in compiled.items()}
    else:
        timers = {name: _loop_of_sample(case, sampler) for name, sampler in samplers.items()}
    seconds = _interleaved(timers, size)
    return [_row(case, name, seconds, memory) for name in METHODS]


def _row(case: Case, name: str, seconds: dict[str, Any], memory: dict[str, int]) -> dict[str, Any]:
    leaves = jax.tree.leaves(case.position)
    ratio, low, high = (float(np.exp(v)) for v in interval_of_mean(np.log(seconds[name]) - np.log(seconds["none"])))
    return {
        "case": case.name,
        "d": sum(leaf.size for leaf in leaves),
        "method": name,
        "microseconds": 1e6 * float(np.exp(np.log(seconds[name]).mean())),
        "time_ratio": ratio,
        "time_low": low,
        "time_high": high,
        "vectors_of_d": memory[name] / sum(leaf.nbytes for leaf in leaves),
        "memory_ratio": memory[name] / memory["none"],
    }


def _compile(case: Case, sampler: ls.Sampler) -> tuple[Callable[[int], float], Any]:
    """Seconds of so many steps in a compiled loop, and the program."""
    arrays, rest = eqx.partition(case.data, eqx.is_array)

    def steps(position: PyTree, arrays: Any, count: Array) -> PyTree:
        data, key = eqx.combine(arrays, rest), jax.random.key(0)

        def one(i: Array, state: ls.State) -> ls.State:
            oracle = case.oracle(data, i, state.position)
            return sampler.step(state, oracle, key=jax.random.fold_in(key, i))[0]

        return jax.lax.fori_loop(0, count, one, sampler.init(position, key=key)).position

    program = jax.jit(steps).lower(case.position, arrays, jnp.array(1)).compile()

    def timer(count: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(program(case.position, arrays, jnp.array(count)))
        return time.perf_counter() - began

    return timer, program


def _loop_of_sample(case: Case, sampler: ls.Sampler) -> Callable[[int], float]:
    def timer(count: int) -> float:
        run = ls.sample(
            sampler,
            case.data,
            case.position,
            num_draws=1,
            thin=count,
            batch_size=case.batch_size,
            chunk=_MOST,
            progress=False,
        )
        return run.seconds

    return timer


def _memory(case: Case, program: Any) -> int:
    """Bytes that the program needs beside the data."""
    plan = program.memory_analysis()
    data = sum(leaf.nbytes for leaf in jax.tree.leaves(eqx.filter(case.data, eqx.is_array)))
    return int(plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes) - data


def _interleaved(timers: dict[str, Callable[[int], float]], size: Size) -> dict[str, Any]:
    """Seconds of a step in every round."""
    counts = {name: _count(timer, size.seconds) for name, timer in timers.items()}
    seconds: dict[str, list[float]] = {name: [] for name in timers}
    for number in range(size.rounds):
        for name in list(timers)[:: -1 if number % 2 else 1]:
            seconds[name].append(min(timers[name](counts[name]) for _ in range(_TRIES)) / counts[name])
    return {name: np.array(values) for name, values in seconds.items()}


def _count(timer: Callable[[int], float], seconds: float) -> int:
    """Steps that take so long; warms up."""
    timer(1)
    count = 1
    while count < _MOST and (took := timer(count)) < seconds:
        count = min(_MOST, max(count + 1, int(count * min(10.0, 1.2 * seconds / max(took, 1e-9)))))
    return count


def _time_claim(row: dict[str, Any]) -> Claim:
    note = f"{row['microseconds']:.4g} µs a step."
    interval = (row["time_low"], row["time_high"])
    return _negligible("time", row, row["time_ratio"], interval, note)


def _memory_claim(row: dict[str, Any]) -> Claim:
    note = f"{row['vectors_of_d']:.3g} vectors of d in all."
    return _negligible("memory", row, row["memory_ratio"], (row["memory_ratio"],) * 2, note)


def _negligible(what: str, row: dict[str, Any], ratio: float, interval: tuple[float, float], note: str) -> Claim:
    claim = f"smoothing costs a negligible {what}, {row['method']}: {row['case']}"
    low, high = interval
    verdict = Verdict.REPRODUCED if high <= ALLOWED else Verdict.NOT_REPRODUCED
    seen = f"Above {ALLOWED}." if low > ALLOWED else f"Undecided: {ALLOWED} is inside." if high > ALLOWED else ""
    return Claim(claim, "negligible (Conclusions)", ratio, interval, verdict, f"{seen} {note}".strip())


def _plot(rows: list[dict[str, Any]]) -> Any:
    """Ratios of time and of memory by case."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    cases = list(dict.fromkeys(row["case"] for row in rows))
    for shift, method in ((-0.1, "filter"), (0.1, "Fourier")):
        chosen = [row for row in rows if row["method"] == method]
        y = np.arange(len(cases)) + shift
        ratio = np.array([row["time_ratio"] for row in chosen])
        spread = [ratio - [row["time_low"] for row in chosen], [row["time_high"] for row in chosen] - ratio]
        panels[0].errorbar(ratio, y, xerr=spread, fmt="o", markersize=4, label=method)
        panels[1].plot([row["memory_ratio"] for row in chosen], y, "o", markersize=4, label=method)
    for panel, what in zip(panels, ("time", "memory"), strict=True):
        panel.axvline(ALLOWED, color="grey", linewidth=0.8)
        panel.set_xlabel(f"{what}, with smoothing ÷ without")
    panels[0].set_xscale("log")
    panels[0].set_yticks(range(len(cases)), cases)
    panels[0].invert_yaxis()
    panels[0].legend(frameon=False)
    return figure
