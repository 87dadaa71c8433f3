//! Drawings: SVG and coloured text, made on the server. Their looks are the stylesheet's.

pub mod ansi;
pub mod diagram;
pub mod gantt;
pub mod heat;
mod layout;
pub mod strip;
