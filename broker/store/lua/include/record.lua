-- Records as their hashes hold them, all text: the twin of broker/rules/record.py. An empty or missing number is 0.
-- A changed record lies over the one that was read: what it does not name is as before.

local PROJECTION = {
  'kind', 'state', 'node', 'seq', 'created_at', 'started_at', 'completed_at', 'error', 'model', 'requester',
  'desired', 'rule', 'by', 'guessed_from', 'guessed_at', 'attempt', 'tries', 'deaths', 'attempts', 'priority',
  'timeout', 'at_most_once', 'due', 'placed_at', 'holder', 'worker', 'reason', 'retry_of', 'digest',
}
-- What only submitted jobs have stands last, and costs a reported one nothing.
local REPORTED_SIZE = 15

local TERMINAL = {completed = true, failed = true, cancelled = true}

local function number(text)
  if not text or text == '' then return 0 end
  return tonumber(text) or error('not a number: ' .. text)
end

local function text(value)
  return value == 0 and '' or format('%.0f', value)
end

-- A number from outside, nil unless it is decimal digits, 15 at most: all that a double holds exactly.
local function checked(digits)
  if digits == '0' then return 0 end
  return #digits <= 15 and find(digits, '^%d+$') and tonumber(digits) or nil
end

-- Read a record into a table, which is emptied for it: so a batch makes no tables. All fields at once: each that
-- HMGET names would be searched for alone.
local function read(job_key, into)
  local found = call('HGETALL', job_key)
  for name in pairs(into) do into[name] = nil end
  for i = 1, #found, 2 do into[found[i]] = found[i + 1] end
  return into.kind and into or nil
end

local function over(record, changes)
  return setmetatable(changes, {__index = record})
end

local function inferred(record)
  return (record.guessed_from or '') ~= ''
end

local function ended(record)
  return TERMINAL[record.state] and not inferred(record)
end

local function is_ready(record)
  return record.kind == 'submitted' and record.state == 'queued' and (record.node or '') == ''
    and record.desired == 'run'
end

local function take_keys(into, at, count)
  into.job, into.refused, into.spec, into.result = KEYS[at], KEYS[at + 1], KEYS[at + 2], KEYS[at + 3]
  into.out = count == 5 and KEYS[at + 4] or nil
  return into
end
