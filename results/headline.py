"""`python results/headline.py`: draws results/headline.svg from the ledger, the milestones and the measured speeds.

Left: accuracy over K, ours beside the paper's (Table 10: 100 epochs, validation split). Right: linear accuracy on the
test set over minutes of training on two idle cores: steps done, times the seconds per step of speeds.json.
"""

from __future__ import annotations

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
    "simclr paper": ("SimCLR, paper's recipe", "--"),
    "simclr fast": ("SimCLR, --preset fast", "-"),
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


def over_minutes(axes: Any) -> None:
    """Accuracy at the milestones of each run over minutes."""
    speeds = (read_json(HERE / "speeds.json") or {}).get("seconds_per_step", {})
    for path in sorted((HERE / "milestones").glob("*.json")):
        run = read_json(path)
        if run is None:
            raise SystemExit(f"{path} is damaged.")
        kind = f"{run['method']} {run['preset']}"
        seconds = speeds.get(f"{kind} {run['views']}")
        if seconds is None or kind not in LABELS:
            continue
        label, line = LABELS[kind]
        x = [point["step"] * seconds / 60 for point in run["points"]]
        y = [point["accuracy"] for point in run["points"]]
        colour, marker = METHODS[run["method"]]
        fill = colour if run["preset"] == "fast" else "white"
        text = label.format(views=run["views"]) if run["seed"] == 1 else None
        axes.plot(x, y, color=colour, marker=marker, linestyle=line, markerfacecolor=fill, label=text)
    axes.axhline(TARGET, color=GREY, linewidth=1.0, linestyle=":")
    axes.annotate("paper, K = 32, 200 epochs: 61.03", (0.02, TARGET), (0, 3), xycoords=("axes fraction", "data"),
                  textcoords="offset points", fontsize=8, color=GREY)  # fmt: skip
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
