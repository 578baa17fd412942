--- Acknowledges an entry, and all before it, after its handler returned: in the Redis group and in the hash, in one step.
-- The acknowledged id is the mark by which a later delivery is known as a repetition; nothing else leaves one.
-- KEYS
--   log     stream: accepted events
--   sub     hash: the subscription
-- ARGV
--   group
--   term    the owner's
--   rev     the entry
-- RETURNS
--   `ok`, also where it was acknowledged before; `stale_term`: nothing was done
-- WRITES
--   sub: acked, tries; log: its group

--- @include "revs"
--- @include "subscription"

local REV = ARGV[3]

local sub = held_by(ARGV[2])
if not sub then return 'stale_term' end
if is_after(REV, sub.acked) then acknowledge(REV) end
return 'ok'
