-- Where a log stands, and whether a reader's place (epoch, acked) still fits it: twins of `position_of` and `misfit` in
-- broker/store/log.py.

-- The log's epoch and floor. A log that was lost with what it held has no epoch, and its floor is the last rev known.
local function log_position(log, meta)
  local found = call('HMGET', meta, 'epoch', 'floor', 'rev')
  local floor = filled(found[2], BEGIN)
  local rev = filled(found[3], floor)
  if call('XLEN', log) == 0 and rev ~= floor then return '', rev end
  return found[1] or '', floor
end

-- Why the place does not fit; nil if it does. `is_standing`: the log holds the entry `acked` itself.
local function misfit(place, epoch, floor, is_standing)
  local is_floor = place.acked == floor
  if place.epoch ~= epoch then
    -- Who stood where no log was lost nothing, if one began there since.
    if place.epoch == '' and is_floor then return nil end
    return 'it is another log now'
  end
  if not (is_standing or is_floor) then return 'trimmed, lost or rolled back' end
end
