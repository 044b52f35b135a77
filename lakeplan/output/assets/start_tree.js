/* Loaded last: starts everything, then marks the page as ready. */
root.dataset.script = "on";
startTheme();
startSorting();
for (const table of document.querySelectorAll(".folders table")) new FolderTable(table);
startScrolling();
requestAnimationFrame(() => { root.dataset.ready = Math.round(performance.now()); });
