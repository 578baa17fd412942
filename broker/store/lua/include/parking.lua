-- What is parked: the entry's fields as they were, behind four of ours.

-- More is none of ours, and would not fit into one command.
local PARKED_VALUES_MAX = 1000

-- Parks behind all others; the oldest beyond `count_max` go, and `sub` counts them. How many went.
local function park(sub, parked, count_max, rev, reason, tries, at, fields)
  local evicted = math.max(0, call('XLEN', parked) + 1 - tonumber(count_max))
  call('XADD', parked, 'MAXLEN', '=', count_max, '*', 'parked_rev', rev, 'parked_reason', reason,
    'parked_tries', tries, 'parked_at', at, unpack(fields, 1, math.min(#fields, PARKED_VALUES_MAX)))
  if evicted > 0 then call('HSET', SUB, 'evicted', format('%.0f', sub.evicted + evicted)) end
  return evicted
end

-- Its rev, tries and fields. What a foreign hand put there has no rev.
local function read_parked(values)
  if values[1] ~= 'parked_rev' or #values < 8 then return '', 0, values end
  return values[2], number(values[6]), {unpack(values, 9, math.min(#values, 8 + PARKED_VALUES_MAX))}
end
