"""Relation head with loss, forward and backward, compared with concatenated pairs. Prints one JSON document."""

import argparse
import json

from relatum.bench.head import measure

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--views", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--num-features", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=20)
    print(json.dumps(measure(**vars(parser.parse_args())), indent=2))
