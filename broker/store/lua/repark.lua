--- Parks an entry anew whose repetition failed too: with the new reason, and one try more. It has a new id, for which
-- nobody has asked: it is not repeated by itself. Nothing, where it is no longer parked.
-- KEYS
--   log          stream: accepted events
--   sub          hash: the subscription
--   parked       stream: what was parked
-- ARGV
--   group
--   term         the owner's
--   id           the parked entry
--   reason       why, as text
--   parked_max   how many stay
--   now          epoch ms, Redis's time
-- RETURNS
--   `ok`; `stale_term`: nothing was done
-- WRITES
--   parked; sub: evicted

--- @include "revs"
--- @include "subscription"
--- @include "parking"

local PARKED = KEYS[3]
local ID, REASON, PARKED_MAX, NOW = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local sub = held_by(ARGV[2])
if not sub then return 'stale_term' end
local entry = call('XRANGE', PARKED, ID, ID)[1]
if entry then
  local rev, tries, fields = read_parked(entry[2])
  call('XDEL', PARKED, ID)
  park(sub, PARKED, PARKED_MAX, rev, REASON, format('%.0f', tries + 1), NOW, fields)
end
return 'ok'
