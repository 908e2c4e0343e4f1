#!/usr/bin/env python3
"""Makes archives as AMD's in-tree HRR writes them, of programs whose results are worked out here.

usage: generate.py --kernels DIR OUT [CASE...]
       generate.py --kernels DIR --random FIRST NUMBER OUT
Each case becomes OUT/CASE, with OUT/CASE.json saying what a replay must come to; seeds become OUT/random-SEED.
"""

import argparse
import json
import os
import sys

import cases
import random_programs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", required=True, help="folder with standard.hipfb and its like")
    parser.add_argument("--random", nargs=2, type=int, metavar=("FIRST", "NUMBER"), help="archives of that many seeds")
    parser.add_argument("out")
    parser.add_argument("case", nargs="*")
    arguments = parser.parse_args()
    bundles = cases.Bundles(arguments.kernels)
    os.makedirs(arguments.out, exist_ok=True)
    if arguments.random:
        first, number = arguments.random
        for seed in range(first, first + number):
            path = os.path.join(arguments.out, "random-%d" % seed)
            told = random_programs.make(path, seed, bundles)
            with open(path + ".json", "w", encoding="ascii") as out:
                json.dump(told, out)
        return 0
    wanted = dict.fromkeys(arguments.case or cases.CASES)
    for name in wanted:
        path = os.path.join(arguments.out, name)
        expected = cases.CASES[name](path, bundles)
        with open(path + ".json", "w", encoding="ascii") as out:
            json.dump(expected, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
