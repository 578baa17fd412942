-- What lies beside a record: spec, result, output. Opaque here.

local function put(key, value, is_new)
  if value ~= '' then
    call('SET', key, value)
  elseif is_new then
    call('DEL', key)
  end
end

-- Store what an applied event brought, and let go in time of what nobody needs after the end.
-- `is_anew`: it is a newer generation of a job that was known, and inherits nothing.
local function keep_blobs(event, keys, is_anew, after)
  if event.kind == 'report' then
    put(keys.spec, event.extras, is_anew)
    put(keys.result, event.full, is_anew)
  elseif event.kind == 'submit' then
    put(keys.spec, event.spec, true)
  elseif event.kind == 'finish' then
    put(keys.result, event.result, true)
  end
  if ended(after) then
    call('PEXPIRE', keys.result, RESULT_TTL_MS)
    if keys.out then call('PEXPIRE', keys.out, RESULT_TTL_MS) end
    if after.state == 'completed' then call('PEXPIRE', keys.spec, RESULT_TTL_MS) end
  end
end

local function drop(keys)
  call('UNLINK', keys.job, keys.spec, keys.result, keys.out)
  call('EXPIRE', keys.refused, REFUSALS_SECONDS)
end
