"""PyTorch by hand and posteriors; started by `peers` in `.bench-torch`."""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
from worker import serve

torch.set_num_threads(2)


def posteriors_sgld(data, step_size, batch):
    """SGLD of `posteriors` in its Python loop, on a3a."""
    import posteriors

    arrays = np.load(data)
    X, y = torch.tensor(arrays["X"]), torch.tensor(arrays["y"])

    def log_posterior(params, rows):
        row_X, row_y = rows
        fit = F.logsigmoid(row_y * (row_X @ params["x"])).mean() * len(y)
        return fit - 0.5 * (params["x"] ** 2).sum(), torch.zeros(())

    transform = posteriors.sgmcmc.sgld.build(log_posterior, lr=step_size)

    def run(count):
        torch.manual_seed(0)
        state, draws = transform.init({"x": torch.zeros(X.shape[1])}), torch.empty(count, X.shape[1])
        for i in range(count):
            rows = torch.randint(len(y), (batch,))
            state, _ = transform.update(state, (X[rows], y[rows]))
            draws[i] = state.params["x"]
        return draws.numpy()

    def value():
        draws = run(4000)[2000:].astype(np.float64)
        U = np.logaddexp(0, -arrays["y"] * (draws @ arrays["X"].T.astype(np.float64))).sum(1)
        return float((U + 0.5 * (draws**2).sum(1)).mean())

    return run, value


def smoothed(v, sigma, power):
    """A_σ^power v by real FFT, flattened: the paper's formula."""
    flat = v.reshape(-1)
    d = flat.numel()
    if d <= 2:
        return v
    j = torch.arange(d // 2 + 1)
    spectrum = (1 + 4 * sigma * torch.sin(j * (torch.pi / d)) ** 2) ** power
    return torch.fft.irfft(torch.fft.rfft(flat) * spectrum, n=d).reshape(v.shape)


def cnn(weights, batch, sigma, step_size):
    """The paper's network, channels-last, and SGLD on it by hand; smoothed per tensor if σ > 0. U = sum, N/B = 1."""
    arrays = np.load(weights)
    params = [torch.tensor(arrays[f"w{i}"]) for i in range(8)]
    params = [p.contiguous(memory_format=torch.channels_last) if p.ndim == 4 else p for p in params]
    images, labels = torch.tensor(arrays["X"]), torch.tensor(arrays["y"]).long()
    images = images.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    for p in params:
        p.requires_grad_(True)

    def gradient(rows):
        x = F.relu(F.max_pool2d(F.conv2d(images[rows], params[0], params[1]), 2))
        x = F.relu(F.max_pool2d(F.conv2d(x, params[2], params[3]), 2))
        x = F.linear(F.linear(x.flatten(1), params[4], params[5]), params[6], params[7])
        loss = F.cross_entropy(x, labels[rows], reduction="sum")
        return loss, torch.autograd.grad(loss, params)

    def work(count):
        for _ in range(count):
            _, gradients = gradient(torch.randint(len(labels), (batch,)))
            with torch.no_grad():
                for p, g in zip(params, gradients, strict=True):
                    noise = torch.randn_like(p)
                    if sigma:
                        g, noise = smoothed(g, sigma, -1.0), smoothed(noise, sigma, -0.5)
                    p.add_(g, alpha=-step_size).add_(noise, alpha=(2 * step_size) ** 0.5)

    loss, gradients = gradient(torch.arange(batch))
    value = [float(loss), *(float(g.norm()) for g in gradients)]
    return work, lambda: value


def fft_step(d, sigma):
    """A smoothed update of a vector, noise included: x − hA⁻¹x + √(2h) A^{-1/2} ε; unsmoothed at σ = 0."""
    x = torch.ones(d)

    def work(count):
        y = x
        for _ in range(count):
            g, noise = y, torch.randn(d)
            if sigma:
                g, noise = smoothed(g, sigma, -1.0), smoothed(noise, sigma, -0.5)
            y = y - 1e-3 * g + (2e-3) ** 0.5 * noise

    v = torch.sin(torch.arange(d, dtype=torch.float64)).float()
    return work, lambda: float((smoothed(v, sigma, -1.0) if sigma else v).norm())


if __name__ == "__main__":
    serve({"posteriors": posteriors_sgld, "cnn": cnn, "fft_step": fft_step})
