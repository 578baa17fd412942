--- Hands the owner the entries after the acknowledged one, oldest first: so what is pending comes before anything new.
-- An entry at or below the acknowledged one is never handed out again: where the Redis group still has it pending, it
-- is acknowledged there, and so is one that was deleted from the log.
-- KEYS
--   log     stream: accepted events
--   sub     hash: the subscription
--   meta    hash: epoch floor rev
-- ARGV
--   group
--   term    the owner's
--   count   how many at most
-- RETURNS
--   `ok`, the failed or interrupted tries of the first entry, the log's epoch, the entries as XRANGE gives them;
--   `gone`, why: the log no longer holds what follows the acknowledged entry (see skip.lua);
--   `stale_term`: nothing was done
-- WRITES
--   sub: sent, epoch; log: its group

--- @include "revs"
--- @include "subscription"
--- @include "place"

local META, COUNT = KEYS[3], tonumber(ARGV[3])

local sub = held_by(ARGV[2])
if not sub then return {'stale_term'} end

-- Step 1: read on from the acknowledged entry, inclusive: it must still stand.
local epoch, floor = log_position(LOG, META)
local entries = call('XRANGE', LOG, sub.acked, '+', 'COUNT', COUNT + 1)
local is_standing = entries[1] and entries[1][1] == sub.acked
local why = misfit(sub, epoch, floor, is_standing)
if why then return {'gone', why} end
if is_standing then
  table.remove(entries, 1)
elseif #entries > COUNT then
  entries[#entries] = nil
end

-- Step 2: what is pending before the first of them is done with, or gone.
settle(entries[1] and '(' .. entries[1][1] or sub.sent)

-- Step 3: have the Redis group read the new ones, so that it shows them as pending.
local function read_new(run, count)
  return run('XREADGROUP', 'GROUP', GROUP, CONSUMER, 'COUNT', count, 'STREAMS', LOG, '>')
end

local new = 0
while new < #entries and is_after(entries[#entries - new][1], sub.sent) do new = new + 1 end
if new > 0 then
  local reply = read_new(redis.pcall, new)
  if reply and reply.err then
    -- Lost in a flush or a failover, or destroyed by hand: it goes on where the hash stands, never at the end.
    call('XGROUP', 'CREATE', LOG, GROUP, sub.acked)
    read_new(call, #entries)
  end
  call('HSET', SUB, 'sent', entries[#entries][1], 'epoch', epoch)
end
return {'ok', format('%.0f', sub.tries), epoch, entries}
