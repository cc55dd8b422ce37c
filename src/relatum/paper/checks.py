"""One check per sentence of `tables/claims.toml`: cells in, whether it holds and the figures behind that out.

Each is judged alike on our runs and on the paper's own tables. A claimed margin holds when the measured one is at
least as large, rounded as the paper rounded it. Where a sentence claims who is ahead and by how much, it takes both;
the figures say so where only one of them holds. Figures that a sentence merely reports are shown beside ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relatum.paper import published
from relatum.registry import BACKBONES

RIVALS = ("deepcluster", "rotation", "deepinfomax", "simclr")
Finding = tuple[bool, str]


class NotEnough(Exception):
    """A cell that a check needs has no figure."""


def _columns(name: str, kind: str = "mean") -> list[str]:
    return [c.key for c in published.load(name).columns if c.kind == kind]


@dataclass(frozen=True)
class Source:
    """Where figures come from.

    Attributes:
        read: gives the mean at (table, row, column), or None where there is none.
        columns: the keys of a table's columns, as far as they were asked for.
    """

    read: Callable[[str, str, str], float | None]
    columns: Callable[[str], list[str]] = _columns

    def __call__(self, name: str, row: str, column: str) -> float:
        """A figure; raises `NotEnough`."""
        value = self.read(name, row, column)
        if value is None:
            raise NotEnough(f"{name}: {row}, {column}")
        return value

    def margins(self, name: str, columns: Sequence[str], rivals: Sequence[str], row: str = "relational") -> list[float]:
        """In each column, the row's figure less the best of the rivals'."""
        return [self(name, row, c) - max(self(name, r, c) for r in rivals) for c in columns]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _signed(values: Sequence[float]) -> str:
    return ", ".join(f"{v:+.2f}" for v in values)


def _both(order: bool, margin: bool, figures: str) -> Finding:
    """A sentence that claims an order and a margin: supported if both hold; says which of them does not."""
    words = {True: "supported", False: "contradicted"}
    prefix = "" if order and margin else f"order {words[order]}, margin {words[margin]}: "
    return order and margin, prefix + figures


def _average_14(s: Source) -> Finding:
    columns = _columns("main")
    every = s.margins("main", columns, RIVALS)
    older = s.margins("main", columns, ("deepcluster", "rotation", "deepinfomax"))
    rotation = s.margins("main", columns, ("rotation",))
    figures = (
        f"average margin over the best competitor {_mean(every):+.2f} (six conditions of `main`: {_signed(every)})."
        f" Other readings: over the best but SimCLR {_mean(older):+.2f}; over RotationNet {_mean(rotation):+.2f}"
    )
    return _both(min(every) > 0, round(_mean(every)) >= 14, figures)


def _simclr_3(s: Source) -> Finding:
    margins = s.margins("main", _columns("main"), ("simclr",))
    figures = f"average over six conditions {_mean(margins):+.2f} ({_signed(margins)})"
    return _both(_mean(margins) > 0, round(_mean(margins)) >= 3, figures)


def _linear(s: Source) -> Finding:
    margins = s.margins("main", ["cifar100", "tiny-imagenet"], RIVALS)
    enough = all(round(m, 1) >= claimed for m, claimed in zip(margins, (4.0, 4.7), strict=True))
    return _both(min(margins) > 0, enough, f"CIFAR-100, tiny-ImageNet: {_signed(margins)}")


def _conv4_best(s: Source) -> Finding:
    columns = [c for c in _columns("linear-evaluation") if c.startswith("conv4")]
    margins = s.margins("linear-evaluation", columns, RIVALS)
    return min(margins) > 0, f"margins over the best rival {_signed(margins)}"


def _only_resnet32(s: Source) -> Finding:
    columns = _columns("linear-evaluation")
    margins = s.margins("linear-evaluation", columns, ("simclr",))
    there = margins[columns.index("resnet32-cifar10")]
    worse = [c for c, m in zip(columns, margins, strict=True) if m < 0]
    figures = f"SimCLR is better in: {', '.join(worse) or 'none'} ({_signed(margins)})"
    return worse == ["resnet32-cifar10"], f"{figures}; with ResNet-32 on CIFAR-10 {there:+.2f} (in the text -2)"


def _slimagenet(s: Source) -> Finding:
    rotation, simclr = (s.margins("slimagenet", ["slimagenet"], (r,))[0] for r in ("rotation", "simclr"))
    figures = f"{rotation:+.2f} over RotationNet, {simclr:+.2f} over SimCLR (in the text +8.6, +1.5)"
    return min(rotation, simclr) > 0, figures


def _transfer_best(s: Source) -> Finding:
    margins = s.margins("domain-transfer", _columns("domain-transfer"), RIVALS)
    return min(margins) > 0, f"margins over the best rival {_signed(margins)}"


def _transfer_gain(s: Source) -> Finding:
    simclr, supervised = (s.margins("main", ["10-100"], (r,))[0] for r in ("simclr", "supervised"))
    figures = f"10→100: {simclr:+.2f} over SimCLR, {supervised:+.2f} over supervised"
    return _both(min(simclr, supervised) > 0, round(simclr, 1) >= 5.3 and round(supervised, 1) >= 7.5, figures)


def _grain_best(s: Source) -> Finding:
    margins = s.margins("grain", _columns("grain"), RIVALS)
    return min(margins) > 0, f"margins over the best rival {_signed(margins)}"


def _grain_fine(s: Source) -> Finding:
    conv_fine, conv_coarse, fine, coarse = s.margins("grain", _columns("grain"), RIVALS)
    figures = f"margin fine, coarse: Conv-4 {conv_fine:+.2f}, {conv_coarse:+.2f}; ResNet-32 {fine:+.2f}, {coarse:+.2f}"
    return conv_fine > conv_coarse and fine > coarse, figures


def _finetune(s: Source) -> Finding:
    rows = [r for r in published.load("finetune").rows if r.key != "relational"]
    local = max(s("finetune", r.key, "mean") for r in rows if not r.literature)
    reported = max(s("finetune", r.key, "best") for r in rows if r.literature)
    mean, best = s("finetune", "relational", "mean"), s("finetune", "relational", "best")
    figures = f"mean {mean:.2f}, best seed {best:.2f}; best local rival {local:.2f}, best reported {reported:.2f}"
    figures += f" (margins {_signed([mean - local, mean - reported])})"
    return mean > local and mean > reported, figures


def _best_21(s: Source) -> Finding:
    names = ("backbones-linear", "backbones-grain", "backbones-transfer")
    margins = {(n, c): s.margins(n, [c], ("rotation", "simclr"))[0] for n in names for c in _columns(n)}
    lost = [f"{c} ({m:+.2f})" for (n, c), m in margins.items() if m <= 0]
    return len(margins) - len(
        lost
    ) >= 21, f"best in {len(margins) - len(lost)} of {len(margins)}; not in {', '.join(lost)}"


def _gain(rival: str, claimed: Sequence[float]) -> Callable[[Source], Finding]:
    def check(s: Source) -> Finding:
        gains = s.margins("fig-depth", _columns("fig-depth", "delta"), (rival,))
        near = all(round(g, 1) >= c for g, c in zip(gains, claimed, strict=True))
        return _both(gains == sorted(gains), near, f"CIFAR-10, CIFAR-100, tiny-ImageNet: {_signed(gains)}")

    return check


def _study(s: Source, *rows: str) -> dict[str, list[float]]:
    """Accuracies of rows at the values of K that all have: three at least, since any two points are correlated."""
    columns = s.columns("augmentations")
    read = {row: [s.read("augmentations", row, c) for c in columns] for row in rows}
    common = [i for i in range(len(columns)) if all(values[i] is not None for values in read.values())]
    if len(common) < 3:
        raise NotEnough(f"augmentations: {', '.join(rows)} at three values of K")
    if len(rows) > 1 and not {0, len(columns) - 1} <= set(common):  # gains are from the first K to the last
        raise NotEnough(f"augmentations: {', '.join(rows)} at {columns[0].upper()} and {columns[-1].upper()}")
    return {
        "K": [float(columns[i].removeprefix("k")) for i in common],
        **{row: [v for i in common if (v := values[i]) is not None] for row, values in read.items()},
    }


def _spearman(values: Sequence[float]) -> float:
    """Rank correlation with position; equal values share their average rank, and all equal have no correlation."""
    n = len(values)
    ranks = [sum(w < v for w in values) + (sum(w == v for w in values) - 1) / 2 for v in values]
    middle = (n - 1) / 2
    spread = sum((r - middle) ** 2 for r in ranks) * sum((i - middle) ** 2 for i in range(n))
    return sum((r - middle) * (i - middle) for i, r in enumerate(ranks)) / spread**0.5 if spread else 0.0


def _growth(s: Source) -> Finding:
    found = _study(s, "relational")
    rank = _spearman(found["relational"])
    words = " → ".join(f"{v:.2f} (K{k:g})" for k, v in zip(found["K"], found["relational"], strict=True))
    return rank > 0.9, f"{words}; rank correlation {rank:+.2f}"


def _growth_only_ours(s: Source) -> Finding:
    found = _study(s, "relational", "rotation", "supervised")
    first, last = found.pop("K")[:: len(found["relational"]) - 1]
    judged = {row: (values[-1] - values[0], _spearman(values)) for row, values in found.items()}
    words = "; ".join(f"{row} {gain:+.2f}, rank correlation {rank:+.2f}" for row, (gain, rank) in judged.items())
    ours, _ = judged.pop("relational")
    holds = ours > 0 and all(rank <= 0.9 and gain < 0.5 * ours for gain, rank in judged.values())
    return holds, f"gain from K = {first:g} to K = {last:g}: {words}"


def _semi_growth(s: Source) -> Finding:
    words, holds = [], True
    for name in ("semi-supervised-cifar10", "semi-supervised-cifar100"):
        values = [s(name, "relational", c) for c in _columns(name)]
        rank = _spearman(values)
        holds = holds and rank > 0.9
        drops = sum(b < a for a, b in itertools.pairwise(values))
        words.append(
            f"{name.rpartition('-')[2]} {values[0]:.2f} → {values[-1]:.2f}, rank correlation {rank:+.2f}, {drops} falls"
        )
    return holds, "; ".join(words)


def _semi_bound(s: Source) -> Finding:
    names = ("semi-supervised-cifar10", "semi-supervised-cifar100")
    gaps = [s(n, "relational", "100%") - s(n, "supervised", "100%") for n in names]
    return min(
        gaps
    ) > -2, f"distance to the supervised bound on CIFAR-10, CIFAR-100: {_signed(gaps)} (within 2 points holds)"


def _aggregation(s: Source) -> Finding:
    words, holds = [], True
    for column in _columns("aggregation"):
        values = {k: s("aggregation", k, column) for k in ("sum", "mean", "max", "cat")}
        order = sorted(values, key=lambda k: -values[k])
        holds = holds and order[0] == "cat" and order[-1] == "max"
        words.append(f"{column}: {' > '.join(order)}")
    return holds, "; ".join(words)


def _head(s: Source) -> Finding:
    losses = [s("head", h, c) - s("head", "relation", c) for h in ("dot", "encoder") for c in _columns("head")]
    figures = f"smallest loss {max(losses):+.2f}, largest {min(losses):+.2f} (in the text -3 and -23)"
    return _both(max(losses) < 0, round(max(losses)) <= -3, figures)


def _retrieval(s: Source) -> Finding:
    ours, rotation = (s("retrieval-errors", row, "top10") for row in ("relational", "rotation"))
    figures = f"top-10: {ours:.1f} against {rotation:.1f}, margin {ours - rotation:+.1f} (in the text +20.1)"
    return ours > rotation, figures


def relational_pairs(batch: int, views: int) -> int:
    """P = M(K² − K)."""
    return batch * (views**2 - views)


def _pairs(_: Source) -> Finding:
    ours, small, theirs = relational_pairs(64, 32), relational_pairs(64, 16), (128 * 2) ** 2
    holds = (round(ours / 1e4, 2), round(small / 1e4, 1), round(theirs / 1e4, 2)) == (6.35, 1.5, 6.55)
    return holds, f"counted: {ours:,} and {small:,} against {theirs:,}"


def _balance(_: Source) -> Finding:
    views = 2 * 128
    positives = 1 / (views - 1)  # of all a view is compared with, itself apart, one is its partner
    with_itself = 2 / views
    figures = (
        f"counted: SimCLR with mini-batch 128 has {100 * positives:.1f} % positives ({100 * with_itself:.1f} % if a"
        " view's comparison with itself counts), relational reasoning 50 %; 2 % would be a mini-batch of about 26"
    )
    return round(100 * positives) == 2, figures


def _parameters(_: Source) -> Finding:
    counts = [BACKBONES[b].parameters for b in ("resnet32", "resnet56", "resnet34")]
    return [round(n / 1e6, 1) for n in counts] == [0.5, 0.9, 21.3], ", ".join(f"{n:,}" for n in counts)


CHECKS: dict[str, Callable[[Source], Finding]] = {
    "average-14": _average_14,
    "simclr-3": _simclr_3,
    "linear-evaluation": _linear,
    "conv4-best": _conv4_best,
    "only-cifar10-resnet32": _only_resnet32,
    "slimagenet": _slimagenet,
    "transfer-best": _transfer_best,
    "transfer-gain": _transfer_gain,
    "grain-best": _grain_best,
    "grain-fine": _grain_fine,
    "finetune": _finetune,
    "best-21-of-24": _best_21,
    "gain-simclr": _gain("simclr", (-2.6, 1.1, 3.3)),
    "gain-rotation": _gain("rotation", (8.7, 11.2, 11.9)),
    "growth-with-k": _growth,
    "growth-only-ours": _growth_only_ours,
    "semi-supervised-growth": _semi_growth,
    "semi-supervised-bound": _semi_bound,
    "aggregation": _aggregation,
    "head": _head,
    "retrieval": _retrieval,
    "pairs": _pairs,
    "balance": _balance,
    "parameters": _parameters,
}
