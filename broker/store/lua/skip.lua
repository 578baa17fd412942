--- Moves a subscription whose place its log no longer holds to where it can go on, once its owner was told.
-- In another log that is the floor: all that is kept is handed out. In the same log it is the newest entry that was
-- handled before, or the floor where those are gone. Nothing that is kept and was not handled is passed over.
-- KEYS
--   log     stream: accepted events
--   sub     hash: the subscription
--   meta    hash: epoch floor rev
-- ARGV
--   group
--   term    the owner's
-- RETURNS
--   `ok`, also where the place fits; `stale_term`: nothing was done
-- WRITES
--   sub: epoch, acked, sent, tries, gaps; log: its group

--- @include "revs"
--- @include "subscription"
--- @include "place"

local sub = held_by(ARGV[2])
if not sub then return 'stale_term' end
local epoch, floor = log_position(LOG, KEYS[3])
local is_standing = #call('XRANGE', LOG, sub.acked, sub.acked) == 1
if not misfit(sub, epoch, floor, is_standing) then return 'ok' end

local last = sub.epoch == epoch and call('XREVRANGE', LOG, sub.acked, '-', 'COUNT', 1)[1]
local to = last and last[1] or floor
settle(BEGIN)
if call('EXISTS', LOG) == 1 then call('XGROUP', 'DESTROY', LOG, GROUP) end
call('HSET', SUB, 'epoch', epoch, 'acked', to, 'sent', to, 'tries', '0', 'gaps', format('%.0f', sub.gaps + 1))
return 'ok'
