#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Several jobs on one dataset: sharing one engine, on engines of their own, and as PyTorch loaders.

    bench/many_jobs.py --build DIR --photos DIR [--samples 20000] [--jobs 4] [--cached 0.2] [--rounds 5] [--seconds 15]
                       [--skip 12] [--out FILE]

The dataset is made of real photos: hard links under other names, each a sample of its own. In each round, one after the
other: jobs that share (bench/jobs --how shared), as many embedded engines that do not, each with its part of workers and cache
(--how apart), as many PyTorch loaders with one worker process each, one job with all photos decoded in RAM, libjpeg-turbo's
limit for crops (bench/decode_limit), and deliveries of what another job prepared as u8 beside memcpy (bench/hit_speed). Ratios
are taken within a round; medians and spreads are told, of samples a second and of CPU seconds per sample, which hold on a busy
machine, too. All use --workers threads or cores in sum. PyTorch decodes
with whichever of Pillow and torchvision.io is faster here. Jobs take batches as fast as they come and do nothing with
them; what comes before --skip seconds, while caches fill, does not count.
"""
import argparse
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import common

CLASSES = 20
TARGETS = {"shared / apart": 2.8, "shared / PyTorch": 8.0, "decoded / limit": 2.5, "hits / memcpy": 0.5}


def make_set(photos, folder, samples):
    """Hard links of copies: `photos` may lie on another file system."""
    sources = sorted(path for path in glob.glob(os.path.join(photos, "**", "*"), recursive=True) if os.path.isfile(path)
                     and path.lower().endswith((".jpg", ".jpeg")))
    if not sources:
        sys.exit("%s: no JPEG files" % photos)
    for label in range(CLASSES):
        os.makedirs(os.path.join(folder, "links", "c%03d" % label))
    os.makedirs(os.path.join(folder, "photos", "all"))
    copies = []
    for number, source in enumerate(sources):
        copies.append(os.path.join(folder, "photos", "all", "%04d.jpg" % number))
        shutil.copyfile(source, copies[-1])
    for number in range(samples):
        os.link(copies[number % len(copies)],
                os.path.join(folder, "links", "c%03d" % (number % CLASSES), "%06d.jpg" % number))
    return os.path.join(folder, "links"), os.path.join(folder, "photos"), len(sources)


class Torch:
    """As many processes of bench/torch_loader.py as there are jobs; stopped between their turns."""

    def __init__(self, args, data, decode):
        command = [args.python, os.path.join(common.ROOT, "bench", "torch_loader.py"), "--data", data, "--workers", "1",
                   "--batch", str(args.batch), "--decode", decode, "--warm", "10"]
        self.processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                           start_new_session=True) for _ in range(args.jobs)]
        self.versions = self.answers()[0]
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        for process in self.processes:
            os.killpg(process.pid, number)

    def answers(self):
        lines = [process.stdout.readline() for process in self.processes]
        if not all(lines):
            sys.exit("a PyTorch loader ended")
        return [json.loads(line) for line in lines]

    def run(self, seconds):
        self.signal(signal.SIGCONT)
        for process in self.processes:
            process.stdin.write("run %f\n" % seconds)
            process.stdin.flush()
        found = self.answers()
        self.signal(signal.SIGSTOP)
        samples = sum(one["samples"] for one in found)
        return {"rate": sum(one["samples_per_s"] for one in found),
                "cpu_s_per_1000": 1000 * sum(one["cpu_s"] for one in found) / samples}

    def close(self):
        self.signal(signal.SIGCONT)
        for process in self.processes:
            process.stdin.close()
            process.wait()


def best_torch(args, data):
    tried = {}
    for decode in ("pil", "io"):
        torch = Torch(args, data, decode)
        tried[decode] = torch.run(args.seconds / 2)["rate"]
        torch.close()
    best = max(tried, key=tried.get)
    print("PyTorch: " + ", ".join("%s %.0f/s" % one for one in tried.items()))
    return Torch(args, data, best), best


def one_round(args, sets, torch, tools):
    links, photos, count = sets
    common_options = ["--workers", str(args.workers), "--batch", str(args.batch)]
    timed = ["--seconds", str(args.seconds), "--skip", str(args.skip)]
    jobs = [tools["jobs"], links, "--jobs", str(args.jobs), "--samples-cached", str(args.cached), *common_options, *timed]
    decoded = [tools["jobs"], photos, "--jobs", "1", "--how", "plain", "--forms", "0:1:0", "--samples-cached", "12",
               *common_options, "--seconds", str(args.seconds / 2), "--skip", str(args.skip / 2)]
    limit = [tools["decode_limit"], photos, "--threads", str(args.workers), "--passes", str(max(1, 4000 // count))]
    found = {"shared": common.last_json([*jobs, "--how", "shared"]),
             "apart": common.last_json([*jobs, "--how", "apart"]),
             "PyTorch": torch.run(args.seconds),
             "decoded": common.last_json(decoded),
             "limit": common.last_json(limit),
             "hits": common.last_json([tools["hit_speed"], photos, *common_options])}
    if found["decoded"]["from_decoded"] < 0.99:
        sys.exit("not all was decoded in RAM: %s" % found["decoded"])
    found["limit"] = {"rate": found["limit"]["samples_per_s"],
                      "cpu_s_per_1000": 1000 * found["limit"]["cpu_s"] / found["limit"]["samples"]}
    found["cpu_ratios"] = {name: found[low]["cpu_s_per_1000"] / found[high]["cpu_s_per_1000"] for name, high, low in (
        ("shared / apart", "shared", "apart"), ("shared / PyTorch", "shared", "PyTorch"), ("decoded / limit", "decoded", "limit"))}
    found["ratios"] = {"shared / apart": found["shared"]["rate"] / found["apart"]["rate"],
                       "shared / PyTorch": found["shared"]["rate"] / found["PyTorch"]["rate"],
                       "decoded / limit": found["decoded"]["rate"] / found["limit"]["rate"],
                       "hits / memcpy": found["hits"]["of_memcpy"]}
    return found


def tell(rounds):
    print("\n%-10s %10s %14s" % ("", "samples/s", "CPU s/1,000"))
    for name in ("shared", "apart", "PyTorch", "decoded", "limit", "hits"):
        print("%-10s %10.0f %14.3f" % (name, common.median([one[name]["rate"] for one in rounds]),
                                       common.median([one[name]["cpu_s_per_1000"] for one in rounds])))
    summary = {}
    for name, target in TARGETS.items():
        summary[name] = common.spread([one["ratios"][name] for one in rounds])
        print("%-18s %6.2f  (%.2f to %.2f, %d rounds)  at least %g: %s" % (
            name, summary[name]["median"], summary[name]["min"], summary[name]["max"], len(rounds), target,
            "met" if summary[name]["median"] >= target else "MISSED"))
    for name in rounds[0]["cpu_ratios"]:
        key = name + ", by CPU time"
        summary[key] = common.spread([one["cpu_ratios"][name] for one in rounds])
        print("%-30s %6.2f  (%.2f to %.2f)" % (key, summary[key]["median"], summary[key]["min"], summary[key]["max"]))
    return summary


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, with bench/jobs, hit_speed and decode_limit")
    parser.add_argument("--photos", default=os.environ.get("PENSTOCK_PHOTOS"))
    parser.add_argument("--python", default="/usr/bin/python3", help="one that has torch and torchvision")
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cached", type=float, default=0.2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--skip", type=float, default=12)
    parser.add_argument("--out")
    args = parser.parse_args()
    if not args.photos:
        parser.error("--photos, or PENSTOCK_PHOTOS, names a folder of JPEG files")
    tools = {name: common.need_program(os.path.join(args.build, "bench", name), "build it: ninja bench/%s" % name)
             for name in ("jobs", "hit_speed", "decode_limit")}
    with tempfile.TemporaryDirectory(prefix="many-jobs-") as folder:
        sets = make_set(args.photos, folder, args.samples)
        torch, decode = best_torch(args, sets[0])
        rounds = []
        for number in range(args.rounds):
            rounds.append(one_round(args, sets, torch, tools))
            print("round %d: " % (number + 1) + ", ".join("%s %.2f" % one for one in rounds[-1]["ratios"].items()), flush=True)
        torch.close()
    summary = tell(rounds)
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "settings": {
            key: value for key, value in vars(args).items() if key not in ("build", "photos", "python", "out")},
            "torch": {**torch.versions, "decode": decode}, "ratios": summary, "rounds": rounds})
    return 0


if __name__ == "__main__":
    sys.exit(main())
