// Plays one page's list against the truth: jobs change, a stream tells of it in order (and again what came before a
// break), lists are fetched meanwhile, overtake each other or fail. Run in a page: (seed) -> {steps, removals, loads}.
async (seed) => {
  const { JobList, compareRevs } = await import("/static/model.js");
  const { Loader } = await import("/static/loader.js");
  const { Rows } = await import("/static/rows.js");
  const { comparer, fitter, readQuery } = await import("/static/query.js");

  let state = seed;
  const chance = () => (state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff) / 0x80000000;
  const pick = (all) => all[Math.floor(chance() * all.length)];
  const counts = { steps: 0, removals: 0, loads: 0 };

  const job = (key, rev, made) => ({
    key, rev, state: pick(["queued", "running", "completed", "failed"]), created_at: made % 7, node: pick(["", "desk"]),
    guessed_from: "", inferred: false, tries: made % 3, error: pick(["", "no"]), reason: "", engine: "x", origin: "a",
  });

  async function round() {
    // Two of one number, of different engines and runs, are two.
    const keys = ["a/x//7", "a/y//7", "a/x/r/7", "b/x//7"];
    const truth = new Map();
    const log = [];
    const told = new Map(); // key -> the newest rev that the stream told of
    const seen = new Map(); // key -> the newest rev that was shown
    let [sent, kept] = [0, 0];
    const list = new JobList();
    const flying = [];
    const loader = new Loader({
      fetchList: () => new Promise((answer, fail) => flying.push({ answer, fail, read: [...truth.values()] })),
      commit: (fetched, changes) => { list.replace(fetched, changes); rows.reset(list.records, new Set()); counts.loads++; },
      failed: () => {},
    });
    const query = readQuery(`?sort=${pick(["", "-created", "state", "node", "tries", "error"])}${pick(["", "&state=running"])}`);
    const rows = new Rows(fitter(query), comparer(query.sort));

    const change = () => {
      const [key, rev] = [pick(keys), `${1_000 + Math.floor(log.length / 3)}-${log.length}`];
      if (chance() < 0.35 && truth.delete(key)) log.push({ key, rev, record: null });
      else log.push({ key, rev, record: job(key, rev, log.length) });
      if (log.at(-1).record) truth.set(key, log.at(-1).record);
      else counts.removals++;
    };
    const tell = () => {
      if (sent === log.length) return;
      const one = log[sent++];
      if (!told.has(one.key) || compareRevs(one.rev, told.get(one.key)) > 0) told.set(one.key, one.rev);
      loader.push(one);
      if (list.apply(one)) rows.update(list.records, new Set(), new Set([one.key]));
      if (chance() < 0.3) kept = sent;
    };
    const settle = async () => {
      const one = flying.splice(Math.floor(chance() * flying.length), 1)[0];
      if (chance() < 0.2) one?.fail(new Error("no answer"));
      else one?.answer(one.read);
      await null; await null; await null;
    };
    const breakOff = () => (sent = kept);
    const look = () => {
      for (const [key, record] of list.records) {
        if (key !== record.key) throw new Error(`${key} shows ${record.key}`);
        for (const known of [told.get(key), seen.get(key)]) {
          if (known && compareRevs(record.rev, known) < 0) throw new Error(`${key} stepped back to ${record.rev}`);
        }
        seen.set(key, record.rev);
      }
      for (const [key, { rev }] of truth) {
        if (seen.get(key) === rev && !list.records.has(key)) throw new Error(`${key} was hidden again`);
      }
      const anew = new Rows(fitter(query), comparer(query.sort));
      anew.reset(list.records, new Set());
      if (String(anew.keys) !== String(rows.keys)) throw new Error(`rows ${rows.keys}, anew ${anew.keys}`);
    };
    for (let step = 0; step < 60; step++, counts.steps++) {
      await pick([change, change, change, tell, tell, tell, () => void loader.load(), settle, breakOff])();
      look();
    }
    while (flying.length) await settle();
    while (sent < log.length) tell();
    look();
    const [shown, is] = [list.records, truth].map((all) => [...all.values()].map(({ key, rev }) => `${key} ${rev}`).sort().join());
    if (shown !== is) throw new Error(`shows ${shown}, true is ${is}`);
    if (loader.logs.size) throw new Error("a log was left behind");
  }

  for (let number = 0; number < 300; number++) {
    try {
      await round();
    } catch (wrong) {
      throw new Error(`seed ${seed}, round ${number}: ${wrong.message}`);
    }
  }
  return counts;
}
