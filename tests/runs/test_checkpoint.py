from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from relatum import backbones
from relatum.errors import InputError
from relatum.runs import checkpoint


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (f"open({str(self.path)!r}, 'w').close()",)


def save_run(run: Path, name: str = "resnet8") -> torch.nn.Module:
    module = backbones.build(name, seed=3)
    info = {"backbone": name, "num_features": 64, "side": 32, "mean": [0.5] * 3, "std": [0.25] * 3}
    checkpoint.save_weights(run / checkpoint.BACKBONE, module.state_dict(), info)
    return module


def test_a_backbone_comes_back_frozen_and_knowing_itself(tmp_path: Path) -> None:
    saved = save_run(tmp_path)
    for source in (tmp_path, tmp_path / checkpoint.BACKBONE):
        loaded = checkpoint.load_backbone(source)
        assert not loaded.training
        assert not any(p.requires_grad for p in loaded.parameters())
        assert loaded.info["mean"] == [0.5] * 3
        assert loaded.num_features == 64
        for name, value in saved.state_dict().items():
            torch.testing.assert_close(loaded.state_dict()[name], value, rtol=0, atol=0)


def test_the_same_weights_are_the_same_bytes(tmp_path: Path) -> None:
    save_run(tmp_path / "a")
    save_run(tmp_path / "b")
    assert (tmp_path / "a" / checkpoint.BACKBONE).read_bytes() == (tmp_path / "b" / checkpoint.BACKBONE).read_bytes()


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_a_malicious_checkpoint_runs_nothing(tmp_path: Path, how: str) -> None:
    touched, path = tmp_path / "touched", tmp_path / "checkpoints" / "last.ckpt"
    path.parent.mkdir()
    if how == "pickle":
        path.write_bytes(pickle.dumps(Malicious(touched)))
    else:
        torch.save({"objective": Malicious(touched)}, path)
    for read in (
        lambda: checkpoint.load(path),
        lambda: checkpoint.newest(tmp_path),
        lambda: checkpoint.load_backbone(tmp_path),
    ):
        with pytest.raises(InputError, match=r"last\.ckpt"):
            read()
    assert not touched.exists()


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 cut short"])
def test_damaged_checkpoints_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "last.ckpt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"last\.ckpt") as caught:
        checkpoint.load(path)
    assert len(str(caught.value).splitlines()) == 1


def test_a_damaged_last_checkpoint_falls_back_to_a_milestone(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    assert checkpoint.newest(tmp_path) is None
    checkpoint.save(folder / "milestone-025.ckpt", {"step": 25})
    checkpoint.save(folder / "milestone-050.ckpt", {"step": 50})
    checkpoint.save(folder / "last.ckpt", {"step": 60})
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found[1]["step"] == 60
    (folder / "last.ckpt").write_bytes(b"cut")
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found[1]["step"] == 50


def test_weights_of_the_authors_and_of_the_ecosystem(tmp_path: Path) -> None:
    module = backbones.build("conv4", seed=5)
    torch.save({"backbone": module.state_dict(), "relation": {}, "optimizer": {}}, tmp_path / "authors.tar")
    loaded = checkpoint.load_backbone(tmp_path / "authors.tar", backbone="conv4")
    torch.testing.assert_close(loaded.layer1.conv.weight, module.layer1.conv.weight)
    with pytest.raises(InputError, match="which backbone"):
        checkpoint.load_backbone(tmp_path / "authors.tar")
    with pytest.raises(InputError, match="does not fit"):
        checkpoint.load_backbone(tmp_path / "authors.tar", backbone="resnet8")
    standard = backbones.build("resnet34")
    state = {f"module.{k}": v for k, v in standard.state_dict().items()}
    torch.save(
        {**state, "module.fc.weight": torch.zeros(10, 512), "module.fc.bias": torch.zeros(10)}, tmp_path / "r34.pth"
    )
    loaded = checkpoint.load_backbone(tmp_path / "r34.pth", backbone="resnet34")
    torch.testing.assert_close(loaded.conv1.weight, standard.conv1.weight)


def test_missing_files_are_reported(tmp_path: Path) -> None:
    for source, words in ((tmp_path / "nothing", "no run or weights"), (tmp_path, "is it a run folder")):
        with pytest.raises(InputError, match=words):
            checkpoint.load_backbone(source)
    (tmp_path / "x.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="not a readable safetensors"):
        checkpoint.load_weights(tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="no weights at"):
        checkpoint.load_weights(tmp_path / "y.safetensors")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(InputError, match="holds a list"):
        checkpoint.load(tmp_path / "list.pt")
    torch.save({"lr": 3}, tmp_path / "other.pt")
    with pytest.raises(InputError, match="no backbone weights"):
        checkpoint.read_backbone(tmp_path / "other.pt")
