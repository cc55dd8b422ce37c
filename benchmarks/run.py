"""`make bench`: runs all speed benchmarks, one after another. It needs idle cores and takes about ten minutes."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    for name in ("views", "head", "step"):
        print(f"# {name}", flush=True)
        runpy.run_path(str(Path(__file__).with_name(f"{name}.py")), run_name="__main__")
