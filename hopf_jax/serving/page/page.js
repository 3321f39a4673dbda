"use strict";
// One node at a time: its prediction, its explanation, and its neighbourhood as SVG.
// What the service says is shown as text, never as markup.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const ROOM = 55;  // Around a drawing, for names.
const PALETTE = 8;
const SHOWN = 10;
const KINDS = { own: "its own features", labels: "labels predicted for neighbours" };

let served = null;
let asked = 0;
let suggested = 0;

async function post(path, message) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(message),
  });
  const found = await answer.json();
  if (!answer.ok) {
    const error = new Error(found.error);
    error.status = answer.status;
    throw error;
  }
  return found;
}

const shown = (name) => (Array.isArray(name) ? JSON.stringify(name) : String(name));
const percent = (share) =>
  share > 0.9995 && share < 1 ? "> 99.9%" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)}%`;

function colour(label) {
  const place = served.labels.indexOf(label);
  return place >= 0 && place < PALETTE ? `k${place}` : "other";
}

function element(tag, { text, ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function shape(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function bar(share, kind = "fill") {
  const inner = shape(
    "svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    shape("rect", { class: kind, width: 100 * share, height: 10 }),
  );
  return element("div", { class: "bar" }, inner);
}

function row(head, share, kind) {
  const first = element("td");
  first.append(head);
  return element(
    "tr", {}, first, element("td", { class: "wide" }, bar(share, kind)),
    element("td", { class: "number", text: percent(share) }),
  );
}

function dotted(label, text) {
  const made = element("span", {}, element("span", { class: `dot ${colour(label)}` }));
  made.append(text);
  return made;
}

// A typed text may be a name or a number that is one: which of them, the service says.
function readings(text) {
  const found = [text];
  if (/^-?\d{1,15}$/.test(text)) found.unshift(Number(text));
  if (/^-?\d*\.\d+$/.test(text)) found.unshift(Number(text));
  if (/^\[.*\]$/.test(text)) {
    try { found.unshift(JSON.parse(text)); } catch { /* It is a text after all. */ }
  }
  return found;
}

async function predict(name) {
  const found = await post("/predict", { nodes: [name], probabilities: true });
  return found.predictions[0];
}

async function find(text) {
  let problem;
  for (const name of readings(text)) {
    try {
      return await predict(name);
    } catch (error) {
      if (error.status !== 404) throw error;
      problem = error;
    }
  }
  problem.message = `There is no node ${text}.`;
  throw problem;
}

async function show(text, known) {
  const turn = ++asked;
  $("problem").hidden = true;
  $("answer").classList.add("waiting");
  try {
    const said = known === undefined ? await find(text) : await predict(known);
    const why = await post("/explain", { node: said.node, most: 24 });
    if (turn !== asked) return;  // Another node was asked for meanwhile.
    $("answer").hidden = false;  // First: the drawing is as wide as its place.
    fill(said, why);
    document.title = `${shown(said.node)}: ${why.label}`;
    const place = "#" + encodeURIComponent(shown(said.node));
    if (location.hash !== place) history.pushState(said.node, "", place);
  } catch (error) {
    if (turn !== asked) return;
    $("answer").hidden = true;
    $("problem").textContent = error.message;
    $("problem").hidden = false;
  } finally {
    if (turn === asked) $("answer").classList.remove("waiting");
  }
}

function fill(said, why) {
  $("node").value = shown(said.node);
  $("who").textContent = `Node ${shown(said.node)} is predicted to be`;
  const several = Array.isArray(said.label);
  const labels = several ? said.label : [said.label];
  $("label").replaceChildren(
    ...(labels.length ? labels.map((each) => dotted(each, `${each} `)) : ["no label"]),
  );
  $("confidence").hidden = several;
  if (!several) {
    $("confidence").replaceChildren(bar(said.confidence).firstChild);
    $("sure").textContent = `${percent(said.confidence)} sure`;
  } else {
    $("sure").textContent = `Explained below: ${why.label}`;
  }
  const likely = served.labels
    .map((label) => [label, said.probabilities[String(label)]])
    .sort((one, other) => other[1] - one[1])
    .slice(0, SHOWN);
  $("labels").replaceChildren(
    ...likely.map(([label, share]) => row(dotted(label, String(label)), share, colour(label))),
  );
  $("shares").replaceChildren(
    ...why.shares.map(({ name, share }) =>
      row(KINDS[name] || `features of nodes ${name.replace("hop", "at hop")}`, share)),
  );
  const near = why.nodes.slice(1).filter((each) => each.share > 0)
    .sort((one, other) => other.share - one.share).slice(0, SHOWN);
  $("near").replaceChildren(...near.map((each) => {
    const link = element("button", { class: "name", type: "button", text: shown(each.node) });
    link.addEventListener("click", () => show(shown(each.node), each.node));
    const head = dotted(each.label, "");
    head.append(link, element("span", { class: "quiet", text: ` ${each.label}, hop ${each.hop}` }));
    return row(head, each.share);
  }));
  if (!near.length) $("near").replaceChildren(element("tr", {}, element("td", { text: "none" })));
  $("features").replaceChildren(
    ...why.features.slice(0, SHOWN).map(({ name, share }) => row(name, share)),
  );
  draw(why);
}

function draw(why) {
  const graph = $("graph");
  // One unit is one pixel, so that names are as large on a phone as elsewhere.
  const side = Math.min(700, Math.max(300, graph.parentElement.clientWidth - 32));
  const far = Math.max(1, ...why.nodes.map((node) => node.hop));
  const most = Math.max(...why.nodes.map((node) => node.share), 1e-9);
  const at = why.nodes.map((node) => {
    // Rings, the inner ones wide, since all nodes of a ring share its circumference.
    const out = node.hop ? (side / 2 - ROOM) * (node.hop / far) ** 0.65 / node.hop : 0;
    return [out * node.x, -out * node.y];
  });
  const radius = why.nodes.map((node, i) => (i ? 4 + 11 * Math.sqrt(node.share / most) : 15));
  const order = why.nodes.map((_, i) => i).sort((a, b) => why.nodes[b].share - why.nodes[a].share);
  const named = new Set([0, ...order.slice(0, Math.round(side / 32))]);
  const [xs, ys] = [0, 1].map((axis) => at.map((place) => place[axis]));
  const left = Math.min(...xs) - ROOM, top = Math.min(...ys) - 32;
  const width = Math.max(...xs) + ROOM - left, height = Math.max(...ys) + 32 - top;
  graph.setAttribute("viewBox", `${left} ${top} ${width} ${height}`);
  graph.setAttribute(
    "aria-label", `Node ${shown(why.node)} and ${why.nodes.length - 1} nodes that it reads`,
  );
  const lines = why.edges.filter(([a, b]) => a !== b).map(([a, b]) => {
    const outward = why.nodes[a].hop !== why.nodes[b].hop;
    return shape("line", {
      x1: at[a][0], y1: at[a][1], x2: at[b][0], y2: at[b][1], class: outward ? "" : "beside",
    });
  });
  const nodes = why.nodes.map((node, i) => {
    const [x, y] = at[i];
    const title = shape("title", {});
    title.textContent =
      `${shown(node.node)}: ${node.label}; ${percent(node.share)} of the prediction`;
    const above = i && y < 0;
    const name = shape("text", { x, y: above ? y - radius[i] - 4 : y + radius[i] + 12 });
    const text = shown(node.node);
    name.textContent = text.length > 14 ? text.slice(0, 13) + "…" : text;
    const made = shape(
      "g", { class: "node", tabindex: 0, role: "button", "aria-label": title.textContent },
      shape("circle", { cx: x, cy: y, r: radius[i], class: colour(node.label) }),
      ...(named.has(i) ? [name] : []), title,
    );
    const go = () => show(shown(node.node), node.node);
    made.addEventListener("click", go);
    made.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); go(); }
    });
    return made;
  });
  // The node itself is drawn last, above the others.
  graph.replaceChildren(...lines, ...nodes.slice(1), nodes[0]);
  const there = served.labels.filter((label) => why.nodes.some((n) => n.label === label));
  $("legend").replaceChildren(
    ...there.map((label) => element("li", {}, dotted(label, String(label)))),
  );
  const others = why.left_out ? `; ${why.left_out} more are not drawn` : "";
  $("more").textContent = `A larger disc matters more; colours are predicted labels${others}.`;
}

async function suggest() {
  const turn = ++suggested;
  const prefix = $("node").value.trim();
  if (!prefix) return;
  try {
    const found = await post("/search", { prefix });
    if (turn !== suggested) return;
    $("found").replaceChildren(
      ...found.nodes.map((name) => element("option", { value: shown(name) })),
    );
  } catch { /* Suggestions are a help; without them one types the whole name. */ }
}

async function start() {
  try {
    served = await (await fetch("/health")).json();
  } catch {
    $("problem").textContent = "The service does not answer. Reload the page.";
    $("problem").hidden = false;
    return;
  }
  const count = (number) => number.toLocaleString("en");
  $("about").textContent =
    `${served.model}, ${count(served.nodes)} nodes, ${count(served.edges)} edges, ` +
    `${count(served.labels.length)} labels`;
  $("examples").append("For example ");
  served.examples.forEach((name, i) => {
    const link = element("button", { class: "name", type: "button", text: shown(name) });
    link.addEventListener("click", () => show(shown(name), name));
    $("examples").append(i ? ", " : "", link);
  });
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("node").value.trim();
    if (text) show(text);
  });
  $("node").addEventListener("input", suggest);
  const follow = () => {
    if (location.hash.length > 1) show(decodeURIComponent(location.hash.slice(1)));
  };
  addEventListener("popstate", follow);
  follow();
}

start();
