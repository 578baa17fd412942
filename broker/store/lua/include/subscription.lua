-- A subscription: the hash tells the truth, and the Redis group of the same name, with its one consumer, follows it.
--   owner term until   whose it is (empty: nobody's), by which term, up to which ms
--   epoch acked        where it stands: all up to there is done with, in the log of that epoch
--   sent               the last entry handed out: what lies between is pending
--   tries counted      failed or interrupted tries of the entry after `acked`; the call that counted the last one
--   gaps               how often entries were lost unread, or after they were handled
--   fell               the entry that its owner had handled when it last fell back with its server
--   evicted            parked entries that went unhandled, since newer ones took their place
--   asked              the member that would like to own it
--   replay             parked entries to be handled again: their ids, oldest wish first, with a space between

local call, format = redis.call, string.format
local LOG, SUB, GROUP = KEYS[1], KEYS[2], ARGV[1]

-- The one consumer of every group: a member's name in it would outlive the member.
local CONSUMER = 'owner'
-- How many of the pending entries one call acknowledges at most; later calls go on.
local SETTLED_MAX = 1000

local function filled(value, otherwise)
  if value and value ~= '' then return value end
  return otherwise
end

-- What is no number of ours counts as none.
local function number(value)
  return value and #value <= 15 and tonumber(string.match(value, '^%d+$') or nil) or 0
end

local function read_subscription()
  local found = call('HMGET', SUB, 'owner', 'term', 'until', 'epoch', 'acked', 'sent', 'tries', 'counted', 'gaps',
    'asked', 'replay', 'evicted')
  return {
    owner = filled(found[1], ''), term = filled(found[2], ''), until_ms = number(found[3]),
    epoch = filled(found[4], ''), acked = filled(found[5], BEGIN), sent = filled(found[6], BEGIN),
    tries = number(found[7]), counted = found[8], gaps = number(found[9]), asked = filled(found[10], ''),
    replay = filled(found[11], ''), evicted = number(found[12]), is_known = filled(found[5], '') ~= '',
  }
end

-- The subscription, if `term` is its owner's; nil where it was given back, taken over or removed.
local function held_by(term)
  local sub = read_subscription()
  if sub.owner ~= '' and sub.term == term then return sub end
end

-- Acknowledge what is pending up to and including `rev`, in the Redis group. Comes before every other write: it takes
-- no memory, so that a full Redis, which refuses a script's first write if it could grow anything, lets readers go on.
local function settle(rev)
  local ids = {BEGIN}
  -- An error here says that there is no group; or what XACK will say as well, before anything was written.
  local pending = redis.pcall('XPENDING', LOG, GROUP, '-', rev, SETTLED_MAX)
  for i = 1, pending.err and 0 or #pending do ids[i + 1] = pending[i][1] end
  call('XACK', LOG, GROUP, unpack(ids))
end

-- All up to and including `rev` is done with.
local function acknowledge(rev)
  settle(rev)
  call('HSET', SUB, 'acked', rev, 'tries', '0')
end
