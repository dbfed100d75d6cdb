#!/usr/bin/env python3
"""Writes bad checkpoints: make_hostile.py DIRECTORY [--marker FILE]

One directory for each variant and a manifest.json (see corpus.py) that says what a program must answer. The calls that some of
the pickles hold would make FILE: it must never come to be.
"""

import argparse
import os

import archives
import corpus
import distributed
import ecosystems
import pickles
import tables


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory")
    parser.add_argument("--marker")
    options = parser.parse_args()
    root = os.path.abspath(options.directory)
    os.makedirs(root, exist_ok=True)
    made = corpus.Corpus(root, os.path.abspath(options.marker) if options.marker else os.path.join(root, "marker-of-a-call"))
    for part in (pickles, archives, tables, distributed, ecosystems):
        part.write(made)
    made.write_manifest()
    print(f"{len(made.rows)} variants in {root}")


if __name__ == "__main__":
    main()
