"""The whole training step compared with the bare backbone and the plain loop, for the published conditions.

    python benchmarks/step.py [--quick]

Prints one JSON document. Run it on idle cores: a busy core makes a two-thread step several times slower.
"""

import argparse
import json

from relatum.bench.step import measure

CONDITIONS = (
    {"views": 32, "batch_size": 64},
    {"views": 4, "batch_size": 64},
    {"views": 8, "batch_size": 64, "backbone": "resnet32", "plain": False, "steps": 3},
    {"method": "simclr"},
    {"method": "rotation"},
    {"method": "supervised"},
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round only")
    rounds = {"repeats": 1} if parser.parse_args().quick else {}
    print(json.dumps([measure(**condition, **rounds) for condition in CONDITIONS], indent=2))


if __name__ == "__main__":
    main()
