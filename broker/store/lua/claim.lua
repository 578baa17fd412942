--- Takes or renews the ownership of one origin's log for a member of a group. Each new owner has a higher term.
-- A lease given back is free at once, a lapsed one to whoever asks; its holder may renew it until somebody did. Who does
-- not name the term that stands begins anew, though the lease is its own: Redis may have forgotten a later owner.
-- Who takes over from an owner that lapsed with entries in hand counts a try against the first of them: handling it
-- may be what killed the owner. A repetition that was in hand is not repeated by itself.
-- KEYS
--   log         stream: accepted events
--   sub         hash: the subscription
--   meta        hash: epoch floor rev
-- ARGV
--   group
--   holder        who asks: unique for ever
--   lease_ms      how long the lease lasts
--   now           epoch ms, Redis's time
--   term          of the lease to renew; 0: none
--   known_epoch   where the asker stood last: there it goes on if the subscription was lost
--   known_rev     empty: nowhere. Then it begins at the log's floor, so that it misses nothing that is kept
-- RETURNS
--   term, the member that asks for this origin or empty, epoch, acked; nothing where another one holds the lease
-- WRITES
--   sub; log: what its group has pending at or below acked is acknowledged

--- @include "revs"
--- @include "subscription"
--- @include "place"

local META = KEYS[3]
local HOLDER, LEASE_MS, NOW, TERM = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local KNOWN_EPOCH, KNOWN_REV = ARGV[6], ARGV[7]

local sub = read_subscription()
local is_own = sub.owner == HOLDER
if sub.owner ~= '' and not is_own and sub.until_ms > NOW then return {} end

local changes = {'owner', HOLDER, 'until', format('%.0f', NOW + LEASE_MS)}
local function change(name, value)
  changes[#changes + 1], changes[#changes + 2] = name, value
end

-- Step 1: where it stands.
if not sub.is_known then
  sub.epoch, sub.acked = KNOWN_EPOCH, KNOWN_REV
  if KNOWN_REV == '' then sub.epoch, sub.acked = log_position(LOG, META) end
  sub.sent = sub.acked
  change('epoch', sub.epoch)
  change('acked', sub.acked)
  change('sent', sub.sent)
end

-- Step 2: a new owner has a new term, at least Redis's time: a Redis that lost its last second, or the whole hash, must
-- not give a term twice.
if not (is_own and sub.term == TERM) then
  sub.term = format('%.0f', math.max(number(sub.term) + 1, NOW))
  sub.asked = ''
  change('term', sub.term)
  change('asked', '')
  -- Step 3: what the former owner had in hand when it lapsed.
  local is_lapsed = sub.owner ~= '' and not is_own
  if is_lapsed and is_after(sub.sent, sub.acked) then change('tries', format('%.0f', sub.tries + 1)) end
  if is_lapsed and sub.replay ~= '' then change('replay', (string.gsub(sub.replay, '^%S+ ?', ''))) end
end

settle(sub.acked)
call('HSET', SUB, unpack(changes))
return {sub.term, sub.asked, sub.epoch, sub.acked}
