--- Asks the owner of an origin to give it back, for a member that has fewer; the first to ask is heard.
-- KEYS
--   log      stream: accepted events
--   sub      hash: the subscription
-- ARGV
--   group
--   holder   who asks
-- RETURNS
--   1 where the owner will see it, else 0: nobody owns it, the asker does, or another one asked
-- WRITES
--   sub; log: what its group has pending at or below acked is acknowledged

--- @include "revs"
--- @include "subscription"

local HOLDER = ARGV[2]
local sub = read_subscription()
if sub.owner == '' or sub.owner == HOLDER or (sub.asked ~= '' and sub.asked ~= HOLDER) then return 0 end
settle(sub.acked)
call('HSET', SUB, 'asked', HOLDER)
return 1
