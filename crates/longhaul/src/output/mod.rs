//! Text for the user: results, progress and errors. A renderer reads a result and measures nothing;
//! the last line of its text is the answer.

mod agent;
mod agent_failure;
mod certificate;
mod copy;
mod copy_bar;
mod diagnosis;
mod doctor;
mod engine_failure;
mod failure;
mod fleet;
#[cfg(feature = "hub")]
mod hub;
mod key_list;
mod link;
mod path;
mod peer_failure;
mod print;
mod sentences;
mod stamp;
mod style;
mod test;
mod topology;
mod watch;

pub(crate) use agent::{agent_checks, agent_notice};
pub(crate) use certificate::{certificate_end, certificate_head, certify_text, check_line};
pub(crate) use copy::{copy_stats, copy_text, copy_verdict};
pub(crate) use copy_bar::CopyBar;
pub(crate) use diagnosis::{DiagnoseView, diagnosis_text};
pub(crate) use doctor::doctor_text;
pub(crate) use engine_failure::lapse_text;
pub(crate) use failure::failure_text;
pub(crate) use fleet::{
    fleet_apply_text, fleet_hosts_text, fleet_plan_text, fleet_revoked_text, fleet_run_text,
    fleet_runs_text, fleet_status_text,
};
#[cfg(feature = "hub")]
pub(crate) use hub::hub_failure;
pub(crate) use key_list::ignored_lines;
pub(crate) use link::link_text;
pub(crate) use path::path_text;
#[cfg(test)]
pub(crate) use print::on_columns;
pub(crate) use print::{
    after_printing, command_columns, document_is_printed, error_is_colored, error_is_terminal,
    error_size, output_error, output_is_colored, output_is_terminal, print_document,
    print_document_line, print_json, print_message, print_note, print_notes, print_result,
    raw_error, raw_output, text_columns, with_escaped_text,
};
pub(crate) use sentences::{
    complete_diagnosis, complete_doctor, complete_path, complete_test, reason_sentence,
};
pub(crate) use stamp::{stamp_failure, stamp_text};
pub(crate) use style::clear;
pub(crate) use test::TestText;
pub(crate) use test::words::list_row;
pub(crate) use topology::{topology_end, topology_summary, topology_table};

pub(crate) use watch::{WatchTerminal, WatchView, watch_lines};
