-- What `why` tells of refusals: the newest 8 of a job, as flat text; the same one again counts up.

local REFUSALS_MAX = 8
-- Without a record, and after its end, refusals are kept for an hour.
local REFUSALS_SECONDS = 3600

local function escaped(part)
  return (string.gsub(part or '', '[%%%s%c]', function(found) return format('%%%02X', string.byte(found)) end))
end

-- The caller's reading of Redis's time is early by what the call took: whoever looks finds a refusal behind the entry
-- that it is due to.
local function refused_at()
  return text(max(NOW, tonumber(string.match(book.rev, '^%d+'))))
end

local function refuse(event, keys, rule, record)
  local told = call('LRANGE', keys.refused, 0, -1)
  local same = 'rule=' .. rule .. ' event=' .. event.kind .. ' state=' .. escaped(event.state or event.desired) .. ' '
  local count = 1
  for i = 1, #told do
    if string.sub(told[i], 1, #same) == same then
      count = tonumber(string.match(told[i], ' count=(%d+)$')) + 1
      call('LREM', keys.refused, 1, told[i])
    end
  end
  call('LPUSH', keys.refused, same .. 'node=' .. escaped(event.node) .. ' seq=' .. escaped(event.seq) .. ' attempt='
    .. escaped(event.attempt) .. ' by=' .. escaped(event.by) .. ' at=' .. refused_at() .. ' count=' .. text(count))
  call('LTRIM', keys.refused, 0, REFUSALS_MAX - 1)
  if record then
    call('PERSIST', keys.refused)
  else
    call('EXPIRE', keys.refused, REFUSALS_SECONDS)
  end
end

-- A report that changed nothing still says that the job lives: no entry, no rev.
local function sight(job_key, after)
  local sightings = rawget(after, 'sightings')
  if sightings then
    call('HSET', job_key, 'last_seen', after.last_seen, 'sightings', sightings)
  else
    call('HSET', job_key, 'last_seen', after.last_seen)
  end
end
