--- Asks the owner of a subscription to handle parked entries again. Each is asked for once, however often one asks.
-- KEYS
--   sub     hash: the subscription
-- ARGV
--   first   the oldest id that is parked: what lies below is forgotten
--   id...   the parked entries
-- RETURNS
--   how many are asked for now; -1: there is no such subscription
-- WRITES
--   sub: replay

--- @include "revs"

if redis.call('HEXISTS', KEYS[1], 'acked') == 0 then return -1 end
local listed, wishes = {}, {}

local function wish(id)
  if not listed[id] and not is_after(ARGV[1], id) then
    listed[id] = true
    wishes[#wishes + 1] = id
  end
end

for id in string.gmatch(redis.call('HGET', KEYS[1], 'replay') or '', '%d+%-%d+') do wish(id) end
for i = 2, #ARGV do wish(ARGV[i]) end
redis.call('HSET', KEYS[1], 'replay', table.concat(wishes, ' '))
return #wishes
