//! The console in a real browser: Debian's chromium, a real server, both stores. No test ends with an error on the browser's console, a
//! violated policy or a page that is wider than its window.

mod access;
mod browser;
mod bulk;
mod every_page;
mod hostile;
mod look;
mod many;
mod people;
mod runs;
mod schedules;
mod stories;
