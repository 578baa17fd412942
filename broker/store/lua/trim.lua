--- Cuts the head of an origin's log, and says in the same step up to where: a reader that stands below is told Gone.
-- The floor moves only when something went, so that a reader who stands at it and missed nothing stays welcome.
-- KEYS
--   log      stream: accepted events
--   meta     hash: epoch floor rev term:<role>
-- ARGV
--   count    how many entries may stay
--   oldest   epoch ms: what is older goes, whatever the count
--   term     the janitor's term; a lower one than was seen is refused, a higher one kept
-- RETURNS
--   how many entries went; -1: the term is outdated, nothing was done
-- WRITES
--   log, meta: floor, term:janitor

local call = redis.call
local LOG, META = unpack(KEYS)
local COUNT, OLDEST, TERM = unpack(ARGV)

-- The id just below one that exists. Ids are compared by milliseconds, then by number within them.
local function below(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  if seq == '0' then return string.format('%.0f-18446744073709551615', tonumber(ms) - 1) end
  return string.format('%s-%.0f', ms, tonumber(seq) - 1)
end

local last = call('XREVRANGE', LOG, '+', '-', 'COUNT', 1)
local known = tonumber(call('HGET', META, 'term:janitor') or 0)
if tonumber(TERM) < known then return -1 end

-- The trimming comes first: a full Redis refuses a script's first write if it could grow anything, and trimming is the
-- way out of being full.
local gone = call('XTRIM', LOG, 'MAXLEN', '=', COUNT) + call('XTRIM', LOG, 'MINID', '=', OLDEST .. '-0')
if tonumber(TERM) > known then call('HSET', META, 'term:janitor', TERM) end
if gone > 0 then
  local first = call('XRANGE', LOG, '-', '+', 'COUNT', 1)
  call('HSET', META, 'floor', first[1] and below(first[1][1]) or last[1][1])
end
return gone
