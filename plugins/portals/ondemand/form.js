// For the form of an interactive app: says below its last field what to expect. Add it to the app's own form.js.
(() => {
  const field = (name) => document.getElementById(`batch_connect_session_context_${name}`);
  const names = { partition: "auto_queues", hours: "bc_num_hours", nodes: "bc_num_slots" };
  const fields = Object.entries(names).filter(([, id]) => field(id));
  if (!fields.length) return;
  const shown = document.createElement("p");
  shown.id = "penstock-wait";
  shown.setAttribute("role", "status");
  field(fields.at(-1)[1]).after(shown);
  let asked = 0;
  const show = async () => {
    const mine = ++asked;
    const query = new URLSearchParams(fields.map(([name, id]) => [name, field(id).value]));
    try {
      const answer = await fetch(`/pun/sys/penstock/api/waits?${query}`);
      const told = await answer.json();
      if (mine !== asked) return; // an answer to what was chosen before
      shown.textContent = answer.ok
        ? [`Expected wait: ${told.text}.`, ...told.sooner.map((one) => `Sooner ${one.text}.`)].join(" ")
        : told.error;
    } catch {
      if (mine === asked) shown.textContent = "";
    }
  };
  for (const [, id] of fields) field(id).addEventListener("change", show);
  show();
})();
