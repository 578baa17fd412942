"""What the source documents say of a job, one test for each sentence: who it is, and in which order its events count.

In the frames in which they say it, and with the numbers of the cases that we collected from them. Each story is told to
the model and to the script on a real Redis. What is said of sending is in test_sources_order.py, of a producer in
test_sources_producer.py, of what is kept in test_sources_kept.py, of the job list in test_sources_list.py, of those
who trust each other in test_sources_trust.py.

Whom a sweep selects (29, 32, 34, 36) is in test_sources_sweep.py. Not here at all: 70 (a node is its name), 77-83
(rankings and reservations that are sent around: one dispatcher places, see tests/roles/test_dispatcher*), 84-87 (an
HTTP proxy between a request and its node).
"""

from __future__ import annotations

import json

import pytest

from broker.client import Broker
from broker.config import settings
from broker.errors import Invalid
from broker.roles.load import Load
from broker.rules.bounds import Bounds
from broker.rules.placement import NodeLoad, choose
from broker.rules.wire import parse_event
from broker.store.view import View
from tests.store.story import CREATED
from tests.store.twins import key
from tests.system.sources import Source, frame


class TestOrder:
    def test_01_a_delayed_event_does_not_move_the_job_back_to_a_node_it_left(self, source):
        source.say("queued", "a", 1)
        source.say("queued", "b", 2)
        assert source.say("queued", "a", 1) == "refused stale_seq"
        assert source.now_is() == ("queued", "b", 2)

    def test_02_a_running_job_may_be_queued_again_on_another_node(self, source):
        source.say("running", "a", 3)
        assert source.say("queued", "b", 4) == "applied higher_seq"
        assert source.now_is() == ("queued", "b", 4)

    def test_03_a_late_running_of_the_node_it_left_is_refused(self, source):
        source.say("queued", "b", 4)
        assert source.say("running", "a", 3) == "refused stale_seq"

    def test_04_nothing_follows_the_terminal_word_even_with_a_higher_number(self, source):
        source.say("completed", "a", 5)
        assert source.say("queued", "b", 6) == "refused terminal"
        assert source.now_is() == ("completed", "a", 5)

    def test_05_a_repeat_is_no_change_but_a_sighting(self, source):
        source.say("running", "a", 2)
        before = source.record()
        source.wait(60_000)
        assert source.say("running", "a", 2) == "duplicate no_change"
        after = source.record()
        assert (after.last_seen - before.last_seen, after.rev) == (60_000, before.rev)

    def test_05_a_delayed_lower_number_is_a_sighting_as_well(self, source):
        source.say("running", "a", 2)
        source.wait(60_000)
        source.say("queued", "", 1)
        assert source.record().last_seen == source.now

    def test_06_without_numbers_running_does_not_become_queued_elsewhere(self, source):
        source.say("running", "a")
        assert source.say("queued", "b") == "refused lower_rank"

    def test_07_a_number_on_one_side_only_leaves_it_to_the_rank(self, source):
        source.say("running", "a")
        assert source.say("queued", "a", 4) == "refused lower_rank"

    def test_08_a_higher_rank_without_a_number_is_taken(self, source):
        source.say("queued", "a", 4)
        assert source.say("running", "a") == "applied higher_rank"

    def test_13_failed_first_and_running_after_stays_failed(self, source):
        source.say("failed", "a")
        assert source.say("running", "a") == "refused lower_rank"

    def test_14_running_then_failed_is_failed(self, source):
        source.say("running", "a")
        assert source.say("failed", "a", error="out of memory") == "applied higher_rank"
        assert source.record().error == "out of memory"

    def test_18_the_same_placement_is_no_news_and_another_one_is(self, source):
        source.say("running", "a")
        assert source.say("running", "a") == "duplicate no_change"
        assert source.say("running", "b") == "applied repoint"

    def test_19_cancelled_is_an_end_of_its_own_and_no_longer_live(self, source):
        source.say("running", "a", 1)
        assert source.say("cancelled", "a", 2) == "applied higher_seq"
        assert source.now_is() == ("cancelled", "a", 2)
        assert source.twin.books().live == {}

    def test_a_first_sighting_may_be_the_end(self, source):
        assert source.say("completed", "a", 4) == "applied first_sighting"
        assert source.say("running", "a", 3) == "refused terminal"

    def test_a_failover_stream_is_taken_step_by_step(self, source):
        nodes = ["", "a", "a", "b", "b", "b"]
        states = ["queued", "queued", "running", "queued", "running", "completed"]
        stream = zip(states, nodes, strict=True)
        told = [source.say(state, node, seq) for seq, (state, node) in enumerate(stream, 1)]
        assert told == ["applied first_sighting"] + ["applied higher_seq"] * 5

    def test_numbers_that_are_missing_are_not_waited_for(self, source):
        source.say("queued", "a", 1)
        assert source.say("completed", "a", 9) == "applied higher_seq"


class TestGenerations:
    def test_15_a_newer_generation_replaces_even_an_ended_one(self, source):
        source.say("completed", "a", 5, createdAt=CREATED)
        assert source.say("running", "b", 1, createdAt=CREATED + 100) == "applied newer_generation"
        assert source.now_is() == ("running", "b", 1)

    def test_16_an_older_generation_is_refused_whatever_it_says(self, source):
        source.say("running", "a", createdAt=CREATED + 100)
        assert source.say("completed", "a", createdAt=CREATED) == "refused older_generation"

    def test_17_generation_comes_before_who_said_it(self, source):
        source.say("running", "a", 2, createdAt=CREATED + 100)
        source.guess()
        assert source.say("running", "a", 9, createdAt=CREATED) == "refused older_generation"
        assert source.now_is() == ("failed~", "a", 2)

    def test_17_a_guess_on_an_older_generation_is_refused(self, source):
        source.say("running", "a", 2, createdAt=CREATED)
        old = source._swept() | {"last_seen": source._last_seen()}
        source.say("running", "b", 1, createdAt=CREATED + 100)
        assert source.guess(**old) == "refused guess_outdated"

    def test_28_neither_an_older_generation_nor_a_guess_is_a_sighting(self, source):
        source.say("running", "a", 2)
        seen = source.record().last_seen
        source.wait(60_000)
        source.say("running", "a", 9, createdAt=CREATED - 1)
        source.guess()
        assert source.record().last_seen == seen


class TestGuesses:
    def test_09_a_guess_is_an_inferred_end(self, source):
        source.say("running", "a", 3)
        assert source.guess() == "applied guess_applied"
        assert source.now_is() == ("failed~", "a", 3)

    def test_10_the_origins_repeat_of_what_it_said_clears_the_guess(self, source):
        source.say("running", "a", 3)
        source.guess()
        assert source.say("running", "a", 3, resync=True) == "applied guess_cleared"
        assert source.now_is() == ("running", "a", 3)

    def test_11_an_event_older_than_the_guess_does_not(self, source):
        source.say("queued", "a", 1)
        source.say("queued", "b", 2)
        source.guess()
        assert source.say("queued", "a", 1) == "refused older_than_guess"
        assert source.now_is() == ("failed~", "b", 2)

    def test_12_a_newer_one_does(self, source):
        source.say("queued", "b", 2)
        source.guess()
        assert source.say("running", "b", 3) == "applied guess_cleared"
        assert source.now_is() == ("running", "b", 3)

    def test_20_what_has_ended_is_not_guessed_at(self, source):
        source.say("completed", "a", 4)
        assert source.guess() == "refused terminal"

    def test_21_the_origins_end_replaces_the_guess(self, source):
        source.say("running", "a")
        source.guess()
        assert source.say("completed", "a") == "applied guess_cleared"
        assert source.now_is() == ("completed", "a", 0)

    def test_30_an_origin_that_speaks_after_it_was_selected_is_not_guessed_at(self, source):
        source.say("running", "a", 2)
        selected = source._swept() | {"last_seen": source._last_seen()}
        source.wait(1)
        source.say("running", "a", 2)
        assert source.guess(**selected) == "refused guess_outdated"
        assert source.guess() == "applied guess_applied"

    def test_31_a_guess_does_not_bring_a_removed_job_back(self, source):
        source.say("running", "a", 2)
        selected = source._swept() | {"last_seen": source._last_seen()}
        source.take_away()
        assert source.guess(**selected) == "refused tombstoned"
        assert source.jobs == []

    def test_33_a_wrong_guess_unsticks_and_the_end_lands(self, source):
        source.say("running", "a", 2)
        source.guess()
        assert source.say("running", "a", 2) == "applied guess_cleared"
        assert source.say("completed", "a", 3) == "applied higher_seq"

    def test_35_a_guess_keeps_the_number(self, source):
        source.say("running", "a", 7)
        source.guess()
        assert source.record().seq == 7

    def test_a_second_guess_is_no_news(self, source):
        source.say("running", "a", 2)
        source.guess()
        assert source.guess() == "refused guess_outdated"


class TestIdentity:
    def test_22_the_same_id_at_two_origins_is_two_jobs(self, store):
        view = View(store)
        for origin in ("desk", "nas"):
            view.apply([parse_event(frame("running", "a", 1, originatedFrom=origin))])
        view.apply([parse_event(frame("completed", "a", 2, originatedFrom="nas"))])
        states = {
            origin: view.get(key()._replace(origin=origin)).state for origin in ("desk", "nas")
        }
        assert states == {"desk": "running", "nas": "completed"}

    def test_23_the_same_id_on_two_engines_is_two_jobs(self, source):
        source.say("running", "a", 5)
        assert source.say("queued", "", 1, engine="lmstudio") == "applied first_sighting"
        assert source.jobs == ["desk/lmstudio//7", "desk/ollama//7"]

    def test_24_the_same_id_in_a_new_run_is_another_job_and_both_are_kept(self, source):
        source.say("running", "a", 5, runId="r1")
        assert source.say("queued", "", 1, runId="r2") == "applied first_sighting"
        assert source.jobs == ["desk/ollama/r1/7", "desk/ollama/r2/7"]

    @pytest.mark.parametrize(
        "wrong", [{"id": ""}, {"originatedFrom": ""}, {"id": None}, {"originatedFrom": None}]
    )
    def test_25_without_id_or_origin_it_is_refused_and_nothing_stored(self, wrong, store):
        with Broker(store, settings(node="desk")) as broker:
            [outcome] = broker.report_many([frame("running", "a", 1, **wrong)])
            assert (outcome.outcome, outcome.rule) == ("refused", "invalid")
            assert (broker.jobs(), broker.origins()) == ([], [])

    def test_26_live_jobs_are_listed_by_their_creation_and_ended_ones_apart(self, source):
        for id, at, state in (("1", 30, "running"), ("2", 10, "queued"), ("3", 20, "completed")):
            source.say(state, "a", 1, id=id, createdAt=CREATED + at)
        books = source.twin.books()
        assert [job.id for job in sorted(books.live, key=books.live.get)] == ["2", "1"]
        assert [job.id for job in books.done] == ["3"]

    def test_88_the_same_number_on_two_engines_is_two_lines_of_a_list(self, command, tmp_path):
        frames = [frame("running", "a", 1, engine=name) for name in ("ollama", "lmstudio")]
        file = tmp_path / "frames.jsonl"
        file.write_text("\n".join(map(json.dumps, frames)))
        command.ok("report", file)
        assert sorted(line["key"] for line in command.ok("jobs", "-o", "jsonl").lines) == [
            "desk/lmstudio//7", "desk/ollama//7"
        ]  # fmt: skip


class TestPayload:
    @pytest.mark.parametrize("state", ["queued", "running", "completed", "failed", "cancelled"])
    def test_the_state_is_read_from_the_payload_never_from_the_method(self, source, state):
        source.say(state, "a", 1, method="workload:submitted")
        assert source.now_is()[0] == state

    def test_a_state_outside_the_five_is_refused(self):
        with pytest.raises(Invalid, match="paused"):
            parse_event(frame("paused"))

    def test_unknown_fields_are_carried_untouched(self, store):
        view = View(store)
        extra = {"gpu": {"name": "é", "free": [1.5, 2**60]}, "zeta": None, "alpha": "x" * 200}
        view.apply([parse_event(frame("running", "a", 1, **extra))])
        assert view.spec(key()) == extra
        assert list(view.spec(key())) == list(extra)

    def test_an_unplaced_job_is_not_placed_on_its_origin(self, source):
        source.say("queued", "", 1)
        assert source.record().node == ""

    @pytest.mark.parametrize(
        "wrong", [{"createdAt": "yesterday"}, {"seq": 1.5}, {"startedAt": True}]
    )
    def test_a_wrong_type_in_a_known_field_makes_the_whole_event_invalid(self, wrong):
        with pytest.raises(Invalid):
            parse_event(frame("running", "a", **wrong))

    def test_started_at_is_cleared_when_a_job_is_queued_again(self, source):
        source.say("running", "a", 1, startedAt=CREATED + 5)
        source.say("queued", "b", 2, startedAt=None)
        assert source.record().started_at == 0


class TestRepeats:
    def test_51_a_mark_that_was_forgotten_makes_a_repeat_read_as_new(self, twin):
        source = Source(twin(Bounds(answers_max=2, answers_ms_min=0)))
        source.say("queued", "a")
        source.say("queued", "b")
        assert source.say("queued", "a") == "duplicate seen"
        for id in range(4):
            source.say("queued", "a", id=f"other-{id}")
        assert source.say("queued", "a") == "applied repoint"

    def test_52_a_shape_that_comes_again_under_a_new_number_is_no_repeat(self, source):
        told = [source.say("queued", node, seq) for node, seq in (("a", 1), ("", 2), ("a", 3))]
        assert told == ["applied first_sighting", "applied higher_seq", "applied higher_seq"]
        assert source.say("queued", "a", 1) == "refused stale_seq"
        assert source.say("queued", "a", 3) == "duplicate no_change"

    def test_52_without_numbers_such_a_move_is_swallowed_unless_it_is_tagged_resync(self, source):
        for node in ("a", ""):
            source.say("queued", node)
        assert source.say("queued", "a") == "duplicate seen"
        assert source.say("queued", "a", resync=True) == "applied repoint"

    def test_53_a_change_of_the_placement_alone_is_news(self, source):
        source.say("queued", "a")
        assert source.say("queued", "b") == "applied repoint"

    @pytest.mark.parametrize("other", [{"engine": "lmstudio"}, {"runId": "r2"}, {"id": "8"}])
    def test_53_a_repeat_is_one_of_the_very_same_job(self, source, other):
        source.say("queued", "a")
        source.say("running", "a")
        assert source.say("queued", "a", **other) == "applied first_sighting"

    def test_53_removals_and_reports_never_answer_for_each_other(self, source):
        source.say("running", "a")
        assert source.take_away() == "applied removed"
        assert source.say("running", "a", createdAt=source.now + 1) == "applied first_sighting"

    def test_54_a_repeat_tagged_resync_is_not_swallowed(self, source):
        source.say("running", "a", 2)
        source.guess()
        assert source.say("running", "a", 2, resync=True) == "applied guess_cleared"

    def test_a_second_removal_after_a_second_life_is_not_swallowed(self, source):
        source.say("running", "a")
        source.take_away()
        source.wait(10)
        source.say("running", "a", createdAt=source.now)
        source.wait(10)
        assert source.take_away() == "applied removed"
        assert source.jobs == []


class TestRemovals:
    @pytest.mark.parametrize("exact", [{}, {"engine": "ollama"}], ids=["broad", "exact"])
    def test_80_a_removal_that_overtakes_its_update_leaves_no_ghost(self, source, exact):
        assert source.take_away(**exact) == "applied removed"
        assert source.say("running", "a", 2) == "refused tombstoned"
        assert source.say("running", "a", 2, resync=True) == "refused tombstoned"
        assert source.jobs == []

    def test_89_the_broad_form_removes_every_sibling(self, source):
        for engine, run in (("ollama", "r1"), ("ollama", "r2"), ("lmstudio", "r1")):
            source.say("running", "a", 1, engine=engine, runId=run)
        source.say("running", "a", 1, id="8")
        assert source.take_away() == "applied removed"
        assert source.jobs == ["desk/ollama//8"]

    def test_89_the_exact_form_removes_one(self, source):
        for engine in ("ollama", "lmstudio"):
            source.say("running", "a", 1, engine=engine)
        assert source.take_away(engine="ollama", runId="") == "applied removed"
        assert source.jobs == ["desk/lmstudio//7"]

    def test_90_the_removal_of_a_job_nobody_saw_reaches_the_readers(self, source):
        source.take_away()
        assert source.log() == ["remove removed"]


class TestPlacement:
    def test_68_with_one_slot_the_second_job_stays_queued(self):
        busy = NodeLoad("a", slots={"ollama": 1}, taken={"ollama": 1}, jobs=1)
        free = NodeLoad("a", slots={"ollama": 1})
        assert (choose([busy], "ollama"), choose([free], "ollama")) == ("", "a")

    def test_69_a_job_cancelled_while_it_waits_for_a_slot_never_runs(self, source):
        source.submit()
        assert source.cancel() == "applied desired"
        assert source.place() == "refused not_ready"
        assert source.start() == "refused terminal"
        assert source.record().tries == 0

    def test_71_nodes_of_equal_load_are_taken_by_their_names(self):
        nodes = [NodeLoad(name, slots={"ollama": 1}) for name in "cab"]
        assert choose(nodes, "ollama") == "a"

    def test_72_the_least_loaded_node_comes_first_and_pressure_is_load(self):
        loads = {"a": (3, 0), "b": (0, 2), "c": (1, 0), "d": (0, 1)}
        nodes = [NodeLoad(name, {"ollama": 9}, {}, *load) for name, load in loads.items()]
        order = []
        while nodes:
            order.append(choose(nodes, "ollama"))
            nodes = [node for node in nodes if node.name != order[-1]]
        assert order == ["c", "d", "b", "a"]

    def test_73_only_what_is_placed_and_has_not_ended_is_load(self, broker):
        told = [("queued", ""), ("queued", "a"), ("running", "a"), ("completed", "a"), ("cancelled", "b")]  # fmt: skip
        for id, (state, node) in enumerate(told):
            broker.report(frame(state, node, 1, id=str(id)))
        load = load_of(broker)
        assert (load.carried("a"), set(load.busy_nodes)) == (2, {"a"})

    def test_74_jobs_of_all_engines_count_together(self, broker):
        for engine in ("ollama", "lmstudio"):
            broker.report(frame("running", "a", 1, engine=engine))
        assert load_of(broker).carried("a") == 2

    def test_75_76_a_start_where_it_waits_moves_no_load_and_a_repoint_does(self, broker):
        carried = []
        for seq, (state, node) in enumerate((("queued", "a"), ("running", "a"), ("queued", "b")), 1):  # fmt: skip
            broker.report(frame(state, node, seq))
            load = load_of(broker)
            carried.append((load.carried("a"), load.carried("b")))
        assert carried == [(1, 0), (1, 0), (0, 1)]


def load_of(broker):
    """What a dispatcher that takes office now sees."""
    load = Load()
    with broker.watch() as watcher:
        for change in watcher.changes(0):
            load.follow(change, broker.store.clock.now())
    return load
