-- Log ids in their order: by milliseconds, then by number within them. Compared digit by digit: a floor's number may be
-- larger than what a Lua number holds exactly.

local BEGIN = '0-0'

local function is_more(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end

local function is_after(a, b)
  local a_ms, a_seq = string.match(a, '^(%d+)%-(%d+)$')
  local b_ms, b_seq = string.match(b, '^(%d+)%-(%d+)$')
  if a_ms ~= b_ms then return is_more(a_ms, b_ms) end
  return is_more(a_seq, b_seq)
end
