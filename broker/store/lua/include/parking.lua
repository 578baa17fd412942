-- What is parked: the entry's fields as they were, behind four of ours.

-- More is none of ours, and would not fit into one command.
local PARKED_VALUES_MAX = 1000

local function park(parked, count_max, rev, reason, tries, at, fields)
  call('XADD', parked, 'MAXLEN', '=', count_max, '*', 'parked_rev', rev, 'parked_reason', reason,
    'parked_tries', tries, 'parked_at', at, unpack(fields, 1, math.min(#fields, PARKED_VALUES_MAX)))
end

-- Its rev, tries and fields. What a foreign hand put there has no rev.
local function read_parked(values)
  local tries = values[1] == 'parked_rev' and tonumber(values[6])
  if not tries then return '', 0, values end
  return values[2], tries, {unpack(values, 9)}
end
