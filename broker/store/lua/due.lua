--- Moves jobs whose time has come from `delayed` to `ready`. No log entry and no rev: due is on the record already.
-- The caller read the due members before; whoever moved or changed one since is left alone, and a member without a
-- waiting record is dropped.
-- KEYS
--   delayed   zset: jobs that are not yet due, by due ms
--   ready     zset: jobs that may be placed, by ms - priority * 2^42
--   job...    hash: the record of each member, in the members' order
-- ARGV
--   now         epoch ms, Redis's time
--   member...   engine/run/id
-- RETURNS
--   how many were moved
-- WRITES
--   delayed, ready

local PRIORITY_STEP = 4398046511104
local now = tonumber(ARGV[1])
local moved = 0
redis.call('ZCARD', KEYS[2])
for i = 2, #ARGV do
  local member = ARGV[i]
  local listed = tonumber(redis.call('ZSCORE', KEYS[1], member) or nil)
  local record = redis.pcall('HMGET', KEYS[i + 1], 'kind', 'state', 'node', 'desired', 'due', 'created_at', 'priority')
  if listed and not record.err then
    local kind, state, node, desired, due, created_at, priority = unpack(record, 1, 7)
    local due_ms = tonumber(due) or 0
    if not (kind == 'submitted' and state == 'queued' and (node or '') == '' and desired == 'run') then
      redis.call('ZREM', KEYS[1], member)
    elseif due_ms <= now then
      local score = math.max(tonumber(created_at), due_ms) - (tonumber(priority) or 0) * PRIORITY_STEP
      redis.call('ZADD', KEYS[2], string.format('%.0f', score), member)
      redis.call('ZREM', KEYS[1], member)
      moved = moved + 1
    end
  end
end
return moved
