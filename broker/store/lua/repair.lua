--- Mends what a job's record and the indexes say against the log or each other, if it still is as it was seen.
-- It decides nothing that the merge did not decide: a record is written as the log's own newest entry has it, and the
-- indexes follow the record. A job that moved between the look and this step is left alone.
-- KEYS
--   log       stream: accepted events
--   meta      hash: epoch floor rev term:<role>
--   live      zset: jobs that have not ended
--   done      zset: jobs that have ended
--   ready     zset: jobs that may be placed
--   delayed   zset: jobs that are not yet due
--   ids       zset: id/engine/run of every record
--   job       hash: the record
--   aside     where goes what stands at `job` and cannot be read
-- ARGV
--   now          epoch ms, Redis's time
--   term         the auditor's; a lower one than was seen is refused, a higher one kept
--   name         engine/run/id
--   rev          up to where the log had been read
--   seen         the record's rev as it was read; empty: there was none
--   damaged      `1`: what stands at `job` cannot be read as a record
--   entry        the log's newest entry on the job, to write its record from; empty: the record stays as it is
--   submit_rev   the log id of its submission, where the log still tells it
--   ttl_ms       how long `aside` stays
-- RETURNS
--   `done`; `told`: as well, and whoever listed the origin before was told otherwise, or holds what is gone; `moved`:
--   the job did meanwhile, or the log went on for too long to tell; `stale_term`. With those two nothing was done
-- WRITES
--   meta: term:auditor; live, done, ready, delayed, ids, job, aside

local call, format, find, max = redis.call, string.format, string.find, math.max
local LOG, META, LIVE, DONE, READY, DELAYED, IDS, JOB, ASIDE = unpack(KEYS, 1, 9)
local NOW, NOW_TEXT, TERM = tonumber(ARGV[1]), ARGV[1], ARGV[2]
local NAME, REV, SEEN, IS_DAMAGED = ARGV[3], ARGV[4], ARGV[5], ARGV[6] ~= ''
local ENTRY, SUBMIT_REV, TTL_MS = ARGV[7], ARGV[8], ARGV[9]

-- How many entries one call looks through for a word on the job.
local ENTRIES_MAX = 1000

--- @include "record"
--- @include "index"

-- A stream entry's fields by their names.
local function fields_of(entry)
  local fields = {}
  for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
  return fields
end

-- Whether the log was silent about the job, and about every job of its id, since it was read.
local function is_silent()
  local entries = call('XRANGE', LOG, '(' .. REV, '+', 'COUNT', ENTRIES_MAX + 1)
  local pair = string.match(NAME, '[^/]*$')
  for i = 1, #entries do
    local job = fields_of(entries[i]).job
    if job == NAME or job == pair then return false end
  end
  return #entries <= ENTRIES_MAX
end

-- The record as the log's entry tells it; nil where that is gone, or is no word on a living job.
local function told()
  local entry = call('XRANGE', LOG, ENTRY, ENTRY)[1]
  local fields = entry and fields_of(entry)
  local is_word = fields and fields.job == NAME and fields.kind and fields.kind ~= ''
  return is_word and fields or nil
end

local function is_number(digits)
  return digits and find(digits, '^%d+$')
end

-- Write the record anew; what no entry tells stays, where it can be read. Who is heard of from now on is judged by what
-- comes now: nobody knows how long the job was silent while its record was gone.
local function restore(before, entry)
  local set, unset = {'rev', ENTRY}, {}
  local function put(name, value)
    if value and value ~= '' then
      set[#set + 1], set[#set + 2] = name, value
    elseif before[name] then
      unset[#unset + 1] = name
    end
  end
  for i = 1, #PROJECTION do put(PROJECTION[i], entry[PROJECTION[i]]) end
  put('last_seen', is_number(before.last_seen) and before.last_seen or NOW_TEXT)
  put('sightings', is_number(before.sightings) and before.sightings)
  put('submit_rev', SUBMIT_REV ~= '' and SUBMIT_REV or before.submit_rev)
  if #unset > 0 then call('HDEL', JOB, unpack(unset)) end
  call('HSET', JOB, unpack(set))
end

-- List the job by what it is, and nowhere else. Where its end was not told, it keeps the time that it was listed by.
local function list_anew(after, done_at)
  call('ZREM', LIVE, NAME)
  call('ZREM', DONE, NAME)
  call('ZREM', READY, NAME)
  call('ZREM', DELAYED, NAME)
  if not after then
    call('ZREM', IDS, member_of(NAME))
    return
  end
  if done_at and number(after.completed_at) == 0 then after.completed_at = done_at end
  list(NAME, nil, after)
end

-- Step 1: read everything by its type, and every number, before the first write.
for _, zset in ipairs({LIVE, READY, DELAYED, IDS}) do call('ZCARD', zset) end
local done_at, listed_at = call('ZSCORE', DONE, NAME), call('ZSCORE', IDS, member_of(NAME))
local known = tonumber(call('HGET', META, 'term:auditor') or nil) or 0
if tonumber(TERM) < known then return 'stale_term' end

if not is_silent() then return 'moved' end

local stands = call('TYPE', JOB).ok
local before = {}
if IS_DAMAGED then
  if stands == 'none' then return 'moved' end
  if stands == 'hash' then read(JOB, before) end
else
  local record = read(JOB, before)
  if (record and record.rev or '') ~= SEEN or (stands ~= 'none' and not record) then return 'moved' end
end

local after = not IS_DAMAGED and before.kind and before or nil
if ENTRY ~= '' then
  after = told()
  if not after then return 'moved' end
end
for _, name in ipairs({'created_at', 'completed_at', 'due', 'priority'}) do
  number(after and after[name])
end

-- Step 2: the first write is one that a full, read-only or unsynced Redis refuses.
call('HSET', META, 'term:auditor', format('%.0f', max(known, tonumber(TERM))))
if IS_DAMAGED then
  call('RENAME', JOB, ASIDE)
  call('PEXPIRE', ASIDE, TTL_MS)
end
if ENTRY ~= '' then
  restore(before, after)
end
list_anew(after, done_at)
-- Readers list by `ids`, and take a record as it stands; what is gone without an entry they still hold.
local was_listed = listed_at and true or false
if ENTRY ~= '' or IS_DAMAGED or not after or not was_listed then return 'told' end
return 'done'
