# SPDX-License-Identifier: Apache-2.0
"""Traces of real runs: what is in them agrees with the run's own report; penstock trace agrees with both; nothing that becomes
of a trace hurts the run."""
import json
import os
import signal
import subprocess
import time
from collections import Counter, defaultdict

import pytest

from conftest import CROP, read_ledger

LIMIT_S = 60
# strict into its slot; whatever is ready; shapes that vary, in records; from the cache; apart from other outputs, mixed
RUNS = {
    "strict": [],
    "ready": ["--order", "ready"],
    "padded": ["--fields", "image=padded,label"],
    "skips": ["--on-error", "skip:3", "--order", "ready"],
    "cached": ["--cache", "64M"],
    "cold": [],
}
PIPELINES = {"padded": "decode | resize(48)", "skips": CROP + " | normalize(imagenet) || mixup(0.2, classes=4)"}


def forget(photos):
    """Has the system forget the files, where they lie on a disk: they are not read by workers then, but for them."""
    for path in photos.rglob("*.jpg"):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Trace:
    def __init__(self, path):
        self.path, self.events = path, json.loads(path.read_text())

    def slices(self, category):
        return [event for event in self.events if event["ph"] == "X" and event["cat"] == category]

    def end(self):
        return [event["args"] for event in self.events if event["name"] == "penstock_trace_end"]


def ns(value):
    """Microseconds with three digits, as whole nanoseconds."""
    return round(1000 * value)


@pytest.fixture(scope="module", params=RUNS)
def run(request, feed, photos, tmp_path_factory):
    top = tmp_path_factory.mktemp(request.param)
    name = request.param
    if name == "cold":
        forget(photos)
    done = feed(photos, "--epochs", 2, "--workers", 2, "--trace", top / "t.json", "--ledger", top / "l.tsv", *RUNS[name],
                pipeline=PIPELINES.get(name, CROP))
    done.trace, done.ledger = Trace(top / "t.json"), read_ledger(top / "l.tsv")
    return done


def test_the_file_is_what_perfetto_reads(run):
    for event in run.trace.events:
        assert event["ph"] in "MXbeiC" and isinstance(event["pid"], int)
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] in "be":
            assert event["cat"] and event["id2"]["local"]  # else Perfetto shows them apart from their process
    assert [end["dropped"] for end in run.trace.end()] == [0]
    names = {event["args"]["name"] for event in run.trace.events if event["name"] == "thread_name"}
    assert {"worker 0", "worker 1", "job 1 waits"} <= names


def test_slices_nest(run):
    tracks = defaultdict(list)
    for event in run.trace.events:
        if event["ph"] == "X":
            tracks[event["tid"]].append((ns(event["ts"]), ns(event["ts"]) + ns(event["dur"]), event["cat"]))
    assert len(tracks) >= 2
    for slices in tracks.values():
        open_ones = []
        for begin, end, category in sorted(slices, key=lambda one: (one[0], -one[1])):
            while open_ones and open_ones[-1][0] <= begin:
                open_ones.pop()
            assert not open_ones or end <= open_ones[-1][0], (begin, end, open_ones[-1])
            assert category != "stage" or any(outer == "sample" for _, outer in open_ones)
            open_ones.append((end, category))


def test_every_sample_has_its_stages(run):
    delivered = Counter(row[4] for row in run.ledger)
    placed = Counter(event["args"]["id"] for event in run.trace.slices("sample") if event["args"]["then"] == "placed")
    assert placed == delivered and sum(delivered.values()) == run.report["samples"] == 96
    finished = Counter(event["args"]["id"] for event in run.trace.slices("stage") if event["name"] == "finish")
    each = {finished[ident] / times for ident, times in delivered.items()}  # more than once where it is by way of a record
    assert len(each) == 1 and min(each) >= 1
    began = Counter(event["args"]["from"] for event in run.trace.slices("sample"))
    assert began["decoded"] == run.report["decoded_hits"] and began["source"] == 96 - run.report["decoded_hits"]
    kept = Counter(event["args"]["id"] for event in run.trace.slices("stage") if event["name"] == "keep")
    assert bool(kept) == (began["decoded"] > 0) and sum(kept.values()) >= len(delivered) * bool(kept)


def test_sums_are_those_of_the_report(run):
    sums = Counter()
    for event in run.trace.slices("stage"):
        sums[event["name"]] += ns(event["dur"])
    begun = {}
    for event in run.trace.events:
        if event.get("cat") == "read" and event["ph"] == "b":
            begun[event["id2"]["local"]] = ns(event["ts"])
        elif event.get("cat") == "read":
            sums["read"] += ns(event["ts"]) - begun.pop(event["id2"]["local"])
    assert not begun
    for stage in run.report["stages"]:
        assert sums[stage["name"]] / 1e9 == pytest.approx(stage["seconds"], rel=1e-6, abs=2e-9), stage["name"]
    waited = sum(ns(event["dur"]) for event in run.trace.slices("wait")) / 1e9
    assert waited == pytest.approx(run.report["stall_share"] * run.report["seconds"], rel=1e-3, abs=1e-6)
    assert len(run.trace.slices("wait")) == run.report["batches"]


def test_batches_begin_are_ready_and_are_taken(run):
    seen = defaultdict(list)
    for event in run.trace.events:
        if event.get("cat") == "batch":
            seen[event["id2"]["local"]].append((event["ph"], event["name"], event["ts"]))
    assert len(seen) == run.report["batches"] == 12
    for what in seen.values():
        assert [one[:2] for one in what] == [("b", "job 1 batch"), ("b", "filling"), ("e", "filling"), ("b", "ready"), ("e", "ready"),
                                             ("e", "job 1 batch")]
        assert [one[2] for one in what] == sorted(one[2] for one in what)
    steps = Counter((event["args"]["epoch"], event["args"]["step"]) for event in run.trace.slices("wait"))
    assert set(steps.values()) == {1} and len(steps) == 12


def test_the_summary_agrees(run, penstock):
    found = json.loads(penstock("trace", run.trace.path, "--json").out)
    assert (found["samples"], found["batches"], found["dropped_events"], found["complete"]) == (96, 12, 0, True)
    assert found["from"]["decoded"] == run.report["decoded_hits"]
    away = found["reads"]["seconds"]
    stages = {stage["name"]: stage for stage in found["stages"]}
    for stage in run.report["stages"]:
        if stage["name"] != "read":
            assert stages[stage["name"]]["seconds"] == pytest.approx(stage["seconds"], rel=1e-6, abs=2e-9)
        else:
            assert stages.get("read", {"seconds": 0})["seconds"] + away == pytest.approx(stage["seconds"], rel=1e-6, abs=2e-9)
    assert sum(stage["share"] for stage in found["stages"]) == pytest.approx(1)
    waits = found["waits"]
    assert waits["count"] == 12 and waits["seconds"] == pytest.approx(run.report["stall_share"] * run.report["seconds"], rel=1e-3, abs=1e-6)
    assert waits["p50_seconds"] == pytest.approx(1e-6 * run.report["wait_p50_us"], rel=0.1)
    longest = [one["seconds"] for one in waits["longest"]]
    assert longest == sorted(longest, reverse=True) and len(longest) == 10
    assert max(ns(event["dur"]) for event in run.trace.slices("wait")) / 1e9 == pytest.approx(longest[0], abs=1e-9)
    assert sum(worker["samples"] for worker in found["workers"]) == 96
    out = penstock("trace", run.trace.path).out
    assert "96 samples" in out and "12 batches" in out and "finish" in out and "worker 1" in out


def test_a_wait_says_what_it_was_for(feed, photos, penstock, tmp_path):
    feed(photos, "--workers", 1, "--trace", tmp_path / "t.json", "--max-batches", 6, batch=1, pipeline="decode | delay(20) | resize((16, 16))")
    longest = json.loads(penstock("trace", tmp_path / "t.json", "--json").out)["waits"]["longest"]
    assert longest[0]["why"] == "stage" and longest[0]["stage"] == "delay" and longest[0]["why_seconds"] >= 0.0199
    last = {(event["args"]["epoch"], event["args"]["step"]): event["args"]["last"] for event in Trace(tmp_path / "t.json").events
            if event["ph"] == "b" and event["name"] == "ready"}
    for wait in longest:
        assert wait["sample"] == last[wait["epoch"], wait["step"]]
    assert "delay: 2" in penstock("trace", tmp_path / "t.json").out


def test_lanes_are_those_of_the_report(feed, photos, penstock, tmp_path):
    done = feed(photos, "--workers", 2, "--order", "ready", "--epochs", 12, "--step-ms", 6, "--trace", tmp_path / "t.json", timeout=120,
                pipeline="decode | resize((16, 16)) | delay(60, share=0.1, runs=4, stages=12, hits=hidden)", batch=4)
    trace = Trace(tmp_path / "t.json")
    assert done.report["slow_samples"] > 0
    slow = [event for event in trace.events if event["ph"] == "i"]
    aside = Counter(event["ph"] for event in trace.events if event["name"] == "aside")
    assert len(slow) == done.report["slow_samples"] and aside["b"] == aside["e"]
    parked = sum(event.get("args", {}).get("why") == "parked" for event in trace.events)
    assert parked == done.report["slow_parked"]
    found = json.loads(penstock("trace", trace.path, "--json").out)["slow"]
    assert (found["samples"], found["parked"]) == (done.report["slow_samples"], parked)


def test_what_nobody_wants_any_more_is_not_bad(feed, photos, penstock, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jpg").write_text("no picture\n")
    (tmp_path / "a" / "y.jpg").write_bytes(next(photos.rglob("*.jpg")).read_bytes())
    forget(photos)  # what is not at hand is read ahead, and waits for a worker when the run ends
    feed(photos, "--workers", 2, "--max-batches", 1, "--trace", tmp_path / "t.json", pipeline="decode | delay(10) | resize((16, 16))", batch=4)
    assert json.loads(penstock("trace", tmp_path / "t.json", "--json").out)["bad"] == 0
    feed(tmp_path / "a", "--on-error", "skip:1", "--trace", tmp_path / "u.json", pipeline="decode | resize((16, 16))")
    found = json.loads(penstock("trace", tmp_path / "u.json", "--json").out)
    assert (found["samples"], found["bad"]) == (1, 1) and "bad samples: 1" in penstock("trace", tmp_path / "u.json").out


# ---- what may become of a trace -------------------------------------------------------------------------------------------


def test_a_full_disk_does_not_stop_the_run(feed, photos):
    done = feed(photos, "--trace", "/dev/full")
    assert done.report["samples"] == 48
    assert done.err.count("/dev/full") == 1 and "the trace ends here" in done.err


def test_a_place_that_is_none_is_told_at_once(penstock, photos, tmp_path):
    done = penstock("feed", photos, "--pipeline", CROP, "--trace", tmp_path / "no" / "t.json", check=False)
    assert done.code == 1 and "no/t.json" in done.err


def started(binary, environment, photos, path):
    """A run that goes on until it is ended, with something in its trace."""
    child = subprocess.Popen([binary, "feed", str(photos), "--pipeline", CROP, "--epochs", "1000000", "--quiet", "--trace", str(path)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    until = time.monotonic() + LIMIT_S
    while not path.exists() or path.stat().st_size < 200_000:
        assert time.monotonic() < until and child.poll() is None
        time.sleep(0.01)
    return child


def test_an_interrupted_run_leaves_a_whole_trace(binary, environment, photos, penstock, tmp_path):
    child = started(binary, environment, photos, tmp_path / "t.json")
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=LIMIT_S)
    assert child.returncode == 130 and len(Trace(tmp_path / "t.json").end()) == 1
    assert json.loads(penstock("trace", tmp_path / "t.json", "--json").out)["complete"]


def test_a_killed_run_leaves_all_but_its_last_moments(binary, environment, photos, penstock, tmp_path):
    child = started(binary, environment, photos, tmp_path / "t.json")
    child.send_signal(signal.SIGSTOP)  # so that it is not killed in the middle of a write, which may be cut short then
    os.waitpid(child.pid, os.WUNTRACED)
    child.kill()
    child.communicate(timeout=LIMIT_S)
    trace = Trace(tmp_path / "t.json")
    assert not trace.end() and len(trace.slices("sample")) > 100
    found = json.loads(penstock("trace", tmp_path / "t.json", "--json").out)
    assert not found["complete"] and found["samples"] == sum(e["args"]["then"] == "placed" for e in trace.slices("sample"))
    assert "was killed" in penstock("trace", tmp_path / "t.json").out


def test_the_environment_traces_as_well(feed, photos, tmp_path):
    feed(photos, env={"PENSTOCK_TRACE": str(tmp_path / "t.json")})
    assert len(Trace(tmp_path / "t.json").slices("wait")) == 6
    done = feed(photos, env={"PENSTOCK_TRACE": str(tmp_path / "no" / "t.json")})
    assert done.report["samples"] == 48 and "PENSTOCK_TRACE" in done.err


def test_a_daemon_is_traced_where_it_runs(binary, environment, penstock, feed, photos, tmp_path):
    child = subprocess.Popen([binary, "serve", "--socket", str(tmp_path / "s"), "--workers", "2", "--trace", str(tmp_path / "t.json")],
                             stdout=subprocess.PIPE, env=environment)
    try:
        assert child.stdout.readline().startswith(b"serving")
        address = f"unix:{tmp_path / 's'}"
        assert feed(photos, "--engine", address).report["samples"] == 48
        refused = penstock("feed", photos, "--pipeline", CROP, "--engine", address, "--trace", tmp_path / "x", check=False)
        assert refused.code == 1 and "penstock serve --trace" in refused.err
    finally:
        child.terminate()
        child.communicate(timeout=LIMIT_S)
    trace = Trace(tmp_path / "t.json")
    assert sum(event["args"]["then"] == "placed" for event in trace.slices("sample")) == 48
    assert len(trace.end()) == 1
    waits, taken = trace.slices("wait"), [event for event in trace.events if event["ph"] == "b" and event["name"] == "ready"]
    assert sorted(event["args"]["step"] for event in waits) == sorted(event["args"]["step"] for event in taken) == list(range(6))
    longest = json.loads(penstock("trace", tmp_path / "t.json", "--json").out)["waits"]["longest"]
    assert len(longest) == 6 and all(one["sample"] >= 0 for one in longest)


# ---- files that are no traces ---------------------------------------------------------------------------------------------

HEAD = '[\n{"ph":"M","pid":1,"tid":0,"name":"penstock_trace","args":{"format":1}}'
WRONG = {
    "": "not a trace",
    "{}\n": "not a trace",
    "[\n]\n": "not a trace",
    "x" * 100_000: "not a trace",
    "[\n" + "x" * 100_000: "too long",
    '[\n{"ph":"X","pid":1,"tid":0,"name":"a","ts":1,"dur":1}\n]\n': "not a trace",
    HEAD.replace(":1}", ":2}") + "\n]\n": "later penstock",
    HEAD[:40]: "not a trace",
    HEAD + ',\n{"ph":"X","pid":1,"ts":-5,"dur":1}\n]\n': "line 3 is not an event",
    HEAD + ',\n{"ph":"X","pid":1,"ts":1e9,"dur":1}\n]\n': "line 3 is not an event",
    HEAD + ',\n{"ph":"X","pid":1,"ts":99999999999999999999,"dur":1}\n]\n': "line 3 is not an event",
    HEAD + ',\n{"ph":"X","pid":1,"name":"\\ud800"}\n]\n': "line 3 is not an event",
    HEAD + ',\n{"ph":"X","pid":1,"args":{"a":{"b":1}}}\n]\n': "line 3 is not an event",
    HEAD + ',\n[[[[[[\n]\n': "line 3 is not an event",
    HEAD + ',\n{"ph":"X","pid":1,"ts":"now"}\n]\n': "line 3 is not an event",
    HEAD + "\n]\nmore\n": "line 4 is not an event",
    HEAD + "".join(',\n{"ph":"X","pid":1,"tid":1,"ts":1,"dur":1,"cat":"stage","name":"s%d"}' % i for i in range(65)) + "\n]\n": "more stages",
    HEAD + "".join(',\n{"ph":"X","pid":1,"tid":%d,"ts":1,"dur":1,"cat":"sample","name":"a"}' % i for i in range(1025)) + "\n]\n": "more stages",
}


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_other_files_are_refused(penstock, tmp_path, text):
    (tmp_path / "t").write_text(text)
    done = penstock("trace", tmp_path / "t", check=False)
    assert done.code == 1 and WRONG[text] in done.err and not done.out


def test_figures_beyond_reason_are_added_up_without_harm(penstock, tmp_path):
    line = ',\n{"ph":"X","pid":1,"tid":1,"ts":999999999999999,"dur":999999999999999,"cat":"%s","name":"wait","args":{"job":1,"step":1,"epoch":0}}'
    (tmp_path / "t").write_text(HEAD + line % "wait" * 30 + line % "stage" * 30 + "\n]\n")
    found = json.loads(penstock("trace", tmp_path / "t", "--json").out)
    assert found["waits"]["count"] == 30 and found["waits"]["seconds"] > 9e9


def test_of_a_trace_that_is_cut_off_there_is_what_it_has(run, penstock, tmp_path):
    text = run.trace.path.read_bytes()
    for share in (0.1, 0.5, 0.9, 0.999):
        cut = text[:text.rindex(b"\n", 0, int(share * len(text))) + 6]  # in the midst of a line
        (tmp_path / "t").write_bytes(cut)
        there = [json.loads(line.rstrip(b",")) for line in cut.split(b"\n")[1:-1]]
        placed = sum(event["ph"] == "X" and event["cat"] == "sample" and event["args"]["then"] == "placed" for event in there)
        assert f"cut off in line {len(there) + 2}" in penstock("trace", tmp_path / "t").out
        found = json.loads(penstock("trace", tmp_path / "t", "--json").out)
        assert found["samples"] == placed and not found["complete"]
    assert penstock("trace", tmp_path / "none", check=False).code == 1
    assert penstock("trace", os.devnull, check=False).code == 1
