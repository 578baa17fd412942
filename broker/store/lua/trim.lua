--- Cuts the head of an origin's log, and says in the same step up to where: a reader that stands below is told Gone.
-- Exact, and a bounded number of entries a call. What a live group has not acked stays, and so does the entry that it
-- acked last, since that one tells it that nothing is missing; beyond the hard cap the oldest go, whoever needs them.
-- The floor moves only when something went, so that a reader who stands at it and missed nothing stays welcome.
-- KEYS
--   log      stream: accepted events
--   meta     hash: epoch floor rev term:<role>
--   sub...   hash: epoch acked; of each live group. One that has not begun at this origin holds nothing: it will
--            begin at whatever is the oldest entry then
-- ARGV
--   count    how many entries may stay
--   oldest   epoch ms: what is older goes, whatever the count
--   hard     how many entries may stay for the groups
--   limit    how many go in this call at most
--   term     the janitor's term; a lower one than was seen is refused, a higher one kept
-- RETURNS
--   how many entries went; -1: the term is outdated, nothing was done
-- WRITES
--   log, meta: floor, term:janitor

local call = redis.call
local LOG, META = KEYS[1], KEYS[2]
local COUNT, OLDEST, HARD, LIMIT = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local TERM = ARGV[5]

--- @include "revs"

-- The id just below one that exists.
local function below(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  if seq == '0' then return string.format('%.0f-18446744073709551615', tonumber(ms) - 1) end
  return string.format('%s-%.0f', ms, tonumber(seq) - 1)
end

-- From which entry on some live group needs them; nil where none does. A group whose place is in another log will
-- begin anew at the oldest entry: it needs all. What is no subscription of ours holds nothing.
local function first_needed(epoch, last)
  local needed
  for i = 3, #KEYS do
    local sub = redis.pcall('HMGET', KEYS[i], 'epoch', 'acked')
    local acked = not sub.err and sub[2]
    if acked and string.find(acked, '^%d+%-%d+$') then
      if (sub[1] or '') ~= (epoch or '') then acked = BEGIN end
      if is_after(last, acked) and not (needed and is_after(acked, needed)) then needed = acked end
    end
  end
  return needed
end

local length = call('XLEN', LOG)
local meta = call('HMGET', META, 'epoch', 'term:janitor')
local known = tonumber(meta[2] or nil) or 0
if tonumber(TERM) < known then return -1 end

local gone, first = 0, call('XRANGE', LOG, '-', '+', 'COUNT', 1)
local last_cut, first_kept = nil, first[1] and first[1][1]

local function may_go(needed)
  local kept = length - gone
  if kept > HARD then return true end
  local is_needed = needed and not is_after(needed, first_kept)
  local ms = tonumber(string.match(first_kept, '^%d+'))
  return not is_needed and (kept > COUNT or ms < OLDEST)
end

-- More than the first entry is read, for the ids, only where something goes: most often nothing does.
local needed = first_kept and may_go(nil)
  and first_needed(meta[1], call('XREVRANGE', LOG, '+', '-', 'COUNT', 1)[1][1])
if first_kept and may_go(needed) then
  local head = call('XRANGE', LOG, '-', '+', 'COUNT', LIMIT + 1)
  while gone < LIMIT and first_kept and may_go(needed) do
    gone = gone + 1
    last_cut, first_kept = first_kept, head[gone + 1] and head[gone + 1][1]
  end
end

-- The trimming comes first: a full Redis refuses a script's first write if it could grow anything, and trimming is the
-- way out of being full.
call('XTRIM', LOG, 'MAXLEN', '=', length - gone)
if tonumber(TERM) > known then call('HSET', META, 'term:janitor', TERM) end
if gone > 0 then call('HSET', META, 'floor', first_kept and below(first_kept) or last_cut) end
return gone
