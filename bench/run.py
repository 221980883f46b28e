#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Throughput of Penstock beside PyTorch's DataLoader and beside the decoder's limit, on the same files and cores.

Machines drift, so nothing is measured once: in each of --pairs rounds every contender runs for --seconds in turn
(Penstock, PyTorch, the limit, Penstock with one worker), ratios are taken within a round, and the median of the ratios is
reported with their spread.

    bench/run.py [--data DIR] [--workers N] [--pairs 10] [--seconds 3] [--out FILE]

PyTorch is taken at its best: both decoders and several prefetch depths are tried first. Without --data a dataset is
made up with `penstock synth images`.
"""
import argparse
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import common


class Torch:
    """bench/torch_loader.py, kept running between measurements."""

    def __init__(self, args, decode, prefetch):
        self.name = "%s, prefetch %d" % ("Pillow" if decode == "pil" else "torchvision.io", prefetch)
        command = [args.python, os.path.join(common.ROOT, "bench", "torch_loader.py"), "--data", args.data, "--workers",
                   str(args.workers), "--batch", str(args.batch), "--decode", decode, "--prefetch", str(prefetch)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        start_new_session=True)
        self.versions = self.answer()
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        """Between its turns the loader is stopped: its workers would fill their queues at the next contender's cost."""
        os.killpg(self.process.pid, number)

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("the PyTorch loader (%s) ended with status %s" % (self.name, self.process.wait()))
        return json.loads(line)

    def run(self, seconds):
        self.signal(signal.SIGCONT)
        self.process.stdin.write("run %f\n" % seconds)
        self.process.stdin.flush()
        result = self.answer()
        self.signal(signal.SIGSTOP)
        return result

    def close(self):
        self.signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


def torch_best(args):
    """Tries decoders, then prefetch depths with the faster one; returns the fastest, still running."""
    tried, best, rate = {}, None, 0.0
    plan = [("pil", 4), ("io", 4), (None, 2), (None, 8)]
    decoder = "pil"
    for decode, prefetch in plan:
        one = Torch(args, decode or decoder, prefetch)
        got = one.run(min(args.seconds, 3.0))["samples_per_s"]
        tried[one.name] = got
        print("  PyTorch, %s: %.0f img/s" % (one.name, got), flush=True)
        if got > rate:
            if best:
                best.close()
            best, rate, decoder = one, got, decode or decoder
        else:
            one.close()
    return best, tried


def feed(args, workers, seconds, rate):
    """One Penstock run of about so many seconds."""
    epochs = max(1, math.ceil(seconds * rate / args.files)) if rate else 2
    return common.last_json([args.penstock, "feed", args.data, "--pipeline", common.PIPELINE, "--batch", str(args.batch),
                             "--workers", str(workers), "--epochs", str(epochs), "--seed", "1", "--json"])


def limit(args, threads, seconds, rate):
    passes = max(1, math.ceil(seconds * rate / args.files)) if rate else 2
    return common.last_json([args.limit, args.data, "--threads", str(threads), "--passes", str(passes)])


def contenders(args, torch):
    """[(name, function of seconds)], each calibrated to last as long as it is told."""
    def timed(function, count):
        rate = function(args, count, 0, 0)["samples_per_s"]
        return lambda seconds: function(args, count, seconds, rate)
    made = [("penstock", timed(feed, args.workers))]
    if torch:
        made.append(("torch", torch.run))
    made.append(("limit", timed(limit, args.workers)))
    if args.workers > 1:
        made.append(("penstock_1", timed(feed, 1)))
    return made


def rounds(args, made):
    results = {name: [] for name, _ in made}
    for number in range(args.pairs):
        for name, run in made:
            results[name].append(run(args.seconds))
        line = ", ".join("%s %.0f" % (name, results[name][-1]["samples_per_s"]) for name, _ in made)
        print("  round %d of %d: %s img/s" % (number + 1, args.pairs, line), flush=True)
    return results


def ratio(results, above, below):
    """Spread of the ratios within rounds; None when one of the two did not run."""
    if above not in results or below not in results:
        return None
    pairs = zip(results[above], results[below])
    return common.spread([a["samples_per_s"] / b["samples_per_s"] for a, b in pairs])


def cpu_ratio(results, above, below):
    """CPU time that `below` takes for a sample, over what `above` takes: finer than wall time on a busy machine."""
    if above not in results or below not in results:
        return None
    pairs = zip(results[above], results[below])
    return common.spread([(b["cpu_s"] / b["samples"]) / (a["cpu_s"] / a["samples"]) for a, b in pairs])


def summarise(args, results, torch, tried):
    names = {"penstock": "Penstock, %d workers" % args.workers, "penstock_1": "Penstock, 1 worker",
             "torch": "PyTorch, %d workers, %s" % (args.workers, torch.name if torch else ""),
             "limit": "crop decode alone, %d threads" % args.workers}
    table = {}
    for name, runs in results.items():
        table[name] = {"what": names[name], "samples_per_s": common.spread([r["samples_per_s"] for r in runs]),
                       "cpu_ms_per_sample": common.spread([1e3 * r["cpu_s"] / r["samples"] for r in runs])}
    ratios = {"penstock / torch": ratio(results, "penstock", "torch"),
              "penstock / limit": ratio(results, "penstock", "limit"),
              "penstock / limit, by CPU time": cpu_ratio(results, "penstock", "limit"),
              "%d workers / 1 worker" % args.workers: ratio(results, "penstock", "penstock_1")}
    return {"machine": common.machine(), "data": {"files": args.files, "made_up": args.made_up}, "pipeline": common.PIPELINE,
            "batch": args.batch, "workers": args.workers, "pairs": args.pairs, "seconds": args.seconds,
            "torch": dict(torch.versions, tried=tried) if torch else None,
            "table": table, "ratios": {k: v for k, v in ratios.items() if v}, "rounds": results}


def show(summary):
    print("\n%-48s %10s %17s %14s" % ("", "img/s", "min - max", "CPU ms / img"))
    for row in summary["table"].values():
        rate, cpu = row["samples_per_s"], row["cpu_ms_per_sample"]
        print("%-48s %10.0f %8.0f - %6.0f %14.2f" % (row["what"], rate["median"], rate["min"], rate["max"], cpu["median"]))
    print("\n%-48s %10s %17s" % ("ratio, median of %d pairs" % summary["pairs"], "", "min - max"))
    for name, value in summary["ratios"].items():
        print("%-48s %10.2f %8.2f - %6.2f" % (name, value["median"], value["min"], value["max"]))
    print()


def count_files(folder):
    return sum(name.lower().endswith((".jpg", ".jpeg")) for _, _, names in os.walk(folder) for name in names)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of class folders of JPEG files (made up if not given)")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=10, help="rounds (10)")
    parser.add_argument("--seconds", "--seconds-per-run", type=float, default=3.0, help="for each run (3)")
    parser.add_argument("--penstock", default=os.path.join(common.ROOT, "build", "penstock"))
    parser.add_argument("--limit", default=os.path.join(common.ROOT, "build", "bench", "decode_limit"))
    parser.add_argument("--python", default=sys.executable, help="the Python that has torch and torchvision")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--out", help="where the JSON goes (build/bench.json)",
                        default=os.path.join(common.ROOT, "build", "bench.json"))
    parser.add_argument("--report", metavar="FILE", help="also a page that shows it, by penstock report")
    args = parser.parse_args()
    common.need_program(args.penstock, "run make first")
    common.need_program(args.limit, "run make first")
    return args


def main():
    args = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        args.made_up = not args.data
        if args.made_up:
            args.data = os.path.join(scratch, "photos")
            subprocess.run([args.penstock, "synth", "images", args.data, "--count", "400", "--seed", "1"], check=True)
        args.files = count_files(args.data)
        print("%d files, %d workers, batches of %d: %s" % (args.files, args.workers, args.batch, common.PIPELINE))
        torch, tried = None, {}
        if args.no_torch or (args.python == sys.executable and not importlib.util.find_spec("torchvision")):
            print("  PyTorch is left out: %s" % ("as asked" if args.no_torch else "no torchvision in " + args.python))
        else:
            torch, tried = torch_best(args)
        summary = summarise(args, rounds(args, contenders(args, torch)), torch, tried)
        if torch:
            torch.close()
    show(summary)
    common.write_json(args.out, summary)
    if args.report:
        subprocess.run([args.penstock, "report", args.out, "-o", args.report, "--title", "Loading alone"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
