-- An origin's books: log, tombstones, answers: the twin of broker/rules/ledger.py.

local LOG, META, LIVE, DONE, READY, DELAYED, IDS, GONE, SEEN, SEEN_OLD = unpack(KEYS, 1, 10)

local book = {}

-- Read every fixed key by its type, then write for the first time: whatever is wrong shows before anything changed.
local function open_books()
  book.log_length = call('XLEN', LOG)
  for _, zset in ipairs({LIVE, DONE, READY, DELAYED, IDS}) do call('ZCARD', zset) end
  book.tombstones, book.answers, book.answers_old = call('ZCARD', GONE), call('HLEN', SEEN), call('HLEN', SEEN_OLD)
  local meta = call('HMGET', META, 'epoch', 'rev', 'horizon', 'turned_at', 'stale_after')
  book.epoch, book.horizon, book.turned_at = meta[1], number(meta[3]), number(meta[4])
  book.stale_after = meta[5]
  book.rev = meta[2]
  if not book.rev then
    local last = call('XREVRANGE', LOG, '+', '-', 'COUNT', 1)
    book.rev = last[1] and last[1][1] or '0-0'
  end
  book.rev_before = book.rev
  call('HSET', META, 'rev', book.rev)
end

-- How many events of the call were answered how: outcome -> rule -> count. One that was not decided counts when it is;
-- of an invalid one nothing is written, not even that.
local counts = {applied = {}, duplicate = {}, refused = {}, error = {}}

local function tally(outcome, rule)
  local of = counts[outcome]
  if not of or rule == 'invalid' then return end
  if outcome == 'error' then rule = '' end  -- there it is the reason: a text of any kind
  of[rule] = (of[rule] or 0) + 1
end

local function close_books()
  if book.rev ~= book.rev_before then call('HSET', META, 'rev', book.rev) end
  for outcome, of in pairs(counts) do
    for rule, count in pairs(of) do
      local name = 'n:' .. outcome .. (rule ~= '' and ':' .. rule or '')
      -- What a foreign hand wrote there is no count: it begins anew. Nothing may fail now.
      local told = redis.pcall('HINCRBY', META, name, count)
      if type(told) == 'table' then call('HSET', META, name, count) end
    end
  end
end

-- The log -----------------------------------------------------------------------------------------------------------

-- `XADD log id event <kind> job <job> field value ...`: the names stand, the values change with each entry.
local entry = {LOG, '*', 'event', '', 'job', ''}
for i = 1, #PROJECTION do
  entry[2 * i + 5], entry[2 * i + 6] = PROJECTION[i], ''
end

-- A log that is new, or was lost, gets a new epoch. Its first id stays above the last rev known.
local function next_id()
  if book.epoch and (book.log_length > 0 or call('EXISTS', LOG) == 1) then return '*' end
  call('HSET', META, 'epoch', EPOCH, 'floor', book.rev)
  book.epoch = EPOCH
  if book.log_length > 0 then return '*' end
  local last_ms = tonumber(string.match(book.rev, '^%d+'))
  return format('%.0f-0', max(NOW, last_ms + 1))
end

local function add(event)
  entry[2] = next_id()
  entry[4], entry[6] = event.kind == 'remove_pair' and 'remove' or event.kind, event.job
  book.rev = call('XADD', unpack(entry))
  book.log_length = book.log_length + 1
  return book.rev
end

-- How many fields of an entry tell of the last record: the others are empty.
local told_size = 0

local function tell(size)
  for i = size + 1, told_size do entry[2 * i + 6] = '' end
  told_size = size
end

-- Log a record's projection, and note in which fields it differs from `before`: for its hash.
local changes, changes_size = {}, 0

local function log_record(event, before, after)
  local size = after.kind == 'reported' and REPORTED_SIZE or #PROJECTION
  changes_size = 0
  for i = 1, size do
    local name = PROJECTION[i]
    local value = after[name] or ''
    entry[2 * i + 6] = value
    if value ~= (before and before[name] or '') then
      changes[changes_size + 1], changes[changes_size + 2] = name, value
      changes_size = changes_size + 2
    end
  end
  tell(size)
  return add(event)
end

-- Write what `log_record` noted, and what stands outside the projection.
local function store_changes(job_key, before, after, rev, is_submission)
  local size = changes_size
  changes[size + 1], changes[size + 2], size = 'rev', rev, size + 2
  if after.last_seen and not (before and before.last_seen == after.last_seen) then
    changes[size + 1], changes[size + 2], size = 'last_seen', after.last_seen, size + 2
  end
  if is_submission then
    changes[size + 1], changes[size + 2], size = 'submit_rev', rev, size + 2
  end
  call('HSET', job_key, unpack(changes, 1, size))
end

-- Log that a job, or every job of a pair, is gone up to a generation.
local function log_gone(event, rule, generation)
  local told = {created_at = text(generation), rule = rule, by = event.by}
  for i = 1, #PROJECTION do entry[2 * i + 6] = told[PROJECTION[i]] or '' end
  told_size = #PROJECTION
  return add(event)
end

-- Tombstones -----------------------------------------------------------------------------------------------------------

-- The generations up to which the identity, and its pair, are gone; 0 = not.
local function tombstones(job)
  if book.tombstones == 0 then return 0, 0 end
  local scores = call('ZMSCORE', GONE, job, string.match(job, '[^/]*$'))
  return number(scores[1]), number(scores[2])
end

local function bury(member, generation)
  if generation > number(call('ZSCORE', GONE, member)) then
    book.tombstones = book.tombstones + call('ZADD', GONE, text(generation), member)
  end
  while book.tombstones > TOMBSTONES_MAX do
    local lowest = call('ZPOPMIN', GONE)
    book.tombstones = book.tombstones - 1
    if number(lowest[2]) > book.horizon then
      book.horizon = number(lowest[2])
      call('HSET', META, 'horizon', text(book.horizon))
    end
  end
end

-- The origin's promise to speak of its jobs: who re-asserts once is expected to go on, so that its silence means
-- something. `0`: as long as the sweeper's own budget.
local function note_promise(event)
  local told = number(event.stale_after)
  if told == 0 and (event.resync == '' or book.stale_after) then return end
  if number(book.stale_after) == told and book.stale_after then return end
  book.stale_after = format('%.0f', told)
  call('HSET', META, 'stale_after', book.stale_after)
end

-- Answers and terms ----------------------------------------------------------------------------------------------------

-- What an explicit event_id leaves: bound to identity and generation.
local function event_mark(event)
  if event.event_id == '' then return nil end
  return event.job .. ' ' .. (event.created_at or event.removed_at or '0') .. ' #' .. event.event_id
end

-- What an unnumbered report leaves.
local function shape_mark(event)
  event.shape = event.shape or event.job .. ' ' .. event.created_at .. ' ' .. event.state .. ' ' .. event.node
  return event.shape
end

local function answer_of(mark)
  local answer = book.answers > 0 and call('HGET', SEEN, mark)
  return answer or (book.answers_old > 0 and call('HGET', SEEN_OLD, mark))
end

-- Written last: a mark without its write would swallow the retry.
local function remember(event, mark, rule, rev)
  local answer = rule .. ' ' .. rev
  if mark then book.answers = book.answers + call('HSET', SEEN, mark, answer) end
  if event.kind == 'report' and number(event.seq) == 0 then
    book.answers = book.answers + call('HSET', SEEN, shape_mark(event), answer)
  end
  if book.answers >= ANSWERS_MAX and NOW - book.turned_at >= ANSWERS_MS_MIN then
    call('UNLINK', SEEN_OLD)
    call('RENAME', SEEN, SEEN_OLD)
    call('HSET', META, 'turned_at', NOW_TEXT)
    book.turned_at, book.answers_old, book.answers = NOW, book.answers, 0
  end
end

local function term_of(role)
  book[role] = book[role] or number(call('HGET', META, 'term:' .. role))
  return book[role]
end

local function raise_term(event)
  local role = ROLE[event.kind]
  if role and number(event.term) > term_of(role) then
    book[role] = number(event.term)
    call('HSET', META, 'term:' .. role, text(book[role]))
  end
end
