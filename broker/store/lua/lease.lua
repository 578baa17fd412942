--- Takes, renews or gives back the lead of a role; each new lead has a higher term than all before.
-- KEYS
--   leader   string with TTL: who holds the lease
--   term     string, never expiring: the last term
-- ARGV
--   holder   who asks: unique for ever
--   ttl_ms   how long the lease lasts; 0 gives it back
--   now      epoch ms, Redis's time
-- RETURNS
--   the holder's term as text, or 0 where another one holds the lease, or it was given back
-- WRITES
--   leader, term

local call = redis.call
local LEADER, TERM = KEYS[1], KEYS[2]
local HOLDER, TTL_MS, NOW = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local leader, last = call('GET', LEADER), call('GET', TERM)
if leader and leader ~= HOLDER then return '0' end
-- The first write takes no memory: a full Redis refuses one that could, and whoever makes room there must lead first.
call('PERSIST', TERM)
if TTL_MS == 0 then
  if leader then call('DEL', LEADER) end
  return '0'
end
local term = tonumber(last or nil) and last
-- A holder whose term was lost, or is none, must not go on with a guess at it.
if not (leader and term) then
  -- At least Redis's time: a Redis that lost its last second must not give a term twice.
  term = string.format('%.0f', math.max((tonumber(last or nil) or 0) + 1, NOW))
  call('SET', TERM, term)
end
call('SET', LEADER, HOLDER, 'PX', ARGV[2])
return term
