/* Last: everything begins, and the page says that it can be used. */
root.dataset.script = "on";
startTheme();
startSorting();
for (const table of document.querySelectorAll(".folders table")) new FolderTable(table);
startScrolling();
requestAnimationFrame(() => { root.dataset.ready = Math.round(performance.now()); });
