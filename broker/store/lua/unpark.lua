--- Takes a parked entry away, after its handler returned.
-- KEYS
--   log      stream: accepted events
--   sub      hash: the subscription
--   parked   stream: what was parked
-- ARGV
--   group
--   term     the owner's
--   id       the parked entry
-- RETURNS
--   `ok`; `stale_term`: nothing was done
-- WRITES
--   parked; sub: replay

--- @include "revs"
--- @include "subscription"

local ID = ARGV[3]

local sub = held_by(ARGV[2])
if not sub then return 'stale_term' end
call('XDEL', KEYS[3], ID)
call('HSET', SUB, 'replay', without(sub.replay, ID))
return 'ok'
