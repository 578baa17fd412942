--- Hands the owner the parked entry whose repetition was asked for first, again and again while it is parked. A wish for
-- what is no longer parked, since it was handled, parked anew or evicted, is forgotten here.
-- KEYS
--   log      stream: accepted events
--   sub      hash: the subscription
--   parked   stream: what was parked
-- ARGV
--   group
--   term     the owner's
-- RETURNS
--   `ok`, and the parked entry as XRANGE gives it, if one is left; `stale_term`: nothing was done
-- WRITES
--   sub: replay; log: what its group has pending at or below acked is acknowledged

--- @include "revs"
--- @include "subscription"

local PARKED = KEYS[3]

local sub = held_by(ARGV[2])
if not sub then return {'stale_term'} end
local entry, from
for at, id in string.gmatch(sub.replay, '()(%d+%-%d+)') do
  entry, from = call('XRANGE', PARKED, id, id)[1], at
  if entry then break end
end
local left = entry and string.sub(sub.replay, from) or ''
if left ~= sub.replay then
  settle(sub.acked)
  call('HSET', SUB, 'replay', left)
end
return {'ok', entry}
