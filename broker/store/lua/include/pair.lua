-- The broad removal: each record of an (origin, id) pair that is not newer, and the pair itself for those unseen.

local function is_same(found, siblings)
  if #found ~= #siblings then return false end
  for i = 1, #found do
    if found[i] ~= siblings[i].member then return false end
  end
  return true
end

local function remove_pair(event)
  local removed_at = valid_removal(event)
  if not removed_at then return 'refused', 'invalid', '' end
  -- `0` follows `/`: so these are the members that begin with `id/`.
  local found = call('ZRANGEBYLEX', IDS, '[' .. event.job .. '/', '(' .. event.job .. '0')
  if not is_same(found, event.siblings) then return 'again', '', '' end
  local _, standing = tombstones(event.job)
  -- All are read before the first is written: a damaged one must not leave half a removal.
  for _, sibling in ipairs(event.siblings) do sibling.record = read(sibling.keys.job, {}) end
  local rev, is_removed, is_left = nil, false, false
  for _, sibling in ipairs(event.siblings) do
    local record = sibling.record
    local generation = record and (removed_at > 0 and removed_at or number(record.created_at))
    if record and number(record.created_at) <= generation then
      local one = {kind = 'remove', job = string.gsub(sibling.member, '^([^/]*)/(.*)$', '%2/%1'), by = event.by}
      local outcome, rule, after, gone = remove_record(record, event, generation)
      if outcome == 'applied' then
        if after then after.rule = rawget(after, 'rule') or rule end
        rev = write(one, sibling.keys, record, after, gone)
      end
      is_removed, is_left = is_removed or rule == 'removed', is_left or rule == 'no_change'
    end
  end
  if not rev and standing > 0 and standing >= removed_at then
    return 'duplicate', is_left and 'no_change' or 'seen', ''
  end
  local generation = removed_at > 0 and removed_at or NOW
  local is_bare = not rev
  if is_bare then rev = log_gone(event, 'removed', generation) end
  bury(event.job, generation)
  return 'applied', (is_bare or is_removed or is_left) and 'removed' or 'remove_requested', rev
end
