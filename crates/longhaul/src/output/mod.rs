//! Text for people: results, progress and errors. A renderer reads a result and measures nothing;
//! the last line of its text is the answer.

mod certificate;
mod certify;
mod copy;
mod diagnosis;
mod doctor;
mod failure;
mod path;
mod peer_failure;
mod print;
mod sentences;
mod stamp;
mod style;
mod test;
mod topology;

pub(crate) use certificate::{certificate_end, certificate_head, check_line};
pub(crate) use certify::certify_text;
pub(crate) use copy::{CopyBar, copy_text, copy_verdict};
pub(crate) use diagnosis::{DiagnoseView, diagnosis_text};
pub(crate) use doctor::doctor_text;
pub(crate) use failure::{failure_text, lapse_text};
pub(crate) use path::path_text;
pub(crate) use print::{
    after_printing, document_is_printed, error_is_terminal, error_size, output_error,
    output_is_terminal, print_document, print_document_line, print_json, print_message, print_note,
    print_notes, print_result, raw_error, raw_output, with_escaped_text,
};
pub(crate) use sentences::{
    complete_diagnosis, complete_doctor, complete_path, complete_test, reason_sentence,
};
pub(crate) use stamp::{stamp_failure, stamp_text};
pub(crate) use style::clear;
pub(crate) use test::TestText;
pub(crate) use topology::{link_text, topology_end, topology_summary, topology_table};
