// Whether the list can be believed: what the auditor's newest round found, how old that is, and whether the fleet moves at all.

import { counted, now, span } from "../format.js";

/** A round comes every minute: one that is older was the last of its auditor. */
const ROUND_MS_MAX = 300_000;
/** A list that is older is behind the logs: it is below 3 s in health. */
const LIST_AGE_MS_MAX = 10_000;
const GAUGES = [["ghosts", "ghost", "ghosts"], ["missing", "missing job", "missing jobs"], ["stuck", "stuck job", "stuck jobs"], ["drift", "drifted job", "drifted jobs"]];

/** {tone, title, detail}: green only where the newest round is fresh, whole, and found nothing. */
export function truthOf({ overview, connection }) {
  if (!overview) return { tone: "idle", title: "Not known yet", detail: "Nothing was heard of the broker yet." };
  const { audit, halted = [] } = overview;
  const found = GAUGES.filter(([name]) => audit?.[name]).map(([name, one, many]) => counted(audit[name], one, many));
  // What an audit found stays true while nothing moves on; that it found nothing says little then.
  if (halted.length && !found.length) {
    return { tone: "doubt", title: halted[0], detail: [...halted.slice(1), "What is shown stands still, or is old"].map((line) => `${line}.`).join(" ") };
  }
  if (!audit) return { tone: "doubt", title: "Not known", detail: "What the auditor tells cannot be read." };
  if (!audit.at) return { tone: "doubt", title: "No audit yet", detail: "No auditor has gone round: it runs in broker serve." };
  const age = Math.max(0, now() - audit.at);
  const round = `The newest round ended ${span(age)} ago, over ${counted(audit.origins, "origin")}, and repaired ${audit.repaired}.`;
  const all = `All rounds together: found ${audit.found_total}, repaired ${audit.repaired_total}.`;
  const detail = `${round} ${all}`;
  if (found.length) return { tone: "bad", title: found.join(", "), detail };
  if (audit.unread) return { tone: "doubt", title: `${counted(audit.unread, "origin")} could not be audited`, detail };
  if (age > ROUND_MS_MAX) return { tone: "doubt", title: `The last audit ended ${span(age)} ago`, detail: `Since then nobody has looked. ${all}` };
  const behind = overview.list_age_ms;
  if (behind === null || behind > LIST_AGE_MS_MAX) {
    return { tone: "doubt", title: behind === null ? "The list was never read whole" : `The list is ${span(behind)} behind the logs`, detail: `What is shown may be old. ${all}` };
  }
  // The stream alone tells of it: a list that is still on its way makes it no older.
  if (connection.name !== "live") return { tone: "doubt", title: "0 ghosts when last heard", detail: "What is shown may be old." };
  return { tone: "good", title: "0 ghosts", detail: `Nothing missing, stuck or drifted. ${detail}` };
}
