#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A minute with Penstock: makes 600 photo-like images, looks at them, feeds a training job and an evaluation job at the same
time, then three training jobs from one daemon that do each other's work, and shows how near the loader comes to the decoder's own
limit. Everything stays below the build folder.

    tools/demo.py [BUILD]
"""
import json
import os
import subprocess
import sys
import textwrap
import time

TRAIN = "decode | random_resized_crop(224) | hflip | normalize(imagenet)"
EVALUATE = "decode | resize(256) | center_crop(224) | normalize(imagenet)"
IMAGES = 600
CACHE = "%d" % (IMAGES // 5 * (224 * 224 * 3 + 700))  # a fifth of the samples, prepared
running = []


def title(text):
    print("\n== %s" % text, flush=True)


def shown(command):
    """The command as one would type it."""
    return " ".join("'%s'" % word if " " in word else word for word in command)


def start(command):
    print("$ " + shown(command), flush=True)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running.append(process)
    return process


def finish(process):
    out, err = process.communicate()
    running.remove(process)
    if process.returncode != 0:
        sys.exit("%s%s\nended with status %d" % (out, err, process.returncode))
    return out


def last_object(process):
    return json.loads(finish(process).strip().splitlines()[-1])


def make_images(penstock, folder):
    title("%d photo-like JPEGs in class folders" % IMAGES)
    done = folder + ".done"
    if os.path.exists(done):
        print("made before: %s" % folder)
        return
    finish(start([penstock, "synth", "images", folder, "--count", str(IMAGES), "--seed", "1"]))
    with open(done, "w", encoding="ascii"):
        pass


def look(penstock, folder):
    title("what the folder holds")
    lines = finish(start([penstock, "inspect", folder])).rstrip().splitlines()
    print("\n".join("  " + line for line in lines[:24]))


def two_jobs(penstock, folder):
    title("two jobs at the same time, each with its own engine: training takes a batch every 60 ms, evaluation what it can get")
    jobs = [
        ("training", [penstock, "feed", folder, "--pipeline", TRAIN, "--batch", "32", "--epochs", "10", "--max-batches", "120",
                      "--step-ms", "60", "--seed", "7", "--workers", "1", "--json"]),
        ("evaluation", [penstock, "feed", folder, "--pipeline", EVALUATE, "--batch", "50", "--epochs", "3", "--sampler",
                        "sequential", "--workers", "1", "--json"]),
    ]
    started = [(name, start(command)) for name, command in jobs]
    reports = [(name, last_object(process)) for name, process in started]
    print("\n  %-12s %8s %9s %10s %10s %12s %14s" % ("job", "samples", "img/s", "wait p50", "wait p99", "stall share", "first batch"))
    for name, r in reports:
        print("  %-12s %8d %9.0f %7.1f ms %7.1f ms %10.1f %% %11.0f ms" % (
            name, r["samples"], r["samples_per_s"], r["wait_p50_us"] / 1e3, r["wait_p99_us"] / 1e3, 100 * r["stall_share"],
            1e3 * r["first_batch_s"]))
    print("\n  time per sample, by stage")
    for name, r in reports:
        parts = ["%s %.2f ms" % (s["name"], 1e3 * s["seconds"] / s["runs"]) for s in r["stages"] if s["runs"]]
        print(textwrap.fill("%-12s %s" % (name, ", ".join(parts)), 110, initial_indent="  ", subsequent_indent=" " * 15))
    print("\n  what is slow, and what would help")
    for name, r in reports:
        print(textwrap.fill("%-12s %s" % (name, r["verdict"]["text"]), 110, initial_indent="  ", subsequent_indent=" " * 15))


def start_daemon(penstock, folder):
    """Serves until it is told to stop; says a line when it is ready."""
    command = [penstock, "serve", "--socket", folder, "--memory", "1G", "--cache", CACHE]
    print("$ " + shown(command), flush=True)
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running.append(daemon)
    if not daemon.stdout.readline():
        sys.exit("%s\nended with status %d" % (daemon.stderr.read(), daemon.wait()))
    return daemon


def three_jobs(penstock, folder, daemon_folder, sampling):
    print()
    jobs = []
    for step_ms, batches in ((20, 240), (40, 120), (60, 80)):
        jobs.append(start([penstock, "feed", folder, "--engine", "unix:" + daemon_folder, "--pipeline", TRAIN, "--order", "ready",
                           "--sampling", sampling, "--epochs", "100", "--max-batches", str(batches), "--step-ms", str(step_ms),
                           "--seed", str(step_ms), "--json"]))
    if sampling == "opportunistic":
        time.sleep(2)  # of the five that they take
        print("\n" + textwrap.indent(finish(start([penstock, "top", "--once", "--engine", "unix:" + daemon_folder])), "  "))
    reports = [last_object(job) for job in jobs]
    print("\n  %-13s %8s %9s %12s %22s" % (sampling, "samples", "img/s", "stall share", "prepared per sample"))
    for name, r in zip(("fast", "middling", "slow"), reports):
        print("  %-13s %8d %9.0f %10.1f %% %22.2f" % (
            name, r["samples"], r["samples_per_s"], 100 * r["stall_share"], r["preparations"] / max(1, r["samples"])))
    samples = sum(r["samples"] for r in reports)
    return samples / max(r["seconds"] for r in reports), sum(r["preparations"] for r in reports) / samples


def one_daemon(penstock, folder, daemon_folder):
    title("three training jobs at different speeds on one dataset, from one daemon with a fifth of the samples in its cache")
    daemon = start_daemon(penstock, daemon_folder)
    try:
        apart = three_jobs(penstock, folder, daemon_folder, "plain")
        together = three_jobs(penstock, folder, daemon_folder, "opportunistic")
    finally:
        daemon.terminate()
        daemon.communicate()
        running.remove(daemon)
    print("\n  without sharing  %6.0f img/s together, %.2f samples prepared for each delivered" % apart)
    print("  with sharing     %6.0f img/s together, %.2f" % together)


def beside_the_limit(penstock, decode_limit, folder):
    workers = str(len(os.sched_getaffinity(0)))
    title("as fast as it goes, beside the decoder alone (%s threads each)" % workers)
    limit = last_object(start([decode_limit, folder, "--threads", workers, "--passes", "3"]))
    feed = last_object(start([penstock, "feed", folder, "--pipeline", TRAIN, "--batch", "64", "--epochs", "3", "--workers",
                              workers, "--json"]))
    share = feed["samples_per_s"] / limit["samples_per_s"]
    print("\n  libjpeg-turbo alone, the same kind of crops  %6.0f img/s" % limit["samples_per_s"])
    print("  Penstock, finished float batches             %6.0f img/s: %.0f %% of it" % (feed["samples_per_s"], 100 * share))
    print("\n  (one short run; `make bench` measures properly, and beside PyTorch)")
    print("  `penstock top` follows a daemon live, and `penstock serve --http 9091` has a page at http://127.0.0.1:9091/")


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    penstock, decode_limit = os.path.join(build, "penstock"), os.path.join(build, "bench", "decode_limit")
    folder = os.path.join(build, "demo", "photos")
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    os.environ.setdefault("XDG_CACHE_HOME", os.path.join(os.path.abspath(build), "demo", "cache"))
    make_images(penstock, folder)
    look(penstock, folder)
    two_jobs(penstock, folder)
    one_daemon(penstock, folder, os.path.join(build, "demo", "daemon"))
    beside_the_limit(penstock, decode_limit, folder)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # A terminal has told the children too and they end by themselves; a plain signal has not.
        for child in running:
            try:
                child.wait(1)
            except subprocess.TimeoutExpired:
                child.terminate()
                child.wait()
        print("\nstopped")
        sys.exit(130)
