"""The ready models against independent transcriptions of their formulas, and as parts of a run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lsmcmc as ls

RNG = np.random.default_rng(7)
IMAGES = RNG.normal(size=(6, 28, 28, 1)).astype(np.float32)
DIGITS = np.array([3, 0, 9, 9, 1, 5], np.int32)


def norm(position):
    return np.sqrt(sum(float((np.asarray(leaf, np.float64) ** 2).sum()) for leaf in jax.tree.leaves(position)))


@pytest.fixture(scope="module")
def cnn():
    return ls.models.mnist_cnn()


@pytest.fixture(scope="module")
def weights(cnn):
    return cnn.init(jax.random.key(1))


# Priors

POSITION = {"w": np.array([[1.0, -2.0], [0.5, 3.0]], np.float32), "b": np.array([0.25], np.float32)}


def test_the_normal_prior_is_the_sum_of_the_log_densities_of_its_coordinates():
    value = float(ls.models.normal_prior(2.0)(POSITION))
    assert value == pytest.approx(-0.5 * norm(POSITION) ** 2 / 4, rel=1e-6)


def test_the_gradient_of_the_normal_prior_is_minus_x_over_s_squared():
    gradient = jax.grad(ls.models.normal_prior(2.0))(POSITION)
    jax.tree.map(lambda g, x: np.testing.assert_allclose(g, -x / 4, rtol=1e-6), gradient, POSITION)


@pytest.mark.parametrize(("rate", "scale"), [(1.0, 1e-2), (1.0, 5e-4), (0.0, 2.0), (3.0, 0.0)])
def test_the_gamma_prior_and_its_gradient_are_those_of_the_formula_over_the_whole_position(rate, scale):
    prior, length = ls.models.gamma_prior(rate=rate, scale=scale), norm(POSITION)
    assert float(prior(POSITION)) == pytest.approx(-rate * np.log(length) - scale * length, rel=1e-6)
    gradient = jax.grad(prior)(POSITION)
    jax.tree.map(
        lambda g, x: np.testing.assert_allclose(g, -rate * x / length**2 - scale * x / length, rtol=1e-5),
        gradient,
        POSITION,
    )


def test_the_gamma_prior_is_singular_at_zero_and_finite_where_the_models_start():
    model = ls.models.logistic(5, prior=ls.models.gamma_prior())
    assert model.log_prior(jnp.zeros(5)) == jnp.inf
    assert jnp.isfinite(jax.grad(model.log_prior)(model.init(jax.random.key(0)))).all()


def test_a_prior_takes_leaves_of_several_dtypes(x64):
    position = {"half": jnp.ones(3, jnp.bfloat16), "single": jnp.ones(2, jnp.float32), "double": jnp.ones(4)}
    value = ls.models.normal_prior()(position)
    assert (value.dtype, float(value)) == (jnp.float64, -4.5)
    gradient = jax.grad(ls.models.gamma_prior())(position)
    assert jax.tree.map(lambda g: g.dtype, gradient) == jax.tree.map(lambda x: x.dtype, position)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ls.models.normal_prior(0.0), "scale must be above zero, got 0"),
        (lambda: ls.models.normal_prior(-1.0), "scale must be a finite number, zero or above, got -1"),
        (lambda: ls.models.gamma_prior(rate=-1.0), "rate must be a finite number, zero or above, got -1"),
        (lambda: ls.models.gamma_prior(scale=np.nan), "scale must be a finite number"),
        (lambda: ls.models.logistic(0), "dim must be at least 1, got 0"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


@pytest.mark.parametrize("make", [lambda p: ls.models.logistic(3, prior=p), ls.models.mnist_cnn])
def test_a_prior_that_is_no_function_is_refused(make):
    with pytest.raises(TypeError, match=r"prior must be a function of \(position\), got 1\.0"):
        make(1.0)


@pytest.mark.parametrize("make", [lambda p: ls.models.logistic(3, prior=p), ls.models.mnist_cnn])
def test_a_prior_of_your_own_is_used(make):
    model = make(lambda position: jnp.asarray(4.0))
    assert float(model.log_prior(model.init(jax.random.key(0)))) == 4.0


# Logistic regression

X = RNG.normal(size=(40, 3)).astype(np.float32)
Y = np.where(RNG.random(40) < 0.5, -1, 1).astype(np.float32)
W = np.array([0.5, -1.0, 2.0], np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int8])
def test_the_logistic_likelihood_is_one_over_one_plus_exp_of_minus_the_margin(dtype):
    values = ls.models.logistic(3).log_likelihood(jnp.asarray(W), (X, Y.astype(dtype)))
    np.testing.assert_allclose(values, -np.log1p(np.exp(-Y * (X.astype(float) @ W))), rtol=1e-4)
    assert (values.shape, values.dtype) == ((40,), jnp.float32)


def test_the_logistic_likelihoods_of_both_labels_sum_to_one_and_predict_is_that_of_plus_one():
    model, ones = ls.models.logistic(3), np.ones(40, np.float32)
    plus, minus = (jnp.exp(model.log_likelihood(jnp.asarray(W), (X, sign * ones))) for sign in (1, -1))
    np.testing.assert_allclose(plus + minus, 1, rtol=1e-6)
    np.testing.assert_allclose(model.predict(jnp.asarray(W), X), plus, rtol=1e-6)


def test_the_logistic_likelihood_and_its_gradient_are_right_at_scores_that_overflow_exp():
    model, far = ls.models.logistic(1), (np.array([[1.0], [1.0]], np.float32), np.array([1, -1]))
    value, gradient = jax.value_and_grad(lambda w: model.log_likelihood(w, far).sum())(jnp.array([1e4]))
    assert (float(value), gradient.tolist()) == (-1e4, [-1.0])


def test_a_label_other_than_plus_and_minus_one_stops_a_run_at_its_first_step():
    model = ls.models.logistic(3)
    posterior = ls.Posterior(model.log_likelihood, model.log_prior, (X, (Y + 1) / 2))
    with pytest.raises(ls.DivergenceError, match="at step 1"):
        ls.sample(ls.sgld(1e-3), posterior, jnp.zeros(3), num_draws=3, batch_size=40)


def test_logistic_regression_starts_at_random_with_variance_one_hundredth():
    start = ls.models.logistic(10_000).init(jax.random.key(0))
    assert (start.shape, start.dtype) == ((10_000,), jnp.float32)
    assert float(start.mean()) == pytest.approx(0, abs=5e-3)  # 5 standard errors
    assert float(start.var()) == pytest.approx(1e-2, rel=0.07)


def test_the_logistic_posterior_has_its_mode_where_newton_finds_it():
    model = ls.models.logistic(3, prior=ls.models.normal_prior(2.0))
    posterior = ls.Posterior(model.log_likelihood, model.log_prior, (X, Y))
    w = np.zeros(3)
    for _ in range(20):
        p = 1 / (1 + np.exp(-(X @ w)))
        hessian = (X * (p * (1 - p))[:, None]).T @ X + np.eye(3) / 4
        w -= np.linalg.solve(hessian, X.T @ (p - (Y > 0)) + w / 4)
    assert float(jnp.abs(jax.grad(posterior.log_density)(jnp.asarray(w, jnp.float32))).max()) < 1e-4


# The network


def numpy_logits(position, images, dense_relu=False):
    """The network in PyTorch's layout, in float64: images (B, c, h, w), kernels (out, in, h, w) and (out, in)."""

    def torch(layer):
        kernel, bias = (np.asarray(position[layer][name], np.float64) for name in ("kernel", "bias"))
        return kernel.transpose((3, 2, 0, 1) if kernel.ndim == 4 else (1, 0)), bias

    x = np.asarray(images, np.float64).transpose(0, 3, 1, 2)
    for layer in ("conv1", "conv2"):
        kernel, bias = torch(layer)
        patches = np.lib.stride_tricks.sliding_window_view(x, (5, 5), axis=(2, 3))
        x = np.einsum("bihwkl,oikl->bohw", patches, kernel) + bias[:, None, None]
        x = np.maximum.reduce([x[:, :, a::2, b::2] for a in (0, 1) for b in (0, 1)])
        x = np.maximum(x, 0)
    (fc, fc_bias), (out, out_bias) = torch("fc"), torch("out")
    x = x.reshape(len(x), -1) @ fc.T + fc_bias
    x = np.maximum(x, 0) if dense_relu else x
    return x @ out.T + out_bias


def lax_logits(position, images):
    """The network in JAX's own convolution and pooling."""
    x = images
    for layer in ("conv1", "conv2"):
        kernel = position[layer]["kernel"]
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = x + position[layer]["bias"]
        x = jax.nn.relu(jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"))
    x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    for layer in ("fc", "out"):
        x = x @ position[layer]["kernel"] + position[layer]["bias"]
    return x


@pytest.mark.parametrize("dense_relu", [False, True])
def test_the_network_is_that_of_a_numpy_transcription_in_pytorch_layout(weights, dense_relu):
    found = ls.models.mnist_cnn(dense_relu=dense_relu).logits(weights, IMAGES)
    np.testing.assert_allclose(found, numpy_logits(weights, IMAGES, dense_relu), atol=1e-5)


def test_a_relu_between_the_dense_layers_makes_another_network(weights):
    assert np.abs(numpy_logits(weights, IMAGES) - numpy_logits(weights, IMAGES, dense_relu=True)).max() > 1e-2


def test_the_gradient_is_that_of_jax_convolution_and_pooling_in_float64(x64, cnn):
    position = cnn.init(jax.random.key(2))
    images, mix = jnp.asarray(IMAGES, float), jax.random.normal(jax.random.key(3), (6, 10))
    found = jax.jit(jax.grad(lambda p: jnp.sum(mix * cnn.logits(p, images))))(position)
    expected = jax.jit(jax.grad(lambda p: jnp.sum(mix * lax_logits(p, images))))(position)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), found, expected)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype("float64")}


def test_the_network_has_the_papers_layers_and_52918_parameters(weights):
    assert jax.tree.map(jnp.shape, weights) == {
        "conv1": {"kernel": (5, 5, 1, 20), "bias": (20,)},
        "conv2": {"kernel": (5, 5, 20, 20), "bias": (20,)},
        "fc": {"kernel": (320, 128), "bias": (128,)},
        "out": {"kernel": (128, 10), "bias": (10,)},
    }
    assert sum(leaf.size for leaf in jax.tree.leaves(weights)) == 20 * 26 + 20 * 501 + 128 * 321 + 10 * 129 == 52_918


def test_the_likelihood_is_one_value_per_image_and_sums_to_one_over_the_classes(cnn, weights):
    every = jnp.stack([cnn.log_likelihood(weights, (IMAGES, np.full(6, digit, np.int32))) for digit in range(10)], 1)
    assert (every.shape, every.dtype) == ((6, 10), jnp.float32)
    np.testing.assert_allclose(jnp.exp(every).sum(1), 1, rtol=1e-5)
    picked = cnn.log_likelihood(weights, (IMAGES, DIGITS))
    np.testing.assert_array_equal(picked, every[jnp.arange(6), DIGITS])
    logits = numpy_logits(weights, IMAGES)
    expected = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    np.testing.assert_allclose(every, expected, atol=1e-5)
    np.testing.assert_allclose(cnn.predict(weights, IMAGES), np.exp(expected), atol=1e-6)


def test_the_gradient_is_finite_on_blank_images_where_all_pooled_values_are_equal(cnn, weights):
    blank = np.full((4, 28, 28, 1), -0.42421296, np.float32)
    gradient = jax.jit(jax.grad(lambda p: cnn.log_likelihood(p, (blank, DIGITS[:4])).sum()))(weights)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient))
    assert float(jnp.abs(gradient["conv1"]["kernel"]).max()) > 0


def test_predictions_in_pieces_are_those_of_all_images_together(cnn, weights):
    many = np.tile(IMAGES, (40, 1, 1, 1))[:237]  # two pieces and a part
    np.testing.assert_allclose(cnn.predict(weights, many), jax.nn.softmax(cnn.logits(weights, many)), atol=1e-6)


@pytest.mark.parametrize("digit", [-1, 10])
def test_a_label_that_is_no_class_makes_the_likelihood_and_its_gradient_nan(cnn, weights, digit):
    batch = IMAGES[:1], np.array([digit], np.int32)
    value, gradient = jax.value_and_grad(lambda p: cnn.log_likelihood(p, batch).sum())(weights)
    assert jnp.isnan(value)
    assert jnp.isnan(gradient["out"]["bias"]).all()


def test_images_of_another_shape_are_refused(cnn, weights):
    with pytest.raises(ValueError, match=r"images must have shape \(B, 28, 28, 1\), got \(6, 784\)\. Write X\.reshape"):
        cnn.logits(weights, IMAGES.reshape(6, 784))


def test_the_network_starts_uniform_within_one_over_root_fan_in_as_in_pytorch(weights):
    for layer, fan_in in {"conv1": 25, "conv2": 500, "fc": 320, "out": 128}.items():
        bound = fan_in**-0.5
        for leaf in weights[layer].values():
            assert leaf.dtype == jnp.float32
            assert float(jnp.abs(leaf).max()) <= bound
        kernel = weights[layer]["kernel"]
        assert float(jnp.abs(kernel).max()) > 0.98 * bound
        standard_error = bound / np.sqrt(3 * kernel.size)
        assert float(jnp.abs(kernel.mean())) < 5 * standard_error
        assert float(kernel.var()) == pytest.approx(bound**2 / 3, rel=5 / np.sqrt(kernel.size))


def test_smoothing_along_the_axes_of_the_model_is_smoothing_in_pytorch_order(cnn, weights):
    smoother = ls.Laplacian(0.5, axes=cnn.axes)
    found = smoother.apply((), smoother.apply_transpose((), weights))
    to_torch, from_torch = {4: (3, 2, 0, 1), 2: (1, 0), 1: (0,)}, {4: (2, 3, 1, 0), 2: (1, 0), 1: (0,)}

    def check(smoothed, leaf):
        tensor = np.asarray(leaf).transpose(to_torch[leaf.ndim])
        flat = ls.smoothing.solve(jnp.asarray(tensor.reshape(-1)), 0.5)
        expected = np.asarray(flat).reshape(tensor.shape).transpose(from_torch[leaf.ndim])
        np.testing.assert_allclose(smoothed, expected, atol=1e-6)

    jax.tree.map(check, found, weights)
    other = ls.Laplacian(0.5).apply_transpose((), weights)
    same = smoother.apply_transpose((), weights)
    assert float(jnp.abs(other["conv2"]["kernel"] - same["conv2"]["kernel"]).max()) > 1e-3


# In a run


def counting(prior):
    """A prior that counts how often it is traced."""
    calls = []

    def counted(position):
        calls.append(1)
        return prior(position)

    return counted, calls


def test_a_second_run_of_a_model_made_again_is_no_new_trace():
    prior, calls = counting(ls.models.normal_prior())
    for seed in range(3):
        model = ls.models.logistic(3, prior=prior)  # made anew, and still the same program
        posterior = ls.Posterior(model.log_likelihood, model.log_prior, (X, Y))
        ls.sample(ls.sgld(1e-3), posterior, model.init(jax.random.key(seed)), num_draws=5, batch_size=4, seed=seed)
        if seed == 0:
            first = len(calls)
    assert len(calls) == first > 0


MODELS = {
    "logistic": lambda **options: ls.models.logistic(3, **options),
    "network": ls.models.mnist_cnn,
}


@pytest.mark.parametrize("name", MODELS)
def test_models_made_alike_are_equal_and_those_of_another_prior_are_not(name):
    one, same = MODELS[name](), MODELS[name]()
    other = MODELS[name](prior=ls.models.gamma_prior(scale=7.0))
    for function in ("init", "log_likelihood", "log_prior", "predict"):
        assert hash(getattr(one, function)) == hash(getattr(same, function))
        assert getattr(one, function) == getattr(same, function)
    assert one.log_prior != other.log_prior
    assert one != other
    assert ls.models.mnist_cnn() != ls.models.mnist_cnn(dense_relu=True)
    assert ls.models.logistic(3) != ls.models.logistic(4)


@pytest.mark.parametrize("name", MODELS)
def test_the_functions_of_a_model_can_be_compiled_differentiated_and_batched(name):
    model, rows = MODELS[name](), {"logistic": X[:6], "network": IMAGES}[name]
    positions = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 2))
    one = jax.tree.map(lambda leaf: leaf[1], positions)
    alone = jax.jit(model.predict)(one, rows)
    np.testing.assert_allclose(jax.jit(jax.vmap(model.predict, (0, None)))(positions, rows)[1], alone, atol=1e-6)
    assert jax.tree.map(jnp.shape, jax.jit(jax.grad(model.log_prior))(one)) == jax.tree.map(jnp.shape, one)


def test_thirty_steps_of_sgld_on_digits_lower_the_loss_and_compile_once():
    prior, calls = counting(ls.models.gamma_prior(rate=1.0, scale=5e-4))
    model = ls.models.mnist_cnn(prior=prior)
    images, digits = (rows[:2_000] for rows in ls.data.mnist().train)
    posterior = ls.Posterior(model.log_likelihood, model.log_prior, (images, digits))
    start = model.init(jax.random.key(0))
    options = {"num_draws": 1, "thin": 30, "batch_size": 100}
    run = ls.sample(ls.sgld(0.2 / 2_000), posterior, start, **options)
    traced = len(calls)
    ls.sample(ls.sgld(0.1 / 2_000), posterior, start, seed=1, **options)
    assert len(calls) == traced
    end = jax.tree.map(lambda leaf: jnp.asarray(leaf[0, 0]), run.draws)
    assert jax.tree.map(lambda leaf: leaf.dtype, end) == jax.tree.map(lambda leaf: leaf.dtype, start)
    before, after = (-model.log_likelihood(x, (images[:500], digits[:500])).mean() for x in (start, end))
    assert float(before) == pytest.approx(np.log(10), abs=0.2)
    assert float(after) < 0.7 * float(before)


def test_chains_of_the_network_start_each_at_their_own_init(cnn):
    data = IMAGES, DIGITS
    posterior = ls.Posterior(cnn.log_likelihood, cnn.log_prior, data)
    run = ls.sample(
        ls.ls_sgld(1e-4, sigma=0.5, axes=cnn.axes), posterior, init=cnn.init, num_draws=2, batch_size=3, chains=2
    )
    bias = run.draws["out"]["bias"]
    assert bias.shape == (2, 2, 10)
    assert np.abs(bias[0] - bias[1]).min() > 0
    np.testing.assert_allclose(run.predict(cnn.predict, IMAGES).sum(1), 1, rtol=1e-5)
