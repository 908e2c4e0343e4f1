#!/usr/bin/env python3
"""Makes archives as AMD's in-tree HRR writes them, of programs whose results are worked out here.

usage: generate.py --kernels DIR OUT [CASE...]
Each case becomes OUT/CASE, with OUT/CASE.json saying what a replay must come to.
"""

import argparse
import json
import os
import sys

import cases


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", required=True, help="folder with standard.hipfb and its like")
    parser.add_argument("out")
    parser.add_argument("case", nargs="*")
    arguments = parser.parse_args()
    bundles = cases.Bundles(arguments.kernels)
    os.makedirs(arguments.out, exist_ok=True)
    wanted = arguments.case or list(cases.CASES)
    for name in wanted:
        path = os.path.join(arguments.out, name)
        expected = cases.CASES[name](path, bundles)
        with open(path + ".json", "w", encoding="ascii") as out:
            json.dump(expected, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
