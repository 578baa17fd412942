-- The merge of reports, row by row: the twin of broker/rules/report.py.

local RANK = {queued = 1, running = 2, completed = 3, failed = 3, cancelled = 3}
-- How far ahead of Redis's clock a created_at or removed_at may be.
local AHEAD_MS_MAX = 86400000

-- The four numbers of a report, nil where a part is outside its bounds.
local function valid_report(event)
  local created_at, seq = checked(event.created_at), checked(event.seq)
  local started_at, completed_at = checked(event.started_at), checked(event.completed_at)
  if RANK[event.state] and created_at and seq and started_at and completed_at
    and created_at > 0 and created_at <= NOW + AHEAD_MS_MAX then
    return created_at, seq, started_at, completed_at
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

local function merge_report(record, event)
  local created_at, seq, started_at, completed_at = valid_report(event)
  if not created_at then return 'refused', 'invalid' end
  local exact, pair = tombstones(event.job)
  if created_at <= math.max(exact, pair) or (not record and created_at <= book.horizon) then
    return 'refused', 'tombstoned'
  end

  -- The record as the report tells it; seq stays the generation's high-water mark.
  local known = 0
  local function told()
    return over(record, {
      kind = 'reported', state = event.state, node = event.node, seq = text(math.max(known, seq)),
      created_at = text(created_at), started_at = text(started_at), completed_at = text(completed_at),
      error = event.error, model = event.model, requester = event.requester, by = event.by,
      guessed_from = '', guessed_at = '', last_seen = text(NOW),
    })
  end
  local function anew()
    local record = setmetatable(told(), nil)
    record.desired = 'run'
    return record
  end

  if not record then return 'applied', 'first_sighting', anew() end
  if record.kind == 'submitted' then return 'refused', 'owned_here' end
  local generation = number(record.created_at)
  if created_at > generation then return 'applied', 'newer_generation', anew() end
  if created_at < generation then return 'refused', 'older_generation' end

  -- From here on the event counts as a sighting, whatever the answer.
  known = number(record.seq)
  local seen = over(record, {last_seen = text(NOW)})
  local function again()
    seen.sightings = text(number(record.sightings) + 1)
    return seen
  end
  if inferred(record) then
    if older_than_guess(record, event, known, seq) then return 'refused', 'older_than_guess', seen end
    return 'applied', 'guess_cleared', told()
  end
  if event.state == record.state and event.node == (record.node or '')
    and (seq == 0 or seq == known or known == 0) then
    return 'duplicate', 'no_change', again()
  end
  if repeated(event, seq) then return 'duplicate', 'seen', again() end
  if known > 0 and seq > 0 then
    if ended(record) then return 'refused', 'terminal', seen end
    if seq <= known then return 'refused', 'stale_seq', seen end
    return 'applied', 'higher_seq', told()
  end
  local rank, reached = RANK[event.state], RANK[record.state]
  if rank > reached then return 'applied', 'higher_rank', told() end
  if rank < reached then return 'refused', 'lower_rank', seen end
  if ended(record) then return 'refused', 'terminal', seen end
  return 'applied', 'repoint', told()
end
