-- The broad removal: each record of an (origin, id) pair that is not newer, and the pair itself for those unseen.

local function is_same(found, siblings)
  if #found ~= #siblings then return false end
  for i = 1, #found do
    if found[i] ~= siblings[i].member then return false end
  end
  return true
end

-- What becomes of one sibling; nil where it is newer than the removal.
local function decide_sibling(event, removed_at, sibling)
  local record = read(sibling.keys.job, {})
  local created_at = record and number(record.created_at)
  if not record or (removed_at > 0 and created_at > removed_at) then return nil end
  local outcome, rule, after, gone = remove_record(record, event, removed_at > 0 and removed_at or created_at)
  if after then after.rule = rawget(after, 'rule') or rule end
  return {keys = sibling.keys, member = sibling.member, before = record, after = after, gone = gone,
    is_applied = outcome == 'applied', rule = rule}
end

local function remove_pair(event)
  local removed_at = valid_removal(event)
  if not removed_at then return 'refused', 'invalid', '' end
  -- `0` follows `/`: so these are the members that begin with `id/`.
  local found = call('ZRANGEBYLEX', IDS, '[' .. event.job .. '/', '(' .. event.job .. '0')
  if not is_same(found, event.siblings) then return 'again', '', '' end
  local _, standing = tombstones(event.job)
  -- All are decided before the first is written: a damaged one must not leave half a removal.
  local verdicts = {}
  for _, sibling in ipairs(event.siblings) do
    verdicts[#verdicts + 1] = decide_sibling(event, removed_at, sibling)
  end
  local rev, is_removed, is_left = nil, false, false
  for _, verdict in ipairs(verdicts) do
    if verdict.is_applied then
      local job = string.gsub(verdict.member, '^([^/]*)/(.*)$', '%2/%1')
      local one = {kind = 'remove', job = job, by = event.by}
      rev = write(one, verdict.keys, verdict.before, verdict.after, verdict.gone)
    end
    is_removed, is_left = is_removed or verdict.rule == 'removed', is_left or verdict.rule == 'no_change'
  end
  if not rev and standing > 0 and standing >= removed_at then
    return 'duplicate', is_left and 'no_change' or 'seen', ''
  end
  local generation = removed_at > 0 and removed_at or NOW
  local is_bare = not rev
  if is_bare then rev = log_gone(event, 'removed', generation) end
  bury(event.job, generation)
  -- A job that still runs is not gone, whatever was buried for those unseen.
  local is_gone = is_removed or (is_bare and not is_left)
  return 'applied', is_gone and 'removed' or 'remove_requested', rev
end
