# SPDX-License-Identifier: Apache-2.0
"""The remote tier against real servers and against one that misbehaves. REMOTE_TOOL is remote_tool; REMOTE_TIMES how often
servers are killed, stopped and emptied (3 unless told)."""
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "rigs"))
import rigs
import resp_faults
from redis_fixtures import redis, server  # noqa: F401, fixtures

TOOL = os.environ["REMOTE_TOOL"]
TIMES = int(os.environ.get("REMOTE_TIMES", "3"))
LONG = 0.4 if TIMES < 20 else 3  # seconds of a storm
SLOW = int(os.environ.get("REMOTE_SLOW", "1"))  # sanitizers are
CANARY = "canary-" + "%032x" % random.Random(5).getrandbits(128)
pytestmark = pytest.mark.skipif(bool(rigs.missing_redis()), reason=str(rigs.missing_redis()))


class Lag(threading.Thread):
    """How late this machine wakes those who sleep: what is measured beside it is late by as much, several times over."""

    def __init__(self):
        super().__init__(daemon=True)
        self.worst_ms = 0
        self.start()

    def run(self):
        while True:
            before = time.monotonic()
            time.sleep(0.005)
            self.worst_ms = max(self.worst_ms, 1000 * (time.monotonic() - before) - 5)


LAG = Lag()


@pytest.fixture(autouse=True)
def lag():
    LAG.worst_ms = 0


def wait_ms():
    """An operation may stall for 50 ms, twice that while something comes in."""
    return 110 * SLOW + 6 * LAG.worst_ms


class Tool:
    """remote_tool as a process: call it with a line, get what it answers."""

    def __init__(self, url, *more, **environment):
        environment = {**rigs.clean_environment(), **environment}
        self.child = subprocess.Popen([TOOL, url, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      env=environment)
        self.child.stdout.readline()
        self.said = None

    def __call__(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline()
        assert answer, self.child.stderr.read()
        return json.loads(answer)

    def later(self, line):
        """The same beside the test; join() gives the answer."""
        found = []
        thread = threading.Thread(target=lambda: found.append(self(line)))
        thread.start()

        def join():
            thread.join()
            return found[0]
        return join

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.said = self.child.communicate(timeout=60)[1]
        if kind is None:
            assert self.child.returncode == 0, self.said


def refused(url, **environment):
    child = subprocess.run([TOOL, url], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                           env={**rigs.clean_environment(), **environment})
    assert child.returncode == 2
    return child.stderr


def until(condition, seconds=10):
    """Asks again and again; how long it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds * SLOW
        time.sleep(0.02)
    return time.monotonic() - begin


def stored(tool, count, size=2000):
    until(lambda: tool("put 0 %d %d" % (count, size))["sent"] == count)
    until(lambda: tool("get 0 %d 16" % count)["hits"] == count)


def total(answer):
    return sum(answer[name] for name in ("hits", "misses", "mine", "unanswered", "damaged", "wrong"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with rigs.RedisCluster(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


# ---- what it is for


def test_values_come_back(redis):
    with Tool(redis.url) as tool:
        for size in (0, 1, 100, 70000, 1500000):
            assert tool("put 0 20 %d" % size)["sent"] == 20
            until(lambda: redis.command("DBSIZE") == 20)
            until(lambda: tool("get 0 30 8")["hits"] == 20)
            answer = tool("get 0 30 8")
            assert total(answer) == 30 and answer["hits"] <= 20 and answer["misses"] <= 10 and not answer["damaged"] + answer["wrong"]
            redis.command("FLUSHALL")
        stats = tool("stats")
        assert stats["nodes_up"] == 1 and stats["puts"] == 100 and stats["put_failures"] == 0


def test_nothing_is_allocated_in_the_long_run(redis):
    """But for the tool's own buffers, 32 at most, and for connections that were made anew."""
    with Tool(redis.url) as tool:
        stored(tool, 50, 100000)
        before = tool("stats")
        for _ in range(10):
            tool("get 0 60 32")
        after = tool("stats")
        assert after["allocs"] - before["allocs"] <= 33 + 10 * (after["breaks"] - before["breaks"])


def test_a_cluster(cluster):
    for urls in (cluster.url, cluster.nodes[1].url):
        with Tool(urls) as tool:
            stored(tool, 300)
            stats = tool("stats")
            assert stats["nodes"] == 3 and stats["nodes_up"] == 3 and stats["redirects"] == 0
            assert all(node.command("DBSIZE") > 50 for node in cluster.nodes)
            for node in cluster.nodes:
                node.command("FLUSHALL")


def test_too_large_is_a_miss(redis):
    with Tool(redis.url, "50000") as small, Tool(redis.url) as large:
        assert small("put 0 3 60000")["sent"] == 0
        stored(large, 3, 60000)
        answer = small("get 0 3 1")
        assert answer["hits"] == 0 and large("get 0 3 1")["hits"] == 3
        assert small("stats")["nodes_up"] == 1


def test_slots_move(cluster):
    """A slot goes to another node while it is in use: MOVED is followed, and asked about once a second at most."""
    def give(slots, node):
        for one in cluster.nodes:
            one.command("FLUSHALL")
        for slot in slots:
            for one in cluster.nodes:
                one.command("CLUSTER", "SETSLOT", slot, "NODE", ids[node])
    with Tool(cluster.url) as tool:
        stored(tool, 200)
        ids = [node.command("CLUSTER", "MYID").decode() for node in cluster.nodes]
        give(range(400), 1)
        answer = tool("get 0 2000 16")
        assert answer["misses"] + answer["unanswered"] == 2000 and answer["misses"] > 1000
        stored(tool, 200)
        stats = tool("stats")
        assert stats["redirects"] > 0 and stats["refreshes"] <= 6 * SLOW
        give(range(400), 0)


def test_databases_are_apart(redis):
    with Tool(redis.url + "/3") as third, Tool(redis.url) as none:
        stored(third, 5)
        assert none("get 0 5 1")["misses"] == 5


def test_a_child_does_not_hang(redis):
    with Tool(redis.url) as tool:
        stored(tool, 1)
        assert tool("fork")["status"] == 0
        assert tool("get 0 1 1")["hits"] == 1


# ---- taking


def taken(tool, keys):
    """Hits, of keys that may be there; an answer that is late has taken one for nobody."""
    answer = tool("take 0 %d 8" % keys)
    assert total(answer) == keys and not answer["damaged"] + answer["wrong"]
    return answer["hits"], answer["unanswered"]


def test_what_is_taken_is_gone(redis, cluster):
    for servers in ([redis], cluster.nodes):
        with Tool(servers[0].url) as one, Tool(servers[0].url) as two:
            until(lambda: one("lend 0 200 3000 60000")["sent"] == 200)
            until(lambda: sum(server.command("DBSIZE") for server in servers) == 200)
            joins = [tool.later("take 0 200 16") for tool in (one, two)]
            answers = [join() for join in joins]
            late = sum(answer["unanswered"] for answer in answers)
            assert 200 - late <= sum(answer["hits"] for answer in answers) <= 200
            until(lambda: taken(one, 200) and sum(server.command("DBSIZE") for server in servers) == 0)
            assert taken(one, 200)[0] == 0


def test_what_is_lent_runs_out(redis):
    with Tool(redis.url) as tool:
        until(lambda: tool("lend 0 10 3000 60000")["sent"] == 10)
        until(lambda: redis.command("DBSIZE") == 10)
        assert all(0 < redis.command("PTTL", key) <= 60000 for key in redis.command("KEYS", "*"))
        until(lambda: tool("lend 0 10 3000 50")["sent"] == 10)
        until(lambda: redis.command("DBSIZE") == 0)
        assert taken(tool, 10)[0] == 0


def test_a_user_who_may_not_take_may_do_the_rest(redis):
    redis.command("ACL", "SETUSER", "modest", "on", ">" + CANARY, "resetkeys", "~penstock:*", "-@all", "+get", "+mget",
                  "+set", "+del", "+ping", "+select", "+cluster|slots")
    with Tool(redis.url.replace("//", "//modest@"), PENSTOCK_REMOTE_PASSWORD=CANARY) as tool:
        stored(tool, 20)
        assert taken(tool, 20)[0] == 0
        tool("lend 30 5 100 60000")
        until(lambda: tool("get 0 20 8")["hits"] == 20)
    assert tool.said.count("refuses GETDEL") == 1 and "it answers NOPERM" not in tool.said


# ---- claims


def test_one_makes_it_and_the_others_wait(redis):
    with Tool(redis.url) as one, Tool(redis.url) as two, Tool(redis.url) as three:
        assert one("claim 7 20")["mine"] == 1
        waits = [two.later("claim 7 20"), three.later("claim 7 20")]
        time.sleep(0.1)
        one("store 7 3000")
        assert [join()["hits"] for join in waits] == [1, 1]
        assert two("stats")["waited_hits"] == 1
        until(lambda: redis.command("DBSIZE") == 1)  # the mark has run out


def test_a_claim_that_is_given_up_goes_to_who_waits(redis):
    with Tool(redis.url) as one, Tool(redis.url) as two:
        assert one("claim 7 20")["mine"] == 1
        join = two.later("claim 7 20")
        time.sleep(0.05)
        one("release")
        answer = join()
        assert answer["mine"] == 1 and answer["most_ms"] < 1000


def test_a_dead_claimant_holds_nobody_up_for_long(redis):
    with contextlib.ExitStack() as stack:
        one, two = Tool(redis.url), stack.enter_context(Tool(redis.url))
        assert one("claim 7 1")["mine"] == 1
        one.child.kill()
        one.child.communicate()
        answer = two("claim 7 1")
        assert answer["mine"] + answer["misses"] == 1 and answer["most_ms"] < 2500 * SLOW


def marks(redis):
    """How long each has to live, ms."""
    return [redis.command("PTTL", key) for key in redis.command("KEYS", "*:making")]


def test_a_claim_lasts_as_long_as_its_owner(redis):
    """The mark is renewed; were it not, it would run out, and be claimed anew here."""
    with Tool(redis.url) as one:
        tries, before = 0, []
        end = time.monotonic() + 60
        while True:
            now = marks(redis)
            if before and now and now[0] > before[0]:
                break
            if not now:  # also where this machine stood still for as long
                tries += 1
                assert tries < 8 and time.monotonic() < end, "it runs out"
                redis.command("FLUSHALL")
                one("release")
                until(lambda: one("claim 7 1")["mine"] == 1)
            before = now
            time.sleep(0.02)


# ---- servers that go


def test_an_answer_that_is_late_is_taken_while_nobody_presses(redis):
    """And given up where somebody does. Both only if the machine let the test do as it meant to."""
    with Tool(redis.url) as tool:
        for _ in range(20):
            stored(tool, 20)
            answers = {}
            for how in ("wait", "get"):
                redis.child.send_signal(signal.SIGSTOP)
                begin = time.monotonic()
                join = tool.later("%s 0 20 20" % how)
                time.sleep(0.3)
                redis.child.send_signal(signal.SIGCONT)
                answers[how] = join(), time.monotonic() - begin
                until(lambda: tool("get 0 20 16")["hits"] == 20)
            if max(took for _, took in answers.values()) < 0.8:
                break
        else:
            pytest.skip("a machine so busy that nothing is done in time")
        assert answers["wait"][0]["hits"] == 20 and answers["wait"][0]["most_ms"] > 100
        assert answers["get"][0]["unanswered"] == 20


def test_nobody_there_is_said_once(tmp_path):
    port, = rigs.free_ports(1)
    with Tool("redis://127.0.0.1:%d" % port) as tool:
        answer = tool("get 0 100 4")
        assert answer["unanswered"] == 100 and answer["most_ms"] < wait_ms()
        assert tool("put 0 5 100")["sent"] == 0
        time.sleep(1.1)
        with rigs.Redis(tmp_path) as redis:
            redis.stop()
            redis.port = port
            redis.start()
            assert until(lambda: tool("put 0 5 100")["sent"] == 5) < 10
            until(lambda: tool("get 0 5 1")["hits"] == 5)
    assert tool.said.count("\n") == 1 and "tried again" in tool.said


def asked_while(tool, what, count=20000):
    """Asks for keys 0..199 over and over; does `what` at a random moment of it."""
    join = tool.later("get 0 %d 16 200" % count)
    time.sleep(random.random() * 0.1)
    what()
    answer = join()
    assert total(answer) == count and answer["wrong"] == 0 and answer["damaged"] == 0
    assert answer["most_ms"] < wait_ms(), answer
    return answer


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_dies_or_hangs(redis, how):
    random.seed(how)
    for _ in range(TIMES):
        with Tool(redis.url) as tool:
            stored(tool, 200)
            if how == signal.SIGKILL:
                asked_while(tool, redis.stop)
            else:
                asked_while(tool, lambda: redis.child.send_signal(how))
            answer = tool("get 0 200 16")
            assert answer["unanswered"] == 200 and answer["most_ms"] < wait_ms()
            if how == signal.SIGKILL:
                redis.start()
            else:
                redis.child.send_signal(signal.SIGCONT)
            assert until(lambda: tool("put 0 1 100")["sent"] == 1) < 10
            until(lambda: tool("get 0 1 1")["hits"] == 1)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_node_that_dies_or_hangs(cluster, how):
    random.seed(how)
    for turn in range(max(1, TIMES // 2)):
        node = cluster.nodes[turn % 3]
        with Tool(cluster.url) as tool:
            stored(tool, 200)
            if how == signal.SIGKILL:
                asked_while(tool, node.stop)
            else:
                asked_while(tool, lambda: node.child.send_signal(how))
            answer = tool("get 0 200 16")  # the other two go on
            assert 20 < answer["hits"] < 170 and answer["most_ms"] < wait_ms()
            if how == signal.SIGKILL:
                node.start()
            else:
                node.child.send_signal(signal.SIGCONT)
            until(lambda: cluster.knows_all(cluster.nodes[0]) and cluster.knows_all(node), 30)
            until(lambda: tool("put 0 200 2000")["sent"] == 200)
            until(lambda: tool("get 0 200 16")["hits"] == 200)
            assert tool("stats")["refreshes"] < 15 * SLOW


def test_a_server_that_forgets(redis):
    random.seed(6)
    with Tool(redis.url) as tool:
        for _ in range(TIMES):
            stored(tool, 200)
            asked_while(tool, lambda: redis.command("FLUSHALL"))
            assert tool("stats")["nodes_up"] == 1


def test_a_full_server_stores_nothing_and_is_still_asked(tmp_path):
    with rigs.Redis(tmp_path) as redis, Tool(redis.url) as tool:
        stored(tool, 10)
        redis.command("CONFIG", "SET", "maxmemory", "1mb")
        assert tool("put 100 5 1000")["sent"] == 5
        until(lambda: tool("stats")["put_failures"] == 5)
        until(lambda: tool("get 0 10 4")["hits"] == 10)


# ---- servers that misbehave


def at_faultd(faultd, nodes, rules, seconds=0.3):
    """Asks for a while; what the tool counted, and how often GET came to the servers."""
    url = "redis://" + ",".join("127.0.0.1:%d" % port for port in faultd.resp[:nodes])
    with Tool(url, "1000000") as tool:
        faultd.rules([])
        stored(tool, 60)
        faultd.rules(rules)
        asked, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            answer = tool("get 0 60 8")
            asked += 60
            assert total(answer) == 60 and answer["wrong"] == 0 and answer["most_ms"] < wait_ms(), answer
            if answer["unanswered"] == 60:
                break
        gets = faultd.stats()["resp"].get("GET", 0)
        stats = tool("stats")
        peak = int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/%d/status" % tool.child.pid).read_text())[1])
        assert gets <= 6 * asked and peak < (100 << 10) * (5 if SLOW > 1 else 1)
        return answer, stats


@pytest.fixture(scope="module")
def faultd():
    with rigs.Faultd(resp=1) as single:
        yield single


@pytest.fixture(scope="module")
def faulty_cluster():
    with rigs.Faultd(resp=3, cluster=True) as nodes:
        yield nodes


@pytest.mark.parametrize("name", sorted(resp_faults.ERRORS))
def test_errors_are_misses(faultd, name):
    answer, stats = at_faultd(faultd, 1, resp_faults.errors()[name])
    assert answer["unanswered"] == 60 and stats["refreshes"] <= 1


@pytest.mark.parametrize("name", sorted(resp_faults.HOSTILE))
def test_hostile_frames_are_misses(faultd, name):
    answer, _ = at_faultd(faultd, 1, resp_faults.hostile()[name])
    assert answer["hits"] == 0


@pytest.mark.parametrize("name", sorted(set(resp_faults.SLOW) - {"byte by byte"}))
def test_slowness_is_a_miss(faultd, name):
    at_faultd(faultd, 1, resp_faults.SLOW[name])


def test_a_server_that_answers_what_was_not_sent_yet_is_not_believed(faultd):
    """The rest of the value is still on its way from memory that would be somebody else's by then."""
    faultd.rules([{"match": {"op": "resp early", "command": "SET", "times": 1}, "do": {"early": "+OK\r\n"}}])
    with Tool("redis://127.0.0.1:%d" % faultd.resp[0], "50000000") as tool:
        assert tool("put 0 1 40000000")["sent"] == 1
        until(lambda: tool("stats")["puts"] + tool("stats")["put_failures"] >= 1)
        stats = tool("stats")
        assert stats["puts"] == 0 and stats["put_failures"] == 1 and stats["breaks"] >= 1
        until(lambda: tool("put 1 3 1000")["sent"] == 3)  # it is used again
        until(lambda: tool("get 1 3 1")["hits"] == 3)
    assert "not sent yet" in tool.said


def test_replies_byte_by_byte(faultd):
    url = "redis://127.0.0.1:%d" % faultd.resp[0]
    faultd.rules(resp_faults.SLOW["byte by byte"])
    with Tool(url) as tool:
        tool("put 0 3 10")
        until(lambda: tool("get 0 3 1")["hits"] == 3)


@pytest.mark.parametrize("name", sorted(resp_faults.VALUES))
def test_values_that_somebody_touched_are_found(faultd, name):
    def found():  # on a busy machine answers may come too late to be looked at
        answer, _ = at_faultd(faultd, 1, resp_faults.values()[name])
        assert answer["hits"] == 0
        return answer["damaged"] > 0

    until(found)


@pytest.mark.parametrize("name", sorted(resp_faults.storms("127.0.0.1:1")))
def test_storms_of_redirections_end(faulty_cluster, name):
    dead = "127.0.0.1:%d" % rigs.free_ports(1)[0]
    _, stats = at_faultd(faulty_cluster, 3, resp_faults.storms(dead)[name], LONG)
    assert stats["refreshes"] <= LONG + 2


@pytest.mark.parametrize("name", sorted(resp_faults.topologies("127.0.0.1:1")))
def test_topologies_that_lead_nowhere(faulty_cluster, name):
    dead = "127.0.0.1:%d" % rigs.free_ports(1)[0]
    faulty_cluster.rules([])
    faulty_cluster.control("resp", resp_faults.topologies(dead)[name])
    try:
        with Tool("redis://127.0.0.1:%d" % faulty_cluster.resp[0]) as tool:
            tool("put 0 60 1000")
            begin = time.monotonic()
            while time.monotonic() < begin + LONG:
                answer = tool("get 0 60 8")
                assert total(answer) == 60 and answer["wrong"] == 0 and answer["most_ms"] < wait_ms()
            assert tool("stats")["refreshes"] <= LONG + 2
    finally:
        faulty_cluster.control("resp", {"spread": True})


def test_a_topology_elsewhere_is_not_asked(faulty_cluster):
    """Redirected to another network, the tier stays: whoever is asked would get the password."""
    with socket.socket() as other:
        other.bind(("127.7.7.7", 0))
        other.listen()
        other.setblocking(False)
        faulty_cluster.rules([{"match": resp_faults.GETS, "do": {"moved": "127.7.7.7:%d" % other.getsockname()[1]}}])
        with Tool("redis://127.0.0.1:%d" % faulty_cluster.resp[0]) as tool:
            assert tool("get 0 20 4")["hits"] == 0
        with pytest.raises(BlockingIOError):
            other.accept()


# ---- secrets, and what is refused


def dumped(pid):
    """What a core file of the process would have, without its first stack, where the environment is."""
    text = pathlib.Path("/proc/%d/smaps" % pid).read_text()
    parts = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) r.*? (\S*)\n(?:[A-Z].*\n)*?VmFlags: (.*)$", text, re.MULTILINE)
    assert len(parts) > 5
    with open("/proc/%d/mem" % pid, "rb", 0) as memory:
        for begin, end, name, flags in parts:
            if "dd" in flags.split() or name.startswith("[v"):
                continue
            memory.seek(int(begin, 16))
            with contextlib.suppress(OSError):
                yield memory.read(int(end, 16) - int(begin, 16))


def test_the_password_stays_where_it_is(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(CANARY + "\n")
    with rigs.Redis(tmp_path / "redis", password=CANARY) as redis:
        with Tool(redis.url, PENSTOCK_REMOTE_PASSWORD_FILE=str(secret)) as tool:
            stored(tool, 20)
            assert not any(CANARY.encode() in part for part in dumped(tool.child.pid))
            assert CANARY.encode() not in pathlib.Path("/proc/%d/cmdline" % tool.child.pid).read_bytes()
        assert CANARY not in tool.said
        with Tool(redis.url, PENSTOCK_REMOTE_PASSWORD=CANARY) as tool:
            stored(tool, 20)
        secret.write_text(CANARY + "x")
        for environment in ({"PENSTOCK_REMOTE_PASSWORD_FILE": str(secret)}, {}):
            with Tool(redis.url, **environment) as tool:
                assert tool("get 0 20 1")["unanswered"] == 20
            assert "refuses" in tool.said or "not ready" in tool.said
            assert CANARY not in tool.said


def test_a_server_that_repeats_the_password_is_not_quoted(faultd):
    faultd.rules([{"match": {"op": "resp", "command": "AUTH"}, "do": {"error": "ERR unknown command AUTH " + CANARY}}])
    with Tool("redis://127.0.0.1:%d" % faultd.resp[0], PENSTOCK_REMOTE_PASSWORD=CANARY) as tool:
        assert tool("get 0 3 1")["unanswered"] == 3
    assert "(ERR)" in tool.said and CANARY not in tool.said


def test_users(tmp_path):
    with rigs.Redis(tmp_path) as redis:
        redis.command("ACL", "SETUSER", "loader", "on", ">" + CANARY, "resetkeys", "~penstock:*", "-@all", "+get", "+mget", "+set", "+del",
                      "+ping", "+select")
        with Tool("redis://loader@127.0.0.1:%d" % redis.port, PENSTOCK_REMOTE_PASSWORD=CANARY) as tool:
            stored(tool, 20)
            assert tool("claim 50 1")["mine"] == 1


def test_wrong_urls_are_refused():
    said = refused("redis://user:%s@127.0.0.1" % CANARY)
    assert CANARY not in said and "PENSTOCK_REMOTE_PASSWORD" in said
    assert re.search("TLS|authorities", refused("rediss://127.0.0.1", PENSTOCK_REMOTE_CA="/dev/null"))
    for url in ("http://127.0.0.1", "redis://", "redis://a b", "redis://h:0", "redis://h:99999", "redis://h:x", "redis://h/x", "redis://h?a=b",
                "redis://a,,b", "redis://[::1", "redis://@h", "redis://" + "h" * 80, "redis://" + ",".join("abcdefghijklmnopq")):
        assert "redis://[user@]host" in refused(url), url
    assert "cannot be read" in refused("redis://127.0.0.1:1", PENSTOCK_REMOTE_PASSWORD_FILE="/nonexistent")
