--- Takes a parked entry away, after its handler returned. With it goes the wish for it: see fetch_parked.lua.
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
--   parked

--- @include "revs"
--- @include "subscription"

if not held_by(ARGV[2]) then return 'stale_term' end
call('XDEL', KEYS[3], ARGV[3])
return 'ok'
