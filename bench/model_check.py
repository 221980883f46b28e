#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The model's predictions beside what the engine does: 1 and 4 jobs, the splits that make sense for each, three cache sizes.

    bench/model_check.py --build DIR --photos DIR [--samples 4000] [--rounds 3] [--skip 1.25] [--epochs 1] [--out FILE]
                         [--jobs 1 4] [--sizes 75 200 500]

The data lies in the page cache, so cores are the limit. For each number of jobs and cache size costs are measured by the
library (bench/plan_at, as `penstock plan` does), then each split is run (bench/jobs --forms), one job with plain sampling,
several with sharing; where a split leaves augmented samples no room, the jobs do not share. Told are the mean size of the
errors, the correlation of predicted and measured rates, and how much is lost where the split that the model likes best is
taken instead of the best measured: by the clock, and by CPU time, which holds on a busy machine, too. With several rounds,
the median of each point. Each run is measured over whole epochs, once the cache is filled.
"""
import argparse
import math
import os
import sys
import tempfile

sys.dont_write_bytecode = True
import common
import many_jobs

# Encoded samples save reading alone: from the page cache they are what no cache is, one of them is enough.
SPLITS = {1: ("1:0:0", "0:0.5:0", "0:1:0"), 4: ("0:0:1", "0:0.25:0.75", "0:0.5:0.5", "0:0.75:0.25", "0:1:0")}
SIZES = (75, 200, 500)
ERROR, CORRELATION, REGRET = 0.10, 0.95, 0.05
MEASURED = ("measured", "by_cpu")  # by the clock; what all cores would give at the CPU seconds that a sample took


def measure(args, tools, links, jobs, size, split):
    """Samples a second of all jobs together."""
    shares = float(split.split(":")[2]) > 0
    command = [tools["jobs"], links, "--jobs", str(jobs), "--how", "shared" if jobs > 1 and shares else "plain", "--cache",
               "%.0f" % size, "--forms", split, "--workers", str(args.workers), "--batch", str(args.batch), "--take", "turn",
               "--skip-samples", "%.0f" % (args.skip * jobs * args.samples), "--samples",
               "%.0f" % (args.epochs * jobs * args.samples)]
    return common.last_json(command)


def check(args, tools, links, jobs, size):
    """One number of jobs and one size: points with what was predicted and measured."""
    splits = SPLITS[jobs]
    rows = [{"jobs": jobs, "cache_bytes": size, "split": split, "predicted": [], "measured": [], "by_cpu": []}
            for split in splits]
    for _ in range(args.rounds):
        plan = common.last_json([tools["plan_at"], links, "%.0f" % size, str(jobs), str(args.workers), str(args.plan_seconds),
                                 common.PIPELINE, *splits])
        for row, point in zip(rows, plan["at"]):
            found = measure(args, tools, links, jobs, size, row["split"])
            row["predicted"].append(point["samples_s"])
            row["measured"].append(found["rate"])
            row["by_cpu"].append(1000 * args.workers / found["cpu_s_per_1000"])
            row["predicted_preparations"], row["prepared"] = point["preparations"], found["prepared"]
            row["from_decoded"], row["entries"] = found["from_decoded"], found["entries"]
    for row in rows:
        for key in ("predicted", *MEASURED):
            row[key] = common.median(row[key])
        print("%d jobs  %4.0f MB  %-12s predicted %6.0f  measured %6.0f  %+5.1f %%  by CPU time %6.0f  %+5.1f %%  "
              "preparations %.3f / %.3f  decoded %.3f" % (
                  jobs, size / 1e6, row["split"], row["predicted"], row["measured"], 100 * error(row, "measured"),
                  row["by_cpu"], 100 * error(row, "by_cpu"), row["predicted_preparations"], row["prepared"],
                  row["from_decoded"]), flush=True)
    pick = max(rows, key=lambda row: row["predicted"])
    regret = {"jobs": jobs, "cache_bytes": size, "pick": pick["split"]}
    for key in MEASURED:
        regret[key] = 1 - pick[key] / max(row[key] for row in rows)
    return rows, regret


def error(row, key):
    return row["predicted"] / row[key] - 1


def correlation(rows, key):
    xs, ys = [row["predicted"] for row in rows], [row[key] for row in rows]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    both = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys))
    return both / math.sqrt(sum((x - mean_x) ** 2 for x in xs) * sum((y - mean_y) ** 2 for y in ys))


def tell(rows, regrets):
    summary = {}
    for key in MEASURED:
        of = {"all": rows, **{"%d jobs" % jobs: [row for row in rows if row["jobs"] == jobs]
                              for jobs in sorted({row["jobs"] for row in rows})}}
        summary[key] = {name: {"mean_error": sum(abs(error(row, key)) for row in part) / len(part),
                               "correlation": correlation(part, key)} for name, part in of.items()}
        summary[key]["worst_regret"] = max(one[key] for one in regrets)
        print("%-9s mean error %.1f %% (at most %.0f), correlation %.3f (at least %.2f), worst regret %.1f %% (at most %.0f)" % (
            key, 100 * summary[key]["all"]["mean_error"], 100 * ERROR, summary[key]["all"]["correlation"], CORRELATION,
            100 * summary[key]["worst_regret"], 100 * REGRET))
    return summary


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="the build folder, with bench/jobs and bench/plan_at")
    parser.add_argument("--photos", default=os.environ.get("PENSTOCK_PHOTOS"))
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip", type=float, default=1.25, help="epochs of each job before what is measured")
    parser.add_argument("--epochs", type=float, default=1, help="epochs of each job that are measured")
    parser.add_argument("--plan-seconds", type=float, default=3)
    parser.add_argument("--jobs", type=int, nargs="+", choices=sorted(SPLITS), default=sorted(SPLITS))
    parser.add_argument("--sizes", type=float, nargs="+", metavar="MB", default=SIZES, help="of the cache")
    parser.add_argument("--out")
    args = parser.parse_args()
    if not args.photos:
        parser.error("--photos, or PENSTOCK_PHOTOS, names a folder of JPEG files")
    tools = {name: common.need_program(os.path.join(args.build, "bench", name), "build it: ninja bench/%s" % name)
             for name in ("jobs", "plan_at")}
    rows, regrets = [], []
    with tempfile.TemporaryDirectory(prefix="model-check-") as folder:
        links = many_jobs.make_set(args.photos, folder, args.samples)[0]
        for jobs in args.jobs:
            for size in args.sizes:
                found, regret = check(args, tools, links, jobs, 1e6 * size)
                rows += found
                regrets.append(regret)
    summary = tell(rows, regrets)
    if args.out:
        common.write_json(args.out, {"machine": common.machine(), "settings": {
            key: value for key, value in vars(args).items() if key not in ("build", "photos", "out")},
            "summary": summary, "picks": regrets, "points": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
