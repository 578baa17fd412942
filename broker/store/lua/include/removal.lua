-- Removals: the twin of broker/rules/removal.py. A tombstone is left also where no record is.

-- removed_at as a number, 0 where it was left out, nil where it is outside its bounds.
local function valid_removal(event)
  local removed_at = checked(event.removed_at)
  return removed_at and removed_at <= NOW + AHEAD_MS_MAX and removed_at or nil
end

-- Take away a record of this or an older generation, or ask its holder to end it first.
local function remove_record(record, event, generation)
  if record.kind ~= 'submitted' or ended(record) or event.force ~= '' then
    return 'applied', 'removed', nil, generation
  end
  if record.desired == 'remove' then return 'duplicate', 'no_change' end
  local wished = over(record, {desired = 'remove', seq = text(number(record.seq) + 1), by = event.by})
  if record.state == 'queued' then
    wished.rule, wished.state = 'desired', 'cancelled'
    wished.attempt, wished.completed_at = text(number(record.attempt) + 1), NOW_TEXT
    return 'applied', 'removed', wished, generation
  end
  return 'applied', 'remove_requested', wished
end

local function merge_remove(record, event)
  local removed_at = valid_removal(event)
  if not removed_at then return 'refused', 'invalid' end
  if event.rev ~= '' and not (record and record.rev == event.rev) then return 'refused', 'guess_outdated' end
  if not record then
    local exact = tombstones(event.job)
    if exact > 0 and exact >= removed_at then return 'duplicate', 'seen' end
    return 'applied', 'removed', nil, removed_at > 0 and removed_at or NOW
  end
  local created_at = number(record.created_at)
  if removed_at > 0 and created_at > removed_at then return 'refused', 'older_generation' end
  return remove_record(record, event, removed_at > 0 and removed_at or created_at)
end
