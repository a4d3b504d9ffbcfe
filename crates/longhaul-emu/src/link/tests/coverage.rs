//! A test that every link option has a test of its effect.

use longhaul_core::plan::link::LINK_OPTIONS;

/// The tests of each option in virtual time, by file: the text of the file, and the name of a test
/// function in it.
const TESTS: [(&str, &str, &str); 34] = [
    ("netem", NETEM, "a_line_has_the_meaning_that_tc_gives_it"),
    ("preset", PLANS, "the_special_goes_before_the_general_and_builds_on_it"),
    ("rtt", LINK, "options_make_the_plan"),
    ("delay", ORDER, "a_fixed_delay_moves_all_alike_and_follows_its_trace_in_order"),
    ("distance", PRESET, "fibre_takes_five_microseconds_for_each_kilometre"),
    ("delay-trace", ORDER, "a_fixed_delay_moves_all_alike_and_follows_its_trace_in_order"),
    ("replay", REPLAYS, "a_replayed_path_has_the_distributions_of_the_recording"),
    ("jitter", ORDER, "jitter_keeps_order_unless_it_may_not"),
    ("reorder", ORDER, "reordered_segments_have_the_share_and_the_extent_that_were_asked_for"),
    ("rate", CAPACITY, "the_mean_rate_is_exact_however_packets_are_cut"),
    ("rate-trace", CAPACITY, "a_rate_of_steps_carries_what_its_steps_allow"),
    ("rate-layer", CAPACITY, "a_rate_of_the_wire_counts_what_each_packet_adds"),
    ("queue", CAPACITY, "the_queue_never_holds_more_than_its_limit"),
    ("aqm", CAPACITY, "queue_management_marks_capable_segments_and_drops_others"),
    ("cross", CAPACITY, "cross_traffic_takes_its_part_of_the_rate"),
    ("police", POLICING, "a_policer_passes_its_burst_and_then_exactly_its_rate"),
    ("loss", RANDOM, "independent_loss_has_its_rate_and_no_memory"),
    ("loss-burst", RANDOM, "bursts_have_their_rate_and_geometric_lengths"),
    ("loss-correlation", CHAINS, "correlated_losses_are_those_of_netem"),
    ("loss-ge", CHAINS, "a_gilbert_elliott_channel_has_the_losses_of_its_matrix"),
    ("loss-state", CHAINS, "the_chain_of_four_states_has_the_losses_of_its_matrix"),
    ("loss-pattern", RANDOM, "patterns_and_traces_lose_what_they_say"),
    ("loss-trace", RANDOM, "patterns_and_traces_lose_what_they_say"),
    ("ber", POLICING, "bit_errors_depend_on_the_size_of_segments"),
    ("corrupt", RANDOM, "damage_duplicates_and_marks_have_their_rates"),
    ("corrupt-silent", RANDOM, "damage_duplicates_and_marks_have_their_rates"),
    ("duplicate", RANDOM, "damage_duplicates_and_marks_have_their_rates"),
    ("mark", RANDOM, "only_capable_segments_are_marked"),
    ("slot", POLICING, "slots_release_segments_together_within_their_limits"),
    ("outage", CHANGES, "an_outage_drops_arriving_and_waiting_segments_only"),
    ("priority", CLASSES, "a_higher_priority_is_served_first_and_displaces_a_lower_one"),
    ("class", CLASSES, "a_class_has_its_own_delay_and_loss_and_shares_the_rate"),
    ("mtu", LINK, "options_make_the_plan"),
    ("seed", CHANGES, "the_seed_decides_and_directions_differ"),
];

const CAPACITY: &str = include_str!("capacity.rs");
const CHAINS: &str = include_str!("loss_chains.rs");
const CHANGES: &str = include_str!("changes.rs");
const CLASSES: &str = include_str!("classes.rs");
const ORDER: &str = include_str!("order.rs");
const POLICING: &str = include_str!("policing.rs");
const RANDOM: &str = include_str!("random.rs");
const REPLAYS: &str = include_str!("replays.rs");
const LINK: &str = include_str!("../../../../longhaul/src/cli/link.rs");
const NETEM: &str = include_str!("../../../../longhaul-core/src/plan/link/netem.rs");
const PLANS: &str = include_str!("../../../../longhaul-core/src/plan/link/options.rs");
const PRESET: &str = include_str!("../../../../longhaul-core/src/plan/link/preset.rs");

#[test]
fn every_option_has_a_test() {
    for option in &LINK_OPTIONS {
        let found = TESTS.iter().find(|(name, ..)| *name == option.name);
        let Some((name, file, test)) = found else { panic!("no test of --{}", option.name) };
        let start = file.find(&format!("fn {test}()")).unwrap_or_else(|| panic!("no {test}"));
        let before = file[..start].trim_end();
        assert!(before.ends_with("#[test]"), "{test} is no test");
        // A test that does not use the option, directly or in a function of its file, is not a
        // test of it.
        assert!(file.contains(*name), "the file of {test} does not use --{name}");
    }
    assert!(TESTS.iter().all(|(name, ..)| LINK_OPTIONS.iter().any(|known| known.name == *name)));
}
