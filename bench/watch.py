#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What looking at an engine costs: CPU seconds of a daemon per sample with /metrics scraped every second, with ten streams open and,
when asked, with the page open in ten browsers (which take cores of their own: it is for machines that have some), each against the
same daemon a moment before or after, when nobody looks. What counts is the median over the rounds of each round's ratio. Beside it
stands what the threads that only look had of the daemon's CPU time, which is exact. Without DATA some pictures are made up.

    bench/watch.py PENSTOCK [DATA] [--rounds 20] [--seconds 2] [--workers 2] [--cache 0] [--browsers] [--out FILE.json]
"""
import argparse
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
import common

PIPELINE = "decode | random_resized_crop(224) | hflip"
LOOKERS, LIMIT = 10, 0.01
BROWSERS = Path(__file__).parent.parent / "tests" / "web" / "browsers.mjs"


class Daemon:
    """With a job that does not end."""

    def __init__(self, args, place):
        self.dir = place
        self.serve = subprocess.Popen([args.binary, "serve", "--socket", str(place), "--workers", args.workers, "--cache", args.cache,
                                       "--http", "0"], stdout=subprocess.PIPE, text=True)
        assert self.serve.stdout.readline().startswith("serving")
        self.port = int(re.search(r"port (\d+)", self.serve.stdout.readline()).group(1))
        self.feed = subprocess.Popen([args.binary, "feed", str(args.data), "--pipeline", PIPELINE, "--batch", "64", "--epochs", "100000000",
                                      "--engine", f"unix:{place}", "--quiet"], stdout=subprocess.DEVNULL)

    def cpu(self):
        """CPU seconds of all its threads, and of those that only look."""
        total = looking = 0
        for task in Path(f"/proc/{self.serve.pid}/task").iterdir():
            spent = int(Path(task, "schedstat").read_text().split()[0])
            total += spent
            looking += spent * Path(task, "comm").read_text().startswith(("pst-look", "MHD"))
        return total / 1e9, looking / 1e9

    def samples(self):
        jobs = common.ask(self.dir, "/v1/jobs")["jobs"]
        return jobs[0]["samples"] if jobs else 0

    def turn(self, seconds):
        """CPU seconds per sample of a while, and the share of those who look."""
        time.sleep(0.1)
        (cpu, looking), count = self.cpu(), self.samples()
        time.sleep(seconds)
        (after, looked), count = self.cpu(), self.samples() - count
        return (after - cpu) / max(1, count), (looked - looking) / max(1e-9, after - cpu)

    def end(self):
        self.feed.kill()
        self.serve.terminate()
        for child in (self.feed, self.serve):
            child.wait()


class Nobody:
    """Looks at nothing."""

    def __init__(self, port):
        self.port = port

    def begin(self):
        pass

    def end(self):
        pass

    def close(self):
        pass


class Scraper(Nobody):
    """Asks for the metrics every second."""

    def begin(self):
        self.over, self.thread = threading.Event(), threading.Thread(target=self.scrape)
        self.thread.start()

    def scrape(self):
        while True:
            line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            line.request("GET", "/metrics")
            assert line.getresponse().read().endswith(b"# EOF\n")
            line.close()
            if self.over.wait(1.0):
                return

    def end(self):
        self.over.set()
        self.thread.join()


class Streams(Nobody):
    """Ten readers of the stream."""

    def begin(self):
        self.lines, self.threads = [], []
        for _ in range(LOOKERS):
            line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            line.request("GET", "/v1/stream")
            answer = line.getresponse()
            assert answer.read1(65536)
            self.lines.append(line)
            self.threads.append(threading.Thread(target=self.listen, args=(answer,)))
            self.threads[-1].start()

    @staticmethod
    def listen(answer):
        try:
            while answer.read1(65536):
                pass
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass  # it was closed

    def end(self):
        for line in self.lines:
            line.sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        for line in self.lines:
            line.close()


class Browsers(Nobody):
    """Ten browsers that have the page open for a turn, and an empty one otherwise."""

    def __init__(self, port):
        super().__init__(port)
        self.node = subprocess.Popen(["node", str(BROWSERS), f"http://127.0.0.1:{port}/", str(LOOKERS)], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, text=True, env={**os.environ, "PENSTOCK_PAGE": "built in"})
        self.say(None, "there")

    def say(self, word, answer):
        if word:
            self.node.stdin.write(word + "\n")
            self.node.stdin.flush()
        assert self.node.stdout.readline() == answer + "\n"

    def begin(self):
        self.say("open", "open")

    def end(self):
        self.say("close", "closed")

    def close(self):
        self.node.communicate()


def measure(args, place):
    daemon, ways, found = Daemon(args, place), {}, {}
    try:
        time.sleep(args.warm)
        for name, way in {"metrics": Scraper, "streams": Streams, **({"browsers": Browsers} if args.browsers else {})}.items():
            ways[name] = way(daemon.port)
        for name in ways:
            found[name] = []
        for index in range(args.rounds):
            for name, way in ways.items():
                pair = {}
                for who in ("nobody", name) if index % 2 else (name, "nobody"):
                    one = way if who == name else Nobody(0)
                    one.begin()
                    pair[who] = daemon.turn(args.seconds)
                    one.end()
                found[name].append((pair["nobody"], pair[name]))
    finally:
        for way in ways.values():
            way.close()
        daemon.end()
    return found


def summary(pairs):
    ratios = [looked[0] / alone[0] - 1 for alone, looked in pairs]
    return {"extra": round(statistics.median(ratios), 5), "quartiles": [round(q, 5) for q in statistics.quantiles(ratios, n=4)],
            "threads_that_look": round(statistics.median(looked[1] for _, looked in pairs), 5), "limit": LIMIT,
            "cpu_ms_per_sample": round(1e3 * statistics.median(alone[0] for alone, _ in pairs), 4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("data", nargs="?")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warm", type=float, default=3.0, help="seconds before the first round")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--cache", default="0")
    parser.add_argument("--browsers", action="store_true", help="PENSTOCK_WEB names the folder of the tests' packages (tools/web.sh)")
    parser.add_argument("--out")
    args = parser.parse_args()
    found = {"cores": os.cpu_count(), "rounds": args.rounds, "seconds": args.seconds, "workers": int(args.workers), "cache": args.cache,
             "lookers": LOOKERS, "pipeline": PIPELINE}
    with tempfile.TemporaryDirectory() as top:
        if not args.data:
            args.data = Path(top, "photos")
            subprocess.run([args.binary, "synth", "images", str(args.data), "--count", "64"], check=True, stdout=subprocess.DEVNULL)
        for name, pairs in measure(args, Path(top, "engine")).items():
            found[name] = one = summary(pairs)
            print("%-8s %+.2f %% CPU per sample (quartiles %+.2f to %+.2f), threads that look %.2f %%, limit %.0f %%" %
                  (name, 100 * one["extra"], 100 * one["quartiles"][0], 100 * one["quartiles"][2], 100 * one["threads_that_look"],
                   100 * LIMIT))
    if args.out:
        Path(args.out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
