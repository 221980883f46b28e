# SPDX-License-Identifier: Apache-2.0
"""Jobs of a daemon that ask for the same get the same."""

EQUAL = 4


def samples(daemon):
    return {job["id"]: job.get("samples", 0) for job in daemon.jobs()}


def test_equal_jobs_get_equal_shares(serve, client):
    """In deliveries, not in time: of many, the one that got most has at most 1.1 times what the one that got least has."""
    daemon = serve("--workers", 2, "--cache", 0)  # with one, the clients' own pace decides
    feeds = [client("--engine", daemon.address, "--epochs", 100000, "--seed", i) for i in range(EQUAL)]
    # Whoever comes last fills its ring while the others take from theirs: not from the first sample on.
    daemon.until(lambda jobs: sum(job.get("samples", 0) > 400 for job in jobs) == EQUAL)
    before = samples(daemon)
    daemon.until(lambda jobs: sum(job.get("samples", 0) for job in jobs) > sum(before.values()) + 6400)
    gained = [count - before[job] for job, count in samples(daemon).items()]
    assert len(gained) == EQUAL and max(gained) <= 1.1 * min(gained), gained
    for feed in feeds:
        feed.kill()
