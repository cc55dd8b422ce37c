"""The page as a document: well-formed, self-contained, escaped, and explicit about what is missing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import time
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runmaker import CLASSES, HOSTILE, RunMaker, blobs

from relatum import __version__, api
from relatum.errors import InputError
from relatum.report import build

VOID = frozenset(("br", "img", "input", "meta", "link"))
SECTIONS = ("overview", "map", "retrieval", "errors", "training", "views", "pairs", "evaluations", "recipe")
KEYS = [
    "status", "seconds", "steps", "total_steps", "images", "classes", "version", "commit", "machine",
    "threads", "versions", "command", "skipped", "started", "path", "reason", "step", "epoch", "loss",
    "views_per_second", "lr", "accuracy", "positive_accuracy", "protocol", "dataset", "split", "tag",
    "pretrain", "method", "backbone", "epochs", "settings", "details", "top10", "top100", "matrices",
    "matrices_file", "n_train", "n_test",
]  # fmt: skip
MakeRun = Callable[..., RunMaker]


class Document(HTMLParser):
    """Parses a page strictly: every element is closed in order; keeps attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def data(self) -> Any:
        return json.loads(self.scripts[0])


def page_of(runs: list[Path], out: Path) -> tuple[str, Document]:
    text = build(runs, out).read_text("utf-8")
    return text, Document(text)


@pytest.fixture
def full(make_run: MakeRun) -> Path:
    return make_run("full").full(blobs(400), np.arange(400) % 10)


def test_a_full_run_has_every_section(full: Path, tmp_path: Path) -> None:
    text, page = page_of([full], tmp_path / "report.html")
    ids = [a["id"] for a in page.all("section")]
    assert ids == list(SECTIONS)
    assert [a["href"] for a in page.all("a") if a.get("href", "#main") != "#main"] == [f"#{name}" for name in SECTIONS]
    assert "61.03" in page.text
    assert 'method = "relational"\npreset = "paper"' in page.text  # the recipe keeps its lines
    assert "Relational reasoning with Conv-4 on CIFAR-10, 32 views of each image, 200 epochs" in page.text
    assert len(page.data["maps"]) == 1
    assert len(page.data["charts"]) == 3  # loss, accuracy on pairs, speed
    assert text.count('class="matrix"') == 3
    assert "168" not in page.data["maps"][0]["classes"]
    assert page.data["maps"][0]["classes"] == list(CLASSES)
    assert page.data["maps"][0]["superNames"] == ["animals", "vehicles"]


def test_nothing_is_loaded_and_the_policy_allows_only_this_script(full: Path, tmp_path: Path) -> None:
    text, page = page_of([full], tmp_path / "report.html")
    assert not re.search(r"https?:", text)
    assert "@import" not in text
    sources = [
        a.get(name) for _, a in page.elements for name in ("src", "href", "srcset", "action", "data") if a.get(name)
    ]
    assert sources
    assert all(re.match(r"data:image/(webp|jpeg|png);base64,|data:,$|#", str(source)) for source in sources)
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'; img-src data:;")
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert str(policy).endswith(f"script-src 'sha256-{digest}'")


def test_the_same_folder_gives_the_same_bytes(full: Path, tmp_path: Path) -> None:
    assert build([full], tmp_path / "a.html").read_bytes() == build([full], tmp_path / "b.html").read_bytes()


def test_every_image_has_a_text_and_ids_are_unique(full: Path, tmp_path: Path) -> None:
    _, page = page_of([full], tmp_path / "report.html")
    assert all("alt" in a for a in page.all("img"))
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    targets = {
        a[name]
        for _, a in page.elements
        for name in ("aria-controls", "aria-labelledby", "aria-describedby")
        if name in a
    }
    assert targets
    assert targets <= set(ids)
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1


def test_no_torch(full: Path, tmp_path: Path) -> None:
    import subprocess

    code = (
        "import sys; from relatum.report import build; build(sys.argv[1:2], sys.argv[2]); "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(full), str(tmp_path / "r.html")], check=True)


def test_hostile_names_are_only_text(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("<b>bold run</b>", dataset="cifar10")
    names = [*HOSTILE, *(f"{i}.png" for i in range(200))][:200]
    classes = [f"<script>alert({i})</script>" for i in range(10)]
    run.full(blobs(200), np.arange(200) % 10, names=names, classes=classes)
    run.views(blobs(200), names=names[:6])
    run.info(
        skipped=[{"path": name, "reason": "<i>no</i>"} for name in HOSTILE[:-1]], machine="<u>cpu</u>", command="<s>"
    )
    run.evaluation("knn", dataset="</td><td>", split="<x>", accuracy=1.0, settings={"<k>": "<v>"})
    text, page = page_of([run.folder], tmp_path / "report.html")
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"b>bold", "svg/onload", "u", "s", "x"}
    assert len(page.all("script")) == 2
    assert all(not name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert "<img src=x onerror=alert(1)>.png" in page.text
    assert "<script>alert(3)</script>" in page.text
    assert page.data["maps"][0]["names"][1] == HOSTILE[1]
    data = text.split('id="data">', 1)[1].split("</script>", 1)[0]
    assert not set(data) & set("<>&\u2028\u2029")
    assert data.isascii()
    for mark in ("\u202e", "\u2028", "\x07", "\udcff"):
        assert mark not in page.text


def test_an_unlabelled_run_without_a_map_does_not_point_to_one(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("photos", dataset="photos").recipe().info(classes=[]).metrics()
    _, page = page_of([run.folder], tmp_path / "report.html")
    assert "No accuracy: these images have no labels." in page.text
    assert "See the" not in page.text


def test_unlabelled_folder(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("photos", dataset="photos")
    names = [f"{2019 + i % 2}/IMG_{i:04d}.jpg" for i in range(120)]
    run.full(blobs(120), None, names=names)
    _, page = page_of([run.folder], tmp_path / "report.html")
    assert "No accuracy: these images have no labels" in page.text
    assert "See the map and the nearest images instead" in page.text
    assert "No confusion matrix: without labels" in page.text
    assert "colours show the folder or the date of each file" in page.text
    assert {name: group["names"] for name, group in page.data["maps"][0]["more"].items()} == {
        "folder": ["2019", "2020"],
        "date": ["2020", "2021", "2022"],
    }
    assert "no labels, so classes cannot be compared" in page.text
    assert "2019/IMG_" in page.text
    assert page.data["maps"][0]["classes"] == []
    assert page.data["maps"][0]["names"] == names
    classes = " ".join(str(a.get("class")) for a in page.all("img"))
    assert "hit" not in classes
    assert "miss" not in classes


def test_interrupted_run_of_another_version_with_corrupt_files(make_run: MakeRun, tmp_path: Path) -> None:
    run = (
        make_run("broken")
        .recipe(version="0.0.1")
        .info(status="interrupted", steps=1200, total_steps=5000, version="0.0.1")
    )
    run.metrics(steps=1200, logged=50, extra='{"step": 1201, "loss": 0.1\nnot json\n[1, 2]\n{"loss": 3}\n\n')
    (run.folder / "evaluations").mkdir()
    (run.folder / "evaluations" / "linear-cifar10-test.json").write_text('{"accuracy": 61.', "utf-8")
    (run.folder / "evaluations" / "knn-cifar10-test.json").write_text("[1]", "utf-8")
    (run.folder / "artifacts").mkdir()
    (run.folder / "artifacts" / "tsne-cifar10-test.npz").write_bytes(b"not a zip")
    np.savez(run.folder / "artifacts" / "views.npz", views=np.zeros(3))
    np.savez(run.folder / "artifacts" / "pairs.npz", left=np.array([{"a": 1}], dtype=object))
    _, page = page_of([run.folder], tmp_path / "report.html")
    for phrase in (
        "Training was interrupted at step 1,200 of 5,000",
        f"written by relatum 0.0.1, this page by {__version__}",
        "4 lines of metrics.jsonl could not be read",
        "evaluations/linear-cifar10-test.json cannot be read",
        "evaluations/knn-cifar10-test.json is not a JSON object",
        "artifacts/tsne-cifar10-test.npz cannot be read",
        "artifacts/views.npz has no originals",
        "artifacts/pairs.npz cannot be read",
        "No accuracy yet: this run has not been evaluated",
        "No map yet",
        "No nearest images yet",
        "No confusion matrix yet",
        "No views",
        "No pairs",
        "No evaluations",
    ):
        assert phrase in page.text
    assert len(page.data["charts"]) == 3


@pytest.mark.parametrize("part", ["recipe.toml", "run.json", "metrics.jsonl", "evaluations", "artifacts"])
def test_any_single_part_is_enough(part: str, make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    path = run.folder / part
    path.mkdir() if "." not in part else path.write_text("\x00 not what it should be", "utf-8")
    _, page = page_of([run.folder], tmp_path / "report.html")
    shown = [a["id"] for a in page.all("section")]
    assert shown[0] == "overview"
    assert shown[-1] == "missing"
    for phrase in (
        "No map yet",
        "No nearest images",
        "No confusion matrix",
        "No curves",
        "No pairs",
        "No evaluations",
    ):
        assert phrase in page.text


def test_a_failed_run_says_so(make_run: MakeRun, tmp_path: Path) -> None:
    run = (
        make_run()
        .recipe()
        .info(status="failed", steps=7)
        .metrics(steps=7, logged=3, extra='{"step": 8, "loss": NaN}\n')
    )
    _, page = page_of([run.folder], tmp_path / "report.html")
    assert "Training failed at step 7" in page.text
    assert "The loss was not a finite number at 1 logged step" in page.text


def test_several_runs_side_by_side(make_run: MakeRun, tmp_path: Path) -> None:
    images, labels = blobs(300), np.arange(300) % 10
    ours = make_run("ours").full(images, labels)
    theirs = make_run("simclr", method="simclr", seed=1).full(images, labels)
    bound = (
        make_run("bound", method="supervised").recipe(views=1).info().metrics().evaluation("classifier", accuracy=80.5)
    )
    text, page = page_of([ours, theirs, bound.folder], tmp_path / "report.html")
    assert "3 runs" in page.text
    for value in ("61.03", "62.03", "80.50"):
        assert value in page.text
    assert [line["name"] for line in page.data["charts"][0]["lines"]] == ["ours", "simclr", "bound"]
    assert [m["title"] for m in page.data["maps"]] == ["ours: cifar10-test", "simclr: cifar10-test"]
    # The images of both maps are the same: the atlas holds them once.
    tiles = [m["tiles"] for m in page.data["maps"]]
    assert tiles[0] == tiles[1]
    assert "bound: No map yet" in page.text
    assert 'class="differs"' in text


def test_runs_of_the_same_name_are_told_apart(make_run: MakeRun, tmp_path: Path) -> None:
    folders = [make_run(f"{parent}/run").recipe().info().folder for parent in ("a", "b")]
    _, page = page_of([*folders, folders[0]], tmp_path / "report.html")
    assert "2 runs" in page.text
    assert "a/run, b/run" in page.text
    assert page.text.count("a/run, b/run: No map yet") == 1  # the same word for both is said once


def test_paper_and_measured_references(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run().recipe().info().evaluation("linear", accuracy=61.0)
    run.evaluation("linear", tag="random", accuracy=33.3, pretrain={"method": "random", "backbone": "conv4"})
    asked = []

    def paper(condition: Any) -> tuple[float, float | None] | None:
        asked.append(dict(condition))
        return {"relational": (61.03, 0.23), "supervised": (80.46, None)}.get(condition["method"])

    out = build([run.folder], tmp_path / "report.html", paper=paper)
    page = Document(out.read_text("utf-8"))
    assert bars(out) == [
        "Supervised in the paper80.46",
        "Relational reasoning in the paper61.03 ± 0.23",
        "This run61.00",
        "Random weights measured here33.30",
        "Chance 10 classes10.00",
    ]
    asked_condition = {
        "protocol": "linear",
        "dataset": "cifar10",
        "split": "test",
        "method": "relational",
        "backbone": "conv4",
    }
    assert {**asked_condition, "pretrain": "cifar10"} in asked
    assert "Random weights" in page.text


def bars(page: Path) -> list[str]:
    """The text of each bar of the comparison."""
    rows = re.findall(r'<li class="(?:run|reference|paper)">.*?</li>', page.read_text("utf-8"))
    return [Document(re.sub(r"\s+", " ", row)).text for row in rows]


def test_supervised_training_on_other_images_is_no_upper_bound(make_run: MakeRun, tmp_path: Path) -> None:
    ours = make_run("ours").recipe().info().evaluation("linear", accuracy=61.0)
    other = make_run("other", method="supervised", dataset="cifar100").recipe().info()
    other.evaluation("classifier", dataset="cifar100", accuracy=49.0)
    other.evaluation("linear", dataset="cifar10", accuracy=64.0)
    out = tmp_path / "report.html"
    build([ours.folder, other.folder], out)
    assert "Supervised in the paper80.46 ± 0.39" in bars(out)
    assert not any("64.00" in bar for bar in bars(out))
    same = make_run("same", method="supervised").recipe().info().evaluation("classifier", accuracy=80.5)
    build([ours.folder, other.folder, same.folder], out)
    assert "same Supervised · supervised classifier80.50" in bars(out)


@pytest.mark.parametrize(("method", "bar"), [("supervised", "80.46 ± 0.39"), ("random", "32.92 ± 1.88")])
def test_the_page_of_a_baseline_has_the_paper_s_value(make_run: MakeRun, tmp_path: Path, method: str, bar: str) -> None:
    run = make_run(method=method).recipe().info().evaluation("linear", accuracy=50.0)
    build([run.folder], tmp_path / "report.html")
    assert [row[-len(bar) :] for row in bars(tmp_path / "report.html")].count(bar) == 1


def test_paper_values_come_from_the_tables(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(backbone="resnet32").recipe(epochs=10, views=8).info().evaluation("linear", accuracy=50.0)
    _, page = page_of([run.folder], tmp_path / "report.html")
    assert "Relational reasoning in the paper, 200 epochs, K = 32" in page.text
    assert "74.99 ± 0.07" in page.text  # linear evaluation, CIFAR-10, ResNet-32


def test_missing_references_are_reported(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(dataset="photos").recipe().info().evaluation("linear", accuracy=61.0)
    _, page = page_of([run.folder], tmp_path / "report.html")
    assert "No result for supervised training or random weights to compare with" in page.text


def test_sections_that_do_not_apply_to_a_method_give_the_reason(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(method="random").recipe(epochs=0, views=1).info()
    _, page = page_of([run.folder], tmp_path / "report.html")
    assert "random weights are not trained" in page.text
    assert "No views: random weights were not trained" in page.text
    assert "only relational reasoning has a relation head" in page.text


def test_many_classes_are_an_image_and_a_table_of_the_largest_errors(make_run: MakeRun, tmp_path: Path) -> None:
    classes = [f"class-{i}" for i in range(40)]
    run = make_run(dataset="cifar100").recipe().info(classes=classes).matrices(40, classes)
    text, page = page_of([run.folder], tmp_path / "report.html")
    assert len(page.data["matrices"]) == 3
    assert text.count('class="heat pixels"') == 3
    assert page.text.count("Largest errors") == 3
    values = np.array(page.data["matrices"][0]["values"])
    np.testing.assert_allclose(values.sum(axis=1), 100, atol=0.3)


def test_a_thousand_classes_come_from_a_file(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(dataset="slimagenet").recipe().info()
    matrix = np.eye(300) * 60
    matrix[3, 4] = 40
    (run.folder / "artifacts").mkdir()
    np.savez_compressed(run.folder / "artifacts" / "retrieval-slimagenet-test-matrices.npz", top10=matrix)
    details = {
        "top10": 60.0,
        "matrices_file": "artifacts/retrieval-slimagenet-test-matrices.npz",
        "classes": [f"n{i}" for i in range(300)],
    }
    run.evaluation("retrieval", accuracy=60.0, details=details)
    _, page = page_of([run.folder], tmp_path / "report.html")
    assert "300 × 300 classes are too many to draw" in page.text
    assert re.search(r"n3\s*n4\s*40\.0\s*60\.0", page.text)
    assert "No nearest images yet" in page.text


def test_skipped_files_are_listed(make_run: MakeRun, tmp_path: Path) -> None:
    unreadable = [{"path": f"bad-{i}.jpg", "reason": "truncated"} for i in range(600)]
    run = make_run().recipe().info(skipped=unreadable)
    _, page = page_of([run.folder], tmp_path / "report.html")
    assert "600 files" in page.text
    assert "bad-499.jpg" in page.text
    assert "bad-500.jpg" not in page.text
    assert "… and 100 more" in page.text


def test_bad_input_is_refused(tmp_path: Path, make_run: MakeRun) -> None:
    with pytest.raises(InputError, match="no run to report on"):
        build([], tmp_path / "r.html")
    with pytest.raises(InputError, match="no run at"):
        build([tmp_path / "nowhere"], tmp_path / "r.html")
    with pytest.raises(InputError, match="is not a run folder"):
        build([make_run().folder], tmp_path / "r.html")
    run = make_run("ok").recipe().folder
    with pytest.raises(InputError, match="is a folder"):
        build([run], tmp_path)
    with pytest.raises(InputError, match="cannot write"):
        build([run], run / "recipe.toml" / "r.html")


def test_artifacts_of_the_wrong_form_become_a_note(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("odd")
    run.full(blobs(60), np.arange(60) % 10)
    folder = run.folder / "artifacts"
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        name = {"views": "views", "pairs": "left"}.get(path.stem, "thumbs")
        np.savez(path, **{**arrays, name: arrays[name].astype(np.float32)[:3]})
    _, page = page_of([run.folder], tmp_path / "report.html")
    assert page.text.count("has arrays of the wrong form") == 4
    assert [a["id"] for a in page.all("section")] == [
        "overview",
        "errors",
        "training",
        "evaluations",
        "recipe",
        "missing",
    ]


HOSTILE_ARRAYS: dict[str, dict[str, Any]] = {
    "labels": {"labels": np.full(60, 10**12)},
    "label-inf": {"labels": np.full(60, np.inf)},
    "far": {"xy": np.tile([[1.7e308] * 2, [-1.7e308] * 2], (30, 1))},
    "nan": {"xy": np.full((60, 2), np.nan), "scores": np.full(24, np.nan), "distances": np.full((10, 10), np.nan)},
    "neighbours": {"neighbour_index": np.zeros((10, 10**5), np.int64), "neighbours": np.full((60, 8), 2**62)},
    "histogram": {"histogram": np.ones((2, 10**6))},
    "texts": {"scores": np.array(["x"] * 24), "query_index": np.array(["x"] * 10), "xy": np.array(["x"] * 60)},
    "empty": {"thumbs": np.zeros((60, 0, 0, 3), np.uint8), "views": np.zeros((8, 4, 0, 0, 3), np.uint8)},
}


@pytest.mark.parametrize("kind", HOSTILE_ARRAYS)
def test_hostile_values_in_artifacts_neither_stop_nor_blow_up_the_page(
    kind: str, make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run("odd")
    run.full(blobs(60), np.arange(60) % 10)
    for path in sorted((run.folder / "artifacts").glob("*.npz")):
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        np.savez(path, **{**arrays, **{name: value for name, value in HOSTILE_ARRAYS[kind].items() if name in arrays}})
    began = time.monotonic()
    _, page = page_of([run.folder], tmp_path / "report.html")
    assert time.monotonic() - began < 60
    assert (tmp_path / "report.html").stat().st_size < 15e6
    assert page.all("section")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["linear", "retrieval", "test"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(info=JSON, lines=st.lists(JSON, max_size=4), result=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8))
def test_no_content_of_a_run_folder_stops_the_page(info: Any, lines: list[Any], result: Any, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / "evaluations").mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(info), "utf-8")
    (folder / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in lines), "utf-8")
    (folder / "evaluations" / "linear-cifar10-test.json").write_text(json.dumps(result), "utf-8")
    page_of([folder], tmp_path / "report.html")


def test_no_run_at_all_is_refused() -> None:
    with pytest.raises(InputError, match="no run to report on"):
        api.report([])
