--- Puts a key that cannot be read out of the way, so that whoever needs it may begin it anew. Nothing is destroyed: its
-- content stays to be looked at for a while. Takes no memory, so that it works in a full Redis, and changes nothing
-- where the key is of the right type by now: it needs no fence.
-- KEYS
--   key      whatever should be of the type
--   aside    where it goes; what was set aside there before is overwritten
-- ARGV
--   type     the right one, as Redis calls it; empty: whatever it is, it must go
--   ttl_ms   how long it stays there
-- RETURNS
--   the wrong type; empty where there was nothing to do
-- WRITES
--   key: gone; aside: what it held

local found = redis.call('TYPE', KEYS[1]).ok
if found == 'none' or found == ARGV[1] then return '' end
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return found
