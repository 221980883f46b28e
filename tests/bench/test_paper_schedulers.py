#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The simulated schedulers of bench/paper_schedulers.py on costs whose outcome can be worked out by hand."""
import dataclasses
import os
import sys
import unittest

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))
import paper_schedulers as papers


def heavy_runs(count, run, heavy_s=3.0, light_s=0.05, stages=10):
    hits = [papers.is_hit(i, 0.2, run) for i in papers.between_runs(count, 0.2, run)]
    return papers.made_costs(count, light_s, heavy_s, hits, stages)


def setup_for(costs, asks=0.9, **kwargs):
    setup = papers.Setup(**kwargs)
    supply = setup.workers * len(costs) / sum(map(sum, costs))
    setup.step_s = setup.batch / (asks * supply)
    return setup


class EverySchedule(unittest.TestCase):
    def test_equal_costs_take_the_bound(self):
        costs = [[0.05]] * 2400
        setup = setup_for(costs)
        totals = [sum(one) for one in costs]
        for name in ("in order", "out of order", "plain", "ideal"):
            found = papers.simulate(name, costs, setup)
            self.assertLess(found.seconds / papers.bound(totals, setup), 1.05, name)
            self.assertGreater(found.busy, 0.95, name)

    def test_nobody_is_faster_than_the_bound(self):
        equal = [[0.05]] * 480
        for costs in (equal, [[3.05]] * 480, heavy_runs(480, 1), heavy_runs(480, 16), heavy_runs(480, 48)):
            totals = [sum(one) for one in costs]
            for known in (True, False):
                setup = setup_for(costs, known=known)
                for name in papers.SCHEDULES:
                    found = papers.simulate(name, costs, setup)
                    self.assertGreaterEqual(found.seconds, papers.bound(totals, setup) * 0.999999, name)
                    self.assertLessEqual(found.busy, 1.0)
                    self.assertEqual(len(found.waits), 480 // setup.batch - 1)

    def test_one_worker_does_one_thing_after_the_other(self):
        costs = [[1.0], [2.0], [3.0]]
        setup = papers.Setup(workers=1, batch=1, depth=2, step_s=0.5)
        for name in ("in order", "out of order", "plain", "ideal"):
            found = papers.simulate(name, costs, setup)
            self.assertAlmostEqual(found.seconds, 6.5, msg=name)
            self.assertAlmostEqual(found.first_wait, 1.0, msg=name)
            self.assertEqual([round(wait, 6) for wait in found.waits], [1.5, 2.5], name)

    def test_a_last_batch_may_be_short(self):
        costs = [[0.01]] * 10
        for name in papers.SCHEDULES:
            found = papers.simulate(name, costs, papers.Setup(workers=3, batch=4, depth=2, step_s=0.01))
            self.assertEqual(len(found.waits) + 1, 3, name)


class PyTorch(unittest.TestCase):
    COSTS = [[5.0], [0.1], [0.1], [0.1], [0.1], [0.1]]

    def test_in_order_the_first_batch_holds_all_up(self):
        found = papers.simulate("in order", self.COSTS, papers.Setup(workers=2, batch=1, depth=2, step_s=0.1))
        self.assertAlmostEqual(found.first_wait, 5.0)

    def test_out_of_order_it_does_not(self):
        found = papers.simulate("out of order", self.COSTS, papers.Setup(workers=2, batch=1, depth=2, step_s=0.1))
        self.assertAlmostEqual(found.first_wait, 0.1)
        self.assertLess(found.seconds, 5.2)

    def test_a_batch_costs_the_sum_of_its_samples(self):
        found = papers.simulate("in order", [[1.0]] * 4, papers.Setup(workers=4, batch=4, depth=1, step_s=0.1))
        self.assertAlmostEqual(found.first_wait, 4.0)


class Speedy(unittest.TestCase):
    COSTS = [[4.0]] * 2 + [[0.1]] * 18  # two long ones fill the pool for them

    def setup(self, known):
        return papers.Setup(workers=2, batch=1, depth=20, step_s=0.01, known=known, slow_workers=1)

    def test_short_samples_pass_long_ones_that_are_known(self):
        self.assertAlmostEqual(papers.simulate("speedy", self.COSTS, self.setup(True)).first_wait, 0.1)

    def test_unknown_ones_take_every_worker(self):
        self.assertAlmostEqual(papers.simulate("speedy", self.COSTS, self.setup(False)).first_wait, 4.0)

    def test_the_long_pool_steals(self):
        costs = [[1.0]] * 8
        found = papers.simulate("speedy", costs, papers.Setup(workers=2, batch=1, depth=20, step_s=0.001))
        self.assertAlmostEqual(found.seconds, 4.002)

    def test_batches_hold_what_they_would_in_order(self):
        costs = [[3.0], [0.1], [0.1], [0.1]]
        found = papers.simulate("speedy", costs, papers.Setup(workers=4, batch=2, depth=4, step_s=0.1))
        self.assertAlmostEqual(found.first_wait, 0.1)
        self.assertAlmostEqual(found.seconds, 3.1)


class Minato(unittest.TestCase):
    COSTS = [[0.1, 1.0, 1.0], *[[0.1]] * 15]

    def setup(self):
        return papers.Setup(workers=4, batch=1, depth=32, step_s=0.001)

    def test_a_stage_that_is_interrupted_is_repeated(self):
        simulation = papers.Minato(self.COSTS, self.setup())
        self.assertAlmostEqual(simulation.t_out, 0.1)
        self.assertEqual([round(part, 6) for part in simulation.first_try(0)], [0.1, 2.0])
        simulation.t_out = 0.5
        self.assertEqual([round(part, 6) for part in simulation.first_try(0)], [0.5, 2.0])

    def test_between_stages_nothing_is(self):
        simulation = papers.MinatoBetween(self.COSTS, self.setup())
        simulation.t_out = 0.5
        self.assertEqual([round(part, 6) for part in simulation.first_try(0)], [1.1, 1.0])

    def test_the_limit_moves_up_where_many_are_slow(self):
        costs = [[0.1 * (i + 1)] for i in range(10)] + [[5.0]] * 6
        self.assertAlmostEqual(papers.Minato(costs, self.setup()).t_out, 5.0)
        self.assertAlmostEqual(papers.Minato(self.COSTS, self.setup()).t_out, 0.1)

    def test_a_full_queue_and_an_idle_machine_take_workers_away(self):
        simulation = papers.Minato([[0.01]] * 400, papers.Setup(workers=12, batch=4, depth=8, step_s=0.5))
        simulation.run()
        self.assertEqual(simulation.workers, 1)
        simulation = papers.Minato([[0.5]] * 400, papers.Setup(workers=12, batch=4, depth=8, step_s=0.001, cores=12))
        simulation.run()
        self.assertEqual(simulation.workers, 12)


class Runs(unittest.TestCase):
    """What the lanes are for, as the papers' schedulers do it."""

    def test_runs_of_heavy_samples_stall_a_plain_pool(self):
        costs = heavy_runs(1920, 48)
        setup = setup_for(costs)
        self.assertLess(papers.simulate("plain", costs, setup).busy, 0.7)
        self.assertGreater(papers.simulate("ideal", costs, setup).busy, 0.95)
        even = heavy_runs(640, 1)
        self.assertGreater(papers.simulate("plain", even, setup_for(even)).busy, 0.95)

    def test_the_best_split_is_told(self):
        costs = heavy_runs(640, 16)
        setup = setup_for(costs)
        best = papers.simulate("minato", costs, setup).seconds
        splits = [dataclasses.replace(setup, slow_workers=slow) for slow in range(1, 12)]
        tried = [papers.simulate("minato", costs, split).seconds for split in splits]
        self.assertEqual(best, min(tried))
        self.assertGreater(max(tried), 1.5 * best)


class Draws(unittest.TestCase):
    def test_philox_is_that_of_the_paper(self):
        """Known answers published with the generator."""
        self.assertEqual(papers.philox((0, 0, 0, 0), (0, 0)), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8))
        ones = 0xFFFFFFFF
        self.assertEqual(papers.philox((ones,) * 4, (ones,) * 2), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD))

    def test_a_fifth_is_hit(self):
        self.assertAlmostEqual(sum(papers.hashed_unit(i) < 0.2 for i in range(4000)) / 4000, 0.2, delta=0.02)
        self.assertEqual([i for i in range(10) if papers.is_hit(i, 0.4, 2)], [0, 1, 5, 6])


if __name__ == "__main__":
    unittest.main()
