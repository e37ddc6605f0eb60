"""Sampling part of a position: the law of the part, whole positions for users, and what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import logistic_regression

import lsmcmc as ls

MASK = {"body": False, "head": True}


def whole():
    """A posterior of two leaves, and where it is frozen."""
    _, X, y = logistic_regression()
    data = (X.astype(np.float32), y.astype(np.float32))

    def log_likelihood(x, batch):
        rows, labels = batch
        return jax.nn.log_sigmoid(labels * (jnp.tanh(rows @ x["body"]) @ x["head"]))

    def log_prior(x):
        return -0.5 * (jnp.sum(x["head"] ** 2) + jnp.sum(x["body"] ** 2))

    position = {"body": jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)), jnp.float32), "head": jnp.zeros(3)}
    return ls.Posterior(log_likelihood, log_prior, data), position


def test_a_frozen_posterior_has_the_density_and_gradient_of_the_whole_at_its_leaves():
    posterior, position = whole()
    part = posterior.freeze(position, MASK)
    x = {"body": None, "head": jnp.array([0.3, -0.2, 0.5])}
    complete = {**position, "head": x["head"]}
    assert float(part.log_density(x)) == pytest.approx(float(posterior.log_density(complete)), rel=1e-6)
    gradient = jax.grad(lambda p: part.log_density(p))(x)
    np.testing.assert_allclose(gradient["head"], jax.grad(posterior.log_density)(complete)["head"], rtol=1e-5)
    assert gradient["body"] is None
    np.testing.assert_allclose(
        part.pointwise_log_likelihood(x), posterior.pointwise_log_likelihood(complete), rtol=1e-6
    )


def test_trainable_is_the_frozen_posterior_sampled_from_the_rest():
    posterior, position = whole()
    options = {"num_draws": 20, "chains": 2, "batch_size": 4}
    short = ls.sample(ls.ls_sgld(1e-2), posterior, position, trainable=MASK, **options)
    part = posterior.freeze(position, MASK)
    long = ls.sample(ls.ls_sgld(1e-2), part, {"body": None, "head": position["head"]}, **options)
    np.testing.assert_array_equal(short.draws["head"], long.draws["head"])
    assert short.draws["body"] is None
    assert short.draws["head"].shape == (2, 20, 3)
    rest = ls.sample(ls.ls_sgld(1e-2), part, state=short.state, num_draws=3, batch_size=4)
    assert np.isfinite(rest.draws["head"]).all()


def test_functions_of_the_user_get_whole_positions():
    posterior, position = whole()
    options = {"num_draws": 6, "batch_size": 4, "trainable": MASK}

    def features(x):
        return jnp.tanh(jnp.ones(6) @ x["body"]) @ x["head"]

    kept = ls.sample(ls.sgld(1e-2), posterior, position, keep=features, **options)
    run = ls.sample(ls.sgld(1e-2), posterior, position, **options)
    expected = [features({**position, "head": jnp.asarray(head)}) for head in run.draws["head"][0]]
    np.testing.assert_allclose(kept.draws[0], expected, rtol=1e-5)
    np.testing.assert_allclose(run.predict(features), np.mean(expected), rtol=1e-5)
    assert list(run.summary().index) == ["head[0]", "head[1]", "head[2]"]


def test_preconditioners_by_branch_may_name_frozen_branches():
    posterior, position = whole()
    by_branch = ls.sgld(1e-2, preconditioner={"body": ls.RMSprop(), "head": ls.Laplacian(1.0)})
    options = {"num_draws": 5, "batch_size": 4, "trainable": MASK}
    a = ls.sample(by_branch, posterior, position, **options)
    b = ls.sample(ls.ls_sgld(1e-2), posterior, position, **options)
    np.testing.assert_array_equal(a.draws["head"], b.draws["head"])


def test_a_module_is_sampled_in_its_arrays_and_keeps_the_rest():
    class Net(eqx.Module):
        weight: jax.Array
        steps: jax.Array
        activation: object = jax.nn.tanh

    net = Net(jnp.ones(2), jnp.array(3))
    target = ls.Target(lambda n: -0.5 * jnp.sum(n.activation(n.weight) ** 2 * n.steps))
    run = ls.sample(ls.sgld(1e-2), target, net, num_draws=4, trainable=jax.tree.map(eqx.is_inexact_array, net))
    assert run.draws.weight.shape == (1, 4, 2)
    assert run.draws.steps is None
    assert float(run.predict(lambda n: n.steps + 0.0)) == pytest.approx(3.0)


def test_freezing_twice_is_freezing_both():
    target = ls.Target(lambda x: -(x[0] ** 2) - 2 * x[1] ** 2 - 3 * x[2] ** 2)
    x = [jnp.array(1.0), jnp.array(2.0), jnp.array(3.0)]
    once = target.freeze(x, [True, True, False]).freeze([x[0], x[1], None], [True, False, False])
    assert float(once.log_density([jnp.array(0.5), None, None])) == pytest.approx(-0.25 - 8 - 27)
    assert [leaf is None for leaf in once.fixed] == [True, False, False]


def test_another_fixed_part_is_no_new_trace():
    posterior, position = whole()
    traced = []

    def log_likelihood(x, batch):
        traced.append(1)
        return posterior.log_likelihood(x, batch)

    counted = ls.Posterior(log_likelihood, posterior.log_prior, posterior.data)
    options = {"num_draws": 5, "batch_size": 4, "trainable": MASK}
    ls.sample(ls.sgld(1e-2), counted, position, **options)
    before = len(traced)
    ls.sample(ls.sgld(1e-2), counted, {**position, "body": 2 * position["body"]}, **options)
    assert len(traced) == before


def network():
    """The paper's network on a few random images, and a position of it."""
    model = ls.models.mnist_cnn(ls.models.normal_prior(1.0))
    rng = np.random.default_rng(0)
    images, labels = rng.uniform(size=(20, 28, 28, 1)).astype(np.float32), rng.integers(0, 10, 20)
    return model, ls.Posterior(model.log_likelihood, model.log_prior, (images, labels)), model.init(jax.random.key(0))


BY_LAYER = {
    "conv1": ls.Laplacian(1.0, axes={"kernel": (3, 2, 0, 1), "bias": (0,)}),
    "conv2": {"kernel": ls.RMSprop() @ ls.Laplacian(0.5), "bias": ls.Identity()},
    "fc": ls.RMSprop(),
    "out": {"kernel": ls.Laplacian(0.5, axes=(1, 0)), "bias": ls.RMSprop(0.9)},
}


def test_a_networks_last_layer_is_sampled_on_a_frozen_backbone_with_a_preconditioner_for_each_leaf():
    model, posterior, position = network()
    mask = {"conv1": False, "conv2": False, "fc": False, "out": True}
    by_layer = ls.sgld(1e-5, preconditioner=BY_LAYER)
    run = ls.sample(by_layer, posterior, position, trainable=mask, num_draws=3, batch_size=5)
    assert run.draws["conv1"] == {"kernel": None, "bias": None}
    assert run.draws["out"]["kernel"].shape == (1, 3, 128, 10)
    average = run.predict(model.predict, posterior.data[0])
    heads = [jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[0, i]), run.draws["out"]) for i in range(3)]
    expected = np.mean([model.predict({**position, "out": head}, posterior.data[0]) for head in heads], axis=0)
    np.testing.assert_allclose(average, expected, rtol=1e-4, atol=1e-6)


def test_a_frozen_backbone_is_not_differentiated():
    """The gradient of the last layer costs less than half of the multiplications of the whole network's."""
    _, posterior, position = network()
    mask = {"conv1": False, "conv2": False, "fc": False, "out": True}
    part, head = posterior.freeze(position, mask), eqx.partition(position, mask)[0]

    def flops(target, x):
        program = jax.jit(jax.grad(lambda x: target.potential(x, posterior.data))).lower(x).compile()
        return program.cost_analysis()["flops"]

    assert flops(part, head) < 0.5 * flops(posterior, position)


def test_what_cannot_be_frozen_is_refused():
    posterior, position = whole()
    options = {"num_draws": 1, "batch_size": 4}
    with pytest.raises(ValueError, match="False everywhere, so there is nothing to sample"):
        ls.sample(ls.sgld(1e-2), posterior, position, trainable=False, **options)
    with pytest.raises(TypeError, match=r"trainable\['head'\] must be True \(sampled\) or False \(fixed\), got 1"):
        ls.sample(ls.sgld(1e-2), posterior, position, trainable={"body": False, "head": 1}, **options)
    with pytest.raises(ValueError, match="trainable is no prefix of the position"):
        ls.sample(ls.sgld(1e-2), posterior, position, trainable={"head": True}, **options)
    with pytest.raises(ValueError, match="trainable= needs position="):
        ls.sample(ls.sgld(1e-2), posterior, init=lambda key: position, trainable=MASK, **options)
