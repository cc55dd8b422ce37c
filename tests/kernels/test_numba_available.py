"""The one place that finds out whether numba can be imported."""

import builtins
import sys
import warnings

import pytest

from relatum.kernels import numba_available


@pytest.fixture(autouse=True)
def _fresh():
    numba_available.cache_clear()
    yield
    numba_available.cache_clear()


def test_numba_is_available():
    assert numba_available()


@pytest.mark.parametrize("error", [ImportError("no numba here"), SystemError("needs another numpy")])
def test_a_missing_or_broken_numba_is_reported_once(monkeypatch, error):
    real = builtins.__import__

    def broken(name, *args, **kwargs):
        if name == "numba":
            raise error
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.warns(UserWarning, match=str(error)):
        assert not numba_available()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not numba_available()
