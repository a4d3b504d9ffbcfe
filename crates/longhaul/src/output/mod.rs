//! Text for people. A renderer reads results and computes nothing; each ends with the answer.

mod certificate;
mod copy;
mod diagnosis;
mod doctor;
mod path;
mod print;
mod style;
mod test;
mod topology;

pub(crate) use certificate::{certificate_end, certificate_head, check_line};
pub(crate) use copy::{CopyBar, copy_text};
pub(crate) use diagnosis::{DiagnoseView, diagnosis_text};
pub(crate) use doctor::doctor_text;
pub(crate) use path::path_text;
pub(crate) use print::{
    after_printing, answer, document, document_line, error_is_terminal, error_size, harmless, json,
    output_error, output_is_terminal, raw_error, raw_output, remark, remark_text, say,
};
pub(crate) use style::clear;
pub(crate) use test::TestText;
pub(crate) use topology::{link_text, topology_end, topology_summary, topology_table};
