#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of the process tree for an ImageFolder of a million entries: native path, Python path and PyTorch side by side.

    PYTHONPATH=build/python bench/python_memory.py [--entries 1000000] [--workers 8] [--only NAME] [--out FILE]

PSS of the process and its workers (/proc/PID/smaps_rollup), looked at while an epoch goes by; the peak counts. Each loader
has a process of its own. The folder has a million names for one file of 16 x 16 pixels: a thousand links in one directory,
which itself has a thousand names. The native path decodes that file, for an eighth of an epoch. On the Python path and with PyTorch the dataset's
loader gives a picture without a file, so that an epoch over all entries, in shuffled order, takes seconds: every worker
comes to touch most of the dataset's objects, which is what its memory is made of.
"""
import argparse
import json
import os
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import common

LOADERS = ("native", "python", "torch")
LOOKS = 40  # at the memory, over an epoch
BATCH = 256


def make_folder(root, entries):
    """`entries` names for one picture."""
    from PIL import Image

    side = max(1, round(entries**0.5))
    real = os.path.join(root, "real")
    os.makedirs(real)
    first = os.path.join(real, "%08d.JPEG" % 0)
    Image.effect_noise((16, 16), 50).convert("RGB").save(first)
    for number in range(1, side):
        os.link(first, os.path.join(real, "%08d.JPEG" % number))
    for number in range(-(-entries // side)):
        os.symlink(os.path.join("..", "real"), os.path.join(root, "folder", "n%08d" % number))


class Constant:
    """A dataset's loader that needs no file, and its transform."""

    def __init__(self):
        import torch

        self.picture = torch.zeros(3, 16, 16)

    def load(self, path):
        return len(path)

    def transform(self, length):
        return self.picture


def measured(name, folder, workers):
    """Runs in a process of its own."""
    import torch
    from torchvision import datasets, transforms

    torch.set_num_threads(1)
    data = datasets.ImageFolder(folder, transforms.Compose([transforms.Resize(16), transforms.ToTensor()]))
    listed = common.memory_bytes()["Pss"]
    if name == "torch":
        from torch.utils.data import DataLoader
    else:
        from penstock.torch import DataLoader
    if name != "native":
        constant = Constant()
        data.loader, data.transform = constant.load, constant.transform
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=workers)
    steps, peak, began = len(loader) // (8 if name == "native" else 1), {"Pss": 0}, time.perf_counter()
    every = max(1, steps // LOOKS)
    for step, _ in enumerate(loader):
        if step % every == every - 1 or step == steps - 1:
            peak = max(peak, common.memory_bytes(("Pss", "Pss_Anon", "Pss_File", "Pss_Shmem")), key=lambda kinds: kinds["Pss"])
        if step == steps - 1:
            break
    result = {"name": name, "entries": len(data), "listed": listed, **peak, "seconds": time.perf_counter() - began}
    if name != "torch":
        result["path"] = loader.stats().get("path")
    print(json.dumps(result))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=1000000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--only", choices=LOADERS, action="append")
    parser.add_argument("--measure", choices=LOADERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.measure:
        return measured(args.measure, args.folder, args.workers)
    rows = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = os.path.join(scratch, "folder")
        os.makedirs(folder)
        make_folder(scratch, args.entries)
        print("%-8s %9s %9s   %9s %9s %9s %8s   (MB of PSS)" % ("", "listed", "peak", "anonymous", "files", "shared", "seconds"))
        for name in args.only or LOADERS:
            row = rows[name] = common.last_json([sys.executable, __file__, "--measure", name, "--folder", folder,
                                                 "--workers", str(args.workers)])
            print("%-8s %9.0f %9.0f   %9.0f %9.0f %9.0f %8.1f   %s" % (name, *(
                row[kind] / 1e6 for kind in ("listed", "Pss", "Pss_Anon", "Pss_File", "Pss_Shmem")), row["seconds"],
                row.get("path", "")), flush=True)
    if "torch" in rows:
        for name in rows:
            rows[name]["ratio"] = rows[name]["Pss"] / rows["torch"]["Pss"]
            print("%-8s %.3f of PyTorch's" % (name, rows[name]["ratio"]))
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "workers": args.workers, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
