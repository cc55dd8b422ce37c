"""Everything that numba compiles: the views, the relation head's passes over pairs, Conv-4's training step,
and the filters of PNG files.

Each kernel has a readable specification in plain numpy or torch that tests compare it with:

- `views` and `resampling`: `relatum.views.reference`
- `relation`: `relatum.relation.reference`
- `conv4`: the modules of `relatum.backbones.conv4`
- `png`: Pillow

`simd`, `pixels` and `tiles` are the vector instructions they are written in, `caching` keeps compiled code on disk, and
`threads` is the thread pool. numba takes a second to import, so importing this package does not import it.
"""

from __future__ import annotations

import functools
import warnings


@functools.cache
def numba_available() -> bool:
    """Whether numba can be imported and compiles; if not, warns once that torch is used instead."""
    try:
        import numba
    except Exception as error:  # a broken installation raises more than ImportError
        warnings.warn(f"numba cannot be imported ({error}): torch is used instead, which is slower.", stacklevel=2)
        return False
    if getattr(numba.config, "DISABLE_JIT", 0):  # numba sets it at run time, so mypy does not know it
        warnings.warn("NUMBA_DISABLE_JIT is set: torch is used instead of numba, which is slower.", stacklevel=2)
        return False
    return True
