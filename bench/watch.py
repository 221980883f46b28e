#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What looking at an engine costs: CPU seconds of the daemon per sample, not looked at, with /metrics scraped every second, with
ten streams open and, when asked, with the page open in ten browsers (which take cores of their own: it is for machines that have
some). The daemons, each with a job of its own, take turns, the others being stopped, so that whatever else the machine does falls on
all of them alike; what counts is the median over the rounds of each round's ratio. Beside it stands what the threads that only look
had of the daemon's CPU time, which is exact. --before takes another build of the command, which is not looked at: what counting costs
by itself. Without DATA some pictures are made up.

    bench/watch.py PENSTOCK [DATA] [--rounds 9] [--seconds 1.5] [--workers 2] [--cache 0] [--before PENSTOCK] [--browsers] [--out FILE.json]
"""
import argparse
import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

PIPELINE = "decode | random_resized_crop(224) | hflip"
STREAMS, LIMIT = 10, 0.01
BROWSERS = Path(__file__).parent.parent / "tests" / "web" / "browsers.mjs"


class Pair:
    """A daemon and its job."""

    def __init__(self, args, place, binary=None, streams=0, scraped=False, browsers=0):
        self.dir, self.scraped, self.costs, self.looking, self.heard, self.pages = place, scraped, [], [], 0, None
        binary, watched = binary or args.binary, streams or scraped or browsers
        self.serve = subprocess.Popen([binary, "serve", "--socket", str(place), "--workers", args.workers, "--cache", args.cache,
                                       *(["--http", "0"] if watched else [])], stdout=subprocess.PIPE, text=True)
        assert self.serve.stdout.readline().startswith("serving")
        if watched:
            self.port = int(re.search(r"port (\d+)", self.serve.stdout.readline()).group(1))
        self.feed = subprocess.Popen([binary, "feed", str(args.data), "--pipeline", PIPELINE, "--batch", "32", "--epochs", "100000",
                                      "--engine", f"unix:{place}", "--quiet"], stdout=subprocess.DEVNULL)
        for _ in range(streams):
            threading.Thread(target=self.listen, daemon=True).start()
        if browsers:
            self.pages = subprocess.Popen(["node", str(BROWSERS), f"http://127.0.0.1:{self.port}/", str(browsers)], stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, text=True, env={**os.environ, "PENSTOCK_PAGE": "built in"})
            assert self.pages.stdout.readline() == "open\n"
        self.signal(signal.SIGSTOP)

    def listen(self):
        while True:
            try:
                line = http.client.HTTPConnection("127.0.0.1", self.port)
                line.request("GET", "/v1/stream")
                answer = line.getresponse()
                while answer.read1(65536):
                    self.heard += 1
            except (OSError, http.client.HTTPException):
                time.sleep(0.5)

    def signal(self, number):
        for child in (self.serve, self.feed):
            child.send_signal(number)

    def cpu(self):
        """CPU seconds of all its threads, and of those that only look."""
        total = looking = 0
        for task in Path(f"/proc/{self.serve.pid}/task").iterdir():
            spent = int(Path(task, "schedstat").read_text().split()[0])
            total += spent
            looking += spent * Path(task, "comm").read_text().startswith(("pst-look", "MHD"))
        return total / 1e9, looking / 1e9

    def samples(self):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(self.dir / "control.sock"))
            sock.sendall(b"GET /v1/jobs HTTP/1.0\r\n\r\n")
            answer = b""
            while part := sock.recv(65536):
                answer += part
        jobs = json.loads(answer.partition(b"\r\n\r\n")[2])["jobs"]
        return jobs[0]["samples"] if jobs else 0

    def turn(self, seconds):
        """CPU seconds per sample of a while."""
        self.signal(signal.SIGCONT)
        time.sleep(0.25)
        (cpu, looking), count, end = self.cpu(), self.samples(), time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self.scraped:
                line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                line.request("GET", "/metrics")
                assert line.getresponse().read().endswith(b"# EOF\n")
                line.close()
            time.sleep(max(0.0, min(left, 1.0)))
        (after, looked), count = self.cpu(), self.samples() - count
        self.signal(signal.SIGSTOP)
        return (after - cpu) / max(1, count), (looked - looking) / max(1e-9, after - cpu)

    def end(self):
        self.signal(signal.SIGCONT)
        if self.pages:
            self.pages.communicate("")
        self.feed.kill()
        self.serve.terminate()
        for child in (self.feed, self.serve):
            child.wait()


def measure(args):
    with tempfile.TemporaryDirectory() as top:
        if not args.data:
            args.data = Path(top, "photos")
            subprocess.run([args.binary, "synth", "images", str(args.data), "--count", "64"], check=True,
                           stdout=subprocess.DEVNULL)
        kinds = {"none": {}, "metrics": {"scraped": True}, "streams": {"streams": STREAMS}}
        if args.before:
            kinds["before"] = {"binary": args.before}
        if args.browsers:
            kinds["browsers"] = {"browsers": STREAMS}
        pairs = {}
        try:
            for name, kind in kinds.items():
                pairs[name] = Pair(args, Path(top, name), **kind)
                pairs[name].turn(args.warm)
            for index in range(args.rounds):
                names = list(pairs) if index % 2 else list(reversed(pairs))
                for name in names:
                    cost, looking = pairs[name].turn(args.seconds)
                    pairs[name].costs.append(cost)
                    pairs[name].looking.append(looking)
            assert pairs["streams"].heard >= STREAMS * args.rounds
        finally:
            for pair in pairs.values():
                pair.end()
        return {name: pair.costs for name, pair in pairs.items()}, {name: pair.looking for name, pair in pairs.items()}


def summary(costs, looking):
    out = {"cpu_ms_per_sample": {name: round(1e3 * statistics.median(each), 4) for name, each in costs.items()}}
    for name in (name for name in costs if name != "none"):
        ratios = sorted(one / base - 1 for one, base in zip(costs[name], costs["none"]))
        out[name] = {"extra": round(statistics.median(ratios), 5), "quartiles": [round(q, 5) for q in statistics.quantiles(ratios, n=4)],
                     "threads_that_look": round(statistics.median(looking[name]), 5), "limit": LIMIT}
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("data", nargs="?")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--warm", type=float, default=0.5, help="seconds before the first round")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--cache", default="0")
    parser.add_argument("--before", help="another build, not looked at")
    parser.add_argument("--browsers", action="store_true", help="PENSTOCK_WEB names the folder of the tests' packages (tools/web.sh)")
    parser.add_argument("--out")
    args = parser.parse_args()
    costs, looking = measure(args)
    found = {"cores": os.cpu_count(), "rounds": args.rounds, "seconds": args.seconds, "workers": int(args.workers), "cache": args.cache,
             "stream_clients": STREAMS, "pipeline": PIPELINE, **summary(costs, looking)}
    for name in (name for name in costs if name != "none"):
        one = found[name]
        print("%-8s %+.2f %% CPU per sample (quartiles %+.2f to %+.2f), threads that look %.2f %%, limit %.0f %%" %
              (name, 100 * one["extra"], 100 * one["quartiles"][0], 100 * one["quartiles"][2], 100 * one["threads_that_look"], 100 * LIMIT))
    if args.out:
        Path(args.out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
