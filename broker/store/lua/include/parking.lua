-- What is parked: the entry's fields as they were, behind four of ours.

-- More is none of ours, and would not fit into one command.
local PARKED_VALUES_MAX = 1000

local function park(parked, count_max, rev, reason, tries, at, fields)
  call('XADD', parked, 'MAXLEN', '=', count_max, '*', 'parked_rev', rev, 'parked_reason', reason,
    'parked_tries', tries, 'parked_at', at, unpack(fields, 1, math.min(#fields, PARKED_VALUES_MAX)))
end
