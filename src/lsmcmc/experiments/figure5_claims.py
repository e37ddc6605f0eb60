"""The claims of the text about Figure 5, judged over seeds, and for the longest chains over test images."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lsmcmc.experiments.result import Claim, Verdict, interval_of_mean, judge_smaller
from lsmcmc.experiments.scored import PARTS, PREDICTORS, SCORES, Found, Size, last_common, over_seeds

_NLL, _ACCURACY = SCORES.index("nll"), SCORES.index("accuracy")
_AVERAGE, _PREDICTIVE = (PREDICTORS.index(name) for name in ("average", "predictive"))
_TRAIN, _TEST = (PARTS.index(name) for name in ("train", "test"))
_NAMES = {_AVERAGE: "running average", _PREDICTIVE: "averaged predictive"}
_SMALLER, _HIGHER = "smaller (Figure 5)", "higher (Figure 5)"
_PAIRS = (("LS-SGLD", "SGLD"), ("LS-pSGLD", "pSGLD"))
_PRECONDITIONED = (("pSGLD", "SGLD"), ("LS-pSGLD", "LS-SGLD"))
_NORMAL = 1.959964


def claims(found: Found, size: Size) -> list[Claim]:
    """Every claim at every temperature."""
    temperatures = dict.fromkeys(temperature for _, temperature, _ in found)
    return [claim for t in temperatures for claim in (*_over_seeds(found, size, t), *_over_images(found, size, t))]


def intervals(size: Size) -> str:
    """What the intervals are."""
    from scipy.stats import t

    least = t.ppf(0.975, size.seeds - 1) / np.sqrt(size.seeds)
    return (
        f"Claims after {size.short * size.steps:,} steps: 95 % intervals by Student's t over {size.seeds} independent "
        "seeds, paired by seed; the number is the ratio of geometric means for a negative log-likelihood, the "
        "difference in percentage points for an accuracy. So few seeds show a difference only where its mean is more "
        f"than {least:.1f} times its standard deviation over seeds: 'no difference seen' is not 'no difference'. "
        f"Claims of the one long run ({size.long * size.steps:,} steps): 95 % intervals over {size.images:,} test "
        "images, paired by image, by the normal law: they speak of these two trained chains and of other test images, "
        "and say nothing of other seeds. Scores on the training set are of a fixed sample of it. No correction for the "
        "number of claims."
    )


def _over_seeds(found: Found, size: Size, temperature: str) -> list[Claim]:
    """All seeds, at the last score that all have."""

    def at(sampler: str, row: int, predictor: int, part: int, score: int) -> NDArray[np.float64]:
        return over_seeds(found, sampler, temperature, row)[:, predictor, part, score]

    judged = []
    for ours, other in _PAIRS:
        last = _last_row(found, (ours, other), temperature, size)
        for predictor in (_AVERAGE, _PREDICTIVE):
            for part in (_TRAIN, _TEST) if predictor == _AVERAGE else (_TEST,):
                where = f"{PARTS[part]}, {_NAMES[predictor]}, {_when(size, last, temperature)}"
                nll, accuracy = (
                    [at(sampler, last, predictor, part, score) for sampler in (ours, other)]
                    for score in (_NLL, _ACCURACY)
                )
                judged += [
                    _smaller(f"smoothing reduces the negative log-likelihood of {other}: {where}", _SMALLER, *nll),
                    _higher(f"smoothing increases the accuracy of {other}: {where}", *accuracy),
                ]
    judged += _stopped_over_seeds(found, size, temperature)
    for ours, other in _PRECONDITIONED:
        last = _last_row(found, (ours, other), temperature, size)
        first, gap = (
            [at(sampler, row, _AVERAGE, part, _NLL) for sampler in (ours, other)]
            for row, part in ((0, _TRAIN), (last, _TEST))
        )
        mixing = f"preconditioning accelerates mixing, {ours} against {other}: negative log-likelihood, train, "
        closer = (
            f"preconditioning reduces the gap to the target, {ours} against {other}: negative log-likelihood, test, "
        )
        judged += [
            _smaller(mixing + _when(size, 0, temperature), "accelerates", *first),
            _smaller(f"{closer}running average, {_when(size, last, temperature)}", "reduces", *gap),
        ]
    return judged


def _stopped_over_seeds(found: Found, size: Size, temperature: str) -> list[Claim]:
    """Early stopping as the paper has it, for pSGLD, within the steps that all seeds have."""
    *_, (ours, other) = _PAIRS
    means = {
        sampler: np.array(
            [
                [values.mean() for values in stop_early(found[sampler, temperature, i], size.short)]
                for i in range(size.seeds)
            ]
        )
        for sampler in (ours, other)
    }
    where = f"test, running average, stopped early within {_when(size, size.short - 1, temperature)}"
    nll, accuracy = ([means[sampler][:, score] for sampler in (ours, other)] for score in (0, 1))
    return [
        _smaller(f"smoothing reduces the negative log-likelihood of {other}: {where}", _SMALLER, *nll),
        _higher(f"smoothing increases the accuracy of {other}: {where}", *accuracy),
    ]


def _last_row(found: Found, samplers: tuple[str, str], temperature: str, size: Size) -> int:
    """The last score that all seeds of both have."""
    both = (arrays for (sampler, t, _), arrays in found.items() if sampler in samplers and t == temperature)
    return last_common(both, size.short)


def _over_images(found: Found, size: Size, temperature: str) -> list[Claim]:
    """The longest chains, one each, at the last score that both have."""
    judged = []
    for ours, other in _PAIRS:
        long = [found[sampler, temperature, 0] for sampler in (ours, other)]
        row = last_common(long, size.long)
        where = f"test, running average, {_when(size, row, temperature)}, one run"
        left = "" if row == size.long - 1 else "The last score of both: one left the finite numbers."
        judged += _by_image(other, where, [_at(arrays, row) for arrays in long], left)
        if other == "pSGLD":
            stopped = [stop_early(arrays, size.long) for arrays in long]
            judged += _by_image(other, f"{where} stopped early", stopped)
    return judged


def _at(arrays: Any, row: int) -> tuple[NDArray[Any], NDArray[Any]]:
    return arrays["nll"][row, _AVERAGE], arrays["right"][row, _AVERAGE]


def stop_early(arrays: Any, rows: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Log loss of each test image, and whether it is right, at the row that is best on the other half of them.

    The images are in random order, so their halves are random.
    """
    nll, right = (arrays[name][:rows, _AVERAGE] for name in ("nll", "right"))
    halves = np.array_split(np.arange(nll.shape[1]), 2)
    best = [np.where(np.isnan(nll), np.inf, nll)[:, half].mean(1).argmin() for half in halves[::-1]]
    return tuple(  # type: ignore[return-value]
        np.concatenate([each[row, half] for row, half in zip(best, halves, strict=True)]) for each in (nll, right)
    )


def _by_image(other: str, where: str, pair: Any, note: str = "") -> list[Claim]:
    """With smoothing against without, for each image of the `pair`."""
    loss, right = (np.asarray(a, np.float64) - b for a, b in zip(*pair, strict=True))
    right = np.where(np.isnan(loss), np.nan, right)
    fewer = f"{int((right > 0).sum())} images are right with smoothing alone, {int((right < 0).sum())} without alone."
    return [
        _judge_difference(
            f"smoothing reduces the negative log-likelihood of {other}: {where} (difference in nats)",
            _SMALLER,
            _interval_over_images(loss),
            sign=-1,
            note=note,
        ),
        _judge_difference(
            f"smoothing increases the accuracy of {other}: {where} (difference in points)",
            _HIGHER,
            _interval_over_images(100 * right),
            sign=1,
            note=f"{fewer} {note}".strip(),
        ),
    ]


def _interval_over_images(differences: NDArray[np.float64]) -> tuple[float, float, float]:
    half = _NORMAL * differences.std(ddof=1) / np.sqrt(len(differences))
    return float(differences.mean()), float(differences.mean() - half), float(differences.mean() + half)


def _smaller(claim: str, paper: str, ours: NDArray[np.float64], other: NDArray[np.float64]) -> Claim:
    comparable = np.isfinite([ours, other]).all()
    return judge_smaller(claim, paper, ours, other) if comparable else _nothing_to_compare(claim, paper)


def _higher(claim: str, ours: NDArray[np.float64], other: NDArray[np.float64]) -> Claim:
    return _judge_difference(claim, _HIGHER, interval_of_mean(100 * (ours - other)), sign=1)


def _judge_difference(
    claim: str, paper: str, interval: tuple[float, float, float], *, sign: int, note: str = ""
) -> Claim:
    """Reproduced if the whole interval lies on the claim's side of zero: above for sign 1, below for −1."""
    mean, low, high = interval
    if not np.isfinite(mean):
        return _nothing_to_compare(claim, paper)
    seen = "Difference above 0." if low > 0 else "Difference below 0." if high < 0 else "No difference seen."
    verdict = Verdict.REPRODUCED if (low if sign > 0 else -high) > 0 else Verdict.NOT_REPRODUCED
    return Claim(claim, paper, mean, (low, high), verdict, f"{seen} {note}".strip())


def _nothing_to_compare(claim: str, paper: str) -> Claim:
    note = "Nothing to compare: a chain left the finite numbers before."
    return Claim(claim, paper, np.nan, (np.nan, np.nan), Verdict.NOT_REPRODUCED, note)


def _when(size: Size, row: int, temperature: str) -> str:
    steps = f"{(row + 1) * size.steps:,} steps"
    return f"{steps}, {'T = 1' if temperature == 'posterior' else f'temperature of the {temperature}'}"
