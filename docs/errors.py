"""`make docs`: runs about a hundred mistakes and writes what a user sees to docs/errors.md.

All commands run in this process, in a temporary folder that `prepare` fills; `tests/test_errors_page.py` compares the
page with what the commands print now.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from relatum import backbones, cli

PAGE = Path(__file__).with_name("errors.md")
INTRODUCTION = """# Common mistakes and error messages

`make docs` runs every command below in a temporary folder and writes this page; a test compares it with what the
commands print now. An error is one or two lines on standard error. Exit code 2 is bad usage or bad input, 1 a failure,
0 success. `--debug` shows the traceback of an unexpected error.
"""
SECTIONS: dict[str, tuple[str, ...]] = {
    "Names and flags": (
        "relatum pretian shapes",
        "relatum pretrain",
        "relatum pretrain cifr10",
        "relatum pretrain shapes --method relatonal",
        "relatum pretrain shapes --backbone conv5",
        "relatum pretrain shapes --backbone nothing:here",
        "relatum pretrain shapes --preset papers",
        "relatum pretrain shapes --veiws 3",
        "relatum pretrain shapes --views many",
        "relatum pretrain shapes --device gpu",
        "relatum pretrain shapes --precision 8",
        "relatum pretrain shapes --compile maybe",
        "relatum pretrain shapes --resume --overwrite",
        "relatum pretrain shapes --out photos/a.png/run",
        "relatum list method",
        "relatum list",
        "relatum data get cifar",
        "relatum bench haed",
        "relatum evaluate linaer run --data shapes",
        "relatum evaluate linear run",
        "relatum export run --format onx --out x.onnx",
        "relatum reproduce linear-evalution --dry-run",
        "relatum reproduce grain --dry-run --seeds one",
        "relatum reproduce grain --dry-run --seeds 1,1",
        "relatum reproduce grain --dry-run --datasets cifar11",
        "relatum reproduce grain --dry-run --backbones conv5",
        "relatum reproduce grain --dry-run --executor cloud",
    ),
    "Values": (
        "relatum pretrain shapes --views 0",
        "relatum pretrain shapes --views 1",
        "relatum pretrain shapes --method rotation --views 3",
        "relatum pretrain shapes --epochs -1",
        "relatum pretrain shapes --batch-size 0",
        "relatum pretrain shapes --batch-size 1",
        "relatum pretrain shapes --seed -1",
        "relatum pretrain shapes --seed 1.5",
        "relatum pretrain shapes --threads 100000",
        "relatum pretrain shapes --val-fraction 2",
        "relatum pretrain shapes --labels 0.5 --method simclr",
        "relatum pretrain shapes --labels 0 --method supervised",
        "relatum pretrain shapes --set train.lrr=1",
        "relatum pretrain shapes --set train.lr",
        "relatum pretrain shapes --set train.lr=fast",
        "relatum pretrain shapes --set train.lr=-1",
        "relatum pretrain shapes --set train.lr=nan",
        "relatum pretrain shapes --set train.optimizer=adamw2",
        "relatum pretrain shapes --set data.mean=0.5",
        "relatum pretrain shapes --set views.policy=relatonal",
        "relatum pretrain shapes --set objective.aggregation=concat",
        "relatum pretrain shapes --set objective.avoid_collisions=true",
        "relatum pretrain shapes --set checkpoint.signal=SIGKILL",
        "relatum search run photos photos/a.png --top 0",
        "relatum evaluate linear run --data shapes --seed -1",
        "relatum evaluate linear run --data shapes --set lr",
        "relatum evaluate linear run --data shapes --set learning_rate=1",
        "relatum evaluate linear run --data shapes --split train",
        "relatum evaluate knn run --data shapes --epochs 3",
    ),
    "Data": (
        "relatum pretrain no-such-folder",
        "relatum pretrain empty",
        "relatum pretrain notes.txt",
        "relatum pretrain broken",
        "relatum pretrain one --views 2",
        "relatum pretrain photos --method supervised",
        "relatum pretrain photos --strict",
        "relatum pretrain photos --knn-every 1",
        "relatum pretrain cifar10",
        "relatum data info no-such-folder",
        "relatum data info photos",
        "relatum data shard no-such-folder --out shards",
        "relatum embed run empty --out z.npz",
        "relatum search run photos no-such.png",
        "relatum search run photos notes.txt",
        "relatum search run empty photos/a.png",
        "relatum evaluate linear run --data photos",
    ),
    "Runs, recipes and weights": (
        "relatum pretrain shapes --out run",
        "relatum pretrain --resume --out no-such-run",
        "relatum pretrain --resume --out run",
        "relatum pretrain shapes --recipe no-such.toml",
        "relatum pretrain shapes --recipe damaged.toml",
        "relatum pretrain shapes --recipe unknown-key.toml",
        "relatum pretrain shapes --recipe stranger.toml",
        "relatum pretrain shapes --init no-such-weights",
        "relatum evaluate linear no-such-run --data shapes",
        "relatum evaluate linear photos --data shapes",
        "relatum embed no-such-run photos --out z.npz",
        "relatum embed run photos --out z.xls",
        "relatum embed photos photos --out z.npz",
        "relatum embed stranger.safetensors photos --out z.npz",
        "relatum embed damaged.safetensors photos --out z.npz",
        "relatum embed not-finite.safetensors photos --out z.npz",
        "relatum embed huge-side.safetensors photos --out z.npz",
        "relatum embed other.safetensors photos --out z.npz",
        "relatum import pickle.tar --backbone conv4 --out imported",
        "relatum import weights.pt --backbone resnet8 --out imported",
        "relatum import weights.pt --backbone conv5 --out imported",
        "relatum import weights.pt --backbone conv4 --out run",
        "relatum import notes.txt --backbone conv4 --out imported",
        "relatum report no-such-run",
        "relatum report photos",
    ),
}


class Trap:
    """What a hostile pickle contains."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch trapped",)


def prepare() -> None:
    """Fill the working directory with what the commands refer to."""
    for name in ("photos", "empty", "broken", "one"):
        Path(name).mkdir()
    draw = np.random.default_rng(0)
    for path in ("photos/a.png", "photos/b.png", "photos/c.png", "one/a.png"):
        Image.fromarray(draw.integers(0, 255, (32, 32, 3), np.uint8)).save(path)
    for path in ("photos/torn.jpg", "broken/a.jpg", "broken/b.png", "notes.txt"):
        Path(path).write_text("no image\n")
    state = backbones.build("conv4", seed=1).state_dict()
    torch.save(state, "weights.pt")
    torch.save({"backbone": Trap()}, "pickle.tar")
    metadata = {"backbone": "conv4", "num_features": 64, "side": 32, "mean": [0.5] * 3, "std": [0.25] * 3}
    _weights("stranger", state, {**metadata, "backbone": "http.server:test"})
    _weights("other", state, {**metadata, "backbone": "resnet8"})
    _weights("huge-side", state, {**metadata, "side": 10**9})
    name = next(iter(state))
    _weights("not-finite", {**state, name: state[name] * float("nan")}, metadata)
    Path("damaged.safetensors").write_bytes(Path("stranger.safetensors").read_bytes()[:100])
    Path("damaged.toml").write_text('method = "relational\n')
    Path("unknown-key.toml").write_text("[train]\nrate = 1\n")
    Path("stranger.toml").write_text('[backbone]\nname = "http.server:test"\n')
    see("relatum import weights.pt --backbone conv4 --out run")


def _weights(name: str, state: dict[str, torch.Tensor], metadata: dict[str, object]) -> None:
    save_file(state, f"{name}.safetensors", metadata={"relatum": json.dumps(metadata)})


def see(command: str) -> tuple[int, str]:
    """Run a command in this process: its exit code, and what it prints."""
    printed = io.StringIO()
    code: int | str | None = 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            cli.main(shlex.split(command)[1:])
        except SystemExit as end:
            code = end.code
    return int(code or 0), printed.getvalue().strip()


@contextlib.contextmanager
def sandbox() -> Iterator[Path]:
    """Work in a temporary folder, with data and caches of its own."""
    before, environment = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        os.environ |= {"RELATUM_DATA": str(folder / "data"), "RELATUM_CACHE": str(folder / "cache"), "NO_COLOR": "1"}
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ |= environment


def page() -> str:
    """Run all commands and return the page."""
    parts = [INTRODUCTION]
    with sandbox() as folder:
        prepare()
        for title, commands in SECTIONS.items():
            parts.append(f"\n## {title}\n\n| command | exit code | what you see |\n| --- | --- | --- |\n")
            for command in commands:
                code, text = see(command)
                text = text[max(text.find("error:"), 0) :]  # without the lines about data and machine before it
                text = text.replace(str(folder), "~").replace("|", "\\|").replace("\n", "<br>")
                parts.append(f"| `{command}` | {code} | {text} |\n")
        if Path("trapped").exists():
            raise AssertionError("a file ran code")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
