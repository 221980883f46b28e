# SPDX-License-Identifier: Apache-2.0
"""What is on the screen of `penstock top`, in tmux: at two sizes and between, with keys, and around an engine that comes and goes."""
import os
import re
import signal
import subprocess

import pytest

from conftest import LIMIT_S, PIPELINE, job, view, wait_for


def columns(line):
    return re.findall(r"\S+", line)


def head_of(text):
    return next(line for line in text.splitlines() if line.lstrip().startswith("JOB"))


def ids(text):
    """The jobs as they are listed."""
    lines = text.splitlines()
    at = lines.index(head_of(text))
    found = []
    for line in lines[at + 1:]:
        words = columns(line)
        if not words or not words[0].isdigit():
            break
        found.append(int(words[0]))
    return found


def test_80x24(top, engine):
    screen = top(80, 24, "--engine", engine().address)
    text = screen.wait("decode-bound: 3 more cores")
    lines = text.splitlines()
    assert len(lines) <= 24 and all(len(line) <= 80 for line in lines)
    assert lines[0].startswith("penstock 9.8.7") and lines[0].rstrip().endswith("up 1 h 12 min")
    assert "cores 2.0 of 4" in text and "workers 3 of 4" in text
    assert "memory 1.0 GiB of 4.0 GiB" in text and "cache 300 MiB of 1.0 GiB" in text
    assert columns(head_of(text))[:10] == ["JOB", "DATASET", "SAMPLES/S", "STALL", "READY", "EPOCH", "ENC", "DEC", "AUG", "PID"]
    row = next(line for line in lines if line.lstrip().startswith("2 "))
    assert columns(row)[:10] == ["2", "/data/set2", "201.0", "42%", "3/4", "2:", "45%", "12%", "30%", "0%"] and "1002" in row
    assert "job 1: decode-bound: job 1 waits" in text
    assert re.search(r"decode +█+\S* +600\.0 us +60 %", text)
    assert re.search(r"random_resized_crop +█+\S* +200\.0 us +20 %", text)
    assert not re.search(r"^wait", text, re.M), "the consumer's wait is not a sample's"
    assert "12 slow, 3 put aside, cut-off 12.50 ms, prediction off by 8 %" in text
    assert "1.0 GiB of 8.0 GiB, 77 entries" in text and "DOWN" in text
    assert "12.0 MiB/s now, 5.0 GiB in 1,234 requests, 7 retries, 0 errors" in text
    assert lines[-1].startswith("q quit  j/k select  s sort: id")


def test_200x50(top, engine):
    text = top(200, 50, "--engine", engine(body=view(12)).address).wait("decode-bound: 3 more cores")
    assert ids(text) == list(range(1, 13))
    assert columns(head_of(text))[-2:] == ["RANK", "PIPELINE"] and "decode | random_resized_crop(32) | hflip" in text
    row = next(line for line in text.splitlines() if line.startswith("decode "))
    assert "600.0 us" in row and re.search(r"60 %  \S", row), "lanes and the rest stand beside the stages"
    assert re.search(r"augmented +100 MiB in 10 entries, 3,000 hits", text)
    assert "class1/broken.jpg: it ends too early" in text


def test_resizing(top, engine):
    """At once: the next look is an hour away."""
    screen = top(80, 24, "--engine", engine().address, "--interval", 3600)
    screen.wait("PID", "decode-bound: 3", without=["PIPELINE"])
    screen.size(200, 50)
    screen.wait("PIPELINE", "augmented")
    screen.size(40, 12)
    text = screen.wait("SAMPLES/S", without=["PID"])
    assert all(len(line) <= 40 for line in text.splitlines()) and len(text.splitlines()) <= 12
    screen.size(80, 24)
    screen.wait("PID", "lanes", without=["PIPELINE"])
    screen.type("q")
    screen.wait("ready>")


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8])
def test_a_screen_of_few_rows(top, engine, rows):
    screen = top(60, 24, "--engine", engine().address)
    screen.wait("decode-bound")
    screen.size(60, rows)
    wait_for(screen.text, lambda: screen.fact("pane_height") == str(rows) and len(screen.lines()) <= rows)
    screen.size(60, 24)
    screen.wait("decode-bound: 3", "q quit")


def test_keys(top, engine):
    body = view(3)
    body["jobs"][1]["stall_now"], body["jobs"][2]["ready"] = 0.9, 0
    stand_in = engine(body=body)
    screen = top(100, 30, "--engine", stand_in.address)
    assert ids(screen.wait("job 1: ")) == [1, 2, 3]
    screen.type("j")
    screen.wait("job 2: ")
    screen.type("Down")
    screen.wait("job 3: ")
    screen.type("j")
    screen.type("k")
    screen.wait("job 2: ")
    screen.type("Up")
    screen.wait("job 1: ")
    for name, expected in [("samples/s", [3, 2, 1]), ("stall", [2, 1, 3]), ("ready", [3, 1, 2]), ("epoch", [1, 2, 3]), ("dataset", [1, 2, 3])]:
        screen.type("s")
        assert ids(screen.wait(f"sort: {name}")) == expected
    screen.type("r")
    assert ids(screen.wait("dataset reversed")) == [3, 2, 1]
    for key in ("?", "h"):
        screen.type(key)
        screen.wait("Any key goes back")
        screen.type("x")
        screen.wait("job 1: ", without=["Any key"])
    screen.type("p")
    screen.wait("PAUSED")
    body["version"] = "1.2.3"
    asked = stand_in.asked
    screen.type("k")
    assert "9.8.7" in screen.wait("PAUSED", "p go on") and stand_in.asked <= asked + 1
    screen.type("p")
    screen.wait("penstock 1.2.3", without=["PAUSED"])


def test_the_chosen_job_is_in_sight(top, engine):
    body = view(60)
    screen = top(80, 24, "--engine", engine(body=body).address)
    screen.wait("job 1: ")
    screen.type("End")
    assert 60 in ids(screen.wait("job 60: "))
    screen.type("Home")
    assert ids(screen.wait("job 1: "))[0] == 1
    body["jobs"] = [job(7)]
    assert ids(screen.wait("job 7: ")) == [7]
    body["jobs"] = []
    screen.wait("No job is open")


def test_no_engine(top, once):
    for extra in ([], ["--once"], ["--json"]):
        done = once(*extra)
        assert done.returncode == 1 and done.stdout == b""
        assert b"no engine runs" in done.stderr and b"penstock serve" in done.stderr
    done = once("--engine", "unix:/nowhere/at/all", "--once")
    assert done.returncode == 1 and b"no engine at unix:/nowhere/at/all" in done.stderr
    screen = top(80, 24, "; echo code $?")
    screen.wait("no engine runs", "penstock serve", "code 1")
    assert screen.fact("alternate_on") == "0"


def test_a_daemon_that_dies_and_comes_back(top, serve, feed):
    daemon = serve()
    screen = top(80, 24, "--engine", daemon.address)
    screen.wait("No job is open")
    feed(daemon)
    screen.wait("photos", "decode ")
    daemon.kill()
    screen.wait("engine gone, waiting for it to come back")
    serve()
    screen.wait("cores", without=["engine gone"])
    screen.wait("photos")  # jobs go back by themselves


def test_a_daemon_that_hangs_leaves_the_keys_alone(top, engine):
    stand_in = engine()
    screen = top(80, 24, "--engine", stand_in.address)
    screen.wait("job 1: ")
    stand_in.hang = True
    screen.type("j")
    screen.wait("job 2: ")
    screen.wait("engine gone, waiting")
    stand_in.hang = False
    screen.wait("job 2: ", without=["engine gone"])
    screen.type("q")
    screen.wait("ready>")


LEAVING = [("q", 0), ("C-c", 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGSEGV, 139), (signal.SIGABRT, 134)]


@pytest.mark.parametrize("how, code", LEAVING, ids=[str(getattr(h, "name", h)) for h, _ in LEAVING])
def test_the_terminal_is_as_it_was(screen, binary, engine, tmp_path, how, code):
    shell = screen(80, 24)
    shell.run("echo before; stty -g > stty.before".replace("stty.", f"{tmp_path}/stty."))
    # What is waited for must not be in the line that is typed.
    shell.run(f"'{binary}' top --engine {engine().address} & fg; echo code $?; stty -g > {tmp_path}/stty.after; echo all\\ done")
    shell.wait("decode-bound: 3")
    assert shell.fact("alternate_on") == "1" and shell.fact("cursor_flag") == "0"
    if isinstance(how, str):
        shell.type(how)
    else:
        pids = [int(p) for p in os.listdir("/proc") if p.isdigit() and is_top(int(p), binary, shell)]
        assert len(pids) == 1
        os.kill(pids[0], how)
    text = shell.wait("all done", f"code {code}", "before")
    assert "decode-bound" not in text
    assert shell.fact("alternate_on") == "0" and shell.fact("cursor_flag") == "1"
    assert (tmp_path / "stty.before").read_text() == (tmp_path / "stty.after").read_text()


def is_top(pid, binary, shell):
    """A `penstock top` on the terminal of that shell."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        return words[:2] == [binary.encode(), b"top"] and os.readlink(f"/proc/{pid}/fd/1") == shell.fact("pane_tty")
    except OSError:
        return False


def test_stopped_and_going_on(screen, binary, engine):
    shell = screen(80, 24)
    shell.run(f"'{binary}' top --engine {engine().address}")
    shell.wait("decode-bound: 3")
    shell.type("C-z")
    shell.wait("ready>", without=["decode-bound"])
    assert shell.fact("alternate_on") == "0"
    shell.run("echo typed and seen; fg")
    shell.wait("decode-bound: 3", "q quit")
    assert shell.fact("alternate_on") == "1"
    pid = next(int(p) for p in os.listdir("/proc") if p.isdigit() and is_top(int(p), binary, shell))
    os.kill(pid, signal.SIGCONT)
    shell.wait("decode-bound: 3", "q quit")
    shell.type("q")
    shell.wait("typed and seen", without=["decode-bound"])


@pytest.mark.parametrize("env, coloured", [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours(top, engine, env, coloured):
    screen = top(80, 24, "--engine", engine().address, env=env)
    screen.wait("decode-bound: 3")
    colours = re.search(r"\x1b\[[0-9;]*3[1-6][;m]", screen.text("-e"))
    assert bool(colours) == coloured


def test_without_utf8(top, once, engine):
    body = view()
    body["jobs"][0]["dataset"] = "/data/gr\u00fcn"
    address = engine(body=body).address
    screen = top(80, 24, "--engine", address, env={"LC_ALL": "C"})
    text = screen.wait("decode-bound: 3")
    assert text.isascii() and re.search(r"decode +#+ ", text) and "/data/gr?n" in text
    assert once("--engine", address, "--once", env={"LC_ALL": "C"}).stdout.isascii()


def test_several_engines(top, once, engine, tmp_path):
    """Processes that show themselves: a list; a daemon comes before them all."""
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    bodies = [view(1), view(1)]
    for ident, body in zip((os.getpid(), 999999999), bodies):
        body["jobs"][0]["dataset"] = f"/data/of{ident}"
        engine(tmp_path / "penstock" / str(ident), body)
    done = once("--once", env=env)
    assert done.returncode == 2 and f"unix:{tmp_path}/penstock/999999999".encode() in done.stderr
    screen = top(100, 24, env=env)
    assert f"process {os.getpid()} (python" in screen.wait("Which engine?")
    screen.type("j")
    wait_for(screen.text, lambda: re.search(r"^> process 999999999", screen.text(), re.M))
    screen.type("Enter")
    screen.wait("f999999999")
    engine(tmp_path / "penstock")
    assert b"/data/set1" in once("--once", env=env).stdout
    screen.type("e")
    screen.wait("Which engine?", "daemon")
    screen.type("k", "k", "k", "Enter")
    screen.wait("/data/set1")


def test_another_process_takes_its_place(top, engine, tmp_path):
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    first = engine(tmp_path / "penstock" / "11", view(1))
    screen = top(80, 24, env=env)
    screen.wait("/data/set1")
    first.close()
    screen.wait("engine gone")
    engine(tmp_path / "penstock" / "12", {**view(1), "version": "7.7.7"})
    screen.wait("penstock 7.7.7", without=["engine gone"])


@pytest.mark.parametrize("cols, rows", [(80, 24), (200, 50)])
def test_real_jobs(top, serve, feed, cols, rows):
    daemon = serve("--cache", "64M")
    feed(daemon)
    feed(daemon, "--order", "ready")
    screen = top(cols, rows, "--engine", daemon.address, "--interval", 0.3)

    def flowing():
        text = screen.text()
        rates = re.findall(r"^ +\d+ \S+ +(?:running +)?([\d.,]+) +\d+%", text, re.M)
        return text if len(rates) == 2 and all(float(r.replace(",", "")) > 0 for r in rates) else None

    text = wait_for(screen.text, flowing)
    screen.wait("where a sample's time goes", "random_resized_crop", "lanes", "tiers   none", "files")
    assert all(len(line) <= cols for line in text.splitlines()) and len(text.splitlines()) <= rows
    wait_for(screen.text, lambda: re.search(r"\d{2,3}%  +0% +\d+|\d+% +100% +0%", screen.text()))


def test_an_engine_in_a_process(top, once, binary, environment, photos, tmp_path):
    """It shows itself where it is told to, and is found without being named."""
    env = {"XDG_RUNTIME_DIR": str(tmp_path / "run")}
    (tmp_path / "run").mkdir(mode=0o700)
    child = subprocess.Popen([binary, "feed", str(photos), "--pipeline", PIPELINE, "--batch", "8", "--epochs", "1000000", "--step-ms", "20", "--quiet",
                              "--watch", "auto"], env={**environment, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: "", lambda: once("--once", env=env).returncode == 0)
        screen = top(100, 30, env=env)
        screen.wait("/photos", f"/{child.pid} ", "where a sample's time goes")
        child.kill()
        child.wait(LIMIT_S)
        screen.wait("engine gone, waiting")
    finally:
        child.kill()
        child.wait(LIMIT_S)
