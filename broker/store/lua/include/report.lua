-- The merge of reports, row by row: the twin of broker/rules/report.py.

local RANK = {queued = 1, running = 2, completed = 3, failed = 3, cancelled = 3}
-- How far ahead of Redis's clock a created_at or removed_at may be.
local AHEAD_MS_MAX = 86400000

-- created_at and seq as numbers, nil where any part is outside its bounds.
local function valid_report(event)
  local created_at, seq = checked(event.created_at), checked(event.seq)
  if RANK[event.state] and created_at and seq and checked(event.started_at) and checked(event.completed_at)
    and checked(event.stale_after) and created_at > 0 and created_at <= NOW + AHEAD_MS_MAX then
    return created_at, seq
  end
end

local function repeated(event, seq)
  return seq == 0 and event.resync == '' and answer_of(shape_mark(event))
end

local function older_than_guess(record, event, known, seq)
  if known > 0 and seq > 0 then return seq < known end
  if RANK[event.state] < RANK[record.guessed_from] then return true end
  local as_replaced = event.state == record.guessed_from and event.node == (record.node or '')
  return not as_replaced and repeated(event, seq)
end

-- Rows 7-13: the rule that applies it, or nil and the one that does not.
local function same_generation(record, event, known, seq)
  local node, has_ended = record.node or '', ended(record)
  if inferred(record) then
    if older_than_guess(record, event, known, seq) then return nil, 'older_than_guess' end
    return 'guess_cleared'
  end
  if event.state == record.state and event.node == node and (seq == 0 or seq == known or known == 0) then
    return nil, 'no_change'
  end
  if repeated(event, seq) then return nil, 'seen' end
  if known > 0 and seq > 0 then
    if has_ended then return nil, 'terminal' end
    if seq <= known then return nil, 'stale_seq' end
    return 'higher_seq'
  end
  local rank, reached = RANK[event.state], RANK[record.state]
  if rank > reached then return 'higher_rank' end
  if rank < reached then return nil, 'lower_rank' end
  if has_ended then return nil, 'terminal' end
  return 'repoint'
end

local function unless_0(digits)
  return digits == '0' and '' or digits
end

-- The record as the report tells it; `seq` is the generation's high-water mark.
local function told(event, seq, created_at, desired)
  return {
    kind = 'reported', state = event.state, node = event.node, seq = text(seq), created_at = created_at,
    started_at = unless_0(event.started_at), completed_at = unless_0(event.completed_at), error = event.error,
    model = event.model, requester = event.requester, desired = desired, by = event.by, last_seen = NOW_TEXT,
  }
end

local function merge_report(record, event)
  local created_at, seq = valid_report(event)
  if not created_at then return 'refused', 'invalid' end
  local exact, pair = tombstones(event.job)
  if created_at <= max(exact, pair) or (not record and created_at <= book.horizon) then
    return 'refused', 'tombstoned'
  end
  if not record then return 'applied', 'first_sighting', told(event, seq, event.created_at, 'run') end
  if record.kind == 'submitted' then return 'refused', 'owned_here' end
  local generation = number(record.created_at)
  if created_at > generation then return 'applied', 'newer_generation', told(event, seq, event.created_at, 'run') end
  if created_at < generation then return 'refused', 'older_generation' end

  local known = number(record.seq)
  local rule, refusal = same_generation(record, event, known, seq)
  if rule then return 'applied', rule, told(event, max(known, seq), record.created_at, record.desired) end
  -- From row 7 on the event counts as a sighting, whatever the answer.
  if refusal == 'no_change' or refusal == 'seen' then
    return 'duplicate', refusal, {last_seen = NOW_TEXT, sightings = text(number(record.sightings) + 1)}
  end
  return 'refused', refusal, {last_seen = NOW_TEXT}
end
