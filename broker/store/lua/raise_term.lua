--- Has an origin refuse every lower term of a role: what a new leader does before its first write.
-- KEYS
--   meta    hash: epoch floor rev horizon turned_at term:<role>
-- ARGV
--   field   term:<role>
--   term    the new leader's
-- RETURNS
--   the highest term known, as text: that one, unless a later leader was here
-- WRITES
--   meta, where the term is higher

local known = redis.call('HGET', KEYS[1], ARGV[1])
if known and known ~= '' and tonumber(known) >= tonumber(ARGV[2]) then return known end
-- The first write takes no memory: a full Redis refuses one that could, and whoever makes room there begins with this.
redis.call('PERSIST', KEYS[1])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return ARGV[2]
