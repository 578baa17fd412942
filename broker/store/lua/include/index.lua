-- The indexes, a function of the record alone: the twin of broker/rules/index.py.

-- One step of priority outweighs every difference in time.
local PRIORITY_STEP = 4398046511104

-- `engine/run/id` as `id/engine/run`: so all that share an id lie side by side.
local function member_of(job)
  return (string.gsub(job, '^(.*)/(.*)$', '%2/%1'))
end

local function ready_score(record, due)
  return format('%.0f', max(number(record.created_at), due) - number(record.priority) * PRIORITY_STEP)
end

-- List a job by what it became (nil: it is gone), and nowhere else. Writes only what differs, and that only after all
-- numbers were read: one that cannot be read must not leave half of it.
local function list(job, before, after)
  local was_live, is_live = before and not ended(before), after and not ended(after)
  -- Most often a report moves nothing.
  if was_live and is_live and after.kind == 'reported' and before.created_at == after.created_at then return end
  local was_ready, now_ready = before and is_ready(before), after and is_ready(after)
  local was_due, due = was_ready and number(before.due) or 0, now_ready and number(after.due) or 0
  local score = now_ready and ready_score(after, due)
  local completed_at = after and not is_live and (number(after.completed_at) > 0 and after.completed_at or NOW_TEXT)

  if is_live and not (was_live and before.created_at == after.created_at) then
    call('ZADD', LIVE, after.created_at, job)
  elseif was_live and not is_live then
    call('ZREM', LIVE, job)
  end
  if completed_at then
    call('ZADD', DONE, completed_at, job)
  elseif before and not was_live then
    call('ZREM', DONE, job)
  end
  if was_ready then
    call('ZREM', READY, job)
    if was_due > 0 then call('ZREM', DELAYED, job) end
  end
  if now_ready and due > NOW then
    call('ZADD', DELAYED, after.due, job)
  elseif now_ready then
    call('ZADD', READY, score, job)
  end
  if after and not before then
    call('ZADD', IDS, 0, member_of(job))
  elseif before and not after then
    call('ZREM', IDS, member_of(job))
  end
end
