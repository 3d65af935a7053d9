"use strict";
// Draws the report that stands in #report. Text only ever becomes text nodes.
(() => {
  const report = JSON.parse(document.getElementById("report").textContent);
  const page = document.getElementById("page");
  const tip = document.getElementById("tip");
  // -- building -----------------------------------------------------------------------------------

  const SVG = "http://www.w3.org/2000/svg";
  const fill = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
    }
    for (const child of children.flat(9)) {
      if (child !== null && child !== undefined && child !== false) node.append(child);
    }
    return node;
  };
  const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

  const told = (node, text) => {
    node.classList.add("hot");
    node.addEventListener("pointermove", (event) => {
      tip.textContent = typeof text === "function" ? text() : text;
      tip.hidden = false;
      const { width, height } = tip.getBoundingClientRect();
      tip.style.left = Math.max(6, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
      tip.style.top = Math.max(6, Math.min(event.clientY + 14, innerHeight - height - 8)) + "px";
    });
    node.addEventListener("pointerleave", () => { tip.hidden = true; });
    node.told = text;
    return node;
  };
  // Arrow keys walk through what a drawing tells, from left to right.
  const walked = (drawing) => {
    const hot = [...drawing.querySelectorAll(".hot")];
    if (!hot.length) return drawing;
    let at = -1;
    drawing.setAttribute("tabindex", "0");
    const show = (next) => {
      if (at >= 0) hot[at].classList.remove("at");
      at = Math.max(0, Math.min(hot.length - 1, next));
      const node = hot[at], place = node.getBoundingClientRect();
      node.classList.add("at");
      tip.textContent = typeof node.told === "function" ? node.told() : node.told;
      tip.hidden = false;
      const { width, height } = tip.getBoundingClientRect();
      tip.style.left = Math.max(6, Math.min(place.left, innerWidth - width - 8)) + "px";
      tip.style.top = Math.max(6, Math.min(place.bottom + 6, innerHeight - height - 8)) + "px";
    };
    drawing.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (step) { event.preventDefault(); show(at + step); }
      else if (event.key === "Home") { event.preventDefault(); show(0); }
      else if (event.key === "End") { event.preventDefault(); show(hot.length - 1); }
      else if (event.key === "Escape") tip.hidden = true;
    });
    drawing.addEventListener("blur", () => { tip.hidden = true; if (at >= 0) hot[at].classList.remove("at"); });
    return drawing;
  };

  const section = (title, about, ...children) =>
    page.append(el("section", {}, el("h2", {}, title), about && el("p", {}, about), ...children));

  // A command, to be copied by a click or by Enter.
  const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const command = (text) => {
    const button = el("button", { type: "button", title: "Copy" }, "copy");
    button.addEventListener("click", () => {
      (navigator.clipboard ? navigator.clipboard.writeText(text) : Promise.reject()).then(
        () => { button.textContent = "copied"; }, () => { button.textContent = "select it"; });
    });
    return el("div", { class: "command" }, el("code", {}, text), button);
  };
  const scrolled = (...children) => el("div", { class: "scrolled", tabindex: 0 }, ...children);

  // -- figures as text ----------------------------------------------------------------------------

  const whole = (n) => (n === null || n === undefined ? "unknown" : n.toLocaleString("en-US"));
  const count = (n, one, many = one + "s") => `${whole(n)} ${n === 1 ? one : many}`;
  const bytes = (n) => {
    if (n === null || n === undefined) return "";
    const units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let at = 0;
    while (n >= 1000 && at < units.length - 1) { n /= 1000; at += 1; }
    return `${at && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
  };
  const short = (n) => {
    const units = ["", "k", "M", "G", "T"];
    let at = 0;
    while (Math.abs(n) >= 1000 && at < units.length - 1) { n /= 1000; at += 1; }
    return `${at && Math.abs(n) < 10 ? n.toFixed(1) : Math.round(n)}${units[at]}`;
  };
  const percent = (part, all) => (all ? `${Math.round((100 * part) / all)} %` : "0 %");
  const time = (iso) => iso.slice(0, 19).replace("T", " ") + " UTC";
  const micros = (us) => time(new Date(us / 1000).toISOString());
  const seconds = (s) => (s < 90 ? `${Math.ceil(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`);
  const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

  const draw = () => {
  page.textContent = "";
  tip.hidden = true;
  // Drawings are as wide as their card, so that text in them keeps its size on a phone.
  const WIDTH = Math.max(300, Math.min(1080, page.clientWidth - 90));
  const narrow = WIDTH < 640;

  // -- the head -----------------------------------------------------------------------------------

  const table = report.table;
  const name = table.uri.replace(/\/+$/, "").split("/").pop() || table.uri;
  const newest = table.version === table.newest_version;
  page.append(el("header", {},
    el("h1", {}, name),
    el("p", { class: "mono" }, table.uri),
    el("p", {}, `version ${table.version}${newest ? "" : ` of ${table.newest_version}`}, `,
      `${table.operation} at ${micros(table.time_us)}`,
      table.sort_by.length ? `; sorted by ${table.sort_by.join(", ")}` : "",
      table.primary_key.length ? `; primary key ${table.primary_key.join(", ")}` : "",
      table.partition_by.length ? `; partitioned by ${table.partition_by.join(", ")}` : ""),
    el("div", { class: "figures" },
      [
        [whole(table.files), "data files"],
        [short(report.live_rows), report.live_rows_counted ? "rows" : "rows at most, under deletes by value"],
        [short(table.rows), "rows stored"],
        [bytes(table.bytes), "of data"],
        [percent(report.deleted_rows, table.rows), "of rows surely deleted"],
        [whole(table.markers), "delete markers"],
        [whole(table.newest_version - table.oldest_version + 1), "versions readable"],
      ].map(([figure, about]) => el("div", {}, el("b", {}, figure), el("span", {}, about))))));

  if (report.findings.length) {
    section("Why is it slow?", null, el("ol", { class: "findings" }, report.findings.map((f) => el("li", {},
      el("b", {}, f.what), f.why && el("p", {}, f.why), f.command && command(f.command.replace("TABLE", quoted(table.uri)))))));
  }

  // -- the query ----------------------------------------------------------------------------------

  const query = report.query;
  if (query) {
    const parts = [
      ["left out by statistics", query.pruned, "var(--grid)"],
      ["deleted whole", query.deleted, "var(--red-soft)"],
      ["read", query.read, "var(--blue)"],
    ];
    section("The query", el("span", { class: "mono" }, query.where),
      el("div", { class: "funnel" }, parts.filter(([, n]) => n).map(([what, n, color]) =>
        told(el("div", { style: `flex:${n} 1 0;background:${color}` }), `${count(n, "file")} ${what}`))),
      el("div", { class: "legend" }, parts.map(([what, n, color]) =>
        el("span", {}, el("i", { style: `background:${color}` }), `${whole(n)} ${what}`))),
      scrolled(el("table", {},
        el("tr", {}, el("th", {}, "condition"), el("th", { class: "num" }, "files it spares"), el("th", { class: "bar-cell" }), el("th", {}, "why not more")),
        query.conditions.map((c) => el("tr", {},
          el("td", { class: "mono wide" }, c.text),
          el("td", { class: "num" }, `${whole(c.spares)} of ${whole(query.files)}`),
          el("td", { class: "bar-cell" }, el("div", { class: "bar", style: `width:${(100 * c.spares) / Math.max(1, query.files)}%` })),
          el("td", {}, c.why))))),
      el("p", { class: "note" },
        `Reads at most ${whole(query.rows)} rows and ${bytes(query.bytes)}, less what row groups, pages and columns spare; `,
        `${count(query.deletes, "delete")} to apply on the way.`));
  }

  // -- versions -----------------------------------------------------------------------------------

  const KINDS = { append: "--blue", ingest: "--blue", upsert: "--blue", update: "--amber", merge: "--amber", delete: "--red", erase: "--red" };
  const colorOf = (operation) => `var(${KINDS[operation] || "--file"})`;

  const versionText = (v) => [
    `version ${v.version}: ${v.operation}${v.branch ? ` on ${v.branch}` : ""}`,
    time(v.time), v.request && `request ${cut(v.request, 80)}`,
    v.message && `“${cut(v.message, 160)}”`,
    ...Object.entries(v.metadata).map(([name, text]) => cut(`${name}: ${text}`, 80)),
    v.refs.length && `refs ${v.refs.join(", ")}`,
    (v.added_rows || v.added_files) && `+ ${count(v.added_rows, "row")} in ${count(v.added_files, "file")}`,
    v.deleted_rows !== 0 && `− ${v.deleted_rows === null ? "rows nobody counted" : count(v.deleted_rows, "row")}`,
    v.removed_files > 0 && `− ${count(v.removed_files, "file")}`,
    (v.added_markers || v.removed_markers) && `delete markers + ${v.added_markers} − ${v.removed_markers}`,
    `then ${count(v.files, "file")}, ${bytes(v.bytes)}, ${count(v.markers, "delete marker")}`,
  ].filter(Boolean).join("\n");

  const drawVersions = () => {
    const versions = [...report.versions].reverse();
    if (!versions.length) return;
    const W = WIDTH, left = 46, right = 10, mid = 92, up = 76, down = 46, below = 168, high = 52;
    const step = (W - left - right) / versions.length;
    const x = (at) => left + at * step;
    const most = Math.max(1, ...versions.map((v) => Math.max(v.added_rows || 0, v.deleted_rows || 0)));
    const tall = (n, room) => (n ? Math.max(2, room * Math.sqrt(n / most)) : 0);
    const wide = Math.max(1, Math.min(18, step * 0.72));
    const drawing = svg("svg", { viewBox: `0 0 ${W} ${below + high + 30}`, role: "img", "aria-label": "versions" });
    drawing.append(
      svg("line", { x1: left, x2: W - right, y1: mid, y2: mid, stroke: "var(--line)" }),
      svg("text", { x: left - 8, y: mid - up + 10, "text-anchor": "end" }, "+ " + short(most)),
      svg("text", { x: left - 8, y: mid + 4, "text-anchor": "end" }, "rows"));
    const peak = Math.max(1, ...versions.map((v) => v.bytes));
    const peakFiles = Math.max(1, ...versions.map((v) => v.files));
    const y = (n, most) => below + high - (high * n) / most;
    const stairs = (get, most) => versions.map((v, at) => `${at ? "L" : "M"}${x(at)},${y(get(v), most)}L${x(at + 1)},${y(get(v), most)}`).join("");
    drawing.append(
      svg("path", { d: `${stairs((v) => v.bytes, peak)}L${x(versions.length)},${below + high}L${x(0)},${below + high}Z`, fill: "var(--grid)" }),
      svg("path", { d: stairs((v) => v.files, peakFiles), fill: "none", stroke: "var(--blue)", "stroke-width": 1.5 }),
      svg("text", { x: left - 8, y: below + 8, "text-anchor": "end" }, short(peakFiles)),
      svg("text", { x: left - 8, y: below + high, "text-anchor": "end" }, "files"));
    const every = Math.ceil(versions.length / (narrow ? 3 : 9));
    versions.forEach((v, at) => {
      const cx = x(at) + step / 2;
      const plus = tall(v.added_rows, up), minus = v.deleted_rows === null ? 0 : tall(v.deleted_rows, down);
      drawing.append(
        plus > 0 && svg("rect", { x: cx - wide / 2, y: mid - plus, width: wide, height: plus, rx: 1, fill: colorOf(v.operation) }),
        minus > 0 && svg("rect", { x: cx - wide / 2, y: mid, width: wide, height: minus, rx: 1, fill: "var(--red)" }),
        v.deleted_rows === null && svg("rect", { x: cx - wide / 2, y: mid + 1, width: wide, height: 14, rx: 1, fill: "none", stroke: "var(--red)", "stroke-dasharray": "2 2" }),
        !plus && !minus && v.deleted_rows !== null && svg("circle", { cx, cy: mid, r: Math.min(3.5, Math.max(1.5, wide / 2)), fill: colorOf(v.operation) }));
      if (v.refs.length) drawing.append(svg("path", { d: `M${cx - 4},${mid - up - 8}h8l-4,6z`, fill: "var(--green)" }));
      drawing.append(told(svg("rect", { x: x(at), y: 6, width: step, height: below + high - 6, fill: "transparent" }), () => versionText(v)));
      if (at % every === 0) {
        drawing.append(svg("text", { x: cx, y: below + high + 15, "text-anchor": "middle" }, String(v.version)),
          svg("text", { x: cx, y: below + high + 28, "text-anchor": "middle" }, v.time.slice(0, 10)));
      }
    });
    const before = report.versions[report.versions.length - 1].version - table.oldest_version;
    section("Versions", `The newest ${count(versions.length, "version")} that can be read` + (before > 0 ? `; ${whole(before)} older ones are not drawn.` : "."),
      el("div", { class: "legend" },
        [["--blue", "rows added"], ["--red", "rows deleted (dashed: not counted)"], ["--amber", "rows updated"], ["--file", "maintenance: no row changed"], ["--green", "tag or branch"]].map(([color, text]) =>
          el("span", {}, el("i", { style: `background:var(${color})` }), text)),
        el("span", {}, "below: files (line) and bytes (area)")),
      walked(drawing));
  };
  drawVersions();

  // -- files --------------------------------------------------------------------------------------

  const share = (mark) => (mark.rows ? mark.deleted_rows / mark.rows : 0);
  // What a file's colour says, in the order of the legend; the last that holds counts.
  const DELETED = [
    ["var(--file)", "no deletes", () => true],
    ["var(--amber-soft)", "deletes to evaluate, rows not counted", (m) => m.deletes > 0],
    ["var(--amber)", "some rows deleted", (m) => share(m) > 0],
    ["var(--orange)", "a tenth or more", (m) => share(m) >= 0.1],
    ["var(--red)", "half or more", (m) => share(m) >= 0.5],
  ];
  const READ = [
    ["var(--spared)", "spared by the query", () => true],
    ["var(--blue)", "read by the query", (m) => m.read > 0],
  ];
  const colourOf = (scale, mark) => scale.filter(([, , holds]) => holds(mark)).pop()[0];
  const markText = (mark, axis, at) => {
    const place = mark.places[at];
    return [
      mark.files === 1 ? mark.key : `${count(mark.files, "file")} side by side, the first ${mark.key}`,
      mark.partition && `partition ${mark.partition}`,
      `${bytes(mark.bytes)}, ${count(mark.rows, "row")}, ${count(mark.row_groups, "row group")}`,
      `${count(mark.deleted_rows, "row")} surely deleted (${percent(mark.deleted_rows, mark.rows)})`,
      mark.deletes > 0 && `${count(mark.deletes, "delete")} to apply when read`,
      `newest rows from version ${mark.arrived}`,
      place ? null : axis ? `no bounds of ${axis.column}` : null,
      mark.read !== null && (mark.files === 1 ? (mark.read ? "the query reads it" : "the query spares it") : `the query reads ${mark.read} of them`),
    ].filter(Boolean).join("\n");
  };

  const drawFiles = (at, scale) => {
    const axis = report.axes[at];
    const W = WIDTH, left = 58, gap = narrow ? 0 : 26, plot = narrow ? W - left : Math.round((W - left - gap) * 0.8), top = 84, H = 250, depthHigh = 54;
    const sizes = report.sizes;
    const low = Math.log2(sizes[0].least), high = Math.log2(sizes[sizes.length - 1].least) + 1;
    const y = (size) => top + H - (H * (Math.log2(Math.max(size, 1)) - low)) / Math.max(1, high - low);
    const x = (place) => left + place * plot;
    const drawing = svg("svg", { viewBox: `0 0 ${W} ${top + H + 34}`, role: "img", "aria-label": "files" });
    // How many files lie at each place.
    if (axis) {
      const most = Math.max(1, ...axis.depth), n = axis.depth.length;
      const line = axis.depth.map((d, i) => `L${x(i / n)},${top - 14 - (depthHigh * d) / most}L${x((i + 1) / n)},${top - 14 - (depthHigh * d) / most}`).join("");
      drawing.append(
        svg("path", { d: `M${x(0)},${top - 14}${line}L${x(1)},${top - 14}Z`, fill: "var(--blue-soft)" }),
        svg("text", { x: left - 8, y: top - 14 - depthHigh + 9, "text-anchor": "end" }, short(most)),
        svg("text", { x: left - 8, y: top - 14, "text-anchor": "end" }, "files at"));
      axis.depth.forEach((d, i) => drawing.append(told(
        svg("rect", { x: x(i / n), y: top - 14 - depthHigh, width: plot / n + 0.5, height: depthHigh, fill: "transparent" }),
        `a lookup here opens ${count(d, "file")}`)));
      // Labels that would run into the one before are left out; their lines stay.
      let end = -1;
      axis.ticks.forEach(([place, value], i) => {
        const text = cut(value.replace(/^(\d{4}-\d\d-\d\d \d\d:\d\d):.*$/, "$1"), 26), wide = text.length * 6.2;
        const anchor = place < 0.04 ? "start" : place > 0.96 ? "end" : "middle";
        const from = x(place) - (anchor === "start" ? 0 : anchor === "end" ? wide : wide / 2);
        drawing.append(svg("line", { x1: x(place), x2: x(place), y1: top, y2: top + H, stroke: "var(--grid)" }));
        if (from < end + 12) return;
        end = from + wide;
        drawing.append(svg("text", { x: x(place), y: top + H + 18, "text-anchor": anchor }, text));
      });
    }
    // Sizes, with what counts as small.
    const stepOf = Math.max(1, Math.ceil((high - low) / 9));
    for (let power = Math.ceil(low); power <= high; power += stepOf) {
      drawing.append(svg("text", { x: left - 8, y: y(2 ** power) + 4, "text-anchor": "end" }, bytes(2 ** power)),
        svg("line", { x1: left, x2: left + plot, y1: y(2 ** power), y2: y(2 ** power), stroke: "var(--grid)" }));
    }
    const small = Math.log2(table.small_file_bytes);
    if (small > low && small < high) {
      drawing.append(svg("line", { x1: left, x2: W, y1: y(table.small_file_bytes), y2: y(table.small_file_bytes), stroke: "var(--amber)", "stroke-dasharray": "3 4" }),
        svg("text", { x: W, y: y(table.small_file_bytes) - 4, "text-anchor": "end" }, "small below"));
    }
    // Files: where they lie, how large they are, how much of them is deleted.
    const marks = axis ? report.marks.filter((m) => m.places[at]) : [];
    const rank = (m) => scale.findIndex(([colour]) => colour === colourOf(scale, m));
    const inOrder = [...marks].sort((a, b) => rank(a) - rank(b) || a.places[at][0] - b.places[at][0]);
    inOrder.forEach((mark) => {
      const [from, to] = mark.places[at];
      const wide = Math.max(6, x(to) - x(from));
      drawing.append(told(svg("rect", {
        x: Math.min(x(from), left + plot - wide), y: y(mark.bytes / mark.files) - 3, width: wide, height: 6, rx: 2,
        fill: colourOf(scale, mark), "fill-opacity": marks.length > 400 ? 0.7 : 0.95,
      }), () => markText(mark, axis, at)));
    });
    if (!axis) drawing.append(svg("text", { x: left + plot / 2, y: top + H / 2, "text-anchor": "middle" }, "no column has statistics"));
    // How many there are of each size.
    if (!narrow) {
      const from = left + plot + gap, room = W - from, most = Math.max(1, ...sizes.map((s) => s.files));
      sizes.forEach((bin) => {
        const y1 = y(2 * bin.least) + 1, tall = Math.max(1, y(bin.least) - y1 - 1);
        const bar = (n, color) => (n > 0.01 ? svg("rect", { x: from, y: y1, width: Math.max(1.5, (room * n) / most), height: tall, rx: 1, fill: color }) : "");
        // In the files' own colours, the worst at the left: each bar is drawn over the milder one before it.
        const near = report.marks.filter((m) => m.bytes / m.files >= bin.least && m.bytes / m.files < 2 * bin.least);
        const weights = scale.slice(1).map(([color]) => [color, near.filter((m) => colourOf(scale, m) === color).reduce((sum, m) => sum + m.files, 0)]);
        const all = weights.reduce((sum, [, n]) => sum + n, 0);
        const hit = scale === READ ? bin.read : bin.with_deletes;
        let rest = hit;
        drawing.append(bar(bin.files, scale[0][0]));
        for (const [color, n] of weights) {
          drawing.append(bar(rest, color));
          rest -= all ? (hit * n) / all : hit;
        }
        drawing.append(
          told(svg("rect", { x: from, y: y1, width: room, height: tall, fill: "transparent" }),
            `${count(bin.files, "file")} from ${bytes(bin.least)} to ${bytes(2 * bin.least)}, ${bytes(bin.bytes)} together\n${whole(bin.with_deletes)} with deletes` + (query ? `\n${whole(bin.read)} read by the query` : "")));
      });
      drawing.append(svg("text", { x: from, y: top + H + 18 }, `by size (most ${short(most)})`));
    }
    return drawing;
  };

  const filesSection = () => {
    if (!report.sizes.length) return;
    const drawing = el("div", {}), note = el("p", { class: "note" }), legend = el("span", { class: "legend" });
    let at = 0, scale = query ? READ : DELETED;
    const write = () => {
      drawing.replaceChildren(walked(drawFiles(at, scale)));
      legend.replaceChildren(...scale.map(([colour, text]) => el("span", {}, el("i", { style: `background:${colour}` }), text)));
      const axis = report.axes[at];
      const there = axis ? axis.depth.filter((files) => files) : [];
      const mean = there.reduce((a, b) => a + b, 0) / Math.max(1, there.length);
      note.textContent = axis
        ? `A lookup of one ${axis.column} opens ${mean < 10 ? mean.toFixed(1) : Math.round(mean)} files on average, at most ${Math.max(...axis.depth)}.` +
          (axis.by_rank ? " Values are spread evenly by rank." : "") + (axis.unknown ? ` ${count(axis.unknown, "file")} without bounds not drawn.` : "")
        : "";
    };
    const chosen = (label, options, change) => {
      const choose = el("select", { "aria-label": label }, options.map((text, i) => el("option", { value: i }, text)));
      choose.addEventListener("change", () => { change(Number(choose.value)); write(); });
      return choose;
    };
    const axes = report.axes.length > 1
      ? chosen("column", report.axes.map((axis) => `${axis.column} (${axis.type})`), (i) => { at = i; })
      : report.axes[0] ? report.axes[0].column : "no column";
    const colours = query && chosen("colours", ["what the query reads", "deletes"], (i) => { scale = i ? DELETED : READ; });
    write();
    const grouped = report.marks.some((m) => m.files > 1);
    section("Data files",
      "Each bar is " + (grouped ? `about ${Math.round(table.files / report.marks.length)} neighbouring files` : "one file") + ": from its least to its greatest value, as high as it is large. Bars above each other are files that one lookup opens.",
      el("div", { class: "legend" }, el("span", {}, "along ", axes), colours && el("span", {}, "colour: ", colours), legend),
      drawing, note);
  };
  filesSection();

  const bars = (rows, columns, size) => {
    const most = Math.max(1, ...rows.map(size));
    return scrolled(el("table", {},
      el("tr", {}, columns.map(([title, , kind]) => el("th", { class: kind === "num" ? kind : null }, title)), el("th", { class: "bar-cell" })),
      rows.map((row) => el("tr", {},
        columns.map(([, text, kind]) => el("td", { class: kind || null }, text(row))),
        el("td", { class: "bar-cell" }, el("div", { class: "bar", style: `width:${(100 * size(row)) / most}%` }))))));
  };

  if (report.partitions.length) {
    section("Partitions", `By ${table.partition_by.join(", ") || "an earlier spec"}; those with most files first.`,
      bars(report.partitions, [
        ["partition", (p) => p.partition, "mono"], ["files", (p) => whole(p.files), "num"], ["rows", (p) => whole(p.rows), "num"],
        ["size", (p) => bytes(p.bytes), "num"], ["surely deleted", (p) => percent(p.deleted_rows, p.rows), "num"],
      ], (p) => p.files),
      report.partitions_left > 0 && el("p", { class: "note" }, `${whole(report.partitions_left)} more.`));
  }

  // -- deletes ------------------------------------------------------------------------------------

  if (report.markers.length) {
    section("Deletes that readers apply",
      `${count(report.marked_files, "file")} of ${whole(table.files)} have some. Rewriting turns them into absent rows; the bar is what that would look at.`,
      bars(report.markers, [
        ["kind", (m) => m.kind.replace("_", " ")], ["deletes", (m) => (m.count ? `${count(m.count, "marker")} of single files${m.rows ? `: ${count(m.rows, "row")}` : ""}` : cut(m.where || m.kind, 200)), "mono wide"],
        ["since version", (m) => whole(m.sequence), "num"], ["files hit", (m) => whole(m.files_hit), "num"], ["size", (m) => bytes(m.bytes_hit), "num"],
      ], (m) => m.bytes_hit),
      report.markers_left > 0 && el("p", { class: "note" }, `${whole(report.markers_left)} more that hit less.`));
  }

  // -- segments -----------------------------------------------------------------------------------

  const drawSegments = () => {
    const W = WIDTH, left = 70, H = 22, row = 34;
    const tiers = ["files", "markers", "ledger"].filter((t) => report.segments.some((s) => s.tier === t && s.entries));
    if (!tiers.length) return;
    const drawing = svg("svg", { role: "img", "aria-label": "segments" });
    let y = 4;
    for (const tier of tiers) {
      const all = report.segments.filter((s) => s.tier === tier && s.entries);
      const levels = [...new Set(all.map((s) => s.level || 0))].sort((a, b) => b - a);
      const leaves = all.filter((s) => !s.level);
      const total = leaves.reduce((sum, s) => sum + s.entries, 0);
      const room = W - left;
      drawing.append(svg("text", { x: 0, y: y + 15, class: "strong" }, tier));
      for (const level of levels) {
        let at = left;
        for (const s of all.filter((one) => (one.level || 0) === level)) {
          const share = level ? all.filter((one) => one.parent === s.id).reduce((sum, one) => sum + one.entries, 0) : s.entries;
          const wide = Math.max(0.6, (room * share) / Math.max(1, total));
          const pad = wide > 4 ? 1 : 0;
          const inline = s.id === null;
          drawing.append(
            svg("rect", { x: at, y, width: Math.max(0.5, wide - pad), height: H, rx: pad ? 2 : 0, fill: inline ? "var(--green)" : level ? "var(--blue)" : "var(--blue-soft)" }),
            s.dead > 0 && svg("rect", { x: at, y: y + H - 5, width: Math.max(1, (wide - pad) * (s.dead / Math.max(1, s.entries))), height: 5, fill: "var(--red)" }),
            told(svg("rect", { x: at, y, width: Math.max(1, wide), height: H, fill: "transparent" }), () => [
              inline ? `${count(s.entries, "entry", "entries")} in the snapshot itself` : `${level ? "node" : "segment"} ${s.id}`,
              !inline && `${count(s.entries, "entry", "entries")}, ${whole(s.dead)} of them dead`,
              !inline && bytes(s.object_bytes),
              s.rows ? `${count(s.rows, "row")}, ${bytes(s.data_bytes)} of data` : null,
              ...(s.bounds || []).slice(0, 3).map((b) => `${b.column}: ${cut(b.lower || "?", 40)} … ${cut(b.upper || "?", 40)}`),
            ].filter(Boolean).join("\n")));
          at += wide;
        }
        y += level ? H + 3 : row;
      }
    }
    drawing.setAttribute("viewBox", `0 0 ${W} ${y}`);
    const read = report.segments.filter((s) => s.id && s.tier !== "ledger");
    section("Metadata", `Opening the table is one request; a full scan reads ${count(read.length, "segment")} (${bytes(read.reduce((sum, s) => sum + s.object_bytes, 0))}) besides.`,
      el("div", { class: "legend" },
        [["--blue-soft", "segment, as wide as it has entries"], ["--blue", "node over segments"], ["--green", "inline in the snapshot"], ["--red", "dead entries"]].map(([color, text]) =>
          el("span", {}, el("i", { style: `background:var(${color})` }), text))),
      walked(drawing));
  };
  drawSegments();

  // -- maintenance --------------------------------------------------------------------------------

  const care = report.maintenance;
  const WHAT = { pack: "pack small files", fold: "take deleted rows out", drop: "drop files without a live row", cluster: "put files in order" };
  const after = (title, now, then, text = whole) => {
    const most = Math.max(1, now, then);
    return el("tr", {}, el("td", {}, title), el("td", { class: "num" }, text(now)), el("td", { class: "num" }, text(then)),
      el("td", { class: "bar-cell" },
        el("div", { class: "bar", style: `width:${(100 * now) / most}%;background:var(--file)` }),
        el("div", { class: "bar", style: `width:${(100 * then) / most}%;background:var(--green);margin-top:2px` })));
  };
  section("What maintenance would gain", care.works.length ? `inlay compact would read ${bytes(care.works.reduce((s, w) => s + w.bytes, 0))}, about ${seconds(care.seconds)} of one worker.` : "Compaction finds no file worth rewriting.",
    care.works.length > 0 && scrolled(el("table", {},
      el("tr", {}, el("th", {}, "work"), el("th", { class: "num" }, "units"), el("th", { class: "num" }, "files"), el("th", { class: "num" }, "files after"), el("th", { class: "num" }, "rows"), el("th", { class: "num" }, "reads")),
      care.works.map((w) => el("tr", {}, el("td", {}, WHAT[w.kind] || w.kind), el("td", { class: "num" }, whole(w.units)), el("td", { class: "num" }, whole(w.files)),
        el("td", { class: "num" }, whole(w.files_after)), el("td", { class: "num" }, whole(w.rows)), el("td", { class: "num" }, bytes(w.bytes)))))),
    scrolled(el("table", { style: "margin-top:14px" },
      el("tr", {}, el("th", {}, "then"), el("th", { class: "num" }, "now"), el("th", { class: "num" }, "after"), el("th", { class: "bar-cell" })),
      after("data files", care.files, care.files_after),
      care.query_files && after("files the query reads", care.query_files[0], care.query_files[1]),
      care.idle_markers > 0 && after("delete markers", table.markers, table.markers - care.idle_markers))),
    care.merges_metadata && el("p", { class: "note" }, "It would also merge metadata segments."));

  // -- the rest -----------------------------------------------------------------------------------

  section("Columns and properties", null,
    el("details", {}, el("summary", {}, `${count(table.columns.length, "column")}, ${count(Object.keys(table.properties).length, "property", "properties")} set, ${count(table.refs.length, "ref")}`),
      el("table", {}, table.columns.map((c) => el("tr", {}, el("td", { class: "mono" }, c.name), el("td", { class: "dim" }, c.type)))),
      Object.keys(table.properties).length > 0 && el("table", {}, Object.entries(table.properties).map(([key, value]) => el("tr", {}, el("td", { class: "mono" }, key), el("td", {}, value)))),
      table.refs.length > 0 && el("table", {}, table.refs.map((r) => el("tr", {}, el("td", {}, r.name), el("td", { class: "dim" }, r.kind), el("td", { class: "num" }, whole(r.version)))))));
  };
  let drawn = 0;
  const fit = () => {
    if (page.clientWidth === drawn) return;
    drawn = page.clientWidth;
    draw();
  };
  addEventListener("resize", fit);
  fit();
})();
