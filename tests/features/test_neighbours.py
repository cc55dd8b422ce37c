from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relatum.errors import InputError
from relatum.features import neighbours
from relatum.features.neighbours import nearest


def brute(
    q: np.ndarray, g: np.ndarray, k: int, metric: str, exclude: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    q, g = q.astype(np.float64), g.astype(np.float64)
    if metric == "euclidean":
        key = ((q[:, None] - g[None]) ** 2).sum(-1)
    else:
        q, g = (x / np.where(np.linalg.norm(x, axis=1) > 0, np.linalg.norm(x, axis=1), 1)[:, None] for x in (q, g))
        key = 1 - (q[:, None] * g[None]).sum(-1)
    if exclude is not None:
        key[np.arange(len(q)), exclude] = np.inf
    order = np.array([np.lexsort((np.arange(len(g)), row)) for row in key])[:, :k]
    distance = np.take_along_axis(key, order, 1)
    return np.sqrt(distance) if metric == "euclidean" else distance, order


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 25),
    st.integers(2, 200),
    st.integers(1, 9),
    st.sampled_from(["euclidean", "cosine"]),
    st.sampled_from(["integers", "few", "normal", "shifted", "outlier", "huge", "tiny"]),
    st.booleans(),
    st.integers(0, 10_000),
)
def test_equals_brute_force_ties_included(
    queries: int, rows: int, d: int, metric: str, kind: str, excluding: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    g = {
        "integers": lambda: random.integers(-2, 3, (rows, d)).astype(np.float32),  # many exact ties, zero vectors
        "few": lambda: random.normal(size=(3, d)).astype(np.float32)[random.integers(0, 3, rows)],  # duplicates
        "normal": lambda: random.normal(size=(rows, d)).astype(np.float32),
        "outlier": lambda: random.normal(size=(rows, d)).astype(np.float32) * np.r_[1e6, np.ones(rows - 1)][:, None],
        "huge": lambda: (random.normal(size=(rows, d)) * 1e17).astype(np.float32),  # squares beyond float32
        "tiny": lambda: (random.normal(size=(rows, d)) * 1e-25).astype(np.float32),  # squares below float32
        "shifted": lambda: (random.normal(size=(rows, d)) + 1000).astype(np.float32),  # the product's worst case
    }[kind]()
    exclude = random.integers(0, rows, queries) if excluding else None
    q = g[random.integers(0, rows, queries)] if exclude is None else g[exclude]
    most = rows - excluding if seed % 2 else max(1, rows // 8)  # few of many rows, too: they are folded
    k = int(random.integers(1, most + 1))
    distance, index = nearest(q, g, k, metric=metric, exclude=exclude)
    expected_distance, expected = brute(q, g, k, metric, exclude)
    np.testing.assert_array_equal(index, expected)
    np.testing.assert_array_equal(distance, expected_distance)


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    g = random.normal(size=(200, 5)).astype(np.float32)
    whole = nearest(g, g, 10, exclude=np.arange(200))
    monkeypatch.setattr(neighbours, "_BLOCK_BYTES", 200 * 4 * 7)
    done: list[int] = []
    parts = nearest(g, g, 10, exclude=np.arange(200), advance=done.append)
    assert sum(done) == 200
    assert max(done) == 7
    np.testing.assert_array_equal(whole[1], parts[1])
    np.testing.assert_array_equal(whole[0], parts[0])


def test_faiss_agrees_where_there_are_no_ties() -> None:
    pytest.importorskip("faiss")
    random = np.random.default_rng(0)
    g = random.normal(size=(300, 8)).astype(np.float32)
    exact, fast = (nearest(g, g, 20, exclude=np.arange(300), backend=b) for b in ("exact", "faiss"))
    np.testing.assert_array_equal(exact[1], fast[1])
    np.testing.assert_array_equal(exact[0], fast[0])


def test_faiss_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(InputError, match=r"pip install faiss-cpu"):
        nearest(np.eye(3), np.eye(3), 1, backend="faiss")


def test_too_many_neighbours_and_unknown_metric() -> None:
    with pytest.raises(InputError, match="3 neighbours cannot be found among 2"):
        nearest(np.eye(3), np.eye(3), 3, exclude=np.arange(3))
    with pytest.raises(InputError, match="unknown metric"):
        nearest(np.eye(3), np.eye(3), 1, metric="manhattan")
