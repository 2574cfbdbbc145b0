"""A job for any Python from 3.9 on, with nothing installed: adds up its batches, one after another.

``python anywhere.py [MODULE]``: the module is imported first, and its version printed.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

import fairlead

PASS = 40  # batches of an epoch
total = 0


def load(path: Path) -> None:
    global total
    total = int(path.read_text())


def save(path: Path) -> None:
    path.write_text(str(total))


def main() -> None:
    global total
    for name in sys.argv[1:]:
        print(name, importlib.import_module(name).__version__, flush=True)
    batches = fairlead.Iterator(range(PASS), load=load, save=save)
    began = False
    for batch in batches:
        if not began:
            version = ".".join(map(str, sys.version_info[:2]))
            print("python", version, "at step", batches.step, flush=True)
            began = True
        total = total * 31 + batch + 1 & 0xFFFFFFFF  # another order would give another number
        time.sleep(0.01)
    print("client", fairlead.__file__, flush=True)
    print("total", total, flush=True)


if __name__ == "__main__":
    main()
