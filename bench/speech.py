#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Features of speech beside torch and torchaudio in PyTorch's DataLoader (bench/speech_torch.py), on recordings of
LibriSpeech's lengths made by `penstock synth speech`, files in the page cache.

    bench/speech.py --build build [--count 300] [--pairs 5] [--seconds 15] [--only features,rnnt] [--out FILE]

features: FLAC, dither, pre-emphasis, log-mel, normalise, SpecAugment, stacking by three, batches of 16 padded, with
transcripts; rnnt: the same after trimming and a random speed. Both give torch tensors on the CPU, with two workers; torch
reads with soundfile or with torchaudio, whichever was faster in a first run. They take turns; a ratio is taken within a
pair of runs, and the median of the pairs counts.
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

HERE = os.path.dirname(os.path.abspath(__file__))
FEATURES = "dither | preemphasis | log_mel(80) | feature_norm | spec_augment | stack(3)"
OURS = {"features": f"decode | {FEATURES}", "rnnt": f"decode | trim(60) | speed((0.85, 1.15)) | {FEATURES}"}
BATCH = 16


def ours(args):
    """One measurement of Penstock; prints a JSON line."""
    import penstock

    loader = penstock.Loader(args.data, OURS[args.ours], BATCH, fields={"audio": "padded", "text": ""}, device="cpu",
                             workers=args.workers, cache=0, seed=1)

    def batches():
        while True:
            yield from loader

    endless, count = batches(), 0
    for _ in range(10):
        next(endless)
    start, cpu = time.perf_counter(), common.cpu_seconds()
    while time.perf_counter() - start < args.seconds:
        taken = next(endless)
        count += len(taken.audio)
    elapsed = time.perf_counter() - start
    print(json.dumps({"samples_per_s": count / elapsed, "cpu_ms_a_sample": 1e3 * (common.cpu_seconds() - cpu) / count,
                      "stages_ms": {name: round(1e3 * seconds / max(runs, 1), 3)
                                    for name, runs, seconds in loader.stats()["stages"]}}))
    return 0


def measure(command, build):
    done = subprocess.run(command, env=common.env_of(build), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def row(name, data, args):
    theirs = [sys.executable, os.path.join(HERE, "speech_torch.py"), "--data", data, "--pipeline", name]
    mine = [sys.executable, os.path.abspath(__file__), "--ours", name, "--data", data, "--build", args.build]
    more = ["--workers", str(args.workers), "--seconds", str(args.seconds)]
    first = {decode: measure([*theirs, *more, "--decode", decode], args.build)["samples_per_s"]
             for decode in ("soundfile", "torchaudio")}
    best = max(first, key=first.get)
    pairs = []
    for turn in range(args.pairs):
        both = {}
        for which in ("torch", "penstock") if turn % 2 else ("penstock", "torch"):
            command = [*theirs, "--decode", best] if which == "torch" else mine
            both[which] = measure([*command, *more], args.build)
        pairs.append(both)
        print("%-9s torch (%s) %6.1f/s, penstock %6.1f/s: %.2f times" % (
            name, best, both["torch"]["samples_per_s"], both["penstock"]["samples_per_s"],
            both["penstock"]["samples_per_s"] / both["torch"]["samples_per_s"]), flush=True)
    rates = [p["penstock"]["samples_per_s"] / p["torch"]["samples_per_s"] for p in pairs]
    costs = [p["torch"]["cpu_ms_a_sample"] / p["penstock"]["cpu_ms_a_sample"] for p in pairs]
    return {"decode": best, "decode_rates": first, "pairs": pairs, "ratio": common.spread(rates),
            "cpu_ratio": common.spread(costs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--data", help="a folder made by penstock synth speech; made here unless given")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default=",".join(OURS))
    parser.add_argument("--ours", choices=OURS, help=argparse.SUPPRESS)
    parser.add_argument("--out")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    if args.ours:
        return ours(args)
    program = common.need_program(os.path.join(args.build, "penstock"), "build it first, or give --build")
    with tempfile.TemporaryDirectory(prefix="penstock-speech-") as scratch:
        data = args.data
        if not data:
            data = os.path.join(scratch, "speech")
            subprocess.run([program, "synth", "speech", data, "--count", str(args.count)], check=True)
        result = {"machine": common.machine(), "workers": args.workers,
                  "rows": {name: row(name, data, args) for name in args.only.split(",")}}
    for name, made in result["rows"].items():
        print("%-9s %.2f times torch (%.2f to %.2f), %.2f of its CPU time" % (
            name, made["ratio"]["median"], made["ratio"]["min"], made["ratio"]["max"], 1 / made["cpu_ratio"]["median"]))
    if args.out:
        common.write_json(args.out, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
