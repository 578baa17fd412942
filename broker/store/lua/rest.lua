--- Lets an origin rest that fell silent: of all its tombstones and answers one number stays, the horizon.
-- It is silent where its log was cut to its end and it has no record. Whatever it told or lost before is gone up to its
-- own tombstone's generation, so up to the highest: from there down no first sighting is taken, be it of a job that was
-- removed, that was pruned, or that a broad removal covers. The price: nor is one of a job that nobody told of until now,
-- though it is older than the last one that went. A horizon ahead of the clock would keep out new jobs: those wait.
-- No answer that is forgotten here lets an event do harm when it is sent again:
--   a report or a submission   names its generation, which was buried with the job: refused
--   a holder's, a leader's     names an attempt or a rev: there is no record, and a later one has others
--   a removal with a time      buries again what lies below the horizon, and spares what is newer
--   a wish without one         (remove, cancel) is for whatever job has that name when it comes, and no job has: where
--                              one came since, it is a new wish. Ours are re-sent for seconds, not after `before`;
--                              whom that does not suit names a time, since answers turn in a busy origin as well
-- KEYS
--   log        stream: accepted events
--   meta       hash: epoch floor rev horizon turned_at term:<role>
--   ids        zset: id/engine/run of every record
--   gone       zset: tombstones by generation
--   seen       hash: mark -> `rule rev`
--   seen_old   hash: the answers before the last turn
-- ARGV
--   term       the janitor's term; a lower one than was seen is refused, a higher one kept
--   before     epoch ms: an origin with an event or a tombstone of later is not silent yet
-- RETURNS
--   1: it rests now; 0: it is not silent, or rests already; -1: the term is outdated. Nothing was done but for 1
-- WRITES
--   meta: horizon, which never falls, term:janitor; gone, seen, seen_old: deleted

local call = redis.call
local LOG, META, IDS, GONE, SEEN, SEEN_OLD = unpack(KEYS, 1, 6)
local TERM, BEFORE = ARGV[1], tonumber(ARGV[2])

local function number(value)
  if not value or value == '' then return 0 end
  return tonumber(value) or error('not a number: ' .. value)
end

-- Every key is read by its type, and every number, before the first write: what is wrong shows before anything changed.
local events, records = call('XLEN', LOG), call('ZCARD', IDS)
local answers = call('HLEN', SEEN) + call('HLEN', SEEN_OLD)
local highest = call('ZREVRANGE', GONE, 0, 0, 'WITHSCORES')
local meta = call('HMGET', META, 'rev', 'horizon', 'term:janitor')
local generation, horizon, known = number(highest[2]), number(meta[2]), number(meta[3])
local last_ms = number(string.match(meta[1] or '', '^%d+'))

if tonumber(TERM) < known then return -1 end
if events > 0 or records > 0 or (answers == 0 and not highest[1]) then return 0 end
if last_ms > BEFORE or generation > BEFORE then return 0 end

-- The first write takes no memory: a full Redis refuses one that could, and this makes room.
call('PERSIST', META)
if generation > horizon then call('HSET', META, 'horizon', string.format('%.0f', generation)) end
if tonumber(TERM) > known then call('HSET', META, 'term:janitor', TERM) end
call('UNLINK', GONE, SEEN, SEEN_OLD)
return 1
