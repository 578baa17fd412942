-- Records as their hashes hold them, all text: the twin of broker/rules/record.py. An empty or missing number is 0.
-- A changed record lies over the one that was read: what it does not name is as before.

local PROJECTION = {
  'kind', 'state', 'node', 'seq', 'created_at', 'started_at', 'completed_at', 'error', 'model', 'requester',
  'desired', 'rule', 'by', 'guessed_from', 'guessed_at', 'attempt', 'tries', 'deaths', 'attempts', 'priority',
  'timeout', 'at_most_once', 'due', 'placed_at', 'holder', 'worker', 'reason', 'retry_of', 'digest',
}
local FIELDS = {'rev', 'submit_rev', 'last_seen', 'sightings', unpack(PROJECTION)}
-- All that a reported job's record can hold of use to a report; what only submitted jobs have costs it nothing.
local REPORT_FIELDS = {'sightings', unpack(PROJECTION, 1, 15)}

local TERMINAL = {completed = true, failed = true, cancelled = true}

local function number(text)
  if not text or text == '' then return 0 end
  return tonumber(text) or error('not a number: ' .. text)
end

local function text(value)
  return value == 0 and '' or string.format('%.0f', value)
end

-- A number from outside, nil unless it is decimal digits, 15 at most: all that a double holds exactly.
local function checked(digits)
  return #digits <= 15 and string.find(digits, '^%d+$') and tonumber(digits) or nil
end

local function read(job_key, fields)
  local values = call('HMGET', job_key, unpack(fields))
  local record = {}
  for i = 1, #fields do record[fields[i]] = values[i] or nil end
  return record.kind and record or nil
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

local function job_keys(at, count)
  return {
    job = KEYS[at], refused = KEYS[at + 1], spec = KEYS[at + 2], result = KEYS[at + 3],
    out = count == 5 and KEYS[at + 4] or nil,
  }
end
