-- The machine of submitted jobs: the twin of broker/rules/attempt.py. Each event is a compare-and-set on the record.

local CLIMB = {run = 0, cancel = 1, remove = 2}
-- The death of a holder at which a job counts as poison.
local DEATHS_MAX = 3
-- Events that also speak of reported jobs.
local OF_REPORTED = {guess = true, prune = true, intent = true}

local function plus_one(digits)
  return text(number(digits) + 1)
end

-- For submitted jobs every applied event counts seq up; on a reported one it is the producer's alone.
local function change(record, event, rule, changes)
  changes.by = event.by
  if record.kind == 'submitted' then changes.seq = plus_one(record.seq) end
  return 'applied', rule, over(record, changes)
end

-- The attempt is given up and the job waits for a place again, under the next number.
local function offer(record, event, rule, changes)
  changes.state, changes.attempt, changes.completed_at = 'queued', plus_one(record.attempt), ''
  changes.node, changes.placed_at, changes.holder, changes.worker, changes.started_at = '', '', '', '', ''
  changes.guessed_from, changes.guessed_at = '', ''
  return change(record, event, rule, changes)
end

local function finally(record, event, rule, state, reason, changes)
  local is_completed = state == 'completed'
  changes.state, changes.completed_at = state, NOW_TEXT
  changes.error, changes.reason = is_completed and '' or event.error or record.error, is_completed and '' or reason
  changes.guessed_from, changes.guessed_at = '', ''
  return change(record, event, rule, changes)
end

local function submit(record, event)
  if record then
    if record.kind == 'submitted' and record.digest == event.digest then return 'duplicate', 'submitted' end
    return 'refused', 'conflict'
  end
  local exact, pair = tombstones(event.job)
  if number(event.created_at) <= max(exact, pair, book.horizon) then return 'refused', 'tombstoned' end
  return 'applied', 'submitted', {
    kind = 'submitted', state = 'queued', seq = '1', created_at = event.created_at, model = event.model,
    requester = event.requester, desired = 'run', by = event.by, attempt = '1',
    attempts = text(number(event.attempts)), priority = text(number(event.priority)),
    timeout = text(number(event.timeout)), at_most_once = event.at_most_once, due = text(number(event.due)),
    retry_of = event.retry_of, digest = event.digest, last_seen = NOW_TEXT,
  }
end

local function is_of(record, event)
  return number(record.created_at) == number(event.created_at) and number(record.attempt) == number(event.attempt)
end

local function is_held(record)
  return (record.holder or '') ~= ''
end

local function holder_refusal(record, event)
  if ended(record) then return 'terminal' end
  if not is_of(record, event) then return 'stale_attempt' end
  if not is_held(record) or record.holder ~= event.holder then return 'held' end
end

local function given_up(record, event)
  return inferred(record) and record.rev == event.rev and number(record.last_seen) <= number(record.guessed_at)
end

local function may_run_again(record)
  return number(record.tries) < number(record.attempts) and record.desired == 'run'
    and number(record.at_most_once) == 0 and number(record.deaths) < DEATHS_MAX - 1
end

-- A sweep judged what it read: where anything moved since, or the other judgement is due, it is outdated.
local function sweep_refusal(record, event, again)
  if ended(record) and record.rev == event.rev then return 'terminal' end
  if not given_up(record, event) or may_run_again(record) ~= again then return 'guess_outdated' end
end

local RULES = {}

function RULES.place(record, event)
  if not is_ready(record) or number(record.due) > NOW or record.rev ~= event.rev then
    return 'refused', 'not_ready'
  end
  return change(record, event, 'placed', {node = event.node, placed_at = NOW_TEXT})
end

function RULES.start(record, event)
  if ended(record) then return 'refused', 'terminal' end
  if not is_of(record, event) then return 'refused', 'stale_attempt' end
  if is_held(record) then return 'refused', 'held' end
  if record.desired ~= 'run' then return 'refused', 'cancelled' end
  if record.state ~= 'queued' or (record.node or '') == '' or record.node ~= event.node then
    return 'refused', 'not_ready'
  end
  return change(record, event, 'started', {
    state = 'running', holder = event.holder, worker = event.worker, tries = plus_one(record.tries),
    started_at = NOW_TEXT, last_seen = NOW_TEXT,
  })
end

function RULES.reassert(record, event)
  local rule = holder_refusal(record, event)
  if rule then return 'refused', rule end
  if not inferred(record) then return 'refused', 'not_ready' end
  return change(record, event, 'guess_cleared', {
    state = record.guessed_from, error = '', completed_at = '', guessed_from = '', guessed_at = '',
    last_seen = NOW_TEXT,
  })
end

function RULES.finish(record, event)
  local rule = holder_refusal(record, event)
  if rule then return 'refused', rule end
  local has_died = event.died ~= ''
  local deaths = number(record.deaths) + (has_died and 1 or 0)
  local seen = {last_seen = NOW_TEXT, deaths = text(deaths)}
  local is_poison = has_died and deaths >= DEATHS_MAX
  local retry = event.state == 'failed' and event.retryable ~= '' and not is_poison
  local is_wanted = record.desired == 'run'
  if retry and is_wanted and number(record.tries) < number(record.attempts) and number(record.at_most_once) == 0 then
    seen.due, seen.error, seen.reason = text(number(event.due)), event.error, event.reason
    return offer(record, event, 'requeued', seen)
  end
  local state = (retry or is_poison) and not is_wanted and 'cancelled' or event.state
  return finally(record, event, 'finished', state, is_poison and 'poison' or event.reason, seen)
end

function RULES.unplace(record, event)
  if record.state ~= 'queued' or (record.node or '') == '' or is_held(record) or record.rev ~= event.rev then
    return 'refused', 'not_ready'
  end
  return offer(record, event, 'unplaced', {})
end

-- A guess that a beat outlived may be made again: its holder may die before it reasserts, and the job must end.
function RULES.guess(record, event)
  local is_ours, believed = record.kind == 'submitted', inferred(record) and record.guessed_from or record.state
  local is_outlived = is_ours and number(record.last_seen) > number(record.guessed_at)
  if record.rev ~= event.rev or number(record.last_seen) ~= number(event.last_seen)
    or (inferred(record) and not is_outlived) then
    return 'refused', 'guess_outdated'
  end
  if ended(record) then return 'refused', 'terminal' end
  if is_ours and believed ~= 'running' then return 'refused', 'guess_outdated' end
  return change(record, event, 'guess_applied', {
    state = 'failed', error = event.error, completed_at = NOW_TEXT, guessed_from = believed, guessed_at = NOW_TEXT,
  })
end

function RULES.requeue(record, event)
  local rule = sweep_refusal(record, event, true)
  if rule then return 'refused', rule end
  return offer(record, event, 'requeued', {due = text(number(event.due)), deaths = plus_one(record.deaths)})
end

function RULES.lost(record, event)
  local rule = sweep_refusal(record, event, false)
  if rule then return 'refused', rule end
  local deaths = number(record.deaths) + 1
  return finally(record, event, 'lost', record.desired == 'run' and 'failed' or 'cancelled',
    deaths >= DEATHS_MAX and 'poison' or 'lost', {attempt = plus_one(record.attempt), deaths = text(deaths)})
end

function RULES.intent(record, event)
  if ended(record) then return 'refused', 'too_late' end
  local is_forced, is_ours = event.force ~= '', record.kind == 'submitted'
  if is_forced and not is_ours then return 'refused', 'not_ours' end
  local is_climb = CLIMB[event.desired] > CLIMB[record.desired]
  if not is_climb and not is_forced then return 'duplicate', 'no_change' end
  local wished = {desired = is_climb and event.desired or record.desired}
  if is_ours and (record.state == 'queued' or is_forced) then
    wished.attempt = plus_one(record.attempt)
    return finally(record, event, 'desired', 'cancelled', is_forced and 'forced' or '', wished)
  end
  return change(record, event, 'desired', wished)
end

function RULES.prune(record, event)
  local is_silent = inferred(record) or NOW - number(record.last_seen) >= SILENCE_MS_MAX
  local is_old = ended(record) or (record.kind == 'reported' and is_silent)
  if record.rev ~= event.rev or number(record.last_seen) ~= number(event.last_seen) or not is_old then
    return 'refused', 'guess_outdated'
  end
  return 'applied', 'pruned', nil, number(record.created_at)
end

-- Decide an event of a submitted job by the first refusal that fits.
local function attempt(record, event)
  if not record then
    local exact, pair = tombstones(event.job)
    local generation, buried_up_to = number(event.created_at), max(exact, pair)
    local is_known = buried_up_to > 0 and (generation == 0 or generation <= buried_up_to)
    return 'refused', is_known and 'tombstoned' or 'unknown'
  end
  if record.kind == 'reported' and not OF_REPORTED[event.kind] then return 'refused', 'not_ours' end
  local role = ROLE[event.kind]
  if role and number(event.term) < term_of(role) then return 'refused', 'stale_term' end
  return RULES[event.kind](record, event)
end
