"""`python results/headline.py`: draws results/headline.svg from the ledger, the milestones and the measured speeds.

Left: accuracy over K, ours beside the paper's (Table 10: 100 epochs, validation split). Right: linear accuracy on the
test set over minutes of training on two idle cores: steps done, times the seconds per step of speeds.json.
"""

from __future__ import annotations

from math import log2
from pathlib import Path
from typing import Any

from relatum.drawing import GREY, METHODS
from relatum.paper.measured import Results, scores
from relatum.paper.plan import Request, plan
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


def curves() -> dict[tuple[str, int, int, int], dict[int, float]]:
    """Linear accuracy on the test set by step, for each recipe, number of views and epochs, and seed.

    The last point of a finished run comes from its ledger entry, the points before it from the milestones.
    """
    points: dict[tuple[str, int, int, int], dict[int, float]] = {}
    for path in sorted((HERE / "milestones").glob("*.json")):
        run = read_json(path)
        if run is None:
            raise SystemExit(f"{path} is damaged.")
        key = f"{run['method']} {run['preset']}", run["views"], run["epochs"], run["seed"]
        points[key] = {point["step"]: point["accuracy"] for point in run["points"]}
    for entry in Results(HERE / "nowhere", [HERE]).entries:
        recipe = entry.document["recipe"]
        train, data = recipe["train"], recipe["data"]
        if train["epochs"] < 100 or data["name"] != "cifar10":
            continue
        key = f"{recipe['method']} {recipe['preset']}", recipe["views"]["number"], train["epochs"], recipe["seed"]
        for result in entry.document["evaluations"]:
            if (result["protocol"], result["dataset"], result["split"]) == ("linear", "cifar10", "test"):
                steps = train["epochs"] * -(-data["images"] // train["batch_size"])
                points.setdefault(key, {})[steps] = result["accuracy"]
    return points


def over_minutes(axes: Any) -> None:
    """Accuracy over minutes of training; a run with one point has no line."""
    speeds = (read_json(HERE / "speeds.json") or {}).get("seconds_per_step", {})
    labelled = set()
    for (kind, views, epochs, _), points in sorted(curves().items()):
        seconds = speeds.get(f"{kind} {views}")
        if seconds is None or kind not in LABELS:
            continue
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
    """Draw both panels."""
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


if __name__ == "__main__":
    main()
