--- Counts a failed try of the entry after the acknowledged one. Leaves no other trace: it will be handed out again.
-- KEYS
--   log     stream: accepted events
--   sub     hash: the subscription
-- ARGV
--   group
--   term    the owner's
--   call    a name of this call: sent again, it counts once
-- RETURNS
--   how many tries failed or were interrupted, as text; `stale_term`: nothing was done
-- WRITES
--   sub: tries, counted; log: what its group has pending at or below acked is acknowledged

--- @include "revs"
--- @include "subscription"

local CALL = ARGV[3]

local sub = held_by(ARGV[2])
if not sub then return 'stale_term' end
if sub.counted ~= CALL then
  settle(sub.acked)
  sub.tries = sub.tries + 1
  call('HSET', SUB, 'tries', format('%.0f', sub.tries), 'counted', CALL)
end
return format('%.0f', sub.tries)
