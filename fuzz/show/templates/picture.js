// Steps through the pictures of a page. Each <figure class="kvp"> carries its own data and its own cursor.
"use strict";
(function () {
  const pictures = [];
  let latest = null;

  function node(name, kind, ...children) {
    const made = document.createElement(name);
    if (kind) made.className = kind;
    for (const child of children) if (child !== null && child !== undefined) made.append(child);
    return made;
  }

  function plural(count, word) { return count + " " + word + (count === 1 ? "" : "s"); }

  function start(figure) {
    const data = JSON.parse(figure.querySelector(".kvp-data").textContent);
    const find = (name) => figure.querySelector("." + name);
    const scroll = find("kvp-scroll"), grid = find("kvp-grid"), cursor = find("kvp-cursor"), spot = find("kvp-spot");
    const heads = [...figure.querySelectorAll(".kvp-head")], rows = [...figure.querySelectorAll(".kvp-block")];
    const blocks = rows.map((row) => Number(row.dataset.block));
    const placeOf = new Map(data.blocks.map((block, place) => [block, place]));
    const last = data.columns.length - 1;
    let column = data.at === null ? 0 : data.at;
    let row = Math.max(blocks.indexOf(data.selected), 0);

    function chip(name) {
      const made = node("span", "kvp-chip", name);
      made.dataset.hue = data.hue[name] === undefined ? "" : data.hue[name];
      return made;
    }
    function glyph(token) {
      if (token === undefined) return "·";
      if (token < 0) return "?";
      return data.glyphs && data.glyphs[token] !== undefined ? data.glyphs[token] : String(token);
    }
    function slot(token, kind, title) {
      const made = node("span", "kvp-slot " + (kind || ""), glyph(token));
      made.title = title || (token === undefined ? "never written" : token < 0 ? "a placeholder" : "token " + token);
      return made;
    }
    function slots(tokens, size) {
      const made = node("div", "kvp-slots");
      const most = Math.min(size, 64);
      for (let place = 0; place < most; place++) made.append(slot(tokens[place], place < tokens.length ? "" : "kvp-none"));
      if (size > most) made.append(node("span", "kvp-dim", "… " + size + " slots"));
      return made;
    }
    function pairs(list, name, ...value) { list.append(node("dt", "", name), node("dd", "", ...value)); }

    function aboutOperation(at) {
      const now = data.columns[at], wrong = at === data.at;
      const made = node("section", "", node("h4", "", "Operation " + (at + 1) + (now.drain ? ", drain phase" : "")));
      made.append(node("p", "kvp-text", now.operation));
      const said = wrong ? "✖ " + data.property : now.outcome === "done" ? "✓ done" : now.outcome + (now.reason ? ": " + now.reason : "");
      made.append(node("p", "", node("span", "kvp-badge" + (wrong ? " kvp-wrong" : ""), said)));
      if (wrong) made.append(node("p", "kvp-alert", data.message));
      if (wrong && !Object.keys(now.violating).length) made.append(node("p", "kvp-dim", "It is about the operation" + (now.accused.length ? " and request " + now.accused.join(", ") : "") + ", not about one block."));
      const list = node("dl", "");
      pairs(list, "changed", now.changed.length ? (now.changed.length > 1 ? "blocks " : "block ") + now.changed.join(", ") : "no block");
      pairs(list, "in flight", now.flights.length ? now.flights.join("; ") : "nothing");
      made.append(list);
      return made;
    }

    function stateOf(cell) { return cell.state + (cell.references ? ", " + plural(cell.references, "reference") : ""); }

    function aboutBlock(at, block) {
      const now = data.columns[at], place = now.blocks[placeOf.get(block)], cell = data.cells[place];
      const before = at ? data.columns[at - 1].blocks[placeOf.get(block)] : data.start[placeOf.get(block)];
      const made = node("section", "", node("h4", "", "Block " + block));
      const reasons = now.violating[block];
      if (reasons) made.append(node("p", "kvp-alert", reasons.join("; ")));
      const list = node("dl", "");
      pairs(list, "state", stateOf(cell) + (before !== place && data.cells[before].state !== cell.state ? " (was " + data.cells[before].state + ")" : ""));
      const held = cell.holders.map(chip).flatMap((one) => [one, " "]);
      pairs(list, "held by", ...(held.length || cell.others.length ? [...held, cell.others.join("; ")] : [node("span", "kvp-dim", "nobody")]));
      pairs(list, "published", cell.published ? "◆ yes: it can be hit" : "no");
      pairs(list, "slots", slots(cell.tokens, data.block_size));
      if (data.glyphs && cell.tokens.length) pairs(list, "tokens", cell.tokens.slice(0, 64).join(" "));
      if (cell.tokens.length && cell.prefix) {
        const cut = cell.prefix_length > cell.prefix.length ? "… " : "";
        pairs(list, "prefix", (cell.prefix.length ? cut + cell.prefix.join(" ") : "none") + (cell.namespace ? " in " + cell.namespace : ""));
      }
      if (cell.core) pairs(list, "in the core", plural(cell.core.references, "reference") + ", " + (cell.core.published ? "published" : "not published"));
      if (before === place) pairs(list, "before", node("span", "kvp-dim", "the same"));
      else pairs(list, "before", slots(data.cells[before].tokens, data.block_size), node("span", "kvp-dim", stateOf(data.cells[before]) + (data.cells[before].published ? ", published" : "")));
      made.append(list);
      return made;
    }

    function aboutRequests(at, block) {
      const now = data.columns[at];
      const made = node("section", "", node("h4", "", "Requests after it"));
      if (!now.requests.length) made.append(node("p", "kvp-dim", "none is live"));
      for (const number of now.requests) {
        const line = data.lines[number], size = data.block_size;
        const accused = now.accused.includes(line.request);
        const box = node("div", "kvp-request" + (accused ? " kvp-wrong" : ""));
        box.dataset.hue = data.hue[line.request] === undefined ? "" : data.hue[line.request];
        const counts = line.core && !line.table.length ? "not admitted by the model; the core's table: [" + line.core.join(" ") + "]"
          : plural(line.length, "token") + ", " + line.scheduled + " scheduled, " + line.computed + " computed";
        box.append(node("div", "", accused ? node("b", "", "✖") : null, chip(line.request), node("span", "kvp-dim", counts)));
        if (line.core && line.table.length) box.append(node("p", "kvp-alert", "the core's table is [" + line.core.join(" ") + "]"));
        const lane = node("div", "kvp-lane");
        const table = line.table.length ? line.table : line.core || [];
        const most = Math.min(table.length, 48), small = table.length * size > 48;
        for (let logical = 0; logical < most; logical++) {
          const cell = node("div", "kvp-cell" + (table[logical] === block ? " kvp-on" : "") + (now.violating[table[logical]] ? " kvp-wrong" : ""), node("small", "", (small ? "" : "block ") + table[logical]));
          if (small && table[logical] !== block) {
            // Many tokens: only the selected block's are spelled out.
            const share = Math.max(0, Math.min(size, line.computed - logical * size)) / size, fill = node("i", "");
            fill.style.width = 100 * share + "%";
            const meter = node("span", "kvp-meter", fill);
            cell.title = Math.round(share * size) + " of " + size + " slots computed";
            cell.classList.add("kvp-small");
            cell.append(meter);
            lane.append(cell);
            continue;
          }
          const strip = node("div", "kvp-slots");
          for (let place = logical * size; place < Math.min((logical + 1) * size, logical * size + 16); place++) {
            if (place >= line.length) strip.append(slot(undefined, "kvp-none", "no token"));
            else if (place < line.tokens.length) {
              const kind = place < line.computed ? "computed" : place < line.scheduled ? "scheduled" : "waiting";
              strip.append(slot(line.tokens[place], "kvp-" + kind, "position " + place + ", token " + line.tokens[place] + ", " + (kind === "waiting" ? "not scheduled" : kind)));
            }
          }
          cell.append(strip);
          lane.append(cell);
        }
        if (table.length > most) lane.append(node("span", "kvp-dim", "… " + plural(table.length, "block")));
        box.append(lane);
        made.append(box);
      }
      if (now.requests.length) {
        const key = node("p", "kvp-key");
        for (const [kind, said] of [["computed", "computed"], ["scheduled", "scheduled"], ["waiting", "not scheduled"]]) key.append(node("span", "", node("span", "kvp-slot kvp-" + kind, "0"), said));
        made.append(key);
      }
      return made;
    }

    function show(follow) {
      const block = blocks[row];
      cursor.style.gridColumn = String(column + 2);
      spot.style.gridColumn = String(column + 2);
      spot.style.gridRow = String(row + 2);
      spot.classList.toggle("kvp-alarmed", Boolean(data.columns[column].violating[block]));
      heads.forEach((head, at) => head.classList.toggle("kvp-here", at === column));
      rows.forEach((one, at) => one.classList.toggle("kvp-on", at === row));
      find("kvp-where").textContent = "operation " + (column + 1) + " of " + (last + 1);
      const now = data.columns[column], cell = data.cells[now.blocks[placeOf.get(block)]];
      find("kvp-said").textContent = "Operation " + (column + 1) + " of " + (last + 1) + ", " + now.operation + ": "
        + (column === data.at ? data.property + ", " + data.message : now.outcome + " " + now.reason) + ". Block " + block + ": " + stateOf(cell)
        + (cell.holders.length ? ", held by " + cell.holders.join(" and ") : "") + (cell.published ? ", published" : "") + ".";
      find("kvp-panel").replaceChildren(aboutOperation(column), aboutBlock(column, block), aboutRequests(column, block));
      figure.dataset.column = column;
      figure.dataset.block = block;
      if (follow) {
        // Only the picture's own box scrolls, never the page.
        const head = heads[column], line = rows[row], left = line.offsetWidth, top = head.offsetHeight;
        if (head.offsetLeft - left < scroll.scrollLeft) scroll.scrollLeft = head.offsetLeft - left;
        else if (head.offsetLeft + head.offsetWidth > scroll.scrollLeft + scroll.clientWidth) scroll.scrollLeft = head.offsetLeft + head.offsetWidth - scroll.clientWidth;
        const y = grid.offsetTop + line.offsetTop;
        if (y - top < scroll.scrollTop) scroll.scrollTop = y - top;
        else if (y + line.offsetHeight > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = y + line.offsetHeight - scroll.clientHeight;
      }
    }

    function go(toColumn, toRow) {
      column = Math.max(0, Math.min(last, toColumn));
      row = Math.max(0, Math.min(blocks.length - 1, toRow));
      latest = figure;
      show(true);
    }

    function key(event) {
      if (event.altKey || event.ctrlKey || event.metaKey) return false;
      const moves = { ArrowLeft: [column - 1, row], ArrowRight: [column + 1, row], Home: [0, row], End: [last, row],
        ArrowUp: [column, row - 1], k: [column, row - 1], ArrowDown: [column, row + 1], j: [column, row + 1],
        v: [data.at === null ? column : data.at, data.at === null ? row : Math.max(blocks.indexOf(data.selected), 0)] };
      const move = moves[event.key];
      if (!move) return false;
      event.preventDefault();
      go(...move);
      return true;
    }

    figure.addEventListener("keydown", (event) => { if (key(event)) event.stopPropagation(); });
    for (const button of figure.querySelectorAll("[data-go]")) {
      button.addEventListener("click", () => {
        const to = button.dataset.go;
        if (to === "wrong") go(data.at, Math.max(blocks.indexOf(data.selected), 0));
        else go(to === "first" ? 0 : to === "last" ? last : column + Number(to), row);
      });
    }
    grid.addEventListener("click", (event) => {
      const bar = event.target.closest(".kvp-bar-of"), head = event.target.closest(".kvp-head"), line = event.target.closest(".kvp-block");
      if (head) go(heads.indexOf(head), row);
      else if (line) go(column, rows.indexOf(line));
      else if (bar) {
        const box = bar.getBoundingClientRect(), span = Number(bar.dataset.span);
        const within = Math.floor(((event.clientX - box.left) / box.width) * span);
        go(Number(bar.dataset.at) + Math.max(0, Math.min(span - 1, within)), blocks.indexOf(Number(bar.dataset.block)));
      }
    });
    figure.addEventListener("focusin", () => { latest = figure; });
    // Where the run is long or the pool is large, begin at what matters.
    function open() {
      show(true);
      const head = heads[column];
      if (head) scroll.scrollLeft = head.offsetLeft + head.offsetWidth - scroll.clientWidth + 24;
    }
    open();
    const fold = figure.closest("details");
    if (fold) fold.addEventListener("toggle", () => { if (fold.open) open(); });
    return { figure, key };
  }

  for (const figure of document.querySelectorAll("figure.kvp")) pictures.push(start(figure));
  // With nothing focused, left, right, j and k go to the picture in use, if it is in sight; the page keeps its own keys.
  document.addEventListener("keydown", (event) => {
    if (event.target !== document.body || !["ArrowLeft", "ArrowRight", "j", "k", "v"].includes(event.key)) return;
    const seen = (one) => { const box = one.figure.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; };
    const ready = pictures.filter(seen);
    const one = ready.find((each) => each.figure === latest) || ready[0];
    if (one) one.key(event);
  });
})();
