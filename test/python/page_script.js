// page_script.js PAGE.html: runs the script of a page of the report with stubs of a
// browser, and prints what it says of the measured call (`said`) and where its line goes
// (`line`: columns and bytes).
const fs = require("fs");
const page = fs.readFileSync(process.argv[2], "utf8");
const elements = {};
const drawn = {};

class Node {}

function makeContext(id) {
  const calls = (drawn[id] ??= []);
  const state = {};
  return new Proxy(state, {
    get: (_, key) =>
      key in state ? state[key] : (...values) => { calls.push([key, ...values]); },
    set: (_, key, value) => { state[key] = value; return true; },
  });
}

function makeElement(id) {
  const element = new Node();
  const attributes = {height: id === "timeline" ? "320" : "220"};
  return Object.assign(element, {
    children: [], style: {}, textContent: "", hidden: false, clientWidth: 800,
    append(...parts) { element.children.push(...parts); },
    insertRow() { return makeElement("row"); },
    getAttribute: (name) => attributes[name],
    setAttribute() {},
    getContext: () => makeContext(id),
  });
}

const byId = (id) => elements[id] ??= makeElement(id);
byId("report").textContent = page.match(/id="report">([^]*?)<\/script>/)[1];
byId("measured").hidden = true;
Object.assign(global, {
  Node,
  window: {devicePixelRatio: 1},
  document: {getElementById: byId, createElement: makeElement, documentElement: {}},
  getComputedStyle: () => ({getPropertyValue: () => "#000"}),
});
(0, eval)(page.split("<script>\n")[1].split("</script>")[0]);

const report = JSON.parse(byId("report").textContent);
const calls = drawn.timeline ?? [];
// The axis draws from a path of its own; the line is the last one.
const last = calls.findLastIndex(([name]) => name === "beginPath");
const points = calls.slice(last).filter(([name]) => name === "lineTo");
const left = 84, top = 10, width = 800 - left - 4, height = 320 - top - 10;
const most = Math.max(report.peak_bytes, report.measured?.peak_bytes ?? 0);
console.log(JSON.stringify({
  said: byId("measured").hidden ? null : byId("measured").textContent,
  line: report.measured ? points.map(([, x, y]) => [
    Math.round((x - left) / width * report.timeline.length * 1000) / 1000,
    Math.round((1 - (y - top) / height) * most)]) : [],
}));
