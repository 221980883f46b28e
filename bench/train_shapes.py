#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training loops of the shape of 3D U-Net, SSD and RNN-T (bench/shapes.py), fed by PyTorch's DataLoader with the
reference's loading code, by Penstock, and by made-up input that is on the GPU already, which is the limit; with 16, 8
and 4 cores.

    bench/train_shapes.py --data DIR [--shapes unet,ssd,rnnt] [--cores 16,8,4] [--contenders synthetic,torch,penstock]
                          [--build build | --program penstock] [--seconds 12] [--small] [--out FILE]
    bench/train_shapes.py --join FILE… --out FILE           puts results of several runs together

Data is made into DIR once, by `penstock synth`. For each shape and number of cores one process, held to so many, trains
one model with each contender in turn. The first epoch counts from making the loader to its end, or for twice --seconds;
then epochs go on for --seconds. The package comes from --build, or from PYTHONPATH where that has none. --out is
written after every contender; what it held of others stays.

Told: samples a second, in the first epoch and later, and of the synthetic rate; seconds of an epoch; how busy the GPU was
as its driver says; the share of time in which the loop waited for a batch; CPU milliseconds a sample of all processes.
--small: small nets and data, on a CPU too.
"""
import argparse
import collections
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import traceback

sys.dont_write_bytecode = True
import common

CONTENDERS = ("synthetic", "torch", "penstock")
NEEDED = 0.95


# ---- one process: a model and what feeds it ----------------------------------------------------------------


class Trainer:
    """Steps return without waiting for the GPU, but never run more than two ahead of it."""

    def __init__(self, shape, layout):
        import torch

        self.torch, self.shape, self.cuda = torch, shape, shape.cuda
        torch.backends.cudnn.benchmark = shape.kind != "speech"  # there every length would be searched anew
        torch.manual_seed(0)
        self.model, self.optimizer = shape.model().to(shape.device), None
        self.flight = collections.deque()
        self.layout = self.choose(layout)
        self.warm()

    def formats(self):
        """By name: what the weights, and through them the convolutions, lie like."""
        if not self.cuda or self.shape.kind == "speech":
            return {"plain": None}
        last = self.torch.channels_last_3d if self.shape.kind == "volumes" else self.torch.channels_last
        return {"plain": self.torch.contiguous_format, "channels last": last}

    def choose(self, layout):
        """The one asked for, or the faster: the limit should be one."""
        formats, took = self.formats(), {}
        if layout not in formats and len(formats) > 1:
            for name, memory in formats.items():
                self.lay(memory)
                self.warm()
                begin = time.perf_counter()
                self.warm()
                took[name] = time.perf_counter() - begin
            layout = min(took, key=took.get)
        layout = layout if layout in formats else "plain"
        self.lay(formats[layout])
        return layout

    def lay(self, memory):
        if memory is not None:
            self.model.to(memory_format=memory)
        self.optimizer = self.torch.optim.SGD(self.model.parameters(), 1e-4, momentum=0.9, nesterov=True)

    def warm(self, steps=4):
        for _ in range(steps):
            self.step(self.shape.made_up())
        self.finish()

    def step(self, batch):
        with self.torch.autocast("cuda" if self.cuda else "cpu", self.torch.bfloat16, enabled=self.cuda):
            loss = self.model(*batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        if self.cuda:
            done = self.torch.cuda.Event()
            done.record()
            self.flight.append(done)
            if len(self.flight) > 2:
                self.flight.popleft().synchronize()

    def finish(self):
        self.flight.clear()
        if self.cuda:
            self.torch.cuda.synchronize()


class Phase:
    """A stretch of training that is told of as one."""

    def __init__(self, trainer, meter):
        self.trainer, self.meter = trainer, meter
        self.begin, self.cpu = time.perf_counter(), common.cpu_seconds()
        self.samples, self.waited, self.first_batch = 0, 0.0, None

    def drive(self, batches, limit):
        """Trains until the batches end, which gives True, or the time is up."""
        while time.perf_counter() - self.begin < limit:
            asked = time.perf_counter()
            batch = next(batches, None)
            now = time.perf_counter()
            self.waited += now - asked
            if self.first_batch is None:
                self.first_batch = now - self.begin
            if batch is None:
                return True
            self.trainer.step(batch)
            self.samples += len(batch[0])
        return False

    def told(self, **more):
        self.trainer.finish()
        end = time.perf_counter()
        seconds = end - self.begin
        busy = self.meter.between(self.begin, end) if self.meter else math.nan
        return {"samples": self.samples, "seconds": seconds, "rate": self.samples / seconds,
                "waited": self.waited / seconds, "gpu_busy": None if math.isnan(busy) else busy,
                "first_batch_s": self.first_batch,
                "cpu_ms_a_sample": 1e3 * (common.cpu_seconds() - self.cpu) / max(self.samples, 1), **more}


def measure(contender, shape, trainer, meter, args):
    if contender == "synthetic":
        phase = Phase(trainer, meter)
        phase.drive(shape.synthetic(), args.seconds)
        return {"later": phase.told()}
    shape.ready(contender)
    first = Phase(trainer, meter)
    feed = shape.by_torch(args.cores) if contender == "torch" else shape.by_penstock()
    batches = iter(feed)
    whole = first.drive(batches, 2 * args.seconds)
    result = {"first": first.told(whole=whole)}
    later, ended, epochs, before = Phase(trainer, meter), whole, 0, -1
    while time.perf_counter() - later.begin < args.seconds:
        if ended:
            batches, before = iter(feed), later.samples
        ended = later.drive(batches, args.seconds)
        epochs += ended
        if ended and later.samples == before:
            raise RuntimeError("an epoch gave no batch")
    result["later"] = later.told(epochs_ended=epochs)
    if contender == "penstock":
        stats = feed.loader.stats()
        result["bound"] = stats["bound"]
        result["stages_ms"] = {name: round(1e3 * seconds / runs, 3) for name, runs, seconds in stats["stages"] if runs}
    del batches
    feed.close()
    return result


def cell(args):
    """The child: a JSON line for each contender."""
    import torch

    import shape_feeds

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        torch.set_num_threads(1)
    shape = shape_feeds.SHAPES[args.cell](args.data, args.small, device, args.memory)
    if args.contenders == ["sizes"]:
        shape.note_sizes()
        return 0
    trainer = Trainer(shape, args.layout)
    meter = common.BusyMeter() if device.type == "cuda" else None
    about = {"batch": shape.batch, "count": shape.count, "layout": trainer.layout, "torch": torch.__version__,
             "gpu": torch.cuda.get_device_name() if device.type == "cuda" else None}
    for contender in args.contenders:
        try:
            result = measure(contender, shape, trainer, meter, args)
        except Exception:  # whatever it is, it is this contender's, and the others are still wanted
            traceback.print_exc()
            result = {"error": traceback.format_exc().splitlines()[-1]}
        print(json.dumps({"contender": contender, **result, "about": about}), flush=True)
    if meter:
        meter.process.kill()
    sys.stdout.flush()
    os._exit(0)  # nothing is left to say, and a thread that copies may be


# ---- the parent: data, processes, what is told -------------------------------------------------------------


class Bench:
    def __init__(self, args):
        self.args, self.layouts = args, {}
        self.result = {"machine": common.machine(), "seconds": args.seconds, "small": args.small, "cells": []}
        if args.out and os.path.exists(args.out):
            with open(args.out, encoding="utf-8") as handle:
                self.result["cells"] = json.load(handle)["cells"]
        self.env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
        package = os.path.join(args.build, "python")
        if os.path.isdir(package):
            for name, folder in (("PYTHONPATH", package), ("LD_LIBRARY_PATH", args.build)):
                self.env[name] = os.pathsep.join([folder, *filter(None, [os.environ.get(name)])])

    def make_data(self, name):
        """Once; beside recordings the sizes of their batches."""
        import torch

        import shape_feeds

        args = self.args
        folder = os.path.join(args.data, shape_feeds.SHAPES[name].kind)
        shape = shape_feeds.SHAPES[name](folder, args.small, torch.device("cpu"), args.memory)
        if not os.path.isdir(folder):
            os.makedirs(args.data, exist_ok=True)
            program = args.program or os.path.join(args.build, "penstock")
            common.need_program(program, "build it first, or give --program")
            subprocess.run([program, "synth", *shape.synth()], check=True, env=self.env)
        if hasattr(shape, "note_sizes") and not os.path.exists(shape.sizes_file()):
            for _ in self.lines(name, folder, len(os.sched_getaffinity(0)), ["sizes"]):
                pass
        return folder

    def lines(self, name, folder, cores, contenders):
        """What the child says, line by line; it is ended with its workers when it takes too long."""
        args = self.args
        command = [sys.executable, os.path.abspath(__file__), "--cell", name, "--data", folder, "--cores", str(cores),
                   "--contenders", ",".join(contenders), "--seconds", str(args.seconds), "--memory", args.memory,
                   "--layout", self.layouts.get(name, "auto")]
        own = sorted(os.sched_getaffinity(0))[:cores]
        child = subprocess.Popen(command + ["--small"] * args.small, stdout=subprocess.PIPE, text=True, env=self.env,
                                 start_new_session=True, preexec_fn=lambda: os.sched_setaffinity(0, own))
        timer = threading.Timer(120 + len(contenders) * (4 * args.seconds + 30), os.killpg, (child.pid, signal.SIGKILL))
        timer.start()
        for line in child.stdout:
            if line.startswith("{"):
                yield json.loads(line)
        status = child.wait()
        timer.cancel()
        if status != 0:
            yield {"contender": None, "error": "the process ended with status %d" % status}

    def cells(self, name, cores):
        """Every contender; those after one that brought its process down get another."""
        folder, left = self.make_data(name), list(self.args.contenders)
        while left:
            said = 0
            for line in self.lines(name, folder, cores, left[:]):
                said += 1
                if line["contender"] is None:
                    line["contender"] = left[0] if left else None
                if line["contender"]:
                    left.remove(line["contender"])
                    self.layouts[name] = line.get("about", {}).get("layout", self.layouts.get(name, "auto"))
                    self.note({"shape": name, "cores": cores, **line})
            if not said:
                raise SystemExit("%s: the process said nothing" % name)

    def note(self, made):
        def key(one):
            return one["shape"], one["cores"], one["contender"]

        self.result["cells"] = [one for one in self.result["cells"] if key(one) != key(made)] + [made]
        compare(self.result)
        print(row(made), flush=True)
        if self.args.out:
            save(self.args.out, self.result)


def compare(result):
    """Shares of the synthetic rate of the same shape and cores, and the verdict."""
    limits = {(one["shape"], one["cores"]): one["later"]["rate"] for one in result["cells"]
              if one["contender"] == "synthetic" and "later" in one}
    for one in result["cells"]:
        limit = limits.get((one["shape"], one["cores"]))
        for phase in ("first", "later"):
            if limit and phase in one:
                one[phase]["of_synthetic"] = one[phase]["rate"] / limit
                one[phase]["epoch_s"] = one["about"]["count"] / one[phase]["rate"]
    result["verdict"] = verdict(result)


def verdict(result):
    what = "3D U-Net with 8 cores from the second epoch, at least %.2f of synthetic: " % NEEDED
    for one in result["cells"]:
        if (one["shape"], one["cores"], one["contender"]) == ("unet", 8, "penstock"):
            share = one.get("later", {}).get("of_synthetic")
            if share is None or result["small"]:
                break
            if not one["first"]["whole"]:
                return what + "not shown, the first epoch did not end in time (%.3f within it)" % share
            return what + "%.3f, %s" % (share, "holds" if share >= NEEDED else "does not hold")
    return what + "not measured"


def save(path, result):
    """At once or not at all: the run may be ended at any moment."""
    with open(path + ".part", "w", encoding="utf-8") as handle:
        json.dump(result, handle, indent=1)
        handle.write("\n")
    os.replace(path + ".part", path)


def number(value, form):
    return "-" if value is None else form % value


HEAD = ("%-5s %5s %-10s | %-33s | %s" % ("shape", "cores", "fed by", "first epoch: per s, s, share, GPU",
                                         "later: per s, s an epoch, of synthetic, GPU busy, waited, CPU ms a sample"))


def row(one):
    if "error" in one:
        return "%-5s %5d %-10s | %s" % (one["shape"], one["cores"], one["contender"], one["error"])
    first, later = one.get("first"), one["later"]
    left = "" if first is None else "%9.1f %7.2f%s %6s %6s" % (
        first["rate"], first["seconds"], " " if first["whole"] else "+", number(first.get("of_synthetic"), "%.3f"),
        number(first["gpu_busy"], "%.2f"))
    return "%-5s %5d %-10s | %-33s | %9.1f %7s %6s %6s %6.2f %8.2f" % (
        one["shape"], one["cores"], one["contender"], left, later["rate"], number(later.get("epoch_s"), "%.2f"),
        number(later.get("of_synthetic"), "%.3f"), number(later["gpu_busy"], "%.2f"), later["waited"],
        later["cpu_ms_a_sample"])


def show(result):
    print("\n" + HEAD)
    for one in result["cells"]:
        print(row(one))
    print("+: of the first epoch only so much; it went on in what stands under later")
    print(result["verdict"])


def join(args):
    parts = []
    for path in args.join:
        with open(path, encoding="utf-8") as handle:
            parts.append(json.load(handle))
    result = {**parts[0], "cells": [one for part in parts for one in part["cells"]]}
    compare(result)
    show(result)
    if args.out:
        save(args.out, result)
    return 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder for the data; made where it is not there")
    parser.add_argument("--shapes", default="unet,ssd,rnnt")
    parser.add_argument("--cores", default="16,8,4")
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--build", default=os.path.join(common.ROOT, "build"))
    parser.add_argument("--program", help="the program penstock, where it is not in --build")
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--memory", default=None, help="of Penstock, cache included (64G, with --small 1G)")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--join", nargs="+", metavar="FILE")
    parser.add_argument("--out")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    parser.add_argument("--layout", default="auto", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.data and not args.join:
        parser.error("--data is missing")
    args.build = os.path.abspath(args.build)
    args.memory = args.memory or ("1G" if args.small else "64G")
    args.contenders = args.contenders.split(",")
    if not args.cell and set(args.contenders) - set(CONTENDERS):
        parser.error("contenders are %s" % ", ".join(CONTENDERS))
    return args


def main():
    args = arguments()
    if args.join:
        return join(args)
    if args.cell:
        args.cores = int(args.cores)
        return cell(args)
    bench, here = Bench(args), len(os.sched_getaffinity(0))
    print(HEAD, flush=True)
    for name in args.shapes.split(","):
        for cores in map(int, args.cores.split(",")):
            if cores > here:
                print("%-5s %5d cores: this machine has %d" % (name, cores, here), flush=True)
                continue
            bench.cells(name, cores)
    compare(bench.result)
    show(bench.result)
    return 1 if any("error" in one for one in bench.result["cells"]) else 0


if __name__ == "__main__":
    sys.exit(main())
