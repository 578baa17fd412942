--- Decides events of one origin, in order, and writes what each changes: the twin of broker/rules.
-- One atomic step. The first write is one that a full, read-only or unsynced Redis refuses, so that then nothing at
-- all is written; every fixed key is read by type before it, so that no later write fails halfway. An event that
-- meets a damaged key of its own job answers `error`; the others of the batch apply.
-- KEYS
--   log        stream: accepted events
--   meta       hash: epoch floor rev horizon turned_at stale_after term:<role> n:<outcome>:<rule>
--   live       zset: jobs that have not ended
--   done       zset: jobs that have ended
--   ready      zset: jobs that may be placed
--   delayed    zset: jobs that are not yet due
--   ids        zset: id/engine/run of every record
--   gone       zset: tombstones by generation
--   seen       hash: mark -> `rule rev`
--   seen_old   hash: the answers before the last turn
--   job...     for each event in turn: job refused spec result, and out unless it is a report;
--              for remove_pair these five of each sibling
-- ARGV
--   now              epoch ms, Redis's time
--   epoch            what a new log is called
--   tombstones_max   how many tombstones stay
--   answers_max      how many answers make `seen` turn
--   answers_ms_min   how old the last turn must be
--   silence_ms_max   how long a reported job stays without a sighting
--   result_ttl_ms    how long result, output and a completed job's spec outlive the end
--   event...         for each event: kind, job (engine/run/id; for remove_pair the encoded id), its ARGUMENTS;
--                    for remove_pair then the number of siblings and their members of `ids`
-- RETURNS
--   for each event three texts: outcome (applied duplicate refused error again), rule (of error: the reason), rev;
--   `again`: the siblings given are not those of `ids`, nothing was done. Then one more: the log's epoch, by which
--   the caller notices that Redis began anew
-- WRITES
--   all of KEYS; in meta also how many events were answered so, by outcome and rule (n:error: without a rule)

local call, format, find, max = redis.call, string.format, string.find, math.max
local NOW, NOW_TEXT = tonumber(ARGV[1]), ARGV[1]
local EPOCH = ARGV[2]
local TOMBSTONES_MAX, ANSWERS_MAX = tonumber(ARGV[3]), tonumber(ARGV[4])
local ANSWERS_MS_MIN, SILENCE_MS_MAX = tonumber(ARGV[5]), tonumber(ARGV[6])
local RESULT_TTL_MS = ARGV[7]

-- The fields of each kind of event, in the order of rules.event.ARGUMENTS.
local ARGUMENTS = {
  report = {'created_at', 'state', 'node', 'seq', 'started_at', 'completed_at', 'error', 'model', 'requester',
    'resync', 'stale_after', 'extras', 'full', 'event_id', 'by'},
  remove = {'removed_at', 'force', 'rev', 'event_id', 'by'},
  remove_pair = {'removed_at', 'force', 'event_id', 'by'},
  submit = {'created_at', 'digest', 'attempts', 'priority', 'timeout', 'at_most_once', 'due', 'model', 'requester',
    'retry_of', 'spec', 'event_id', 'by'},
  place = {'node', 'rev', 'term', 'event_id', 'by'},
  start = {'created_at', 'attempt', 'node', 'holder', 'worker', 'event_id', 'by'},
  reassert = {'created_at', 'attempt', 'holder', 'event_id', 'by'},
  finish = {'created_at', 'attempt', 'holder', 'state', 'error', 'reason', 'result', 'retryable', 'died', 'due',
    'event_id', 'by'},
  unplace = {'rev', 'term', 'event_id', 'by'},
  guess = {'rev', 'last_seen', 'term', 'error', 'event_id', 'by'},
  requeue = {'rev', 'term', 'due', 'event_id', 'by'},
  lost = {'rev', 'term', 'event_id', 'by'},
  intent = {'desired', 'force', 'event_id', 'by'},
  prune = {'rev', 'last_seen', 'term', 'event_id', 'by'},
}

-- Whose term an event carries, if a leader's.
local ROLE = {
  place = 'dispatcher', unplace = 'sweeper', guess = 'sweeper', requeue = 'sweeper', lost = 'sweeper',
  prune = 'janitor',
}

--- @include "record"
--- @include "books"
--- @include "index"
--- @include "refusals"
--- @include "blobs"
--- @include "report"
--- @include "removal"
--- @include "attempt"

local DECIDE = {
  report = merge_report, remove = merge_remove, submit = submit,
  place = attempt, start = attempt, reassert = attempt, finish = attempt, unplace = attempt, guess = attempt,
  requeue = attempt, lost = attempt, intent = attempt, prune = attempt,
}

-- Write what an applied event made of a record: indexes, log, hash. `after` without `gone` is its new state, `gone`
-- the generation up to which the job is gone, with `after` the last word before that. Returns the last rev.
local function write(event, keys, before, after, gone)
  list(event.job, before, not gone and after or nil)
  local rev
  if after then
    local base = before and before.created_at == after.created_at and before or nil
    rev = log_record(event, base, after)
    if not gone then
      local is_anew = before and not base
      if is_anew then call('DEL', keys.job) end
      store_changes(keys.job, base, after, rev, event.kind == 'submit')
      keep_blobs(event, keys, is_anew, after)
    end
  end
  if gone then
    rev = log_gone(event, event.kind == 'prune' and 'pruned' or 'removed', gone)
    drop(keys)
    bury(event.job, gone)
  end
  return rev
end

--- @include "pair"

local record_before = {}

-- Decide one event and book it: answers outcome, rule, rev.
local function apply(event)
  local mark = event_mark(event)
  local first = mark and answer_of(mark)
  if first then
    local rule, rev = string.match(first, '^(%S*) (%S*)$')
    return 'duplicate', rule, rev
  end
  local outcome, rule, rev
  if event.kind == 'remove_pair' then
    outcome, rule, rev = remove_pair(event)
  else
    local keys = event.keys
    local before = read(keys.job, record_before)
    local after, gone
    outcome, rule, after, gone = DECIDE[event.kind](before, event)
    if outcome == 'applied' then
      if after then
        after.rule = rawget(after, 'rule') or rule
        -- A removal that waited for its job's end is carried out by whichever event writes the terminal word.
        if after.kind == 'submitted' and after.desired == 'remove' and ended(after) then
          gone = gone or number(after.created_at)
        end
      end
      raise_term(event)
      rev = write(event, keys, before, after, gone)
    else
      if outcome == 'refused' and rule ~= 'invalid' then refuse(event, keys, rule, before) end
      if after then sight(keys.job, after) end
      rev = rule == 'submitted' and before.submit_rev or ''
    end
    if event.kind == 'report' and rule ~= 'invalid' then note_promise(event) end
  end
  if outcome == 'applied' then remember(event, mark, rule, rev) end
  return outcome, rule, rev
end

-- Where the next event begins; each is read into the table of its kind, so that a batch makes no tables.
local at, key_at = 8, 11
local event_of = {}
for kind in pairs(ARGUMENTS) do event_of[kind] = {kind = kind, keys = {}} end

local function next_event()
  local event, names = event_of[ARGV[at]], ARGUMENTS[ARGV[at]]
  event.job, event.shape = ARGV[at + 1], nil
  for i = 1, #names do event[names[i]] = ARGV[at + 1 + i] end
  at = at + 2 + #names
  if event.kind == 'remove_pair' then
    event.siblings = {}
    local count = tonumber(ARGV[at])
    for i = 1, count do
      event.siblings[i] = {member = ARGV[at + i], keys = take_keys({}, key_at, 5)}
      key_at = key_at + 5
    end
    at = at + 1 + count
  else
    local count = event.kind == 'report' and 4 or 5
    take_keys(event.keys, key_at, count)
    key_at = key_at + count
  end
  return event
end

open_books()
local answers = {}
while at <= #ARGV do
  local event = next_event()
  local fine, outcome, rule, rev = pcall(apply, event)
  if not fine then
    local reason = type(outcome) == 'table' and outcome.err or tostring(outcome)
    outcome, rule, rev = 'error', string.sub(string.gsub(reason, '%s+', ' '), 1, 200), ''
  end
  tally(outcome, rule)
  local size = #answers
  answers[size + 1], answers[size + 2], answers[size + 3] = outcome, rule, rev
end
assert(key_at == #KEYS + 1, 'merge.lua: keys and events do not fit')
close_books()
answers[#answers + 1] = book.epoch or ''
return answers
