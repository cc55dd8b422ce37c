"""Weights: the same bytes for the same weights, one metadata key, and backbones rebuilt from the file alone."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from relatum import backbones, config
from relatum.errors import InputError
from relatum.runs import names
from relatum.runs.weights import (
    load_backbone,
    load_state,
    load_weights,
    read_backbone,
    save_weights,
    weights_metadata,
)


def save_run(run: Path, name: str = "resnet8") -> torch.nn.Module:
    module = backbones.build(name, seed=3)
    info = {"backbone": name, "num_features": 64, "side": 32, "mean": [0.5] * 3, "std": [0.25] * 3}
    save_weights(run / names.BACKBONE, module.state_dict(), info)
    return module


def test_a_backbone_comes_back_frozen_and_knowing_itself(tmp_path: Path) -> None:
    saved = save_run(tmp_path)
    for source in (tmp_path, tmp_path / names.BACKBONE):
        loaded = load_backbone(source)
        assert not loaded.training
        assert not any(p.requires_grad for p in loaded.parameters())
        assert loaded.info["mean"] == [0.5] * 3
        assert loaded.num_features == 64
        for name, value in saved.state_dict().items():
            torch.testing.assert_close(loaded.state_dict()[name], value, rtol=0, atol=0)


def test_the_same_weights_are_the_same_bytes(tmp_path: Path) -> None:
    save_run(tmp_path / "a")
    save_run(tmp_path / "b")
    assert (tmp_path / "a" / names.BACKBONE).read_bytes() == (tmp_path / "b" / names.BACKBONE).read_bytes()


def test_weights_of_the_authors_and_of_the_ecosystem(tmp_path: Path) -> None:
    module = backbones.build("conv4", seed=5)
    torch.save({"backbone": module.state_dict(), "relation": {}, "optimizer": {}}, tmp_path / "authors.tar")
    loaded = load_backbone(tmp_path / "authors.tar", backbone="conv4")
    torch.testing.assert_close(loaded.layer1.conv.weight, module.layer1.conv.weight)
    with pytest.raises(InputError, match="which backbone"):
        load_backbone(tmp_path / "authors.tar")
    with pytest.raises(InputError, match="does not fit"):
        load_backbone(tmp_path / "authors.tar", backbone="resnet8")
    standard = backbones.build("resnet34")
    state = {f"module.{k}": v for k, v in standard.state_dict().items()}
    torch.save(
        {**state, "module.fc.weight": torch.zeros(10, 512), "module.fc.bias": torch.zeros(10)}, tmp_path / "r34.pth"
    )
    loaded = load_backbone(tmp_path / "r34.pth", backbone="resnet34")
    torch.testing.assert_close(loaded.conv1.weight, standard.conv1.weight)


@pytest.mark.parametrize("change", ["no counts", "half", "compiled", "compiled in parallel"])
def test_weights_of_other_versions_and_habits(tmp_path: Path, change: str) -> None:
    state = backbones.build("conv4", seed=3).state_dict()
    changed = {
        "no counts": {name: value for name, value in state.items() if "num_batches" not in name},  # torch before 0.4.1
        "half": {name: value.half() for name, value in state.items()},
        "compiled": {f"_orig_mod.{name}": value for name, value in state.items()},
        "compiled in parallel": {f"module._orig_mod.{name}": value for name, value in state.items()},
    }
    torch.save({"backbone": changed[change]}, tmp_path / "weights.tar")
    loaded = load_backbone(tmp_path / "weights.tar", backbone="conv4").state_dict()
    for name, value in state.items():
        torch.testing.assert_close(loaded[name], value, atol=1e-3, rtol=0)


def test_weights_of_two_networks_are_not_mixed(tmp_path: Path) -> None:
    state = backbones.build("conv4", seed=3).state_dict()
    torch.save({**state, **{f"module.{name}": value * 0 for name, value in state.items()}}, tmp_path / "weights.tar")
    with pytest.raises(InputError, match="the weights of two networks"):
        load_backbone(tmp_path / "weights.tar", backbone="conv4")


def test_missing_and_damaged_weights_are_named(tmp_path: Path) -> None:
    for source, message in ((tmp_path / "nothing", "no run or weights"), (tmp_path, "is it a run folder")):
        with pytest.raises(InputError, match=message):
            load_backbone(source)
    (tmp_path / "photos").mkdir()
    with pytest.raises(InputError, match=r"no run or weights at .*foto; did you mean '.*photos'\?"):
        load_backbone(tmp_path / "foto")
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="not a readable safetensors"):
        load_weights(tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="no weights at"):
        load_weights(tmp_path / "y.safetensors")
    torch.save({"lr": 3}, tmp_path / "other.pt")
    with pytest.raises(InputError, match="no backbone weights"):
        read_backbone(tmp_path / "other.pt")


def test_a_run_that_has_just_started_says_so(tmp_path: Path) -> None:
    (tmp_path / names.RECIPE).write_text('method = "relational"\n')
    with pytest.raises(InputError, match="has no weights yet"):
        load_backbone(tmp_path)


def test_the_metadata_is_one_key_with_sorted_json(tmp_path: Path) -> None:
    recipe = config.draft(flags={"data.name": "cifar10", "backbone.name": "resnet8"}).recipe()
    metadata = weights_metadata(recipe, 64)
    save_weights(tmp_path / "w.safetensors", {"w": torch.zeros(1)}, metadata)
    with safe_open(tmp_path / "w.safetensors", framework="pt") as file:
        header = file.metadata()
    keys = ["backbone", "dataset", "digest", "mean", "method", "num_features", "preset", "side", "std", "version"]
    assert list(header) == ["relatum"]
    assert list(json.loads(header["relatum"])) == keys
    assert load_weights(tmp_path / "w.safetensors")[1] == metadata


def test_no_flipped_byte_changes_what_is_loaded(tmp_path: Path) -> None:
    path, weights = tmp_path / "w.safetensors", {"a": torch.randn(40), "b": torch.ones(3, 5)}
    save_weights(path, weights, {"backbone": "conv4", "mean": [0.5, 0.4, 0.3], "side": 32})
    whole, expected = path.read_bytes(), load_weights(path)
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x04]) + whole[position + 1 :])
        try:
            state, metadata = load_weights(path)
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017
            continue
        # Only the name of the checksum or of the metadata was hit, so nothing could be compared: the rest is intact.
        assert "digest" not in metadata
        assert all(torch.equal(state[name], value) for name, value in expected[0].items())
        assert metadata == {} or all(metadata[key] == value for key, value in expected[1].items())


def test_weights_without_a_digest_are_read(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(save({"a": torch.ones(2)}, metadata={"relatum": '{"backbone": "conv4"}'}))  # an older version's
    assert load_weights(path)[1] == {"backbone": "conv4"}
    path.write_bytes(save({"a": torch.ones(2)}))  # another tool's
    assert load_weights(path)[1] == {}


def test_metadata_of_a_folder_names_no_path(tmp_path: Path) -> None:
    recipe = config.draft(flags={"data.name": str(tmp_path / "photos")}).recipe()
    assert weights_metadata(recipe, 64)["dataset"] == "photos"


def test_a_mismatch_names_the_first_difference() -> None:
    module = torch.nn.Linear(2, 3)
    weight, bias = torch.zeros(3, 2), torch.zeros(3)
    for state, message in (
        ({"weight": weight}, "bias is missing"),
        ({"weight": weight, "bias": bias, "more": bias}, "more is unknown"),
        ({"weight": weight.T, "bias": bias}, "weight has another shape"),
    ):
        with pytest.raises(InputError, match=rf"file does not fit this backbone: {message} \(1 difference"):
            load_state(module, state, "file")


def test_a_weights_file_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `module:function` in a file is refused until the user repeats it, and never replaces an installed module."""
    (tmp_path / "trap.py").write_text(
        "from pathlib import Path\nfrom relatum.backbones.conv4 import conv4\nPath('ran').touch()\n"
    )
    (tmp_path / "html.py").write_text("raise SystemExit('the working directory came first')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = backbones.build("conv4", seed=3)
    for name in ("trap:conv4", "http.server:test", "object:Mine", "relatum.backbones.conv4:conv4"):
        save_weights(tmp_path / "w.safetensors", module.state_dict(), {"backbone": name, "side": 32})
        with pytest.raises(InputError, match=re.escape(name) if "object" not in name else "Mine"):
            load_backbone("w.safetensors")
    save_weights(tmp_path / "w.safetensors", module.state_dict(), {"backbone": "conv9"})
    with pytest.raises(InputError, match="did you mean 'conv4'"):
        load_backbone("w.safetensors")
    assert not (tmp_path / "ran").exists()
    load_backbone("w.safetensors", backbone="trap:conv4")
    assert (tmp_path / "ran").exists()
    assert sys.path.index(str(tmp_path)) == len(sys.path) - 1


@pytest.mark.parametrize(
    ("key", "value"),
    [("side", 10**9), ("side", "32"), ("mean", [0.5]), ("std", [0, 1, 1]), ("num_features", -1), ("mean", "abc")],
)
def test_metadata_of_a_weights_file_is_checked(tmp_path: Path, key: str, value: object) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(path, backbones.build("conv4").state_dict(), {"backbone": "conv4", key: value})
    with pytest.raises(InputError, match="metadata"):
        load_backbone(path)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, bad: float) -> None:
    module = save_run(tmp_path)
    state = module.state_dict()
    name = next(iter(state))
    state[name].view(-1)[3] = bad
    save_weights(tmp_path / names.BACKBONE, state, {"backbone": "resnet8"})
    with pytest.raises(InputError, match=f"{name} contains NaN"):
        load_backbone(tmp_path)
