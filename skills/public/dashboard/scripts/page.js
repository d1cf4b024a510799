// Tables sort by a press on a head, and filter by a text. Without this script they are still whole.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, at) => {
    const cell = row.cells[at];
    return cell.dataset.v ? Number(cell.dataset.v) : cell.textContent;
  };
  const compare = (x, y) =>
    typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
  heads.forEach((head, at) =>
    head.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const order = (a, b) => {
        const x = key(a, at), y = key(b, at);
        if (x === "" || y === "") return (x === "") - (y === ""); // empty cells stay at the end
        return down ? compare(y, x) : compare(x, y);
      };
      body.append(...[...body.rows].sort(order));
    })
  );
  const field = table.closest("section").querySelector("input");
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}
