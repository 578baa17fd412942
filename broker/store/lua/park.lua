--- Parks an entry whose handler failed for good, and acknowledges it, in one step: it stops nothing behind it.
-- A full Redis refuses it, since it copies the entry; then the entry stays where it is, and is tried again.
-- KEYS
--   log          stream: accepted events
--   sub          hash: the subscription
--   parked       stream: what was parked, the newest `parked_max`
-- ARGV
--   group
--   term         the owner's
--   rev          the entry
--   reason       why, as text
--   parked_max   how many stay
--   now          epoch ms, Redis's time
-- RETURNS
--   how many older ones went to make room, as text, `0` also where it was acknowledged before;
--   `stale_term`: nothing was done
-- WRITES
--   parked; sub: acked, tries, evicted; log: its group

--- @include "revs"
--- @include "subscription"
--- @include "parking"

local PARKED = KEYS[3]
local REV, REASON, PARKED_MAX, NOW = ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local sub = held_by(ARGV[2])
if not sub then return 'stale_term' end
if not is_after(REV, sub.acked) then return '0' end
-- One that was trimmed meanwhile is parked by its rev alone.
local entry = call('XRANGE', LOG, REV, REV)[1]
local evicted = park(sub, PARKED, PARKED_MAX, REV, REASON, format('%.0f', sub.tries), NOW, entry and entry[2] or {})
acknowledge(REV)
return format('%.0f', evicted)
