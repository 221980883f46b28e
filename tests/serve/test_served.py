# SPDX-License-Identifier: Apache-2.0
"""A served engine gives what an embedded one gives: bytes, order, errors, states, statistics; and who may serve where."""
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import threading

import pytest

from conftest import CROP, multiset, rows

EMBEDDED = ("--engine", "embedded")


@pytest.mark.parametrize("args, pipeline", [
    ((), CROP), (("--epochs", 3, "--seed", 7), CROP), (("--rank", "1/3"), CROP), (("--rank", "2/3", "--ends", "short"), CROP),
    (("--ends", "drop", "--rank", "0/2"), CROP), (("--sampler", "subset:1,2,3,5,8,13,21"), CROP),
    (("--sampler", "sequential"), CROP), (("--fields", "image=padded"), "decode | hflip"), ((), "decode"),
    ((), CROP + " | normalize(imagenet) || mixup(0.4)"),
    (("--fields", "image=padded", "--buckets", "bytes:5"), "decode | hflip"),
])
def test_strict_is_the_same(serve, client, args, pipeline):
    daemon = serve()
    here, there = client(*EMBEDDED, *args, pipeline=pipeline), client("--engine", daemon.address, *args, pipeline=pipeline)
    assert here.end() == "" and there.end() == ""
    assert rows(here.ledger) == rows(there.ledger) and rows(here.ledger)


@pytest.mark.parametrize("args", [("--epochs", 3), ("--rank", "1/3", "--epochs", 2), ("--reorder-window", 32),
                                  ("--fields", "image=padded", "--buckets", "bytes:5", "--epochs", 2)])
def test_ready_gives_the_same_samples(serve, client, args):
    daemon = serve()
    here, there = client(*EMBEDDED, *args, "--order", "ready"), client("--engine", daemon.address, *args, "--order", "ready")
    assert here.end() == "" and there.end() == ""
    assert multiset(here.ledger) == multiset(there.ledger)


def test_tar_and_manifest(serve, client, photos, tmp_path):
    daemon = serve()
    shard = tmp_path / "shard.tar"
    with tarfile.open(shard, "w") as tar:
        for i, path in enumerate(sorted(photos.rglob("*.jpg"))[:20]):
            tar.add(path, f"{i:03}.jpg")
    manifest = tmp_path / "list.tsv"
    manifest.write_text("key\tlabel\n" + "".join(f"photos/{path.relative_to(photos)}\t1\n" for path in sorted(photos.rglob("*.jpg"))[:9]))
    shutil.copytree(photos, tmp_path / "photos")
    for data in shard, manifest:
        for _ in range(2):  # the second time from a remembered listing
            here, there = client(*EMBEDDED, data=data), client("--engine", daemon.address, data=data)
            assert here.end() == "" and there.end() == ""
            assert rows(here.ledger) == rows(there.ledger)


def test_bad_samples(serve, client, photos, tmp_path):
    data = tmp_path / "damaged"
    shutil.copytree(photos, data)
    for path in sorted(data.rglob("*.jpg"))[::9]:
        path.write_bytes(path.read_bytes()[:900])
    daemon = serve()
    here = client(*EMBEDDED, "--on-error", "skip:40", "--epochs", 2, data=data)
    there = client("--engine", daemon.address, "--on-error", "skip:40", "--epochs", 2, data=data)
    here.end(), there.end()
    embedded, served = (run.ledger.read_text().splitlines() for run in (here, there))
    assert [line for line in embedded if line[0] != "#"] == [line for line in served if line[0] != "#"]
    # Epochs overlap: which of its draws a bad sample was met with first is not settled, that it was met is.
    bad = [{line.split("\t")[1] for line in lines if line.startswith("# bad")} for lines in (embedded, served)]
    assert bad[0] == bad[1] and bad[0]
    assert there.ledger.read_text().count("\n# bad\t") == 11
    here, there = client(*EMBEDDED, data=data), client("--engine", daemon.address, data=data)
    assert here.end(1) == there.end(1)
    assert rows(here.ledger) == rows(there.ledger)


@pytest.mark.parametrize("order", ["strict", "ready"])
def test_states_go_both_ways(serve, client, tmp_path, order):
    daemon = serve()
    whole = client(*EMBEDDED, "--order", order, "--epochs", 2)
    whole.end()
    for first, second in (EMBEDDED, ("--engine", daemon.address)), (("--engine", daemon.address), EMBEDDED):
        state = tmp_path / f"state{first[1] == 'embedded'}"
        one = client(*first, "--order", order, "--epochs", 2, "--max-batches", 5, "--save-state", state)
        one.end()
        two = client(*second, "--order", order, "--epochs", 2, "--load-state", state)
        two.end()
        assert multiset(one.ledger) + multiset(two.ledger) == multiset(whole.ledger)
        if order == "strict":
            assert rows(one.ledger) + rows(two.ledger) == rows(whole.ledger)


def test_the_same_state(serve, client, tmp_path):
    """Byte for byte: the client's record counts as an engine of its own would."""
    daemon = serve()
    states = []
    for where in EMBEDDED, ("--engine", daemon.address):
        for args in ((), ("--rank", "1/2"), ("--max-batches", "12")):
            path = tmp_path / f"s{len(states)}"
            client(*where, *(args or ("--max-batches", 3)), "--save-state", path, "--epochs", 2).end()
            states.append(path.read_bytes())
    assert states[:3] == states[3:]


def test_report(serve, binary, environment, photos):
    daemon = serve("--cache", "64M")
    command = [binary, "feed", str(photos), "--pipeline", CROP, "--json", "--epochs", "2", "--engine", daemon.address]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["samples"] == 192
    assert {stage["name"]: stage["runs"] for stage in report["stages"]}["hflip"] >= 96
    assert daemon.get("/v1/engine")["memory_bytes"] == 256 << 20
    daemon.until(lambda jobs: not jobs)


# ---- who serves where --------------------------------------------------------------------------


def test_second_daemon_is_refused(serve, binary, environment, client):
    daemon = serve()
    done = subprocess.run([binary, "serve", "--socket", str(daemon.dir)], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 1 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "another penstock serve has this directory" in done.stderr
    assert client("--engine", daemon.address).end() == ""  # the first one is not disturbed


def test_stale_sockets_are_replaced(serve, client):
    daemon = serve()
    daemon.kill()
    assert (daemon.dir / "feed.sock").exists() and (daemon.dir / "control.sock").exists()
    assert "nobody serves there" in client("--engine", daemon.address).end(1)
    again = serve()
    assert client("--engine", again.address).end() == "" and again.jobs() is not None


def test_ends_well_on_request(serve, client):
    daemon = serve()
    feed = client("--engine", daemon.address, "--step-ms", 20, "--epochs", 4)
    daemon.until(lambda jobs: jobs and jobs[0].get("batches", 0) > 2)
    code, err = daemon.kill(signal.SIGTERM)
    assert code == 0 and err == "" and sorted(os.listdir(daemon.dir)) == ["lock"]
    assert feed.end().count("is gone") == 1


def test_idle_exit(serve):
    daemon = serve("--idle-exit", 1)
    assert daemon.child.wait(timeout=60) == 0


def test_foreign_directory_is_refused(binary, environment, tmp_path):
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(0o777)
    done = subprocess.run([binary, "serve", "--socket", str(path)], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 1 and "others may write" in done.stderr


def test_long_paths(serve, client, tmp_path):
    path = tmp_path / ("x" * 120)
    path.mkdir()
    path.chmod(0o700)
    assert client("--engine", serve(path=path).address).end() == ""


def test_a_control_folder_of_its_own(serve, binary, environment, tmp_path):
    """The lock is there, too; what a daemon without one left in the other folder goes."""
    first = serve(path=tmp_path / "feed")
    first.kill()
    assert sorted(os.listdir(first.dir)) == ["control.sock", "feed.sock", "lock"]
    daemon = serve("--control", tmp_path / "own", path=first.dir)
    assert sorted(os.listdir(daemon.dir)) == ["feed.sock", "lock"] and daemon.jobs() == []
    assert daemon.control.stat().st_mode & 0o777 == 0o700
    second = subprocess.run([binary, "serve", "--socket", str(tmp_path / "other"), "--control", str(daemon.control)],
                            capture_output=True, text=True, env=environment)
    assert second.returncode == 1 and "another penstock serve has this directory" in second.stderr
    assert daemon.kill(15) == (0, "") and os.listdir(daemon.control) == ["lock"]


def test_auto(serve, client, environment):
    alone = client("--engine", "auto")
    assert alone.end() == ""
    daemon = serve(path=os.path.join(environment["XDG_RUNTIME_DIR"], "penstock"))
    feed = client("--engine", "auto", "--step-ms", 20)
    daemon.until(lambda jobs: any(job["pid"] == feed.child.pid for job in jobs))
    assert feed.end() == "" and rows(feed.ledger) == rows(alone.ledger)


def test_another_protocol_version_goes_on_embedded(serve, client):
    daemon = serve()
    expected = client(*EMBEDDED)
    expected.end()
    for version in "0", "1", "999":
        feed = client("--engine", daemon.address, env={"PENSTOCK_WIRE_VERSIONS": f"{version}-{version}"})
        said = feed.end()
        assert len(said.splitlines()) == 1 and f"this library versions {version} to {version}" in said and "in this process" in said
        assert rows(feed.ledger) == rows(expected.ledger)
    assert daemon.jobs() == []


def test_changed_files_go_on_embedded(serve, client, binary, photos, tmp_path):
    """Where the daemon sees another dataset than the client, the client does it."""
    data = tmp_path / "data"
    shutil.copytree(photos, data)
    daemon = serve()
    assert client("--engine", daemon.address, data=data).end() == ""
    next(data.rglob("*.jpg")).unlink()
    here, there = client(*EMBEDDED, data=data), client("--engine", daemon.address, data=data)
    assert here.end() == "" and there.end() == ""  # the daemon lists again
    assert rows(here.ledger) == rows(there.ledger) and len(rows(there.ledger)) == 95


def test_a_budget_above_the_limit_is_refused(binary, environment, tmp_path):
    """Before anything is taken: there is not even a directory."""
    root, place = tmp_path / "machine", tmp_path / "place"
    for name, text in {"cpus": "2\n", "proc/meminfo": "MemTotal: 8388608 kB\n", "proc/self/cgroup": "0::/pod\n",
                       "sys/fs/cgroup/pod/memory.max": f"{1 << 30}\n"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    env = {**environment, "PENSTOCK_QUOTA_ROOT": str(root)}
    for args in ("--memory", "1025M"), ("--cache", "1G"), ("--memory", "1G", "--cache", "1G"):
        done = subprocess.run([binary, "serve", "--socket", str(place), *args], capture_output=True, text=True, env=env, timeout=60)
        assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done
        assert "MiB" in done.stderr and not place.exists(), done
    child = subprocess.Popen([binary, "serve", "--socket", str(place), "--memory", "1G"], env=env, stdout=subprocess.PIPE)
    assert child.stdout.readline().startswith(b"serving ")
    child.terminate()
    assert child.wait(60) == 0
    child.stdout.close()


# ---- looking at it -----------------------------------------------------------------------------


def test_what_jobs_and_engine_say(serve, client, binary):
    daemon = serve("--cache", "64M")
    feed = client("--engine", daemon.address, "--epochs", 12, "--step-ms", 10, "--sampling", "opportunistic", "--order", "ready",
                  "--group", "sweep")
    daemon.until(lambda jobs: any(job.get("samples", 0) > 96 for job in jobs))
    (job,) = daemon.jobs()
    assert (job["sampling"], job["group"], job["order"]) == ("opportunistic", "sweep", "ready")
    assert job["preparations"] >= 96 and set(job["hits"]) == {"encoded", "decoded", "augmented"}
    cache = daemon.cache()
    assert set(cache["forms"]) == {"encoded", "decoded", "augmented"} and cache["evictions"] >= 0
    held = sum(form["entries"] for form in cache["forms"].values())
    assert held > 0 and 0 < sum(form["bytes"] for form in cache["forms"].values()) <= cache["taken_bytes"] <= 64 << 20
    shown = subprocess.run([binary, "jobs", "--socket", str(daemon.dir)], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[0].split()[6:11] == ["work", "prepared", "encoded", "decoded", "augmented"]
    assert shown.splitlines()[1].split()[7] == "shared"
    daemon.fsck()
    assert feed.end() == ""


def fsck(binary, path, *args):
    return subprocess.run([binary, "fsck", "--socket", str(path), *args], capture_output=True, text=True, timeout=60)


def test_fsck_answers(serve, binary, tmp_path):
    daemon = serve("--cache", 0)  # without a cache there is nothing to be wrong
    daemon.fsck()
    assert json.loads(fsck(binary, daemon.dir, "--json").stdout) == {"wrong": 0, "lines": []}
    done = fsck(binary, tmp_path)
    assert done.returncode == 1 and done.stdout == "" and "nobody serves" in done.stderr


def test_fsck_tells_what_is_wrong(binary, tmp_path):
    """A daemon whose books are wrong: what it would say, from a socket of our own."""
    body = json.dumps({"wrong": 2, "lines": ["cache: one", "sharing: two"]}).encode()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "control.sock"))
        listener.listen()

        def answer():
            for _ in range(2):
                peer, _ = listener.accept()
                with peer:
                    assert peer.recv(4096).startswith(b"GET /v1/check ")
                    peer.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + body)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        done = fsck(binary, tmp_path)
        assert done.returncode == 1 and done.stdout == "cache: one\nsharing: two\n" and "2 things do not agree" in done.stderr
        done = fsck(binary, tmp_path, "--json")
        assert done.returncode == 1 and json.loads(done.stdout)["wrong"] == 2
        thread.join(60)


def test_a_job_takes_the_place_of_one_that_was_killed(serve, client):
    """There is memory for one of them at a time, and the last one's comes back only when its samples under way are done."""
    daemon = serve("--cache", 0)
    job = None
    for _ in range(10):
        if job:
            job.kill()
        job = client("--engine", daemon.address, "--epochs", 100000, batch=48,
                     pipeline="decode | random_resized_crop(224) | normalize(imagenet)")
        pid = job.child.pid
        daemon.until(lambda jobs, pid=pid, job=job: job.child.poll() is not None or any(
            one["pid"] == pid and one.get("samples", 0) for one in jobs))
        assert job.child.poll() is None, job.end()


@pytest.mark.parametrize("text, kept", [("0:100:0", True), ("100:0:0", False)])
def test_forms_by_hand(serve, client, text, kept):
    """Where only stored bytes may be kept, no decoded form is, though it would pay."""
    daemon = serve("--cache", "8M", "--forms", text)
    assert client("--engine", daemon.address, "--epochs", 3).end() == ""
    forms = daemon.cache()["forms"]
    assert (forms["decoded"]["entries"] > 0) == kept, forms
