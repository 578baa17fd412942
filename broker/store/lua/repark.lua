--- Parks an entry anew whose repetition failed too: with the new reason, and one try more. It is not repeated by itself.
-- What a foreign hand put among the parked stays as it is.
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
--   parked; sub: replay

--- @include "revs"
--- @include "subscription"
--- @include "parking"

local PARKED = KEYS[3]
local ID, REASON, PARKED_MAX, NOW = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local sub = held_by(ARGV[2])
if not sub then return 'stale_term' end
local entry = call('XRANGE', PARKED, ID, ID)[1]
local fields = entry and entry[2] or {}
local tries = fields[1] == 'parked_rev' and tonumber(fields[6])
if tries then
  call('XDEL', PARKED, ID)
  park(PARKED, PARKED_MAX, fields[2], REASON, format('%.0f', tries + 1), NOW, {unpack(fields, 9)})
end
call('HSET', SUB, 'replay', without(sub.replay, ID))
return 'ok'
