"""The one place that finds out whether numba can be imported."""

import builtins
import sys
import warnings

import pytest

from relatum.errors import InputError
from relatum.kernels import numba_available
from relatum.kernels.caching import cached_njit


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


def test_numba_without_its_compiler_is_not_used(monkeypatch):
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    with pytest.warns(UserWarning, match="NUMBA_DISABLE_JIT is set: torch is used"):
        assert not numba_available()
    with pytest.raises(InputError, match="NUMBA_DISABLE_JIT is set, so there are no compiled kernels"):
        cached_njit("int64(int64)")
