--- Raises a number in an origin's meta that must never fall: a role's term, so that every lower one is refused (what a
-- new leader does before its first write), the horizon, or the time since which nobody is to list by `ids`.
-- KEYS
--   meta    hash: epoch floor rev horizon turned_at mending term:<role>
-- ARGV
--   field   term:<role>, horizon, mending
--   value   the new one
-- RETURNS
--   the highest value known, as text: that one, unless a higher one stood
-- WRITES
--   meta, where the value is higher

local known = redis.call('HGET', KEYS[1], ARGV[1])
if known and known ~= '' and tonumber(known) >= tonumber(ARGV[2]) then return known end
-- The first write takes no memory: a full Redis refuses one that could, and whoever makes room there begins with this.
redis.call('PERSIST', KEYS[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return ARGV[2]
