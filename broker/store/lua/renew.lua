--- Has every reader list the origin anew, though its log lost nothing: the list was damaged, and is mended now.
-- The log gets a new epoch, and groups keep their places in it: they read entries, not the list. A log that is lost has
-- no epoch; there the last rev known moves on instead.
-- KEYS
--   log      stream: accepted events
--   meta     hash: epoch floor rev mending term:<role>
--   sub...   hash: epoch acked sent; of each group
-- ARGV
--   epoch    what the log is called from now on
--   term     the auditor's; a lower one than was seen is refused, a higher one kept
--   mark     the `mending` with which the origin was looked through; a newer one stays. Empty: there was none
-- RETURNS
--   `done`; `stale_term`: nothing was done
-- WRITES
--   meta: epoch or rev, term:auditor, mending; sub: epoch, or acked and sent

local call, format = redis.call, string.format
local LOG, META, EPOCH, TERM = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

local length = call('XLEN', LOG)
local meta = call('HMGET', META, 'epoch', 'floor', 'rev', 'term:auditor', 'mending')
local floor = meta[2] or '0-0'
local rev = meta[3] or floor
if tonumber(TERM) < (tonumber(meta[4] or nil) or 0) then return 'stale_term' end

local has_epoch = meta[1] and meta[1] ~= ''
local is_lost = length == 0 and not (has_epoch and rev == floor)
local field, value = 'epoch', EPOCH
if is_lost then
  field, value = 'rev', format('%.0f-0', tonumber(string.match(rev, '^%d+')) + 1)
end
call('HSET', META, field, value, 'term:auditor', TERM)
if ARGV[3] ~= '' and meta[5] == ARGV[3] then call('HDEL', META, 'mending') end

for i = 3, #KEYS do
  -- What is no subscription of ours has no place to keep.
  local sub = redis.pcall('HMGET', KEYS[i], 'epoch', 'acked')
  if sub[2] then
    if is_lost and sub[1] == '' and sub[2] == rev then
      call('HSET', KEYS[i], 'acked', value, 'sent', value)
    elseif not is_lost and sub[1] == (meta[1] or '') then
      call('HSET', KEYS[i], 'epoch', EPOCH)
    end
  end
end
return 'done'
