#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Penstock beside the loaders that can be installed here, on the same photos and cores, in one table.

Each contender gets an environment of its own below --envs, installed by package name, and the settings its documentation recommends
(bench/peers/peer_*.py). In each of --rounds rounds every contender runs once in turn, in a new process; figures are medians with
their spread. Parity is the difference from Pillow after resize 256 and centre crop 224, in steps of 1/255. One that cannot be
installed or run is listed with its error.

    bench/peers.py --data DIR --penstock PATH_TO_PACKAGE [--only torch,dali] [--rounds 5] [--seconds 5] [--out FILE]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, "peers")
# name -> (packages for pip, whether Debian's own packages are used instead)
PEERS = {
    "penstock": ([], True),
    "torch": ([], True),
    "torch256": ([], True),
    "webdataset": (["webdataset"], True),
    "spdl": (["spdl", "numpy", "pillow"], False),
    "dali": (["nvidia-dali-cuda120", "numpy", "pillow"], False),
    "tfdata": (["tensorflow-cpu", "pillow"], False),
    "grain": (["grain", "numpy", "pillow"], False),
    "ffcv": (["ffcv", "numpy<2", "pillow"], True),
}


class Failed(Exception):
    """A contender that takes no part, with the reason."""


def last_line(text):
    """The line of an error's output that says most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line and not line.startswith(("note:", "hint:"))]
    return (telling or lines or ["no output"])[-1][:200]


def environment(args, name):
    """The interpreter of the contender's environment, made and filled if need be."""
    packages, system = PEERS[name]
    if not packages:
        return args.python
    folder = os.path.join(args.envs, name)
    python = os.path.join(folder, "bin", "python")
    done = os.path.join(folder, "installed")
    if os.path.exists(done):
        return python
    print(f"installing {name}: {' '.join(packages)}", flush=True)
    venv.create(folder, with_pip=True, system_site_packages=system, symlinks=True)
    try:
        installed = subprocess.run([python, "-m", "pip", "install", "-q", *packages], capture_output=True, text=True,
                                   timeout=args.install_timeout)
    except subprocess.TimeoutExpired:
        raise Failed(f"pip did not finish in {args.install_timeout} s") from None
    if installed.returncode:
        raise Failed("pip: " + last_line(installed.stderr))
    open(done, "w", encoding="ascii").close()
    return python


def run(args, name, python, *more):
    env = {**os.environ, "PYTHONPATH": args.penstock if name == "penstock" else "", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, os.path.join(SCRIPTS, f"peer_{name}.py"), "--data", args.data, "--workers", str(args.workers),
               "--batch", str(args.batch), "--seconds", str(args.seconds), *more]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=args.patience)
    except subprocess.TimeoutExpired:
        raise Failed("did not finish in time") from None
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise Failed(last_line(done.stderr))
    return json.loads(lines[-1])


def spread(values):
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def measure(args):
    """Interleaved rounds; a contender that fails once is out."""
    rows, pythons, turns = {}, {}, {}
    for name in args.only:
        try:
            pythons[name] = environment(args, name)
            parity = run(args, name, pythons[name], "--parity")
            rows[name] = {"version": parity["version"], "parity": {"max": parity["max"], "mean": parity["mean"]}}
            turns[name] = []
        except Failed as why:
            rows[name] = {"error": str(why)}
    for number in range(args.rounds):
        for name in [name for name in args.only if "error" not in rows[name]]:
            try:
                turns[name].append(run(args, name, pythons[name]))
                print(f"round {number + 1}: {name} {turns[name][-1]['rate']:.0f} img/s", flush=True)
            except Failed as why:
                rows[name] = {"error": str(why)}
    for name, row in rows.items():
        if "error" not in row:
            row.update({key: spread([turn[key] for turn in turns[name]])
                        for key in ("rate", "cpu_per_1000", "first_batch_s", "peak_pss")})
            row["note"] = turns[name][-1]["note"]
    return rows


def print_table(rows):
    print(f"{'':<11} {'img/s':>18} {'CPU s/1000':>11} {'peak PSS':>9} {'first batch':>12} {'off Pillow (max, mean)':>23}  version")
    for name, row in rows.items():
        if "error" in row:
            print(f"{name:<11} {row['error']}")
            continue
        rate, parity = row["rate"], row["parity"]
        print(f"{name:<11} {rate['median']:>7.0f} ({rate['low']:.0f}-{rate['high']:.0f})".ljust(31)
              + f"{row['cpu_per_1000']['median']:>10.2f} {row['peak_pss']['median'] / 2**20:>6.0f} MB"
              + f" {row['first_batch_s']['median']:>10.2f} s {parity['max']:>14}, {parity['mean']:.2f}".ljust(37)
              + f"   {row['version']}" + (f" ({row['note']})" if row["note"] else ""))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="class folders of JPEGs")
    parser.add_argument("--penstock", required=True, help="folder that holds the built penstock package")
    parser.add_argument("--envs", default="build-peers", help="where the environments are kept")
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--only", default=",".join(PEERS))
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--install-timeout", type=float, default=900)
    parser.add_argument("--patience", type=float, default=600, help="seconds for one run of one contender; some compile first")
    parser.add_argument("--out")
    args = parser.parse_args()
    args.only = args.only.split(",")
    if unknown := set(args.only) - set(PEERS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    args.data, args.penstock = os.path.abspath(args.data), os.path.abspath(args.penstock)
    return args


def main():
    args = arguments()
    rows = measure(args)
    print_table(rows)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as handle:
            json.dump({"cores": args.workers, "batch": args.batch, "rounds": args.rounds, "rows": rows}, handle, indent=1)
    sys.exit("error" in rows.get("penstock", {}))


if __name__ == "__main__":
    main()
