#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two engines that share a remote tier beside two that do not, and beside PyTorch with pickled tensors in Redis.

    bench/remote_tier.py DATA --penstock BINARY [--case costly] [--rounds 3] [--epochs 1] [--cost-ms 5] [--torch] [--out FILE]

A round, each with a redis-server of its own that is empty: two `penstock feed --remote`, at the same time on the same photos in
orders of their own; the same without --remote; and with --torch two PyTorch loaders that do as Seneca's code does: a sample is looked
up in Redis by its number, unpickled if it is there, else decoded, pickled and stored. Nothing is cached in RAM. All that comes before the
random ops is shared: costly (decode, resize, and --cost-ms of CPU time on top) or photos (decode alone, as in training on ImageNet).
Told: samples a second of both together until both are done, how often a sample was decoded in all, CPU seconds per 1,000 samples, the server's
included. Ratios are taken within a round.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import common

sys.path.insert(0, os.path.join(common.ROOT, "tests", "rigs"))
import rigs

TARGET = 1.6
CASES = {"costly": "decode | resize(256) | delay({ms}, burn) | random_crop(224) | hflip | normalize(imagenet)",
         "photos": "decode | random_resized_crop(224) | hflip | normalize(imagenet)"}


def feeds(args, case, url):
    """Commands of the two engines."""
    for seed in (1, 2):
        yield [args.penstock, "feed", args.data, "--pipeline", CASES[case].format(ms=args.cost_ms), "--batch", str(args.batch), "--epochs",
               str(args.epochs), "--seed", str(seed), "--workers", str(args.workers), "--cache", args.cache, "--json", "--quiet",
               *(["--remote", url] if url else [])]


def torches(args, case, url):
    port = url.rpartition(":")[2]
    for seed in (1, 2):
        yield [args.python, os.path.join(common.ROOT, "bench", "remote_tier_torch.py"), args.data, "--port", port, "--epochs",
               str(args.epochs), "--seed", str(seed), "--batch", str(args.batch), "--workers", str(args.workers),
               *(["--cost-ms", str(args.cost_ms), "--resize", "256"] if case == "costly" else [])]


def decoded(report):
    """How often the decoder ran."""
    return report["decoded"] if "decoded" in report else next(one["runs"] for one in report["stages"] if one["name"] == "decode")


def together(commands, server):
    """Both at the same time. CPU seconds of the server count."""
    before = common.cpu_seconds([server.child.pid]) if server else 0
    times, begin = os.times(), time.monotonic()
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    reports = [json.loads(child.communicate()[0].splitlines()[-1]) for child in children]
    wall, after = time.monotonic() - begin, os.times()
    if any(child.returncode for child in children):
        sys.exit("an engine failed")
    used = after.children_user + after.children_system - times.children_user - times.children_system
    used += common.cpu_seconds([server.child.pid]) - before if server else 0
    samples = sum(report["samples"] for report in reports)
    slowest = max(report["seconds"] for report in reports)
    return {"rate": samples / slowest, "wall_s": wall, "decoded": sum(map(decoded, reports)), "samples": samples,
            "cpu_s_per_1000": 1000 * used / samples}


def one_round(args, case, folder):
    found = {}
    ways = [("shared", feeds, True), ("apart", feeds, False)] + ([("torch", torches, True)] if args.torch else [])
    for name, commands, served in ways:
        if served:
            with rigs.Redis(os.path.join(folder, "redis")) as server:
                found[name] = together(commands(args, case, server.url), server)
        else:
            found[name] = together(commands(args, case, None), None)
    return found


def tell(case, rounds, distinct):
    print("\n%s\n%-8s %12s %12s %12s" % (case, "", "samples/s", "decoded", "CPU s/1,000"))
    for name in rounds[0]:
        print("%-8s %12.0f %12.2f %12.2f" % (name, common.median([one[name]["rate"] for one in rounds]),
                                             common.median([one[name]["decoded"] for one in rounds]) / distinct,
                                             common.median([one[name]["cpu_s_per_1000"] for one in rounds])))
    summary = {}
    for other in [name for name in rounds[0] if name != "shared"]:
        ratio = common.spread([one["shared"]["rate"] / one[other]["rate"] for one in rounds])
        summary["shared / " + other] = ratio
        print("shared / %-6s %6.2f (%.2f to %.2f, %d rounds)" % (other, ratio["median"], ratio["min"], ratio["max"], len(rounds)))
    once = max(one["shared"]["decoded"] for one in rounds)
    summary["decoded"] = once / distinct
    if case == "costly":
        print("each sample decoded once in all: %s (at most %.3f times)" % ("met" if once == distinct else "MISSED", once / distinct))
        print("at least %g times two without: %s" % (TARGET, "met" if summary["shared / apart"]["median"] >= TARGET else "MISSED"))
    return summary


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="photos in class folders")
    parser.add_argument("--penstock", required=True)
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has torch, torchvision and redis")
    parser.add_argument("--case", choices=sorted(CASES), action="append", help="may be given again; all unless told")
    parser.add_argument("--cost-ms", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=1, help="of each engine")
    parser.add_argument("--cache", default="0", help="bytes of RAM that each engine may keep samples in")
    parser.add_argument("--torch", action="store_true", help="measure PyTorch, too")
    parser.add_argument("--out", metavar="FILE", help="write figures there")
    args = parser.parse_args()
    if rigs.missing_redis():
        sys.exit(rigs.missing_redis())
    results = {}
    with tempfile.TemporaryDirectory(prefix="remote-tier-") as folder:
        for case in args.case or sorted(CASES):
            rounds = [one_round(args, case, folder) for _ in range(args.rounds)]
            distinct = rounds[0]["apart"]["samples"] // 2 // args.epochs
            results[case] = {"summary": tell(case, rounds, distinct), "rounds": rounds}
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "settings": {key: value for key, value in vars(args).items() if key in (
            "cost_ms", "rounds", "epochs", "batch", "workers", "cache")}, "cases": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
