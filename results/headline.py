"""`python results/headline.py`: draws headline.svg and modern.svg from the ledger, milestones and measured speeds.

headline.svg, left: accuracy over K, ours beside the paper's (Table 10: 100 epochs, validation split). Right: linear
accuracy on the test set over minutes of training on two idle cores: steps done, times the seconds per step of
speeds.json. modern.svg is the picture of `relatum reproduce modern`.
"""

from __future__ import annotations

from math import log2
from pathlib import Path
from typing import Any

from relatum.drawing import GREY, METHODS
from relatum.paper import figures
from relatum.paper.measured import Results, scores
from relatum.paper.plan import Request, plan
from relatum.runs import speeds
from relatum.system.files import read_json

HERE = Path(__file__).parent
TARGET = 61.03  # the paper's figure for K = 32, 200 epochs (Table 2)
LABELS = {
    "relational paper": ("paper's recipe, K = {views}", "-"),
    "relational fast": ("--preset fast, K = {views}", "-"),
    "simclr paper": ("SimCLR, paper's recipe, K = {views}", "--"),
    "simclr fast": ("SimCLR, --preset fast, K = {views}", "-"),
}


def over_views(axes: Any) -> None:
    """The K study: the paper's mean ± standard deviation as a band, ours as points."""
    request = Request(datasets=("cifar10",), backbones=("conv4",), methods=("relational",))
    sheet = plan(["augmentations"], request).tables[0].sheets[0]
    cells = [scores(sheet, Results(HERE / "nowhere", [HERE]))["relational", column.key] for column in sheet.columns]
    x = range(len(cells))
    paper = [(cell.paper.mean, cell.paper.std) for cell, _ in cells]
    colour, marker = METHODS["relational"]
    low, high = [m - s for m, s in paper], [m + s for m, s in paper]
    axes.fill_between(x, low, high, color=GREY, alpha=0.2, linewidth=0, label="paper, mean ± std")
    axes.plot(x, [m for m, _ in paper], color=GREY, linestyle="--", linewidth=1.2)
    ours = [(i, score.mean) for i, (_, score) in zip(x, cells, strict=True) if score.mean is not None]
    axes.plot(*zip(*ours, strict=True), color=colour, marker=marker, label="relatum")
    for i, value in ours:
        axes.annotate(f"{value:.2f}", (i, value), (0, 7), textcoords="offset points", ha="center", fontsize=8)
    axes.set_xticks(x, [column.title.removeprefix("K = ") for column in sheet.columns])
    axes.set_xlabel("K, views per image")
    axes.set_ylabel("linear evaluation, validation split, percent")
    axes.set_title("Accuracy over K (100 epochs)")


def curves() -> dict[tuple[str, int, int, int], tuple[float, dict[int, float]]]:
    """Seconds per step, and linear accuracy on the test set by step, for each recipe, K, number of epochs, and seed.

    The last point comes from the run's ledger entry, the points before it from its milestones. Recipes whose speed was
    not measured are left out, and short runs of the paper's recipe, which the table `modern` compares.
    """
    curves = {}
    for entry in Results(HERE / "nowhere", [HERE]).entries:
        recipe = entry.document["recipe"]
        train, data = recipe["train"], recipe["data"]
        kind = f"{recipe['method']} {recipe['preset']}"
        seconds = speeds.seconds_per_step(HERE, recipe)
        short = train["epochs"] < (100 if recipe["preset"] == "fast" else 200)
        if short or data["name"] != "cifar10" or kind not in LABELS or seconds is None:
            continue
        milestones = (read_json(HERE / "milestones" / entry.path.name) or {}).get("points", [])
        points = {point["step"]: point["accuracy"] for point in milestones}
        for result in entry.document["evaluations"]:
            if (result["protocol"], result["dataset"], result["split"]) == ("linear", "cifar10", "test"):
                points[train["epochs"] * -(-data["images"] // train["batch_size"])] = result["accuracy"]
        if points:
            curves[kind, recipe["views"]["number"], train["epochs"], recipe["seed"]] = seconds, points
    return curves


def over_minutes(axes: Any) -> None:
    """Accuracy over minutes of training; a run with one point has no line."""
    labelled = set()
    for (kind, views, epochs, _), (seconds, points) in sorted(curves().items()):
        label, line = LABELS[kind]
        x = [step * seconds / 60 for step in sorted(points)]
        y = [points[step] for step in sorted(points)]
        colour, marker = METHODS[kind.split()[0]]
        fill = colour if kind.endswith("fast") else "white"
        text = f"{label.format(views=views)}, {epochs} epochs"
        axes.plot(
            x, y, color=colour, marker=marker, linestyle=line, markerfacecolor=fill, markersize=2 + 1.4 * log2(views),
            label=None if text in labelled else text,
        )  # fmt: skip
        labelled.add(text)
    axes.axhline(TARGET, color=GREY, linewidth=1.0, linestyle=":")
    axes.annotate("paper, K = 32, 200 epochs: 61.03", (0.98, TARGET), (0, 3), xycoords=("axes fraction", "data"),
                  textcoords="offset points", ha="right", fontsize=8, color=GREY)  # fmt: skip
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=axes.get_ylim()[0] - 1)  # room for the legend
    axes.set_xlabel("minutes of training on two idle CPU cores")
    axes.set_ylabel("linear evaluation, test set, percent")
    axes.set_title("Accuracy over time")


def main() -> None:
    """Draw both pictures."""
    import matplotlib

    style: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "relatum", "font.size": 9}
    with matplotlib.rc_context(style):
        from matplotlib.figure import Figure

        canvas = Figure(figsize=(9.6, 4.0), layout="constrained", dpi=160)
        for number, draw in enumerate((over_views, over_minutes)):
            axes = canvas.add_subplot(1, 2, number + 1)
            draw(axes)
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(color="#E4E4E4", linewidth=0.8)
            axes.set_axisbelow(True)
            axes.legend(frameon=False, fontsize=8, loc="lower right")
        canvas.savefig(HERE / "headline.svg", metadata={"Date": None})
        canvas.savefig(HERE / "headline.png")
    figures.draw(plan(["modern"], Request()).tables[0], Results(HERE / "nowhere", [HERE]), HERE)


if __name__ == "__main__":
    main()
