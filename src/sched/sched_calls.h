/* SPDX-License-Identifier: Apache-2.0
 * What the files of this room call of each other, by file. Comes with sched_priv.h, whose types it
 * needs. */
#ifndef PSTI_SCHED_SCHED_CALLS_H
#define PSTI_SCHED_SCHED_CALLS_H

#ifndef PSTI_SCHED_SCHED_PRIV_H
#error "include sched/sched_priv.h"
#endif

/* Samples come from elsewhere than a disk: they are never read by the worker that takes them. */
static inline bool feed_sends_ahead(const psti_feed *feed)
{
    return feed->fetches || feed->far;
}

/* block.c */
int layout_make(psti_feed *feed, layout *out, pst_error *err);
void block_free(pst_batch *block);
pst_batch *block_take_locked(psti_feed *feed, run *r, int64_t step, int slots);
void block_drop_locked(psti_feed *feed, pst_batch *block); /* back to the free list, or gone */
int block_ring_locked(psti_feed *feed);                    /* makes every block of the ring */
int64_t block_samples_max_locked(const psti_feed *feed);   /* dispatched and not delivered */
uint8_t *block_slot(const pst_batch *block, const layout *l, int output, int slot);
/* fields: of a batch of varying shape; NULL = the layout's. Nothing is read back from the block:
 * whoever else has it mapped may write to it. */
void block_seal(pst_batch *block, const psti_feed *feed, const pst_field *fields);
int ring_new(psti_feed *feed, ring **out);
void ring_detach(ring *r); /* the feed closes */
void ring_unref(ring *r);

/* pages.c */
int pages_take(psti_feed *feed, size_t bytes, pages *out); /* without the lock; 0 or -ENOMEM */
void pages_give(const psti_feed_hooks *hooks, pages *p);
void pages_keep_locked(psti_feed *feed, pages *p); /* for the next batch, or gone */
void pages_free_all_locked(psti_feed *feed);

/* record.c */
record *record_take_locked(psti_feed *feed);
void record_drop_locked(psti_feed *feed, record *rec);
void record_free_all(psti_feed *feed);
void record_count_locked(psti_feed *feed, record *rec);
int record_fill(record *rec, psti_feed *feed, const task *t, worker *w, uint64_t most);
void record_write(const record *rec, psti_feed *feed, worker *w, pst_batch *block, int slot);
int gather_seal(pst_batch *block, psti_feed *feed, worker *w, pst_error *err);

/* held.c: memory of large samples that stays with a worker */
/* After a sample that had so much of extra: clears the worker's work, holds or gives back bytes. */
void held_settle(worker *w, uint64_t extra);
/* Gives up what is held; nothing of a sample may be in it. */
void held_drop(worker *w);
/* The same for an idle worker where somebody waits for bytes; lets go of the lock then. */
bool held_drop_unwelcome_locked(worker *w);
/* What is held is a sample's from now on: answers how much. */
uint64_t held_pass_locked(worker *w);
/* So many bytes for a sample out of what is held, and what is free; else nothing is held any more.
 */
bool held_cover(worker *w, uint64_t bytes, uint64_t *extra);

/* own.c: a batch for each worker */
bool own_batches(const psti_feed *feed);
/* The batch that the worker goes on with, or a new one of the run; false: not now. */
bool own_open_locked(psti_feed *feed, run *r, worker *w);
int64_t own_share(const run *r, const pst_batch *own); /* of the next slot */
bool own_goes_on(const psti_feed *feed, const worker *w);
void own_cancel_locked(const run *r);

/* mix.c */
void mix_batch(const psti_feed *feed, pst_batch *block);

/* run.c */
/* Needs no lock, and may take a second for a million samples. A feed has at most two runs: the
 * caller sees to it that it is wanted, and begins it. */
run *run_new(psti_feed *feed, uint64_t number, const psti_state *from, pst_error *err);
void run_begin_locked(run *r);
void run_unref_locked(run *r);
void run_cancel_locked(run *r);
void run_settled_locked(run *r, int64_t samples); /* delivered or bad */
void run_fail_locked(run *r, const pst_error *err);
bool run_dispatched_all(const run *r);
int64_t run_next_share(const run *r); /* the share index that is sent out next */
int64_t run_position(const run *r, int64_t share, bool *valid);
bool run_goes_on(const run *r, int64_t share);
pst_batch *run_check_end_locked(run *r);
void batch_publish_locked(pst_batch *block, int64_t last_id);
int run_note_skip_locked(run *r, int64_t position, int64_t share);

/* place.c: how finished samples get their slots */
void place_sample(worker *w, task *t);
void place_bad(worker *w, task *t, pst_error *err);
/* Lets go of what stands on a shelf where a consumer asked for it; true when one had. */
bool place_stuck_locked(psti_pool *pool, worker *w);

/* shelf.c: finished samples that wait for others of their bucket */
int shelf_open(run *r); /* 0 or -ENOMEM */
int64_t shelf_count(const run *r);
void shelf_put_locked(run *r, record *rec, const task *t);
/* The next one that is to have a slot; NULL when none is. Whoever takes one takes all. */
record *shelf_take_locked(run *r);
void shelf_clear_locked(run *r);
/* The consumer waits: has a worker look, if that could help. */
void shelf_ask_locked(psti_feed *feed);
/* For a worker without work: what other feeds staged may have left a shelf stuck whose consumer
 * waits already; true when one is. */
bool shelf_look_locked(psti_pool *pool);

/* task.c */
/* For a worker, or ahead of any: NULL. */
task *task_aim_locked(psti_feed *feed, worker *w);
task *task_aim_early_locked(psti_feed *feed, run *r, int64_t share); /* before its turn */
/* Makes an epoch that was asked for, if any was; lets go of the lock meanwhile. */
bool task_make_epoch_locked(psti_pool *pool);
void task_runnable_locked(task *t); /* its bytes are there, or it is for a worker to fetch them */
/* False when the task was sent off again to be read. */
bool task_run(worker *w, task *t);
int task_start_work(worker *w, const task *t, pst_error *err);
/* Bytes beyond keep that the started work needs; *extra counts them. */
int task_take_extra(worker *w, uint64_t *extra, pst_error *err);
void task_steps(worker *w, const task *t); /* before each step of its work */
void task_done_locked(task *t);
/* Whether the feed's next sample could be sent out, as far as order and room for batches go. */
bool task_next_waits_locked(psti_feed *feed);
/* Whether one more sample of the run may be started. */
bool task_may_start_locked(psti_feed *feed, const run *r);
void task_count_stages_locked(worker *w, psti_feed *feed);
void task_count_locked(worker *w,
                       task *t); /* statistics; before the sample's batch can be published */

/* window.c: nobody is overtaken by more than R */
int window_open(psti_feed *feed);                         /* 0 or -ENOMEM */
uint64_t window_start_locked(psti_feed *feed);            /* one more was started: its number */
void window_done_locked(psti_feed *feed, uint64_t start); /* it is delivered, or bad */
bool window_has_room_locked(const psti_feed *feed);       /* another may start */
/* Whether it may have been overtaken by such a part of R. */
bool window_passed_locked(const psti_feed *feed, uint64_t start, double part);

/* tuner.c */
void tuner_open(psti_pool *pool);
bool tuner_lets_work_locked(const psti_pool *pool); /* one more worker */
void tuner_begins_locked(psti_pool *pool, uint64_t now);
void tuner_ends_locked(psti_pool *pool, uint64_t now);
void tuner_waits_locked(psti_feed *feed); /* its consumer does */
void tuner_look_locked(psti_feed *feed);  /* a batch of it was handed over */

/* turn.c: whose turn it is */
task *turn_take_locked(psti_pool *pool, worker *w);

/* lane.c: slow samples leave the fast lane */
enum { LANE_PARKED = 2 };
void lane_open(psti_feed *feed);
uint64_t lane_cut_off(const psti_hist *costs); /* UINT64_MAX: there is no slow lane */
/* After a stage with more to come: true when the worker put the sample aside and has nothing more
 * to do with it. */
bool lane_leaves(worker *w, task *t);
void lane_resume(worker *w, task *t); /* the worker has the work that was put aside */
/* A finished sample wants its slot: true when it may have one now, false when it was put aside. */
bool lane_admits(worker *w, task *t);
void lane_end_locked(task *t);
void lane_learn_locked(psti_feed *feed, const task *t); /* from a sample that is done */
void lane_pace_locked(psti_feed *feed);                 /* a batch was handed over */
void lane_cancel_locked(run *r);
bool lane_has_slack_locked(const psti_feed *feed);
void lane_put_locked(task *t);  /* a sample nobody began with goes to the slow lane */
void lane_away_locked(task *t); /* the worker sent it off to be read */
void lane_back_locked(task *t); /* it was */
/* What a worker takes next of the feed: finished samples that there is room for, and those that
 * nobody wants any more; slow ones that go before fast ones; slow ones when nothing else is left.
 */
typedef enum lane_turn { LANE_ENDS, LANE_FIRST, LANE_LAST } lane_turn;
task *lane_take_locked(psti_feed *feed, lane_turn turn);
/* Samples in batches, not handed over. */
static inline int64_t feed_ready(const psti_feed *feed)
{
    const int64_t ready = feed->outstanding - feed->inflight;
    return ready > 0 ? ready : 0;
}
/* Samples that are ready, or will be without having been slow, or only wait for room. To the epoch
 * that the consumer is in the next one's do not count: they may have taken all the room before it
 * showed that one sample more is needed. */
static inline int64_t lane_outstanding(const psti_feed *feed, const run *r)
{
    if (r == feed->runs)
        return r->outstanding - r->aside + r->held;
    return feed->outstanding - feed->lanes.aside + feed->lanes.held_count;
}
/* Whether anything is under way that will come to an end without a consumer's doing. Reads of
 * look-ahead that were given up do, too, see ahead_ending. */
static inline bool pool_moves_locked(const psti_pool *pool)
{
    return pool->inflight > pool->parked;
}

/* A task ended or was put aside: tells who waits for room until nothing moves. */
static inline void pool_rests_locked(psti_pool *pool)
{
    if (pool->opening && !pool_moves_locked(pool))
        pthread_cond_broadcast(&pool->room);
}

/* foresight.c: slow samples are known before they start */
void foresight_open(psti_feed *feed);
void foresight_close(psti_feed *feed);
void foresight_begin(run *r);
void foresight_note(task *t);
void foresight_learn_locked(psti_feed *feed, const task *t);
bool foresight_slow_locked(task *t);
void foresight_scout_locked(run *r); /* sends out early what will be slow */
void foresight_skip_locked(run *r);
bool foresight_sent_locked(const run *r, int64_t share); /* early */

/* reading.c: stored bytes */
int read_aim_locked(task *t); /* finds and reserves: 1, 0 = not now, or negative */
/* The same again, for a task that is under way: it must have the room. */
int read_find_again_locked(task *t);
void read_go_locked(task *t);   /* sends what was found; makes it runnable where that is nothing */
void read_rest_locked(task *t); /* the same, or leaves it to the worker */
void task_send_locked(task *t);
void task_shed_locked(psti_pool *pool, const task *but); /* idle tasks' buffers go */
void task_release_bytes_locked(psti_pool *pool, task *t);
void read_look_first(task *t);
bool read_here(task *t);
bool read_again(task *t, int status, pst_error *err);
bool read_is_whole(const task *t);
/* Of pulled files that turned out to be gone or damaged: true if they were fetched again, or if the
 * bucket is read in their place from now on. Waits. */
bool read_mend(task *t, int status, pst_error *err);
void read_cancel_locked(const run *r);
void read_describe_failure(const task *t, int status, pst_error *err);

/* value.c: labels and other values, and writing a sample into its slot */
int value_check(const task *t, pst_error *err);
int value_of(const psti_feed *feed, int field, const task *t, const void **value, size_t *bytes);
/* Bytes that a sample's value takes in a batch, and writing it there. */
int value_bytes(const psti_feed *feed, int output, const task *t, size_t *bytes);
/* The shape of a value of so many bytes. */
void value_shape(const psti_plan_output *out, size_t bytes, int64_t *shape);
void value_write(const psti_feed *feed, int output, const task *t, uint8_t *dst);
/* Whether an output is made of bytes that are read, not of a value of the listing. */
bool output_read(const psti_feed *feed, int output);
/* Values that the plan works on, as inputs of the sample. */
void value_inputs(task *t);
void write_outputs(const psti_feed *feed, const task *t, worker *w, pst_batch *block, int slot);

/* fetch.c: samples that the caller's function brings */
int fetch_aim_locked(task *t); /* as reserving bytes: 1, 0 = not now, or negative */
void fetch_send(task *t);
bool fetch_worth_retrying(int status);
void fetch_again(task *t);
void fetch_drop(task *t); /* lets go of what came; no lock held */
void fetch_drop_locked(task *t);
void fetch_free(task *t);
/* What came for a value field; false when nothing did. */
bool fetch_value(const psti_feed *feed, int field, const task *t, const void **value,
                 size_t *bytes);

/* feed.c */
void cancel_all_locked(psti_feed *feed);
void feed_wake(psti_feed *feed);
int64_t damage_get(const damage_map *map, int64_t id, int field);
void damage_put(damage_map *map, int64_t id, int field, int64_t row);
void damage_forget(damage_map *map, int64_t id);

/* reading.c */
void read_send_locked(task *t, psti_read *reads, int count);
void pool_reads_cold_locked(psti_pool *pool); /* for a while reads are sent ahead */

/* parts.c. open: which inputs of a feed may be; aim: whether this task's are, under the lock; head:
 * bytes of a member to begin with. */
void parts_open(psti_feed *feed);
void parts_aim(task *t);
uint64_t parts_head(const task *t, int input, uint64_t length);
/* The bytes that the work in hand, just started, is known to use. 0: they are there; LANE_PARKED:
 * they were sent for, the work is cleared, and the task is another's; negative: err says why. */
int parts_bring(worker *w, task *t, pst_error *err);
/* The same between two stages, for what is known only then; waits. */
int parts_rest(worker *w, task *t, pst_error *err);

/* findings.c. What get answers is good until the lock is let go. */
const psti_note *findings_get(const finding_map *map, int64_t id);
void findings_put(finding_map *map, int64_t id, const psti_note *note);
void findings_forget(finding_map *map, int64_t id);
void findings_fini(finding_map *map);

/* form.c */
enum { PSTI_FORM_PARTS = 17 };
int pool_cache_open(psti_pool *pool, uint64_t bytes, const double forms[3]);
uint64_t pool_cache_held_locked(const psti_pool *pool); /* kept from everything else */
/* What is left for samples on their way: encoded, staged, extra. */
uint64_t pool_rest_locked(const psti_pool *pool);
/* The budget that leaves so much beside the fixed part. */
uint64_t pool_budget_for(const psti_pool *pool, uint64_t fixed, uint64_t rest);
/* What the cache may have follows the fixed part, which is about to grow by `coming`. */
void pool_cache_yield_locked(psti_pool *pool, uint64_t coming);
int form_owner(psti_feed *feed);
void form_find(task *t);
void form_drop(task *t); /* lets go of what was found */
void form_measure(const worker *w, const task *t);
int form_make(worker *w, task *t, uint64_t *extra, pst_error *err);

/* stored.c: samples as they are stored */
int stored_owner(psti_feed *feed);
bool stored_find(task *t, int field); /* under pool->lock; true: the task has the bytes */
void stored_drop(task *t);
void stored_retire(task *t);     /* there is a better form of them now */
void stored_keep(const task *t); /* of what was read */
void reading_begins_locked(psti_pool *pool);
void reading_settle_locked(psti_pool *pool, uint64_t now);
void reading_ends_locked(psti_pool *pool, uint64_t bytes);

/* ---- waits.c --------------------------------------------------------------------------------- */

void waits_begin_locked(psti_feed *feed, uint64_t since); /* its consumer found nothing */
void waits_end_locked(psti_feed *feed);
void waits_first_locked(psti_feed *feed); /* what was waited for so far was start-up */
/* Something that the waits are counted by has changed: a worker's feed, a feed's reads. now: 0 =
 * the clock is looked at if somebody waits. */
void waits_moved_locked(psti_pool *pool, uint64_t now);

/* tiers.c: forms and stored bytes outside RAM. A task looks for its decoded form in RAM, on the
 * disk, then member by member for stored bytes in RAM and on the disk; what is left comes from the
 * remote tier or the source. What a tier brings is an envelope, read or answered into memory of the
 * task and opened by the worker; if anything is wrong with it the task goes on as if there were no
 * tiers. */
int tiers_open_pool(psti_pool *pool, const psti_pool_spec *spec, pst_error *err);
void tiers_close_pool(psti_pool *pool);
void tiers_open_feed(psti_feed *feed);
void tiers_close_feed(psti_feed *feed);
void tiers_feeds_changed_locked(psti_pool *pool);
uint64_t tiers_memory(const psti_pool_spec *spec); /* of the budget's fixed part */
void tiers_begin(task *t);                         /* a new sample: nothing was looked at */
void tiers_free(task *t);
/* Looks for the decoded form; then the caller looks at t->form_from. */
void tiers_aim_locked(task *t);
/* Where an input's stored bytes are: TIER_DISK with *at to be read, TIER_REMOTE (answered). */
tier tiers_member_locked(task *t, int input, psti_extent *at);
psti_extent tiers_form_extent(const task *t); /* form_from is TIER_DISK */
void tiers_aimed_locked(task *t);             /* the rest is known: whether to ask for it */
void tiers_place(task *t, int slot, const uint8_t *packed); /* it will be read to there */
/* Opens what came. False: some of it is of no use, and tiers_bypass is to follow, which finds out
 * what is read instead. */
bool tiers_open(task *t);
void tiers_bypass(task *t);
/* The form is none of this plan's after all: as after tiers_open. */
void tiers_refuse_form(task *t);
/* It is: what was found further away is kept nearer, where there is room for it. */
void tiers_promote(task *t);
/* Keeping: whether the decoded form, of which the work knows the size, is wanted; the form of the
 * work in hand; the stored bytes that were read from the source. */
bool tiers_want_form(task *t, const psti_cache_content *content);
void tiers_keep_form(task *t, const psti_cache_content *content);
void tiers_keep_members(const task *t);
void tiers_count_locked(psti_feed *feed, const task *t);
void tiers_stats_locked(const psti_feed *feed, pst_job_stats *out);
/* Whether the decoded form is there, in RAM or from a tier. */
static inline bool task_has_form(const task *t)
{
    return t->cached || t->form_from;
}
static inline bool read_from_tier(const task *t, int read)
{
    return t->load && t->load->part[t->read_field[read]].from != TIER_NONE;
}

/* asking.c: the remote tier's part in this. tiers.c calls these and nothing else of it; without a
 * remote tier they do nothing.
 *
 * The asynchronous step "ask the remote tier, then read the source": tiers_aimed_locked sets
 * t->asks if ask_wanted_locked says so. Such a task is not read; whoever would have (the worker, or
 * dispatch ahead of any) calls ask_send_locked instead, and the task is nobody's. When all answers
 * are there, for a preparation of another engine (slot TIER_SHARED), else for the form (TIER_FORM),
 * else for members by input, asking.c fills in
 * t->load->part[slot] = {TIER_REMOTE, key, packed, size} for those that are hits, packed in memory
 * that it keeps for the task (64-aligned, 64 readable bytes behind it, counted in the encoded part
 * of the budget as fetch.c counts), and calls tiers_answered, from its own thread with no lock
 * held: that finds what is left to read and sends it, or makes the task runnable. An answer that
 * does not come in time is a miss; every task that asks is answered exactly once. The worker opens
 * the envelopes (tiers_open); ask_wrong is told what was of no use. ask_end_locked: the task is
 * done, what was claimed for it and not put will not come, its memory may go. */
/* queue: bytes that may be held to be sent */
int ask_open_pool(psti_pool *pool, const char *url, uint64_t queue, int workers, pst_error *err);
void ask_hurry_locked(const psti_pool *pool); /* a worker has nothing to do */
void ask_close_pool(psti_pool *pool);
bool ask_wanted_locked(task *t);
void ask_send_locked(task *t);
void ask_wrong(task *t, int slot);
/* Whether putting the decoded form there makes sense: it is not known to be there. */
bool ask_wants_form(const task *t, size_t packed);
void ask_keep_form(task *t, const psti_cache_content *content);
void ask_keep_member(const task *t, int input);
/* Lending preparations: whether the server can; one that may be taken for so long, empty: a note
 * that one was. */
bool ask_lends(const psti_pool *pool);
void ask_lend(const task *t, const psti_cache_content *content, uint64_t life_ms);
void ask_end_locked(task *t);
void ask_free(task *t);
void ask_stats(const psti_pool *pool, pst_job_stats *out); /* of the engine */
void ask_look(const psti_pool *pool, psti_view_remote *out);
int ask_health(const psti_pool *pool);       /* PSTI_TIER_… */
double ask_bandwidth(const psti_pool *pool); /* bytes a second; 0: no tier, or not measured */
double ask_handling(const psti_pool *pool);  /* CPU seconds of a byte */
void tiers_answered(task *t);
psti_cache_key tiers_form_key(const task *t);
psti_cache_key tiers_member_key(const task *t, int input);

/* pays.c: whether the remote tier is worth it. Any thread for the last four; the others under the
 * lock. */
void pays_open(psti_feed *feed);
pays_clock pays_now(const psti_feed *feed); /* zeroes where nobody will ask */
pays_clock pays_since(const psti_feed *feed, const pays_clock *then); /* what it took */
void pays_took_locked(psti_feed *feed, const task *t);                /* once its time is known */
double pays_found(const psti_feed *feed);   /* of the samples not in RAM, in decoded form */
double pays_fetch_s(const psti_feed *feed); /* CPU seconds of getting one */
bool pays_asking(const task *t);            /* this one's form is asked for */
bool pays_keeping(const task *t);           /* and stored */
bool pays_members(const task *t);
double pays_move_s(const psti_pool *pool, double bytes); /* CPU seconds of getting or storing */

/* ahead.c: what comes next is asked of buckets before there is a task for it */
void ahead_open(psti_feed *feed);
void ahead_close_locked(psti_feed *feed); /* nothing is on its way any more */
void ahead_pump_locked(psti_feed *feed);
void ahead_cancel_locked(const run *r);
/* The input's bytes are there or on their way: they are the task's until it ends. */
bool ahead_find_locked(task *t, int input);
uint8_t *ahead_bytes(const task *t);
/* In place of reading: false when they are on their way and read is told; else how it went. */
bool ahead_submit_locked(task *t, psti_read *read, int *status);
void ahead_end_locked(task *t);
void ahead_back_locked(task *t);       /* the task is not sent out after all */
void ahead_sent_locked(const task *t); /* it is, and what was not found for it is of no use */
/* Gives back memory of any feed, one buffer: an idle one, else (fetched) what is furthest away.
 * False: there is nothing more. What is on its way is only in pool->ahead_ending yet; when it is
 * there, workers and who waits for room are told. */
bool ahead_yield_locked(psti_pool *pool, bool fetched);
void ahead_waits_locked(psti_feed *feed, uint64_t now); /* its consumer does */
void ahead_look_locked(psti_feed *feed, uint64_t now);  /* a batch of it was handed over */

/* group.c: jobs that share preparations */
int group_join(psti_feed *feed, pst_error *err);
void group_leave_locked(psti_feed *feed);
int group_others(const run *r, uint8_t **out); /* run.others; needs no lock. 0 or -ENOMEM */
void group_epoch_locked(run *r);               /* the run's epoch begins */
/* The feed goes on from a state: it may have consumed what is there now. */
int group_return_locked(psti_feed *feed, pst_error *err);
bool group_pick_locked(run *r);        /* chooses what is sent out next; false: not now */
void group_unpick_locked(run *r);      /* what was chosen will not be sent out */
void group_aim_locked(task *t);        /* the task takes what was chosen */
psti_rng_key group_key(const task *t); /* of the draws of a shared preparation */
void group_offer(worker *w, task *t);  /* what was prepared, to the others */
void group_end(task *t);               /* a preparation that was not offered comes to nothing */
/* Across engines, through the remote tier. The key of the sample's preparations there; whether to
 * ask for one before it is made here; what was found: whether others had a part in it. */
psti_cache_key group_outside_key(const task *t);
bool group_borrows_locked(const task *t);
void group_heard(const task *t, bool others);
/* How much each group takes a second, and how far its feeds are apart. */
void group_rates_locked(const psti_pool *pool);

/* look.c: what those who look on are shown; the pool's lock is held but for the first. */
void look_open(psti_feed *feed);
void look_begin_locked(psti_feed *feed);                     /* a place among the totals */
void look_end_locked(psti_feed *feed);                       /* into the totals of its dataset */
void look_bad_locked(psti_feed *feed, const pst_error *err); /* among the last bad samples */
/* the consumer, for a batch (psti_trace_step; -1: nobody knows which) */
void look_waited_locked(psti_feed *feed, int64_t batch, uint64_t wait_ns);
void look_task_locked(psti_feed *feed, const task *t); /* how long it took, what it read */

/* tracing.c: nothing is done where there is no trace. Those of a worker put to its own ring. */
int trace_open_worker(worker *w, int number);
void trace_open_feed(psti_feed *feed);
void trace_put_locked(const psti_feed *feed, psti_trace_kind kind, int what, int64_t id,
                      uint64_t span);
void trace_put_at_locked(const psti_feed *feed, psti_trace_event *event);
void trace_batch_locked(const pst_batch *block, psti_trace_kind kind, uint64_t span);
void trace_wait_locked(psti_feed *feed, int64_t batch, uint64_t wait_ns);
void trace_reads_locked(const task *t);
void trace_slice(worker *w, int stage, int64_t id, uint64_t since_ns, uint64_t until_ns);
void trace_visit(worker *w, const task *t, bool ended, uint64_t since_ns, uint64_t until_ns);
static inline void trace_about(worker *w, const psti_feed *feed, int64_t id)
{
    w->at_job = feed->trace_job;
    w->at_id = id;
    w->at_bad = false;
}

/* worth.c */
static inline void running_mean(double *of, double value)
{
    *of = *of > 0 ? *of + (value - *of) / 64 : value;
}
/* What the model is asked with, of this feed alone. */
void worth_input_locked(const psti_pool *pool, const psti_feed *feed, struct psti_model_input *in);
/* Bytes for augmented entries of a group as the model plans them. */
uint64_t worth_plan_locked(const psti_pool *pool, const group *g, double entry_bytes,
                           double spread);
uint64_t group_targets_locked(const psti_pool *pool);   /* of all groups */
void worth_took_locked(psti_feed *feed, const task *t); /* once its time is known */
void worth_update_locked(psti_pool *pool);

/* pool.c */
void pool_pump_locked(psti_pool *pool);
void pool_pump_unlock(psti_pool *pool);
void pool_signal_locked(psti_pool *pool);
uint64_t pool_encoded_max_locked(const psti_pool *pool);
uint64_t pool_staged_max_locked(const psti_pool *pool);
uint64_t pool_extra_max_locked(const psti_pool *pool);
/* Bytes beyond keep for one sample; blocks until there is room. 0 or PST_EBUDGET with err filled.
 */
int pool_extra_take(psti_pool *pool, uint64_t bytes, pst_error *err);
/* `more` on top of the `held` that a sample has; does not wait. PST_EBUDGET where no sample may
 * have so much. */
int pool_extra_force(psti_pool *pool, uint64_t held, uint64_t more, pst_error *err);
void pool_extra_give(psti_pool *pool, uint64_t bytes);
/* So many bytes if they are there and nobody waits for some. */
bool pool_extra_try_locked(psti_pool *pool, uint64_t bytes);
/* Where the pool is clocked: when work on a sample begins, and that it ended. */
double worker_begin(const worker *w);
void worker_end(worker *w, double since);
/* Bytes for as long as a feed lives; false when they do not fit. */
bool pool_fixed_take_locked(psti_pool *pool, uint64_t bytes);
void pool_fixed_give_locked(psti_pool *pool, uint64_t bytes);

/* ---- stall.c --------------------------------------------------------------------------------- */

void stall_open(psti_feed *feed);
/* The consumer found nothing: tells what it waits for, if that took long. No lock is held. When to
 * look again; 0 = not. */
uint64_t stall_look(psti_feed *feed);

static inline void worker_does(worker *w, int what, uint64_t since_ns)
{
    atomic_store_explicit(&w->doing, what, memory_order_relaxed);
    atomic_store_explicit(&w->doing_ns, since_ns, memory_order_relaxed);
}

#endif
