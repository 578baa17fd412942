--- Gives an owner's lease back: the next one takes over at once, and counts no try. Nothing, where it is not held.
-- KEYS
--   log     stream: accepted events
--   sub     hash: the subscription
-- ARGV
--   group
--   term    the owner's
-- RETURNS
--   1 where it was held, else 0
-- WRITES
--   sub; log: what its group has pending at or below acked is acknowledged

--- @include "revs"
--- @include "subscription"

local sub = held_by(ARGV[2])
if not sub then return 0 end
settle(sub.acked)
call('HSET', SUB, 'owner', '', 'until', '0')
return 1
