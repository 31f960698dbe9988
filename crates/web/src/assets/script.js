// Optional help of the page: fresh figures every minute, and values of a line by mouse and arrow keys.
"use strict";
(() => {
  const REFRESH_MILLISECONDS = 60000;

  // Points of the line of a picture, in its own units.
  const pointsOf = (svg) => {
    const points = [];
    let [x, y] = [0, 0];
    const path = svg.querySelector("path.line").getAttribute("d");
    for (const [, command, first, second] of path.matchAll(/([MLH])(-?[\d.]+)(?: (-?[\d.]+))?/g)) {
      x = Number(first);
      if (command !== "H") y = Number(second);
      points.push({ x, y });
    }
    return points;
  };

  const prepare = (svg) => {
    const { since, until, max, unit, left, right, top, bottom } = svg.dataset;
    const points = pointsOf(svg);
    const readout = document.getElementById(svg.id + "-readout");
    if (points.length === 0 || !readout) return;
    const share = (value, from, to) => (value - from) / (to - from);
    let current = -1;
    let cross = null;
    const show = (place) => {
      current = Math.max(0, Math.min(points.length - 1, place));
      const { x, y } = points[current];
      const time = Number(since) + share(x, Number(left), Number(right)) * (until - since);
      const value = share(y, Number(bottom), Number(top)) * max;
      readout.textContent = new Date(time).toISOString().slice(0, 16).replace("T", " ") + " UTC: about "
        + Number(value.toPrecision(3)) + " " + unit;
      if (!cross) {
        cross = document.createElementNS("http://www.w3.org/2000/svg", "path");
        cross.setAttribute("class", "cross");
        svg.append(cross);
      }
      cross.setAttribute("d", `M${x} ${top}V${bottom}`);
    };
    const hide = () => {
      if (cross) cross.remove();
      cross = null;
      readout.textContent = "";
    };
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
      let nearest = 0;
      points.forEach((point, place) => {
        if (Math.abs(point.x - x) < Math.abs(points[nearest].x - x)) nearest = place;
      });
      show(nearest);
    });
    svg.addEventListener("pointerleave", () => { if (document.activeElement !== svg) hide(); });
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const step = event.shiftKey ? 10 : 1;
      const places = {
        ArrowLeft: current < 0 ? points.length - 1 : current - step, ArrowRight: current + step,
        Home: 0, End: points.length - 1,
      };
      if (event.key in places) {
        event.preventDefault();
        show(places[event.key]);
      }
      if (event.key === "Escape") hide();
    });
  };

  const prepareAll = () => document.querySelectorAll("figure.chart > svg").forEach(prepare);

  // A reader who uses a control of the page keeps it: the page is replaced at the next turn.
  const isInUse = () => {
    const active = document.activeElement;
    return document.hidden || String(getSelection()) !== ""
      || (active && active !== document.body && active.closest("main") && active.id !== "main");
  };

  const refresh = async () => {
    if (isInUse()) return;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
      if (!fresh || isInUse()) return;
      const open = [...document.querySelectorAll("main details")].map((details) => details.open);
      const scrolled = [...document.querySelectorAll("main .wide")].map((wide) => wide.scrollLeft);
      document.querySelector("main").replaceWith(fresh);
      document.querySelectorAll("main details").forEach((details, place) => { details.open = Boolean(open[place]); });
      document.querySelectorAll("main .wide").forEach((wide, place) => { wide.scrollLeft = scrolled[place] || 0; });
      prepareAll();
    } catch {
      // The hub may be away. The time on the page shows its age.
    }
  };

  prepareAll();
  setInterval(refresh, REFRESH_MILLISECONDS);
})();
