"use strict";
// Shows the results that stand in the element `data`. Texts of results become
// text nodes and attributes, never HTML.
const OPEN = 5; // results that are open at first; the others wait for a click

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function percent(weight) {
  if (weight === null) return "NaN";
  if (weight > 0 && weight < 5) return "<1 %";
  return Math.round(weight / 10) + " %";
}

// A name in a sentence, whose direction does not reach the words beside it.
function apart(name) {
  return `\u2068${name}\u2069`;
}

// "black 90 %, cat 10 %": the largest weights first, without those below 1 %.
function told(names, weights) {
  const order = names.map((_, i) => i).filter((i) => weights[i] >= 5);
  order.sort((i, j) => weights[j] - weights[i]);
  if (!order.length) return "nothing";
  const first = order.slice(0, 8).map((i) => `${apart(names[i])} ${percent(weights[i])}`);
  return first.join(", ") + (order.length > 8 ? " and less to others" : "");
}

// A row of tokens of which one is chosen: a group of radio buttons, which Tab
// reaches once and the arrow keys walk through.
class Tokens {
  constructor(names, label, onShow) {
    this.names = names;
    this.onShow = onShow;
    this.chosen = 0;
    this.box = element("div", "tokens");
    this.box.setAttribute("role", "radiogroup");
    this.box.setAttribute("aria-label", label);
    this.box.dir = "auto";
    this.buttons = names.map((name, i) => this.button(name, i));
    const ending = element("span", "ending"); // so that no line has the last alone
    ending.append(...this.buttons.slice(-2));
    this.box.append(...this.buttons.slice(0, -2), ending);
  }

  button(name, i) {
    const made = element("button", "token");
    made.type = "button";
    made.setAttribute("role", "radio");
    made.setAttribute("aria-checked", "false");
    made.tabIndex = i ? -1 : 0;
    made.append(element("span", "name", name), element("span", "percent"));
    made.addEventListener("focus", () => this.choose(i));
    made.addEventListener("click", () => made.focus());
    made.addEventListener("mouseenter", () => this.onShow(i, false));
    made.addEventListener("mouseleave", () => this.onShow(null, false));
    made.addEventListener("keydown", (event) => this.move(event, i));
    return made;
  }

  choose(i) {
    this.chosen = i;
    this.buttons.forEach((button, j) => (button.tabIndex = j === i ? 0 : -1));
    this.onShow(i, true);
  }

  move(event, i) {
    const last = this.names.length - 1;
    const forward = getComputedStyle(this.box).direction === "rtl" ? -1 : 1;
    const steps = { ArrowRight: forward, ArrowLeft: -forward, ArrowDown: 1, ArrowUp: -1 };
    let next = { Home: 0, End: last }[event.key];
    if (event.key in steps) next = (i + steps[event.key] + last + 1) % (last + 1);
    if (next === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.buttons[next].focus();
  }

  mark(i) {
    this.buttons.forEach((button, j) => button.setAttribute("aria-checked", String(j === i)));
  }

  weigh(weights) {
    this.buttons.forEach((button, i) => {
      const weight = weights ? weights[i] : 0;
      button.style.setProperty("--weight", Math.min(1, Math.max(0, (weight || 0) / 1000)));
      button.lastChild.textContent = weights ? percent(weight) : "";
    });
  }
}

function attention(source, hypothesis) {
  const { tokens, weights } = hypothesis;
  const told_here = element("p", "told");
  told_here.setAttribute("role", "status");
  let kept = ["target", 0]; // what is shown when the pointer leaves

  function show(side, i) {
    const back = side === "target" ? targets : sources;
    const ahead = side === "target" ? sources : targets;
    const row = side === "target" ? weights[i] : weights.map((row) => row[i]);
    back.mark(i);
    back.weigh(null);
    ahead.mark(-1);
    ahead.weigh(row);
    const text =
      side === "target"
        ? `${apart(tokens[i])} attended to: ${told(source, row)}.`
        : `${apart(source[i])} was attended to by: ${told(tokens, row)}.`;
    if (told_here.textContent !== text) told_here.textContent = text;
  }

  function shower(side) {
    return (i, keep) => {
      if (keep) kept = [side, i];
      if (i === null) show(...kept);
      else show(side, i);
    };
  }

  const targets = new Tokens(tokens, "Target tokens", shower("target"));
  const sources = new Tokens(source, "Source tokens", shower("source"));
  const label = (text) => {
    const made = element("p", "group", text);
    made.setAttribute("aria-hidden", "true"); // the groups have it as a name
    return made;
  };
  const parts = element("div");
  parts.append(label("target"), targets.box, label("source"), sources.box, told_here, table(source, hypothesis));
  show("target", 0);
  return parts;
}

// All weights as a table, which is made when it is opened.
function table(source, { tokens, weights }) {
  const details = element("details", "weights");
  details.append(element("summary", "", "All weights"));
  details.addEventListener("toggle", () => {
    if (details.childElementCount > 1) return;
    const made = element("table");
    const head = made.createTHead().insertRow();
    head.append(element("td"));
    const heading = (name, scope) => {
      const cell = element("th", "", name);
      cell.scope = scope;
      return cell;
    };
    head.append(...source.map((name) => heading(name, "col")));
    const body = made.createTBody();
    tokens.forEach((name, i) => {
      const row = body.insertRow();
      row.append(heading(name, "row"));
      for (const weight of weights[i]) {
        const cell = element("td", "", weight === null ? "NaN" : (weight / 1000).toFixed(3));
        cell.style.setProperty("--weight", Math.min(1, (weight || 0) / 1000));
        row.append(cell);
      }
    });
    const scroll = element("div", "scroll");
    scroll.tabIndex = 0; // so that arrow keys scroll it
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", "All weights");
    scroll.append(made);
    details.append(scroll);
  });
  return details;
}

function card(source, hypothesis, number) {
  const made = element("section", "hypothesis");
  const title = element("h2", "", `${number + 1}. ${hypothesis.text}`);
  title.dir = "auto";
  title.id = `hypothesis-${card.made++}`;
  made.setAttribute("aria-labelledby", title.id);
  made.append(title);
  if (hypothesis.score) made.append(element("p", "score", `score ${hypothesis.score}`));
  if (hypothesis.tokens && hypothesis.tokens.length) made.append(attention(source, hypothesis));
  else made.append(element("p", "note", "The attention of this text is not known."));
  return made;
}
card.made = 0;

function result({ source, hypotheses }, number) {
  const made = element("details", "result");
  const summary = element("summary");
  const words = source.filter((x) => x !== "⏎"); // the end
  const letters = words.every((x) => [...x].length === 1);
  summary.append(
    element("bdi", "", words.join(letters ? "" : " ").replaceAll("␣", " ")),
    element("span", "arrow", "→"),
    element("bdi", "", hypotheses[0].text),
  );
  made.append(summary);
  const fill = () => {
    if (made.childElementCount > 1) return;
    const cards = element("div", "hypotheses");
    cards.append(...hypotheses.map((x, i) => card(source, x, i)));
    made.append(cards);
  };
  made.addEventListener("toggle", fill);
  if (number < OPEN) {
    made.open = true;
    fill();
  }
  return made;
}

const { results } = JSON.parse(document.getElementById("data").textContent);
document.getElementById("results").append(...results.map(result));
document.getElementById("help").hidden = !results.length;
