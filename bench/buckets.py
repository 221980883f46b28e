#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Data in buckets beside the same data in local files: what a sample costs, what distance costs, what the disk tier gives back.

    bench/buckets.py --build BUILD [--photos DIR] [--count 1000] [--rounds 5] [--only cpu,away,disk,list] [--out FILE]

Data. `count` photos of about 110 KB, made up or copies of those in --photos, in class folders, and the same in tar shards of 200.

cpu. CPU seconds of the process per sample: a real S3 server (versitygw) on loopback against the local folder, for files,
for shards shuffled in runs of 16 neighbours, which come with few requests, for shards in sequential order, and for shards whose members are
shuffled one by one, with a request for each; whole runs of the command line over
--epochs epochs, listing and start included, by turns. What was learned of local folders and of shards is remembered from one run to the next, as it is for users; the first round, in which it is not, is given
apart. The server's own CPU is not counted; it runs on the same cores, so the rates say little. Requests are counted by faultd in a
first epoch of its own.

away. Samples a second from faultd, which answers at once or 20 ms after each request, and 40 ms after the first of a connection:
what a round trip costs, without what TCP needs to get up to speed. By turns.

disk. One process: an epoch from the bucket 20 ms away with an empty disk tier, and a second one, against the second epoch over
local files; then a new process over the same tier, against the first epoch over local files. Nothing is kept in memory. Samples a
second of each epoch; requests of the new process, which looks at one sample to learn what samples are like.

list. `penstock inspect` of one sample of 100,000 keys: seconds, requests, and bytes of memory for each key beyond a listing of 1,000.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

sys.dont_write_bytecode = True
import common

sys.path.insert(0, os.path.join(common.ROOT, "tests", "rigs"))
import rigs

BATCH, SHARD, DELAY_MS = 32, 200, 20
FILES_LIMIT, TAR_LIMIT, AWAY_LEAST, DISK_LEAST = 1.15, 1.05, 0.9, 0.9
KEYS, LIST_LIMIT_S, KEY_LIMIT_BYTES = 100_000, 10, 200
KINDS = (("files", "files", ()), ("shards", "shards", ("--sampler", "shuffle:16")), ("shards in order", "shards", ("--sampler", "sequential")),
         ("members alone", "shards", ()))
AWAY = [{"do": {"delay_ms": DELAY_MS, "first_delay_ms": DELAY_MS}}]


# ---- data ------------------------------------------------------------------------------------------------------------


def make_data(args, top):
    """top/files/CLASS/NAME.jpg and top/shards/NAME.tar."""
    files, shards = os.path.join(top, "data", "files"), os.path.join(top, "data", "shards")
    if args.photos:
        found = sorted(os.path.join(at, name) for at, _, names in os.walk(args.photos) for name in names
                       if name.lower().endswith((".jpg", ".jpeg")))
        for number in range(args.count):
            path = os.path.join(files, "c%03d" % (number % 10), "%06d.jpg" % number)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copyfile(found[number % len(found)], path)
    else:
        subprocess.run([args.penstock, "synth", "images", files, "--count", str(args.count)], check=True, stdout=subprocess.DEVNULL)
    os.makedirs(shards)
    paths = sorted(os.path.join(at, name) for at, _, names in os.walk(files) for name in names)
    for begin in range(0, len(paths), SHARD):
        with tarfile.open(os.path.join(shards, "part-%04d.tar" % (begin // SHARD)), "w") as tar:
            for path in paths[begin:begin + SHARD]:
                tar.add(path, os.path.relpath(path, files))
    return os.path.join(top, "data")


# ---- one run ---------------------------------------------------------------------------------------------------------


def feed(args, where, env, epochs, *more):
    """The report of a run, with CPU seconds of the whole process from outside."""
    command = [args.penstock, "feed", where, "--pipeline", args.pipeline, "--batch", str(BATCH), "--epochs", str(epochs), "--json",
               "--quiet", *more]
    child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stdout.close()
    if child.returncode:
        sys.exit("%s\nended with status %d" % (" ".join(command), child.returncode))
    report = json.loads(out.splitlines()[-1])
    return {"cpu_ms_per_sample": (usage.ru_utime + usage.ru_stime) / report["samples"] * 1e3, "samples_per_s": report["samples_per_s"],
            "samples": report["samples"], "peak_rss_bytes": usage.ru_maxrss << 10}


def over_epochs(where, pipeline, epochs, disk):
    """In a process of its own: seconds and samples of each epoch, from asking for its first batch to its last one."""
    import penstock

    options = {"cache": 0, **({"disk": disk} if disk else {})}
    found, begin = [], time.monotonic()
    with penstock.Loader(where, pipeline, BATCH, seed=1, **options) as loader:
        opened = time.monotonic() - begin
        for _ in range(epochs):
            samples, begin = 0, time.monotonic()
            first = None
            for batch in loader:
                first = first or time.monotonic() - begin
                samples += len(batch[0])
            took = time.monotonic() - begin
            found.append({"samples": samples, "seconds": took, "samples_per_s": samples / took, "first_batch_s": first})
        stats = {key: value for key, value in loader.stats().items() if isinstance(value, (int, float))}
    print(json.dumps({"opened_s": opened, "epochs": found, "stats": stats}))


def epochs_in_child(args, where, env, epochs, disk=None):
    command = [sys.executable, os.path.abspath(__file__), "--build", args.build, "--pipeline", args.pipeline, "--child",
               json.dumps([where, epochs, disk])]
    done = subprocess.run(command, env={**env, **common.env_of(args.build), **{k: env[k] for k in env if k.startswith("AWS_")}},
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit("%s\nended with status %d" % (" ".join(command), done.returncode))
    return json.loads(done.stdout.splitlines()[-1])


# ---- the parts -------------------------------------------------------------------------------------------------------


def verdict(text, value, limit, most):
    met = value <= limit if most else value >= limit
    line = "%s: %.3f (at %s %g: %s)" % (text, value, "most" if most else "least", limit, "met" if met else "MISSED")
    print(line, flush=True)
    return line


def measure_cpu(args, data, top):
    rounds = []
    with rigs.Versitygw(os.path.join(top, "s3")) as server:
        for kind in ("files", "shards"):
            server.upload("bench-" + kind, os.path.join(data, kind))
        env = {**server.environment(), "XDG_CACHE_HOME": os.path.join(top, "cache")}
        for number in range(args.rounds + 1):
            row = {}
            for kind, where, more in KINDS:
                row["local " + kind] = feed(args, os.path.join(data, where), env, args.epochs, *more)
                row["s3 " + kind] = feed(args, "s3://bench-" + where, env, args.epochs, *more)
                row["ratio " + kind] = row["s3 " + kind]["cpu_ms_per_sample"] / row["local " + kind]["cpu_ms_per_sample"]
                print("cpu, round %d, %-15s local %.3f ms a sample, s3 %.3f, ratio %.3f; %.0f and %.0f samples/s" % (
                    number, kind, row["local " + kind]["cpu_ms_per_sample"], row["s3 " + kind]["cpu_ms_per_sample"],
                    row["ratio " + kind], row["local " + kind]["samples_per_s"], row["s3 " + kind]["samples_per_s"]), flush=True)
            rounds.append(row)
    first = rounds.pop(0)
    table = {kind: common.spread([row["ratio " + kind] for row in rounds]) for kind, _, _ in KINDS}
    lines = [verdict("CPU per sample, files in a bucket against local ones", table["files"]["median"], FILES_LIMIT, True),
             verdict("CPU per sample, shards in a bucket against local ones", table["shards"]["median"], TAR_LIMIT, True),
             verdict("the same, in sequential order", table["shards in order"]["median"], TAR_LIMIT, True),
             verdict("the same, members shuffled one by one", table["members alone"]["median"], FILES_LIMIT, True)]
    return {"ratios": table, "rounds": rounds, "first": first, "requests": count_requests(args, data, top), "verdicts": lines}


def count_requests(args, data, top):
    found = {}
    with rigs.Faultd(buckets={"bench": data}) as server:
        for kind in ("files", "shards"):
            server.rules([])
            feed(args, "s3://bench/" + kind, {**server.environment(), "XDG_CACHE_HOME": os.path.join(top, "cache")}, 1)
            stats = server.stats()
            found[kind] = {"samples": args.count, "objects": sum(len(names) for _, _, names in os.walk(os.path.join(data, kind))),
                           **stats["requests"], "bytes": stats["bytes"], "connections": stats["connections"]}
            print("requests of an epoch, %s: %s" % (kind, found[kind]), flush=True)
    return found


def measure_away(args, data, top):
    rows = {"files": [], "shards": []}
    with rigs.Faultd(buckets={"bench": data}) as server:
        env = {**server.environment(), "XDG_CACHE_HOME": os.path.join(top, "cache")}
        for _ in range(args.rounds):
            for kind, found in rows.items():
                server.rules([])
                near = feed(args, "s3://bench/" + kind, env, args.epochs)["samples_per_s"]
                server.rules(AWAY)
                far = feed(args, "s3://bench/" + kind, env, args.epochs)["samples_per_s"]
                found.append({"near": near, "far": far, "ratio": far / near, "connections": server.stats()["connections"]})
                print("%-6s %.0f samples/s at once, %.0f 20 ms away, ratio %.3f" % (kind, near, far, far / near), flush=True)
    table = {kind: common.spread([row["ratio"] for row in found]) for kind, found in rows.items()}
    lines = [verdict("samples a second 20 ms away against at once, %s" % kind, table[kind]["median"], AWAY_LEAST, False) for kind in rows]
    return {"ratios": table, "rounds": rows, "verdicts": lines}


def measure_disk(args, data, top):
    rounds = []
    with rigs.Faultd(buckets={"bench": data}) as server:
        env = {**server.environment(), "XDG_CACHE_HOME": os.path.join(top, "cache")}
        for number in range(args.rounds):
            folder = os.path.join(top, "tier%d" % number)
            server.rules(AWAY)
            local = epochs_in_child(args, os.path.join(data, "files"), env, 2)
            tier = epochs_in_child(args, "s3://bench/files", env, 2, folder + ":8G")
            cold = server.stats()["requests"]
            server.rules(AWAY)
            again = epochs_in_child(args, "s3://bench/files", env, 1, folder + ":8G")
            warm = server.stats()["requests"]
            shutil.rmtree(folder, ignore_errors=True)
            begin, limit = (one["samples_per_s"] for one in local["epochs"])
            rounds.append({"local": local, "tier": tier, "again": again, "requests": cold, "requests_again": warm,
                           "second": tier["epochs"][1]["samples_per_s"] / limit, "restart": again["epochs"][0]["samples_per_s"] / begin})
            print("disk, round %d: local %.0f, then %.0f samples/s; bucket %.0f, then from the disk tier %.0f; restarted %.0f, with %s" % (
                number + 1, begin, limit, *(one["samples_per_s"] for one in tier["epochs"]), again["epochs"][0]["samples_per_s"], warm), flush=True)
    table = {name: common.spread([row[name] for row in rounds]) for name in ("second", "restart")}
    lines = [verdict("second epoch from the disk tier against local files", table["second"]["median"], DISK_LEAST, False),
             verdict("first epoch after a restart against the first over local files", table["restart"]["median"], DISK_LEAST, False),
             verdict("objects fetched after a restart", max(row["requests_again"].get("get", 0) for row in rounds), 1, True)]
    return {"ratios": table, "rounds": rounds, "verdicts": lines}


def inspect(args, url, env):
    begin = time.monotonic()
    child = subprocess.Popen([args.penstock, "inspect", url, "--probe", "1", "--index-dir", "none"], env=env, stdout=subprocess.PIPE)
    child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stdout.close()
    if child.returncode:
        sys.exit("penstock inspect %s ended with status %d" % (url, child.returncode))
    return time.monotonic() - begin, usage.ru_maxrss << 10, usage.ru_utime + usage.ru_stime


def measure_list(args, _, top):
    photo = os.path.join(top, "photo", "class_000", "img_000000.jpg")
    subprocess.run([args.penstock, "synth", "images", os.path.join(top, "photo"), "--count", "1"], check=True, stdout=subprocess.DEVNULL)
    rounds, buckets = [], {name: {"count": count, "classes": 100, "content": photo} for name, count in (("few", 1000), ("many", KEYS))}
    with rigs.Faultd(buckets=buckets) as server:
        for _ in range(args.rounds):
            least = inspect(args, "s3://few/", server.environment())[1]
            server.rules([])
            seconds, most, cpu = inspect(args, "s3://many/", server.environment())
            rounds.append({"seconds": seconds, "bytes_a_key": (most - least) / (KEYS - 1000), "cpu_s": cpu,
                           "requests": server.stats()["requests"]})
    table = {name: common.spread([row[name] for row in rounds]) for name in ("seconds", "bytes_a_key", "cpu_s")}
    lines = [verdict("seconds to list 100,000 keys", table["seconds"]["median"], LIST_LIMIT_S, True),
             verdict("bytes of memory a key", table["bytes_a_key"]["median"], KEY_LIMIT_BYTES, True),
             verdict("requests for 100,000 keys", rounds[-1]["requests"]["list"], KEYS // 1000, True)]
    return {"figures": table, "rounds": rounds, "verdicts": lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(common.ROOT, "build"))
    parser.add_argument("--photos", default=os.environ.get("PENSTOCK_PHOTOS"))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pipeline", default=common.PIPELINE)
    parser.add_argument("--only", type=lambda text: text.split(","), default=["cpu", "away", "disk", "list"])
    parser.add_argument("--out")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        where, epochs, disk = json.loads(args.child)
        return over_epochs(where, args.pipeline, epochs, disk)
    args.penstock = common.need_program(os.path.join(args.build, "penstock"), "build it first")
    if "cpu" in args.only and rigs.missing_versitygw():
        sys.exit(rigs.missing_versitygw())
    parts = {"cpu": measure_cpu, "away": measure_away, "disk": measure_disk, "list": measure_list}
    begun, found = time.monotonic(), {}
    with tempfile.TemporaryDirectory(prefix="penstock-buckets-") as top:
        data = make_data(args, top) if set(args.only) - {"list"} else None
        for name in args.only:
            found[name] = parts[name](args, data, top)
    print("\n".join(line for part in found.values() for line in part["verdicts"]))
    if args.out:
        settings = {key: value for key, value in vars(args).items() if key in ("count", "epochs", "rounds", "pipeline", "only")}
        common.write_json(args.out, {"machine": common.machine(), "settings": settings, "real_photos": bool(args.photos), **found,
                                     "seconds": time.monotonic() - begun})
    return 0


if __name__ == "__main__":
    sys.exit(main())
