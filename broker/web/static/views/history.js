// What overviews said in the last minutes, as long as this page is open: it goes on while other views are shown.

export const KEPT_MS = 300_000;
const LEAST_MS = 60_000;
const GAP_MS = 5_000; // overviews come each second: a longer pause was silence, not a level

let kept = [];
let following = false;

/** Begin to keep what `model` is told. The first call counts. */
export function follow(model) {
  if (following) return;
  following = true;
  keep(model.overview);
  model.subscribe((changed) => changed.overview && keep(model.overview));
}

function keep(overview) {
  if (!overview) return;
  const { at, jobs, ready, rates, redis } = overview;
  const last = kept.at(-1)?.at ?? 0;
  if (at === last) return;
  if (at < last) kept = []; // the store's clock was set back
  kept.push({
    at, ready, live: jobs.queued + jobs.running, running: jobs.running, submitted: rates.submitted_per_min,
    ended: rates.ended_per_min, failed: rates.failed_share, answer: redis.answer_ms,
  });
  kept = kept.filter((one) => one.at >= at - KEPT_MS);
}

/** Draw into a sparkline what was lately, by its name in `kept`: five minutes, or less where the page is younger. */
export function draw(line, name) {
  const to = kept.at(-1)?.at ?? 0;
  const from = Math.min(to - LEAST_MS, kept[0]?.at ?? 0);
  line.set(kept.map((one) => [one.at, one[name]]), { from, to, gap: GAP_MS });
}
