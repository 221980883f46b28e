#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How long until the first batch of 32: small folder, large folder at the first and at a second start, and a listing of
1.3 million entries. Files are hard links to a few images: what is measured is finding them, not the disk.

    bench/first_batch.py [--data DIR] [--runs 10] [--large 100000] [--huge 1300000] [--scratch DIR] [--out FILE]

Each row has two figures: the whole process from outside, start to exit (an upper bound), and `first_batch_s` as the
program reports it. --large 0 or --huge 0 leaves that part out.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import common

LINKS_PER_FILE = 20000  # file systems limit the links of one file
FILES_PER_CLASS = 1000


def first_batch(args, data, cache, batches=1):
    """(seconds from outside, seconds as reported)."""
    environment = dict(os.environ, XDG_CACHE_HOME=cache)
    command = [args.penstock, "feed", data, "--pipeline", common.PIPELINE, "--batch", "32", "--max-batches", str(batches),
               "--seed", "1", "--json"]
    start = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, text=True, check=False)
    wall = time.perf_counter() - start
    if done.returncode != 0:
        sys.exit("%s ended with status %d" % (" ".join(command), done.returncode))
    return wall, common.json.loads(done.stdout.strip().splitlines()[-1])["first_batch_s"]


def images_of(folder):
    return sorted(os.path.join(place, name) for place, _, names in os.walk(folder) for name in names
                  if name.lower().endswith((".jpg", ".jpeg")))


def copies(images, scratch, count):
    """Copies of a few images on the file system of `scratch`, enough that none gets too many links."""
    folder = os.path.join(scratch, "seeds")
    os.makedirs(folder, exist_ok=True)
    made = []
    for number in range(max(8, -(-count // LINKS_PER_FILE))):
        path = os.path.join(folder, "%03d.jpg" % number)
        if not os.path.exists(path):
            with open(images[number % len(images)], "rb") as source, open(path, "wb") as target:
                target.write(source.read())
        made.append(path)
    return made


def link_tree(images, folder, count):
    for number in range(count):
        place = os.path.join(folder, "class%05d" % (number // FILES_PER_CLASS))
        if number % FILES_PER_CLASS == 0:
            os.makedirs(place)
        os.link(images[number % len(images)], os.path.join(place, "image%07d.jpg" % number))


def remove_tree(folder):
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            os.unlink(os.path.join(place, name))
        os.rmdir(place)


def row(table, name, measured):
    wall, reported = zip(*measured)
    table[name] = {"process_s": common.spread(wall), "first_batch_s": common.spread(reported)}
    print("%-44s %9.3f s %9.3f s   (%d runs, slowest %.3f s)" % (
        name, common.median(wall), common.median(reported), len(measured), max(wall)), flush=True)


def small(args, table, scratch):
    cache = os.path.join(scratch, "cache-small")
    os.makedirs(cache)
    name = "%d files" % len(images_of(args.data))
    row(table, name + ", first start", [first_batch(args, args.data, cache)])
    row(table, name, [first_batch(args, args.data, cache) for _ in range(args.runs)])


def large(args, table, scratch, count):
    folder, cache = os.path.join(scratch, "links"), os.path.join(scratch, "cache-large")
    os.makedirs(cache)
    link_tree(copies(images_of(args.data), scratch, count), folder, count)
    try:
        row(table, "%d files, first start" % count, [first_batch(args, folder, cache)])
        row(table, "%d files, a later start" % count, [first_batch(args, folder, cache) for _ in range(min(args.runs, 5))])
    finally:
        remove_tree(folder)
        remove_tree(cache)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of class folders of JPEG files (made up if not given)")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--large", type=int, default=100000)
    parser.add_argument("--huge", type=int, default=1300000)
    parser.add_argument("--scratch", help="where the links are made; wants a real file system")
    parser.add_argument("--penstock", default=os.path.join(common.ROOT, "build", "penstock"))
    parser.add_argument("--out", default=os.path.join(common.ROOT, "build", "first_batch.json"))
    args = parser.parse_args()
    common.need_program(args.penstock, "run make first")
    table = {}
    with tempfile.TemporaryDirectory(dir=args.scratch) as scratch:
        if not args.data:
            args.data = os.path.join(scratch, "photos")
            subprocess.run([args.penstock, "synth", "images", args.data, "--count", "400", "--seed", "1"], check=True)
        print("%-44s %11s %11s" % ("first batch of 32", "process", "reported"))
        small(args, table, scratch)
        for count in (args.large, args.huge):
            if count:
                large(args, table, scratch, count)
    common.write_json(args.out, {"machine": common.machine(), "table": table})
    return 0


if __name__ == "__main__":
    sys.exit(main())
