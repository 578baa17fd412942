--- A holder's sign of life: moves the job's last_seen, and tells the holder how it stands.
-- No log entry and no rev: a beat is a sighting, not an event.
-- KEYS
--   job       hash: the record
-- ARGV
--   now       epoch ms, Redis's time
--   attempt   the attempt that the holder runs
--   holder    its nonce
-- RETURNS
--   three texts: `1` where the attempt is still valid, else `0`; desired; `1` where a guess stands against it, else `0`
-- WRITES
--   job       last_seen, only where the attempt is valid

local record = redis.call('HMGET', KEYS[1], 'holder', 'attempt', 'state', 'guessed_from', 'desired')
local holder, attempt, state, guessed_from, desired = unpack(record, 1, 5)
local is_guess = guessed_from and guessed_from ~= ''
local is_open = state == 'running' or is_guess
if not (is_open and holder == ARGV[3] and tonumber(attempt) == tonumber(ARGV[2])) then
  return {'0', desired or '', '0'}
end
redis.call('HSET', KEYS[1], 'last_seen', ARGV[1])
return {'1', desired, is_guess and '1' or '0'}
