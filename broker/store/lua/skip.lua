--- Moves a subscription whose place its log no longer holds to where it can go on, once its owner was told.
-- In another log that is the floor: all that is kept is handed out. In the same log it is the newest entry that was
-- handled before, or the floor where those are gone. Nothing that is kept and was not handled is passed over.
-- Where log and subscription fell back together, with their server, the place fits: then the gap is only counted.
-- KEYS
--   log     stream: accepted events
--   sub     hash: the subscription
--   meta    hash: epoch floor rev
-- ARGV
--   group
--   term    the owner's
--   epoch   where the owner stood, empty: nowhere. What it handled after `acked`, and is no more, is a gap, too
--   rev     in that log
-- RETURNS
--   `ok`, also where the place fits; `stale_term`: nothing was done
-- WRITES
--   sub: epoch, acked, sent, tries, gaps, fell; log: its group

--- @include "revs"
--- @include "subscription"
--- @include "place"

local sub = held_by(ARGV[2])
if not sub then return 'stale_term' end
local epoch, floor = log_position(LOG, KEYS[3])
local is_standing = #call('XRANGE', LOG, sub.acked, sub.acked) == 1
local gaps = format('%.0f', sub.gaps + 1)
if not misfit(sub, epoch, floor, is_standing) then
  local has_fallen = ARGV[4] ~= '' and ARGV[3] == sub.epoch and is_after(ARGV[4], sub.acked)
  if has_fallen and call('HGET', SUB, 'fell') ~= ARGV[4] then call('HSET', SUB, 'gaps', gaps, 'fell', ARGV[4]) end
  return 'ok'
end

local last = sub.epoch == epoch and call('XREVRANGE', LOG, sub.acked, '-', 'COUNT', 1)[1]
local to = last and last[1] or floor
settle(BEGIN)
if call('EXISTS', LOG) == 1 then call('XGROUP', 'DESTROY', LOG, GROUP) end
call('HSET', SUB, 'epoch', epoch, 'acked', to, 'sent', to, 'tries', '0', 'gaps', gaps)
return 'ok'
