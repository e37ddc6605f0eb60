"""Every mistake is met before any sampling, by a message that says what came, what is needed, what to write."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lsmcmc as ls
from lsmcmc import _checks
from lsmcmc.sampling import check_pieces

X, Y = np.ones((10, 3), np.float32), np.ones(10, np.float32)


def log_likelihood(x, batch):
    rows, labels = batch
    return -0.5 * (labels - rows @ x) ** 2


def log_prior(x):
    return -0.5 * jnp.sum(x**2)


def posterior(likelihood=log_likelihood, prior=log_prior, data=(X, Y)):
    return ls.Posterior(likelihood, prior, data)


def run(target=None, sampler=None, position=None, **options):
    options = {"num_draws": 5, "batch_size": 2, **options}
    start = jnp.zeros(3) if position is None else position
    return ls.sample(ls.sgld(1e-2) if sampler is None else sampler, target or posterior(), start, **options)


def refused(error, match):
    return pytest.raises(error, match=match)


LIKELIHOODS = {
    "a sum": (lambda x, b: jnp.sum(log_likelihood(x, b)), r"shape \(2,\).*a single number.*Do not sum or average"),
    "a mean": (lambda x, b: jnp.mean(log_likelihood(x, b)), r"one value per example.*the library does"),
    "a column": (lambda x, b: log_likelihood(x, b)[:, None], r"got shape \(2, 1\)\. Write \.squeeze\(-1\)"),
    "a matrix": (lambda x, b: b[0] * x, r"got shape \(2, 3\)\. Sum over the axes after the first"),
    "a wrong length": (lambda x, b: jnp.zeros(7), r"got shape \(7,\)"),
    "whole numbers": (
        lambda x, b: jnp.zeros(2, jnp.int32),
        r"must return real floating-point numbers, got dtype int32",
    ),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("options", [{}, {"batch_size": None, "gradient": ls.FullBatch()}], ids=["minibatch", "full"])
def test_a_likelihood_must_return_one_value_per_example(name, options):
    fn, match = LIKELIHOODS[name]
    match = match.replace(r"\(2,\)", r"\(\d+,\)").replace(r"\(2, ", r"\(\d+, ") if options else match
    if options and name == "whole numbers":
        fn = lambda x, b: jnp.zeros(b[0].shape[0], jnp.int32)  # noqa: E731
    with refused((ValueError, TypeError), match):
        run(posterior(fn), **options)


def test_a_prior_must_return_one_number():
    with refused(ValueError, r"log_prior must return one number, shape \(\), got shape \(3,\)\. Sum over"):
        run(posterior(prior=lambda x: -(x**2)))


def test_a_target_must_return_one_number():
    with refused(ValueError, r"log_density must return one number, shape \(\), got shape \(3,\)"):
        run(ls.Target(lambda x: -(x**2)), batch_size=None)


def test_likelihood_and_prior_must_be_functions():
    with refused(TypeError, r"log_likelihood must be a function of \(position, batch\), got 3"):
        posterior(3)
    with refused(TypeError, r"log_prior must be a function of \(position\), got None"):
        posterior(prior=None)


DATA = {
    "ragged": ((X, Y[:4]), r"same number of rows.*data\[0\] has 10, data\[1\] has 4"),
    "no rows": ((X[:0], Y[:0]), r"data has no rows"),
    "no arrays": ((), r"data has no arrays in it; write data=\(X, y\)"),
    "a number": ((X, 3.0), r"data\[1\] is a single number.*leading axis.*numpy\.asarray"),
    "a list": (([[1.0, 2.0], [3.0]], Y), r"data\[0\]\[0\]\[0\] is a single number.*Lists are read as pytrees"),
}


@pytest.mark.parametrize("name", DATA)
def test_data_must_be_arrays_of_one_length(name):
    data, match = DATA[name]
    with refused(ValueError, match):
        posterior(data=data)


def test_data_must_be_numbers():
    with refused(TypeError, r"data\['label'\] must be an array of numbers"):
        posterior(data={"label": np.array(["a", "b"])})


def test_data_that_are_no_plain_arrays_name_the_way_to_one():
    sparse = pytest.importorskip("scipy.sparse")
    with refused(TypeError, r"data\[0\] must be an array of numbers, got a sparse csr_matrix; write \.toarray\(\)"):
        posterior(data=(sparse.csr_matrix(X), Y))
    with refused(TypeError, r"data\[1\] .*got a masked array; write \.filled\(value\)"):
        posterior(data=(X, np.ma.masked_array(Y, Y > 2)))


@pytest.mark.parametrize(
    ("numbers", "match"),
    [
        (
            np.array([2**40, 1]),
            r"data\[1\] is int64, which JAX stores as int32.*from 1 to 1\.0\d*e\+12.*jax_enable_x64",
        ),
        (np.array([2**32 - 1], np.uint64) * np.uint64(9), r"data\[1\] is uint64, which JAX stores as uint32"),
        (np.array([-1e39, np.inf]), r"data\[1\] is float64, which JAX stores as float32.*from -1e\+39"),
    ],
)
def test_data_that_would_wrap_around_in_32_bits_are_refused(numbers, match):
    with refused(ValueError, match):
        posterior(data=(X[: len(numbers)], numbers))
    small = np.array([2**31 - 1, -(2**31)])
    assert posterior(data=(X[:2], small)).data[1].tolist() == small.tolist()


def test_what_the_caller_changes_later_changes_nothing():
    def aligned(*shape):
        """Zeros that JAX would take for its own without a copy."""
        room = np.zeros(int(np.prod(shape)) + 16, np.float32)
        start = -room.ctypes.data // 4 % 16
        return room[start : start + int(np.prod(shape))].reshape(shape)

    data, start, h = aligned(10, 3), aligned(3), aligned()
    held = posterior(lambda x, batch: batch @ x, data=data)
    state = ls.sgld(1e-2).init(start, key=jax.random.key(0))
    sampler = ls.sgld(h, temperature=h, preconditioner=ls.Laplacian(h))
    for array in (data, start, h):
        array[...] = 1.0
    assert not held.data.any()
    assert not state.position.any()
    for held_number in (sampler.step_size, sampler.temperature, sampler.preconditioner.smoothers.sigma):
        assert float(held_number) == 0.0


@pytest.mark.parametrize(
    ("size", "match"),
    [
        (0, r"batch_size must be at least 1, got 0"),
        (-3, r"got -3"),
        (11, r"batch_size is 11 but the data have 10 rows"),
    ],
)
def test_a_batch_must_fit_the_data(size, match):
    with refused(ValueError, match):
        run(batch_size=size)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("step_size", lambda v: ls.sgld(v)),
        ("temperature", lambda v: ls.sgld(1e-3, temperature=v)),
        ("sigma", lambda v: ls.ls_sgld(1e-3, sigma=v)),
        ("sigma", lambda v: ls.Laplacian({"w": 1.0, "b": v})),
        ("sigma", lambda v: ls.smoothing.solve(jnp.ones(3), v)),
        ("sigma", lambda v: ls.theory.gamma2(10, v)),
        ("eps", lambda v: ls.psgld(1e-3, eps=v)),
        ("decay", lambda v: ls.psgld(1e-3, decay=v)),
        ("noise_scale", lambda v: ls.Target(log_prior, noise_scale=v)),
    ],
)
def test_hyper_parameters_must_be_finite_and_not_negative(name, build, value):
    with refused(ValueError, rf"{name} must be.*finite number.*zero or above.*got"):
        build(value)


def test_decay_must_be_below_one():
    with refused(ValueError, r"decay must be a finite number, zero or above and below 1, got 1"):
        ls.RMSprop(decay=1.0)


def test_a_hyper_parameter_must_be_a_number():
    with refused(TypeError, r"step_size must be a number, got 'fast' \(str\)"):
        ls.sgld("fast")
    with refused(
        ValueError, r"step_size must be one number, got an array of shape \(3,\)\. To vary it by step write a f"
    ):
        ls.sgld(jnp.ones(3))
    with refused(
        ValueError, r"sigma must be one number.*one number for each branch of the position, such as \{'w': 1\.0"
    ):
        ls.Laplacian(jnp.ones(3))
    with refused(ValueError, r"noise_scale must be one number, got an array of shape \(3,\)\.$"):
        ls.Target(log_prior, noise_scale=jnp.ones(3))
    varied = {"w": jnp.ones(3), "b": jnp.ones(3)}  # what the messages say to write works
    for piece in (ls.Laplacian({"w": 1.0, "b": 0.0}), ls.PerLeaf({"w": ls.RMSprop(0.99), "b": ls.RMSprop(0.9)})):
        assert piece.apply(piece.init(varied), varied)["b"].shape == (3,)


@pytest.mark.parametrize(("schedule", "step"), [(lambda k: 1.05e-2 - 1e-3 * k, 11), (lambda k: jnp.nan * k, 0)])
def test_a_schedule_must_stay_finite_and_not_negative(schedule, step):
    with refused(ValueError, rf"step_size must be finite and zero or above at every step.*at step {step}"):
        run(sampler=ls.sgld(schedule), num_draws=50)


@pytest.mark.parametrize("name", ["num_draws", "thin", "chains", "chunk"])
def test_counts_must_be_at_least_one(name):
    with refused(ValueError, rf"{name} must be at least 1, got 0"):
        run(**{name: 0})


def test_burn_in_and_seed_must_not_be_negative():
    with refused(ValueError, r"burn_in must be at least 0, got -1"):
        run(burn_in=-1)
    with refused(ValueError, r"seed must be at least 0, got -1"):
        run(seed=-1)


def test_counts_must_be_whole():
    with refused(TypeError, r"thin must be a whole number, got 2\.5 \(float\)\. Write thin=int"):
        _checks.count("thin", 2.5)


POSITIONS = {
    "whole numbers": (jnp.zeros(3, jnp.int32), TypeError, r"position has dtype int32; .*position\.astype\(float\)"),
    "complex numbers": (jnp.zeros(3, jnp.complex64), TypeError, r"dtype complex64; sampling needs real"),
    "NaN": (jnp.array([0.0, jnp.nan, 0.0]), ValueError, r"position has NaN or infinite entries"),
    "infinity inside": ({"w": jnp.array([jnp.inf])}, ValueError, r"position\['w'\] has NaN or infinite entries"),
    "text": (
        {"w": "zero"},
        TypeError,
        r"position\['w'\] must be an array of numbers, got 'zero' \(str\).*eqx\.partition",
    ),
    "a random key": (
        {"w": jnp.zeros(3), "key": jax.random.key(0)},
        TypeError,
        r"position\['key'\] is a random key .* Leave it out of the position",
    ),
    "numbers beyond float32": (np.array([1e300]), ValueError, r"position is float64.*stores as float32.*to 1e\+300"),
    "nothing": ({}, ValueError, r"position has no arrays in it"),
    "a wrong shape": (jnp.zeros(4), ValueError, r"log_likelihood\(position, batch\) failed[\s\S]*float32\[4\]"),
    "a chain axis": (jnp.zeros((2, 3)), ValueError, r"one pytree for all chains, without a chain axis"),
    "another structure": ({"w": jnp.zeros(3)}, ValueError, r"log_likelihood\(position, batch\) failed with \w+Error"),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_a_position_must_be_finite_floats_that_the_likelihood_takes(name):
    position, error, match = POSITIONS[name]
    with refused(error, match):
        run(position=position)


def test_there_is_exactly_one_start():
    match = r"exactly one of position .*, init= .* and state="
    with refused(ValueError, match):
        ls.sample(ls.sgld(1e-2), posterior(), num_draws=1, batch_size=2)
    with refused(ValueError, match):
        run(init=lambda key: jnp.zeros(3))


def test_a_state_keeps_its_number_of_chains():
    first = run(chains=2)
    with refused(ValueError, r"state has 2 chains; leave out chains=3"):
        ls.sample(ls.sgld(1e-2), posterior(), state=first.state, num_draws=1, batch_size=2, chains=3)


def test_a_stochastic_sampler_on_data_needs_a_batch_size():
    with refused(ValueError, r"on 10 rows of data needs a batch size: write batch_size=32, or gradient="):
        run(batch_size=None)


def test_batch_size_and_gradient_are_not_given_together():
    with refused(ValueError, r"both gradient= and batch_size= are given"):
        run(gradient=ls.Minibatch(2))


def test_a_full_gradient_sampler_takes_no_batch():
    with refused(ValueError, r"reads all data at every step; leave out batch_size"):
        run(sampler=ls.lmc(1e-2))


def test_a_target_has_no_minibatches():
    with refused(TypeError, r"a Target has no data to draw minibatches from"):
        run(ls.Target(log_prior))


def test_target_and_sampler_must_be_what_they_are():
    with refused(
        TypeError, r"the target must be an ls\.Posterior or an ls\.Target, got function.*ls\.Target\(log_density\)"
    ):
        check_pieces(ls.sgld(1e-2), log_prior)
    with refused(TypeError, r"the sampler must be one such as ls\.sgld\(1e-4\), got 3"):
        check_pieces(3, posterior())


def test_unknown_words_name_the_known_ones():
    with refused(ValueError, r"scope must be one of 'leaf', 'global', got 'tensor'"):
        ls.Laplacian(1.0, scope="tensor")
    with refused(ValueError, r"scheme must be one of 'iid', 'subset', 'epochs', 'blocks', got 'random'"):
        ls.Minibatch(2, scheme="random")
    with refused(ValueError, r"keep must be 'draws' .* got 'everything'"):
        run(keep="everything")


def test_prefixes_must_fit_the_position():
    with refused(ValueError, r"sigma is no prefix of the position"):
        run(sampler=ls.ls_sgld(1e-2, sigma={"w": 1.0}))
    with refused(ValueError, r"preconditioner is no prefix of the position"):
        run(sampler=ls.sgld(1e-2, preconditioner={"w": ls.Identity()}))
    with refused(TypeError, r"preconditioner\['w'\] must be a preconditioner such as ls\.Laplacian\(1\.0\), got 3"):
        ls.sgld(1e-2, preconditioner={"w": 3})


def test_draws_that_cannot_fit_are_refused_with_their_size():
    with refused(ValueError, r"need \d+\.\d GB and this machine has \d+\.\d GB.*keep='moments'"):
        run(ls.Target(log_prior), position=jnp.zeros(20_000), num_draws=10**8, batch_size=None)


def test_a_failing_likelihood_shows_its_own_error_too():
    def broken(x, batch):
        raise KeyError("weights")

    with refused(ValueError, r"failed with KeyError: 'weights'") as caught:
        run(posterior(broken))
    assert isinstance(caught.value.__cause__, KeyError)


def test_keep_must_return_something():
    with refused(ValueError, r"keep\(position\) returned nothing to store"):
        run(keep=lambda x: None)


def test_a_gradient_at_the_start_that_is_not_finite_stops_at_step_one():
    with pytest.raises(ls.DivergenceError, match=r"chain 0 left the finite numbers at step 1, at step size 0.01"):
        run(ls.Target(lambda x: jnp.sum(jnp.sqrt(x))), batch_size=None)


def test_checks_pass_under_a_tracer():
    """Inside a compiled function numbers cannot be seen, and are not refused for it."""
    assert jax.jit(lambda s: ls.ls_sgld(s, sigma=s).preconditioner.apply((), jnp.ones(4)))(0.5).shape == (4,)


@pytest.mark.parametrize("gradient", [lambda x: x.sum(), lambda x: x[:1], lambda x: (x, x)])
def test_a_gradient_must_look_like_the_position(gradient):
    sampler = ls.sgld(1e-2)
    state = sampler.init(jnp.zeros(3), key=jax.random.key(0))
    with refused(ValueError, r"the gradient must look like the position, float32\[3\], got"):
        sampler.step(state, gradient, key=jax.random.key(1))


def test_a_state_goes_with_its_sampler_and_its_own_keys():
    first = run()
    options = {"state": first.state, "num_draws": 1, "batch_size": 2}
    with refused(ValueError, r"state is of another sampler or position"):
        ls.sample(ls.psgld(1e-2), posterior(), **options)
    with refused(ValueError, r"state has its own keys; leave out seed=3"):
        ls.sample(ls.sgld(1e-2), posterior(), seed=3, **options)


def test_starts_given_as_arrays_have_a_chain_axis():
    starts = jnp.arange(6.0).reshape(2, 3)
    assert ls.sample(ls.sgld(0.0), posterior(), init=starts, num_draws=1, batch_size=2).draws[:, 0].tolist() == (
        starts.tolist()
    )
    with refused(ValueError, r"arrays with a leading chain axis of 5, got float32\[2, 3\]"):
        ls.sample(ls.sgld(0.0), posterior(), init=starts, num_draws=1, batch_size=2, chains=5)


def test_a_module_with_arrays_is_a_start_and_its_methods_are_functions():
    import equinox as eqx

    class Line(eqx.Module):
        weight: jax.Array

        def __call__(self, x):
            return self.weight @ x

        def draw(self, key):
            return Line(jax.random.normal(key, self.weight.shape))

    target = ls.Target(lambda line: -0.5 * jnp.sum(line.weight**2))
    given = ls.sample(ls.sgld(0.0), target, init=Line(jnp.ones((2, 3))), num_draws=1)
    assert given.draws.weight.shape == (2, 1, 3)
    drawn = ls.sample(ls.sgld(0.0), target, init=Line(jnp.ones(3)).draw, num_draws=1, chains=2)
    assert len(np.unique(drawn.draws.weight)) == 6


def test_errors_of_a_likelihood_come_without_the_compiler_s_frames():
    with refused(ValueError, "one value per example") as caught:
        run(posterior(lambda x, b: jnp.zeros(())))
    assert len(caught.traceback) < 12


def test_keys_and_seeds_that_would_not_repeat_are_refused():
    with refused(ValueError, r"seed must be a key of threefry2x32, got one of rbg"):
        run(seed=jax.random.key(0, impl="rbg"))
    with refused(ValueError, r"seed must be below 2\*\*32, got 4294967296"):
        run(seed=2**32)


def test_a_run_ends_before_the_step_counter_does():
    with refused(ValueError, r"a run ends before step 2\*\*31, this one at 3000000000"):
        run(num_draws=3, thin=10**9)


def test_a_schedule_gives_one_number():
    with refused(ValueError, r"one number at every step; the schedule gives an array of shape \(1,\)"):
        run(sampler=ls.sgld(lambda k: jnp.full(1, 1e-3)))


def test_gamma_of_your_own_is_refused_in_a_product():
    class Mine(ls.Identity):
        def divergence(self, state, gradient, position, num_examples):
            return position

    with refused(ValueError, r"cannot be a factor of a product"):
        Mine() @ ls.Laplacian(1.0)


def test_what_a_preconditioner_remembers_keeps_its_shape():
    class Growing(ls.Identity):
        def init(self, position):
            return jnp.zeros(())

        def update(self, state, gradient):
            return gradient

    with refused(ValueError, r"what the preconditioner remembers must look like before its update, float32\[\]"):
        run(sampler=ls.sgld(1e-2, preconditioner=Growing()))


def test_likelihoods_must_return_arrays():
    with refused(ValueError, r"log_likelihood must return an array, got tuple"):
        run(posterior(lambda x, b: (b[1], b[1])))
    with refused(ValueError, r"log_prior must return an array, got NoneType"):
        run(posterior(prior=lambda x: None))


def test_leaves_need_names_that_a_table_can_have():
    target = ls.Target(lambda x: -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(x)))
    for position in ({"chain": jnp.zeros(2)}, {"a": {"b": jnp.zeros(1)}, "a.b": jnp.zeros(1)}):
        done = ls.sample(ls.sgld(0.1), target, position, num_draws=5)
        for call in (done.summary, done.to_arviz):
            with refused(ValueError, r"names of their own, and not chain or draw.*Rename the keys"):
                call()
